"""The budgets of cached steps: what a hit costs beside a bare commit.

    python benchmarks/hits.py

A hit measures what the step reads, derives its key, finds the row, brings its files back, and is durable in one batch
with what the journal is told. Keys are new in each round; the floor is a commit of one row through a writer thread,
made before and after.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from budget import Budget, Pair, summarise, table
from floor import BareCommits, ThreadedCommits, folder
from world import World

from stepwell import Boundary, Engine, Run, Workspace, build, get, workflow
from stepwell.layers import app as apps

__all__ = ["HIT_BUDGETS"]

PAIRS: Final = 9
STEPS: Final = 200

NOTHING: Final = Boundary()


def double(workspace: Workspace, number: int) -> int:
    return 2 * number


def copy(workspace: Workspace, name: str) -> int:
    data = workspace.read_bytes(f"in/{name}")
    workspace.write_bytes(f"out/{name}", data)
    return len(data)


async def hits(files: bool, world: World) -> Sequence[Pair]:
    took: list[float] = []

    @workflow
    async def trivial(run: Run) -> None:
        began = time.perf_counter()
        for number in range(STEPS):
            if files:
                boundary = Boundary(reads=(f"in/{number}",), writes=(f"out/{number}",))
                _ = await run.cached_step(f"copy {number}", copy, f"{number}", boundary=boundary)
            else:
                _ = await run.cached_step(f"double {number}", double, number, boundary=NOTHING)
        took.append((time.perf_counter() - began) / STEPS)

    database = world.file()
    workspace = _filled(database.with_suffix(".workspace"))
    bare = BareCommits(world.file())
    threaded = ThreadedCommits(bare)

    async def floor() -> list[float]:
        return [await threaded.commit() for _ in range(STEPS)]

    pairs: list[Pair] = []
    async with build(apps.layer(database, workflows=[trivial], workspace=workspace)) as built:
        engine = get(built.unwrap(), Engine)
        for at in range(PAIRS + 1):
            before = await floor()
            _ = (await (await engine.start(trivial)).unwrap().result()).unwrap()
            commit = fmean([*before, *await floor()])
            if at:  # the first one executes them
                pairs.append(Pair(took[-1], commit))
    threaded.close()
    bare.close()
    return pairs


def _filled(workspace: Path) -> Path:
    (workspace / "in").mkdir(parents=True)
    for number in range(STEPS):
        (workspace / "in" / f"{number}").write_bytes(b"%06d" % number * 100)
    return workspace


COMMIT: Final = "bare commit, thread"

HIT_BUDGETS: Final[tuple[Budget[World], ...]] = (
    Budget("hit", "a hit of a trivial step without files", COMMIT, 2.0, partial(hits, False)),
    Budget("hit-files", "a hit that reads a file and has one made", COMMIT, None, partial(hits, True)),
)


async def measured() -> int:
    with folder() as path:
        world = World(path)
        results = [(budget, [summarise(budget, await budget.measure(world))]) for budget in HIT_BUDGETS]
    print(table(results))
    return 0 if all(run.met for _, runs in results for run in runs) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(measured()))
