"""A budget: what something may cost beside its floor, and how that is judged.

A measure gives pairs, each of them what was measured and its floor, taken in turn in one run: the machine is not the
same from one minute to the next, the ratio nearly is. A budget is met if the median of the ratios meets its bound. What
has no floor, such as a number of bytes, is measured beside 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

__all__ = ["LEAST_PAIRS", "Budget", "Pair", "Summary", "summarise", "table"]

_World = TypeVar("_World")

LEAST_PAIRS = 5
"""Fewer say nothing of how they spread."""


class Pair(NamedTuple):
    """What was measured, and what it is measured by, in one unit."""

    measured: float
    floor: float = 1.0

    @property
    def ratio(self) -> float:
        return self.measured / self.floor


@dataclass(frozen=True)
class Budget(Generic[_World]):
    """`bound` is for the median of the ratios: the most that is allowed, or the least if `at_least`.

    None asks for nothing: the figure is only shown. `floor` says what stands beside it, `unit` what the ratio counts:
    "x" for times the floor.
    """

    name: str
    what: str
    floor: str
    bound: float | None
    measure: Callable[[_World], Awaitable[Sequence[Pair]]]
    unit: str = "x"
    at_least: bool = False

    def is_met(self, ratio: float) -> bool:
        if self.bound is None:
            return True
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def verdict(self, met: bool) -> str:
        """What is printed for it."""
        return "shown" if self.bound is None else "ok" if met else "MISSED"

    @property
    def bound_text(self) -> str:
        return "-" if self.bound is None else f"{'≥' if self.at_least else '≤'} {self.bound:,g} {self.unit}"


class Summary(NamedTuple):
    """What one run of a measure gave: the median of the ratios and their quartiles, and of how many.

    `measured` and `floor` are medians by themselves, as the pairs have them, mostly in seconds.
    """

    median: float
    low: float
    high: float
    measured: float
    floor: float
    pairs: int
    met: bool


def summarise(budget: Budget[_World], pairs: Sequence[Pair]) -> Summary:
    """A ValueError if there are too few pairs."""
    if len(pairs) < LEAST_PAIRS:
        raise ValueError(f"{budget.name}: {len(pairs)} pairs, and a median needs {LEAST_PAIRS}")
    low, median, high = statistics.quantiles([pair.ratio for pair in pairs], n=4, method="inclusive")
    measured = statistics.median(pair.measured for pair in pairs)
    floor = statistics.median(pair.floor for pair in pairs)
    return Summary(median, low, high, measured, floor, len(pairs), budget.is_met(median))


def worst(budget: Budget[_World], runs: Sequence[Summary]) -> Summary:
    """The run that is furthest from meeting the bound, or met it by least."""
    return (min if budget.at_least else max)(runs, key=lambda run: run.median)


def table(results: Sequence[tuple[Budget[_World], Sequence[Summary]]]) -> str:
    """A line for each budget: its worst run, and the medians of all of them."""
    wide = max(len(budget.what) for budget, _ in results)
    deep = max(len(budget.floor) for budget, _ in results)
    titles = f"{'median':>9}  {'quartiles':>17}  {'bound':>16}  {'':<6}  medians of all runs"
    lines = [f"{'what':<{wide}}  {'floor':<{deep}}  {titles}"]
    for budget, runs in results:
        run = worst(budget, runs)
        verdict = budget.verdict(all(each.met for each in runs))
        medians = "  ".join(number(each.median) for each in runs)
        quartiles = f"{number(run.low)} to {number(run.high)}"
        lines.append(
            f"{budget.what:<{wide}}  {budget.floor:<{deep}}  {number(run.median):>9}  {quartiles:>17}"
            f"  {budget.bound_text:>16}  {verdict:<6}  {medians}"
        )
    return "\n".join(lines)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.2f}"
