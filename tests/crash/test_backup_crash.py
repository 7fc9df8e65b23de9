"""Backups and restores whose process is killed at every call; disks that are full; folders that nobody may write to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from stepwell.core.backup import DATABASE, MANIFEST, BackupError, Manifest
from stepwell.core.outcome import Failure, Outcome, Success
from stepwell.layers import backup as backups
from stepwell.layers.sql.connection import Connection

from ..contract.test_backup import CLOCK, filled, opened, put, row
from . import backup_child
from .backup_child import REFUSED

ROOT = Path(__file__).parents[2]
RUNS = 30


@dataclass(frozen=True)
class World:
    """A database with artifacts and a backup of them in `source`; everything that is made is beneath `place`."""

    zygote: subprocess.Popen[str]
    source: Path
    place: Path

    def backup(self, last: int = 0) -> int:
        return self._run("backup", self.source / "app.db", self.place / "copy", self.source / "kept", last)

    def restore(self, last: int = 0) -> int:
        return self._run("restore", self.place / "new.db", self.source / "copy", self.place / "new", last)

    def _run(self, what: str, db: Path, folder: Path, artifacts: Path, last: int) -> int:
        order = {"what": what, "db": str(db), "folder": str(folder), "artifacts": str(artifacts), "last": last}
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        _ = self.zygote.stdin.write(json.dumps(order) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def fresh(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()

    def bytes_of_source(self) -> dict[str, bytes]:
        """All but what SQLite has beside a database, and makes anew with each connection: no commit may be in it."""
        found = {str(path): path.read_bytes() for path in self.source.rglob("*") if path.is_file()}
        _ = found.pop(str(self.source / "app.db-shm"), None)
        assert found.pop(str(self.source / "app.db-wal"), b"") == b""
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """In memory: a process that is killed loses nothing that it wrote, wherever that is."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as found, started() as zygote:
        source = Path(found) / "source"
        source.mkdir()
        asyncio.run(prepare(source))
        yield World(zygote, source, Path(found) / "place")


@contextmanager
def started() -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", backup_child.__name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as zygote:
        yield zygote


async def prepare(source: Path) -> None:
    await filled(source / "app.db", *(row(f"r-{number}", "running", "old") for number in range(RUNS)))
    _ = await put(source / "kept", b"one", b"two")
    backed = await backups.backup(source / "app.db", source / "copy", CLOCK, artifacts=source / "kept")
    _ = backed.unwrap()


def verified(folder: Path) -> Outcome[Manifest, BackupError]:
    return asyncio.run(backups.verify(folder))


def check_database(path: Path) -> None:
    """It is whole in its one file, and nobody owns its runs."""
    assert not Path(f"{path}-wal").exists()

    async def look() -> None:
        ledger = await opened(path)
        rows = (await ledger.runs(limit=1_000)).unwrap()
        assert [(each.owner, each.state) for each in rows] == [(None, "waiting")] * RUNS
        assert all(each.fence > 3 for each in rows)
        await ledger.close()

    asyncio.run(look())
    connection = Connection(str(path))
    assert connection.rows("pragma integrity_check") == [("ok",)]
    connection.close()


# --- kills ------------------------------------------------------------------------


def test_d2_a_backup_that_is_killed_is_none_or_whole(world: World) -> None:
    before, whole = world.bytes_of_source(), list[bool]()
    for number in count():
        world.fresh()
        status = world.backup(1 + number)
        assert world.bytes_of_source() == before
        copy = world.place / "copy"
        match verified(copy):
            case Success():
                whole.append(True)
            case Failure(error):
                assert error.code == "missing_file"
                whole.append(False)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        again = asyncio.run(backups.backup(world.source / "app.db", copy, CLOCK, artifacts=world.source / "kept"))
        if isinstance(again, Failure):  # it says what to do, and that helps
            assert again.failure().code == "not_empty"
            assert whole[-1] or "remove it" in again.failure().message
            shutil.rmtree(copy)
            assert world.backup() == 0
        assert isinstance(verified(copy), Success)
    assert whole == sorted(whole)
    assert whole.index(True) > 40


def test_d6_a_restore_that_is_killed_has_made_no_database_or_a_whole_one(world: World) -> None:
    before, there = world.bytes_of_source(), list[bool]()
    for number in count():
        world.fresh()
        status = world.restore(1 + number)
        assert world.bytes_of_source() == before
        database = world.place / "new.db"
        there.append(database.exists())
        if status == 0:
            check_database(database)
            break
        assert status == -signal.SIGKILL
        if there[-1]:
            check_database(database)
            assert (world.place / "new.db.restored.json").exists()
            assert len(list((world.place / "new").rglob("objects/*/*"))) == 2
            assert world.restore() == REFUSED
            continue
        again = asyncio.run(backups.restore(world.source / "copy", database, CLOCK, artifacts=world.place / "new"))
        if isinstance(again, Failure):
            error = again.failure()
            assert (error.code, "remove it" in error.message) == ("not_empty", True)
            assert str(world.place / "new") in error.message
            shutil.rmtree(world.place / "new")
            assert world.restore() == 0
        check_database(database)
        left = [name for name in os.listdir(world.place) if ".restoring-" in name]
        assert sorted({*os.listdir(world.place)} - {*left}) == ["new", "new.db", "new.db.restored.json"]
        assert all(name.startswith(".") for name in left)
    assert there == sorted(there)
    assert there.index(True) > 100


