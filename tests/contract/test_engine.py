"""The engine over the hosts of the ledger: it keeps the whole contract on each."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import stepwell
from stepwell import Run, workflow
from stepwell.layers.clock import SystemClock
from stepwell.layers.driver.worker import DRAIN_S

from .engine_contract import EngineContract
from .engine_world import EngineWorld, Host, ended, success, until


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> EngineWorld:
    host: Host = "memory" if request.param == "memory" else "sqlite"
    return EngineWorld(host, tmp_path / "app.db")


class TestEngine(EngineContract):
    pass


async def test_an_engine_closes_in_bounded_time_and_gives_back_what_it_had_to_cut_off(tmp_path: Path) -> None:
    began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def endless() -> None:
        await asyncio.Event().wait()

    def endless_thread() -> None:
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(30)

    @workflow
    async def hanging(run: Run) -> None:
        await run.gather(run.step("on the loop", endless), run.step("in a thread", endless_thread))

    world = EngineWorld("memory", tmp_path)
    async with world.engine(hanging) as app:
        _ = success(await app.engine.start(hanging, id="r"))
        await until(began.is_set)
        closes_at_s = loop.time()
    assert loop.time() - closes_at_s < 2 * DRAIN_S
    go_on.set()
    async with world.engine(drive=False) as app:
        row = await app.row("r")
        assert (row.state, row.owner, row.wake_at_ms) == ("waiting", None, None)
        assert await app.steps("r") == {}


@pytest.mark.parametrize("host", ["memory", "sqlite"])
async def test_s121_a_sleep_takes_its_time_on_the_clock_of_the_machine(host: str, tmp_path: Path) -> None:
    clock = SystemClock()

    @workflow
    async def timed(run: Run) -> int:
        before = await run.step("before", clock.now_ms)
        await run.sleep("pause", 0.010)
        return await run.step("after", clock.now_ms) - before

    async with stepwell.open("memory:" if host == "memory" else tmp_path / "app.db", workflows=[timed]) as app:
        passed_ms = success(await ended(success(await app.start(timed))))
    assert 10 <= passed_ms < 1_000  # about 15 on an idle machine
