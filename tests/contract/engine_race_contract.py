"""`run.race`: the first branch that ends decides; each of the others is ended at the durable call where it stands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import permutations
from typing import Literal, TypeAlias

import pytest

from stepwell import NotReplaySafe, Run, RunFailed, StepFailed, Success, workflow
from stepwell.core.batch import Batch, ReadSignal, WriteStep
from stepwell.services.ledger import Verdict

from .engine_world import EngineWorld, Opened, ended, failure, success, until
from .ledger_double import LedgerDouble
from .store_world import Chat, Message, append, chats, empty

Log: TypeAlias = list[str]
Way: TypeAlias = Literal["sleep", "signal", "step"]
WAYS: tuple[Way, ...] = ("sleep", "signal", "step")


async def statuses(app: Opened, run_id: str = "r") -> dict[str, str]:
    return {key: row.status for key, row in (await app.steps(run_id)).items()}


class EngineRaceContract:
    # --- who is first -----------------------------------------------------------

    @pytest.mark.parametrize("order", list(permutations(WAYS)), ids="-".join)
    @pytest.mark.parametrize("first", WAYS)
    async def test_scenario_5_whichever_comes_first_wins_and_the_others_consume_nothing(
        self, world: EngineWorld, order: tuple[Way, ...], first: Way
    ) -> None:
        go_on = asyncio.Event()
        cut: Log = []
        seen: list[list[object]] = []

        async def work() -> str:
            try:
                _ = await go_on.wait()
            except asyncio.CancelledError:
                cut.append("step")
                raise
            return "step"

        @workflow
        async def races(run: Run) -> None:
            calls: dict[Way, Callable[[], Awaitable[object]]] = {
                "sleep": lambda: run.sleep("sleep", 60),
                "signal": lambda: run.signal("n", int),
                "step": lambda: run.step("step", work),
            }
            seen.append([str(await run.race(*(calls[way]() for way in order)))])
            seen[-1].append((await run.signal("n", int)).unwrap())
            _ = await run.signal("end", int)

        async with world.engine(races) as app:
            handle = success(await app.engine.start(races, id="r"))
            await until(lambda: _all_stand(app, "sleep", "signal:n:1"))
            match first:
                case "sleep":
                    await app.clock.advance(60_000)
                case "signal":
                    assert await handle.signal("n", 1) == Success(None)
                case "step":
                    go_on.set()
            await until(lambda: _all_stand(app, "signal:n:2"))
            assert await handle.signal("n", 2) == Success(None)
            await app.waits_for("r", "'end'")
            keys: dict[Way, str] = {"sleep": "sleep", "signal": "signal:n:1", "step": "step"}
            found = await statuses(app)
            assert {way: found[keys[way]] for way in WAYS} == {way: "done" if way == first else "lost" for way in WAYS}
            assert cut == ([] if first == "step" else ["step"])
        async with world.engine(races) as app:
            await until(lambda: len(seen) == 2 and len(seen[1]) == 2)
            assert (await app.status("r")).problem is None
        value = {"sleep": "None", "signal": "<Success: 1>", "step": "step"}[first]
        assert seen == [[value, 2]] * 2
        assert cut == ([] if first == "step" else ["step"])  # nothing that was lost is performed again

    @pytest.mark.parametrize("ready", list(permutations(WAYS, 2)), ids="-".join)
    async def test_scenario_5_of_two_that_are_ready_at_once_the_recorded_one_wins_in_every_replay(
        self, world: EngineWorld, ready: tuple[Way, ...]
    ) -> None:
        seen: list[str] = []

        async def work() -> str:
            return "step"

        @workflow
        async def races(run: Run) -> None:
            calls: dict[Way, Callable[[], Awaitable[object]]] = {
                "sleep": lambda: run.sleep("sleep", 0),
                "signal": lambda: run.signal("n", int),
                "step": lambda: run.step("step", work),
            }
            seen.append(str(await run.race(*(calls[way]() for way in ready))))
            _ = await run.signal("end", int)

        async with world.engine(drive=False) as client:
            handle = success(await client.engine.start(races, id="r"))
            assert await handle.signal("n", 1) == Success(None)
        for restart in range(3):
            async with world.engine(races) as app:
                await until(lambda restart=restart: len(seen) > restart)  # type: ignore[misc]
                await app.waits_for("r", "'end'")
        async with world.engine(drive=False) as client:
            rows = {key: row for key, row in (await client.steps("r")).items() if key != "signal:end:1"}
            left = success(await client.ledger.signals("r"))
        first = min(rows.values(), key=lambda row: row.position or len(rows) + 1)
        assert len(set(seen)) == 1
        assert {"sleep": "None", "signal": "<Success: 1>", "step": "step"}[first.kind] == seen[0]
        read = [key for key, row in rows.items() if row.kind == "signal" and row.status == "done"]
        assert len(read) + len(left) == 1

    async def test_a_signal_whose_reading_was_committed_when_it_lost_is_given_to_the_next_call(
        self, world: EngineWorld
    ) -> None:
        seen: list[list[object]] = []

        class Together(LedgerDouble):
            """Commits the end of the sleep only when the signal is read: the sleep comes first all the same."""

            read = asyncio.Event()

            async def commit(self, batch: Batch) -> Verdict:
                keys = {write.row.key for write in batch.writes if isinstance(write, WriteStep)}
                if any(isinstance(write, ReadSignal) for write in batch.writes):
                    self.read.set()
                elif "sleep" in keys:
                    _ = await self.read.wait()
                return await super().commit(batch)

        @workflow
        async def races(run: Run) -> None:
            first = await run.race(run.sleep("sleep", 0), run.signal("n", int))
            seen.append([first, await run.signal("n", int), await run.signal("n", int)])
            _ = await run.signal("end", int)

        async with world.engine(drive=False) as client:
            handle = success(await client.engine.start(races, id="r"))
            for n in (1, 2):
                assert await handle.signal("n", n) == Success(None)
        for restart in range(2):
            async with world.engine(races, around=Together) as app:
                await until(lambda restart=restart: len(seen) > restart)  # type: ignore[misc]
                rows = await app.steps("r")
                assert (rows["sleep"].position, rows["signal:n:1"].position) == (1, 2)
                assert rows["signal:n:2"].value == b'{"signal":1,"again": "signal:n:1"}'
        assert seen == [[None, Success(1), Success(2)]] * 2

    async def test_signals_that_losers_have_read_are_given_on_in_the_order_in_which_they_were_read(
        self, world: EngineWorld
    ) -> None:
        seen: list[list[object]] = []

        class Together(LedgerDouble):
            """Commits the end of the sleep only when both signals are read: the sleep comes first all the same."""

            read = asyncio.Semaphore(0)

            async def commit(self, batch: Batch) -> Verdict:
                keys = {write.row.key for write in batch.writes if isinstance(write, WriteStep)}
                if any(isinstance(write, ReadSignal) for write in batch.writes):
                    self.read.release()
                elif "sleep" in keys:
                    for _ in range(2):
                        _ = await self.read.acquire()
                return await super().commit(batch)

        @workflow
        async def races(run: Run) -> None:
            async def read(turns: int) -> object:
                for _ in range(turns):
                    await asyncio.sleep(0)
                try:
                    return await run.signal("n", int)
                finally:
                    seen[-1].append((turns, await run.signal("n", int)))

            seen.append([])
            await run.race(read(2), run.sleep("sleep", 0), read(0))  # who asks first, and reads 1, is let go last
            seen[-1].append(await run.signal("n", int))
            _ = await run.signal("end", int)

        async with world.engine(drive=False) as client:
            handle = success(await client.engine.start(races, id="r"))
            for n in (1, 2, 3):
                assert await handle.signal("n", n) == Success(None)
        for restart in range(2):
            async with world.engine(races, around=Together) as app:
                await until(lambda restart=restart: len(seen) > restart and len(seen[restart]) == 3)  # type: ignore[misc]
                rows = await app.steps("r")
                assert [rows[key].position for key in ("sleep", "signal:n:1", "signal:n:2")] == [1, 2, 3]
        assert seen == [[(2, Success(1)), (0, Success(2)), Success(3)]] * 2

    async def test_signals_that_were_given_on_and_lost_again_keep_their_order(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        wanted = {"sleep 1": 2, "sleep 2": 1}

        class Together(LedgerDouble):
            """Commits the end of a sleep only when so many signals are read: the sleep comes first all the same."""

            reads = asyncio.Semaphore(0)

            async def commit(self, batch: Batch) -> Verdict:
                rows = [write.row for write in batch.writes if isinstance(write, WriteStep)]
                if any((row.kind, row.status) == ("signal", "done") for row in rows):
                    self.reads.release()
                for _ in range(sum(wanted.get(row.key, 0) for row in rows if row.status == "done")):
                    _ = await self.reads.acquire()
                return await super().commit(batch)

        @workflow
        async def races(run: Run) -> None:
            await run.race(run.sleep("sleep 1", 0), run.signal("n", int), run.signal("n", int))
            await run.race(run.sleep("sleep 2", 0), run.signal("n", int))
            seen.append([await run.signal("n", int) for _ in range(3)])
            _ = await run.signal("end", int)

        async with world.engine(drive=False) as client:
            handle = success(await client.engine.start(races, id="r"))
            for n in (1, 2, 3):
                assert await handle.signal("n", n) == Success(None)
        for restart in range(2):
            async with world.engine(races, around=Together) as app:
                await until(lambda restart=restart: len(seen) > restart)  # type: ignore[misc]
                rows = await app.steps("r")
                keys = ("sleep 1", "signal:n:1", "signal:n:2", "sleep 2", "signal:n:3")
                assert [rows[key].position for key in keys] == [1, 2, 3, 4, 5]
        assert seen == [[Success(n) for n in (1, 2, 3)]] * 2

    async def test_one_branch_is_no_race(self, world: EngineWorld) -> None:
        @workflow
        async def alone(run: Run) -> int:
            return await run.race(run.step("one", lambda: 7))

        async with world.engine(alone) as app:
            assert await ended(success(await app.engine.start(alone, id="r"))) == Success(7)
            assert await statuses(app) == {"one": "done"}

    async def test_an_exception_that_comes_first_is_raised(self, world: EngineWorld) -> None:
        def fail() -> None:
            raise LookupError("nothing there")

        @workflow
        async def races(run: Run) -> str:
            try:
                _ = await run.race(run.sleep("long", 3_600), run.step("fails", fail))
            except StepFailed as failed:
                return failed.error.message
            return "never"

        async with world.engine(races) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("nothing there")
            assert await statuses(app) == {"fails": "failed", "long": "lost"}

    async def test_a_branch_that_ends_without_a_durable_call_wins(self, world: EngineWorld) -> None:
        log: Log = []

        async def at_once() -> str:
            return "at once"

        @workflow
        async def races(run: Run) -> str | None:
            async def deep() -> str:
                try:
                    return str(await run.gather(run.step("a", log.append, "a"), run.sleep("b", 60)))
                finally:
                    log.append("deep ends")

            first: str | None = await run.race(at_once(), deep(), run.sleep("c", 60))
            return first

        async with world.engine(races) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("at once")
            assert set((await statuses(app)).values()) == {"lost"}
        assert log == ["deep ends"]

    # --- how the others end -----------------------------------------------------

    async def test_a_loser_cleans_up_by_durable_calls_once(self, world: EngineWorld) -> None:
        logs: list[Log] = []

        @workflow
        async def races(run: Run) -> list[str]:
            log: Log = []
            logs.append(log)

            async def loser(name: str) -> None:
                try:
                    await run.sleep(f"{name} sleeps", 3_600)
                except asyncio.CancelledError:
                    log.append(f"{name} cancelled")
                    log.append(await run.step(f"{name} tidies", lambda: f"{name} tidied"))
                    await run.sleep(f"{name} lingers", 5)
                    log.append(f"{name} ends")
                    raise

            log.append(str(await run.race(loser("a"), run.step("wins", lambda: "won"), loser("b"))))
            await run.sleep("pause", 60)
            return log

        async with world.engine(races) as app:
            _ = success(await app.engine.start(races, id="r"))
            await app.waits_for("r", "'a lingers'")
            await app.waits_for("r", "'b lingers'")
            assert (await app.status("r")).state == "waiting"
            await app.clock.advance(5_000)
            await app.waits_for("r", "'pause'")
        async with world.engine(races) as app:
            assert await app.result_in_time("r") == Success(logs[0])
        assert logs[0] == logs[1]
        assert logs[0][:2] == ["a cancelled", "b cancelled"]
        assert logs[0][-1] == "won"
        assert sorted(logs[0]) == sorted(
            ["won", *(f"{name} {what}" for name in "ab" for what in ("cancelled", "tidied", "ends"))]
        )

    async def test_a_step_in_a_thread_that_lost_goes_on_and_is_dropped(self, world: EngineWorld) -> None:
        began, go_on = asyncio.Event(), threading.Event()
        loop, finished = asyncio.get_running_loop(), asyncio.Event()

        def slow() -> str:
            loop.call_soon_threadsafe(began.set)
            assert go_on.wait(20)
            loop.call_soon_threadsafe(finished.set)
            return "late"

        async def quick() -> str:
            _ = await began.wait()
            return "quick"

        @workflow
        async def races(run: Run) -> str:
            return await run.race(run.step("slow", slow), run.step("quick", quick))

        async with world.engine(races) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("quick")
            go_on.set()
            _ = await finished.wait()
            assert await statuses(app) == {"quick": "done", "slow": "lost"}

    async def test_a_step_that_may_happen_once_and_lost_is_not_unknown(self, world: EngineWorld) -> None:
        began = asyncio.Event()
        calls: Log = []

        async def once() -> None:
            calls.append("once")
            began.set()
            _ = await asyncio.Event().wait()

        @workflow
        async def races(run: Run) -> None:
            _ = await run.race(run.step("once", once, mode="at_most_once"), run.step("quick", began.wait))
            calls.append("went on")
            _ = await run.signal("end", int)

        for restart in range(1, 3):
            async with world.engine(races) as app:
                _ = success(await app.engine.start(races, id="r"))
                await until(lambda restart=restart: calls.count("went on") == restart)  # type: ignore[misc]
                assert (await statuses(app))["once"] == "lost"
        assert calls == ["once", "went on", "went on"]

    async def test_a_wait_for_a_store_that_lost_leaves_no_waiter_and_takes_nothing(self, world: EngineWorld) -> None:
        def unclaimed(chat: Chat) -> Message | None:
            return next((message for message in chat["messages"] if "claimed_by" not in message), None)

        def claim(_: Chat, message: Message) -> None:
            message["claimed_by"] = "r"

        @workflow
        async def races(run: Run) -> int:
            store = run.store(chats, "c")
            take, when = store.take("take", unclaimed, claim), store.when("when", unclaimed)
            won = await run.race(take, when, run.signal("n", int))
            await run.sleep("pause", 60)
            assert isinstance(won, Success)
            return 0

        async with world.engine(races) as app:
            _ = success(await app.store.get_or_create(chats, "c", empty))
            handle = success(await app.engine.start(races, id="r"))
            await until(lambda: _all_stand(app, "take", "when", "signal:n:1"))
            assert len(success(await app.ledger.waiters(run_id="r"))) == 2
            assert await handle.signal("n", 1) == Success(None)
            await app.waits_for("r", "'pause'")
            assert success(await app.ledger.waiters(run_id="r")) == ()
            _ = success(await app.store.update(chats, "c", append("x")))
            state = success(await app.store.get(chats, "c")).state
            assert "claimed_by" not in state["messages"][0]
            assert (await statuses(app))["take"] == (await statuses(app))["when"] == "lost"

    async def test_a_branch_that_waits_for_something_else_is_cancelled_there(self, world: EngineWorld) -> None:
        log: Log = []

        async def elsewhere() -> None:
            try:
                _ = await asyncio.Event().wait()
            finally:
                log.append("cancelled")

        @workflow
        async def races(run: Run) -> str:
            return str(await run.race(elsewhere(), run.step("one", lambda: "one")))

        async with world.engine(races) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("one")
        assert log == ["cancelled"]

    async def test_an_error_in_the_clean_up_of_a_loser_is_dropped(self, world: EngineWorld) -> None:
        @workflow
        async def races(run: Run) -> str:
            async def loser() -> None:
                try:
                    await run.sleep("long", 60)
                finally:
                    raise ValueError("of the clean-up")

            return str(await run.race(loser(), run.step("one", lambda: "one")))

        async with world.engine(races) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("one")

    async def test_a_race_in_the_clean_up_of_a_loser_ends_its_own_losers(self, world: EngineWorld) -> None:
        log: Log = []

        @workflow
        async def races(run: Run) -> str:
            async def loser() -> None:
                try:
                    await run.sleep("long", 60)
                finally:
                    log.append(str(await run.race(run.sleep("longer", 60), run.step("tidies", lambda: "tidied"))))

            return str(await run.race(loser(), run.step("one", lambda: "one")))

        async with world.engine(races) as app:
            assert await ended(success(await app.engine.start(races, id="r"))) == Success("one")
            assert await statuses(app) == {"long": "lost", "longer": "lost", "one": "done", "tidies": "done"}
        assert log == ["tidied"]

    # --- with the cancellation of the run ---------------------------------------

    async def test_cancellation_of_the_run_reaches_every_branch_once(self, world: EngineWorld) -> None:
        log: Log = []

        @workflow
        async def races(run: Run) -> None:
            async def branch(name: str, lingers: bool) -> None:
                try:
                    await run.sleep(name, 3_600)
                except asyncio.CancelledError:
                    log.append(f"{name} cancelled")
                    if lingers:
                        await run.sleep(f"{name} lingers", 5)
                        log.append(f"{name} lingered")
                    raise

            try:
                await run.race(branch("a", True), branch("b", False), branch("c", True))
            except asyncio.CancelledError:
                log.append(await run.step("last", lambda: "last"))
                raise

        async with world.engine(races) as app:
            _ = success(await app.engine.start(races, id="r"))
            await until(lambda: _all_stand(app, "a", "b", "c"))
            assert await app.engine.cancel("r") == Success(None)
            await until(lambda: _all_stand(app, "a lingers"))
            await app.clock.advance(5_000)
            await app.becomes("r", "cancelled")
        assert log.count("a cancelled") == log.count("b cancelled") == log.count("c cancelled") == 1
        assert log.count("a lingered") == 1
        assert log[-1] == "last"

    async def test_a_loser_that_cleans_up_is_not_cancelled_again_with_the_run(self, world: EngineWorld) -> None:
        log: Log = []

        @workflow
        async def races(run: Run) -> None:
            async def loser() -> None:
                try:
                    await run.sleep("long", 3_600)
                finally:
                    await run.sleep("lingers", 5)
                    log.append("lingered")

            log.append(str(await run.race(loser(), run.step("one", lambda: "one"))))
            try:
                await run.sleep("next", 60)
            except asyncio.CancelledError:
                log.append("cancelled at next")
                raise

        async with world.engine(races) as app:
            _ = success(await app.engine.start(races, id="r"))
            await until(lambda: _all_stand(app, "lingers"))
            assert await app.engine.cancel("r") == Success(None)
            await app.clock.advance(5_000)
            await app.becomes("r", "cancelled")
        assert log == ["lingered", "one", "cancelled at next"]

    async def test_a_loser_has_thirty_seconds_to_clean_up_when_the_run_is_cancelled(self, world: EngineWorld) -> None:
        @workflow
        async def races(run: Run) -> None:
            async def loser() -> None:
                try:
                    await run.sleep("long", 3_600)
                finally:
                    await run.sleep("lingers", 3_600)

            _ = await run.race(loser(), run.step("one", lambda: "one"))

        async with world.engine(races) as app:
            _ = success(await app.engine.start(races, id="r"))
            await until(lambda: _all_stand(app, "lingers"))
            assert await app.engine.cancel("r") == Success(None)
            await app.clock.advance(29_999)
            assert (await app.status("r")).state == "waiting"
            await app.clock.advance(1)
            await app.becomes("r", "cancelled")

    # --- misuse, and changed code ------------------------------------------------

    async def test_no_race_is_made_of_tasks_of_ones_own(self, world: EngineWorld) -> None:
        async def branch() -> None:
            raise AssertionError("it is refused before it begins")

        @workflow
        async def careless(run: Run) -> str:
            refused = branch()
            try:
                await asyncio.ensure_future(run.race(refused))
            except NotReplaySafe as error:
                return str(error)
            finally:
                refused.close()
            return "never"

        async with world.engine(careless) as app:
            text = success(await ended(success(await app.engine.start(careless, id="r"))))
            assert "'race'" in text
            assert "run.gather" in text
            assert "run.race" in text

    async def test_a_race_without_branches_is_misuse(self, world: EngineWorld) -> None:
        @workflow
        async def empty_race(run: Run) -> None:
            await run.race()

        async with world.engine(empty_race) as app:
            failed = failure(await ended(success(await app.engine.start(empty_race, id="r"))))
            assert isinstance(failed, RunFailed)
            assert "at least one" in failed.error.message

    async def test_a_lost_call_that_the_code_makes_elsewhere_is_a_change_of_the_code(self, world: EngineWorld) -> None:
        @workflow(name="flow")
        async def before(run: Run) -> None:
            await run.race(run.sleep("long", 3_600), run.sleep("short", 1))
            await run.sleep("pause", 60)

        @workflow(name="flow")
        async def after(run: Run) -> None:
            await run.sleep("short", 1)
            await run.sleep("long", 3_600)
            await run.sleep("pause", 60)

        async with world.engine(before) as app:
            _ = success(await app.engine.start(before, id="r"))
            await app.advance_until(lambda: _waits_for(app, "'pause'"))
        async with world.engine(after) as app:
            await app.advance_until(lambda: _is(app, "stuck"), by_ms=10_000)
            assert "'long' was recorded as lost" in ((await app.status("r")).problem or "")
        async with world.engine(before) as app:
            assert await app.engine.resume("r") == Success(None)
            assert await app.result_in_time("r") == Success(None)

    async def test_a_lost_call_need_not_be_asked_for_again(self, world: EngineWorld) -> None:
        @workflow(name="flow")
        async def before(run: Run) -> None:
            await run.race(run.sleep("long", 3_600), run.sleep("short", 1))
            await run.sleep("pause", 60)

        @workflow(name="flow")
        async def without(run: Run) -> None:
            await run.race(run.sleep("short", 1))
            await run.sleep("pause", 60)
            await run.sleep("another", 60)  # like the one that was lost

        async with world.engine(before) as app:
            _ = success(await app.engine.start(before, id="r"))
            await app.advance_until(lambda: _waits_for(app, "'pause'"))
        async with world.engine(without) as app:
            assert await app.result_in_time("r") == Success(None)
            assert (await statuses(app))["long"] == "lost"

    async def test_a_loser_may_be_cancelled_before_it_comes_to_the_call_that_it_lost(self, world: EngineWorld) -> None:
        elsewhere = asyncio.Event()
        elsewhere.set()

        @workflow
        async def races(run: Run) -> str:
            async def loser() -> None:
                _ = await elsewhere.wait()
                await run.sleep("long", 3_600)

            await run.race(loser(), run.sleep("short", 1))
            await run.sleep("pause", 60)
            return "done"

        async with world.engine(races) as app:
            _ = success(await app.engine.start(races, id="r"))
            await until(lambda: _all_stand(app, "long", "short"))
            await app.advance_until(lambda: _waits_for(app, "'pause'"))
            assert (await statuses(app))["long"] == "lost"
        elsewhere.clear()
        async with world.engine(races) as app:
            assert await app.result_in_time("r") == Success("done")


async def _all_stand(app: Opened, *keys: str) -> bool:
    found = await statuses(app)
    return all(found.get(key) == "waiting" for key in keys)


async def _waits_for(app: Opened, text: str) -> bool:
    return text in ((await app.status("r")).waiting_on or "")


async def _is(app: Opened, state: str) -> bool:
    return (await app.status("r")).state == state
