"""What waiters cost: finding those whom a change concerns among very many, and a commit beside those whom it does not.

    python benchmarks/waiters.py [--rounds 30] [--check]

Waiters have read `("items", n, "status")`, each of another item. One changed path is matched by the index in memory
and by the rows of the SQLite file, each beside the same with 10 waiters, in turn within a round. Then one update is
committed, again and again, beside 10 waiters on other paths of the store, and beside 10,000 of them. `--check` takes
fewer rounds, and all that is asked for is asked for all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from floor import Row, folder, report

from stepwell.core.batch import Batch, CreateStore, PatchStore, RegisterWaiter, RemoveWaiter, StoreAbsent, StoreAt
from stepwell.core.model import Path as StatePath
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.waiter import Waiter
from stepwell.core.waiter_index import WaiterIndex
from stepwell.layers import clock, ledger
from stepwell.layers.layer import build, get
from stepwell.layers.sql import statements
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.opening import Durability, connect_writer, open_file
from stepwell.layers.sql.path_rows import path_rows, ranges_met
from stepwell.services.ledger import Ledger

FEW, SOME, MANY = 10, 10_000, 1_000_000
BYTES_EACH = 400
"""The most that a waiter may take in memory, beside its paths."""

PER_ROUND = 200
IN_A_ROW = 20
UPDATES_PER_ROUND = 20

Match = Callable[[StatePath], int]


def item(n: int) -> StatePath:
    return ("items", n, "status")


def seconds_each(match: Match, waiters: int) -> float:
    """Of one changed path that one waiter has read, at the median of a few times `IN_A_ROW`: others run here too."""
    written = [item(n * 7919 % waiters) for n in range(PER_ROUND)]
    spent: list[float] = []
    for begin in range(0, PER_ROUND, IN_A_ROW):
        some = written[begin : begin + IN_A_ROW]
        began = time.perf_counter()
        for path in some:
            match(path)
        spent.append(time.perf_counter() - began)
    assert match(written[0]) == 1
    assert match(("others",)) == 0
    return statistics.median(spent) / IN_A_ROW


def compare(name: str, few: Match, many: Match, waiters: int, rounds: int, bound: float | None) -> Row:
    ratios: list[float] = []
    spent = 0.0
    for _ in range(rounds):
        floor, ours = seconds_each(few, FEW), seconds_each(many, waiters)
        ratios.append(ours / floor)
        spent += ours
    return Row(name, spent / rounds * 1e6, ratios, bound)


# --- in memory ------------------------------------------------------------------


def index_of(waiters: int) -> WaiterIndex[int]:
    index = WaiterIndex[int]()
    for n in range(waiters):
        index.add(item(n), n)
    return index


def match_by(index: WaiterIndex[int]) -> Match:
    return lambda path: len(index.match((path,)))


def bytes_each(waiters: int) -> float:
    """Of what the index holds, without what the caller gives: paths and holders, but for the segments of the paths."""
    holders = list(range(waiters))
    gc.collect()
    tracemalloc.start()
    index = WaiterIndex[int]()
    for n in holders:
        index.add(item(n), n)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index
    return size / waiters


# --- in SQLite ------------------------------------------------------------------


def rows_of(path: Path, waiters: int) -> Connection:
    """The file of a store, number 1, with the rows that so many waiters have."""
    name = open_file(path, create=True)
    connection = Connection(name)
    connection.run("begin")
    paths = [(*row, n) for n in range(waiters) for row in path_rows([item(n)])]
    connection.run_many(statements.INSERT_PATH, [(1, mask, path, n) for mask, path, n in paths])
    members = [(n, n, "run", f"step-{n}", 1, n, 0) for n in range(1, waiters)]
    connection.run_many(statements.INSERT_WAITER, [(waiters, waiters, "run", "step-0", 1, 0, 0), *members])
    connection.run("commit")
    connection.close()
    return connect_writer(name, "full")


def match_in(connection: Connection) -> Match:
    """As a commit does it that changed one path of a store whose masks are known: in a transaction of the writer."""
    connection.run("begin")

    def match(path: StatePath) -> int:
        return len(connection.rows_of_many(statements.MET, [(1, *found) for found in ranges_met((path,), (0,))]))

    return match


# --- a commit -------------------------------------------------------------------

STORE = StoreKey("orders", "o-1")
PATCH = b'[["=",["owner","city"],"somewhere else"]]'


class Updates:
    """Updates of one store on which so many wait for changes of other paths."""

    def __init__(self, log: Ledger) -> None:
        self._ledger = log
        self._revision = Revision("instance-1", 0)

    async def prepare(self, waiters: int) -> None:
        """Either file has held as many waiters, since a log that has been longer syncs faster than one that grows."""
        first = self._revision
        batches = [Batch((StoreAbsent(STORE, first),), (CreateStore(STORE, first, b"{}"),))]
        steps = [StepId(f"run-{n}", "wait") for n in range(SOME)]
        for n, step in enumerate(steps):
            batches.append(Batch(writes=(RegisterWaiter(Waiter(STORE, step, first, (item(n),))),)))
        kept = Batch(writes=tuple(RemoveWaiter(STORE, step) for step in steps[:waiters]))
        gone = Batch(writes=tuple(RemoveWaiter(STORE, step) for step in steps[waiters:]))
        again = Batch(writes=tuple(batches[1 + n].writes[0] for n in range(waiters)))
        for verdict in await self._ledger.commit_all([*batches, kept, gone, again]):
            verdict.unwrap()

    async def seconds(self) -> float:
        made = Revision(self._revision.instance_id, self._revision.version + 1)
        changed = PatchStore(STORE, made, PATCH, (("owner", "city"),))
        began = time.perf_counter()
        (await self._ledger.commit(Batch((StoreAt(STORE, self._revision),), (changed,)))).unwrap()
        spent = time.perf_counter() - began
        self._revision = made
        return spent


async def pair(few: Updates, some: Updates, turn: int) -> tuple[float, float]:
    """Seconds of both, each the first in every other turn."""
    if turn % 2:
        return await few.seconds(), await some.seconds()
    ours = await some.seconds()
    return await few.seconds(), ours


async def compare_updates(place: Path, rounds: int, durability: Durability) -> Row:
    ratios: list[float] = []
    spent = 0.0
    one = ledger.layer(place / "few.db", durability) | clock.layer()
    other = ledger.layer(place / "some.db", durability) | clock.layer()
    async with build(one) as few_built, build(other) as some_built:
        few, some = (Updates(get(built.unwrap(), Ledger)) for built in (few_built, some_built))
        await few.prepare(FEW)
        await some.prepare(SOME)
        for _ in range(rounds):
            pairs = [await pair(few, some, turn) for turn in range(UPDATES_PER_ROUND)]
            floor, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratios.append(ours / floor)
            spent += ours
    return Row(f"an update beside {SOME:,}, {durability}", spent / rounds * 1e6, ratios, bound=1.1)


def main(rounds: int) -> int:
    few, many = match_by(index_of(FEW)), match_by(index_of(MANY))
    some = match_by(index_of(SOME))
    rows = [
        compare(f"index, {FEW} waiters", few, few, FEW, rounds, None),
        compare(f"index, {SOME:,}", few, some, SOME, rounds, bound=2),
        compare(f"index, {MANY:,}", few, many, MANY, rounds, bound=2),
    ]
    del some, many
    with folder() as place:
        counts = (FEW, SOME, MANY)
        connections = [rows_of(place / f"{count}.db", count) for count in counts]
        matches = [match_in(connection) for connection in connections]
        for count, match in zip(counts, matches, strict=True):
            rows.append(compare(f"SQLite, {count:,}", matches[0], match, count, rounds, None if count == FEW else 2))
        for connection in connections:
            connection.close()
        rows += [asyncio.run(compare_updates(place / name, rounds, name)) for name in ("full", "normal")]
    missed = report(f"One changed path, and its ratio to the same with {FEW} waiters ({rounds} rounds)", rows)
    size = bytes_each(MANY)
    print(f"  {size:.0f} bytes a waiter in the index of {MANY:,}   ≤ {BYTES_EACH}: {met(size)}")
    return missed or int(size > BYTES_EACH)


def met(size: float) -> str:
    return "met" if size <= BYTES_EACH else "MISSED"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="how many rounds each row is measured for")
    parser.add_argument("--check", action="store_true", help="fewer rounds; 1 is returned where a bound is missed")
    given = parser.parse_args()
    sys.exit(main(10 if given.check else given.rounds))
