"""Processes that end by SIGKILL in the middle of a commit: nothing answered is lost, nothing is applied twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from stepwell.layers import clock
from stepwell.layers import ledger as ledgers
from stepwell.layers.layer import build, get
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.writer import CommitPoint
from stepwell.services.clock import ManualClock
from stepwell.services.journal_rows import CacheRows, JournalRows
from stepwell.services.ledger import Ledger

from ..contract.ledger_journal_batches import check_chain
from .victim import BOARD, ENTRIES_A_GROUP, FIRST, TOGETHER, Order, as_line, aside_of, waiter_of

KILLS_A_POINT = 200 if os.environ.get("STEPWELL_SOAK") else 20
"""In each place where a process may end; half of them on a writer thread, half inline."""

MODES: tuple[Literal["thread", "inline"], ...] = ("thread", "inline")


class Victims:
    """A process that forks a child for each order, and tells how the child ended."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("victim.py")
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, order: Order) -> None:
        assert self._process.stdin is not None
        print(as_line(order), file=self._process.stdin, flush=True)

    def ended(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def run(self, order: Order) -> int:
        self.send(order)
        return self.ended()

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture
def victims() -> Iterator[Victims]:
    started = Victims()
    yield started
    started.close()


@pytest.fixture
def rivals() -> Iterator[Victims]:
    started = Victims()
    yield started
    started.close()


def answered(diary: Path) -> int:
    """How many operations of a run its processes were told to be committed, the first ones without a gap."""
    numbers = [int(line) for line in diary.read_text().splitlines()] if diary.exists() else []
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Ledger]:
    async with build(ledgers.layer(path, create=False) | clock.layer_test(ManualClock())) as built:
        yield get(built.unwrap(), Ledger)


async def history(path: Path) -> list[tuple[str, int]]:
    """Which operation of which run made each version of the board; no version is missing."""
    async with opened(path) as ledger:
        commits = (await ledger.tail(BOARD, FIRST)).unwrap() or ()
    assert [commit.revision.version for commit in commits] == list(range(1, len(commits) + 1))
    return [(str(run), int(number)) for run, number in (json.loads(commit.patch) for commit in commits)]


