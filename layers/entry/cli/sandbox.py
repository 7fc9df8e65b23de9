"""`sandbox run`: a command that sees what it is given, and what it read, wrote and was refused."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from ....core.boundary import Boundary, BoundaryMode
from ....core.command import Command, CommandOutput
from ....core.observation import ABSENT, UNDECLARED
from ....core.outcome import Failure
from ....core.step_sandbox import (
    Accepted,
    BodyFailed,
    ExecuteFailure,
    LimitExceeded,
    MaterializationConflict,
    MissingOutput,
    SurvivingRemoval,
    UndeclaredRead,
    UndeclaredWrite,
    UnsupportedBoundary,
    WorkspaceError,
)
from ....services.step_sandbox import StepSandbox, WorkspaceRefusal
from ... import artifacts, clock, step_sandbox
from ...layer import Failed, build, get
from ...workspace.settlement import settle
from .options import Settings, run_blocking, shared
from .output import Output
from .problem import WRONG_USAGE, Problem

__all__ = ["sandbox"]

SHORT: Final = 12
"""Digits of a digest in a table."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    root: str
    boundary: Boundary
    command: Command
    toolchain: tuple[str, ...]
    network: bool
    dry_run: bool


@click.group()
def sandbox() -> None:
    """Commands that see what they are given, and nothing else."""


