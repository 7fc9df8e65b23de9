"""A database that cannot: every caller of the group is answered, and the next group works."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

import apsw
import pytest

from stepwell.core.batch import Batch, Committed, PatchStore, StoreAt
from stepwell.core.model import StoreKey, Unavailable
from stepwell.core.outcome import Failure, Success
from stepwell.layers.sql.committer import CommitMode, Committer
from stepwell.layers.sql.opening import connect_reader, connect_writer, open_file
from stepwell.layers.sql.sqlite import SqlLedger
from stepwell.layers.sql.writer import CommitPoint, OnPoint, Writer
from stepwell.services.ledger import CannotOpen, Verdict

from ..contract.ledger_batches import ORDER, at, create, patch
from .shim import Shim

CALLERS = 30
ANSWER_S = 1.0

modes = pytest.mark.parametrize("mode", ["thread", "inline", "auto"])


@asynccontextmanager
async def opened(
    path: Path, mode: CommitMode, *, on_point: OnPoint | None = None, vfs: str | None = None
) -> AsyncGenerator[SqlLedger]:
    name = open_file(path, create=True)
    writer = Writer(lambda: connect_writer(name, "full", vfs), on_point)
    ledger = SqlLedger(connect_reader(name), Committer(writer, lambda: 0, mode))
    yield ledger
    await ledger.close()


async def call_together(ledger: SqlLedger, first: int, patch_bytes: int = 10) -> list[Verdict]:
    """One group of callers, each standing on the one before it; they are answered in time."""

    def change(version: int) -> Batch:
        made = PatchStore(ORDER, at(version), b"[" + b"0" * patch_bytes + b"]")
        return Batch((StoreAt(ORDER, at(version - 1)),), (made,))

    calls = (ledger.commit(change(first + n)) for n in range(CALLERS))
    return await asyncio.wait_for(asyncio.gather(*calls), ANSWER_S)


def unavailable(verdicts: list[Verdict], applied: Literal["no", "unknown"], reason: str) -> None:
    assert len(verdicts) == CALLERS
    for verdict in verdicts:
        assert isinstance(verdict, Failure)
        failure = verdict.failure()
        assert isinstance(failure, Unavailable)
        assert failure.applied == applied, failure.reason
        assert reason in failure.reason


async def goes_on(ledger: SqlLedger, tip: int = 0) -> None:
    assert await ledger.tip(ORDER) == Success(at(tip))
    assert await ledger.commit(patch(tip + 1)) == Success(Committed(at(tip + 1), (tip + 2,)))
    assert await ledger.tip(ORDER) == Success(at(tip + 1))


# --- the disk ---------------------------------------------------------------


@contextmanager
def file_size_limit(size_bytes: int) -> Generator[None]:
    """No file of this process grows beyond it: a write there fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@modes
async def test_a_limit_of_the_file_size(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path, mode) as ledger:
        await ledger.commit(create())
        with file_size_limit(os.stat(f"{path}-wal").st_size):
            unavailable(await call_together(ledger, 1), "no", "the commit failed")
            unavailable(await call_together(ledger, 1), "no", "the commit failed")
        await goes_on(ledger)


@modes
async def test_a_limit_that_is_met_before_the_commit(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path, mode) as ledger:
        await ledger.commit(create())
        with file_size_limit(os.stat(f"{path}-wal").st_size):
            # More than the cache of pages holds, so that pages are written while the statements run.
            unavailable(await call_together(ledger, 1, patch_bytes=1 << 20), "no", "nothing could be written")
        await goes_on(ledger)


async def test_opening_beneath_a_limit_says_what_the_matter_is(tmp_path: Path) -> None:
    """The file that SQLite shares between processes cannot be made, which ends the transaction too."""
    path = tmp_path / "app.db"
    async with opened(path, "thread") as ledger:
        await ledger.commit(create())
    with file_size_limit(4096), pytest.raises(CannotOpen, match="I/O error"):
        _ = open_file(path, create=False)
    async with opened(path, "thread") as ledger:
        await goes_on(ledger)


