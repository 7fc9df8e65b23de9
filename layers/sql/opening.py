"""Opening a file: is it ours, of which version, can it be written; and bringing it up to date.

Several processes may open one file at once, also for the first time: whoever gets the lock migrates, the others find it
done. A file that is not ours is not touched.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from ...services.ledger import CannotOpen
from .connection import Connection, DatabaseError, is_busy, is_damage, is_not_a_database, reason_of
from .dialect import SQLITE
from .limits import LIMITS
from .pauses import Pauses
from .reading import snapshot
from .rows import to_integer
from .schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION

_T = TypeVar("_T")

__all__ = [
    "Durability",
    "admit_file",
    "cannot_open",
    "connect_inspector",
    "connect_reader",
    "connect_writer",
    "empty_log",
    "is_writable",
    "open_file",
    "patiently",
]

Durability: TypeAlias = Literal["full", "normal"]
"""What a commit survives. "full": the loss of power, at the price of a sync for each group of commits; "normal": the
end of any process, while the loss of power may undo the last commits (never half of one)."""

CHECKPOINT_PAGES: Final = 4000
"""How long the write-ahead log grows before its pages are moved to the file: long enough that this is rare, and no
longer, since a log that is written over in place syncs twice as fast as one that grows."""

LOG_BYTES: Final = 64 * 1024 * 1024
"""What a log that one huge commit has made longer is cut to."""

ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""How the address of something on the network begins. As a path it would make a folder of that name."""

CACHE_KIB: Final = 16 * 1024
"""The page cache of the writer."""


def open_file(path: str | PathLike[str], *, create: bool) -> str:
    """Check the file, make it where it is missing and `create` says so, and migrate it. Gives its absolute path.

    Raises `CannotOpen`, as the functions below do. They block, for seconds where another process has locked the file.
    """
    name = _admit_path(path, create)
    patiently(name, lambda: _prepare(name, create))
    return name


def connect_writer(path: str, durability: Durability, vfs: str | None = None) -> Connection:
    pragmas = (
        f"synchronous = {durability}",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        f"journal_size_limit = {LOG_BYTES}",
        f"cache_size = -{CACHE_KIB}",
        "secure_delete = 1",  # of what is purged; what SQLite copied from page to page before is beyond its reach
    )
    return patiently(path, lambda: _connect(path, pragmas, vfs))


def connect_inspector(path: str) -> Connection:
    """For looking only: as the writer where it can be written; otherwise nothing is made beside the file."""
    path = os.path.realpath(path)  # the log is beside the file, and not beside a link to it
    frozen = not is_writable(path) and not _has_log(path)
    return patiently(path, lambda: _connect(path, ("synchronous = full",), frozen=frozen))


def empty_log(path: str) -> bool:
    """Move the write-ahead log to the file and empty it; False if others kept it busy, for seconds. It blocks."""
    connection = Connection(path)
    try:
        for pause in Pauses().until(LIMITS.busy_wait_s):
            busy, _, _ = connection.rows("pragma wal_checkpoint(truncate)")[0]
            if not busy:
                return True
            time.sleep(pause)
        return False
    finally:
        connection.close()


def is_writable(path: str) -> bool:
    """Whether the permissions allow this process to write to the file, and to its folder."""
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


def _has_log(path: str) -> bool:
    """Whether there are commits that are not in the file itself yet."""
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def connect_reader(path: str) -> Connection:
    return patiently(path, lambda: _connect(path, ("query_only = 1",)))


