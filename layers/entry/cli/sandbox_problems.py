"""Why a command in a sandbox gave nothing, for people: what happened, to what, and what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ....core.command import CommandFailure
from ....core.step_sandbox import (
    BodyFailed,
    LimitExceeded,
    MaterializationConflict,
    MissingOutput,
    SurvivingRemoval,
    UndeclaredRead,
    UndeclaredWrite,
    UnsupportedBoundary,
    WorkspaceError,
)
from ...workspace.settlement import SettleFailure
from .output import size
from .problem import Problem

__all__ = ["problem_of_sandbox"]

_UNCHANGED: Final = "nothing was written"

SHOWN: Final = 20
"""Paths that are listed for people."""

_NO_PROGRAM: Final = "bwrap: execvp "
"""How bubblewrap begins to say that there is no such program."""

_NO_NETWORK: Final = (
    "Could not resolve host",
    "Name or service not known",
    "Network is unreachable",
    "Temporary failure in name resolution",
)
"""What programs say that would have to reach the network, in the language that commands are given."""

_BYTES: Final = frozenset(
    {"seeded_bytes", "file_bytes", "produced_bytes", "memory", "path_bytes", "name_bytes", "artifact_bytes"}
)

_LIMITS: Final = {
    "seeded_files": ("it may read too many files", "name fewer of them by --reads"),
    "seeded_bytes": ("what it may read is too large", "name less by --reads"),
    "file_bytes": ("a file is too large", "leave it out"),
    "nodes": ("it left too many files, links and folders", "let it leave fewer"),
    "produced_bytes": ("what it left is too large", "let it leave less"),
    "artifact_bytes": ("a file that it left is too large", "let it leave less"),
    "processes": ("it had too many processes at once", "let it start fewer"),
    "memory": ("its processes took too much memory", "let it take less"),
    "path_bytes": ("a path is too long", "shorten it"),
    "path_depth": ("a path has too many parts", "shorten it"),
    "name_bytes": ("a name is too long", "shorten it"),
}
"""What each limit means, and what to do about it."""

_Named: TypeAlias = UndeclaredRead | UndeclaredWrite | MissingOutput | SurvivingRemoval


def _nothing(path: str) -> bool:
    return False


def problem_of_sandbox(
    failure: SettleFailure | WorkspaceError,
    root: str,
    *,
    writes: Callable[[str], bool] = _nothing,
    network: bool = False,
) -> Problem:
    """The failure of a command on the folder `root`. `writes` says what it may write, `network` whether it has one."""
    match failure:
        case UndeclaredRead(paths=paths, cause=cause, command=command):
            said = "" if cause is None else cause.traceback
            problem = _named(failure, "it read what was not declared", _read_hints(paths, root, writes), said)
            problem.details |= _told(command)
            return problem
        case UndeclaredWrite():
            return _named(failure, "it wrote what was not declared", ["name it by --writes or --removes, or by a glob"])
        case MissingOutput():
            return _named(
                failure, "it did not write", ["leave out of --writes what it need not write, or name it by a glob"]
            )
        case SurvivingRemoval():
            return _named(failure, "it did not remove", ["leave out of --removes what it need not remove"])
        case MaterializationConflict(paths):
            hints = ["try again; if it stays so, name what it writes by --writes"]
            return _listed("conflict", "others changed what it read or was to write", paths, hints)
        case BodyFailed():
            return _failed(failure, network)
        case LimitExceeded(what, actual, limit):
            details = {"what": what, "actual": actual, "limit": limit}
            return Problem("limit_exceeded", f"{_exceeded(what, actual, limit)}; {_UNCHANGED}", details=details)
        case UnsupportedBoundary(message=message) | WorkspaceError(_, message):
            return Problem(failure.code, f"{message}; {_UNCHANGED}")


def _named(failure: _Named, what: str, hints: Sequence[str], said: str = "") -> Problem:
    return _listed(failure.code, what, failure.paths, hints, said)


def _listed(code: str, what: str, paths: Sequence[str], hints: Sequence[str], said: str = "") -> Problem:
    lines = [f"{what}:", *(f"  {path}" for path in paths[:SHOWN])]
    if len(paths) > SHOWN:
        lines.append(f"  and {len(paths) - SHOWN} more; --json names all")
    lines.append("; ".join((_UNCHANGED, *hints)))
    if said.strip():
        lines += ["it said:", said.rstrip()]
    return Problem(code, "\n".join(lines), details={"paths": list(paths)})


def _read_hints(paths: Sequence[str], root: str, writes: Callable[[str], bool]) -> list[str]:
    """What to do about each kind of path: in the folder, an output there, in it but by its place on this machine, or
    elsewhere."""
    tops = tuple(f"{top}/" for top in (os.path.realpath(root), os.path.abspath(root)))
    inside = [path for path in paths if path.startswith(tops)]
    elsewhere = [path for path in paths if path.startswith("/") and not path.startswith(tops)]
    before = [path for path in paths if not path.startswith("/") and writes(path)]
    hints: list[str] = []
    if len(inside) + len(elsewhere) + len(before) < len(paths):
        hints.append("name what it may read by --reads")
    if before:
        hints.append(f"{before[0]} is there as an output of before: give it by --reads too")
    if inside:
        name = inside[0].removeprefix(tops[0]).removeprefix(tops[1])
        hints.append(f"say {name} for {inside[0]}: it sees the folder in another place")
    if elsewhere:
        hints.append("show it what belongs to its programs by --toolchain DIR, and copy anything else into the folder")
    return hints


def _failed(failure: BodyFailed, network: bool) -> Problem:
    cause, command = failure.cause, failure.command
    details = {"type": cause.type, "said": cause.traceback, **_told(command)}
    said = cause.traceback.rstrip()
    if said.startswith(_NO_PROGRAM):
        name, _, reason = said.removeprefix(_NO_PROGRAM).partition("\n")[0].rpartition(": ")
        return Problem("body_failed", f"{name} cannot be executed: {reason}; {_program_hint(name)}", details=details)
    last = said.rpartition("\n")[2]
    summary = "; ".join((cause.message.removesuffix(f": {last}"), _UNCHANGED, *_failure_hints(command, network)))
    if command is not None:
        said = "\n".join(text.rstrip() for text in (command.stdout, command.stderr) if text.strip())
    return Problem("body_failed", "\n".join(filter(None, (summary, said))), details=details)


def _told(command: CommandFailure | None) -> dict[str, object]:
    if command is None:
        return {}
    return {
        "exit_code": command.exit_code,
        "stdout": command.stdout,
        "stderr": command.stderr,
        "missed": list(command.missed),
        "read_only": list(command.read_only),
    }


def _program_hint(name: str) -> str:
    hint = "a name without a slash is looked for in /usr/local/bin, /usr/bin, /bin: give a whole path for another"
    found = shutil.which(name) if "/" not in name else None
    return f"{hint}, as by $(which {name}), which is {found}" if found else hint


def _failure_hints(command: CommandFailure | None, network: bool) -> list[str]:
    if command is None:
        return []
    hints: list[str] = []
    if command.missed:
        hints.append("name by --reads what it looked for")
    if command.read_only:
        hints.append("name by --writes too what it opened for writing")
    if not network and any(text in command.stdout + command.stderr for text in _NO_NETWORK):
        hints.append("let it reach the network by --network")
    return hints


def _exceeded(what: str, actual: int, limit: int) -> str:
    if what == "wall":
        return f"it took longer than {limit / 1000:g} s and was ended; give it longer by --timeout SECONDS"
    means, remedy = _LIMITS.get(what, (f"it went beyond the limit of {what}", "let it need less"))
    of = size if what in _BYTES else str
    return f"{means}, {of(actual)} where {of(limit)} are allowed; {remedy}"
