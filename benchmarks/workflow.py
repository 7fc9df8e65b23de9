"""Runs of ten trivial steps, one after another and many at a time, against bare one-row commits.

    python benchmarks/workflow.py [ROUNDS]

A step is one row in one commit, and a run two commits more, as it starts and as it ends; runs side by side share their
commits. The floor is a bare commit of one row through a writer thread, at full durability, on the disk that this is
started on; what is reported is how many steps are done in the time of one, and beside it the same for a bare commit
that is made on the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from floor import BareCommits, Row, ThreadedCommits, folder, report

from stepwell import Engine, Run, build, get, workflow
from stepwell.layers import app as apps

ROUNDS = 10
STEPS = 10
BARE = 40
"""Bare commits a round."""

SEQUENTIAL_BOUND = 0.7
CONCURRENT_BOUND = 2.5
"""Steps in the time of one bare commit, at least."""


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


async def side_by_side(engine: Engine, runs: int, *, is_async: bool) -> float:
    """The seconds that one step takes; of one run at a time, four follow one another."""
    times = 4 if runs == 1 else 1
    began = time.perf_counter()
    for _ in range(times):
        _ = await asyncio.gather(*(run_once(engine, is_async=is_async) for _ in range(runs)))
    return (time.perf_counter() - began) / (times * runs * STEPS)


@dataclass(frozen=True)
class Case:
    """`patient`: the garbage collector waits for `PATIENT` new objects, which is the application's own decision."""

    name: str
    runs: int
    bound: float | None = None
    is_async: bool = True
    patient: bool = False


PATIENT = 50_000

CASES = (
    Case("sequential, async function", 1, SEQUENTIAL_BOUND),
    Case("sequential, function in a thread", 1, is_async=False),
    Case("100 runs at once, async function", 100, CONCURRENT_BOUND),
    Case("100 runs at once, the collector being patient", 100, CONCURRENT_BOUND, patient=True),
    Case("100 runs at once, function in a thread", 100, is_async=False),
    Case("1,000 runs at once, async function", 1_000, CONCURRENT_BOUND),
    Case("1,000 runs at once, the collector being patient", 1_000, CONCURRENT_BOUND, patient=True),
)


async def measured(engine: Engine, case: Case) -> float:
    """The seconds that one step takes."""
    usual = gc.get_threshold()
    if case.patient:
        gc.set_threshold(PATIENT, *usual[1:])
    try:
        return await side_by_side(engine, case.runs, is_async=case.is_async)
    finally:
        gc.set_threshold(*usual)


async def measure(path: Path, rounds: int) -> tuple[list[Row], dict[str, float]]:
    """The rows, and by their names how many steps are done in the time of a bare commit on the event loop."""
    bare = BareCommits(path / "bare.db")
    threaded_bare = ThreadedCommits(bare)
    taken: dict[str, list[float]] = {case.name: [] for case in CASES}
    ratios: dict[str, list[float]] = {case.name: [] for case in CASES}
    on_loop: dict[str, list[float]] = {case.name: [] for case in CASES}

    async def floors() -> tuple[list[float], list[float]]:
        inline = [bare.commit() for _ in range(BARE // 2)]
        return [await threaded_bare.commit() for _ in range(BARE // 2)], inline

    async with opened(path / "app.db") as engine:
        for round_ in range(rounds + 1):
            for case in CASES:
                before = await floors()
                step = await measured(engine, case)
                after = await floors()
                if round_:  # the first one warms up
                    taken[case.name].append(step)
                    ratios[case.name].append(fmean(before[0] + after[0]) / step)
                    on_loop[case.name].append(fmean(before[1] + after[1]) / step)
    threaded_bare.close()
    bare.close()
    rows = [
        Row(case.name, fmean(taken[case.name]) * 1e6, ratios[case.name], case.bound, at_least=True) for case in CASES
    ]
    return rows, {name: median(each) for name, each in on_loop.items()}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with folder() as path:
        rows, on_loop = asyncio.run(measure(path, rounds))
    status = report(f"one of {STEPS} trivial steps, and how many to a bare commit ({rounds} rounds)", rows)
    for row in rows:
        beside = f"{on_loop[row.name]:.2f} to a bare commit on the event loop"
        print(f"  {row.name:<52}{1e6 / row.us:>9.0f} steps/s   {beside}")
    return status


if __name__ == "__main__":
    sys.exit(main())