async def check(path: Path, diaries: dict[str, Path]) -> dict[str, int]:
    """What must hold after any end: how many operations each run has applied."""
    patches = await history(path)
    applied = {run: [number for who, number in patches if who == run] for run in diaries}
    async with opened(path) as ledger:
        for run, numbers in applied.items():
            told = answered(diaries[run])
            assert numbers == list(range(1, len(numbers) + 1)), "an operation was lost, or applied twice"
            assert len(numbers) in (told, told + TOGETHER), "a group was applied in part, or not although answered"
            row = (await ledger.run(run)).unwrap()
            assert row is not None
            assert row.mark == len(numbers)
            steps = (await ledger.steps(run)).unwrap()
            assert [step.position for step in steps] == numbers
            pinned = [step.pin.revision.version for step in steps if step.pin]
            assert [patches[version - 1] for version in pinned] == [(run, number) for number in numbers]
            left = [tip.key.id for tip in (await ledger.stores("notes")).unwrap() if tip.key.id.startswith(run)]
            assert left == [], "of the notes that a group makes and deletes one was left"
            await check_waiting(ledger, run, groups=len(numbers) // TOGETHER)
            await check_journals(ledger, run, groups=len(numbers) // TOGETHER)
    assert sum(map(len, applied.values())) == len(patches)
    return {run: len(numbers) for run, numbers in applied.items()}


async def check_waiting(ledger: Ledger, run: str, groups: int) -> None:
    """A waiter, the commit that met it and its wake are there together or not at all; signals likewise."""
    waiters = (await ledger.waiters(run_id=run)).unwrap()
    assert [row.waiter.step for row in waiters] == [waiter_of(run, group) for group in range(groups)][-1:]
    assert all(row.due_no is not None for row in waiters), "a commit met what it read, and it is not due"
    signals = (await ledger.signals(run)).unwrap()
    assert [signal.value for signal in signals] == [b"%d" % group for group in range(groups)]
    wakes = [wake for wake in (await ledger.wakes()).unwrap() if wake.run_id == run]
    owed = {row.due_no for row in waiters} | {signal.no for signal in signals}
    assert {wake.no for wake in wakes} == owed
    assert len(wakes) == len(owed), "a number was given twice"


async def check_journals(ledger: Ledger, run: str, groups: int) -> None:
    """Entries, sources, checkpoints, rewinds, recorded rows and heads are there together or not at all."""
    assert isinstance(ledger, JournalRows)
    assert isinstance(ledger, CacheRows)
    first, applied = ENTRIES_A_GROUP * (groups - 1), groups * TOGETHER
    page = (await ledger.entries(run)).unwrap()
    keys = [f"{run}-{group:06d}" for group in range(groups)]
    recorded = (await ledger.recorded_of(run)).unwrap()
    assert [ref.key_digest for ref in recorded] == keys
    assert {row.ref for row in (await ledger.heads()).unwrap() if row.ref.recorded_run_id == run} == set(recorded)
    sources = [row.source.seq for row in (await ledger.sources(run, limit=1_000_000)).unwrap() if row.source.id == run]
    assert sources == list(range(1, applied + 1))
    if groups:
        assert page.floor == first
        assert [entry.seq for entry in page.entries] == list(range(first, first + ENTRIES_A_GROUP))
        assert [row.seq for row in (await ledger.checkpoints(run)).unwrap()] == [first]
        assert [entry.seq for entry in (await ledger.entries(aside_of(run))).unwrap().entries] == [
            2 * group for group in range(groups)
        ]
        assert len((await ledger.rewinds(aside_of(run))).unwrap()) == groups
        await check_chain(ledger, run)
        await check_chain(ledger, aside_of(run))


def check_tables(path: Path) -> None:
    """What SQLite itself says of the file, and one receipt for each change of the board."""
    connection = Connection(str(path))
    try:
        assert connection.rows("pragma integrity_check") == [("ok",)]
        (row,) = connection.rows(
            "select (select count(*) from receipt), (select count(*) from log where kind = 1),"
            " (select count(*) from log where kind = 0) - 1, (select count(*) from log where kind = 2)"
        )
        receipts, patches, made, deleted = row
        assert receipts == patches
        assert made == deleted
    finally:
        connection.close()


@pytest.mark.parametrize("point", CommitPoint, ids=lambda point: point.name.lower())
async def test_a_process_killed_at_a_commit_point(point: CommitPoint, tmp_path: Path, victims: Victims) -> None:
    path, diary = tmp_path / "app.db", tmp_path / "diary"
    for kill in range(KILLS_A_POINT):
        before = answered(diary)
        order = Order(str(path), str(diary), "run-1", MODES[kill % 2], point.name, passing=1 + kill % 3, rounds=9)
        assert victims.run(order) == -signal.SIGKILL
        committed = point is CommitPoint.AFTER_COMMIT
        found_applied = TOGETHER if committed and kill > 0 else 0  # by the process before, which could not answer
        assert answered(diary) - before == TOGETHER * (kill % 3) + found_applied
        applied = await check(path, {"run-1": diary})
        assert applied["run-1"] == answered(diary) + (TOGETHER if committed else 0)
    check_tables(path)


async def test_two_processes_killed_on_one_file(tmp_path: Path, victims: Victims, rivals: Victims) -> None:
    path = tmp_path / "app.db"
    diaries = {"run-1": tmp_path / "diary-1", "run-2": tmp_path / "diary-2"}
    points = list(CommitPoint)
    for turn in range(2 * len(points)):
        killed, spared = (("run-1", victims), ("run-2", rivals))[:: 1 if turn % 2 else -1]
        point = points[turn % len(points)]
        spared[1].send(Order(str(path), str(diaries[spared[0]]), spared[0], MODES[turn % 2], None, 1, rounds=6))
        ended = killed[1].run(
            Order(str(path), str(diaries[killed[0]]), killed[0], "thread", point.name, passing=1 + turn % 3, rounds=9)
        )
        assert ended == -signal.SIGKILL
        assert spared[1].ended() == 0
        applied = await check(path, diaries)
        assert applied[spared[0]] == answered(diaries[spared[0]])
    check_tables(path)


def test_two_processes_on_one_board_share_it(tmp_path: Path, victims: Victims, rivals: Victims) -> None:
    """Every operation of both is applied once, and when one is done the other is not far behind."""
    path, rounds = tmp_path / "app.db", 300
    diaries = {"run-1": tmp_path / "diary-1", "run-2": tmp_path / "diary-2"}
    for run, process in (("run-1", victims), ("run-2", rivals)):
        process.send(Order(str(path), str(diaries[run]), run, "thread", None, passing=1, rounds=rounds))
    assert (victims.ended(), rivals.ended()) == (0, 0)
    assert asyncio.run(check(path, diaries)) == {"run-1": rounds * TOGETHER, "run-2": rounds * TOGETHER}
    check_tables(path)
    done = [who for who, _ in asyncio.run(history(path))]
    first = min(len(done) - done[::-1].index(run) for run in diaries)
    shares = [done[:first].count(run) for run in diaries]
    assert min(shares) >= max(shares) / 4, "a process starved"  # benchmarks/processes.py asks for more, undisturbed
