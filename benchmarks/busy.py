"""Updates beside an event loop that is always busy: how many a second, and how long the slowest ones take.

    python benchmarks/busy.py [--rounds 5] [--seconds 1]

A task keeps the loop busy in slices of 2 ms; 100 callers update one store of 1 KB, each one call after the other. The
ways to commit take turns: on a thread, as it is and with a switch interval of 0.5 ms (the application's own decision,
`sys.setswitchinterval`), on the loop, and on either as the disk is ("auto").
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from floor import BareCommits, folder
from update import ORDER, orders, set_order

from stepwell import Store, build, get
from stepwell.layers import clock, ids, ledger, store, wake_bus
from stepwell.layers.sql.committer import CommitMode

CALLERS = 100
SLICE_S = 0.002
SWITCH_S = 0.000_5

UPDATES_BOUND = 8_000.0
P99_BOUND_MS = 50.0
"""Of "auto", where a bare commit takes no more than 250 µs."""

WAYS: dict[str, tuple[CommitMode, float | None]] = {
    "thread": ("thread", None),
    "thread, switching every 0.5 ms": ("thread", SWITCH_S),
    "inline": ("inline", None),
    "auto": ("auto", None),
}


@asynccontextmanager
async def opened(path: Path, mode: CommitMode) -> AsyncGenerator[Store]:
    app = ledger.layer(path, commit=mode) | store.layer() | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(app) as built:
        yield get(built.unwrap(), Store)


async def keep_busy() -> None:
    while True:
        until = time.perf_counter() + SLICE_S
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


async def beside_it(stores: Store, seconds: float) -> list[float]:
    """How long each update took that ended within so many seconds."""
    spent: list[float] = []
    end = time.perf_counter() + seconds

    async def caller() -> None:
        while (began := time.perf_counter()) < end:
            _ = (await stores.update(orders, "hot", set_order)).unwrap()
            spent.append(time.perf_counter() - began)

    busy = asyncio.create_task(keep_busy())
    _ = await asyncio.gather(*(caller() for _ in range(CALLERS)))
    _ = busy.cancel()
    return spent


async def measure(path: Path, mode: CommitMode, switch_s: float | None, seconds: float) -> tuple[float, float]:
    """Updates a second, and the 99th percentile in ms."""
    interval_s = sys.getswitchinterval()
    async with opened(path, mode) as stores:
        _ = (await stores.get_or_create(orders, "hot", ORDER)).unwrap()
        _ = await asyncio.gather(*(stores.update(orders, "hot", set_order) for _ in range(CALLERS)))
        if switch_s is not None:
            sys.setswitchinterval(switch_s)
        try:
            spent = await beside_it(stores, seconds)
        finally:
            sys.setswitchinterval(interval_s)
    return len(spent) / seconds, statistics.quantiles(spent, n=100)[98] * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    bare: list[float] = []
    with folder() as place:
        commits = BareCommits(place / "bare.db")
        for round_ in range(given.rounds):
            for number, (name, (mode, switch_s)) in enumerate(WAYS.items()):
                bare += [commits.commit() for _ in range(20)]
                path = place / f"{round_}-{number}.db"
                found[name].append(asyncio.run(measure(path, mode, switch_s, given.seconds)))
        commits.close()
    floor_us = statistics.median(bare) * 1e6
    print(f"\n{CALLERS} callers on one store, beside a loop that is always busy ({given.rounds} rounds)")
    print(f"  a bare commit takes {floor_us:.0f} µs")
    for name, rounds in found.items():
        rates, slowest = zip(*rounds, strict=True)
        rate, p99 = statistics.median(rates), statistics.median(slowest)
        print(
            f"  {name:<34}{rate:>8,.0f} updates/s ({min(rates):,.0f} to {max(rates):,.0f})   p99 {p99:.1f} ms"
            f"   {rate * floor_us / 1e6:.2f} to a bare commit"
        )
    rate, p99 = (statistics.median(each) for each in zip(*found["auto"], strict=True))
    met = rate >= UPDATES_BOUND and p99 <= P99_BOUND_MS
    print(f"  auto: ≥ {UPDATES_BOUND:,.0f} updates/s and p99 ≤ {P99_BOUND_MS:g} ms: {'met' if met else 'MISSED'}")
    return not met


if __name__ == "__main__":
    sys.exit(main())
