"""What the ledger's group commit costs beside a bare commit of one row.

    python benchmarks/ledger.py [--rounds 30] [--durability full]

A commit here is one change of a store with its receipt. In each round 40 bare commits and 40 of one caller take turns;
the floor is a commit of one row through a writer thread, or on the event loop where ours is "inline". For 100 callers,
each on a store of its own, it is a bare commit of the rows of 100 changes, and it stands before and after. Groups are
made on a writer thread, inline on the event loop, or on either as the disk is ("auto").
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from floor import BareCommits, BareGroups, Row, ThreadedCommits, folder, report

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

THREAD_BOUND, INLINE_BOUND, GROUP_BOUND = 1.6, 1.2, 2.5
"""Of one caller through the thread, of one on the event loop, and of many."""

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


async def one_round(commit: Callable[[], Awaitable[float]], caller: Caller) -> tuple[float, float]:
    """Seconds of a bare commit and of ours, in turn."""
    floor = ours = 0.0
    for _ in range(PER_ROUND):
        floor += await commit()
        began = time.perf_counter()
        await caller.update()
        ours += time.perf_counter() - began
    return floor / PER_ROUND, ours / PER_ROUND


async def round_of_many(bare: BareGroups, callers: list[Caller]) -> tuple[float, float]:
    """Seconds of a change in a bare commit of as many as there are callers, and of one of ours, all callers at once."""
    sids = range(len(callers))
    floor = sum(bare.commit(sids) for _ in range(5))
    began = time.perf_counter()
    await asyncio.gather(*(caller.update_often(10) for caller in callers))
    ours = (time.perf_counter() - began) / (10 * len(callers))
    floor += sum(bare.commit(sids) for _ in range(5))
    return floor / 10 / len(callers), ours


async def measure(place: Path, durability: Durability, mode: CommitMode, count: int, rounds: int) -> Row:
    bare = BareCommits(place / "bare.db", durability)
    groups = BareGroups(place / "groups.db", count, PATCH, durability)
    threaded = ThreadedCommits(bare)

    async def on_loop() -> float:
        return bare.commit()

    ratios: list[float] = []
    spent = 0.0
    async with build(ledger.layer(place / "app.db", durability, commit=mode) | clock.layer()) as built:
        log = get(built.unwrap(), Ledger)
        callers = [Caller(log, StoreKey("orders", f"o-{n}")) for n in range(count)]
        await asyncio.gather(*(caller.create() for caller in callers))
        await asyncio.gather(*(caller.update_often(5) for caller in callers))  # warm up
        for _ in range(rounds):
            if count == 1:
                floor, ours = await one_round(on_loop if mode == "inline" else threaded.commit, callers[0])
            else:
                floor, ours = await round_of_many(groups, callers)
            ratios.append(ours / floor)
            spent += ours
    threaded.close()
    groups.close()
    bare.close()
    bound = GROUP_BOUND if count > 1 else INLINE_BOUND if mode == "inline" else THREAD_BOUND
    return Row(f"{count} caller{'s' * (count > 1)}, {mode}", spent / rounds * 1e6, ratios, bound)


async def main(rounds: int, durability: Durability) -> int:
    modes: tuple[CommitMode, ...] = ("thread", "inline", "auto")
    rows: list[Row] = []
    for count in (1, MANY):
        for mode in modes:
            with folder() as place:
                rows.append(await measure(place, durability, mode, count, rounds))
    return report(f"A commit of the ledger, and its ratio to the bare rows ({rounds} rounds, {durability})", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="how many rounds each row is measured for")
    parser.add_argument("--durability", choices=["full", "normal"], default="full")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.rounds, given.durability)))
