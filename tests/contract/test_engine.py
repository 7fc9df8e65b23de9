"""The engine over the hosts of the ledger: it keeps the whole contract on each."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepwell
from stepwell import Run, workflow
from stepwell.layers.clock import SystemClock

from .engine_contract import EngineContract
from .engine_world import EngineWorld, Host, ended, success


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> EngineWorld:
    host: Host = "memory" if request.param == "memory" else "sqlite"
    return EngineWorld(host, tmp_path / "app.db")


class TestEngine(EngineContract):
    pass


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
