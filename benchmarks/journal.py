"""The budgets of the journal: what a chained append costs beside the bare insert of the same rows.

    python benchmarks/journal.py

The floor is a table of the ledger's own shape, with its indices, on a connection with the ledger's pragmas: 100 rows by
one `executemany`, one commit. Ours is one batch of 100 entries through the ledger: encoded, numbered, hashed, judged,
durable, and answered.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from budget import Budget, Pair, summarise, table
from floor import connected, folder
from msgspec.json import encode
from world import World, in_turn

from stepwell import Ledger, build, get
from stepwell.core.batch import Batch
from stepwell.core.entry import NewEntry
from stepwell.core.journal_writes import Append
from stepwell.layers import clock, journal, ledger
from stepwell.services.journal import Journal

__all__ = ["JOURNAL_BUDGETS"]

ENTRIES: Final = 100
PAIRS: Final = 15
EACH: Final = 10
VERIFIED: Final = 20_000

TYPE: Final = "stepwell.step-completed"


def payload(number: int) -> dict[str, object]:
    return {"key": f"task-{number:06d}", "kind": "step", "attempt": 1, "position": number, "result": f"{number:064x}"}


class Bare:
    """The rows that the entries leave in a ledger, by no more than is needed for that."""

    def __init__(self, world: World) -> None:
        self._connection = connected(world.file(), "full")
        self._connection.execute(
            "create table entry (no integer primary key, jno integer, seq integer, type text, at_ms integer,"
            " source text, source_seq integer, payload blob, meta blob, spilled integer, chain blob)"
        )
        self._connection.execute("create unique index entry_seq on entry (jno, seq)")
        self._connection.execute("create index entry_type on entry (jno, type, seq)")
        self._connection.execute("create index entry_cache on entry (no) where type = 'stepwell.cache-provenance'")
        self._cursor = self._connection.cursor()
        self._no = 0

    async def append(self) -> float:
        """The seconds that one commit of the rows took, which are at hand."""
        rows: list[tuple[int | str | bytes | None, ...]] = []
        for _ in range(ENTRIES):
            self._no += 1
            body = encode(payload(self._no))
            rows.append((self._no, 1, self._no, TYPE, 1_700_000_000_000, None, None, body, None, 0, os.urandom(32)))
        began = time.perf_counter()
        self._cursor.execute("begin immediate")
        self._cursor.executemany("insert into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._cursor.execute("commit")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


async def appended(world: World) -> Sequence[Pair]:
    bare = Bare(world)
    number = 0
    async with build(ledger.layer(world.file(), commit="inline") | clock.layer()) as built:
        kept = get(built.unwrap(), Ledger)

        async def append() -> float:
            nonlocal number
            payloads = [payload(number + at) for at in range(ENTRIES)]
            number += ENTRIES
            began = time.perf_counter()
            entries = tuple(NewEntry(TYPE, encode(each)) for each in payloads)
            _ = (await kept.commit(Batch((), (Append("run", entries),)))).unwrap()
            return time.perf_counter() - began

        pairs = await in_turn(append, bare.append, PAIRS, EACH)
    bare.close()
    return pairs


async def verified(world: World) -> Sequence[Pair]:
    """Microseconds that `verify` takes for an entry."""
    async with build(journal.layer() | ledger.layer(world.file()) | clock.layer()) as built:
        env = built.unwrap()
        for start in range(0, VERIFIED, ENTRIES):
            entries = tuple(NewEntry(TYPE, encode(payload(start + at))) for at in range(ENTRIES))
            _ = (await get(env, Ledger).commit(Batch((), (Append("run", entries),)))).unwrap()
        pairs: list[Pair] = []
        for _ in range(7):
            began = time.perf_counter()
            _ = (await get(env, Journal).verify("run")).unwrap()
            pairs.append(Pair((time.perf_counter() - began) / VERIFIED * 1e6))
    return pairs


JOURNAL_BUDGETS: Final[tuple[Budget[World], ...]] = (
    Budget("journal-append", "100 chained entries in a batch", "bare insert of the rows", 1.5, appended),
    Budget("journal-verify", "verify an entry", "-", None, verified, "µs"),
)


async def measured() -> int:
    with folder() as path:
        world = World(path)
        results = [(budget, [summarise(budget, await budget.measure(world))]) for budget in JOURNAL_BUDGETS]
    print(table(results))
    return 0 if all(run.met for _, runs in results for run in runs) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(measured()))
