"""What the ledger's group commit costs beside a bare commit of one row.

    python benchmarks/ledger.py [--rounds 30] [--durability full]

A commit here is one change of a store with its receipt. In each round 40 bare commits and 40 of one caller take turns;
for 100 callers the bare ones stand before and after. Groups are made on a writer thread, or inline on the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from floor import BareCommits, Row, folder, report

from stepwell.core.batch import (
    Batch,
    CreateStore,
    NoReceipt,
    PatchStore,
    Receipt,
    StoreAbsent,
    StoreAt,
    WriteReceipt,
)
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.layers import clock, ledger
from stepwell.layers.layer import build, get
from stepwell.layers.sql.committer import CommitMode
from stepwell.layers.sql.opening import Durability
from stepwell.services.ledger import Ledger

PER_ROUND = 40
MANY = 100
PATCH = b'[["set",["items",3,"attempts"],7],["set",["owner","city"],"somewhere else"]]'
FIRST = Revision("instance-1", 0)


@dataclass
class Caller:
    """Changes a store of its own, each time by another step; ids of runs are ordered by time, as `Ids` makes them."""

    ledger: Ledger
    key: StoreKey
    revision: Revision = FIRST

    async def create(self) -> None:
        create = CreateStore(self.key, FIRST, b"{}")
        (await self.ledger.commit(Batch((StoreAbsent(self.key, FIRST),), (create,)))).unwrap()

    async def update(self) -> None:
        before, made = self.revision, Revision(self.revision.instance_id, self.revision.version + 1)
        step = StepId(f"{time.time_ns():x}", f"step-{made.version}")
        batch = Batch(
            (StoreAt(self.key, before), NoReceipt(self.key, step, "update")),
            (PatchStore(self.key, made, PATCH), WriteReceipt(Receipt(self.key, step, "update", made))),
        )
        (await self.ledger.commit(batch)).unwrap()
        self.revision = made

    async def update_often(self, times: int) -> None:
        for _ in range(times):
            await self.update()


async def one_round(bare: BareCommits, caller: Caller) -> tuple[float, float]:
    """Seconds of a bare commit and of ours, in turn."""
    floor = ours = 0.0
    for _ in range(PER_ROUND):
        floor += bare.commit()
        began = time.perf_counter()
        await caller.update()
        ours += time.perf_counter() - began
    return floor / PER_ROUND, ours / PER_ROUND


async def round_of_many(bare: BareCommits, callers: list[Caller]) -> tuple[float, float]:
    """Seconds of a bare commit and of ours, all callers at once."""
    floor = sum(bare.commit() for _ in range(PER_ROUND // 2))
    began = time.perf_counter()
    await asyncio.gather(*(caller.update_often(10) for caller in callers))
    ours = (time.perf_counter() - began) / (10 * len(callers))
    floor += sum(bare.commit() for _ in range(PER_ROUND // 2))
    return floor / PER_ROUND, ours


async def measure(place: Path, durability: Durability, mode: CommitMode, count: int, rounds: int) -> Row:
    bare = BareCommits(place / "bare.db", durability)
    ratios: list[float] = []
    spent = 0.0
    async with build(ledger.layer(place / "app.db", durability, commit=mode) | clock.layer()) as built:
        log = get(built.unwrap(), Ledger)
        callers = [Caller(log, StoreKey("orders", f"o-{n}")) for n in range(count)]
        await asyncio.gather(*(caller.create() for caller in callers))
        await asyncio.gather(*(caller.update_often(5) for caller in callers))  # warm up
        for _ in range(rounds):
            floor, ours = await (one_round(bare, callers[0]) if count == 1 else round_of_many(bare, callers))
            ratios.append(ours / floor)
            spent += ours
    bare.close()
    return Row(f"{count} caller{'s' * (count > 1)}, {mode}", spent / rounds * 1e6, ratios)


async def main(rounds: int, durability: Durability) -> int:
    modes: tuple[CommitMode, ...] = ("thread", "inline")
    rows: list[Row] = []
    for count in (1, MANY):
        for mode in modes:
            with folder() as place:
                rows.append(await measure(place, durability, mode, count, rounds))
    return report(f"A commit of the ledger, and its ratio to a bare commit ({rounds} rounds, {durability})", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="how many rounds each row is measured for")
    parser.add_argument("--durability", choices=["full", "normal"], default="full")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.rounds, given.durability)))
