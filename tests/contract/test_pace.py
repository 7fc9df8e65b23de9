"""The pace of a disk, and where "auto" commits: on the loop while that is quick, and on the thread otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.batch import Batch, CreateStore, StoreAbsent
from stepwell.core.model import StoreKey
from stepwell.core.outcome import Success
from stepwell.layers.sql.committer import LITTLE_BYTES, CommitMode, Committer
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.opening import CHECKPOINT_PAGES, connect_reader, connect_writer, open_file
from stepwell.layers.sql.pace import QUICK_S, Pace
from stepwell.layers.sql.sqlite import SqlLedger
from stepwell.layers.sql.writer import CommitPoint, Writer

from .ledger_batches import at, create, patch

QUICK = QUICK_S / 10


def test_a_disk_is_quick_when_it_has_shown_that_it_is() -> None:
    pace = Pace()
    assert not pace.is_quick
    for _ in range(10):
        pace.took_beside(QUICK, 0)
    assert pace.is_quick


@given(st.lists(st.floats(0, QUICK_S), max_size=20), st.floats(QUICK_S * 1.01, 10))
def test_one_slow_commit_ends_it_whatever_came_before(before: list[float], slow_s: float) -> None:
    pace = Pace()
    for commit_s in before:
        pace.took(commit_s)
    pace.took(slow_s)
    assert not pace.is_quick


def test_it_takes_longer_to_forget_a_slower_one() -> None:
    def forgotten(slow_s: float) -> int:
        pace = Pace()
        pace.took(slow_s)
        for commits in range(1000):
            if pace.is_quick:
                return commits
            pace.took_beside(QUICK, QUICK)
        raise AssertionError("it never forgot")

    assert 5 < forgotten(0.005) < forgotten(0.1) < 100


@given(st.floats(QUICK_S * 1.01, 10))
def test_a_thread_that_is_always_slow_is_tried_against_the_loop(slow_s: float) -> None:
    """Beside a busy loop the thread says nothing of the disk: one commit on the loop does."""
    pace = Pace()
    pace.took_beside(slow_s, slow_s)
    assert pace.is_quick
    for _ in range(100):
        pace.took(QUICK)
        assert pace.is_quick


@given(st.floats(QUICK_S * 1.01, 10))
def test_a_slow_disk_holds_up_the_loop_for_a_small_part_of_the_time(commit_s: float) -> None:
    pace, on_loop, all_of_it = Pace(), 0.0, 0.0
    for _ in range(1_000):
        all_of_it += commit_s
        if pace.is_quick:
            on_loop += commit_s
            pace.took(commit_s)
        else:
            pace.took_beside(commit_s, commit_s)
    assert on_loop < all_of_it / 16


# --- where it commits ---------------------------------------------------------


class Places:
    """On which thread each group came to be committed; "loop" or "thread"."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, point: CommitPoint) -> None:
        if point is CommitPoint.BEFORE_COMMIT:
            on_loop = threading.current_thread() is threading.main_thread()
            self.seen.append("loop" if on_loop else "thread")


@asynccontextmanager
async def opened(path: Path, places: Places) -> AsyncGenerator[tuple[SqlLedger, Writer, Iterator[Batch]]]:
    """A ledger that will commit on the loop, its writer, and the next changes of a store."""
    name = open_file(path, create=True)
    writer = Writer(lambda: connect_writer(name, "normal"), places)
    ledger = SqlLedger(connect_reader(name), Committer(writer, lambda: 0, "auto"))
    try:
        _ = (await ledger.commit(create())).unwrap()
        changes = map(patch, count(1))
        while places.seen[-1] != "loop":  # it gets to know the disk
            _ = (await ledger.commit(next(changes))).unwrap()
        places.seen.clear()
        if writer.commit_s > QUICK_S:
            pytest.skip("the disk was slow just now")
        yield ledger, writer, changes
    finally:
        await ledger.close()


async def test_a_quick_disk_is_written_to_on_the_loop(tmp_path: Path) -> None:
    places = Places()
    async with opened(tmp_path / "app.db", places) as (ledger, _, changes):
        _ = await asyncio.gather(*(ledger.commit(next(changes)) for _ in range(10)))
    assert places.seen == ["loop"]


