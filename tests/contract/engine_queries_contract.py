"""Starting runs, and what can be asked about them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

from stepwell import Failure, Outcome, Run, RunFailed, RunHandle, RunNotFound, Success, TimedOut, TooLarge, workflow
from stepwell.layers import engine as engines

from .engine_world import EngineWorld, ended, failure, success


@dataclass(frozen=True)
class Declined:
    reason: str


@workflow
async def greet(run: Run, name: str, times: int = 1) -> str:
    return " ".join([name] * times)


@workflow
async def join(run: Run, *parts: str) -> str:
    return " ".join(parts)


class EngineQueriesContract:
    # --- starting ---------------------------------------------------------------

    async def test_arguments_that_do_not_fit_are_refused_and_nothing_is_stored(self, world: EngineWorld) -> None:
        async with world.engine(greet) as app:
            start = app.engine.start
            with pytest.raises(TypeError, match="'name'"):
                _ = await start(greet, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(TypeError, match="'times'"):
                _ = await start(greet, "x", "y")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(TypeError, match="'parts'"):
                _ = await start(join, "x", 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(TypeError, match="missing a required argument: 'name'"):
                _ = await start(greet)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(TypeError, match="@workflow"):
                await start(len, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(ValueError, match="NUL"):
                _ = await start(greet, "x", id="\0")
            with pytest.raises(ValueError, match="1 to 512 bytes"):
                _ = await start(greet, "x", id="")
            large = failure(await start(greet, "x" * (2 * 2**20 + 1), id="large"))
            assert isinstance(large, TooLarge)
            assert large.limit_bytes == 2 * 2**20 < large.size_bytes
            assert "'large'" in large.what
            assert await app.engine.runs() == Success(())

    async def test_defaults_are_filled_in(self, world: EngineWorld) -> None:
        async with world.engine(greet, join) as app:
            handle = success(await app.engine.start(greet, "x", id="r"))
            assert await ended(handle) == Success("x")
            assert await ended(success(await app.engine.start(greet, "x", 1, id="r"))) == Success("x")
            assert (await app.row("r")).arguments == b'["x",1]'
            assert await ended(success(await app.engine.start(greet, "x", 2))) == Success("x x")
            assert await ended(success(await app.engine.start(join))) == Success("")
            assert await ended(success(await app.engine.start(join, "y", "z"))) == Success("y z")

    async def test_without_an_id_each_start_is_a_new_run(self, world: EngineWorld) -> None:
        async with world.engine(greet) as app:
            first = success(await app.engine.start(greet, "x"))
            second = success(await app.engine.start(greet, "x"))
            assert first.id < second.id
            assert await ended(first) == await ended(second) == Success("x")

    async def test_two_starts_of_one_id_at_once_are_one_run(self, world: EngineWorld) -> None:
        entered: list[str] = []

        @workflow
        async def once(run: Run) -> str:
            entered.append(run.id)
            return "x"

        async with world.engine(once) as app, world.engine(once) as other:
            starts = [one.engine.start(once, id="r") for one in (app, other) * 5]
            handles = [success(outcome) for outcome in await asyncio.gather(*starts)]
            assert {handle.id for handle in handles} == {"r"}
            for handle in handles:
                assert await app.ended_in_time(handle) == Success("x")
        assert entered == ["r"]

    async def test_two_workflows_need_two_names(self, world: EngineWorld) -> None:
        @workflow(name="greet")
        async def other(run: Run) -> None: ...

        with pytest.raises(ValueError, match="'greet'"):
            _ = engines.layer_test([greet, other])
        with pytest.raises(TypeError, match="@workflow"):
            _ = engines.layer([len])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        assert engines.layer([greet, greet])

    # --- results ----------------------------------------------------------------

    async def test_a_result_is_awaited_as_long_as_it_is_told(self, world: EngineWorld) -> None:
        @workflow
        async def napping(run: Run) -> str:
            await run.sleep("nap", 60)
            return "awake"

        async with world.engine(napping) as app, world.engine() as client:
            handle = success(await app.engine.start(napping, id="r"))
            await app.waits_for("r", "'nap'")
            for asked, after_ms in (
                (handle.result(timeout=2), 2_000),
                (handle.result(timedelta(seconds=3)), 3_000),
                (handle.result(0), 0),
                (client.engine.result("r", timeout=0.5), 500),
            ):
                result = asyncio.ensure_future(asked)
                await app.advance_until(result.done, by_ms=100)
                assert failure(result.result()) == TimedOut(after_ms)
            result = asyncio.ensure_future(client.engine.result("r", timeout=3_600))
            await app.advance_until(result.done)
            assert result.result() == Success("awake")
            assert failure(await client.engine.result("nobody", timeout=0)) == RunNotFound("nobody")

    async def test_an_outcome_that_a_workflow_returns_is_given_flattened(self, world: EngineWorld) -> None:
        @workflow
        async def decide(run: Run, well: bool) -> Outcome[int, Declined | RunFailed]:
            return await run.step("decide", decided, well)

        def decided(well: bool) -> Outcome[int, Declined | RunFailed]:
            return Success(7) if well else Failure(Declined("no funds"))

        async with world.engine(decide) as app:
            well = success(await app.engine.start(decide, True))
            badly: RunHandle[Outcome[int, Declined | RunFailed]] = success(
                await app.engine.start(decide, False, id="b")
            )
            assert await ended_flat(well) == Success(7)
            assert await ended_flat(badly) == Failure(Declined("no funds"))
            assert (await app.status("b")).state == "completed"
            assert await app.engine.result("b") == Success(Failure(Declined("no funds")))

    # --- looking ----------------------------------------------------------------

    async def test_runs_are_listed_by_pages_and_filters(self, world: EngineWorld) -> None:
        @workflow
        async def broken(run: Run) -> None:
            raise RuntimeError("no")

        async with world.engine(greet, broken) as app:
            for n in range(7):
                flow_id = f"r-{n}"
                if n % 3 == 2:
                    _ = await ended(success(await app.engine.start(broken, id=flow_id)))
                else:
                    _ = await ended(success(await app.engine.start(greet, "x", id=flow_id)))
                await app.clock.advance(1)

            async def ids(**filters: object) -> list[str]:
                return [one.id for one in success(await app.engine.runs(**filters))]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

            everything = [f"r-{n}" for n in range(7)]
            assert await ids() == everything
            assert await ids(limit=3) == everything[:3]
            page = success(await app.engine.runs(limit=3))
            rest = success(await app.engine.runs(limit=3, after=page[-1]))
            assert [one.id for one in (*page, *rest)] == everything[:6]
            assert await ids(limit=3, after="r-2") == everything[3:6]
            assert await ids(limit=3, after="r-5") == ["r-6"]
            assert await ids(limit=0) == []
            assert await ids(after="r-6") == await ids(after="nobody") == []
            assert await ids(state="failed") == await ids(workflow="broken") == ["r-2", "r-5"]
            assert await ids(state="completed", limit=2, after="r-1") == ["r-3", "r-4"]
            assert await ids(state="stuck") == await ids(workflow="broken", state="completed") == []
            with pytest.raises(ValueError, match="limit=-1"):
                _ = await app.engine.runs(limit=-1)

    async def test_a_status_tells_how_a_run_stands(self, world: EngineWorld) -> None:
        @workflow
        async def napping(run: Run) -> str:
            await run.sleep("nap", 60)
            return "awake"

        async with world.engine(drive=False) as client:
            began_ms = world.clock.now_ms()
            handle = success(await client.engine.start(napping, id="r"))
            pending = success(await handle.status())
            assert (pending.id, pending.workflow, pending.state) == ("r", "napping", "pending")
            assert (pending.waiting_on, pending.problem) == ("an engine that drives its workflow", None)
            assert pending.created_at_ms == pending.updated_at_ms == began_ms
            await world.clock.advance(5)
            async with world.engine(napping) as app:
                await app.waits_for("r", "sleep 'nap'")
                assert (await app.status("r")).state == "waiting"
                assert await app.ended_in_time(handle) == Success("awake")
            completed = await client.status("r")
            assert (completed.state, completed.waiting_on) == ("completed", None)
            assert completed.created_at_ms == began_ms < completed.updated_at_ms
            assert failure(await client.engine.status("nobody")) == RunNotFound("nobody")
            assert failure(await client.engine.resume("nobody")) == RunNotFound("nobody")


async def ended_flat(handle: RunHandle[Outcome[int, Declined | RunFailed]]) -> Outcome[int, object]:
    async with asyncio.timeout(20):
        return await handle.result()
