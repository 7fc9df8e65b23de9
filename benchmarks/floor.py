"""The floor of a durable update: one row, one commit, nothing else; and how ratios to it are reported.

A ratio means something only beside a floor measured in the same minute: a benchmark lets its own commits and the bare
ones take turns within a round, takes the ratio of each round, and reports their median and quartiles.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import apsw

from stepwell.layers.sql.bell import Bell
from stepwell.layers.sql.opening import CACHE_KIB, CHECKPOINT_PAGES, Durability

__all__ = ["BareCommits", "BareGroups", "Row", "ThreadedCommits", "folder", "report"]


def connected(path: Path, durability: Durability) -> apsw.Connection:
    """A connection with the pragmas of the ledger's writer."""
    connection = apsw.Connection(str(path))
    for pragma in (
        "journal_mode = wal",
        f"synchronous = {durability}",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        f"cache_size = -{CACHE_KIB}",
    ):
        connection.execute(f"pragma {pragma}").fetchall()
    return connection


class BareCommits:
    """One table, one row, prepared statements, and a new value each time.

    The value matters: SQLite writes nothing, and syncs nothing, for a row that stays as it was.
    """

    def __init__(self, path: Path, durability: Durability = "full") -> None:
        self._connection = connected(path, durability)
        self._connection.execute("create table bare (id integer primary key, value text not null)")
        self._connection.execute("insert into bare values (1, '')")
        self._cursor = self._connection.cursor()
        self._commits = 0

    def commit(self) -> float:
        """The seconds that one commit took."""
        execute = self._cursor.execute
        self._commits += 1
        began = time.perf_counter()
        execute("begin immediate")
        execute("update bare set value = ? where id = 1", (f"value {self._commits}",))
        execute("commit")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


class ThreadedCommits:
    """The same bare commits, made on a thread of their own: what a commit beside the event loop costs at least."""

    def __init__(self, bare: BareCommits) -> None:
        self._bare = bare
        self._bell = Bell(asyncio.get_running_loop())
        self._work: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def commit(self) -> float:
        """The seconds from the call to the next line of the caller."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        self._work.put(done)
        await done
        return time.perf_counter() - began

    def close(self) -> None:
        """The bare commits stay open."""
        self._work.put(None)
        self._thread.join()
        self._bell.close()

    def _run(self) -> None:
        while (done := self._work.get()) is not None:
            _ = self._bare.commit()
            self._bell.tell(partial(done.set_result, None))


class BareGroups:
    """The rows that changes of stores leave in a ledger, so many to a commit and by no more than is needed for that.

    A change is a row of the log and a receipt; a group updates each store that it touched once.
    """

    def __init__(self, path: Path, stores: int, patch: bytes, durability: Durability = "full") -> None:
        self._connection = connected(path, durability)
        for table in (
            "create table store (sid integer primary key, name text, id text, version integer, last_seq integer)",
            "create table log (seq integer primary key, sid integer, version integer, prev_seq integer, patch blob)",
            """create table receipt (run_id text, key text, sid integer, kind text, version integer,
               primary key (run_id, key, sid)) without rowid""",
        ):
            self._connection.execute(table)
        self._cursor = self._connection.cursor()
        rows = [(sid, "orders", f"o-{sid}") for sid in range(stores)]
        self._cursor.executemany("insert into store values (?, ?, ?, 0, 0)", rows)
        self._versions = [0] * stores
        self._patch = patch
        self._seq = 0

    def commit(self, sids: Sequence[int]) -> float:
        """The seconds that one commit took of a change of each of these stores, one after another."""
        log: list[tuple[int, int, int, int, bytes]] = []
        receipts: list[tuple[str, str, int, str, int]] = []
        began = time.perf_counter()
        for sid in sids:
            self._seq += 1
            self._versions[sid] += 1
            log.append((self._seq, sid, self._versions[sid], self._seq - 1, self._patch))
            receipts.append((f"{time.time_ns():x}", "step", sid, "update", self._versions[sid]))
        self._cursor.execute("begin immediate")
        touched = [(self._versions[sid], self._seq, sid) for sid in set(sids)]
        self._cursor.executemany("update store set version = ?, last_seq = ? where sid = ?", touched)
        self._cursor.executemany("insert into log values (?, ?, ?, ?, ?)", log)
        self._cursor.executemany("insert into receipt values (?, ?, ?, ?, ?)", receipts)
        self._cursor.execute("commit")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Row:
    """What one case took, in µs on average, and its ratio in each round. `bound` is for the median of the ratios."""

    name: str
    us: float
    ratios: Sequence[float]
    bound: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.bound is None:
            return True
        middle = statistics.median(self.ratios)
        return middle >= self.bound if self.at_least else middle <= self.bound

    def __str__(self) -> str:
        low, middle, high = statistics.quantiles(self.ratios, n=4)
        bound = "" if self.bound is None else f"   {'≥' if self.at_least else '≤'} {self.bound:g}: "
        verdict = "" if self.bound is None else "met" if self.met else "MISSED"
        return f"{self.name:<52}{self.us:>9.1f} µs   {middle:6.2f} x ({low:.2f} to {high:.2f}){bound}{verdict}"


def report(title: str, rows: Sequence[Row]) -> int:
    """Print the rows under the title; 1 if a bound was missed, otherwise 0."""
    print(f"\n{title}")
    for row in rows:
        print(f"  {row}")
    return 0 if all(row.met for row in rows) else 1


@contextmanager
def folder() -> Generator[Path]:
    """A folder for the files of a benchmark, on the disk that it is started on: a temporary one may be in memory."""
    root = Path(".bench")
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as name:
        yield Path(name)