async def test_much_is_written_on_the_thread(tmp_path: Path) -> None:
    places = Places()
    key = StoreKey("orders", "large")
    large = Batch((StoreAbsent(key, at(0)),), (CreateStore(key, at(0), b'"' + b"x" * LITTLE_BYTES + b'"'),))
    async with opened(tmp_path / "app.db", places) as (ledger, _, _):
        _ = (await ledger.commit(large)).unwrap()
    assert places.seen == ["thread"]


async def test_the_log_is_moved_to_the_file_on_the_thread(tmp_path: Path) -> None:
    places = Places()
    async with opened(tmp_path / "app.db", places) as (ledger, writer, changes):
        writer.checkpoint_due = True  # as when the log has become long
        _ = (await ledger.commit(next(changes))).unwrap()
        assert not writer.checkpoint_due
    assert places.seen == ["thread"]


def test_a_log_that_has_become_long_is_due_or_moved(tmp_path: Path) -> None:
    path = open_file(tmp_path / "app.db", create=True)
    writer = Writer(lambda: connect_writer(path, "normal"))
    log = tmp_path / "app.db-wal"
    key = StoreKey("orders", "large")

    def grow(version: int) -> None:
        assert writer.begin()
        made = Batch((StoreAbsent(key, at(0)),), (CreateStore(key, at(0), b"[" + b"0" * (CHECKPOINT_PAGES << 12)),))
        (answer,) = writer.write([(made if version == 0 else patch(version), 0, set())], 0)
        assert isinstance(answer, Success)

    with writer.on_loop():
        grow(0)
        assert writer.checkpoint_due
        begun = log.read_bytes()[:32]
        assert writer.begin()
        _ = writer.write([(create(), 0, set())], 0)
        assert log.read_bytes()[:32] == begun
    grow(1)
    assert not writer.checkpoint_due
    grow(2)  # all of the log is in the file, so it is written from its beginning
    assert log.read_bytes()[:32] != begun
    writer.close()


async def test_whoever_is_not_alone_leaves_it_to_the_thread(tmp_path: Path) -> None:
    places = Places()
    path = tmp_path / "app.db"
    async with opened(path, places) as (ledger, writer, changes):
        other = Connection(str(path))
        other.run("begin immediate")
        call = asyncio.create_task(ledger.commit(next(changes)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        other.run("rollback")
        assert isinstance(await call, Success)
        assert not writer.is_alone
        _ = (await ledger.commit(next(changes))).unwrap()
        other.close()
    assert places.seen == ["thread", "thread"]


# --- others on the file ---------------------------------------------------------


@pytest.mark.parametrize("mode", ["thread", "inline", "auto"])
async def test_what_it_commits_itself_is_no_sign_of_others(mode: CommitMode, tmp_path: Path) -> None:
    path = open_file(tmp_path / "app.db", create=True)
    committer, other = (
        Committer(Writer(lambda: connect_writer(path, "normal")), lambda: 0, each) for each in (mode, "inline")
    )
    told: list[str] = []
    committer.tell_of_others = lambda: told.append("others")

    async def others() -> int:
        for _ in range(100_000):
            if (number := committer.others()) is not None:
                return number
            await asyncio.sleep(0)  # the thread is about to wait for work again
        raise AssertionError("the writer is never free")

    await committer.submit((create(),))
    before = await others()
    for version in range(1, 5):
        await committer.submit((patch(version),))
        assert await others() == before
    assert told == []
    await other.submit((patch(5),))
    assert await others() != before
    await committer.submit((patch(6),))
    assert told == ["others"]
    await committer.close()
    await other.close()


async def test_a_writer_at_work_is_not_asked_about_others(tmp_path: Path) -> None:
    path = open_file(tmp_path / "app.db", create=True)
    committer = Committer(Writer(lambda: connect_writer(path, "normal")), lambda: 0, "thread")
    call = committer.submit((create(),))
    await asyncio.sleep(0)  # it is handed over in this turn
    seen = [committer.others()]
    await call
    assert seen == [None]
    await committer.close()
