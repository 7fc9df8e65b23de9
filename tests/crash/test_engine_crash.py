"""A run whose process is killed at every commit point, over and over, and started again until it is done."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from stepwell import Ledger, build, get
from stepwell.core.lease import LEASE_MS
from stepwell.core.run import RunRow
from stepwell.core.step import StepRow
from stepwell.layers import clock
from stepwell.layers import ledger as ledgers
from stepwell.layers.ledger import CommitPoint

from ..contract.told_runs import check_journals
from . import engine_child
from .engine_child import LATE_S, RUN, STEPS, Order, boards, is_once

RARE = (CommitPoint.AFTER_STORES, CommitPoint.AFTER_LOG, CommitPoint.AFTER_RECEIPTS)
"""Points that not every commit of the workflow passes."""

ELSEWHERE = (
    CommitPoint.AFTER_BASES,
    CommitPoint.AFTER_WAITERS,
    CommitPoint.AFTER_SIGNALS,
    CommitPoint.AFTER_SOURCES,
    CommitPoint.AFTER_CHECKPOINTS,
    CommitPoint.AFTER_RECORDED,
    CommitPoint.AFTER_HEADS,
)
"""Points that the workflow does not pass: its state is small, it waits for nothing (see `test_wait_crash.py`), no entry
of its journal has a source, and it has no step cache (see `test_kill.py`)."""

POINTS = [point for point in CommitPoint if point not in ELSEWHERE]


@dataclass(frozen=True)
class Processes:
    """Gives a new process for each order, and its exit status."""

    zygote: subprocess.Popen[str]

    def run(self, order: Order) -> int:
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        _ = self.zygote.stdin.write(json.dumps(order) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())


@contextmanager
def started() -> Generator[Processes]:
    command = [sys.executable, "-m", engine_child.__name__]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as zygote:
        yield Processes(zygote)


async def read(database: Path) -> tuple[RunRow | None, dict[str, StepRow], int]:
    """The run, its steps, and how often the board was changed; its journal tells all of that, and nothing else."""
    async with build(ledgers.layer(database) | clock.layer()) as built:
        ledger = get(built.unwrap(), Ledger)
        await check_journals(ledger)
        rows = (await ledger.steps(RUN)).unwrap()
        tip = (await ledger.tip(boards.key(RUN))).unwrap()
        return (await ledger.run(RUN)).unwrap(), {row.key: row for row in rows}, 0 if tip is None else tip.version


def lines(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines() if log.exists() else [])


def test_a_run_survives_kills_at_every_commit_point(tmp_path: Path) -> None:
    kills = Counter[CommitPoint]()
    with started() as processes:
        for point, more in product(POINTS, (0, 1)):
            database, log = tmp_path / f"{point.name}-{more}.db", tmp_path / f"{point.name}-{more}.log"
            occurrence = (2 if point in RARE else 3) + more
            order = Order(database=str(database), log=str(log), point=point.name, occurrence=occurrence)
            while (status := processes.run(order)) != 0:
                assert status == -signal.SIGKILL
                _ = asyncio.run(read(database))
                kills[point] += 1
                assert kills[point] < 100
            check(database, log)
    assert all(kills[point] >= 2 for point in POINTS), kills
    assert kills.total() >= 60, kills


def check(database: Path, log: Path) -> None:
    """All is there once; where a step's fate is unknown, it was executed once at most."""
    seen = json.loads(database.with_suffix(".json").read_text())
    row, steps, changes = asyncio.run(read(database))
    assert row is not None
    assert (row.state, row.owner) == ("completed", None)
    assert changes == STEPS // 2
    assert seen[-1] == str(STEPS // 2)
    written = lines(log)
    for number in range(STEPS):
        key = f"step {number}"
        assert seen[number] in ((key, "unknown") if is_once(number) else (key,))
        if is_once(number):
            assert written[key] <= 1
            assert written[key] == 1 or seen[number] == "unknown"
        else:
            assert written[key] >= 1
    assert sorted(step.position or 0 for step in steps.values()) == list(range(1, len(steps) + 1))


def test_no_recorded_step_is_executed_again(tmp_path: Path) -> None:
    """Between any two processes: what was recorded then has been executed as often as it is in the end."""
    kills = 0
    with started() as processes:
        for point in (CommitPoint.BEFORE_COMMIT, CommitPoint.AFTER_COMMIT, CommitPoint.AFTER_STEPS):
            database, log = tmp_path / f"{point.name}.db", tmp_path / f"{point.name}.log"
            order = Order(database=str(database), log=str(log), point=point.name, occurrence=3)
            recorded: dict[str, int] = {}
            while processes.run(order) != 0:
                kills += 1
                _, steps, _ = asyncio.run(read(database))
                written = lines(log)
                for key, count in recorded.items():
                    assert written[key] == count
                recorded = {key: written[key] for key, row in steps.items() if row.status == "done"}
            assert all(lines(log)[key] == count for key, count in recorded.items())
            check(database, log)
    assert kills >= 15


def test_a_dead_owner_is_known_to_be_dead(tmp_path: Path) -> None:
    """Its lease has most of its time to run, and nobody waits for that."""
    assert LATE_S * 1000 < LEASE_MS
    database, log = tmp_path / "app.db", tmp_path / "app.log"
    with started() as processes:
        order = Order(database=str(database), log=str(log), point="AFTER_COMMIT", occurrence=4)
        assert processes.run(order) == -signal.SIGKILL
        before, _, _ = asyncio.run(read(database))
        assert before is not None
        assert before.state == "running"
        assert before.lease_until_ms - before.created_at_ms >= LEASE_MS
        assert processes.run({**order, "occurrence": -1}) == 0
    after, _, _ = asyncio.run(read(database))
    assert after is not None
    assert after.updated_at_ms < before.lease_until_ms
    assert after.fence == before.fence + 2  # taken over, and ended
    assert after.state == "completed"
