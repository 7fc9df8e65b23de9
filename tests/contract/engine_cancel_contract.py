"""How a run is cancelled: wherever it stands, and what it may do then."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stepwell import (
    Retry,
    Run,
    RunCancelled,
    RunNotFound,
    Success,
    workflow,
)
from stepwell.layers.driver.cancellation import AGAIN_MS, CLEANUP_MS

from .engine_world import EngineWorld, Opened, ended, failure, success, until


async def cancelled(app: Opened, run_id: str) -> None:
    """Cancel the run, and see it end so, without moving the clock."""
    assert await app.engine.cancel(run_id) == Success(None)
    async with asyncio.timeout(20):
        assert failure(await app.engine.result(run_id)) == RunCancelled(run_id)
    row = await app.row(run_id)
    assert (row.state, row.owner, row.waiting_on) == ("cancelled", None, None)


class EngineCancelContract:
    # --- where a run stands -----------------------------------------------------

    async def test_a_pending_run_that_is_cancelled_never_starts(self, world: EngineWorld) -> None:
        entered: list[str] = []

        @workflow
        async def plain(run: Run) -> None:
            entered.append(run.id)

        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(plain, id="r"))
            await cancelled(app, "r")
            assert failure(await app.engine.cancel("nobody")) == RunNotFound("nobody")
        async with world.engine(plain) as app:
            await app.clock.advance(60_000)
            assert failure(await app.engine.result("r")) == RunCancelled("r")
        assert entered == []

    @pytest.mark.parametrize("mode", ["timer", "retry", "async step"])
    async def test_cancellation_reaches_a_run_at_the_wait_where_it_stands(self, world: EngineWorld, mode: str) -> None:
        stands = asyncio.Event()
        cut: list[str] = []

        async def endless() -> None:
            stands.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.append("step")
                raise

        def fail() -> None:
            raise ValueError("not yet")

        @workflow
        async def waiting(run: Run) -> str:
            try:
                match mode:
                    case "timer":
                        await run.sleep("wait", 3_600)
                    case "retry":
                        await run.step("wait", fail, retry=Retry(initial=3_600))
                    case _:
                        await run.step("wait", endless)
            except asyncio.CancelledError:
                cut.append(await run.step("tidy", lambda: "tidied"))
            return "returned all the same"

        async with world.engine(waiting) as app:
            _ = success(await app.engine.start(waiting, id="r"))
            if mode in ("timer", "retry"):
                await app.waits_for("r", "'wait'")
            else:
                await until(stands.is_set)
            await cancelled(app, "r")
            rows = await app.steps("r")
            assert {key: row.status for key, row in rows.items()} == {"wait": "cancelled", "tidy": "done"}
        assert cut == (["tidied"] if mode in ("timer", "retry") else ["step", "tidied"])

    async def test_a_step_in_a_thread_is_let_finish_before_cancellation_comes(self, world: EngineWorld) -> None:
        began, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        seen: list[object] = []

        def slow() -> int:
            loop.call_soon_threadsafe(began.set)
            assert go_on.wait(20)
            return 7

        @workflow
        async def plain(run: Run) -> None:
            seen.append(await run.step("slow", slow))
            try:
                await run.step("next", lambda: seen.append("next"))
            except asyncio.CancelledError as error:
                seen.append(str(error))
                raise

        async with world.engine(plain) as app:
            _ = success(await app.engine.start(plain, id="r"))
            await until(began.is_set)
            assert await app.engine.cancel("r") == Success(None)
            go_on.set()
            await app.becomes("r", "cancelled")
            assert (await app.steps("r"))["slow"].status == "done"
        assert seen == [7, "run 'r' was cancelled"]

    async def test_a_run_that_came_to_its_end_is_not_cancelled(self, world: EngineWorld) -> None:
        @workflow
        async def plain(run: Run) -> int:
            return 1

        async with world.engine(plain) as app:
            assert await ended(success(await app.engine.start(plain, id="r"))) == Success(1)
            before = await app.row("r")
            assert await app.engine.cancel("r") == Success(None)
            assert await app.row("r") == before
            assert await app.engine.result("r") == Success(1)

    async def test_a_stuck_run_is_cancelled_at_once(self, world: EngineWorld) -> None:
        @workflow(name="flow")
        async def before(run: Run) -> None:
            await run.sleep("pause", 60)

        @workflow(name="flow")
        async def after(run: Run) -> None:
            await run.sleep("another pause", 60)

        async with world.engine(before) as app:
            _ = success(await app.engine.start(before, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(after) as app:
            await app.clock.advance(60_000)
            await app.becomes("r", "stuck")
            await cancelled(app, "r")

    async def test_cancellation_from_another_engine_arrives(self, world: EngineWorld) -> None:
        @workflow
        async def waiting(run: Run) -> None:
            await run.sleep("pause", 3_600)

        async with world.engine(waiting) as app, world.engine(drive=False) as client:
            _ = success(await client.engine.start(waiting, id="r"))
            await app.advance_until(lambda: app_waits(app))
            assert await client.engine.cancel("r") == Success(None)
            result = asyncio.ensure_future(client.engine.result("r"))
            await app.advance_until(result.done)
            assert failure(result.result()) == RunCancelled("r")

    async def test_a_parked_run_is_cancelled_by_whoever_takes_it_up(self, world: EngineWorld) -> None:
        entered: list[str] = []

        @workflow
        async def waiting(run: Run) -> None:
            entered.append("top")
            try:
                await run.sleep("pause", 3_600)
            finally:
                entered.append(await run.step("tidy", lambda: "tidied"))

        async with world.engine(waiting) as app:
            _ = success(await app.engine.start(waiting, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(drive=False) as client:
            assert await client.engine.cancel("r") == Success(None)
            assert (await client.status("r")).state == "waiting"
        async with world.engine(waiting) as app:
            await app.becomes("r", "cancelled")
        assert entered == ["top", "top", "tidied"]

    # --- where it arrived -------------------------------------------------------

    async def test_cancellation_arrives_at_the_same_place_in_a_replay(self, world: EngineWorld) -> None:
        seen: list[list[str]] = []

        @workflow
        async def tidying(run: Run) -> None:
            log: list[str] = []
            seen.append(log)
            log.append(await run.step("one", lambda: "one"))
            try:
                await run.sleep("pause", 3_600)
            except asyncio.CancelledError:
                log.append("cancelled")
            log.append(await run.step("two", lambda: "two"))
            await run.sleep("short", 10)
            log.append("end")

        async with world.engine(tidying) as app:
            _ = success(await app.engine.start(tidying, id="r"))
            await app.waits_for("r", "'pause'")
            assert await app.engine.cancel("r") == Success(None)
            await app.waits_for("r", "'short'")
            assert (await app.status("r")).state == "waiting"
        async with world.engine(tidying) as app:
            await app.clock.advance(10_000)
            await app.becomes("r", "cancelled")
        assert seen == [["one", "cancelled", "two"], ["one", "cancelled", "two", "end"]]

    async def test_cancellation_reaches_every_branch_of_a_gather_once(self, world: EngineWorld) -> None:
        seen: list[str] = []
        began = asyncio.Event()

        async def endless() -> None:
            began.set()
            await asyncio.Event().wait()

        async def branch(run: Run, name: str) -> None:
            try:
                if name == "step":
                    await run.step(name, endless)
                else:
                    await run.sleep(name, 3_600)
            finally:
                seen.append(await run.step(f"tidy {name}", lambda: f"tidied {name}"))
                await run.gather(run.step(f"more {name}", lambda: seen.append(f"more {name}")))

        @workflow
        async def wide(run: Run) -> None:
            try:
                await run.gather(branch(run, "step"), branch(run, "nap"), branch(run, "sleep"))
            finally:
                seen.append(await run.step("last", lambda: "last"))

        async with world.engine(wide) as app:
            _ = success(await app.engine.start(wide, id="r"))

            async def all_stand() -> bool:
                return began.is_set() and {"nap", "sleep"} <= set(await app.steps("r"))

            await until(all_stand)
            await cancelled(app, "r")
        tidied = [f"{what} {name}" for what in ("tidied", "more") for name in ("step", "nap", "sleep")]
        assert sorted(seen[:-1]) == sorted(tidied)
        assert seen[-1] == "last"

    async def test_a_branch_that_cancellation_finds_at_work_meets_it_at_its_next_call(self, world: EngineWorld) -> None:
        began, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        seen: list[str] = []

        def slow() -> str:
            loop.call_soon_threadsafe(began.set)
            assert go_on.wait(20)
            return "slow"

        async def at_work(run: Run) -> None:
            seen.append(await run.step("slow", slow))
            try:
                await run.sleep("long", 3_600)
            except asyncio.CancelledError:
                seen.append("met at long")
                raise

        @workflow
        async def wide(run: Run) -> None:
            await run.gather(run.sleep("nap", 3_600), at_work(run))

        async with world.engine(wide) as app:
            _ = success(await app.engine.start(wide, id="r"))
            await until(began.is_set)
            assert await app.engine.cancel("r") == Success(None)
            go_on.set()
            await app.becomes("r", "cancelled")
        assert seen == ["slow", "met at long"]

    # --- the time to clean up ---------------------------------------------------

    @pytest.mark.parametrize("inside", ["own await", "sleep", "step", "branch", "stubborn step"])
    async def test_a_run_has_thirty_seconds_to_clean_up(self, world: EngineWorld, inside: str) -> None:
        tidying = asyncio.Event()

        async def endless() -> None:
            tidying.set()
            await asyncio.Event().wait()

        async def stubborn() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await endless()

        @workflow
        async def lingering(run: Run) -> None:
            try:
                if inside == "branch":
                    await run.gather(run.sleep("pause", 3_600))
                elif inside == "stubborn step":
                    await run.step("pause", stubborn)
                else:
                    await run.sleep("pause", 3_600)
            finally:
                match inside:
                    case "sleep":
                        tidying.set()
                        await run.sleep("linger", 3_600)
                    case "step":
                        await run.step("linger", endless)
                    case _:
                        await endless()

        async with world.engine(lingering) as app:
            _ = success(await app.engine.start(lingering, id="r"))

            async def stands() -> bool:
                return "pause" in (await app.steps("r")) or inside == "stubborn step"

            await until(stands)
            await app.clock.advance(1)
            assert await app.engine.cancel("r") == Success(None)
            await until(tidying.is_set)
            await app.clock.advance(CLEANUP_MS - 1)
            assert (await app.status("r")).state in ("running", "waiting")
            await app.clock.advance(1)
            if inside == "stubborn step":  # the step goes on, and then so does `finally`
                await app.clock.advance(AGAIN_MS)
            await app.becomes("r", "cancelled")
        assert CLEANUP_MS == 30_000


async def app_waits(app: Opened) -> bool:
    return "'pause'" in ((await app.status("r")).waiting_on or "")
