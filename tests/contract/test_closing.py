"""Whoever closes may be cancelled in the middle: everybody is answered all the same, and all is closed after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell.core.model import StoreKey, Unavailable
from stepwell.core.outcome import Failure, Success
from stepwell.layers.sql.committer import CommitMode, Committer
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.limits import Limits
from stepwell.layers.sql.opening import connect_reader, connect_writer, open_file
from stepwell.layers.sql.sqlite import SqlLedger
from stepwell.layers.sql.writer import Writer
from stepwell.services.ledger import Verdict

from .ledger_batches import create

modes = pytest.mark.parametrize("mode", ["thread", "inline", "auto"])

PATIENCE_S = 5.0
"""How long, of real time, a test waits for an answer before it fails."""

ONE_BY_ONE = Limits(group_batches=1, busy_wait_s=30, busy_wait_closing_s=30)
CLOSED = Failure(Unavailable("the ledger was closed before this batch had its turn", "no"))


def open_ledger(path: Path, mode: CommitMode, limits: Limits = ONE_BY_ONE) -> SqlLedger:
    name = open_file(path, create=True)
    writer = Writer(lambda: connect_writer(name, "normal"))
    return SqlLedger(connect_reader(name), Committer(writer, lambda: 0, mode, limits))


@contextmanager
def locked(path: Path) -> Generator[Connection]:
    """Another process holds the lock of the file, until `rollback` or the end of the block."""
    other = Connection(str(path))
    other.run("begin immediate")
    try:
        yield other
    finally:
        other.close()


def start(ledger: SqlLedger, count: int, name: str = "orders") -> list[asyncio.Task[Verdict]]:
    return [asyncio.create_task(ledger.commit(create(StoreKey(name, str(n))))) for n in range(count)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def answers(calls: Sequence[asyncio.Task[Verdict]]) -> list[Verdict]:
    """What the calls were answered; one that is left without an answer fails the test."""
    _, silent = await asyncio.wait(calls, timeout=PATIENCE_S)
    assert not silent
    return [call.result() for call in calls]


async def is_cancelled(closing: asyncio.Task[None]) -> bool:
    _ = await asyncio.wait((closing,), timeout=PATIENCE_S)
    return closing.cancelled()


def stored(path: Path) -> int:
    """How many stores are in the file, as another process sees it."""
    connection = Connection(str(path))
    found = connection.rows("select count(*) from store")
    connection.close()
    return int(str(found[0][0]))


# --- the ledger -------------------------------------------------------------


@modes
@pytest.mark.parametrize("after_turns", range(6))
async def test_closing_that_is_cancelled_answers_everybody(mode: CommitMode, after_turns: int, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    ledger = open_ledger(path, mode)
    calls = start(ledger, 50)
    await turns(1)
    closing = asyncio.create_task(ledger.close())
    await turns(1 + after_turns)
    closing.cancel()
    _ = await is_cancelled(closing)
    committed = stored(path)
    verdicts = await answers(calls)
    assert [verdict for verdict in verdicts if isinstance(verdict, Failure)] == [CLOSED] * (50 - committed)
    assert stored(path) == committed


@modes
async def test_closing_that_is_cancelled_waits_for_the_group_in_flight_alone(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    ledger = open_ledger(path, mode)
    with locked(path) as other:
        in_flight = start(ledger, 1, "in flight")
        await turns()
        queued = start(ledger, 3, "queued")
        await turns()
        closing = asyncio.create_task(ledger.close())
        await turns()
        for _ in range(3):
            closing.cancel()
            await turns()
        assert await answers(queued) == [CLOSED] * 3
        assert not closing.done()
        assert not in_flight[0].done()
        other.run("rollback")
        assert await is_cancelled(closing)
    assert isinstance((await answers(in_flight))[0], Success)
    assert stored(path) == 1


@modes
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_second_closing_waits_until_all_is_closed(mode: CommitMode, cancelled: bool, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    ledger = open_ledger(path, mode)
    with locked(path) as other:
        calls = start(ledger, 1)
        await turns()
        first, second = (asyncio.create_task(ledger.close()) for _ in range(2))
        await turns()
        if cancelled:
            first.cancel()
        await turns()
        third = asyncio.create_task(ledger.close())
        await turns()
        assert not any(closing.done() for closing in (first, second, third))
        other.run("rollback")
        assert await is_cancelled(first) == cancelled
        assert not await is_cancelled(second)
        assert not await is_cancelled(third)
    assert isinstance((await answers(calls))[0], Success)
    assert os.listdir(tmp_path) == ["app.db"]
