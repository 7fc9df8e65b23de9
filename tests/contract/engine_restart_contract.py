"""Runs whose owner ends, in order or not: who takes them up, when, and what is done again."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from stepwell import Failure, Run, RunCancelled, Success, current_step, workflow
from stepwell.core.lease import LEASE_MS, RENEW_MS

from .engine_kinds import Deaf, crash
from .engine_world import EngineWorld, failure, success, until
from .told_runs import types_of


class EngineRestartContract:
    async def test_o35_o39_a_run_whose_owner_was_killed_is_taken_over_when_its_lease_has_ended(
        self, world: EngineWorld
    ) -> None:
        """The attempt that was cut off is made again, under the same number."""
        stands, attempts = asyncio.Event(), list[int]()

        async def held() -> None:
            attempts.append(current_step().attempt)
            stands.set()
            await asyncio.Event().wait() if len(attempts) == 1 else None

        @workflow
        async def holding(run: Run) -> None:
            await run.step("held", held)

        async with world.engine(holding, around=Deaf) as app:
            _ = success(await app.engine.start(holding, id="r"))
            await until(stands.is_set)
            await crash(app, "r")
        async with world.engine(holding) as app:
            await app.clock.advance(LEASE_MS - 1)
            assert (await app.row("r")).state == "running"
            await app.clock.advance(1_001)
            await app.becomes("r", "completed")
            assert (await app.row("r")).owner is None
            assert await types_of(app.ledger, "r") == ["run-started", "run-claimed", "step-completed", "run-completed"]
        assert attempts == [1, 1]

    async def test_o36_a_run_whose_owner_gives_signs_of_life_is_left_alone(self, world: EngineWorld) -> None:
        stands, go_on = asyncio.Event(), asyncio.Event()

        async def held() -> None:
            stands.set()
            await go_on.wait()

        @workflow
        async def holding(run: Run) -> None:
            await run.step("held", held)

        async with world.engine(holding) as app:
            handle = success(await app.engine.start(holding, id="r"))
            await until(stands.is_set)
            before = await app.row("r")

            async def renewed() -> bool:
                return (await app.row("r")).lease_until_ms - app.clock.now_ms() > RENEW_MS

            async with world.engine(holding) as other:
                for _ in range(3 * LEASE_MS // 1_000):
                    await app.clock.advance(1_000)
                    await until(renewed)
                row = await other.row("r")
                assert (row.state, row.owner, row.fence) == ("running", before.owner, before.fence)
                assert await types_of(other.ledger, "r") == ["run-started"]
            go_on.set()
            assert await handle.result() == Success(None)

    async def test_o37_o42_all_runs_are_given_back_by_an_owner_that_ends_in_order(self, world: EngineWorld) -> None:
        @workflow
        async def napping(run: Run) -> str:
            await run.sleep("nap", 60)
            return "rested"

        ids = [f"r-{number}" for number in range(20)]
        async with world.engine(napping) as app:
            for run_id in ids:
                _ = success(await app.engine.start(napping, id=run_id))
            for run_id in ids:
                await app.waits_for(run_id, "'nap'")
        async with world.engine(napping) as app:
            for run_id in ids:
                row = await app.row(run_id)
                assert (row.state, row.owner, row.lease_until_ms) == ("waiting", None, 0)
                assert (await types_of(app.ledger, run_id))[-1] == "run-released"
            for run_id in ids:
                assert await app.result_in_time(run_id) == Success("rested")

    async def test_o38_a_run_that_is_cancelled_while_nobody_has_it_does_nothing_more(self, world: EngineWorld) -> None:
        executed = list[str]()

        @workflow
        async def napping(run: Run) -> None:
            await run.sleep("nap", 60)
            _ = await run.step("after", lambda: executed.append("after"))

        async with world.engine(napping) as app:
            _ = success(await app.engine.start(napping, id="r"))
            await app.waits_for("r", "'nap'")
        async with world.engine(drive=False) as client:
            assert await client.engine.cancel("r") == Success(None)
        async with world.engine(napping) as app:
            await app.becomes("r", "cancelled")
            assert failure(await app.engine.result("r")) == RunCancelled("r")
            assert (await types_of(app.ledger, "r"))[-4:] == [
                "run-cancel-requested",
                "run-claimed",
                "step-cancelled",
                "run-cancelled",
            ]
        assert executed == []

    @pytest.mark.parametrize("raises", [False, True])
    async def test_o40_what_a_parked_run_has_deferred_is_called_once_when_it_is_cancelled(
        self, world: EngineWorld, raises: bool
    ) -> None:
        called = Counter[str]()

        def tidy() -> None:
            called["tidy"] += 1
            if raises:
                raise ValueError("as it must")

        @workflow
        async def napping(run: Run) -> None:
            await run.defer("tidy", tidy)
            await run.sleep("nap", 60)

        async with world.engine(napping) as app:
            _ = success(await app.engine.start(napping, id="r"))
            await app.waits_for("r", "'nap'")
        async with world.engine(drive=False) as client:
            assert await client.engine.cancel("r") == Success(None)
        for _ in range(2):
            async with world.engine(napping) as app:
                await app.becomes("r", "cancelled")
                assert isinstance(await app.engine.result("r"), Failure)
        assert called == {"tidy": 1}

    async def test_o41_what_was_deferred_before_and_after_a_restart_is_called_once_each(
        self, world: EngineWorld
    ) -> None:
        called = Counter[str]()

        @workflow
        async def twice(run: Run) -> None:
            await run.defer("tidy 1", lambda: called.update(["tidy 1"]))
            await run.sleep("nap 1", 60)
            await run.defer("tidy 2", lambda: called.update(["tidy 2"]))
            await run.sleep("nap 2", 60)

        async with world.engine(twice) as app:
            _ = success(await app.engine.start(twice, id="r"))
            await app.waits_for("r", "'nap 1'")
        for text in ("'nap 2'", None):
            async with world.engine(twice) as app:
                await app.clock.advance(60_000)
                if text is None:
                    await app.becomes("r", "completed")
                else:
                    await app.waits_for("r", text)
        assert called == {"tidy 1": 1, "tidy 2": 1}
