"""What the journal of a run holds: every event of its life once, in order, with the batch that it tells of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from stepwell import (
    Failure,
    Layer,
    Ledger,
    Retry,
    Run,
    StepFailed,
    Success,
    WakeBus,
    provides,
    workflow,
)
from stepwell.core.batch import Batch, PatchStore, ReadSignal, WriteStep
from stepwell.core.journal_writes import Append
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import Verdict

from .engine_kinds import AllKinds, Deaf, crash
from .engine_world import NOW_MS, EngineWorld, Opened, ended, success, until
from .ledger_double import LedgerDouble
from .store_doubles import DictStore, given_store
from .store_world import Chat, Message, append, chats, empty
from .told_runs import check_agreement, entries_of, facts_of, told_of, types_of

SECRET = "hunter2"

WAITS = ("sleep", "retry", "signal", "when", "take")


class Watching(LedgerDouble):
    """Keeps the batches that are committed."""

    def __init__(self, real: Ledger, batches: list[Batch]) -> None:
        super().__init__(real)
        self._batches = batches

    async def commit(self, batch: Batch) -> Verdict:
        self._batches.append(batch)
        return await super().commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        self._batches += batches
        return await super().commit_all(batches)


def given_bus(bus: WakeBus) -> Layer[WakeBus, WakeBus]:
    @provides
    def recipe() -> Iterator[WakeBus]:
        yield bus

    return recipe


def told_in(batch: Batch) -> list[str]:
    """The types of the entries of a batch."""
    entries = [entry for write in batch.writes if isinstance(write, Append) for entry in write.entries]
    return [entry.event_type.removeprefix("stepwell.") for entry in entries]


def unclaimed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if "claimed_by" not in message), None)


def claim(_: Chat, message: Message) -> None:
    message["claimed_by"] = "r"


@workflow
async def waits_once(run: Run, kind: str) -> str:
    """Waits in one way, without anything else."""
    store, tries = run.store(chats), 0

    def second() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("not yet")

    match kind:
        case "sleep":
            await run.sleep("wait", 1)
        case "retry":
            await run.step("wait", second, retry=Retry(max_attempts=2, initial=1))
        case "signal":
            _ = success(await run.signal("news", str))
        case "when":
            _ = success(await store.when("wait", unclaimed))
        case _:
            _ = success(await store.take("wait", unclaimed, claim))
    return "done"


async def wake(app: Opened, kind: str) -> None:
    """What the wait of `waits_once` waits for."""
    if kind == "signal":
        assert await app.engine.signal("r", "news", "hear") == Success(None)
    elif kind in ("when", "take"):
        _ = success(await app.store.update(chats, "r", append("x")))
    else:
        await app.clock.advance(2_000)


class EngineEventsContract:
    # --- the life of a run --------------------------------------------------------

    async def test_a_run_is_told_from_its_start_to_its_end_in_order(self, world: EngineWorld) -> None:
        def pay() -> str:
            return "paid"

        def fail() -> None:
            raise ValueError("as it must")

        @workflow
        async def order(run: Run) -> str:
            store = run.store(chats)
            _ = success(await store.get_or_create("create", empty))
            _ = success(await store.get_or_create("again", empty))
            _ = await run.step("pay", pay)
            _ = success(await store.update("append", append("x")))
            _ = success(await store.take_now("take", unclaimed, claim))
            assert isinstance(await store.take_now("none", unclaimed, claim), Failure)
            with suppress(StepFailed):
                _ = await run.step("fail", fail)
            last = success(await store.get("last"))
            _ = success(await store.delete_from("delete", last))
            return "done"

        async with world.engine(order) as app:
            assert await ended(success(await app.engine.start(order, id="r"))) == Success("done")
            assert await types_of(app.ledger, "r") == [
                "run-started",
                "store-changed",  # create
                "step-completed",  # again: it was there
                "step-completed",  # pay
                "store-changed",  # append
                "store-changed",  # take
                "step-completed",  # none: there was nothing to take
                "step-failed",
                "step-completed",  # last
                "store-changed",  # delete
                "run-completed",
            ]
            told = await told_of(app.ledger, "r")
            assert list(told.steps) == ["create", "again", "pay", "append", "take", "none", "fail", "last", "delete"]
            changes = {key: (step.facts.store, step.facts.version) for key, step in told.steps.items()}
            assert changes["create"] == ("chat", 0)
            assert changes["append"] == ("chat", 1)
            assert changes["take"] == ("chat", 2)
            assert changes["delete"] == ("chat", None)
            await check_agreement(app.ledger, "r")

    async def test_a_run_of_every_kind_of_call_is_told_as_its_rows_say(self, world: EngineWorld) -> None:
        flow = AllKinds().workflow()
        async with world.engine(flow) as app:
            handle = success(await app.engine.start(flow, id="r"))
            _ = success(await app.ended_in_time(handle))
            await check_agreement(app.ledger, "r")

    async def test_the_entries_are_in_the_batch_that_they_tell_of(self, world: EngineWorld) -> None:
        batches: list[Batch] = []
        flow = AllKinds().workflow()
        async with world.engine(flow, around=lambda ledger: Watching(ledger, batches)) as app:
            handle = success(await app.engine.start(flow, id="r"))
            _ = success(await app.ended_in_time(handle))
        for batch in batches:
            rows = [write.row for write in batch.writes if isinstance(write, WriteStep)]
            of_steps = [name for name in told_in(batch) if name.startswith(("step-", "store-", "signal-"))]
            assert len(of_steps) == len(rows)
            patched = any(isinstance(write, PatchStore) for write in batch.writes)
            assert not (patched and rows) or of_steps == ["store-changed"]

    async def test_who_takes_a_run_and_gives_it_back_is_told(self, world: EngineWorld) -> None:
        @workflow
        async def napping(run: Run) -> None:
            await run.sleep("nap", 60)

        async with world.engine(drive=False) as client:
            _ = success(await client.engine.start(napping, id="r"))
            assert await types_of(client.ledger, "r") == ["run-started"]
            async with world.engine(napping) as app:
                await app.waits_for("r", "'nap'")
            async with world.engine(napping) as app:
                assert await app.result_in_time("r") == Success(None)
            assert await types_of(client.ledger, "r") == [
                "run-started",
                "run-claimed",
                "step-waiting",
                "run-waiting",
                "run-released",
                "run-claimed",
                "step-completed",
                "run-completed",
            ]
            entries = await entries_of(client.ledger, "r")
            released = entries[4].payload
            assert released == {"at_ms": NOW_MS + 60_000}
            claims = [facts_of(entry) for entry in entries if entry.event_type == "stepwell.run-claimed"]
            assert [claim["fence"] for claim in claims] == [2, 4]
            assert claims[0]["owner"] != claims[1]["owner"]

    async def test_a_run_whose_owner_was_lost_is_told_to_be_taken_over(self, world: EngineWorld) -> None:
        stands = asyncio.Event()

        async def held() -> None:
            stands.set()
            await asyncio.Event().wait()

        @workflow
        async def holding(run: Run) -> None:
            if stands.is_set():
                return await run.step("held", lambda: None)
            return await run.step("held", held)

        async with world.engine(drive=False) as client:
            async with world.engine(holding, around=Deaf) as app:
                _ = success(await app.engine.start(holding, id="r"))
                await until(stands.is_set)
                await crash(app, "r")
            async with world.engine(holding) as app:
                assert await app.result_in_time("r") == Success(None)
            assert await types_of(client.ledger, "r") == [
                "run-started",
                "run-claimed",
                "step-completed",
                "run-completed",
            ]
            _, claimed, *_ = await entries_of(client.ledger, "r")
            assert facts_of(claimed)["crashes"] == 1

    async def test_a_stuck_run_is_told_and_what_was_set_aside_when_it_was_resumed(self, world: EngineWorld) -> None:
        is_old = True

        @workflow(name="changing")
        async def changing(run: Run) -> str:
            if is_old:
                _ = await run.step("old", lambda: "old")
                await run.sleep("nap", 60)
            return "done"

        async with world.engine(changing) as app:
            _ = success(await app.engine.start(changing, id="r"))
            await app.waits_for("r", "'nap'")
        is_old = False
        async with world.engine(changing) as app:
            await app.advance_until(lambda: _is(app, "stuck"))
            await check_agreement(app.ledger, "r")
            assert await app.engine.resume("r", drop=["old", "nap"]) == Success(None)
            assert await app.result_in_time("r") == Success("done")
            assert (await types_of(app.ledger, "r"))[-6:] == [
                "run-stuck",
                "step-dropped",
                "step-dropped",
                "run-resumed",
                "run-claimed",
                "run-completed",
            ]

    # --- waits and wakes ----------------------------------------------------------

    @pytest.mark.parametrize("kind", WAITS)
    async def test_w14_a_parked_run_that_is_woken_is_told_to_go_on_once(self, world: EngineWorld, kind: str) -> None:
        """In the batch that records what the wait has found, or that begins the next attempt."""
        batches: list[Batch] = []
        async with world.engine(waits_once, around=lambda ledger: Watching(ledger, batches)) as app:
            _ = success(await app.store.get_or_create(chats, "r", empty))
            handle = success(await app.engine.start(waits_once, kind, id="r"))
            await app.becomes("r", "waiting")
            assert "wake-scheduled" not in await types_of(app.ledger, "r")
            await wake(app, kind)
            assert await ended(handle) == Success("done")
            assert (await types_of(app.ledger, "r")).count("wake-scheduled") == 1
            await check_agreement(app.ledger, "r")
        [woken] = [batch for batch in batches if "wake-scheduled" in told_in(batch)]
        found = {"signal": ["signal-read"], "take": ["store-changed"], "retry": []}.get(kind, ["step-completed"])
        assert told_in(woken) == ["wake-scheduled", *found]
        assert any(isinstance(write, ReadSignal) for write in woken.writes) == (kind == "signal")

    @pytest.mark.parametrize("kind", ["signal", "when", "take"])
    async def test_w29_a_wake_that_is_delivered_twice_is_told_once(self, world: EngineWorld, kind: str) -> None:
        bus = MemoryWakeBus()
        async with world.engine(waits_once, bus=given_bus(bus)) as app:
            _ = success(await app.store.get_or_create(chats, "r", empty))
            handle = success(await app.engine.start(waits_once, kind, id="r"))
            await app.becomes("r", "waiting")
            await bus.wake("r")  # it looks, and finds nothing
            await _settle()
            before = await types_of(app.ledger, "r")
            assert "wake-scheduled" not in before
            await wake(app, kind)
            for _ in range(2):
                await bus.wake("r")
            assert await ended(handle) == Success("done")
            await bus.wake("r")
            await _settle()
            assert (await types_of(app.ledger, "r")).count("wake-scheduled") == 1
            assert (await types_of(app.ledger, "r"))[len(before) :][-1] == "run-completed"

    async def test_w13_a_wake_of_no_run_or_of_another_workflows_is_not_told(self, world: EngineWorld) -> None:
        bus = MemoryWakeBus()

        @workflow
        async def other(run: Run) -> None:
            _ = await run.signal("news", str)

        async with world.engine(drive=False) as client:
            _ = success(await client.engine.start(other, id="o"))
            async with world.engine(waits_once, bus=given_bus(bus)) as app:
                for run_id in ("none", "o"):
                    await bus.wake(run_id)
                    await _settle()
                await app.clock.advance(60_000)
                assert await types_of(app.ledger, "none") == []
                assert await types_of(app.ledger, "o") == ["run-started"]
                assert (await app.row("o")).owner is None

    async def test_of_branches_that_wait_the_first_that_goes_on_is_told(self, world: EngineWorld) -> None:
        @workflow
        async def both(run: Run) -> None:
            _ = await run.gather(run.sleep("short", 1), run.sleep("long", 2))

        async with world.engine(both) as app:
            handle = success(await app.engine.start(both, id="r"))
            assert await app.ended_in_time(handle) == Success(None)
            types = await types_of(app.ledger, "r")
            assert types.count("wake-scheduled") == 2  # the whole run waited twice: for both, and for the later one
            await check_agreement(app.ledger, "r")

    # --- asked from outside ---------------------------------------------------------

    async def test_a_cancellation_is_told_once_however_often_it_is_asked_for(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as client:
            async with world.engine(waits_once) as app:
                _ = success(await app.engine.start(waits_once, "sleep", id="r"))
                await app.waits_for("r", "'wait'")
            for _ in range(3):
                assert await client.engine.cancel("r") == Success(None)
            assert (await types_of(client.ledger, "r"))[-1:] == ["run-cancel-requested"]
            async with world.engine(waits_once) as app:
                await app.becomes("r", "cancelled")
            types = await types_of(client.ledger, "r")
            assert types.count("run-cancel-requested") == 1
            assert types[-3:] == ["run-claimed", "step-cancelled", "run-cancelled"]
            await check_agreement(client.ledger, "r")

    async def test_a_signal_is_told_when_it_is_sent_and_when_it_is_read(self, world: EngineWorld) -> None:
        async with world.engine(waits_once) as app:
            _ = success(await app.engine.start(waits_once, "signal", id="r"))
            await app.becomes("r", "waiting")
            for dedupe in ("a", "a", "b", None, None):
                assert await app.engine.signal("r", "other", "hear", dedupe=dedupe) == Success(None)
            assert (await types_of(app.ledger, "r")).count("signal-sent") == 4
            assert len(success(await app.ledger.signals("r", "other"))) == 4
            await wake(app, "signal")
            await app.becomes("r", "completed")
            read = (await told_of(app.ledger, "r")).steps["signal:news:1"]
            assert read.facts.signal is not None

    # --- what is not told -------------------------------------------------------------

    async def test_no_argument_result_signal_state_or_text_of_an_error_is_told(self, world: EngineWorld) -> None:
        def fail(password: str) -> None:
            raise ValueError(password)

        @workflow
        async def secret(run: Run, password: str) -> str:
            store = run.store(chats)
            _ = success(await store.get_or_create("create", empty))
            _ = success(await store.update("append", append(password)))
            _ = success(await store.take_now("take", unclaimed, claim))
            _ = await run.step("echo", lambda: password)
            _ = success(await run.signal("news", str))
            for key, retry in (("fail", None), ("again", Retry(max_attempts=2, initial=0.01))):
                with suppress(StepFailed):
                    _ = await run.step(key, fail, password, retry=retry)
            raise RuntimeError(password)

        async with world.engine(secret) as app:
            handle = success(await app.engine.start(secret, SECRET, id="r"))
            assert await app.engine.signal("r", "news", SECRET, dedupe=SECRET) == Success(None)
            assert isinstance(await app.ended_in_time(handle), Failure)
            entries = await entries_of(app.ledger, "r")
            assert {"stepwell.step-retrying", "stepwell.run-failed"} < {entry.event_type for entry in entries}
            assert all(SECRET not in str(entry) for entry in entries)
            errors = [facts_of(entry).get("error") for entry in entries]
            assert [error for error in errors if error is not None] == [
                "ValueError",
                "ValueError",
                "ValueError",
                "RuntimeError",
            ]

    async def test_a_store_that_cannot_join_changes_nothing_in_the_batch_and_none_is_told(
        self, world: EngineWorld
    ) -> None:
        @workflow
        async def writes(run: Run) -> None:
            _ = success(await run.store(chats).get_or_create("create", empty))
            _ = success(await run.store(chats).update("append", append("x")))

        async with world.engine(writes, store=given_store(DictStore())) as app:
            assert await ended(success(await app.engine.start(writes, id="r"))) == Success(None)
            types = await types_of(app.ledger, "r")
            assert types == ["run-started", "step-completed", "step-completed", "run-completed"]


async def _is(app: Opened, state: str) -> bool:
    return (await app.status("r")).state == state


async def _settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
