"""The words of the files, counted by cached steps: of what has not changed, nothing is counted again.

Three runs over copies in a folder of their own: the first counts, the second finds everything, and before the third one
file is changed. Which steps were executed is told by the journals of the runs.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import stepwell
from stepwell import App, Boundary, Failure, Journal, Run, Workspace, get, workflow
from stepwell.core.cache_fold import EVENT_TYPE

from .steps import Job

FOLDER = "review-cache"
"""The name of the folder, among the results; the database of the cache lies in it too."""

FILES = 12
"""How many files are counted at most."""


@dataclass(frozen=True, slots=True)
class Round:
    """One run: how many of its steps were executed, and how many were found in the cache."""

    executed: int
    found: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What the three runs did, and what should not be."""

    first: Round
    again: Round
    changed: Round
    path: str
    problems: tuple[str, ...]


def count_words(workspace: Workspace, path: str) -> int:
    """The words of one file, also kept as a file of their own."""
    words = len(workspace.read_bytes(f"files/{path}").split())
    workspace.write_text(f"counts/{path}.json", json.dumps(words))
    return words


def add_up(workspace: Workspace) -> int:
    """The sum of what was counted."""
    total = sum(int(workspace.read_text(path)) for path in workspace.glob("counts/**"))
    workspace.write_text("total.json", json.dumps(total))
    return total


@workflow
async def count(run: Run, paths: list[str]) -> int:
    """Count the words of the files side by side, and then all of them."""
    await run.gather(
        *(
            run.cached_step(
                f"count {path}",
                count_words,
                path,
                boundary=Boundary(reads=(f"files/{path}",), writes=(f"counts/{path}.json",)),
            )
            for path in paths
        )
    )
    return await run.cached_step("add up", add_up, boundary=Boundary(reads=("counts/**",), writes=("total.json",)))


async def count_thrice(jobs: Sequence[Job], out: Path, *, plant: bool = False) -> Counted:
    """The three runs, in a folder that is made anew. `plant` is for tests: it changes a file before the second."""
    folder = out / FOLDER
    paths = await asyncio.to_thread(_copy, jobs[:FILES], folder)
    async with stepwell.open(folder / "cache.db", workflows=[count], workspace=folder) as app:
        first = await _round(app, paths, "first")
        if plant:
            await asyncio.to_thread(_change, folder / "files" / paths[-1])
        again = await _round(app, paths, "again")
        await asyncio.to_thread(_change, folder / "files" / paths[0])
        changed = await _round(app, paths, "changed")
    steps = len(paths) + 1
    expected = (Round(steps, 0), Round(0, steps), Round(2, steps - 2))
    problems = tuple(
        f"the {name} run over counted files executed {got.executed} steps and found {got.found}, not {wanted}"
        for name, got, wanted in zip(("first", "second", "third"), (first, again, changed), expected, strict=True)
        if got != wanted
    )
    return Counted(first, again, changed, paths[0], problems)


async def _round(app: App, paths: list[str], run_id: str) -> Round:
    started = await app.start(count, paths, id=run_id)
    result = started if isinstance(started, Failure) else await started.unwrap().result()
    if isinstance(result, Failure):
        raise RuntimeError(f"the run {run_id} did not count the files: {result.failure()}")
    told = (await get(app.env, Journal).entries(run_id, event_types=[EVENT_TYPE])).unwrap()
    actions = [cast("Mapping[str, object]", entry.payload)["action"] for entry in told.entries]
    return Round(actions.count("recorded"), actions.count("hit"))


def _copy(jobs: Sequence[Job], folder: Path) -> list[str]:
    """Fresh copies of the files that are still there."""
    shutil.rmtree(folder, ignore_errors=True)
    paths: list[str] = []
    for job in jobs:
        if Path(job.root, job.path).is_file():
            target = folder / "files" / job.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(job.root, job.path).read_bytes())
            paths.append(job.path)
    return paths


def _change(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\none more line\n")