FULL_DISK = """
import asyncio, os, sys
from pathlib import Path
from tests.crash.test_faults import call_together, create, goes_on, opened, unavailable

async def main(folder: Path, mode: str) -> None:
    async with opened(folder / "app.db", mode) as ledger:
        await ledger.commit(create())
        ballast = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(ballast, bytes(4096)):
                pass
        except OSError:
            unavailable(await call_together(ledger, 1), "no", "Full")
        os.ftruncate(ballast, 0)
        await goes_on(ledger)
    print("went on")

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@modes
def test_a_full_file_system(mode: CommitMode, tmp_path: Path) -> None:
    """A small one, mounted where only the child sees it; where that is forbidden, the shim below stands for it."""
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*alone, mount], capture_output=True).returncode:
        pytest.skip("nobody may mount on this host; test_a_full_disk covers the same errors")
    ended = subprocess.run(
        [*alone, f'{mount} && exec "$0" -c "$1" {tmp_path} {mode}', sys.executable, FULL_DISK],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, "went on\n"), ended.stderr


def fail_in(kind: str, code: int) -> Callable[[str], None]:
    def fail(written: str) -> None:
        if written == kind:
            raise apsw.exception_for(code)

    return fail


@modes
async def test_a_full_disk(mode: CommitMode, tmp_path: Path) -> None:
    shim = Shim(f"full-{mode}")
    async with opened(tmp_path / "app.db", mode, vfs=shim.name) as ledger:
        await ledger.commit(create())
        shim.on_write = fail_in("db-wal", apsw.SQLITE_FULL)
        unavailable(await call_together(ledger, 1), "no", "Full")
        shim.on_write = lambda _: None
        await goes_on(ledger)


@modes
async def test_a_sync_that_fails_leaves_it_open_whether_the_group_was_written(mode: CommitMode, tmp_path: Path) -> None:
    shim = Shim(f"sync-{mode}")
    async with opened(tmp_path / "app.db", mode, vfs=shim.name) as ledger:
        await ledger.commit(create())
        shim.on_sync = fail_in("db-wal", apsw.SQLITE_IOERR_FSYNC)
        unavailable(await call_together(ledger, 1), "unknown", "the commit failed")
        shim.on_sync = lambda _: None
        await goes_on(ledger)


# --- at each point ----------------------------------------------------------

UNUSED = (
    CommitPoint.AFTER_BASES,
    CommitPoint.AFTER_RECEIPTS,
    CommitPoint.AFTER_RUNS,
    CommitPoint.AFTER_STEPS,
    CommitPoint.AFTER_JOURNALS,
    CommitPoint.AFTER_ENTRIES,
    CommitPoint.AFTER_SOURCES,
    CommitPoint.AFTER_CHECKPOINTS,
    CommitPoint.AFTER_RECORDED,
    CommitPoint.AFTER_HEADS,
    CommitPoint.AFTER_WAITERS,
    CommitPoint.AFTER_SIGNALS,
)
"""Where these groups do not pass, since they write no such rows."""


@modes
@pytest.mark.parametrize("point", CommitPoint, ids=lambda point: point.name.lower())
async def test_an_error_at_a_point_answers_everybody(point: CommitPoint, mode: CommitMode, tmp_path: Path) -> None:
    broken = False

    def reach(reached: CommitPoint) -> None:
        if broken and reached is point:
            raise apsw.exception_for(apsw.SQLITE_FULL)

    async with opened(tmp_path / "app.db", mode, on_point=reach) as ledger:
        await ledger.commit(create())
        broken = True
        verdicts = await call_together(ledger, 1)
        broken = False
        if point in UNUSED:
            assert all(isinstance(verdict, Success) for verdict in verdicts)
        else:
            unavailable(verdicts, "unknown" if point is CommitPoint.AFTER_COMMIT else "no", "Full")
        written = point in UNUSED or point is CommitPoint.AFTER_COMMIT
        await goes_on(ledger, CALLERS if written else 0)


@modes
async def test_an_error_that_one_batch_brings_about_is_its_own(mode: CommitMode, tmp_path: Path) -> None:
    attempts = 0

    def reach(point: CommitPoint) -> None:
        nonlocal attempts
        if point is CommitPoint.AFTER_LOG:
            attempts += 1
            if attempts in (1, 3):  # all together, and then the second of them alone
                raise apsw.exception_for(apsw.SQLITE_CONSTRAINT)

    async with opened(tmp_path / "app.db", mode, on_point=reach) as ledger:
        keys = [StoreKey("orders", str(n)) for n in range(3)]
        first, second, third = await asyncio.gather(*(ledger.commit(create(key)) for key in keys))
        assert (first, third) == (Success(Committed(at(0), (1,))), Success(Committed(at(0), (2,))))
        assert isinstance(second, Failure)
        assert second.failure() == Unavailable("the batch could not be written: Constraint", "no")
        assert [await ledger.tip(key) for key in keys] == [Success(at(0)), Success(None), Success(at(0))]


async def test_a_thread_that_is_told_to_end_answers_and_goes_on(tmp_path: Path) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["message"])))
    broken = False

    def reach(point: CommitPoint) -> None:
        if broken and point is CommitPoint.AFTER_LOG:
            raise SystemExit

    async with opened(tmp_path / "app.db", "thread", on_point=reach) as ledger:
        await ledger.commit(create())
        broken = True
        unavailable(await call_together(ledger, 1), "unknown", "cut short")
        broken = False
        await goes_on(ledger)
    assert told == ["a commit was cut short"]
