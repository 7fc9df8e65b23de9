"""One connection to SQLite, through apsw, typed and small: text of SQL in, rows out.

apsw brings its own SQLite. Nothing waits in here: a lock that another process holds is an error, `is_busy`, and whoever
called decides how long to try again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import final

import apsw

from .rows import Row, Value

__all__ = [
    "Connection",
    "DatabaseError",
    "is_busy",
    "is_damage",
    "is_host_error",
    "is_not_a_database",
    "leaves_no_trace",
    "reason_of",
]

DatabaseError = apsw.Error


class FileReplaced(apsw.Error):
    """The file that is open is no longer the one at its path: what is written to it would be gone once it is closed."""


CACHED_STATEMENTS = 200
"""More than there are texts of SQL in use at a time, so that each is compiled once."""

ROWS_AT_ONCE = (100, 25, 5)
"""How many rows a statement inserts, where there are so many.

Each statement lets go of the interpreter, and beside a busy event loop a writer's thread may wait 5 ms to get it back.
"""

STEPS_BETWEEN = 10_000
"""How many instructions of SQLite, some milliseconds, lie between two looks whether a statement is to end."""

HOST_ERRORS = (
    apsw.FullError,
    apsw.IOError,
    apsw.NoMemError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.PermissionsError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.InterruptError,
    apsw.ConnectionClosedError,
)


@final
class Connection:
    """A connection in autocommit mode: transactions are begun and ended by the statements that it is given.

    `vfs` names a layer between SQLite and the files, that has been registered with apsw. With `frozen` the file is only
    read, without its log, and nothing is made beside it: nobody may write to it meanwhile.
    """

    def __init__(self, path: str, *, create: bool = False, vfs: str | None = None, frozen: bool = False) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        name = path
        if frozen:
            name = f"{Path(path).absolute().as_uri()}?immutable=1"
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(name, flags, vfs, CACHED_STATEMENTS)
        self._cursor = self._connection.cursor()
        self.path = path
        self.statements = 0
        """How many were begun."""
        self._file = _file_at(path)

    def rows(self, sql: str, *values: Value) -> list[Row]:
        """All rows at once, so that no statement stays open."""
        self.statements += 1
        return self._cursor.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Value) -> Row | None:
        self.statements += 1
        rows = self._cursor.execute(sql, values).fetchall()
        return rows[0] if rows else None

    def run(self, sql: str, *values: Value) -> None:
        self.statements += 1
        self._cursor.execute(sql, values).fetchall()

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """The statement once for each row of values."""
        if rows:
            self.statements += 1
            self._cursor.executemany(sql, rows)

    def insert_rows(self, sql: str, rows: Sequence[Row]) -> None:
        """The same for an `insert` with the values of one row, by few statements and in two thirds of the time.

        Where a row cannot be written, those before it may have been: the transaction has to be rolled back, as after
        any error.
        """
        if len(rows) < ROWS_AT_ONCE[-1]:
            self.run_many(sql, rows)
        else:
            self.insert_cells(sql, [*chain.from_iterable(rows)])

    def insert_cells(self, sql: str, cells: list[Value]) -> None:
        """`insert_rows` with the cells of all rows one after another."""
        columns = _columns_of(sql)
        begin = 0
        for rows in ROWS_AT_ONCE:
            while len(cells) - begin >= rows * columns:
                end = begin + rows * columns
                self.statements += 1
                self._cursor.execute(_insert_of(sql, rows), cells[begin:end])
                begin = end
        self.run_many(sql, [tuple(cells[at : at + columns]) for at in range(begin, len(cells), columns)])

    def rows_of_many(self, sql: str, rows: Iterable[Row]) -> list[Row]:
        """What the statement gives for each row of values, one after another."""
        return self._cursor.executemany(sql, rows).fetchall()

    @property
    def data_version(self) -> int:
        """A number that changes with every commit that this connection makes, or meets as it begins a transaction."""
        return self._connection.data_version()

    def on_commit(self, call: Callable[[int], None]) -> None:
        """Call it after each commit with the number of pages in the log. SQLite makes no checkpoints itself then."""

        def hook(_connection: apsw.Connection, _name: str, pages: int) -> int:
            call(pages)
            return apsw.SQLITE_OK

        self._connection.set_wal_hook(hook)

    def stop_when(self, call: Callable[[], bool]) -> None:
        """Let a statement end with an error soon after `call` says so."""
        self._connection.set_progress_handler(call, STEPS_BETWEEN)

    def checkpoint(self) -> None:
        """Move what the log holds to the file, as far as nobody else reads or writes there."""
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def check_file(self) -> None:
        """Raises `FileReplaced` if another file, or none, lies at the path of the one that is open."""
        if (found := _file_at(self.path)) != self._file:
            happened = "deleted" if found is None else "replaced by another"
            raise FileReplaced(
                f"the file {self.path} was {happened} while it was open; "
                "put the right one back, and open the database anew"
            )

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def read_only(self) -> bool:
        """The file can be read only; SQLite opens it all the same."""
        return self._connection.readonly("main")

    def close(self) -> None:
        self._connection.close(True)


@lru_cache(maxsize=64)
def _columns_of(sql: str) -> int:
    return sql.count("?")


@lru_cache(maxsize=64)
def _insert_of(sql: str, rows: int) -> str:
    """The statement for so many rows. It keeps no copies of pages to undo itself by."""
    head, _, rest = sql.strip().removeprefix("insert ").partition("values ")
    row, closed, tail = rest.partition(")")
    return f"insert or fail {head}values {', '.join([row + closed] * rows)}{tail}"


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_busy(error: Exception) -> bool:
    """Another connection holds the lock; the same call may succeed a little later."""
    return isinstance(error, apsw.BusyError)


def is_damage(error: Exception) -> bool:
    """The file is not as SQLite wrote it."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError)


def is_not_a_database(error: Exception) -> bool:
    return isinstance(error, apsw.NotADBError)


def is_host_error(error: Exception) -> bool:
    """The database cannot do it now, whatever it is asked: trying the batches of a group one by one would not help."""
    return isinstance(error, HOST_ERRORS)


def leaves_no_trace(error: Exception) -> bool:
    """A commit that failed in this way, and was rolled back, cannot come to light after a crash.

    The last page of a transaction carries the mark of its commit. Where writing failed, the mark is not in the file;
    where the sync after it failed, it may be.
    """
    if isinstance(error, apsw.FullError | apsw.BusyError):
        return True
    return isinstance(error, apsw.IOError) and error.extendedresult == apsw.SQLITE_IOERR_WRITE


def reason_of(error: Exception) -> str:
    """What went wrong, in words: the kind of error, and what the driver says of it."""
    if isinstance(error, FileReplaced):
        return str(error)
    kind = type(error).__name__.removesuffix("Error")
    said = f"{kind}: {error}" if str(error) else kind
    return f"the file is damaged ({said}); restore a backup" if is_damage(error) else said
