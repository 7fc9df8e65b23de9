"""What a sandbox can do on this machine, found out by trying it in a folder of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ....core.boundary import Boundary
from ....core.command import CommandRefused
from ....core.outcome import Failure, Outcome, Success
from ....core.step_sandbox import EvidenceLevel
from ....services.step_sandbox import StepSandbox, Workspace
from ... import artifacts, step_sandbox
from ...layer import Failed, build, get
from ...workspace.command.runner import CommandRunner, Proof
from .finding import Finding

__all__ = ["sandbox_findings"]


async def sandbox_findings(bwrap: str | None = None, folder: str | None = None) -> list[Finding]:
    """Whether commands can be isolated, whether folders can be written to as a whole, and what is proved by either.

    What cannot be done is a remark: it is refused when somebody asks for it, and nothing else needs it. `bwrap` is the
    path of bubblewrap, which is looked for in `PATH` by default; `folder` is one to try in place of a new one, and it
    is wrong if that cannot be used.
    """
    found = await asyncio.to_thread(shutil.which, bwrap or "bwrap")
    proof = await _prove(bwrap)
    python = await _python(folder)
    return [_bubblewrap(found, proof), _self_test(found, proof), _folder(python, folder), _evidence(proof, python)]


async def _prove(bwrap: str | None) -> Outcome[Proof, CommandRefused]:
    runner = CommandRunner(bwrap=bwrap)
    try:
        return await runner.prove()
    finally:
        await runner.close()


async def _python(folder: str | None) -> Outcome[EvidenceLevel, str]:
    if folder is not None:
        return await _try(folder)
    async with _new_folder() as made:
        return await _try(made)


async def _try(folder: str) -> Outcome[EvidenceLevel, str]:
    """How well it is known what a Python body reads, or why there is no sandbox over the folder."""
    async with build(step_sandbox.layer(folder) | artifacts.layer_noop()) as built:
        if isinstance(built, Failure):
            error = built.failure()
            return Failure(str(error.cause if isinstance(error, Failed) else error))
        async with (await get(built.unwrap(), StepSandbox).open()).unwrap() as transaction:
            executed = await transaction.execute(Boundary(), _look)
            return Success(executed.unwrap().evidence)


@asynccontextmanager
async def _new_folder() -> AsyncGenerator[str]:
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="stepwell-doctor-")
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


def _look(workspace: Workspace) -> None:
    _ = workspace.list_dir("")


def _bubblewrap(found: str | None, proof: Outcome[Proof, CommandRefused]) -> Finding:
    if found is None:
        return Finding("bubblewrap", None, "not found", remark=_reason(proof))
    version = proof.unwrap().version if isinstance(proof, Success) else None
    return Finding("bubblewrap", version or found, f"{version or 'of unknown version'}, {found}")


def _self_test(found: str | None, proof: Outcome[Proof, CommandRefused]) -> Finding:
    """Whether nothing got out of a sandbox that was not to, and all was seen."""
    if isinstance(proof, Success):
        return Finding("sandbox_self_test", "passed")
    if found is None:
        return Finding("sandbox_self_test", None, "not made, without bubblewrap")
    refused = proof.failure()
    return Finding("sandbox_self_test", f"failed: {refused.probe}", remark=refused.message)


def _folder(python: Outcome[EvidenceLevel, str], named: str | None) -> Finding:
    if isinstance(python, Success):
        return Finding("sandbox_folder", "all or nothing", "written to all at once, or not at all")
    why = python.failure()
    if named is None:
        return Finding("sandbox_folder", None, "refused", remark=why)
    return Finding("sandbox_folder", None, "refused", wrong=why)


def _evidence(proof: Outcome[Proof, CommandRefused], python: Outcome[EvidenceLevel, str]) -> Finding:
    """How well it is known that a step read nothing but what it declared."""
    level = python.unwrap() if isinstance(python, Success) else None
    command = "enforced" if isinstance(proof, Success) and level is not None else None
    shown = f"commands {command or 'refused'}, Python bodies {level or 'refused'}"
    return Finding("sandbox_evidence", {"command": command, "python": level}, shown)


def _reason(proof: Outcome[Proof, CommandRefused]) -> str | None:
    return f"commands are refused: {proof.failure().message}" if isinstance(proof, Failure) else None
