"""Brings recorded outputs to a host, by the copy-back that materializing goes by."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import final

from ...core.boundary import Declaration
from ...core.measured import MeasuredReads
from ...core.model import Unavailable
from ...core.node import FileNode
from ...core.outcome import Failure, Outcome, Success
from ...core.outputs import Outputs
from ...core.replay import BoundaryCorruption, MissingArtifact, ReplayFailure
from ...core.replay_plan import find_problem, replay_changes
from ...core.step_sandbox import FileChange, Materialized, WorkspaceError
from ...core.tree import NodeChange, change_kind
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts, InvalidDigest
from .host import CopyBack, Reads, WorkspaceHost
from .options import Options
from .threads import in_thread, to_its_end

__all__ = ["Replayer"]


@final
class Replayer:
    """Replays records on one host. Bytes are copied, and verified while they are."""

    def __init__(self, host: WorkspaceHost, artifacts: Artifacts, options: Options) -> None:
        self._host = host
        self._artifacts = artifacts
        self._options = options

    async def replay(
        self, declaration: Declaration, outputs: Outputs, reads: MeasuredReads
    ) -> Outcome[Materialized, ReplayFailure]:
        """Make the targets what the record says; nothing is written that is so already."""
        limits, portable = self._options.limits, self._options.portable_names
        problem = await asyncio.to_thread(find_problem, outputs, declaration, reads, limits, portable)
        if problem is not None:
            return Failure(problem)
        named = [*outputs.tree(), *outputs.removed]
        standing = await asyncio.to_thread(self._host.standing, declaration, named, limits)
        if isinstance(standing, Failure):
            return standing
        planned = await asyncio.to_thread(replay_changes, outputs, declaration, standing.unwrap())
        if isinstance(planned, WorkspaceError):
            return Failure(planned)
        there = {path: node for path, node in reads.files if node is not None}
        inline = {entry.path: entry.data for entry in outputs.entries if entry.data is not None}
        failed = await self._copy_back(planned, inline, Reads(declaration, there, limits))
        if failed is not None:
            return Failure(failed)
        # A directory that only has to stay when it is emptied is among the changes, and was there before.
        made = [change for change in planned if standing.unwrap().get(change.path) != change.after]
        return Success(Materialized(tuple(_told(change, inline.get(change.path)) for change in made)))

    async def _copy_back(
        self, made: tuple[NodeChange, ...], inline: Mapping[str, bytes], reads: Reads
    ) -> ReplayFailure | None:
        copy_back = await in_thread(
            lambda: self._host.copy_back(made, trees=reads.declaration.trees, reads=reads),
            drop=lambda begun: begun.discard(),
        )
        try:
            await to_its_end(asyncio.to_thread(_stage_inline, copy_back, made, inline))
            for change in made:
                if isinstance(change.after, FileNode) and change.path not in inline:
                    problem = await self._stage(copy_back, change.path, change.after)
                    if problem is not None:
                        return problem
            committed = await to_its_end(asyncio.to_thread(copy_back.commit))
        finally:
            await to_its_end(asyncio.to_thread(copy_back.discard))
        return committed.failure() if isinstance(committed, Failure) else None

    async def _stage(
        self, copy_back: CopyBack, path: str, node: FileNode
    ) -> MissingArtifact | BoundaryCorruption | WorkspaceError | None:
        """Bring the bytes of an artifact beside the host's own."""
        writer = copy_back.stage(path)
        try:
            copied = await self._artifacts.copy(node.digest, writer.write)
        finally:
            writer.close()
        if isinstance(copied, Success):
            right = copied.unwrap() == node.size
            return None if right else BoundaryCorruption(path, node.digest, "invalid_size")
        match copied.failure():
            case Unavailable(reason):
                return WorkspaceError("host_unavailable", f"the bytes of {path} cannot be read: {reason}")
            case ArtifactMissing() | InvalidDigest():
                return MissingArtifact(path, node.digest)
            case ArtifactCorruption(_, measured):
                return BoundaryCorruption(path, node.digest, measured or "unreadable")


def _stage_inline(copy_back: CopyBack, made: tuple[NodeChange, ...], inline: Mapping[str, bytes]) -> None:
    for change in made:
        if isinstance(change.after, FileNode) and change.path in inline:
            writer = copy_back.stage(change.path)
            writer.write(inline[change.path])
            writer.close()


def _told(change: NodeChange, data: bytes | None) -> FileChange:
    return FileChange(change.path, change_kind(change), change.before, change.after, data)
