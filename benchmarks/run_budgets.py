"""The budgets of runs: how many trivial steps are done in the time of a bare commit, and what a large state adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from statistics import fmean

from budget import Budget, Pair
from floor import BareCommits, ThreadedCommits
from workflow import BARE, CONCURRENT_BOUND, SEQUENTIAL_BOUND, opened, side_by_side
from world import Order, Size, World, in_turn, order, orders, set_item, set_root, timed

from stepwell import Engine, Run, build, get, workflow
from stepwell.layers import app as apps

__all__ = ["RUN_BUDGETS", "RUN_SIZE_BUDGETS"]

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


async def sizes(change: Callable[[Order], None], world: World) -> Sequence[Pair]:
    """One run, a store of 10 MB and one of 1 KB in turn."""
    pairs: list[Pair] = []
    keys = count()

    @workflow
    async def changes(run: Run) -> None:
        for size in ("1 KB", "10 MB"):
            _ = (await run.store(orders, size).get_or_create(f"make {size}", order(size))).unwrap()

        async def update(size: Size) -> None:
            _ = (await run.store(orders, size).update(f"update {next(keys)}", change)).unwrap()

        large, small = partial(update, "10 MB"), partial(update, "1 KB")
        pairs.extend(await in_turn(lambda: timed(large), lambda: timed(small), pairs=11, each=20))

    async with build(apps.layer(world.file(), workflows=[changes])) as built:
        started = await get(built.unwrap(), Engine).start(changes)
        _ = (await started.unwrap().result()).unwrap()
    return pairs


COMMITS = "bare commits/s, thread"

RUN_BUDGETS = (
    Budget("runs-one", "steps/s, one run", COMMITS, SEQUENTIAL_BOUND, partial(steps, 1), at_least=True),
    Budget("runs-100", "steps/s, 100 runs", COMMITS, CONCURRENT_BOUND, partial(steps, 100), at_least=True),
)

RUN_SIZE_BUDGETS = (
    Budget(
        "run-size-root", "update in a run, field of a 10 MB root", "the same of 1 KB", 1.3, partial(sizes, set_root)
    ),
    Budget("run-size-item", "update in a run, items[3] of 10 MB", "the same of 1 KB", 1.3, partial(sizes, set_item)),
)
