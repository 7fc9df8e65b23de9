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


def letting_go(times: int) -> Iterator[float]:
    """A transaction that lets go of the interpreter so many times, as each statement does."""
    for _ in range(times):
        _ = os.stat(".")
    yield from ()


async def test_a_transaction_gets_on_beside_a_loop_that_is_busy_in_short_slices(writer: Writer) -> None:
    """If the loop did not stand aside, one such transaction would take minutes."""
    turns = await asyncio.wait_for(beside_slices(writer, letting_go(30)), 20)
    assert turns < 1_000


def pausing(seconds: float) -> Iterator[float]:
    """A transaction that waits for a lock of another process."""
    yield seconds


def syncing(writer: Writer, sync: Callable[[], object]) -> Iterator[float]:
    """A transaction that waits for the disk."""
    writer.waits_for_disk = True
    _ = sync()
    writer.waits_for_disk = False
    yield from ()


@pytest.mark.parametrize("wait", ["lock", "disk"])
async def test_the_loop_goes_on_beside_one_that_waits_for_something_else(
    writer: Writer, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_module, "LET_IN_S", 10.0)  # for so long it would stand aside for one at work
    read, write = os.pipe()
    running = pausing(0.3) if wait == "lock" else syncing(writer, lambda: os.read(read, 1))
    _ = asyncio.get_running_loop().call_later(0.3, os.write, write, b"x")
    turns = await beside_slices(writer, running)
    os.close(read)
    os.close(write)
    assert turns > 20
