"""Real traffic for a long time, while what is no longer wanted is collected: does it stay level?

    python benchmarks/soak.py [--minutes 10] [--every 60]

One application, at a steady pace: a hot store, a thousand stores at random, one of 1 MB, runs with steps, a write, a
signal and a wait on a store, and reads. Every few seconds old revisions and ended runs are collected. After a fifth of
the time, the warm-up, two halves are compared: the sizes of the file, of its log and of this process must not be more
than 1.15 times as large in the second, and the 99th percentiles no more than 1.5 times (`flat.py`). Prints a line a
minute. Exits 1 if something grew. A run shorter than five minutes is not judged: a revision stays for a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flat import Half, Latencies, Sizes, levels
from floor import BareCommits, folder
from world import Item, Order, orders

from stepwell import Engine, Run, Store, Success, build, get, workflow
from stepwell.layers import app as apps
from stepwell.services.revisions import Retention, Revisions

MINUTES: Final = 10.0
JUDGED_S: Final = 300.0
WARM_UP: Final = 0.2
"""The share of the time that is not looked at; of ten minutes, twice what a revision stays at least."""

RANDOM_STORES: Final = 1_000
LARGE_ITEMS: Final = 8_700
"""About 1 MB."""

COLLECT_S: Final = 5.0
POLICY: Final = Retention(keep_revisions=20, keep_ended_runs_ms=0)


# --- runs -----------------------------------------------------------------------------


def trivial(number: int) -> int:
    return number + 1


def set_field(state: Order) -> None:
    state.attempts += 1


@workflow
async def flow(run: Run, id: str, number: int) -> int:
    """Steps, a write, a signal, and a wait for a value that the hot store has, or will have soon."""
    total = await run.step("one", trivial, number)
    _ = (await run.store(orders, id).update("write", set_field)).unwrap()
    total += (await run.signal("go", int)).unwrap()
    _ = (await run.store(orders, "hot").when("wait", lambda state: state.attempts >= number or None)).unwrap()
    return await run.step("two", trivial, total)


# --- traffic ----------------------------------------------------------------------------

RUNS_END_S = 2.0
"""How long before the end the last run begins: it waits for updates of others, which end then."""


@dataclass
class Traffic:
    """What is done, and what it took; `half` is where it is counted, None while it warms up."""

    store: Store
    engine: Engine
    revisions: Revisions
    rng: random.Random
    until: float
    half: Half | None = None
    done: Counter[str] = field(default_factory=Counter[str])

    def any_id(self) -> str:
        return f"o-{self.rng.randrange(RANDOM_STORES)}"

    async def paced(
        self, name: str, each_s: float, work: Callable[[], Awaitable[object]], late: str = "", early_s: float = 0.0
    ) -> None:
        """Do it every so many seconds, and no sooner after one that took long, until `early_s` before the end.

        `late` says what it is counted as.
        """
        await asyncio.sleep(self.rng.random() * each_s)
        while (began := time.perf_counter()) < self.until - early_s:
            _ = await work()
            taken = time.perf_counter() - began
            self.done[name] += 1
            if self.half is not None and late:
                counted: Latencies = {"update": self.half.updates, "run": self.half.runs, "bare": self.half.bare}[late]
                counted.add(taken)
            await asyncio.sleep(max(0.0, each_s - taken))

    async def hot(self) -> None:
        _ = (await self.store.update(orders, "hot", set_field)).unwrap()

    async def spread(self) -> None:
        _ = (await self.store.update(orders, self.any_id(), set_field)).unwrap()

    async def large(self) -> None:
        at = self.rng.randrange(LARGE_ITEMS)

        def change(state: Order) -> None:
            state.items[at].count += 1

        _ = (await self.store.update(orders, "large", change)).unwrap()

    async def read(self) -> None:
        _ = (await self.store.get(orders, self.any_id())).unwrap().state

    async def run(self) -> None:
        hot = (await self.store.get(orders, "hot")).unwrap().state.attempts
        handle = (await self.engine.start(flow, self.any_id(), hot + 5)).unwrap()
        _ = (await handle.signal("go", 1)).unwrap()
        result = await handle.result(timeout=60.0)
        assert result == Success(hot + 8), f"a run that began at {hot} ended with {result}"

    async def collect(self) -> None:
        collected = (await self.revisions.collect(POLICY)).unwrap()
        self.done["revisions removed"] += collected.revisions
        self.done["runs removed"] += collected.runs


def order(items: int) -> Order:
    return Order(items=[Item(sku=f"sku-{at:06d}", title="t" * 42, count=at) for at in range(items)])


async def prepare(store: Store) -> None:
    for id, items in (("hot", 8), ("large", LARGE_ITEMS), *((f"o-{at}", 8) for at in range(RANDOM_STORES))):
        _ = (await store.get_or_create(orders, id, order(items))).unwrap()


# --- what is seen -------------------------------------------------------------------------


def sizes(path: Path) -> Sizes:
    log = Path(f"{path}-wal")
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sizes(path.stat().st_size, log.stat().st_size if log.exists() else 0, pages * os.sysconf("SC_PAGE_SIZE"))


def line(seconds: float, seen: Sizes, half: Half, done: Counter[str]) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    late = "  ".join(
        f"{name} {latencies.percentile_ms(0.99):.1f}"
        for name, latencies in (("update", half.updates), ("run", half.runs), ("bare commit", half.bare))
        if latencies.count
    )
    return (
        f"{seconds:6.0f} s   MB: file {seen.file / 1e6:.1f}  log {seen.log / 1e6:.1f}  memory {seen.memory / 1e6:.1f}"
        f"   p99 in ms: {late or 'warming up'}   {counts}"
    )


async def watch(path: Path, traffic: Traffic, began: float, every_s: float, halves: tuple[Half, Half]) -> None:
    """Look once a second, and say what is seen."""
    whole = traffic.until - began
    told = began
    while (now := time.perf_counter()) < traffic.until:
        share = (now - began) / whole
        traffic.half = None if share < WARM_UP else halves[share >= (1 + WARM_UP) / 2]
        seen = sizes(path)
        if traffic.half is not None:
            traffic.half.sizes.append(seen)
        if now - told >= every_s:
            told = now
            print(line(now - began, seen, traffic.half or Half(), traffic.done), flush=True)
        await asyncio.sleep(min(1.0, max(0.0, traffic.until - now)))


async def soak(path: Path, seconds: float, every_s: float) -> tuple[Half, Half, Counter[str]]:
    """Both halves, and how often what was done."""
    halves = Half(), Half()
    bare = BareCommits(path / "bare.db")
    database = path / "app.db"
    async with build(apps.layer(database, workflows=[flow])) as built:
        env = built.unwrap()
        store = get(env, Store)
        await prepare(store)
        began = time.perf_counter()
        traffic = Traffic(store, get(env, Engine), get(env, Revisions), random.Random(7), began + seconds)

        async def commit() -> None:
            _ = bare.commit()

        async with asyncio.TaskGroup() as group:
            _ = group.create_task(watch(database, traffic, began, every_s, halves))
            _ = group.create_task(traffic.paced("collections", COLLECT_S, traffic.collect))
            _ = group.create_task(traffic.paced("bare", 0.05, commit, "bare"))
            _ = group.create_task(traffic.paced("large", 0.2, traffic.large, "update"))
            _ = group.create_task(traffic.paced("reads", 0.1, traffic.read))
            for _number in range(8):
                _ = group.create_task(traffic.paced("hot", 0.05, traffic.hot, "update"))
                _ = group.create_task(traffic.paced("random", 0.05, traffic.spread, "update"))
            for _number in range(4):
                _ = group.create_task(traffic.paced("runs", 0.4, traffic.run, "run", RUNS_END_S))
        print(line(seconds, sizes(database), halves[1], traffic.done), flush=True)
    bare.close()
    return *halves, traffic.done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long, all in all")
    parser.add_argument("--every", type=float, default=60.0, help="how many seconds from one line to the next")
    given = parser.parse_args()
    seconds = given.minutes * 60
    with folder() as path:
        first, second, done = asyncio.run(soak(path, seconds, given.every))
    print(f"\n{'after the warm-up':<22}{'1st half':>10} {'2nd half':>10}")
    found = levels(first, second)
    for level in found:
        print(level)
    if seconds < JUDGED_S:
        print(f"not judged: it takes {JUDGED_S / 60:.0f} minutes at least")
        return 0
    left = [what for what in ("revisions removed", "runs removed") if not done[what]]
    if left:
        print(f"nothing was collected of: {', '.join(left)}")
    return 0 if not left and all(level.met for level in found) else 1


if __name__ == "__main__":
    sys.exit(main())
