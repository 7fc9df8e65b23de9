"""The budgets of runs: how many trivial steps are done in the time of a bare commit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from budget import Budget, Pair
from floor import BareCommits, ThreadedCommits
from workflow import BARE, CONCURRENT_BOUND, SEQUENTIAL_BOUND, opened, side_by_side
from world import World

__all__ = ["RUN_BUDGETS"]

PAIRS = 7


async def steps(runs: int, world: World) -> Sequence[Pair]:
    """Steps a second and bare commits a second, made before and after through a writer thread."""
    bare = BareCommits(world.file())
    threaded = ThreadedCommits(bare)
    pairs: list[Pair] = []

    async def floor() -> list[float]:
        return [await threaded.commit() for _ in range(BARE)]

    async with opened(world.file()) as engine:
        for at in range(PAIRS + 1):
            before = await floor()
            step = await side_by_side(engine, runs, is_async=True)
            commit = fmean([*before, *await floor()])
            if at:  # the first one warms up
                pairs.append(Pair(1 / step, 1 / commit))
    threaded.close()
    bare.close()
    return pairs


COMMITS = "bare commits/s, thread"

RUN_BUDGETS = (
    Budget("runs-one", "steps/s, one run", COMMITS, SEQUENTIAL_BOUND, partial(steps, 1), at_least=True),
    Budget("runs-100", "steps/s, 100 runs", COMMITS, CONCURRENT_BOUND, partial(steps, 100), at_least=True),
)
