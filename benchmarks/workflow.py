"""Runs of ten trivial steps, one after another and a hundred at a time, against bare one-row commits.

    python benchmarks/workflow.py [ROUNDS]

A step is one row in one commit, so one caller pays about one bare commit a step; runs side by side share their commits.
The file is on the disk that this is started on, at full durability.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean

from floor import BareCommits, Row, folder, report

from stepwell import Engine, Run, build, get, workflow
from stepwell.layers import app as apps

ROUNDS = 15
STEPS = 10
BARE = 40
"""Bare commits a round."""

CONCURRENT = 100

SEQUENTIAL_BOUND = 3.0
"""A run is two commits more than its steps: one as it starts, one as it ends."""

CONCURRENT_BOUND = 1.0


def one() -> int:
    return 1


async def one_async() -> int:
    return 1


@workflow
async def threaded(run: Run) -> int:
    return sum([await run.step(f"step {n}", one) for n in range(STEPS)])


@workflow
async def on_loop(run: Run) -> int:
    return sum([await run.step(f"step {n}", one_async) for n in range(STEPS)])


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Engine]:
    async with build(apps.layer(path, workflows=[threaded, on_loop])) as built:
        yield get(built.unwrap(), Engine)


async def run_once(engine: Engine, *, is_async: bool) -> None:
    started = await engine.start(on_loop if is_async else threaded)
    assert (await started.unwrap().result()).unwrap() == STEPS


async def sequential(engine: Engine, *, is_async: bool) -> float:
    """The seconds that one step takes where one run follows the other."""
    began = time.perf_counter()
    for _ in range(4):
        await run_once(engine, is_async=is_async)
    return (time.perf_counter() - began) / (4 * STEPS)


async def concurrent(engine: Engine, *, is_async: bool) -> float:
    """The seconds that one step takes where a hundred runs are side by side."""
    began = time.perf_counter()
    _ = await asyncio.gather(*(run_once(engine, is_async=is_async) for _ in range(CONCURRENT)))
    return (time.perf_counter() - began) / (CONCURRENT * STEPS)


async def measure(path: Path, rounds: int) -> list[Row]:
    names = {
        "step, sequential, async function": (sequential, True, SEQUENTIAL_BOUND),
        "step, sequential, function in a thread": (sequential, False, None),
        "step, 100 runs at once, async function": (concurrent, True, CONCURRENT_BOUND),
        "step, 100 runs at once, function in a thread": (concurrent, False, None),
    }
    bare = BareCommits(path / "bare.db")
    taken: dict[str, list[float]] = {name: [] for name in names}
    ratios: dict[str, list[float]] = {name: [] for name in names}
    async with opened(path / "app.db") as engine:
        for round_ in range(rounds + 1):
            for name, (case, is_async, _) in names.items():
                before = [bare.commit() for _ in range(BARE // 2)]
                step = await case(engine, is_async=is_async)
                floor = fmean(before + [bare.commit() for _ in range(BARE // 2)])
                if round_:  # the first one warms up
                    taken[name].append(step)
                    ratios[name].append(step / floor)
    bare.close()
    return [Row(name, fmean(taken[name]) * 1e6, ratios[name], bound) for name, (_, _, bound) in names.items()]


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with folder() as path:
        rows = asyncio.run(measure(path, rounds))
    status = report(f"one of {STEPS} trivial steps, against a bare commit ({rounds} rounds)", rows)
    for row in rows:
        print(f"  {row.name:<52}{1e6 / row.us:>9.0f} steps/s")
    return status


if __name__ == "__main__":
    sys.exit(main())