def _connect(path: str, pragmas: Iterable[str], vfs: str | None = None, *, frozen: bool = False) -> Connection:
    connection = Connection(path, vfs=vfs, frozen=frozen)
    try:
        for pragma in pragmas:
            connection.run(f"pragma {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def patiently(path: str, attempt: Callable[[], _T]) -> _T:
    """What `attempt` gives, tried again while another process has locked the file."""
    pauses = Pauses().until(LIMITS.busy_wait_s)
    while True:
        try:
            return attempt()
        except DatabaseError as error:
            pause = next(pauses, None) if is_busy(error) else None
            if pause is None:
                raise cannot_open(path, error) from error
            time.sleep(pause)


# --- the path ---------------------------------------------------------------


def _admit_path(path: str | PathLike[str], create: bool) -> str:
    name = os.fspath(path)
    if not name or name == ":memory:":
        raise CannotOpen(name or "''", "that names no file", "Give a path; for a ledger in memory use layer_test().")
    if name.startswith("~"):
        raise CannotOpen(name, "'~' is not expanded here", "Use pathlib.Path(...).expanduser().")
    if ADDRESS.match(name):
        raise CannotOpen(name, "that is an address, not a path", "Give the path of the file alone.")
    file = Path(name).absolute()
    try:
        if file.is_dir():
            raise CannotOpen(name, "it is a folder", "Give the path of a file in it.")
        if not file.exists():
            if not create:
                raise CannotOpen(name, "there is no such file", "Check the path, or create the database first.")
            file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotOpen(name, reason, "Check the folders above it and their permissions.") from error
    return str(file)


def cannot_open(path: str, error: DatabaseError) -> CannotOpen:
    """Why the driver could not do it, for people."""
    if is_busy(error):
        return CannotOpen(path, "another process keeps it locked", "Find out which one, or try again.")
    if is_not_a_database(error):
        return CannotOpen(path, "it is not an SQLite database", "Check the path; the file was left as it is.")
    if is_damage(error):
        return CannotOpen(path, f"it is damaged: {error}", "Restore a backup; the file was left as it was.")
    return CannotOpen(path, reason_of(error), "Check that the file and its folder can be read and written.")


# --- the file ---------------------------------------------------------------


def _admit_permissions(path: str) -> None:
    """Before SQLite opens it, which would leave two files beside one that can only be read."""
    if not os.path.exists(path):
        return
    if os.access(path, os.R_OK) and not os.access(path, os.W_OK):
        raise CannotOpen(path, "it can only be read", "Make the file writable, or open a copy.")
    if not is_writable(path) and os.access(path, os.R_OK):
        reason = "nothing can be written to its folder, where SQLite keeps two more files while it is open"
        raise CannotOpen(path, reason, "Make the folder writable, or open a copy elsewhere.")


def _prepare(path: str, create: bool) -> None:
    _admit_permissions(path)
    connection = Connection(path, create=create)
    try:
        version = admit_file(connection, path)
        if connection.read_only:
            raise CannotOpen(path, "it can only be read", "Make the file writable, or open a copy.")
        if connection.row("pragma journal_mode = wal") != ("wal",):
            raise CannotOpen(
                path, "its file system cannot share memory between processes", "Keep the database on a local disk."
            )
        if version < SCHEMA_VERSION:
            _migrate(connection, path)
    finally:
        connection.close()


def admit_file(connection: Connection, path: str) -> int:
    """The version of a file's schema, 0 for a new file; a `CannotOpen` if it is not ours or is too new for us."""
    with snapshot(connection):  # another process may be migrating
        return _version(connection, path)


def _version(connection: Connection, path: str) -> int:
    """The version of its schema, 0 for a new file; a `CannotOpen` if the file is not ours or is too new for us."""
    application_id, version, tables = (
        to_integer(connection.rows(sql)[0][0])
        for sql in ("pragma application_id", "pragma user_version", "select count(*) from sqlite_schema")
    )
    if application_id != APPLICATION_ID and (application_id or version or tables):
        raise CannotOpen(path, "it belongs to another application", "Check the path; the file was left as it is.")
    if version > SCHEMA_VERSION:
        reason = f"its schema has version {version}, and this stepwell knows versions up to {SCHEMA_VERSION}"
        raise CannotOpen(path, reason, "Upgrade stepwell.")
    return version


def _migrate(connection: Connection, path: str) -> None:
    connection.run("begin immediate")
    try:
        version = _version(connection, path)  # another process may have been faster
        for migration in MIGRATIONS[version:]:
            for statement in migration(SQLITE):
                connection.run(statement)
        connection.run(f"pragma application_id = {APPLICATION_ID}")
        connection.run(f"pragma user_version = {SCHEMA_VERSION}")
        connection.run("commit")
    finally:
        if connection.in_transaction:
            connection.run("rollback")
