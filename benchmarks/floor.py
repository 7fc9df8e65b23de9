"""The floor of a durable update: one row, one commit, nothing else; and how ratios to it are reported.

A ratio means something only beside a floor measured in the same minute: a benchmark lets its own commits and the bare
ones take turns within a round, takes the ratio of each round, and reports their median and quartiles.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from stepwell.layers.sql.opening import CACHE_KIB, CHECKPOINT_PAGES, Durability

__all__ = ["BareCommits", "Row", "folder", "report"]


class BareCommits:
    """One table, one row, prepared statements, the pragmas of the ledger's writer, and a new value each time.

    The value matters: SQLite writes nothing, and syncs nothing, for a row that stays as it was.
    """

    def __init__(self, path: Path, durability: Durability = "full") -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in (
            "journal_mode = wal",
            f"synchronous = {durability}",
            f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
            f"cache_size = -{CACHE_KIB}",
        ):
            self._connection.execute(f"pragma {pragma}").fetchall()
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
