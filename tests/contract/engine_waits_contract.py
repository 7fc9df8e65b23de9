"""A run waits for a condition over a store, and is woken by a change of what it read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from functools import partial
from itertools import permutations
from typing import TypeAlias

import pytest

from stepwell import (
    Failure,
    InvalidState,
    Ledger,
    Outcome,
    ReceiptMismatch,
    Revision,
    Run,
    RunCancelled,
    RunHandle,
    StepFailed,
    StoreKey,
    StoreNotFound,
    Success,
    Taken,
    TimedOut,
    TooLarge,
    Unavailable,
    Unmatched,
    define_store,
    workflow,
)
from stepwell.core.batch import Batch, Commit, Document, RegisterWaiter
from stepwell.core.poll import PollPolicy
from stepwell.services.ledger import Verdict

from .engine_world import NOW_MS, EngineWorld, Opened, ended, failure, success, until
from .ledger_double import LedgerDouble
from .store_world import Chat, Message, append, chats, empty

HOUR_MS = 3_600_000

MATCHES: tuple[object, ...] = (0, "", [], {}, True)

TakeFailure: TypeAlias = StoreNotFound | InvalidState | ReceiptMismatch | TooLarge


Count: TypeAlias = dict[str, int]
counts = define_store("counts of waits", Count)


def unprocessed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if not message.get("processed")), None)


def unclaimed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if "claimed_by" not in message), None)


def claim_as(name: str) -> Callable[[Chat, Message], None]:
    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = name

    return claim


def unrelated(chat: Chat) -> None:
    chat["unrelated"] = chat.get("unrelated", 0) + 1


def count_one(key: str, count: Count) -> None:
    count[key] = 1


async def made(app: Opened, *ids: str) -> None:
    """The store `c` with these messages."""
    _ = success(await app.store.get_or_create(chats, "c", {"messages": [{"id": id} for id in ids]}))


class Counting(LedgerDouble):
    """A ledger that counts the batches that it is given."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.batches = 0

    async def commit(self, batch: Batch) -> Verdict:
        self.batches += 1
        return await self.real.commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        self.batches += len(batches)
        return await self.real.commit_all(batches)


async def failed(handle: RunHandle[object]) -> object:
    """The failure that a workflow gives."""
    return failure(await ended(handle))


async def waiters_of(app: Opened, run_id: str) -> int:
    return len(success(await app.ledger.waiters(run_id=run_id)))


@workflow
async def waits(run: Run) -> Outcome[Message, StoreNotFound | InvalidState | TimedOut]:
    return await run.store(chats, "c").when("ready", unprocessed)


@workflow
async def waits_an_hour(run: Run) -> Outcome[Message, StoreNotFound | InvalidState | TimedOut]:
    return await run.store(chats, "c").when("ready", unprocessed, timeout=3600)


@workflow
async def takes(run: Run) -> str:
    taken = success(await run.store(chats, "c").take("mine", unclaimed, claim_as(run.id)))
    return f"{taken.selected['id']} by {taken.selected.get('claimed_by')} at {taken.revision.version}"


