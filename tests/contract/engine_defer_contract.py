"""Clean-up that is deferred to the end of a run, however it ends."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    DuplicateKey,
    Failure,
    Retry,
    Run,
    RunCancelled,
    RunFailed,
    StepFailed,
    Success,
    workflow,
)
from stepwell.layers.driver.cancellation import CLEANUP_MS

from .engine_cancel_contract import cancelled
from .engine_kinds import Deaf, crash
from .engine_world import EngineWorld, ended, failure, success, until


class EngineDeferContract:
    # --- deferred clean-up ------------------------------------------------------

    @pytest.mark.parametrize("how", ["well", "badly", "cancelled"])
    async def test_deferred_calls_come_in_reverse_order_however_a_run_ends(self, world: EngineWorld, how: str) -> None:
        called: list[str] = []

        async def later(name: str) -> None:
            called.append(name)

        @workflow
        async def tidy(run: Run) -> str:
            await run.defer("first", called.append, "first")
            await run.defer("second", later, "second")
            await run.step("work", called.append, "work")
            if how == "cancelled":
                await run.sleep("pause", 3_600)
            if how == "badly":
                raise RuntimeError("no")
            return "well"

        async with world.engine(tidy) as app:
            handle = success(await app.engine.start(tidy, id="r"))
            if how == "cancelled":
                await app.waits_for("r", "'pause'")
                await cancelled(app, "r")
            outcome = await ended(handle)
            assert (await app.status("r")).problem is None
        match how:
            case "well":
                assert outcome == Success("well")
            case "badly":
                assert isinstance(failure(outcome), RunFailed)
            case _:
                assert outcome == Failure(RunCancelled("r"))
        assert called == ["work", "second", "first"]

    @pytest.mark.parametrize("how", ["well", "badly", "cancelled"])
    async def test_clean_up_goes_on_where_a_restart_cut_it(self, world: EngineWorld, how: str) -> None:
        called: list[str] = []
        entered: list[str] = []
        allowed = asyncio.Event()
        stands = asyncio.Event()

        async def held(name: str) -> None:
            called.append(name)
            if not allowed.is_set():
                stands.set()
                await asyncio.Event().wait()

        @workflow
        async def tidy(run: Run) -> str:
            entered.append("top")
            await run.defer("first", held, "first")
            await run.defer("second", called.append, "second")
            if how == "cancelled":
                await run.sleep("pause", 3_600)
            if how == "badly":
                raise RuntimeError("no")
            return "well"

        async with world.engine(tidy, around=Deaf) as app:
            handle = success(await app.engine.start(tidy, id="r"))
            if how == "cancelled":
                await app.waits_for("r", "'pause'")
                assert await app.engine.cancel("r") == Success(None)
            await until(stands.is_set)
            assert called == ["second", "first"]
            allowed.set()
            await crash(app, "r")
        await world.clock.advance(15_001)
        async with world.engine(tidy) as app:
            outcome = await app.result_in_time(handle.id)
        match how:
            case "well":
                assert outcome == Success("well")
            case "badly":
                assert isinstance(failure(outcome), RunFailed)
            case _:
                assert outcome == Failure(RunCancelled("r"))
        assert called == ["second", "first", "first"]
        assert entered == ["top", "top"]

    async def test_an_error_of_deferred_clean_up_is_noted_beside_the_outcome(self, world: EngineWorld) -> None:
        called: list[str] = []

        def fail() -> None:
            raise OSError("disk gone")

        @workflow
        async def tidy(run: Run) -> int:
            await run.defer("good", called.append, "good")
            await run.defer("bad", fail)
            return 1

        async with world.engine(tidy) as app:
            assert await ended(success(await app.engine.start(tidy, id="r"))) == Success(1)
            problem = (await app.status("r")).problem
            assert problem is not None
            assert "'bad'" in problem
            assert "OSError: disk gone" in problem
        assert called == ["good"]

    async def test_a_cancellation_that_comes_during_clean_up_spares_it(self, world: EngineWorld) -> None:
        called: list[str] = []
        stands, go_on = asyncio.Event(), asyncio.Event()

        async def held() -> None:
            stands.set()
            await go_on.wait()
            called.append("held")

        @workflow
        async def tidy(run: Run) -> int:
            await run.defer("last", called.append, "last")
            await run.defer("held", held)
            return 1

        async with world.engine(tidy) as app:
            handle = success(await app.engine.start(tidy, id="r"))
            await until(stands.is_set)
            assert await app.engine.cancel("r") == Success(None)
            go_on.set()
            assert await ended(handle) == Success(1)
        assert called == ["held", "last"]

    async def test_a_cancellation_bounds_clean_up_that_hangs(self, world: EngineWorld) -> None:
        stands = asyncio.Event()

        async def hang() -> None:
            stands.set()
            await asyncio.Event().wait()

        @workflow
        async def tidy(run: Run) -> int:
            await run.defer("hang", hang)
            return 1

        async with world.engine(tidy) as app:
            _ = success(await app.engine.start(tidy, id="r"))
            await until(stands.is_set)
            assert await app.engine.cancel("r") == Success(None)
            await app.clock.advance(CLEANUP_MS)
            await app.becomes("r", "cancelled")

    async def test_a_deferred_key_is_taken_when_it_is_deferred(self, world: EngineWorld) -> None:
        called: list[str] = []

        @workflow
        async def twice(run: Run) -> str:
            await run.defer("tidy", called.append, "deferred")
            try:
                await run.step("tidy", called.append, "step")
            except DuplicateKey as error:
                return str(error)
            return "no error"

        @workflow
        async def again(run: Run) -> str:
            await run.step("tidy", called.append, "step")
            try:
                await run.defer("tidy", called.append, "deferred")
            except DuplicateKey as error:
                return str(error)
            return "no error"

        async with world.engine(twice, again) as app:
            text = success(await ended(success(await app.engine.start(twice))))
            other = success(await ended(success(await app.engine.start(again))))
        for one in (text, other):
            assert "'tidy'" in one
            assert "defer" in one
            assert "step" in one.replace("'tidy'", "")
        assert called == ["deferred", "step"]

    async def test_step_errors_while_cleaning_up_are_step_errors(self, world: EngineWorld) -> None:
        seen: list[str] = []

        def fail() -> None:
            raise OSError("disk gone")

        @workflow
        async def tidying(run: Run) -> None:
            try:
                await run.sleep("pause", 3_600)
            finally:
                try:
                    await run.step("tidy", fail, retry=Retry(max_attempts=2, initial=1))
                except StepFailed as failed:
                    seen.append(failed.error.type)

        async with world.engine(tidying) as app:
            _ = success(await app.engine.start(tidying, id="r"))
            await app.waits_for("r", "'pause'")
            assert await app.engine.cancel("r") == Success(None)
            await app.waits_for("r", "attempt 2 of step 'tidy'")
            await app.clock.advance(1_000)
            await app.becomes("r", "cancelled")
        assert seen == ["OSError"]
