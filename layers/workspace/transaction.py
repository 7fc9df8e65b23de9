"""The transaction of a sandbox: seed, run the body, judge, and write what was accepted back to the host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Literal, Self, TypeVar, final, overload

from ...core.boundary import Boundary, Declaration, declare
from ...core.command import Command, CommandOutput
from ...core.model import TooLarge, Unavailable
from ...core.node import FileNode
from ...core.outcome import Failure, Outcome, Success
from ...core.step_sandbox import (
    Accepted,
    BodyFailed,
    ExecuteFailure,
    FileChange,
    LimitExceeded,
    MaterializationConflict,
    Materialized,
    Violations,
    WorkspaceError,
)
from ...core.tree import NodeChange
from ...core.verdict import Found, Judged, judge
from ...core.workspace_limits import WorkspaceLimits
from ...core.workspace_path import PathProblem
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts, InvalidDigest
from ...services.step_sandbox import Workspace
from .bodies import Bodies
from .ended import Ended, Left
from .host import CopyBack, Reads, Seed, WorkspaceHost
from .options import Options
from .threads import in_thread, to_its_end

__all__ = ["Transaction"]

_R = TypeVar("_R")


@final
@dataclass(slots=True)
class _Kept:
    """What an accepted result needs to be materialized."""

    accepted: Accepted[object]  # held, so that no other result can have its identity
    changes: tuple[NodeChange, ...]
    trees: tuple[str, ...]
    reads: Reads
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    written: bool = False


@final
class Transaction:
    """A `WorkspaceTransaction` over a host. Bodies may be executed one after the other, or at the same time."""

    def __init__(self, host: WorkspaceHost, artifacts: Artifacts, bodies: Bodies, options: Options) -> None:
        self._host = host
        self._artifacts = artifacts
        self._bodies = bodies
        self._options = options
        self._kept: dict[int, _Kept] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._closed = True
        self._kept.clear()

    # --- executing ----------------------------------------------------------

    @overload
    async def execute(self, boundary: Boundary, body: Command) -> Outcome[Accepted[CommandOutput], ExecuteFailure]: ...
    @overload
    async def execute(
        self, boundary: Boundary, body: Callable[[Workspace], Awaitable[_R]]
    ) -> Outcome[Accepted[_R], ExecuteFailure]: ...
    @overload
    async def execute(
        self, boundary: Boundary, body: Callable[[Workspace], _R]
    ) -> Outcome[Accepted[_R], ExecuteFailure]: ...
    async def execute(
        self, boundary: Boundary, body: Command | Callable[[Workspace], object]
    ) -> Outcome[Accepted[object], ExecuteFailure]:
        _check_call(boundary, body)
        if self._closed:
            return Failure(_CLOSED)
        limits = self._options.limits
        declaration = declare(boundary, self._options.portable_names, limits)
        if isinstance(declaration, PathProblem):
            return Failure(declaration.as_failure())
        seeded = await in_thread(lambda: self._host.seed(declaration, limits), drop=_close_seed)
        if isinstance(seeded, Failure):
            return seeded
        seed = seeded.unwrap()
        try:
            return await self._execute(seed, declaration, body)
        finally:
            seed.contents.close()

    async def _execute(
        self, seed: Seed, declaration: Declaration, body: Command | Callable[[Workspace], object]
    ) -> Outcome[Accepted[object], ExecuteFailure]:
        async with self._bodies.run(seed, declaration, body, self._host.has) as ended:
            if isinstance(ended, LimitExceeded | WorkspaceError):
                return Failure(ended)
            left = ended.left
            found = Found(seed.tree, seed.baseline, left.tree, left.undeclared, ended.failed, ended.command)
            verdict = await asyncio.to_thread(judge, found, declaration, self._options.portable_names)
            if not isinstance(verdict, Judged):
                return Failure(verdict)
            if ended.failed is not None:
                return Failure(ended.refused or BodyFailed(ended.failed, command=ended.command))
            kept = await self._keep(verdict, left)
        if isinstance(kept, Failure):
            return kept
        reads = Reads(declaration, seed.tree, self._options.limits)
        return Success(self._accept(reads, verdict, ended, kept.unwrap()))

    def _accept(self, reads: Reads, verdict: Judged, ended: Ended, changes: tuple[FileChange, ...]) -> Accepted[object]:
        deviation = verdict.deviation
        accepted = Accepted(
            output=ended.output,
            changes=changes,
            evidence=ended.level,
            violations=Violations() if deviation is None else deviation.violations,
            diff_identity=verdict.diff_identity,
            effects=tuple(ended.effects),
            record=ended.evidence,
            deviation=deviation,
        )
        self._kept[id(accepted)] = _Kept(accepted, verdict.changes, reads.declaration.trees, reads)
        return accepted

    async def _keep(
        self, verdict: Judged, left: Left
    ) -> Outcome[tuple[FileChange, ...], LimitExceeded | WorkspaceError]:
        """The changes with the bytes of small files in them; those of large ones become artifacts."""
        kept = await asyncio.to_thread(_small, verdict.changes, left.open, self._options.limits)
        changes: list[FileChange] = []
        for change in verdict.changes:
            after, data = change.after, kept.get(change.path)
            if isinstance(after, FileNode) and data is None:
                problem = await self._put(left.open, change.path)
                if problem is not None:
                    return Failure(problem)
            changes.append(FileChange(change.path, _kind(change), change.before, after, data))
        return Success(tuple(changes))

    async def _put(self, open_: Callable[[str], BinaryIO], path: str) -> LimitExceeded | WorkspaceError | None:
        with open_(path) as source:
            put = await self._artifacts.put_stream(source)
        if isinstance(put, Success):
            return None
        match put.failure():
            case Unavailable(reason):
                return WorkspaceError("host_unavailable", f"the output {path} cannot be kept as an artifact: {reason}")
            case TooLarge(_, size, limit):
                return LimitExceeded("artifact_bytes", size, limit)

    # --- materializing ------------------------------------------------------

    async def materialize(
        self, accepted: Accepted[object]
    ) -> Outcome[Materialized, MaterializationConflict | WorkspaceError]:
        if self._closed:
            return Failure(_CLOSED)
        kept = self._kept.get(id(accepted))
        if kept is None:
            message = "this result was not given by execute of this transaction; execute the step here first"
            return Failure(WorkspaceError("unknown_result", message))
        async with kept.writing:
            if kept.written or not kept.changes:
                return Success(Materialized(()))
            return await self._copy_back(kept)

    async def _copy_back(self, kept: _Kept) -> Outcome[Materialized, MaterializationConflict | WorkspaceError]:
        copy_back = await in_thread(
            lambda: self._host.copy_back(kept.changes, trees=kept.trees, reads=kept.reads),
            drop=lambda begun: begun.discard(),
        )

        def commit() -> Outcome[object, MaterializationConflict | WorkspaceError]:
            committed = copy_back.commit()
            kept.written = isinstance(committed, Success)  # also if nobody waits for the answer any more
            return committed

        try:
            await to_its_end(asyncio.to_thread(_stage_small, copy_back, kept.accepted.changes))
            for change in kept.accepted.changes:
                if isinstance(change.after, FileNode) and change.data is None:
                    problem = await self._stage(copy_back, change.path, change.after.digest)
                    if problem is not None:
                        return Failure(problem)
            committed = await to_its_end(asyncio.to_thread(commit))
        finally:
            await to_its_end(asyncio.to_thread(copy_back.discard))
        if isinstance(committed, Failure):
            return committed
        return Success(Materialized(kept.accepted.changes))

    async def _stage(self, copy_back: CopyBack, path: str, digest: str) -> WorkspaceError | None:
        """Bring the bytes of a large file beside the host's own."""
        writer = copy_back.stage(path)
        try:
            copied = await self._artifacts.copy(digest, writer.write)
        finally:
            writer.close()
        if isinstance(copied, Success):
            return None
        match copied.failure():
            case Unavailable(reason):
                return WorkspaceError("host_unavailable", f"the bytes of {path} cannot be read: {reason}")
            case ArtifactMissing() | InvalidDigest():
                message = f"the bytes of {path} are not there any more: artifact {digest}; execute the step again"
                return WorkspaceError("not_found", message)
            case ArtifactCorruption():
                message = f"the bytes of {path} are damaged: artifact {digest}; execute the step again"
                return WorkspaceError("artifact_corruption", message)


