"""The thread of a writer beside an event loop that is busy: it gets on, and holds up the loop for what it needs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepwell.layers.sql import thread as thread_module
from stepwell.layers.sql.opening import connect_writer, open_file
from stepwell.layers.sql.thread import WriterThread
from stepwell.layers.sql.writer import Writer

SLICE_S = 0.001
"""Less than `sys.getswitchinterval()`: the thread is never waiting long enough to ask for the interpreter."""


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    name = open_file(tmp_path / "thread.db", create=True)
    return Writer(lambda: connect_writer(name, "normal"))


def keep_the_interpreter(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def beside_slices(writer: Writer, running: Iterator[float]) -> int:
    """How many turns a busy loop has while the thread carries out a transaction."""
    loop = asyncio.get_running_loop()
    thread = WriterThread(loop, writer)
    committed = loop.create_future()
    turns = 0
    thread.commit(running, lambda: committed.set_result(None))
    while not committed.done():
        keep_the_interpreter(SLICE_S)
        turns += 1
        await asyncio.sleep(0)
    thread.stop()
    return turns


def statements(writer: Writer, times: int) -> Iterator[float]:
    """A transaction of so many statements, each of which lets go of the interpreter."""
    for _ in range(times):
        _ = writer.others()
    yield from ()


async def test_a_transaction_gets_on_beside_a_loop_that_is_busy_in_short_slices(writer: Writer) -> None:
    """If the loop did not stand aside, one such transaction would take minutes."""
    turns = await asyncio.wait_for(beside_slices(writer, statements(writer, 30)), 20)
    assert turns < 1_000


def pausing(seconds: float) -> Iterator[float]:
    """A transaction that waits for a lock of another process."""
    yield seconds


def waiting(until: Callable[[], object]) -> Iterator[float]:
    """A transaction in a statement that waits for the disk."""
    _ = until()
    yield from ()


@pytest.mark.parametrize("wait", ["lock", "disk"])
async def test_the_loop_goes_on_beside_one_that_waits_for_something_else(
    writer: Writer, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "LOOKS", 100_000)  # for ten seconds it would stand aside for one that gets on
    read, write = os.pipe()
    running = pausing(0.3) if wait == "lock" else waiting(lambda: os.read(read, 1))
    _ = asyncio.get_running_loop().call_later(0.3, os.write, write, b"x")
    turns = await beside_slices(writer, running)
    os.close(read)
    os.close(write)
    assert turns > 20


async def test_it_looks_ever_less_often_after_one_that_does_not_get_on(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ledgers wait for a disk that hangs, they leave the loop its time."""
    naps: list[float] = []
    monkeypatch.setattr("stepwell.layers.sql.thread.time.sleep", naps.append)
    loop, committed = asyncio.get_running_loop(), asyncio.Event()
    read, write = os.pipe()
    thread = WriterThread(loop, writer)
    thread.commit(waiting(lambda: os.read(read, 1)), committed.set)
    _ = loop.call_later(0.6, os.write, write, b"x")
    _ = await committed.wait()
    thread.stop()
    os.close(read)
    os.close(write)
    assert 1 <= len(naps) <= 15
