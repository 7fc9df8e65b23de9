"""Commands, their workspaces, and what a machine needs for them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, final

import pytest

from stepwell.core.boundary import Boundary, Declaration, declare
from stepwell.core.command import Command
from stepwell.core.node import FileNode, LinkNode, Node, digest_of
from stepwell.core.outcome import Failure, Success
from stepwell.core.workspace_limits import LIMITS, WorkspaceLimits
from stepwell.core.workspace_path import PathProblem
from stepwell.layers.workspace.command.launch.calls import machine
from stepwell.layers.workspace.command.runner import CommandResult, CommandRunner, RunFailure
from stepwell.layers.workspace.host import Seed

__all__ = [
    "PYTHON",
    "command_of",
    "compiled",
    "declared",
    "failure_of",
    "files",
    "is_alive",
    "must_be_root",
    "needs_bwrap",
    "parent_of",
    "processes_with",
    "result_of",
    "sh",
    "text_of",
    "undeclared",
    "until",
]

PYTHON: Final = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
"""An interpreter that every user may execute, where there is one."""

needs_bwrap: Final = pytest.mark.skipif(
    shutil.which("bwrap") is None or machine() is None, reason="bubblewrap is not installed, or the machine is unknown"
)

must_be_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")


@final
class _Contents:
    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self._data[path])

    def close(self) -> None:
        """Nothing is held."""


def files(texts: Mapping[str, str | bytes] | None = None, links: Mapping[str, str] | None = None) -> Seed:
    """A seed of files, which can be executed if they begin as scripts or programs do, and links."""
    data = {path: text.encode() if isinstance(text, str) else text for path, text in (texts or {}).items()}
    tree: dict[str, Node] = {
        path: FileNode(digest_of(each), len(each), each.startswith((b"#!", b"\x7fELF"))) for path, each in data.items()
    }
    tree.update({path: LinkNode(target) for path, target in (links or {}).items()})
    return Seed(tree, _Contents(data))


def declared(reads: tuple[str, ...] = (), writes: tuple[str, ...] = (), removes: tuple[str, ...] = ()) -> Declaration:
    declaration = declare(Boundary(reads, writes, removes))
    assert not isinstance(declaration, PathProblem)
    return declaration


def sh(script: str, *, timeout: float | None = None) -> Command:
    return Command(("/bin/sh", "-c", script), timeout=timeout)


async def until(condition: Callable[[], object]) -> None:
    """Return when something holds that happens in other processes, which set no event."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def processes_with(text: str) -> list[int]:
    """The processes that have a text among their arguments, bubblewrap not counted."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    commands = {process: command_of(process) for process in found}
    return [process for process, command in commands.items() if text.encode() in command and b"bwrap" not in command]


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def parent_of(process: int) -> int:
    """The parent of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_alive(process: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def result_of(
    runner: CommandRunner,
    command: Command,
    seed: Seed | None = None,
    declaration: Declaration | None = None,
    limits: WorkspaceLimits = LIMITS,
) -> CommandResult:
    """What a command left, its files still to be read."""
    outcome = await runner.run(seed or files(), declaration or declared(), command, limits)
    assert isinstance(outcome, Success), outcome
    return outcome.unwrap()


async def failure_of(
    runner: CommandRunner,
    command: Command,
    seed: Seed | None = None,
    declaration: Declaration | None = None,
    limits: WorkspaceLimits = LIMITS,
) -> RunFailure:
    outcome = await runner.run(seed or files(), declaration or declared(), command, limits)
    assert isinstance(outcome, Failure), outcome
    return outcome.failure()


def text_of(result: CommandResult, path: str) -> str:
    with result.contents.open(path) as file:
        return file.read().decode()


def undeclared(
    result: CommandResult, host: Callable[[str], bool], *, seed: Seed | None = None, strict_probes: bool = False
) -> tuple[str, ...]:
    """What a command looked up that `host` has, and that was not declared."""
    seeded = (seed or files()).tree
    return result.sightings(
        declared=lambda path: False, seeded=seeded.__contains__, host_has=host, strict_probes=strict_probes
    ).undeclared


def compiled(source: str, *options: str) -> bytes:
    """A program in C. Skips the test where there is no compiler, or not what the program needs."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    target = f"/tmp/stepwell-test-{os.getpid()}"
    try:
        made = subprocess.run(
            ["cc", "-x", "c", "-o", target, *options, "-"], input=source.encode(), capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip(f"the compiler cannot make this program: {made.stderr.decode(errors='replace')[-200:]}")
        with open(target, "rb") as file:
            return file.read()
    finally:
        if os.path.exists(target):
            os.unlink(target)
