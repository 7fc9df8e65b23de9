"""The budgets of the step sandbox: seeding a workspace, isolating and watching a command, watching a callable.

    python benchmarks/sandbox.py

Commands need bubblewrap; without it they are not measured. A difference of two times is in the unit of its budget, and
has no floor: the bare command is executed just before, and taken off.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from budget import Budget, Pair, summarise, table
from floor import folder
from world import World

from stepwell import Boundary, StepSandbox, build, get
from stepwell.core.boundary import Declaration
from stepwell.core.command import Command
from stepwell.core.node import FileNode, digest_of
from stepwell.core.workspace_limits import LIMITS
from stepwell.layers import artifacts, clock, step_sandbox
from stepwell.layers.workspace.command.runner import CommandRunner
from stepwell.layers.workspace.host import Seed
from stepwell.layers.workspace.tripwire import watch

__all__ = ["SANDBOX_BUDGETS"]

PAIRS: Final = 20
LOOKS: Final = 2_000
EVENTS: Final = 20_000
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


def copied(source: Path) -> float:
    """Seconds for reading and hashing the files of a folder, and writing copies of them into one in memory."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as target:
        began = time.perf_counter()
        for path in sorted(source.iterdir()):
            data = path.read_bytes()
            _ = hashlib.sha256(data).hexdigest()
            _ = Path(target, path.name).write_bytes(data)
        return time.perf_counter() - began


async def opened_and_closed(count: int, world: World) -> Sequence[Pair]:
    """Opening a sandbox, seeding a workspace with small files, and closing both, beside copying the files."""
    root = world.file().with_suffix(".files")
    many = root / "many"
    many.mkdir(parents=True)
    for number in range(count):
        _ = (many / str(number)).write_bytes(os.urandom(len(FILE)))
    pairs: list[Pair] = []
    async with build(step_sandbox.layer(root) | artifacts.layer_test() | clock.layer()) as built:
        sandbox = get(built.unwrap(), StepSandbox)
        for _ in range(PAIRS):
            floor = copied(many)
            began = time.perf_counter()
            async with (await sandbox.open()).unwrap() as transaction:
                _ = (await transaction.execute(Boundary(("many/*",)), lambda _: None)).unwrap()
            pairs.append(Pair(time.perf_counter() - began, floor))
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


def audited() -> float:
    """Microseconds of the processor that an event takes which the interpreter audits; waiting for one is left out."""
    began = time.thread_time()
    for _ in range(EVENTS):
        sys.audit("stepwell.benchmark")
    return (time.thread_time() - began) / EVENTS * 1e6


async def unwatched_event(world: World) -> Sequence[Pair]:
    """Microseconds that an event takes in a process in which bodies are watched, while this one is not."""
    with watch():
        pass  # the hook is there, for good
    return [Pair(audited()) for _ in range(PAIRS)]


def opened() -> float:
    """Seconds of the processor for opening and closing a file of the host, again and again."""
    began = time.thread_time()
    for _ in range(LOOKS):
        os.close(os.open(TRUE, os.O_RDONLY))
    return time.thread_time() - began


async def watched_open(world: World) -> Sequence[Pair]:
    """How many times what it takes beside no watch a file takes to be opened under one."""
    pairs: list[Pair] = []
    for _ in range(PAIRS):
        with watch():
            took = opened()
        pairs.append(Pair(took, opened()))
    return pairs


TRIPWIRE: Final[tuple[Budget[World], ...]] = (
    Budget("sandbox-event", "an audited event, while nobody is watched", "-", 1.0, unwatched_event, "µs"),
    Budget("sandbox-read", "a file that a watched body opens", "unwatched", None, watched_open),
)

ALL: Final[tuple[Budget[World], ...]] = (
    Budget("sandbox-body", "a command under bubblewrap, over the bare one", "-", 15.0, body, "ms"),
    Budget("sandbox-1000", "1,000 seeded files, over 10", "-", 50.0, partial(seeded, 1_000, 10), "ms"),
    Budget("sandbox-look", "a look-up that is told of", "-", 60.0, looks, "µs"),
)

SEEDS: Final[tuple[Budget[World], ...]] = (
    Budget(
        "sandbox-open-1000", "open, seed, close 1,000 files", "copy and hash", 3.0, partial(opened_and_closed, 1_000)
    ),
)

SANDBOX_BUDGETS: Final[tuple[Budget[World], ...]] = (*SEEDS, *TRIPWIRE, *(ALL if shutil.which("bwrap") else ()))
"""None of commands where there is no bubblewrap."""


async def measured() -> int:
    with folder() as path:
        results = [(budget, [summarise(budget, await budget.measure(World(path)))]) for budget in SANDBOX_BUDGETS]
    print(table(results))
    return 0 if all(run.met for _, runs in results for run in runs) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(measured()))
