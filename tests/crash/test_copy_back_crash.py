"""Copy-backs whose process is killed at every point, and again while it is recovered: all or nothing, each time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from stepwell.core.copy_back import Recovered

from ..layers.workspace.folders import (
    MEMORY,
    Folder,
    Text,
    opened,
    read_folder,
    unfinished,
    write_folder,
)
from . import copy_back_child
from .copy_back_child import CONFLICT, SCENARIOS, Order

SOAK = bool(os.environ.get("STEPWELL_SOAK"))

EVERY_PAIR = 1 if SOAK else 8
"""Of so many pairs of a kill and a kill while recovering one is tried."""

PARTS = 8 if SOAK else 1
"""Into how many tests these pairs are parted, each of which has its time."""

MOST_POINTS = 200


@dataclass(frozen=True)
class Processes:
    """Gives a new process for each order, and its exit status."""

    zygote: subprocess.Popen[str]

    def run(self, order: Order) -> int:
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        _ = self.zygote.stdin.write(json.dumps(order) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def commit(self, root: Path, scenario: str, last: int, edited: str = "", edit_at: str = "") -> int:
        """Copy back; whether it came to the end, or was in somebody's way, or was killed."""
        return self.run(
            Order(root=str(root), scenario=scenario, recover=False, last=last, edited=edited, edit_at=edit_at)
        )

    def recover(self, root: Path, last: int = 0) -> int:
        return self.run(Order(root=str(root), scenario="nine", recover=True, last=last, edited="", edit_at=""))


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with started() as found:
        yield found


@contextmanager
def started() -> Generator[Processes]:
    command = [sys.executable, "-m", copy_back_child.__name__]
    place = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=place) as zygote:
        yield Processes(zygote)


@dataclass(frozen=True)
class Case:
    """A scenario, and how folders of it are told."""

    name: str
    place: Path

    @property
    def before(self) -> Folder:
        return SCENARIOS[self.name][0]

    @property
    def after(self) -> Folder:
        """With the directories that the removals leave empty: they stay outside of trees."""
        _, after = SCENARIOS[self.name]
        return after

    def fresh(self) -> Path:
        root = self.place / "root"
        if root.exists():
            shutil.rmtree(root)
        write_folder(root, self.before)
        return root

    def told(self, root: Path) -> str:
        found = {path: thing for path, thing in read_folder(root).items() if path not in EMPTIED}
        return "before" if found == self.before else "after" if found == self.after else f"neither: {found}"


EMPTIED = ("removed", "d1", "d2", "d3", "d0")
"""Directories that only removed files were in."""


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory: a process that is killed loses nothing that it wrote, wherever that is."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as found:
        yield Path(found)


@pytest.fixture(params=list(SCENARIOS))
def case(request: pytest.FixtureRequest, place: Path) -> Case:
    return Case(str(request.param), place)


def recovered(root: Path) -> list[Recovered]:
    """Recover here; a second time there is nothing to do."""
    with opened(root) as host:
        found = [event for event in host.recovered if isinstance(event, Recovered)]
    assert unfinished(root) == []
    with opened(root) as host:
        assert host.recovered == ()
    return found


def test_x_01_to_x_22_a_kill_at_every_point(case: Case, processes: Processes) -> None:
    ends: list[str] = []
    for last in count(1):
        assert last < MOST_POINTS
        root = case.fresh()
        status = processes.commit(root, case.name, last)
        _ = recovered(root)
        ends.append(case.told(root))
        if status == 0:
            break
        assert status == -signal.SIGKILL
    decided = ends.index("after")
    assert ends == ["before"] * decided + ["after"] * (len(ends) - decided)
    assert decided > 10
    assert len(ends) - decided > 10


@pytest.mark.parametrize("part", range(PARTS))
def test_x_23_a_second_kill_while_it_is_recovered(case: Case, processes: Processes, part: int) -> None:
    tried = 0
    for first in count(1 + part, PARTS):
        for second in range(1 + first % EVERY_PAIR, MOST_POINTS, EVERY_PAIR):
            root = case.fresh()
            if processes.commit(root, case.name, first) == 0:
                assert tried > 40
                return
            expected = "after" if is_decided(root) or case.told(root) == "after" else "before"
            status = processes.recover(root, second)
            _ = recovered(root)
            assert case.told(root) == expected
            if status == 0:
                break
            tried += 1


def is_decided(root: Path) -> bool:
    """Whether a copy-back that was left behind has been decided, as its folder says."""
    folders = [root / ".stepwell/sandbox/tx" / name for name in unfinished(root)]
    return any((folder / "manifest").exists() or (folder / "done").exists() for folder in folders)


EDITED = "d1/f1"
"""A file that the nine files replace."""


def test_x_24_an_edit_between_the_kill_and_the_recovery_is_kept(place: Path, processes: Processes) -> None:
    case, undone = Case("nine", place), 0
    for last in count(1):
        root = case.fresh()
        status = processes.commit(root, case.name, last)
        if status == 0:
            break
        was = (root / EDITED).read_text()
        _ = (root / EDITED).write_text("EDIT")
        told = recovered(root)
        assert (root / EDITED).read_text() == "EDIT"
        _ = (root / EDITED).write_text(was)
        if [it.how for it in told] == ["undone"]:
            assert told[0].conflicts == (EDITED,)
            undone += 1
        if was == "EDIT" or [it.how for it in told] != ["undone"]:
            continue
        _ = (root / EDITED).write_text("old 1" * 50)
        (root / EDITED).chmod(0o644)
        assert case.told(root) == "before"
    assert undone > 5


@pytest.mark.parametrize("edit_at", ["DECISION_DURABLE", "APPLIED"])
def test_x_29_an_undo_that_is_interrupted_goes_on_and_never_forward(
    place: Path, processes: Processes, edit_at: str
) -> None:
    case, interrupted = Case("nine", place), 0
    edited = {**case.before, EDITED: Text("EDIT")}
    for last in count(1):
        root = case.fresh()
        status = processes.commit(root, case.name, last, EDITED, edit_at)
        if status == CONFLICT:
            assert read_folder(root) == edited
            break
        assert status == -signal.SIGKILL
        assert last < MOST_POINTS
        marked = any((root / ".stepwell/sandbox/tx" / name / "undo").exists() for name in unfinished(root))
        if marked:
            interrupted += 1
            _ = (root / EDITED).write_text("old 1" * 50)  # what the aborted copy-back expected to find
        for second in range(1 + last % EVERY_PAIR, MOST_POINTS, EVERY_PAIR):
            if processes.recover(root, second) == 0:
                break
        _ = recovered(root)
        if marked:
            assert read_folder(root) == case.before
            with opened(root):
                assert read_folder(root) == case.before
        else:
            assert case.told(root) in ("before", "after") or read_folder(root) == edited
    assert interrupted > 10
