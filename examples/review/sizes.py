"""The sizes of the files that were reviewed, counted by a command in a sandbox, and one that asks for too much.

Both work on copies in a folder of their own, since a sandbox keeps its own files in the folder that it works on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from stepwell import Boundary, Command, Failure, StepSandbox, UndeclaredRead, WorkspaceError, build, get
from stepwell.layers import artifacts, clock, step_sandbox
from stepwell.layers.layer import Failed
from stepwell.layers.workspace.settlement import settle

from .steps import Job

FOLDER = "review-sandbox"
"""The name of the folder, among the results."""

SIZES = "sizes.txt"

COUNT = Command(("sh", "-c", f"find files -type f -exec wc -c {{}} + | sort -n > {SIZES}"))

BOUNDARY = Boundary(reads=("files/**",), writes=(SIZES,))


@dataclass(frozen=True, slots=True)
class Shown:
    """What the command read and wrote, and what the other one was refused; `problems` are what should not be."""

    read: tuple[str, ...]
    wrote: tuple[str, ...]
    refused: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotShown:
    """This machine cannot isolate commands, and why."""

    reason: str


Sizing: TypeAlias = Shown | NotShown


async def count_sizes(jobs: Sequence[Job], out: Path) -> Sizing:
    """Copy the files, and let a command count them; another one wants the database, which nobody declared."""
    folder = out / FOLDER
    expected = await asyncio.to_thread(_copy, jobs, folder)
    layer = step_sandbox.layer(folder, portable_names=False) | artifacts.layer(folder / ".stepwell" / "artifacts")
    async with build(layer | clock.layer()) as built:
        if isinstance(built, Failure):
            error = built.failure()
            return NotShown(str(error.cause if isinstance(error, Failed) else error))
        return await _count(get(built.unwrap(), StepSandbox), folder, expected)


async def _count(sandbox: StepSandbox, folder: Path, expected: int) -> Sizing:
    counted = await settle(sandbox, BOUNDARY, COUNT)
    if isinstance(counted, Failure):
        failure = counted.failure()
        if isinstance(failure, WorkspaceError) and failure.code == "unsupported_boundary":
            return NotShown(failure.message)
        return Shown((), (), (), (f"the sizes were not counted in the sandbox: {failure}",))
    accepted = counted.unwrap().accepted
    looks = () if accepted.record is None else accepted.record.observed
    read = tuple(dict.fromkeys(look.path for look in looks if look.look == "read" and look.path.startswith("files/")))
    wrote = tuple(change.path for change in accepted.changes)
    found = await asyncio.to_thread(_total, folder / SIZES)
    problems = [] if found == expected else [f"the sandbox counted {found} bytes of {expected}"]

    database = str(folder.parent / "review.db")
    careless = Command(("sh", "-c", f'cat "$1" > {SIZES}; exit 0', "sh", database))
    tried = await settle(sandbox, BOUNDARY, careless)
    refused = tried.failure() if isinstance(tried, Failure) else None
    if not isinstance(refused, UndeclaredRead):
        return Shown(read, wrote, (), (*problems, f"reading {database} was not refused: {tried}"))
    if await asyncio.to_thread(_total, folder / SIZES) != found:
        problems.append(f"a command that was refused has changed {SIZES}")
    return Shown(read, wrote, refused.paths, tuple(problems))


def _copy(jobs: Sequence[Job], folder: Path) -> int:
    """Fresh copies of the files that are still there, and how many bytes they have."""
    shutil.rmtree(folder / "files", ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    copied = 0
    for job in jobs:
        if not Path(job.root, job.path).is_file():
            continue
        target = folder / "files" / job.path
        target.parent.mkdir(parents=True, exist_ok=True)
        copied += target.write_bytes(Path(job.root, job.path).read_bytes())
    return copied


def _total(sizes: Path) -> int:
    """The sum of the lines that name a file; `wc` also adds up some of them itself."""
    lines = sizes.read_bytes().decode(errors="replace").splitlines()
    counted = (line.strip().partition(" ") for line in lines)
    return sum(int(size) for size, _, path in counted if path.startswith("files" + os.sep))
