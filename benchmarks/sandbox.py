"""The budgets of the step sandbox: what isolating and watching a command adds to executing it.

    python benchmarks/sandbox.py

Needs bubblewrap; without it there is nothing to measure. A difference of two times is in the unit of its budget, and
has no floor: the bare command is executed just before, and taken off.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from typing import BinaryIO, Final

from budget import Budget, Pair, summarise, table
from floor import folder
from world import World

from stepwell.core.boundary import Declaration
from stepwell.core.command import Command
from stepwell.core.node import FileNode, digest_of
from stepwell.core.workspace_limits import LIMITS
from stepwell.layers.workspace.command.runner import CommandRunner
from stepwell.layers.workspace.host import Seed

__all__ = ["SANDBOX_BUDGETS"]

PAIRS: Final = 20
LOOKS: Final = 2_000
FILE: Final = b"x" * 4096

TRUE: Final = shutil.which("true") or "/usr/bin/true"

NOTHING_DECLARED: Final = Declaration(
    mode="hard", read_files=(), read_globs=(), outputs=(), write_globs=(), trees=(), removals=()
)


class Files:
    """Contents in memory."""

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self._data[path])

    def close(self) -> None:
        """Nothing is held."""


def seed(count: int) -> Seed:
    files = {f"d{number % 10}/f{number}": FILE for number in range(count)}
    digest = digest_of(FILE)
    return Seed({path: FileNode(digest, len(FILE)) for path in files}, Files(files))


@asynccontextmanager
async def proved() -> AsyncGenerator[CommandRunner]:
    """A runner that has shown that it isolates, and executed something."""
    runner = CommandRunner()
    try:
        _ = (await runner.prove()).unwrap()
        yield runner
    finally:
        await runner.close()


async def execute(runner: CommandRunner, files: Seed, command: Command) -> tuple[float, bytes]:
    """How many seconds a command takes, from its seed to what it left, and what it printed."""
    began = time.perf_counter()
    result = (await runner.run(files, NOTHING_DECLARED, command, LIMITS)).unwrap()
    took = time.perf_counter() - began
    result.close()
    return took, result.output.stdout


async def body(world: World) -> Sequence[Pair]:
    """Milliseconds that a command in the sandbox takes longer than the bare one."""
    pairs: list[Pair] = []
    files, command = seed(1), Command((TRUE,))
    async with proved() as runner:
        for _ in range(PAIRS):
            began = time.perf_counter()
            _ = subprocess.run([TRUE], check=True)  # noqa: ASYNC221 - a thread in between would be measured too
            bare = time.perf_counter() - began
            took, _printed = await execute(runner, files, command)
            pairs.append(Pair((took - bare) * 1e3))
    return pairs


async def seeded(many: int, few: int, world: World) -> Sequence[Pair]:
    """Milliseconds that many files take longer than few."""
    pairs: list[Pair] = []
    large, small, command = seed(many), seed(few), Command((TRUE,))
    async with proved() as runner:
        for _ in range(PAIRS // 2):
            longer, _ = await execute(runner, large, command)
            shorter, _ = await execute(runner, small, command)
            pairs.append(Pair((longer - shorter) * 1e3))
    return pairs


async def looks(world: World) -> Sequence[Pair]:
    """Microseconds that one look-up takes."""
    code = (
        "import os, time\n"
        "began = time.perf_counter()\n"
        f"for number in range({LOOKS}): os.path.lexists(f'f{{number}}')\n"
        f"print((time.perf_counter() - began) / {LOOKS})\n"
    )
    command = Command((sys.executable, "-I", "-S", "-c", code))
    async with proved() as runner:
        return [Pair(float((await execute(runner, seed(1), command))[1]) * 1e6) for _ in range(PAIRS // 2)]


ALL: Final[tuple[Budget[World], ...]] = (
    Budget("sandbox-body", "a command under bubblewrap, over the bare one", "-", 15.0, body, "ms"),
    Budget("sandbox-1000", "1,000 seeded files, over 10", "-", 50.0, partial(seeded, 1_000, 10), "ms"),
    Budget("sandbox-look", "a look-up that is told of", "-", 60.0, looks, "µs"),
)

SANDBOX_BUDGETS: Final[tuple[Budget[World], ...]] = ALL if shutil.which("bwrap") else ()
"""None where there is no bubblewrap."""


async def measured() -> int:
    with folder() as path:
        results = [(budget, [summarise(budget, await budget.measure(World(path)))]) for budget in SANDBOX_BUDGETS]
    print(table(results) if results else "there is no bubblewrap here, so there is nothing to measure")
    return 0 if all(run.met for _, runs in results for run in runs) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(measured()))
