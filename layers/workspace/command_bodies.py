"""Commands as bodies: executed by a runner, and what came of it told as of any other body."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, final

from ...core.boundary import Declaration
from ...core.command import Command, CommandFailure, CommandOutput, CommandRefused
from ...core.evidence import Evidence
from ...core.link_rules import places
from ...core.lookup import Lookup, Sightings
from ...core.measured import base_digest
from ...core.model import RecordedError
from ...core.node import FileNode
from ...core.observation import ABSENT, UNDECLARED, Observation, names_digest
from ...core.outcome import Failure
from ...core.step_sandbox import LimitExceeded, WorkspaceError
from ...core.tree import path_order
from .command.runner import CommandLost, CommandResult, CommandRunner, Proof, RunFailure
from .ended import Ended, Left
from .host import Seed
from .options import Options
from .threads import to_its_end

__all__ = ["IsolatedCommands"]

SHOWN_BYTES: Final = 4_096
"""How much of the end of what a failed command printed on each of stdout and stderr is recorded as its error."""

KEPT_BYTES: Final = 64 << 10
"""How much of the end of each is kept beside that."""

ASKED: Final = 10_000
TOLD: Final = 5
"""Of how many probes it is asked whether the folder has them, and how many are told of a command that failed."""


@final
class IsolatedCommands:
    """Executes commands under bubblewrap. What one looks up and the host has, but the step did not declare, is told."""

    def __init__(self, runner: CommandRunner, options: Options) -> None:
        self._runner = runner
        self._options = options

    @asynccontextmanager
    async def run(
        self, seed: Seed, declaration: Declaration, command: Command, has: Callable[[str], bool]
    ) -> AsyncGenerator[Ended | LimitExceeded | WorkspaceError]:
        proof = await self._runner.prove()
        if isinstance(proof, Failure):
            yield _refusal(proof.failure())
            return
        ran = await self._runner.run(seed, declaration, command, self._options.limits)
        if isinstance(ran, Failure):
            yield _refusal(ran.failure())
            return
        result = ran.unwrap()
        try:
            judged = asyncio.to_thread(self._ended, result, proof.unwrap(), seed, declaration, command, has)
            yield await to_its_end(judged)
        finally:
            result.close()

    def _ended(
        self,
        result: CommandResult,
        proof: Proof,
        seed: Seed,
        declaration: Declaration,
        command: Command,
        has: Callable[[str], bool],
    ) -> Ended | WorkspaceError:
        if result.unsupported:
            left = ", ".join(f"{each.path} ({each.what})" for each in result.unsupported[:5])
            return WorkspaceError("unsupported_file_type", f"the command left what no workspace holds: {left}")
        seeded = places(seed.tree)
        sightings = result.sightings(
            declared=declaration.reads,
            seeded=seeded.__contains__,
            host_has=lambda path: os.path.lexists(path) if path.startswith("/") else has(path),
            strict_probes=self._options.strict_probes,
        )
        missed = _missed(sightings, has)
        failed = None
        if result.output.exit_code not in command.ok:
            failed = _failure(result.output, missed, _read_only(sightings, seed, declaration))
        evidence = Evidence(
            backend=f"{proof.backend} {proof.version}",
            policy_digest=proof.policy_digest,
            probe_digest=proof.probe_digest,
            completeness="complete" if result.complete else "partial",
            base_digest=base_digest(seed.tree),
            observed=tuple(_observed(sightings, seed, frozenset(missed))),
            notes=_notes(result),
        )
        return Ended(
            left=Left(result.tree, result.contents.open, frozenset(_undeclared(sightings, seed, declaration))),
            output=result.output,
            level="enforced",
            evidence=evidence,
            failed=failed and _recorded(command.argv[0], failed),
            command=failed,
        )


def _refusal(failure: RunFailure) -> LimitExceeded | WorkspaceError:
    match failure:
        case CommandRefused(_, message):
            return WorkspaceError("unsupported_boundary", message)
        case CommandLost(reason):
            return WorkspaceError("host_unavailable", reason)
        case LimitExceeded() | WorkspaceError():
            return failure


def _missed(sightings: Sightings, has: Callable[[str], bool]) -> list[str]:
    """What was only looked for, and the folder has; of a great many probes it is asked of the first."""
    return [path for path in sightings.probes[:ASKED] if not path.startswith("/") and has(path)]


def _read_only(sightings: Sightings, seed: Seed, declaration: Declaration) -> list[str]:
    """The declared reads that were opened for writing, which is refused."""
    kinds = ("create", "append", "update")
    opened = (look.path for look in sightings.seen if look.kind in kinds and look.path in seed.tree)
    return [path for path in dict.fromkeys(opened) if not declaration.writes(path) and not declaration.removes(path)]


def _failure(output: CommandOutput, missed: list[str], read_only: list[str]) -> CommandFailure:
    return CommandFailure(
        exit_code=output.exit_code,
        stdout=_end(output.stdout, KEPT_BYTES),
        stderr=_end(output.stderr, KEPT_BYTES),
        missed=tuple(missed[:TOLD]),
        read_only=tuple(read_only[:TOLD]),
    )


def _recorded(program: str, failed: CommandFailure) -> RecordedError:
    message = f"{program} ended with exit code {failed.exit_code}"
    if failed.missed:
        message += f" (it looked for {', '.join(failed.missed)}, which the folder has and the step does not declare)"
    if failed.read_only:
        message += f" (it opened {', '.join(failed.read_only)} for writing, which the step declares as a read only)"
    last = (failed.stderr.strip() or failed.stdout.strip()).rpartition("\n")[2]
    printed = [text for text in (failed.stdout, failed.stderr) if text.strip()]
    said = "\n".join(_end(text.encode(), SHOWN_BYTES).removesuffix("\n") for text in printed)
    return RecordedError("CommandFailed", message + (f": {last}" if last else ""), f"{said}\n" if said else "")


def _end(data: bytes, size: int) -> str:
    return data[-size:].decode(errors="replace")


def _undeclared(sightings: Sightings, seed: Seed, declaration: Declaration) -> list[str]:
    """What was looked at without leave; the content of a file that is there only to be removed is that too."""
    removals = (it.path for it in sightings.seen if it.kind in ("read", "update", "exec") and it.path in seed.tree)
    return [*sightings.undeclared, *(path for path in removals if not declaration.reads(path))]


def _observed(sightings: Sightings, seed: Seed, missed: frozenset[str]) -> list[Observation]:
    folders = places(seed.tree)
    seen = [_observation(look, seed) for look in sightings.seen if look.path in seed.tree]
    listed = [look.path for look in sightings.seen if look.kind == "list" and look.path in folders]
    seen += [Observation("list", path, names_digest(_names(path, seed))) for path in listed]
    probes = [Observation("probe", path, UNDECLARED if path in missed else ABSENT) for path in sightings.probes]
    return [*seen, *(Observation("read", path, UNDECLARED) for path in sightings.undeclared), *probes]


def _names(folder: str, seed: Seed) -> list[str]:
    """What a folder was seeded with, in the order of bytes."""
    inside = f"{folder}/" if folder else ""
    names = {path[len(inside) :].partition("/")[0] for path in seed.tree if path.startswith(inside)}
    return sorted(names, key=path_order)


def _observation(look: Lookup, seed: Seed) -> Observation:
    node = seed.tree[look.path]
    outcome = node.digest if isinstance(node, FileNode) else "present"
    match look.kind:
        case "create" | "append" | "update" | "truncate":
            return Observation("read", look.path, outcome)
        case kind:
            return Observation(kind, look.path, outcome)


def _notes(result: CommandResult) -> tuple[str, ...]:
    cut = (("stdout", result.stdout_cut), ("stderr", result.stderr_cut))
    return tuple(f"{stream} was cut off" for stream, is_cut in cut if is_cut)
