"""Ways in which others lose the order of events, or a run, or execute one twice: scenarios 5 to 7.

They are played as those of `test_scenarios.py` are.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import apsw
import pytest

from stepwell import Success

from .engine_world import EngineWorld, Opened, success, until
from .scenario_flows import (
    BRANCHES,
    KNOWN,
    gathers,
    marks,
    races,
    ready,
    seen,
)
from .scenario_rivals import LocalRival, Rival, forker, local_rival, remote_rival
from .scenario_world import (
    SELDOM,
    SIDES,
    Side,
    driven,
    has_ended,
    make,
    outcome_of,
    parks,
    played,
    world_of,
)
from .store_world import append, chats


@pytest.fixture(scope="module", autouse=True)
def other_processes() -> Generator[None]:
    with forker():
        yield


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Side:
    given: Side = request.param
    return given


# --- 5: several waits that are ready at once ---------------------------------------------------

ORDERS = [" ".join(order) for order in itertools.permutations(BRANCHES)]
PAIRS = [" ".join(order) for order in itertools.permutations(BRANCHES, 2)]


@pytest.mark.parametrize("how", ["gathers", "races"])
async def test_scenario_5_waits_that_are_ready_at_once_replay_in_the_recorded_order(
    side: Side, how: str, tmp_path: Path
) -> None:
    """All permutations of a sleep, a signal, a condition, a take and a step, each in a run of its own.

    An execution meets all of them ready, another one replays it, and tells in its result what it saw.
    """
    flow = gathers if how == "gathers" else races
    orders = ORDERS if side == "memory" or how == "gathers" else PAIRS
    runs = {f"r-{at:03}": order for at, order in enumerate(orders)}
    world = world_of(side, tmp_path)
    ready.clear()
    async with world.engine(*KNOWN, poll=SELDOM) as app:
        for run_id in runs:
            await make(app.store, f"when-{run_id}")
            await make(app.store, f"take-{run_id}")
        for run_id, order in runs.items():
            _ = success(await app.engine.start(flow, order, id=run_id))
        for run_id in runs:
            await parks(app.ledger, run_id)
    async with world.engine(drive=False, poll=SELDOM) as app:
        for run_id in runs:
            for store_id in (f"when-{run_id}", f"take-{run_id}"):
                _ = success(await app.store.update(chats, store_id, append("x")))
            _ = success(await app.engine.signal(run_id, "news", "y"))
    ready.update(runs)
    await world.clock.advance(60_000)
    async with world.engine(*KNOWN, poll=SELDOM) as app:
        for run_id in runs:
            await until(partial(_ends_next, app, run_id))
        first = {run_id: list(seen[run_id]) for run_id in runs}
        for run_id in runs:
            if how == "gathers":
                steps = [row for row in (await app.steps(run_id)).values() if row.position is not None]
                recorded = [_branch(row.kind) for row in sorted(steps, key=lambda row: row.position or 0)]
                assert first[run_id] == recorded
    seen.clear()
    async with AsyncExitStack() as stack:
        if side == "processes":
            replayer = await stack.enter_async_context(remote_rival(world.path, drive=True))
            await replayer.advance(60_000)
        else:
            replayer = LocalRival(await stack.enter_async_context(world.engine(*KNOWN, poll=SELDOM)))
        await replayer.advance(1_000)
        for run_id in runs:
            assert await replayer.result(run_id) == first[run_id]
    orders_seen = {tuple(log) for log in first.values()}
    assert len(orders_seen) > 1, "that all were alike proves nothing"


async def _ends_next(app: Opened, run_id: str) -> bool:
    row = (await app.steps(run_id)).get("end")
    return row is not None and row.status == "waiting" and (await app.row(run_id)).state == "waiting"


def _branch(kind: str) -> str:
    return kind.removeprefix("store.")


# --- 6: one id, started twice -------------------------------------------------------------------


async def test_scenario_6_an_id_started_again_at_any_moment_of_its_start_is_one_run(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:
        log = str(tmp_path / "log")
        again: dict[int, bool] = {}

        async def act(number: int) -> None:
            again[number] = await stage.rival.start("marks", f"r-{number}", log)

        moment = 0
        stage.double.acted = True
        while stage.double.acted:
            moment += 1
            stage.double.arm(moment, partial(act, moment))
            handle = success(await stage.app.engine.start(marks, log, id=f"r-{moment}"))
            assert success(await stage.app.ended_in_time(handle)) == f"r-{moment}"
            await until(lambda: not stage.double.is_acting)
        assert list(again) == list(range(1, moment))
        assert all(again.values())
        assert moment > 4
        assert sorted(executed(tmp_path / "log")) == sorted(f"r-{number}" for number in range(1, moment + 1))


async def test_scenario_6_of_two_starts_with_other_arguments_one_is_refused(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:
        mine, other = str(tmp_path / "mine"), str(tmp_path / "other")
        for moment in (1, 2):  # before and after the commit of the start
            run_id = f"r-{moment}"
            stage.double.arm(moment, partial(stage.rival.start, "marks", run_id, other))
            started = await stage.app.engine.start(marks, mine, id=run_id)
            assert isinstance(started, Success) == (moment == 2)
            await stage.app.advance_until(partial(has_ended, stage.double.real, run_id))
        assert executed(tmp_path / "other") == ["r-1"]
        assert executed(tmp_path / "mine") == ["r-2"]


async def test_scenario_6_many_starts_of_one_id_at_once_are_one_run(side: Side, tmp_path: Path) -> None:
    world, log = world_of(side, tmp_path), str(tmp_path / "log")
    async with driven(world) as (app, double), AsyncExitStack() as stack:
        rivals = remote_rival(world.path, drive=True) if side == "processes" else local_rival(world, double.real)
        starters: tuple[Rival, ...] = (LocalRival(app), await stack.enter_async_context(rivals), LocalRival(app))
        runs = [f"r-{number:02}" for number in range(30)]
        started = await asyncio.gather(*(each.start("marks", run_id, log) for run_id in runs for each in starters))
        assert all(started)
        for run_id in runs:
            await app.advance_until(partial(has_ended, double.real, run_id))
        assert sorted(executed(tmp_path / "log")) == runs


def executed(log: Path) -> list[str]:
    """The runs that executed the step, as often as they did."""
    return [line.split()[0] for line in log.read_text().splitlines()]


# --- 7: two workers over one file ------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete"])
async def test_scenario_7_two_worker_processes_execute_every_run_once(journal: str, tmp_path: Path) -> None:
    world, log = EngineWorld("sqlite", tmp_path / "app.db"), tmp_path / "log"
    async with world.engine(drive=False):
        pass
    switch_journal(world.path, journal)
    async with (
        remote_rival(world.path, drive=True) as one,
        remote_rival(world.path, drive=True) as two,
        world.engine(*KNOWN, drive=False) as app,
    ):
        runs: list[str] = []
        while len(workers(log)) < 2 or len(runs) < 200:
            assert len(runs) < 2_000, "one worker has got nothing"
            wave = [f"r-{len(runs) + number:04}" for number in range(50)]
            _ = await asyncio.gather(*(app.engine.start(marks, str(log), id=run_id) for run_id in wave))
            runs += wave
            await asyncio.gather(one.advance(1_000), two.advance(1_000))
            for run_id in wave:
                assert await outcome_of(app.ledger, run_id) == run_id
        assert sorted(executed(log)) == runs


def switch_journal(path: Path, journal: str) -> None:
    connection = apsw.Connection(str(path))
    (mode,) = connection.execute(f"pragma journal_mode = {journal}").fetchall()
    connection.close()
    assert mode == (journal,)


def workers(log: Path) -> set[str]:
    return {line.split()[1] for line in log.read_text().splitlines()} if log.exists() else set()
