"""Processes that execute a workflow and end themselves in the middle of it, for `test_engine_crash.py`.

Started once, it has everything imported and forks a child for each line that it reads: a JSON object with the database,
the file that steps append to, and where to end. It answers with the child's exit status. A child that comes to the end
writes its result beside the database.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TypedDict

from stepwell import Engine, Run, StepFailed, Success, build, define_store, get, workflow
from stepwell.core.step import Mode
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
from stepwell.layers.ledger import CommitPoint

STEPS = 10
RUN = "run"
LATE_S = 10

boards = define_store("board", dict[str, int])


class Order(TypedDict):
    """Where to end: as `point` is passed for the `occurrence`-th time, never if that is negative."""

    database: str
    log: str
    point: str
    occurrence: int


def is_once(step: int) -> bool:
    """Whether the step is executed at most once."""
    return step % 3 == 2


def append_line(log: str, line: str) -> str:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        _ = os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
    return line


def count_up(board: dict[str, int]) -> None:
    board["count"] = board.get("count", 0) + 1


@workflow
async def ten_steps(run: Run, log: str) -> list[str]:
    board = run.store(boards)
    _ = await board.get_or_create("board", {})
    seen: list[str] = []
    for step in range(STEPS):
        line = f"step {step}"
        mode: Mode = "at_most_once" if is_once(step) else "at_least_once"
        try:
            seen.append(await run.step(line, append_line, log, line, mode=mode))
        except StepFailed as failed:
            seen.append(failed.kind)
        if step % 2 == 0:
            _ = await board.update(f"count {step}", count_up)
        else:
            await run.sleep(f"nap {step}", 0.002)
    counted = await board.select("counted", lambda board: board["count"])
    return [*seen, str(counted.unwrap())]


async def execute(order: Order) -> None:
    left = order["occurrence"]

    def on_point(point: CommitPoint) -> None:
        nonlocal left
        left -= point.name == order["point"]
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    database = Path(order["database"])
    host = ledger.layer(database, on_point=on_point) | clock.layer() | ids.layer()
    absent = artifacts.layer_noop() | step_cache.layer_noop() | step_sandbox.layer_noop()
    kept = store.layer() | waiters.layer() | wake_bus.layer() | journal.layer()
    services = kept | absent | engine.layer([ten_steps])
    async with build(host | services) as built:
        handle = (await get(built.unwrap(), Engine).start(ten_steps, order["log"], id=RUN)).unwrap()
        match await handle.result(timeout=LATE_S):
            case Success(seen):
                _ = database.with_suffix(".json").write_text(json.dumps(seen))
            case failed:
                raise SystemExit(f"{failed}, {await handle.status()}")


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(execute(json.loads(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
