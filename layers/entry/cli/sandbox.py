"""`sandbox run`: a command that sees what it is given, and what it read, wrote and was refused."""

from __future__ import annotations

import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from ....core.boundary import Boundary, BoundaryMode, declare
from ....core.command import Command, CommandOutput
from ....core.node import FileNode, is_digest
from ....core.observation import ABSENT, UNDECLARED, Observation
from ....core.outcome import Failure
from ....core.step_sandbox import Accepted, FileChange
from ....core.workspace_path import PathProblem
from ....services.step_sandbox import StepSandbox, WorkspaceRefusal
from ... import artifacts, clock, step_sandbox
from ...layer import Failed, build, get
from ...workspace.settlement import settle
from .options import Settings, run_blocking, shared
from .output import Output
from .problem import WRONG_USAGE, Problem
from .sandbox_problems import problem_of_sandbox

__all__ = ["sandbox"]

SHORT: Final = 12
"""Digits of a digest in a table."""

EXIT_CODE: Final = click.IntRange(0, 255)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    root: str
    boundary: Boundary
    command: Command
    toolchain: tuple[str, ...]
    network: bool
    bwrap: str | None
    dry_run: bool


@click.group()
def sandbox() -> None:
    """Commands that see what they are given, and nothing else."""


@sandbox.command(context_settings={"allow_interspersed_args": False})
@click.option("--root", default=".", metavar="DIR", show_default=True, help="The folder that it works on.")
@click.option("--reads", multiple=True, metavar="PATH", help="A file that it may read, or a glob of such files.")
@click.option("--writes", multiple=True, metavar="PATH", help="A file that it has to write, or a glob of what it may.")
@click.option("--removes", multiple=True, metavar="PATH", help="A file that it has to remove.")
@click.option("--expected", is_flag=True, help="Accept what departs from these, and say so.")
@click.option("--ok", "codes", multiple=True, type=EXIT_CODE, metavar="CODE", help="An exit code of success; else 0.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable that it is given.")
@click.option("--timeout", type=float, metavar="SECONDS", help="After how long it is ended.")
@click.option("--toolchain", multiple=True, metavar="DIR", help="A further folder of programs and libraries.")
@click.option("--network", is_flag=True, help="Let it reach the network.")
@click.option("--bwrap", metavar="FILE", help="The bubblewrap that is used; the one in PATH if left out.")
@click.option("--dry-run", is_flag=True, help="Leave the folder as it is.")
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@shared(database=False)
@click.pass_obj
def run(
    settings: Settings,
    root: str,
    reads: Sequence[str],
    writes: Sequence[str],
    removes: Sequence[str],
    expected: bool,
    codes: Sequence[int],
    variables: Sequence[str],
    timeout: float | None,
    toolchain: Sequence[str],
    network: bool,
    bwrap: str | None,
    dry_run: bool,
    argv: Sequence[str],
) -> None:
    """Run a command on copies of the files that it may read, and write back what it made if it kept to that.

    The folder changes all at once when the command has ended well, or not at all. A path is relative to the folder;
    `*` stands for anything in a name and `**` for any folders, so quote it. Nothing is written, and the exit code is 1,
    if the command read or wrote anything else that is there, left out what it has to write, or failed. Options that
    take a PATH, DIR, CODE or NAME may be repeated.

    What the command prints is passed on; what it read and wrote is told on standard error. It has no standard input.
    """
    mode: BoundaryMode = "expected" if expected else "hard"
    try:
        boundary = Boundary(tuple(reads), tuple(writes), tuple(removes), mode)
        command = Command(tuple(argv), _variables(variables), timeout, ok=tuple(codes) or (0,))
    except (TypeError, ValueError) as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None
    problem = declare(boundary)
    if isinstance(problem, PathProblem):
        raise Problem("usage", problem.message, exit_code=WRONG_USAGE)
    if not os.path.isdir(root):
        raise Problem("not_found", f"there is no folder {root!r}: make it first, or name another one by --root")
    ran = run_blocking(_run(Asked(root, boundary, command, tuple(toolchain), network, bwrap, dry_run)))
    if settings.as_json:
        settings.output.json(ran.as_json())
    else:
        _print(settings.output, ran)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was accepted."""

    accepted: Accepted[CommandOutput]
    materialized: bool
    rebases: int

    def read(self) -> list[Observation]:
        """The looks that found something."""
        record = self.accepted.record
        seen = () if record is None else record.observed
        return [it for it in seen if it.outcome not in (ABSENT, UNDECLARED)]

    def departures(self) -> list[tuple[str, str]]:
        """How it departed from what was declared: in which way, and at which path."""
        deviation = self.accepted.deviation
        if deviation is None:
            return []
        kinds = (
            ("undeclared read", deviation.violations.reads),
            ("undeclared write", deviation.violations.writes),
            ("missing output", deviation.missing_outputs),
            ("surviving removal", deviation.surviving_removals),
        )
        return [(kind, path) for kind, paths in kinds for path in paths]

    def notes(self) -> list[str]:
        record = self.accepted.record
        if record is None:
            return []
        partial = "it looked at so much that not all of it was kept"
        return [*record.notes, *([] if record.completeness == "complete" else [partial])]

    def as_json(self) -> dict[str, object]:
        accepted = self.accepted
        return {
            "evidence": accepted.evidence,
            "exit_code": accepted.output.exit_code,
            "read": [{"path": it.path, "look": it.look, "digest": it.outcome} for it in self.read()],
            "wrote": [{"path": it.path, "kind": it.kind, "digest": _digest(it)} for it in accepted.changes],
            "departures": [{"kind": kind.replace(" ", "_"), "path": path} for kind, path in self.departures()],
            "diff_identity": accepted.diff_identity,
            "materialized": self.materialized,
            "rebases": self.rebases,
            "notes": self.notes(),
            **_printed("stdout", accepted.output.stdout),
            **_printed("stderr", accepted.output.stderr),
        }


def _printed(name: str, data: bytes) -> dict[str, object]:
    """What a command printed as text and, if it is none, exactly."""
    text = data.decode(errors="replace")
    return {name: text} if text.encode() == data else {name: text, f"{name}_base64": b64encode(data).decode()}


def _digest(change: FileChange) -> str | None:
    return change.after.digest if isinstance(change.after, FileNode) else None


def _print(output: Output, ran: Ran) -> None:
    said = ran.accepted.output
    output.passed_on(said.stdout)
    output.passed_on(said.stderr, as_error=True)
    if rows := [*_rows(ran)]:
        output.table(("", "path", "how", "digest"), rows, beside=True)
    else:
        output.note("it read and wrote none of the folder's files")
    for note in ran.notes():
        output.note(note)
    if ran.departures():
        output.note("it was accepted although it departed from what was declared, as --expected says")
    if ran.rebases:
        output.note(f"its files were changed meanwhile: it was run {ran.rebases + 1} times")
    if not ran.materialized:
        output.note("nothing was written: this was a dry run")


def _rows(ran: Ran) -> Iterator[tuple[str, str, str, str | None]]:
    looks: dict[str, list[Observation]] = {}
    for look in ran.read():
        looks.setdefault(look.path, []).append(look)
    for path, seen in looks.items():
        digest = next((it.outcome[:SHORT] for it in seen if is_digest(it.outcome)), None)
        yield "read", path or ".", ", ".join(dict.fromkeys(it.look for it in seen)), digest
    for change in ran.accepted.changes:
        digest = _digest(change)
        yield "wrote", change.path, change.kind, digest and digest[:SHORT]
    for kind, path in ran.departures():
        manner, _, what = kind.partition(" ")
        yield manner, path, what, None


async def _run(asked: Asked) -> Ran:
    with tempfile.TemporaryDirectory(prefix="stepwell-") as kept:
        sandboxed = step_sandbox.layer(asked.root, toolchain=asked.toolchain, network=asked.network, bwrap=asked.bwrap)
        async with build(sandboxed | artifacts.layer(Path(kept) / "artifacts") | clock.layer()) as built:
            if isinstance(built, Failure):
                raise _cannot_open(asked.root, built.failure())
            return await _execute(get(built.unwrap(), StepSandbox), asked)


async def _execute(given: StepSandbox, asked: Asked) -> Ran:
    if not asked.dry_run:
        settled = await settle(given, asked.boundary, asked.command)
        if isinstance(settled, Failure):
            raise problem_of_sandbox(settled.failure(), asked.root)
        done = settled.unwrap()
        return Ran(done.accepted, True, done.rebases)
    opened = await given.open()
    if isinstance(opened, Failure):
        raise problem_of_sandbox(opened.failure(), asked.root)
    async with opened.unwrap() as transaction:
        executed = await transaction.execute(asked.boundary, asked.command)
    if isinstance(executed, Failure):
        raise problem_of_sandbox(executed.failure(), asked.root)
    return Ran(executed.unwrap(), False, 0)


def _cannot_open(root: str, error: object) -> Problem:
    cause = error.cause if isinstance(error, Failed) else error
    if isinstance(cause, WorkspaceRefusal):
        return Problem(cause.code, str(cause))
    return Problem("cannot_open", f"the folder {root!r} cannot be used: {cause}")


def _variables(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--env {text!r} is not NAME=VALUE")
        found[name] = value
    return found
