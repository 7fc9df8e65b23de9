"""Running a command in a sandbox for somebody at a terminal, and telling what came of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....core.boundary import Boundary, declare
from ....core.command import Command, CommandOutput
from ....core.node import FileNode, is_digest
from ....core.observation import ABSENT, UNDECLARED, Observation
from ....core.outcome import Failure, Outcome, Success
from ....core.step_sandbox import Accepted, Deviation, FileChange, Violations
from ....core.workspace_path import PathProblem
from ....services.step_sandbox import StepSandbox, WorkspaceRefusal
from ... import artifacts, clock, step_sandbox
from ...layer import Failed, build, get
from ...workspace.settlement import SettleFailure, settle
from .options import run_blocking
from .output import Output
from .problem import WRONG_USAGE, Problem
from .sandbox_problems import problem_of_sandbox

__all__ = ["Asked", "run_sandboxed"]

SHORT: Final = 12
"""Digits of a digest in a table."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say."""

    root: str
    reads: Sequence[str]
    writes: Sequence[str]
    removes: Sequence[str]
    expected: bool
    codes: Sequence[int]
    variables: Sequence[str]
    timeout: float | None
    toolchain: Sequence[str]
    network: bool
    bwrap: str | None
    dry_run: bool
    quiet: bool

    def boundary(self) -> Boundary:
        return Boundary(self.reads, self.writes, self.removes, "expected" if self.expected else "hard")

    def command(self, argv: Sequence[str]) -> Command:
        return Command(argv, _variables(self.variables), self.timeout, ok=tuple(self.codes) or (0,))


def run_sandboxed(asked: Asked, argv: Sequence[str], output: Output) -> None:
    """Run a command as the options say, and tell what it read and wrote. What stands in the way is a `Problem`."""
    _check_words(argv)
    try:
        boundary, command = asked.boundary(), asked.command(argv)
    except (TypeError, ValueError) as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None
    declaration = declare(boundary)
    if isinstance(declaration, PathProblem):
        raise Problem("usage", declaration.message, exit_code=WRONG_USAGE)
    if not os.path.isdir(asked.root):
        raise Problem("not_found", f"there is no folder {asked.root!r}: make it first, or name another one by --root")
    with output.progress(f"running {command.argv[0]}"):
        ran = run_blocking(_run(asked, boundary, command))
    if isinstance(ran, Failure):
        raise problem_of_sandbox(ran.failure(), asked.root, writes=declaration.writes, network=asked.network)
    if output.as_json:
        output.json(ran.unwrap().as_json())
    else:
        _print(output, ran.unwrap(), asked.quiet)


def _check_words(argv: Sequence[str]) -> None:
    """A pattern that the shell has put files in the place of leaves some of them as if they were the command."""
    first = argv[0]
    is_program = shutil.which(first) is not None
    if "--" in argv and os.path.exists(first) and not is_program:
        message = f"{first!r} stands before the -- and belongs to no option: quote the pattern, as --reads 'src/*.txt'"
        raise Problem("usage", message, exit_code=WRONG_USAGE)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was accepted."""

    accepted: Accepted[CommandOutput]
    materialized: bool
    rebases: int
    expected: bool

    def read(self) -> list[Observation]:
        """The looks that found something."""
        record = self.accepted.record
        seen = () if record is None else record.observed
        return [it for it in seen if it.outcome not in (ABSENT, UNDECLARED)]

    def departures(self) -> list[tuple[str, str]]:
        """How it departed from what was declared, or might have: in which way, and at which path."""
        deviation = self.accepted.deviation or Deviation(Violations())
        kinds = (
            ("undeclared read", deviation.violations.reads),
            ("undeclared write", deviation.violations.writes),
            ("missing output", deviation.missing_outputs),
            ("surviving removal", deviation.surviving_removals),
            ("undeclared probe", self.missed()),
        )
        return [(kind, path) for kind, paths in kinds for path in paths]

    def missed(self) -> list[str]:
        """What it only looked for, in vain, and the folder has: of interest to whoever asks what it needs."""
        record = self.accepted.record
        seen = record.observed if record is not None and self.expected else ()
        return [it.path for it in seen if it.look == "probe" and it.outcome == UNDECLARED]

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


def _print(output: Output, ran: Ran, quiet: bool) -> None:
    said = ran.accepted.output
    output.passed_on(said.stdout)
    output.passed_on(said.stderr, as_error=True)
    rows = [] if quiet else [*_rows(ran)]
    if rows:
        output.table(("", "path", "how", "digest"), rows, beside=True)
    elif not quiet:
        output.note("it read and wrote none of the folder's files")
    for note in ran.notes():
        output.note(note)
    if ran.accepted.deviation is not None:
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


async def _run(asked: Asked, boundary: Boundary, command: Command) -> Outcome[Ran, SettleFailure]:
    with tempfile.TemporaryDirectory(prefix="stepwell-") as kept:
        sandboxed = step_sandbox.layer(asked.root, toolchain=asked.toolchain, network=asked.network, bwrap=asked.bwrap)
        async with build(sandboxed | artifacts.layer(Path(kept) / "artifacts") | clock.layer()) as built:
            if isinstance(built, Failure):
                raise _cannot_open(asked.root, built.failure())
            return await _execute(get(built.unwrap(), StepSandbox), asked, boundary, command)


async def _execute(
    given: StepSandbox, asked: Asked, boundary: Boundary, command: Command
) -> Outcome[Ran, SettleFailure]:
    if not asked.dry_run:
        settled = await settle(given, boundary, command)
        if isinstance(settled, Failure):
            return settled
        done = settled.unwrap()
        return Success(Ran(done.accepted, True, done.rebases, asked.expected))
    opened = await given.open()
    if isinstance(opened, Failure):
        return opened
    async with opened.unwrap() as transaction:
        executed = await transaction.execute(boundary, command)
    if isinstance(executed, Failure):
        return executed
    return Success(Ran(executed.unwrap(), False, 0, asked.expected))


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
