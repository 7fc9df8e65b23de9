"""Processes that copy back to a folder, or recover it, and end themselves on the way, for `test_copy_back_crash.py`.

Started once, it has everything imported and forks a child for each line that it reads: a JSON object with the folder,
what to do, and which passing of a point is to be the last; and maybe who meddles, and when. It answers with the child's
exit status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TypedDict

from stepwell.core.outcome import Failure, Success
from stepwell.core.step_sandbox import MaterializationConflict
from stepwell.layers.workspace.points import CopyBackPoint
from stepwell.layers.workspace.site import HostOptions

from ..layers.workspace.folders import Folder, Text, copy_back, opened
from ..layers.workspace.test_copy_back import WHOLE

CONFLICT = 3
"""The exit status of a copy-back that somebody else was in the way of."""


class Order(TypedDict):
    """The last passing is counted from 1, 0 is never. When the point `edit_at` is passed, `edited` becomes EDIT."""

    root: str
    scenario: str
    recover: bool
    last: int
    edited: str
    edit_at: str


def nine_files() -> tuple[Folder, Folder]:
    """Nine files, in turn created, replaced and removed, in several directories."""
    before: dict[str, Text] = {}
    after: dict[str, Text] = {}
    for number in range(9):
        path = f"new{number % 2}/s/f{number}" if number % 3 == 0 else f"d{number % 4}/f{number}"
        if number % 3 > 0:
            before[path] = Text(f"old {number}" * 50)
        if number % 3 < 2:
            after[path] = Text(f"new {number}" * 70, executable=bool(number % 2))
    return before, after


SCENARIOS: dict[str, tuple[Folder, Folder]] = {"nine": nine_files(), "whole": WHOLE}


def execute(order: Order) -> int:
    passed = 0

    def on_point(point: CopyBackPoint) -> None:
        nonlocal passed
        passed += 1
        if point.name == order["edit_at"]:
            _ = Path(order["root"], order["edited"]).write_text("EDIT")
        if passed == order["last"]:
            os.kill(os.getpid(), signal.SIGKILL)

    root, (before, after) = Path(order["root"]), SCENARIOS[order["scenario"]]
    with opened(root, HostOptions(durability="process", on_point=on_point)) as host:
        if order["recover"]:
            return 0
        match copy_back(host, before, after, trees=("tree",)):
            case Success():
                return 0
            case Failure(MaterializationConflict()):
                return CONFLICT
            case Failure(error):
                raise AssertionError(error)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = execute(json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
