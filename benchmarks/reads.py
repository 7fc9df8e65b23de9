"""What it costs to run a selector with its reads tracked, beside the same selector on the state itself.

    python benchmarks/reads.py [--rounds 20] [--check]

In each round the selector runs plain and tracked in turn, and the ratio of their times is taken, in time of this
process: neither waits for anything. Small selectors, but for one that reads in five containers, have a bound in µs, at
the median of the rounds; a scan of 100,000 elements has one for its ratio, and for the paths and the memory that it
takes. `--check` takes fewer rounds. Exits 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from floor import Row, report
from pydantic import BaseModel

from stepwell.core.draft import track_reads

ELEMENTS = 100_000
SMALL_US = 5.0
SCAN_RATIO = 7.0
SCAN_PATHS = 4
SCAN_BYTES = 1_000_000
PER_ROUND = 500


class Owner(BaseModel):
    name: str = "ann"
    city: str = "c"


class Item(BaseModel):
    id: int
    status: str = "new"
    attempts: int = 0
    tags: list[str] = []


class Order(BaseModel):
    status: str = "new"
    attempts: int = 0
    paid: bool = False
    total: int = 0
    note: str = ""
    owner: Owner = Owner()
    items: list[Item]
    by: dict[str, Item]


@dataclass(frozen=True)
class Case:
    name: str
    select: Callable[[Order], object]
    bounded: bool = True


SMALL = [
    Case("s.status", lambda s: s.status == "paid" or None),
    Case("five fields", lambda s: _fields(s) is None or None),
    Case("s.owner.city", lambda s: s.owner.city == "x" or None),
    Case("s.items[3].status", lambda s: s.items[3].status == "x" or None),
    Case('s.by["k1"].status', lambda s: s.by["k1"].status == "x" or None),
    Case("len(s.items)", lambda s: len(s.items) < 0 or None),
    Case("five reads in five containers", lambda s: _five(s) is None or None, bounded=False),
]

SCANS = [
    Case("next(i for i in items if i.status == ...)", lambda s: next((i for i in s.items if i.status == "x"), None)),
    Case("sum(1 for i in items if i.status == ...)", lambda s: sum(1 for i in s.items if i.status == "x") or None),
    Case("sum(i.attempts for i in items)", lambda s: sum(i.attempts for i in s.items) or None),
    Case("max(items, key=...)", lambda s: max(s.items, key=_attempts).id < 0 or None),
    Case("next(i for i in by.values() if ...)", lambda s: next((i for i in s.by.values() if i.status == "x"), None)),
]


def _fields(s: Order) -> object:
    return s.status, s.attempts, s.paid, s.total, s.note


def _five(s: Order) -> object:
    return s.status, s.owner.city, s.items[3].status, s.by["k1"].id, len(s.items)


def _attempts(item: Item) -> int:
    return item.attempts


def seconds(run: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - began) / times


def measured(case: Case, state: Order, rounds: int, times: int, bound: float | None) -> tuple[Row, float]:
    """A row with the ratios to the plain selector, and the µs at the median."""

    def plain() -> object:
        return case.select(state)

    def tracked() -> object:
        return track_reads(state, case.select)

    seconds(plain, times)  # warm up
    seconds(tracked, times)
    ratios: list[float] = []
    spent: list[float] = []
    for _ in range(rounds):
        one, other = seconds(plain, times), seconds(tracked, times)
        ratios.append(other / one)
        spent.append(other * 1e6)
    middle = statistics.median(spent)
    return Row(case.name, middle, ratios, bound), middle


def memory(case: Case, state: Order) -> tuple[int, int]:
    """How many paths a scan gives, and how many bytes it takes at most."""
    gc.collect()
    tracemalloc.start()
    paths = track_reads(state, case.select)[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return len(paths), peak


def main(rounds: int) -> int:
    state = Order(items=[Item(id=at) for at in range(ELEMENTS)], by={f"k{at}": Item(id=at) for at in range(ELEMENTS)})
    missed = 0
    small = [(case, *measured(case, state, rounds, PER_ROUND, None)) for case in SMALL]
    report("Small selectors, tracked, and the ratio to the selector alone", [row for _, row, _ in small])
    for case, _, us in small:
        if case.bounded and us > SMALL_US:
            missed = 1
            print(f"  {case.name}: {us:.1f} µs, and {SMALL_US:g} µs are allowed: MISSED")
    scans = [measured(case, state, rounds, 1, SCAN_RATIO)[0] for case in SCANS]
    missed |= report(f"Scans of {ELEMENTS:,} models, tracked, and the ratio to the scan alone", scans)
    for case in SCANS:
        paths, peak = memory(case, state)
        fine = paths <= SCAN_PATHS and peak <= SCAN_BYTES
        missed |= not fine
        print(f"  {case.name}: {paths} paths, {peak / 1000:.0f} KB at most: {'met' if fine else 'MISSED'}")
    return int(missed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="how many rounds each row is measured for")
    parser.add_argument("--check", action="store_true", help="few rounds, for a quick look at the bounds")
    given = parser.parse_args()
    sys.exit(main(5 if given.check else given.rounds))
