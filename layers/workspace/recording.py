"""Records what an accepted result made, from the bytes that its body left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import BinaryIO, final

from ...core.boundary import Declaration
from ...core.measured import MeasuredReads
from ...core.model import TooLarge, Unavailable
from ...core.node import FileNode, Tree
from ...core.outcome import Failure, Outcome, Success
from ...core.outputs import Output, Outputs, needed
from ...core.replay import BoundaryCorruption
from ...core.replay_plan import find_problem
from ...core.step_sandbox import FileChange, LimitExceeded, WorkspaceError
from ...core.tree import path_order
from ...services.artifacts import Artifacts, InvalidDigest
from .options import Options

__all__ = ["Recording", "put_artifact"]


@final
class Recording:
    """The record of one accepted result, made when it is first asked for.

    `outputs` is what stands at the declared targets. The bytes of what changed are in `made` or are artifacts already;
    those of the rest are read from what the body left, which `held` keeps open until then.
    """

    def __init__(
        self,
        outputs: Tree,
        declaration: Declaration,
        reads: MeasuredReads,
        made: tuple[FileChange, ...],
        open_: Callable[[str], BinaryIO],
        held: AsyncExitStack,
    ) -> None:
        self._outputs = outputs
        self._declaration = declaration
        self._reads = reads
        self._made = {change.path: change for change in made}
        self._open = open_
        self._held = held
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._recorded: Outputs | None = None

    async def record(self, artifacts: Artifacts, options: Options) -> Outcome[Outputs, LimitExceeded | WorkspaceError]:
        """The record; all that is not in it is in the artifact store. After a failure it may be tried again."""
        async with self._lock:
            if self._is_closed:
                return Failure(WorkspaceError("closed", "the transaction has been closed; open another one"))
            if self._recorded is None:
                recorded = await self._record(artifacts, options)
                if isinstance(recorded, Failure):
                    return recorded
                self._recorded = recorded.unwrap()
                await self._held.aclose()
            return await self._verified(self._recorded, artifacts)

    async def close(self) -> None:
        """Let go of what the body left; nothing is recorded from here on."""
        async with self._lock:
            self._is_closed = True
            await self._held.aclose()

    async def _record(self, artifacts: Artifacts, options: Options) -> Outcome[Outputs, LimitExceeded | WorkspaceError]:
        entries = await asyncio.to_thread(self._entries, options)
        outputs = Outputs(entries, self._declaration.removals)
        found = find_problem(outputs, self._declaration, self._reads, options.limits, options.portable_names)
        if isinstance(found, BoundaryCorruption):
            raise RuntimeError(f"what the step made contradicts itself: {found}")
        if found is not None:
            return Failure(found)
        for entry in entries:
            if isinstance(entry.node, FileNode) and entry.data is None and not self._is_artifact(entry.path):
                problem = await self._put(artifacts, entry.path)
                if problem is not None:
                    return Failure(problem)
        return Success(outputs)

    def _entries(self, options: Options) -> tuple[Output, ...]:
        """The entries with the bytes of small files in them, as far as there is room."""
        room = options.limits.inline_total
        entries: list[Output] = []
        for path in sorted(self._outputs, key=path_order):
            node, data = self._outputs[path], None
            if isinstance(node, FileNode) and node.size <= min(options.limits.inline_bytes, room):
                data = self._small(path)
                room -= 0 if data is None else node.size
            entries.append(Output(path, node, data))
        return tuple(entries)

    def _small(self, path: str) -> bytes | None:
        """The bytes of a small file; None if they are an artifact already."""
        if path in self._made:
            return self._made[path].data
        with self._open(path) as source:
            return source.read()

    def _is_artifact(self, path: str) -> bool:
        return path in self._made and self._made[path].data is None

    async def _put(self, artifacts: Artifacts, path: str) -> LimitExceeded | WorkspaceError | None:
        data = self._made[path].data if path in self._made else None
        if data is None:
            return await put_artifact(artifacts, self._open, path)
        return _refusal(await artifacts.put(data), path)

    async def _verified(
        self, outputs: Outputs, artifacts: Artifacts
    ) -> Outcome[Outputs, LimitExceeded | WorkspaceError]:
        missing = await artifacts.find_missing(sorted(needed(outputs)))
        if isinstance(missing, Success):
            if not missing.unwrap():
                return Success(outputs)
            gone = ", ".join(missing.unwrap()[:5])
            return Failure(WorkspaceError("not_found", f"the bytes of outputs are not there any more: artifact {gone}"))
        match missing.failure():
            case Unavailable(reason):
                message = f"it cannot be told whether the outputs are kept as artifacts: {reason}"
                return Failure(WorkspaceError("host_unavailable", message))
            case InvalidDigest(digest):
                raise RuntimeError(f"what the step made has {digest!r} as a digest")


async def put_artifact(
    artifacts: Artifacts, open_: Callable[[str], BinaryIO], path: str
) -> LimitExceeded | WorkspaceError | None:
    """Keep the bytes of an output as an artifact; the answer says why they could not be."""
    with open_(path) as source:
        return _refusal(await artifacts.put_stream(source), path)


def _refusal(put: Outcome[str, TooLarge | Unavailable], path: str) -> LimitExceeded | WorkspaceError | None:
    if isinstance(put, Success):
        return None
    match put.failure():
        case Unavailable(reason):
            return WorkspaceError("host_unavailable", f"the output {path} cannot be kept as an artifact: {reason}")
        case TooLarge(_, size, limit):
            return LimitExceeded("artifact_bytes", size, limit)
