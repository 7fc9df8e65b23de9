"""Whether what a long run takes stays level: the second half of it against the first, after a warm-up.

Nothing here grows with the run: latencies are counted in buckets, so that the one who looks is not what is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log
from statistics import fmean
from typing import Final, NamedTuple

__all__ = ["LATE_BOUND", "SIZE_BOUND", "Half", "Latencies", "Level", "Sizes", "levels"]

SIZE_BOUND: Final = 1.15
"""How many times the mean of the first half that of the second may be, of a file and of memory."""

LATE_BOUND: Final = 1.5
"""The same of the 99th percentile of what an operation takes, beyond what the disk itself became slower by."""

STEP: Final = 1.02
BUCKETS: Final = 1_200
"""From a microsecond to six hours, each bucket 2 % wider than the one before."""


class Latencies:
    """How often an operation took how long, to 2 %."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self.count = 0

    def add(self, seconds: float) -> None:
        bucket = ceil(log(max(seconds * 1e6, 1.0)) / log(STEP))
        self._counts[min(bucket, BUCKETS - 1)] += 1
        self.count += 1

    def percentile_ms(self, share: float) -> float:
        """What that share took at most; 0 if there was none."""
        wanted = share * self.count
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return float(STEP**bucket) / 1000
        return 0.0


class Sizes(NamedTuple):
    """Bytes of the file, of its write-ahead log, and that are resident in memory."""

    file: int
    log: int
    memory: int


@dataclass
class Half:
    """What was seen in one half; `bare` are commits of one row to another file on the same disk."""

    sizes: list[Sizes] = field(default_factory=list[Sizes])
    updates: Latencies = field(default_factory=Latencies)
    runs: Latencies = field(default_factory=Latencies)
    bare: Latencies = field(default_factory=Latencies)


class Level(NamedTuple):
    """One figure in both halves, and how many times the first the second may be."""

    what: str
    first: float
    second: float
    unit: str
    bound: float

    @property
    def ratio(self) -> float:
        return self.second / self.first

    @property
    def met(self) -> bool:
        """A half in which nothing was seen meets nothing."""
        return self.first > 0 and self.second > 0 and self.ratio <= self.bound

    def __str__(self) -> str:
        ratio = f"{self.ratio:.2f} x" if self.first > 0 else "-"
        verdict = "ok" if self.met else "MISSED"
        both = f"{self.first:>10.2f} {self.second:>10.2f}"
        return f"{self.what:<22}{both} {self.unit}   {ratio} ≤ {self.bound:.2f}: {verdict}"


def levels(first: Half, second: Half) -> list[Level]:
    """What must be level. A latency may grow by as much more as bare commits became slower, and no less than else."""
    disk = slower(first.bare, second.bare)
    found = [
        Level(what, mean(at, first.sizes), mean(at, second.sizes), "MB", SIZE_BOUND)
        for at, what in enumerate(("file", "write-ahead log", "resident memory"))
    ]
    for what, one, other in (("update, p99", first.updates, second.updates), ("run, p99", first.runs, second.runs)):
        found.append(Level(what, one.percentile_ms(0.99), other.percentile_ms(0.99), "ms", LATE_BOUND * disk))
    return found


def slower(first: Latencies, second: Latencies) -> float:
    if not first.count or not second.count:
        return 1.0
    return max(1.0, second.percentile_ms(0.99) / first.percentile_ms(0.99))


def mean(at: int, sizes: Sequence[Sizes]) -> float:
    """In MB; 0 if there are none."""
    return fmean(each[at] for each in sizes) / 1e6 if sizes else 0.0