_CLOSED = WorkspaceError("closed", "the transaction has been closed; open another one")


def _check_call(boundary: object, body: object) -> None:
    if not isinstance(boundary, Boundary):
        raise TypeError(f"execute needs a Boundary, not {type(boundary).__name__}")
    if not isinstance(body, Command) and not callable(body):
        raise TypeError(f"the body of a step is a function of its workspace or a Command, not {body!r}")


def _kind(change: NodeChange) -> Literal["create", "modify", "remove"]:
    if change.after is None:
        return "remove"
    return "create" if change.before is None else "modify"


def _stage_small(copy_back: CopyBack, made: Iterable[FileChange]) -> None:
    for change in made:
        if change.data is not None:
            writer = copy_back.stage(change.path)
            writer.write(change.data)
            writer.close()


def _small(made: Iterable[NodeChange], open_: Callable[[str], BinaryIO], limits: WorkspaceLimits) -> dict[str, bytes]:
    """The bytes of the files that are small enough to be kept in a result, by path."""
    kept: dict[str, bytes] = {}
    room = limits.inline_total
    for change in made:
        if isinstance(change.after, FileNode) and change.after.size <= min(limits.inline_bytes, room):
            room -= change.after.size
            with open_(change.path) as source:
                kept[change.path] = source.read()
    return kept


def _close_seed(seeded: Outcome[Seed, LimitExceeded | WorkspaceError]) -> None:
    if isinstance(seeded, Success):
        seeded.unwrap().contents.close()
