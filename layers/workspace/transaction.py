"""The transaction of a sandbox: seed, run the body, judge, and write what was accepted back to the host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Self, TypeVar, final, overload

from ...core.boundary import Boundary, Declaration, declare
from ...core.command import Command, CommandOutput
from ...core.measured import MeasuredReads, measured_reads
from ...core.model import Unavailable
from ...core.node import FileNode
from ...core.outcome import Failure, Outcome, Success
from ...core.outputs import Outputs
from ...core.replay import ReplayFailure
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
from ...core.tree import NodeChange, change_kind
from ...core.verdict import Found, Judged, judge
from ...core.workspace_limits import WorkspaceLimits
from ...core.workspace_path import PathProblem
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts, InvalidDigest
from ...services.step_sandbox import Workspace
from .bodies import Bodies
from .ended import Ended, Left
from .host import CopyBack, Reads, Seed, WorkspaceHost
from .options import Options
from .recording import Recording, put_artifact
from .replay import Replayer
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
    recording: Recording
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    written: bool = False


@final
class Transaction:
    """A `CachingTransaction` over a host. Bodies may be executed one after the other, or at the same time."""

    def __init__(self, host: WorkspaceHost, artifacts: Artifacts, bodies: Bodies, options: Options) -> None:
        self._host = host
        self._artifacts = artifacts
        self._bodies = bodies
        self._options = options
        self._replayer = Replayer(host, artifacts, options)
        self._kept: dict[int, _Kept] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._closed = True
        kept = tuple(self._kept.values())
        self._kept.clear()
        for each in kept:
            await to_its_end(each.recording.close())

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
        limits = self._options.limits
        declaration = self._declared(boundary, "execute")
        if not isinstance(declaration, Declaration):
            return Failure(declaration)
        seeded = await in_thread(lambda: self._host.seed(declaration, limits), drop=_close_seed)
        if isinstance(seeded, Failure):
            return seeded
        seed = seeded.unwrap()
        async with AsyncExitStack() as held:
            _ = held.callback(seed.contents.close)
            return await self._execute(seed, declaration, body, held)

    async def _execute(
        self, seed: Seed, declaration: Declaration, body: Command | Callable[[Workspace], object], held: AsyncExitStack
    ) -> Outcome[Accepted[object], ExecuteFailure]:
        """What the body left stays open for as long as `held`; it is taken over if it may be needed to be recorded."""
        ended = await held.enter_async_context(self._bodies.run(seed, declaration, body, self._host.has))
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
        return Success(self._accept(seed, declaration, verdict, ended, kept.unwrap(), held))

    def _accept(
        self,
        seed: Seed,
        declaration: Declaration,
        verdict: Judged,
        ended: Ended,
        made: tuple[FileChange, ...],
        held: AsyncExitStack,
    ) -> Accepted[object]:
        deviation = verdict.deviation
        accepted = Accepted(
            output=ended.output,
            changes=made,
            evidence=ended.level,
            violations=Violations() if deviation is None else deviation.violations,
            diff_identity=verdict.diff_identity,
            effects=tuple(ended.effects),
            record=ended.evidence,
            deviation=deviation,
        )
        measured = measured_reads(declaration, seed.tree, seed.matches)
        needed = held.pop_all() if _has_unchanged(verdict) else AsyncExitStack()
        recording = Recording(verdict.outputs, declaration, measured, made, ended.left.open, needed)
        reads = Reads(declaration, seed.tree, self._options.limits)
        self._kept[id(accepted)] = _Kept(accepted, verdict.changes, declaration.trees, reads, recording)
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
                problem = await put_artifact(self._artifacts, left.open, change.path)
                if problem is not None:
                    return Failure(problem)
            changes.append(FileChange(change.path, change_kind(change), change.before, after, data))
        return Success(tuple(changes))

    # --- materializing ------------------------------------------------------

    async def materialize(
        self, accepted: Accepted[object]
    ) -> Outcome[Materialized, MaterializationConflict | WorkspaceError]:
        if self._closed:
            return Failure(_CLOSED)
        kept = self._kept.get(id(accepted))
        if kept is None:
            return Failure(_UNKNOWN)
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

    # --- caching ------------------------------------------------------------

    def policy(self, body: Command | Callable[..., object]) -> str:
        return self._bodies.policy_digest(body)

    async def measure(self, boundary: Boundary) -> Outcome[MeasuredReads, LimitExceeded | WorkspaceError]:
        declaration = self._declared(boundary, "measure")
        if not isinstance(declaration, Declaration):
            return Failure(declaration)
        return await asyncio.to_thread(self._host.measure_reads, declaration, self._options.limits)

    async def record(self, accepted: Accepted[object]) -> Outcome[Outputs, LimitExceeded | WorkspaceError]:
        if self._closed:
            return Failure(_CLOSED)
        kept = self._kept.get(id(accepted))
        if kept is None:
            return Failure(_UNKNOWN)
        if accepted.deviation is not None:
            message = "this result departed from what its step declares, and cannot be recorded"
            return Failure(WorkspaceError("unverified_read_set", message))
        return await kept.recording.record(self._artifacts, self._options)

    async def replay(
        self, boundary: Boundary, outputs: Outputs, reads: MeasuredReads
    ) -> Outcome[Materialized, ReplayFailure]:
        declaration = self._declared(boundary, "replay")
        if not isinstance(declaration, Declaration):
            return Failure(declaration)
        return await self._replayer.replay(declaration, outputs, reads)

    def _declared(self, boundary: object, call: str) -> Declaration | LimitExceeded | WorkspaceError:
        if not isinstance(boundary, Boundary):
            raise TypeError(f"{call} needs a Boundary, not {type(boundary).__name__}")
        if self._closed:
            return _CLOSED
        declaration = declare(boundary, self._options.portable_names, self._options.limits)
        return declaration.as_failure() if isinstance(declaration, PathProblem) else declaration


_UNKNOWN = WorkspaceError(
    "unknown_result", "this result was not given by execute of this transaction; execute the step here first"
)
_CLOSED = WorkspaceError("closed", "the transaction has been closed; open another one")


def _check_call(boundary: object, body: object) -> None:
    if not isinstance(boundary, Boundary):
        raise TypeError(f"execute needs a Boundary, not {type(boundary).__name__}")
    if not isinstance(body, Command) and not callable(body):
        raise TypeError(f"the body of a step is a function of its workspace or a Command, not {body!r}")


def _has_unchanged(verdict: Judged) -> bool:
    """Whether a file stands at a declared target that is no change, so that its bytes are kept nowhere else."""
    changed = {change.path for change in verdict.changes}
    left = (path for path, node in verdict.outputs.items() if isinstance(node, FileNode) and path not in changed)
    return verdict.deviation is None and next(left, None) is not None


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