class EngineWaitsContract:
    # --- when -----------------------------------------------------------------

    async def test_s104_a_run_waits_for_a_message_and_gives_it(self, world: EngineWorld) -> None:
        async with world.engine(waits) as app:
            await made(app)
            handle = success(await app.engine.start(waits, id="r"))
            await app.waits_for("r", "'ready'")
            _ = success(await app.store.update(chats, "c", append("x")))
            assert await ended(handle) == Success({"id": "x"})
            assert await waiters_of(app, "r") == 0
        async with world.engine(waits) as app:
            assert await ended(success(await app.engine.start(waits, id="r"))) == Success({"id": "x"})

    async def test_s107_what_is_true_already_is_given_at_once(self, world: EngineWorld) -> None:
        async with world.engine(waits) as app:
            await made(app, "a")
            assert await ended(success(await app.engine.start(waits, id="r"))) == Success({"id": "a"})
            steps = await app.steps("r")
            assert (steps["ready"].status, steps["ready"].position) == ("done", 1)
            assert await waiters_of(app, "r") == 0

    async def test_a_write_to_nothing_that_was_read_wakes_nobody(self, world: EngineWorld) -> None:
        looks: list[int] = []

        @workflow
        async def counted(run: Run) -> int:
            def ready(chat: Chat) -> int | None:
                looks.append(len(chat["messages"]))
                return 1 if chat["messages"] else None

            return success(await run.store(chats, "c").when("ready", ready))

        async with world.engine(counted) as app:
            await made(app)
            handle = success(await app.engine.start(counted, id="r"))
            await app.waits_for("r", "'ready'")
            for _ in range(20):
                _ = success(await app.store.update(chats, "c", unrelated))
            await app.clock.advance(HOUR_MS)
            assert looks == [0]
            _ = success(await app.store.update(chats, "c", append("x")))
            assert await ended(handle) == Success(1)
            assert looks == [0, 1]

    async def test_when_on_a_missing_store_is_not_found_at_once(self, world: EngineWorld) -> None:
        async with world.engine(waits) as app:
            assert await failed(success(await app.engine.start(waits, id="r"))) == StoreNotFound(chats.key("c"))

    async def test_s117_a_deleted_store_ends_the_waits_for_it(self, world: EngineWorld) -> None:
        @workflow
        async def takes_all(
            run: Run,
        ) -> Outcome[Taken[Message], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
            return await run.store(chats, "c").take("mine", unclaimed, claim_as("t"))

        async with world.engine(waits, takes_all) as app:
            await made(app)
            waiting = success(await app.engine.start(waits, id="w"))
            taking = success(await app.engine.start(takes_all, id="t"))
            await app.waits_for("w", "'ready'")
            await app.waits_for("t", "'mine'")
            _ = success(await app.store.delete(chats, "c"))
            gone = StoreNotFound(chats.key("c"))
            assert await failed(waiting) == gone
            assert await failed(taking) == gone
            assert (await waiters_of(app, "w"), await waiters_of(app, "t")) == (0, 0)
        async with world.engine(waits, takes_all) as app:
            assert await failed(success(await app.engine.start(waits, id="w"))) == gone

    async def test_a_wait_belongs_to_the_instance_that_it_looked_at(self, world: EngineWorld) -> None:
        @workflow
        async def takes_all(
            run: Run,
        ) -> Outcome[Taken[Message], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
            return await run.store(chats, "c").take("mine", unclaimed, claim_as("t"))

        async with world.engine(waits, takes_all) as app:
            await made(app)
            _ = success(await app.engine.start(waits, id="w"))
            _ = success(await app.engine.start(takes_all, id="t"))
            await app.waits_for("w", "'ready'")
            await app.waits_for("t", "'mine'")
        async with world.engine(drive=False) as app:
            _ = success(await app.store.delete(chats, "c"))
            await made(app, "of another instance")
        async with world.engine(waits, takes_all) as app:
            gone = StoreNotFound(chats.key("c"))
            assert await failed(success(await app.engine.start(waits, id="w"))) == gone
            assert await failed(success(await app.engine.start(takes_all, id="t"))) == gone
            assert success(await app.store.get(chats, "c")).version == 0

    async def test_s141_the_selector_is_looked_at_before_the_deadline_is(self, world: EngineWorld) -> None:
        async with world.engine(waits_an_hour) as app:
            await made(app)
            _ = success(await app.engine.start(waits_an_hour, id="r"))
            await app.waits_for("r", "'ready'")
        async with world.engine(drive=False) as app:
            _ = success(await app.store.update(chats, "c", append("late")))
            await app.clock.advance(2 * HOUR_MS)
        async with world.engine(waits_an_hour) as app:
            assert await ended(success(await app.engine.start(waits_an_hour, id="r"))) == Success({"id": "late"})

    async def test_s142_a_deadline_that_passed_without_a_match_is_timed_out_for_good(self, world: EngineWorld) -> None:
        async with world.engine(waits_an_hour) as app:
            await made(app)
            handle = success(await app.engine.start(waits_an_hour, id="r"))
            await app.waits_for("r", "'ready'")
            await app.clock.advance(HOUR_MS)
            assert await failed(handle) == TimedOut(HOUR_MS)
            assert await waiters_of(app, "r") == 0
            _ = success(await app.store.update(chats, "c", append("too late")))
        async with world.engine(waits_an_hour) as app:
            handle = success(await app.engine.start(waits_an_hour, id="r"))
            assert await failed(handle) == TimedOut(HOUR_MS)

    @pytest.mark.parametrize("order", list(permutations(("sleep", "signal", "when"))), ids="-".join)
    async def test_deadlines_that_passed_while_nobody_drove_the_run_end_in_their_order(
        self, world: EngineWorld, order: tuple[str, ...]
    ) -> None:
        seen: list[list[str]] = []

        @workflow
        async def waits_long(run: Run) -> None:
            async def late(kind: str, seconds: int) -> str:
                for turn in range(seconds % 7):
                    await run.step(f"{kind} {turn}", int)  # the replay comes to some of them before the others
                match kind:
                    case "sleep":
                        await run.sleep("sleep", seconds)
                    case "signal":
                        _ = failure(await run.signal("n", int, timeout=seconds))
                    case _:
                        _ = failure(await run.store(chats, "c").when("when", unprocessed, timeout=seconds))
                seen[-1].append(kind)
                return kind

            seen.append([])
            spans = {kind: 3_600 - 10 * at for at, kind in enumerate(order)}
            _ = await run.gather(*(late(kind, seconds) for kind, seconds in spans.items()))
            await run.race(run.sleep("long", 100), run.sleep("short", 50))

        async with world.engine(waits_long) as app:
            await made(app)
            _ = success(await app.engine.start(waits_long, id="r"))
            for text in ("'sleep'", "signal 'n'", "'when'"):
                await app.waits_for("r", text)
        async with world.engine(drive=False) as app:
            await app.clock.advance(2 * HOUR_MS)
        async with world.engine(waits_long) as app:
            await app.waits_for("r", "'long'")
        async with world.engine(drive=False) as app:
            await app.clock.advance(HOUR_MS)
        async with world.engine(waits_long) as app:
            assert await ended(success(await app.engine.start(waits_long, id="r"))) == Success(None)
            steps = await app.steps("r")
            assert (steps["long"].status, steps["short"].status) == ("lost", "done")
        assert seen == [[], [*reversed(order)], [*reversed(order)]]

    async def test_a_deadline_that_passed_does_not_wait_for_a_store_that_does_not_answer(
        self, world: EngineWorld
    ) -> None:
        @workflow
        async def races(run: Run) -> str:
            async def first() -> str:
                _ = await run.store(chats, "c").when("ready", unprocessed, timeout=30)
                return "when"

            async def second() -> str:
                await run.sleep("patience", 60)
                return "patience"

            return await run.race(first(), second())

        class Dumb(LedgerDouble):
            async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
                return Failure(Unavailable("as the test says", "no"))

            async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
                return Failure(Unavailable("as the test says", "no"))

            async def document(
                self, key: StoreKey, at: Revision | None = None
            ) -> Outcome[Document | None, Unavailable]:
                return Failure(Unavailable("as the test says", "no"))

        async with world.engine(races) as app:
            await made(app)
            _ = success(await app.engine.start(races, id="r"))
            await app.waits_for("r", "'patience'")
        async with world.engine(drive=False) as app:
            await app.clock.advance(HOUR_MS)
        async with world.engine(races, around=Dumb) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("patience")

    async def test_what_timed_out_tells_the_span_that_was_recorded(self, world: EngineWorld) -> None:
        @workflow(name="waits for both")
        async def before(run: Run) -> list[object]:
            when = run.store(chats, "c").when("ready", unprocessed, timeout=60)
            return [repr(failure(outcome)) for outcome in await run.gather(when, run.signal("n", int, timeout=30))]

        @workflow(name="waits for both")
        async def after(run: Run) -> list[object]:
            outcomes = await run.gather(run.store(chats, "c").when("ready", unprocessed), run.signal("n", int))
            return [repr(failure(outcome)) for outcome in outcomes]

        async with world.engine(before) as app:
            await made(app)
            _ = success(await app.engine.start(before, id="r"))
            await app.waits_for("r", "'ready'")
            await app.clock.advance(1_000)
        async with world.engine(after) as app:
            expected = [repr(TimedOut(60_000)), repr(TimedOut(30_000))]
            assert await app.result_in_time("r") == Success(expected)

    async def test_a_timeout_of_zero_looks_once(self, world: EngineWorld) -> None:
        @workflow
        async def looks(run: Run) -> Outcome[Message, StoreNotFound | InvalidState | TimedOut]:
            return await run.store(chats, "c").when("ready", unprocessed, timeout=0)

        async with world.engine(looks) as app:
            await made(app)
            assert failure(await ended(success(await app.engine.start(looks)))) == TimedOut(0)
            _ = success(await app.store.update(chats, "c", append("x")))
            assert await ended(success(await app.engine.start(looks))) == Success({"id": "x"})

    async def test_the_deadline_counts_from_the_first_time_it_was_reached(self, world: EngineWorld) -> None:
        async with world.engine(waits_an_hour) as app:
            await made(app)
            _ = success(await app.engine.start(waits_an_hour, id="r"))
            await app.waits_for("r", "'ready'")
            await app.clock.advance(HOUR_MS - 1_000)
        async with world.engine(waits_an_hour) as app:

            async def is_parked_again() -> bool:
                return (await app.row("r")).wake_at_ms == NOW_MS + HOUR_MS

            await until(is_parked_again)  # nobody heard of wakes meanwhile, so it looks at once
            handle = success(await app.engine.start(waits_an_hour, id="r"))
            await app.clock.advance(1_000)
            assert await failed(handle) == TimedOut(HOUR_MS)

    @pytest.mark.parametrize("kind", ["async", "generator", "async generator", "awaitable"])
    async def test_s51_a_selector_is_an_ordinary_function(self, world: EngineWorld, kind: str) -> None:
        async def later(chat: Chat) -> bool:
            return bool(chat["messages"])

        def generator(chat: Chat) -> Generator[bool]:
            yield bool(chat["messages"])

        async def async_generator(chat: Chat) -> AsyncIterator[bool]:
            yield bool(chat["messages"])

        selectors: dict[str, Callable[[Chat], object]] = {
            "async": later,
            "generator": generator,
            "async generator": async_generator,
            "awaitable": lambda chat: later(chat),
        }

        @workflow
        async def misuses(run: Run) -> list[str]:
            store, wrong = run.store(chats, "c"), selectors[kind]
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: store.when("when", wrong),
                lambda: store.take("take", wrong, lambda chat, found: None),
                lambda: store.take_now("now", wrong, lambda chat, found: None),
                lambda: store.select("select", wrong),
            ]
            raised: list[str] = []
            for call in calls:
                try:
                    _ = await call()
                except TypeError as error:
                    raised.append(str(error))
            return raised

        async with world.engine(misuses) as app:
            await made(app, "a")
            raised = success(await ended(success(await app.engine.start(misuses, id="r"))))
            assert len(raised) == 4
            assert await waiters_of(app, "r") == 0
            assert success(await app.store.get(chats, "c")).version == 0

    async def test_s58_a_selector_that_changes_the_state_is_an_error_in_the_run(self, world: EngineWorld) -> None:
        def changes(chat: Chat) -> bool:
            chat["unrelated"] = 5
            return True

        @workflow
        async def misuses(run: Run) -> list[str]:
            store = run.store(chats, "c")
            raised: list[str] = []
            for call in (store.when("when", changes), store.take("take", changes, lambda chat, found: None)):
                try:
                    _ = await call
                except TypeError as error:
                    raised.append(str(error))
            return raised

        async with world.engine(misuses) as app:
            await made(app)
            raised = success(await ended(success(await app.engine.start(misuses, id="r"))))
            assert len(raised) == 2
            assert all("selector" in text for text in raised)
            assert await waiters_of(app, "r") == 0
            assert success(await app.store.get(chats, "c")).state == empty()

    async def test_what_a_selector_raises_when_it_looks_again_is_recorded(self, world: EngineWorld) -> None:
        def picky(chat: Chat) -> bool | None:
            if len(chat["messages"]) == 2:
                raise LookupError("two are too many")
            return None

        @workflow
        async def looks(run: Run) -> str:
            try:
                return str(await run.store(chats, "c").when("ready", picky))
            except StepFailed as failed:
                return f"{failed.error.type}: {failed.error.message}"

        async with world.engine(looks) as app:
            await made(app, "a")
            handle = success(await app.engine.start(looks, id="r"))
            await app.waits_for("r", "'ready'")
            _ = success(await app.store.update(chats, "c", append("b")))
            assert await ended(handle) == Success("LookupError: two are too many")
            assert await waiters_of(app, "r") == 0

    async def test_a_value_that_cannot_be_recorded_is_a_type_error_that_names_the_key(self, world: EngineWorld) -> None:
        @workflow
        async def selects(run: Run) -> str:
            try:
                _ = await run.store(chats, "c").when("ready", lambda chat: {1, 2})
            except TypeError as error:
                return str(error)
            return "none"

        async with world.engine(selects) as app:
            await made(app)
            assert "'ready'" in success(await ended(success(await app.engine.start(selects))))

    async def test_zero_and_the_empty_are_matches(self, world: EngineWorld) -> None:
        @workflow
        async def looks(run: Run) -> list[object]:
            store = run.store(chats, "c")
            found: list[object] = []
            for number, value in enumerate(MATCHES):
                found.append(success(await store.when(f"w-{number}", partial(_given, value))))
            return found

        async with world.engine(looks) as app:
            await made(app)
            assert await ended(success(await app.engine.start(looks))) == Success([*MATCHES])

    # --- take -----------------------------------------------------------------

    async def test_s109_a_run_takes_what_is_there(self, world: EngineWorld) -> None:
        async with world.engine(takes) as app:
            await made(app, "msg-1")
            handle = success(await app.engine.start(takes, id="taker-1"))
            assert await ended(handle) == Success("msg-1 by taker-1 at 1")
            assert success(await app.store.get(chats, "c")).version == 1

    async def test_s110_a_run_waits_for_something_to_take(self, world: EngineWorld) -> None:
        async with world.engine(takes) as app:
            await made(app)
            handle = success(await app.engine.start(takes, id="taker"))
            await app.waits_for("taker", "'mine'")
            _ = success(await app.store.update(chats, "c", append("x")))
            assert await ended(handle) == Success("x by taker at 2")
            assert await waiters_of(app, "taker") == 0
        async with world.engine(takes) as app:
            assert await ended(success(await app.engine.start(takes, id="taker"))) == Success("x by taker at 2")
            assert success(await app.store.get(chats, "c")).version == 2

    async def test_s111_two_runs_take_two_messages(self, world: EngineWorld) -> None:
        async with world.engine(takes) as app:
            await made(app, "msg-1", "msg-2")
            handles = [success(await app.engine.start(takes, id=f"taker-{name}")) for name in "ab"]
            _ = [success(await ended(handle)) for handle in handles]
            state = success(await app.store.get(chats, "c")).state
            assert {message.get("claimed_by") for message in state["messages"]} == {"taker-a", "taker-b"}

    async def test_s112_an_invalid_claim_is_invalid_state_in_the_run(self, world: EngineWorld) -> None:
        def spoil(_: Chat, message: Message) -> None:
            message["claimed_by"] = 42  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]

        @workflow
        async def spoils(run: Run) -> bool:
            outcome = await run.store(chats, "c").take("mine", unclaimed, spoil)
            return isinstance(failure(outcome), InvalidState)

        async with world.engine(spoils) as app:
            await made(app, "a")
            assert await ended(success(await app.engine.start(spoils, id="r"))) == Success(True)
            snapshot = success(await app.store.get(chats, "c"))
            assert (snapshot.version, snapshot.state) == (0, {"messages": [{"id": "a"}]})

    async def test_s113_an_async_claim_is_a_type_error_in_the_run(self, world: EngineWorld) -> None:
        async def later(_: Chat, message: Message) -> None:
            message["claimed_by"] = "later"

        @workflow
        async def claims(run: Run) -> str:
            try:
                _ = await run.store(chats, "c").take("mine", unclaimed, later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            except TypeError as error:
                return str(error)
            return "none"

        async with world.engine(claims) as app:
            await made(app, "a")
            assert "async" in success(await ended(success(await app.engine.start(claims))))
            assert success(await app.store.get(chats, "c")).state == {"messages": [{"id": "a"}]}

    async def test_s116_a_loop_takes_each_message_once_in_order(self, world: EngineWorld) -> None:
        @workflow
        async def handles(run: Run) -> list[str]:
            found: list[str] = []
            for turn in range(3):
                taken = success(await run.store(chats, "c").take(f"next:{turn}", unclaimed, claim_as(run.id)))
                found.append(taken.selected["id"])
            return found

        async with world.engine(handles) as app:
            await made(app)
            handle = success(await app.engine.start(handles, id="r"))
            for turn, id in enumerate("abc"):
                await app.waits_for("r", f"'next:{turn}'")
                _ = success(await app.store.update(chats, "c", append(id)))
            assert await ended(handle) == Success(["a", "b", "c"])

    async def test_take_now_does_not_wait(self, world: EngineWorld) -> None:
        seen: list[object] = []

        @workflow
        async def takes_now(run: Run) -> bool:
            missed = await run.store(chats, "c").take_now("miss", unclaimed, claim_as("me"))
            seen.append(failure(missed))
            await run.sleep("pause", 60)
            taken = success(await run.store(chats, "c").take_now("hit", unclaimed, claim_as("me")))
            seen.append(taken)
            return True

        async with world.engine(takes_now) as app:
            await made(app)
            _ = success(await app.engine.start(takes_now, id="r"))
            await app.waits_for("r", "'pause'")
            _ = success(await app.store.update(chats, "c", append("x")))
        async with world.engine(takes_now) as app:
            await app.clock.advance(60_000)
            handle = success(await app.engine.start(takes_now, id="r"))
            assert await ended(handle) == Success(True)
        first, replayed, taken = seen
        assert isinstance(first, Unmatched)
        assert first == replayed
        assert first.read_paths
        assert isinstance(taken, Taken)

    async def test_takers_of_one_selector_get_their_turns_one_at_a_time(self, world: EngineWorld) -> None:
        @workflow
        async def takes_in_turn(run: Run) -> str:
            taken = success(await run.store(chats, "c").take("mine", unclaimed, claim_as(run.id)))
            return taken.selected["id"]

        async with world.engine(takes_in_turn) as app:
            await made(app)
            handles: list[RunHandle[str]] = []
            for number in range(5):
                handles.append(success(await app.engine.start(takes_in_turn, id=f"t-{number}")))
                await app.waits_for(f"t-{number}", "'mine'")
            for number in range(5):
                _ = success(await app.store.update(chats, "c", append(f"m-{number}")))
                assert await ended(handles[number]) == Success(f"m-{number}")
            state = success(await app.store.get(chats, "c")).state
            assert [message.get("claimed_by") for message in state["messages"]] == [f"t-{n}" for n in range(5)]

    async def test_a_hundred_takers_take_a_hundred_messages_once_each(self, world: EngineWorld) -> None:
        async with world.engine(takes) as app:
            await made(app)
            handles = [success(await app.engine.start(takes, id=f"t-{number:03}")) for number in range(100)]
            for number in range(100):
                _ = success(await app.store.update(chats, "c", append(f"m-{number:03}")))
            results = [success(await ended(handle)).split()[0] for handle in handles]
            assert sorted(results) == [f"m-{number:03}" for number in range(100)]
            assert success(await app.ledger.waiters()) == ()

    async def test_what_an_item_costs_does_not_depend_on_how_many_wait(self, world: EngineWorld) -> None:
        counted: list[Counting] = []

        def around(ledger: Ledger) -> Ledger:
            counted.append(Counting(ledger))
            return counted[0]

        async with world.engine(takes, around=around) as app:
            await made(app)
            handles: list[RunHandle[str]] = []
            for number in range(40):
                handles.append(success(await app.engine.start(takes, id=f"t-{number:02}")))
                await app.waits_for(f"t-{number:02}", "'mine'")
            before = counted[0].batches
            for number in range(10):
                _ = success(await app.store.update(chats, "c", append(f"m-{number}")))
                _ = success(await ended(handles[number]))
            assert counted[0].batches - before <= 10 * 6

    # --- interruptions --------------------------------------------------------

    async def test_a_cancelled_wait_leaves_nothing_behind(self, world: EngineWorld) -> None:
        async with world.engine(waits, takes) as app:
            await made(app)
            for run_id, kind in (("w", waits), ("t", takes)):
                handle = success(await app.engine.start(kind, id=run_id))
                await until(partial(_has_waiter, app, run_id))
                _ = success(await handle.cancel())
                assert failure(await ended(handle)) == RunCancelled(run_id)
                assert await waiters_of(app, run_id) == 0
            _ = success(await app.store.update(chats, "c", append("x")))
            assert "claimed_by" not in success(await app.store.get(chats, "c")).state["messages"][0]

    async def test_a_waiting_run_that_nobody_drives_is_cancelled_with_its_waiter(self, world: EngineWorld) -> None:
        async with world.engine(waits) as app:
            await made(app)
            _ = success(await app.engine.start(waits, id="r"))
            await app.waits_for("r", "'ready'")
        async with world.engine(drive=False) as app:
            assert await waiters_of(app, "r") == 1
            _ = success(await app.engine.cancel("r"))
        async with world.engine(waits) as app:
            assert failure(await app.engine.result("r")) == RunCancelled("r")
            assert await waiters_of(app, "r") == 0

    async def test_a_stuck_run_is_cancelled_with_its_waiters(self, world: EngineWorld) -> None:
        @workflow(name="both")
        async def before(run: Run) -> None:
            store = run.store(chats, "c")
            _ = await run.gather(store.when("ready", unprocessed), run.step("one", int))

        @workflow(name="both")
        async def after(run: Run) -> None:
            _ = await run.step("ready", int)

        async with world.engine(before) as app:
            await made(app)
            _ = success(await app.engine.start(before, id="r"))
            await app.waits_for("r", "'ready'")
        async with world.engine(after) as app:
            _ = await app.becomes("r", "stuck")
            assert await waiters_of(app, "r") == 1
            _ = success(await app.engine.cancel("r"))
            assert (await app.status("r")).state == "cancelled"
            assert await waiters_of(app, "r") == 0

    async def test_a_cancelled_run_leaves_no_waiter_of_a_wait_that_its_code_no_longer_makes(
        self, world: EngineWorld
    ) -> None:
        @workflow(name="waits")
        async def after(run: Run) -> None:
            await run.sleep("pause", 60)

        async with world.engine(waits) as app:
            await made(app)
            _ = success(await app.engine.start(waits, id="r"))
            await app.waits_for("r", "'ready'")
        async with world.engine(after) as app:
            await app.waits_for("r", "'pause'")
            assert await waiters_of(app, "r") == 1
            _ = success(await app.engine.cancel("r"))
            assert failure(await app.engine.result("r")) == RunCancelled("r")
            assert await waiters_of(app, "r") == 0

    async def test_a_run_that_is_cut_off_leaves_no_waiter_of_a_wait_that_it_did_not_come_to(
        self, world: EngineWorld
    ) -> None:
        stands = asyncio.Event()
        restarted = False

        @workflow
        async def lingers(run: Run) -> None:
            try:
                await run.sleep("pause", 60)
            finally:
                if restarted:
                    stands.set()
                    _ = await asyncio.Event().wait()
                _ = await run.store(chats, "c").take("mine", unclaimed, claim_as("r"))

        async with world.engine(lingers) as app:
            await made(app)
            _ = success(await app.engine.start(lingers, id="r"))
            await app.waits_for("r", "'pause'")
            _ = success(await app.engine.cancel("r"))
            await app.waits_for("r", "'mine'")
        restarted = True
        async with world.engine(lingers) as app:
            await until(stands.is_set)
            assert await waiters_of(app, "r") == 1
            assert failure(await app.result_in_time("r")) == RunCancelled("r")
            assert await waiters_of(app, "r") == 0

    @pytest.mark.parametrize("ending", ["found", "timed out", "lost", "cancelled", "raised", "cut off"])
    async def test_waiters_that_cannot_join_are_told_of_the_end_of_a_wait(
        self, world: EngineWorld, ending: str
    ) -> None:
        def picky(chat: Chat) -> bool:
            if chat.get("unrelated"):
                raise LookupError("not so")
            return bool(chat["messages"])

        @workflow
        async def looks(run: Run) -> None:
            timeout = 60 if ending == "timed out" else None
            if ending == "cut off":
                try:
                    await run.sleep("pause", 3_600)
                finally:
                    _ = await run.store(chats, "c").when("ready", picky)
            try:
                _ = await run.race(run.store(chats, "c").when("ready", picky, timeout=timeout), run.signal("n", int))
            finally:
                _ = await run.signal("end", int)

        async with world.engine(looks, plain=True) as app:
            await made(app)
            _ = success(await app.engine.start(looks, id="r"))
            if ending == "cut off":
                await app.waits_for("r", "'pause'")
                _ = success(await app.engine.cancel("r"))
            await until(partial(_has_waiter, app, "r"))
        async with world.engine(looks, plain=True) as app:
            assert await waiters_of(app, "r") == 1  # the run was only set aside
            match ending:
                case "found":
                    _ = success(await app.store.update(chats, "c", append("x")))
                case "timed out":
                    await app.clock.advance(60_000)
                case "lost":
                    _ = success(await app.engine.signal("r", "n", 1))
                case "cancelled":
                    _ = success(await app.engine.cancel("r"))
                case "raised":
                    _ = success(await app.store.update(chats, "c", unrelated))
                case _:
                    assert failure(await app.result_in_time("r")) == RunCancelled("r")
            if ending != "cut off":
                await app.waits_for("r", "'end'")
            assert await waiters_of(app, "r") == 0

    async def test_a_change_while_nobody_drives_the_run_is_seen_when_somebody_does(self, world: EngineWorld) -> None:
        async with world.engine(waits) as app:
            await made(app)
            _ = success(await app.engine.start(waits, id="r"))
            await app.waits_for("r", "'ready'")
        async with world.engine(drive=False) as app:
            _ = success(await app.store.update(chats, "c", append("x")))
        async with world.engine(waits) as app:
            assert await ended(success(await app.engine.start(waits, id="r"))) == Success({"id": "x"})
            assert await waiters_of(app, "r") == 0

    async def test_waits_in_branches_are_woken_each_by_its_own(self, world: EngineWorld) -> None:
        def counted(chat: Chat) -> int | None:
            return chat.get("unrelated")

        @workflow
        async def both(run: Run) -> tuple[str, int]:
            store = run.store(chats, "c")
            message, count = await run.gather(store.when("message", unprocessed), store.when("count", counted))
            return success(message)["id"], success(count)

        async with world.engine(both) as app:
            await made(app)
            handle = success(await app.engine.start(both, id="r"))
            await app.waits_for("r", "'message'")
            await app.waits_for("r", "'count'")
            _ = success(await app.store.update(chats, "c", unrelated))
            await until(lambda: _is_done(app, "r", "count"))
            _ = await app.becomes("r", "waiting")
            _ = success(await app.store.update(chats, "c", append("x")))
            assert await ended(handle) == Success(("x", 1))

    async def test_a_wake_for_one_of_many_waits_lets_the_others_neither_look_nor_register(
        self, world: EngineWorld
    ) -> None:
        looks, registered = Counter[str](), Counter[str]()

        class Counting(LedgerDouble):
            async def commit(self, batch: Batch) -> Verdict:
                keys = [write.waiter.step.key for write in batch.writes if isinstance(write, RegisterWaiter)]
                registered.update(keys)
                return await super().commit(batch)

        def there(key: str, count: Count) -> int | None:
            looks[key] += 1
            return count.get(key)

        @workflow
        async def many(run: Run) -> int:
            store = run.store(counts, "c")
            return len(await run.gather(*(store.when(key, partial(there, key)) for key in "abcdefgh")))

        async with world.engine(many, around=Counting) as app:
            _ = success(await app.store.get_or_create(counts, "c", {}))
            handle = success(await app.engine.start(many, id="r"))
            await app.waits_for("r", "'h'")
            for key in "hcaf":
                _ = success(await app.store.update(counts, "c", partial(count_one, key)))
                await until(lambda key=key: _is_done(app, "r", key))  # type: ignore[misc]
            _ = success(await app.store.update(counts, "c", lambda count: count.update(b=1, d=1, e=1, g=1)))
            assert await ended(handle) == Success(8)
            assert success(await app.ledger.waiters()) == ()
        assert looks == Counter(dict.fromkeys("abcdefgh", 2))
        assert registered == Counter("abcdefgh")

    # --- what is told of it ---------------------------------------------------

    async def test_the_status_says_what_a_run_waits_for(self, world: EngineWorld) -> None:
        async with world.engine(waits_an_hour) as app:
            await made(app)
            handle = success(await app.engine.start(waits_an_hour, id="r"))
            await app.waits_for("r", "'ready'")
            line = unprocessed.__code__.co_firstlineno
            status = success(await handle.status())
            assert status.state == "waiting"
            assert status.waiting_on == (
                f"when 'ready' of chat/c: unprocessed (engine_waits_contract.py:{line}), until 2023-11-14T23:13:20Z; "
                "step 'ready' waits since 2023-11-14T22:13:20Z for a change of what it read of chat/c at version 0, "
                "and there now is: len(messages) = 0"
            )

    # --- the poll -------------------------------------------------------------

    async def test_w11_a_run_is_woken_by_the_bus_while_the_clock_stands(self, world: EngineWorld) -> None:
        poll = PollPolicy(initial_ms=HOUR_MS, factor=1, cap_ms=HOUR_MS)
        async with world.engine(waits, poll=poll) as app:
            await made(app)
            handle = success(await app.engine.start(waits, id="r"))
            await app.waits_for("r", "'ready'")
            _ = success(await app.store.update(chats, "c", append("open")))
            assert await ended(handle) == Success({"id": "open"})
            assert app.clock.now_ms() == NOW_MS

    async def test_w12_without_a_bus_a_run_is_woken_by_the_poll(self, world: EngineWorld) -> None:
        poll = PollPolicy(initial_ms=5_000, factor=1, cap_ms=5_000)
        async with world.engine(waits, poll=poll, silent=True) as app:
            await made(app)
            handle = success(await app.engine.start(waits, id="r"))
            await app.waits_for("r", "'ready'")
            _ = success(await app.store.update(chats, "c", append("late")))
            result = asyncio.ensure_future(handle.result())
            await app.clock.advance(4_000)
            assert not result.done()
            await app.clock.advance(1_000)
            assert await ended(handle) == Success({"id": "late"})
            assert await result == Success({"id": "late"})

    async def test_s75_a_selector_that_reads_nothing_is_woken_by_any_change(self, world: EngineWorld) -> None:
        answers: list[bool] = []

        @workflow
        async def blind(run: Run) -> bool:
            return success(await run.store(chats, "c").when("ready", lambda _: answers.pop() if answers else None))

        async with world.engine(blind) as app:
            await made(app)
            handle = success(await app.engine.start(blind, id="r"))
            await app.waits_for("r", "'ready'")
            answers.append(True)
            _ = success(await app.store.update(chats, "c", unrelated))
            assert await ended(handle) == Success(True)


def _given(value: object, chat: Chat) -> object:
    return value


async def _has_waiter(app: Opened, run_id: str) -> bool:
    return await waiters_of(app, run_id) == 1


async def _is_done(app: Opened, run_id: str, key: str) -> bool:
    row = (await app.steps(run_id)).get(key)
    return row is not None and row.status == "done"