@sandbox.command(context_settings={"ignore_unknown_options": True})
@click.option("--root", default=".", metavar="DIR", show_default=True, help="The folder that it works on.")
@click.option("--reads", multiple=True, metavar="PATH", help="A file or glob that it may read; may be repeated.")
@click.option("--writes", multiple=True, metavar="PATH", help="A file that it has to write, or a glob of what it may.")
@click.option("--removes", multiple=True, metavar="PATH", help="A file that it has to remove.")
@click.option("--expected", is_flag=True, help="Accept what departs from these, and say so.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable that it is given.")
@click.option("--timeout", type=float, metavar="SECONDS", help="After how long it is ended.")
@click.option("--toolchain", multiple=True, metavar="DIR", help="A further folder of programs and libraries.")
@click.option("--network", is_flag=True, help="Let it reach the network.")
@click.option("--dry-run", is_flag=True, help="Leave the folder as it is.")
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@shared()
@click.pass_obj
def run(
    settings: Settings,
    root: str,
    reads: Sequence[str],
    writes: Sequence[str],
    removes: Sequence[str],
    expected: bool,
    variables: Sequence[str],
    timeout: float | None,
    toolchain: Sequence[str],
    network: bool,
    dry_run: bool,
    argv: Sequence[str],
) -> None:
    """Run a command on copies of the files that it may read, and write back what it made if it kept to that.

    The folder changes all at once when the command has ended well, or not at all. A path is relative to the folder;
    `*` stands for anything in a name and `**` for any folders, so quote it. Nothing is written, and the exit code is 1,
    if the command read or wrote anything else that the folder has, left out what it has to write, or failed.
    """
    mode: BoundaryMode = "expected" if expected else "hard"
    try:
        boundary = Boundary(tuple(reads), tuple(writes), tuple(removes), mode)
        command = Command(tuple(argv), _variables(variables), timeout)
    except (TypeError, ValueError) as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None
    ran = run_blocking(_run(Asked(root, boundary, command, tuple(toolchain), network, dry_run)))
    output = settings.output
    if output.as_json:
        output.json(ran.as_json())
    else:
        _print(output, ran)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was accepted."""

    accepted: Accepted[CommandOutput]
    materialized: bool
    rebases: int

    def read(self) -> list[tuple[str, str, str]]:
        """The path of each look that found something, the kind of look, and the digest of what was found."""
        record = self.accepted.record
        seen = () if record is None else record.observed
        return [(it.path or ".", it.look, it.outcome) for it in seen if it.outcome not in (ABSENT, UNDECLARED)]

    def refused(self) -> list[tuple[str, str]]:
        deviation = self.accepted.deviation
        if deviation is None:
            return []
        kinds = (
            ("undeclared read", deviation.violations.reads),
            ("undeclared write", deviation.violations.writes),
            ("missing output", deviation.missing_outputs),
            ("surviving removal", deviation.surviving_removals),
        )
        return [(path, kind) for kind, paths in kinds for path in paths]

    def as_json(self) -> dict[str, object]:
        accepted = self.accepted
        return {
            "evidence": accepted.evidence,
            "exit_code": accepted.output.exit_code,
            "read": [{"path": path, "look": look, "digest": digest} for path, look, digest in self.read()],
            "wrote": [{"path": change.path, "kind": change.kind} for change in accepted.changes],
            "refused": [{"path": path, "kind": kind.replace(" ", "_")} for path, kind in self.refused()],
            "diff_identity": accepted.diff_identity,
            "materialized": self.materialized,
            "rebases": self.rebases,
            "stdout": accepted.output.stdout.decode(errors="replace"),
            "stderr": accepted.output.stderr.decode(errors="replace"),
        }


def _print(output: Output, ran: Ran) -> None:
    said = ran.accepted.output
    for text in (said.stdout, said.stderr):
        if text:
            output.note(text.decode(errors="replace").rstrip("\n"))
    rows = [("read", path, look if look != "read" else "", digest[:SHORT]) for path, look, digest in ran.read()]
    rows += [("wrote", change.path, change.kind, "") for change in ran.accepted.changes]
    rows += [("refused", path, kind, "") for path, kind in ran.refused()]
    output.table(("", "path", "how", "digest"), rows)
    if not ran.materialized:
        output.note("nothing was written: this was a dry run")


async def _run(asked: Asked) -> Ran:
    with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
        sandboxed = step_sandbox.layer(asked.root, toolchain=asked.toolchain, network=asked.network)
        async with build(sandboxed | artifacts.layer(Path(folder) / "artifacts") | clock.layer()) as built:
            if isinstance(built, Failure):
                raise _cannot_open(asked.root, built.failure())
            return await _execute(get(built.unwrap(), StepSandbox), asked)


async def _execute(given: StepSandbox, asked: Asked) -> Ran:
    if not asked.dry_run:
        settled = await settle(given, asked.boundary, asked.command)
        if isinstance(settled, Failure):
            raise _problem(settled.failure())
        done = settled.unwrap()
        return Ran(done.accepted, True, done.rebases)
    opened = await given.open()
    if isinstance(opened, Failure):
        raise _problem(opened.failure())
    async with opened.unwrap() as transaction:
        executed = await transaction.execute(asked.boundary, asked.command)
    if isinstance(executed, Failure):
        raise _problem(executed.failure())
    return Ran(executed.unwrap(), False, 0)


def _cannot_open(root: str, error: object) -> Problem:
    cause = error.cause if isinstance(error, Failed) else error
    code = cause.code if isinstance(cause, WorkspaceRefusal) else "cannot_open"
    return Problem(code, f"the folder {root!r} cannot be used: {cause}")


def _problem(failure: ExecuteFailure | UnsupportedBoundary | MaterializationConflict) -> Problem:
    match failure:
        case UndeclaredRead(paths=paths):
            return _paths("undeclared_read", "it read what was not declared", paths, "declare them by --reads")
        case UndeclaredWrite(paths=paths):
            return _paths("undeclared_write", "it wrote what was not declared", paths, "declare them by --writes")
        case MissingOutput(paths=paths):
            return _paths("missing_output", "it did not write", paths, "mend it, or leave them out of --writes")
        case SurvivingRemoval(paths=paths):
            return _paths("surviving_removal", "it did not remove", paths, "mend it, or leave them out of --removes")
        case MaterializationConflict(paths):
            return _paths("conflict", "others keep changing the same files", paths, "try again")
        case BodyFailed(cause):
            said = f"\n{cause.traceback}" if cause.traceback else ""
            return Problem("body_failed", f"{cause.message}; nothing was written{said}", details={"type": cause.type})
        case LimitExceeded(what, actual, limit):
            return Problem("limit_exceeded", f"it went beyond the limit of {what}, {limit}", details={"actual": actual})
        case UnsupportedBoundary(message=message) | WorkspaceError(_, message):
            return Problem(failure.code, message)


def _paths(code: str, what: str, paths: Sequence[str], hint: str) -> Problem:
    listed = "".join(f"\n  {path}" for path in paths)
    return Problem(code, f"{what}:{listed}\nnothing was written; {hint}", details={"paths": list(paths)})


def _variables(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--env {text!r} is not NAME=VALUE")
        found[name] = value
    return found