# --- full disks -------------------------------------------------------------------

FULL_DISK = """
import asyncio, os, shutil, sys
from pathlib import Path
from stepwell.core.outcome import Success
from stepwell.layers import backup as backups
from stepwell.services.clock import ManualClock

source, disk = Path(sys.argv[1]), Path(sys.argv[2])
clock, full, done = ManualClock(1_000), 0, 0

async def backup():
    return await backups.backup(source / "app.db", disk / "in" / "copy", clock, artifacts=source / "kept")

async def restore():
    return await backups.restore(source / "copy", disk / "in" / "new.db", clock, artifacts=disk / "new")

for call in (backup, restore):
    room = shutil.disk_usage(disk).free
    for left in range(0, room - 4096, int(sys.argv[3])):
        with open(disk / "filler", "wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, room - left or 1)
        made = asyncio.run(call())
        names = sorted(os.listdir(disk))
        if isinstance(made, Success):
            done += 1
            assert names == (["filler", "in"] if call is backup else ["filler", "in", "new"]), names
            for name in names:
                shutil.rmtree(disk / name) if name != "filler" else (disk / name).unlink()
            break
        full += 1
        assert made.failure().code == "io", made
        assert names == ["filler"], names
        (disk / "filler").unlink()
print(full > 20, done)
"""


def test_a_full_file_system(tmp_path: Path) -> None:
    """A small one, mounted where only the child sees it, with a page more of room each time."""
    disk, source = tmp_path / "disk", tmp_path / "source"
    disk.mkdir()
    source.mkdir()
    asyncio.run(prepare(source))
    mount = f"mount -t tmpfs -o size=4m tmpfs {disk}"
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*alone, mount], capture_output=True).returncode:
        pytest.skip("nobody may mount on this host; test_backup_odd.py lets the same calls fail")
    step = str(4096 * (1 if os.environ.get("STEPWELL_SOAK") else 4))
    ended = subprocess.run(
        [*alone, f'{mount} && exec "$0" -c "$1" {source} {disk} {step}', sys.executable, FULL_DISK],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, "True 2\n"), ended.stderr


# --- permissions --------------------------------------------------------------------

UNPRIVILEGED = """
import asyncio, sys
from stepwell.layers import backup as backups
from stepwell.services.clock import ManualClock

what, one, other, artifacts = sys.argv[1:]
call = backups.backup if what == "backup" else backups.restore
print(asyncio.run(call(one, other, ManualClock(1_000), artifacts=artifacts)))
"""


def unprivileged(*words: str) -> str:
    prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if prefix and shutil.which("setpriv") is None:
        pytest.skip("permissions count for nobody here")
    ended = subprocess.run(
        [*prefix, sys.executable, "-c", UNPRIVILEGED, *words], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_folders_that_nobody_may_write_to(tmp_path: Path) -> None:
    source, locked = tmp_path / "source", tmp_path / "locked"
    source.mkdir()
    asyncio.run(prepare(source))
    locked.mkdir(mode=0o555)
    for what, one, other, artifacts in (
        ("backup", source / "app.db", locked / "copy", source / "kept"),
        ("restore", source / "copy", locked / "new.db", tmp_path / "new"),
        ("restore", source / "copy", tmp_path / "new.db", locked / "new"),
    ):
        assert "code='io'" in unprivileged(what, str(one), str(other), str(artifacts))
        assert os.listdir(locked) == []
        assert sorted(os.listdir(tmp_path)) == ["locked", "source"]


def test_a_database_that_can_only_be_read_is_backed_up(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    asyncio.run(prepare(source))
    (source / "app.db").chmod(0o444)
    source.chmod(0o555)
    try:
        said = unprivileged("backup", str(source / "app.db"), str(tmp_path / "copy"), str(source / "kept"))
    finally:
        source.chmod(0o755)
    assert "Success" in said
    assert sorted(os.listdir(source)) == ["app.db", "copy", "kept"]
    assert (tmp_path / "copy" / MANIFEST).exists()
    assert isinstance(verified(tmp_path / "copy"), Success)
    assert (tmp_path / "copy" / DATABASE).stat().st_mode & 0o200
