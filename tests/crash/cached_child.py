"""A process that drives a run with cached steps, and kills itself where a step stands; the tests run it as a script.

    python cached_child.py FOLDER RUN POINT OCCURRENCE

It writes the points that it passes to FOLDER/points, and what effects it is told to send to FOLDER/sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from stepwell import Boundary, Effect, Engine, Run, Workspace, build, get, workflow
from stepwell.core.environment import Environment, Platform
from stepwell.layers import (
    artifacts,
    clock,
    engine,
    ids,
    journal,
    ledger,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)
from stepwell.layers.driver.caching import CachePoint

ENVIRONMENT = Environment("3", "test", Platform("test", "test"), "none")
LATE_S = 20
LARGE = "large\n" * 200_000
"""Beyond what stands in a row, so that it is an artifact."""


def add_line(workspace: Workspace) -> int:
    """A step that writes what it reads: done twice, there would be two lines more."""
    lines = [*workspace.read_text("log.txt").splitlines(), "one more"]
    workspace.write_text("log.txt", "".join(f"{line}\n" for line in lines))
    workspace.queue_effect(Effect("lines", len(lines)))
    return len(lines)


def build_large(workspace: Workspace) -> str:
    text = workspace.read_text("src/a.txt")
    workspace.write_text("out/large", LARGE)
    workspace.write_text("out/small", text)
    workspace.remove("old.txt")
    return text


@workflow
async def steps(run: Run) -> list[object]:
    lines = await run.cached_step("add", add_line, boundary=Boundary(reads=("log.txt",), writes=("log.txt",)))
    boundary = Boundary(reads=("src/*",), writes=("out/**",), removes=("old.txt",))
    return [lines, await run.cached_step("build", build_large, boundary=boundary)]


async def execute(folder: Path, run_id: str, ends_at: str, occurrence: int) -> None:
    left = occurrence

    def on_point(point: CachePoint) -> None:
        nonlocal left
        with (folder / "points").open("a") as points:
            _ = points.write(f"{point.name}\n")
        left -= point.name == ends_at
        if left == 0 and point.name == ends_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def deliver(effect: Effect) -> None:
        with (folder / "sent").open("a") as sent:
            _ = sent.write(f"{effect.key} {effect.payload}\n")

    host = ledger.layer(folder / "app.db") | clock.layer() | ids.layer() | wake_bus.layer()
    files = artifacts.layer(folder / "kept") | step_sandbox.layer(folder / "work", durability="process")
    kept = store.layer() | waiters.layer() | journal.layer() | step_cache.layer()
    driven = engine.layer([steps], environment=ENVIRONMENT, effects=deliver, on_cache_point=on_point)
    async with build(files | host | kept | driven) as built:
        handle = (await get(built.unwrap(), Engine).start(steps, id=run_id)).unwrap()
        print(json.dumps((await handle.result(timeout=LATE_S)).unwrap()))


if __name__ == "__main__":
    asyncio.run(execute(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
