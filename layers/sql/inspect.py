"""What can be told about a database and the disk that it is on, beyond what the ledger's calls say.

It reads only, apart from a small file that it writes beside the database and removes, to measure how long a sync takes.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import apsw

from ...services.ledger import CannotOpen
from ..driver.owner import is_provably_dead
from .connection import Connection, DatabaseError
from .opening import admit_file, cannot_open, connect_inspector, is_writable
from .rows import Row, Value, to_integer, to_text
from .schema import SCHEMA_VERSION
from .statements import LIVE

__all__ = ["Disk", "Inspection", "Owner", "StoredForm", "has_wal_fix", "inspect", "sqlite_version"]

STORES: Final = "select count(*) from store where instance is not null"
FORMS: Final = """
select s.name, coalesce(f.version, 1) as form, count(*),
       coalesce((select max(version) from form where name = s.name), 1)
from store s join head h on h.sid = s.sid left join form f on f.fno = h.fno
where s.instance is not null group by s.name, form order by s.name, form"""
RUNS: Final = "select state, count(*) from run group by state order by state"
STEPS: Final = "select count(*) from step"
RECEIPTS: Final = "select count(*) from receipt"
OWNERS: Final = f"select owner, count(*) from run where {LIVE} and owner is not null group by owner order by owner"

MOUNTS: Final = Path("/proc/self/mountinfo")

PAGE_BYTES: Final = 4096

LOGGED_AT: Final = 18
"""Where the header of an SQLite file has a 2 if it is written by way of a log."""

SYNCS: Final = 50
"""How many syncs are timed: enough that a clock of whole milliseconds tells the mean to a fiftieth of one."""

NO_SYNC: Final = frozenset({"tmpfs", "ramfs"})
"""File systems that are gone with the machine's power."""

SHARED: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "afs"})
"""File systems of other machines: locks and shared memory are not reliable there."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who drives runs. `dead`: its process is known to have ended, so its runs are free."""

    name: str
    runs: int
    dead: bool


@dataclass(frozen=True, slots=True)
class StoredForm:
    """How many stores of a name are stored in one version of their type; `newest` is the last one that ever was."""

    name: str
    version: int
    stores: int
    newest: int

    @property
    def is_older(self) -> bool:
        return self.version < self.newest


@dataclass(frozen=True, slots=True)
class Disk:
    """Where the database lies. `sync_us` is the mean time of a sync, in microseconds; None where it is not known."""

    file_system: str | None
    free_bytes: int
    sync_us: int | None

    @property
    def warning(self) -> str | None:
        """Why a database should not be kept there."""
        if self.file_system in NO_SYNC:
            return f"{self.file_system} is memory: the database is lost with the machine's power"
        if self.file_system in SHARED:
            return f"{self.file_system} is on another machine, where locks are not reliable: use a local disk"
        return None


@dataclass(frozen=True, slots=True)
class Inspection:
    """A database as it was found. `integrity` is "ok", or what is wrong with the file."""

    path: str
    size_bytes: int
    wal_bytes: int
    writable: bool
    journal_mode: str
    synchronous: int
    application_id: int
    schema_version: int
    integrity: str
    stores: int
    forms: tuple[StoredForm, ...]
    runs: Mapping[str, int]
    steps: int
    receipts: int
    owners: tuple[Owner, ...]
    disk: Disk


def sqlite_version() -> str:
    """The version of the SQLite that is used: the one that comes with the driver, not the machine's."""
    return apsw.sqlite_lib_version()


def has_wal_fix(version: str) -> bool:
    """Whether this SQLite is free of the fault in WAL mode with several connections: 3.51.3 on, 3.50.7 and 3.44.6."""
    parts = tuple(int(part) for part in version.split("."))
    return parts >= (3, 51, 3) or (3, 50, 7) <= parts < (3, 51) or (3, 44, 6) <= parts < (3, 45)


def inspect(path: str | PathLike[str], now_ms: Callable[[], int]) -> Inspection:
    """Look at the database at `path`. It blocks, for seconds where the file is large. Raises `CannotOpen`."""
    file = Path(path).absolute()
    if not file.is_file():
        raise CannotOpen(str(path), "there is no such file", "Check the path.")
    try:
        connection = connect_inspector(str(file))
        try:
            _admit(connection, str(path))
            return _read(connection, file, now_ms)
        finally:
            connection.close()
    except DatabaseError as error:
        raise cannot_open(str(path), error) from error


def _admit(connection: Connection, path: str) -> None:
    version = admit_file(connection, path)
    if version < SCHEMA_VERSION:
        reason = f"its schema has version {version}, and this stepwell writes {SCHEMA_VERSION}"
        raise CannotOpen(path, reason, "Any other command brings it up to date.")


def _read(connection: Connection, file: Path, now_ms: Callable[[], int]) -> Inspection:
    return Inspection(
        path=str(file),
        size_bytes=_size(file),
        wal_bytes=_size(file.with_name(f"{file.name}-wal")),
        writable=not connection.read_only and is_writable(str(file)),
        journal_mode=_journal_mode(connection, file),
        synchronous=to_integer(_one(connection, "pragma synchronous")),
        application_id=to_integer(_one(connection, "pragma application_id")),
        schema_version=to_integer(_one(connection, "pragma user_version")),
        integrity="; ".join(to_text(row[0]) for row in connection.rows("pragma quick_check(5)")),
        stores=to_integer(_one(connection, STORES)),
        forms=tuple(
            StoredForm(to_text(name), to_integer(version), to_integer(count), to_integer(newest))
            for name, version, count, newest in connection.rows(FORMS)
        ),
        runs={to_text(state): to_integer(count) for state, count in connection.rows(RUNS)},
        steps=to_integer(_one(connection, STEPS)),
        receipts=to_integer(_one(connection, RECEIPTS)),
        owners=tuple(_owner(row) for row in connection.rows(OWNERS)),
        disk=_disk(file.parent, now_ms),
    )


def _journal_mode(connection: Connection, file: Path) -> str:
    """As the file itself says it: a connection that leaves out the log knows of none."""
    with file.open("rb") as content:
        header = content.read(LOGGED_AT + 1)
    return "wal" if header[LOGGED_AT:] == b"\2" else to_text(_one(connection, "pragma journal_mode"))


def _one(connection: Connection, sql: str) -> Value:
    return connection.rows(sql)[0][0]


def _owner(row: Row) -> Owner:
    name, runs = row
    return Owner(to_text(name), to_integer(runs), is_provably_dead(to_text(name)))


# --- the disk ---------------------------------------------------------------


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _disk(folder: Path, now_ms: Callable[[], int]) -> Disk:
    return Disk(_file_system(folder), shutil.disk_usage(folder).free, _sync_us(folder, now_ms))


def _sync_us(folder: Path, now_ms: Callable[[], int]) -> int | None:
    """The mean time in which a page that was written over gets to the disk; None where none can be written."""
    sync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            begun = now_ms()
            for _ in range(SYNCS):
                probe.seek(0)
                probe.write(bytes(PAGE_BYTES))
                sync(probe.fileno())
            return (now_ms() - begun) * 1000 // SYNCS
    except OSError:
        return None


def _file_system(folder: Path) -> str | None:
    """The type of the file system that a folder is on, where Linux tells."""
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return None
    found: tuple[int, str | None] = (-1, None)
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = Path(_unescaped(fields.split()[4]))
        if folder.is_relative_to(point) and len(point.parts) >= found[0]:  # of those at one place, the last counts
            found = (len(point.parts), rest.split()[0])
    return found[1]


def _unescaped(text: str) -> str:
    """A mount point as it is: blanks and a few more are written there as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), text)
