"""The seam between a transaction and the place where the files are: a folder, or memory in tests.

Every call is synchronous and may take as long as a disk does, so it is made on a worker thread. A host is shared by
transactions; what `seed` and `copy_back` give belongs to the one that asked, which closes or ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, final

from ...core.boundary import Declaration
from ...core.copy_back import CopyBackEvent
from ...core.measured import MeasuredReads
from ...core.node import Node, Tree
from ...core.outcome import Outcome
from ...core.step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError
from ...core.tree import NodeChange
from ...core.workspace_limits import WorkspaceLimits

__all__ = ["Contents", "CopiedBack", "CopyBack", "Reads", "Seed", "WorkspaceHost", "Writer"]


class Contents(Protocol):
    """Private copies of the bytes of files: what happens to the host afterwards does not change them."""

    def open(self, path: str) -> BinaryIO:
        """A reader of its own from the first byte on. KeyError: there is no file of that path among the seeds."""
        ...

    def close(self) -> None:
        """Drop the copies; readers that are open end. A second call does nothing."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Seed:
    """What a workspace begins with.

    `tree` has the declared reads and removals that are there, each file by the digest of its copy in `contents`;
    `absent` the declared reads that are not. `matches` has each declared pattern with the paths that it matched, in
    the order of their bytes, none if there were none. `baseline` has what stood at the declared write targets.
    """

    tree: Tree
    contents: Contents
    absent: frozenset[str] = frozenset()
    matches: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    baseline: Tree = field(default_factory=dict[str, Node])


@final
@dataclass(frozen=True, slots=True)
class Reads:
    """What a step read, and has to be the same still when what it made of it comes to the host."""

    declaration: Declaration
    tree: Tree
    limits: WorkspaceLimits


class Writer(Protocol):
    """Takes the bytes of one file. What goes wrong is told by `CopyBack.commit`, so that all is written alike."""

    def write(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def close(self) -> None: ...


@final
@dataclass(frozen=True, slots=True)
class CopiedBack:
    """All changes are on the host, durably. `events` is what somebody may want to be told of."""

    events: tuple[CopyBackEvent, ...] = ()


class CopyBack(Protocol):
    """One copy-back: the bytes first, beside the host's own files, then all changes at once. One thread at a time."""

    def stage(self, path: str) -> Writer:
        """Where the bytes of the file that a change makes at `path` go. One writer is open at a time."""
        ...

    def commit(self) -> Outcome[CopiedBack, MaterializationConflict | WorkspaceError]:
        """Make every change, or none; after a crash the next host that is opened ends it either way.

        A target that is not as the change says it was is a conflict, and all of them are named. Ends the copy-back:
        whatever the answer, nothing is left of it but files that somebody else changed meanwhile, which are kept.
        """
        ...

    def discard(self) -> None:
        """Give it up; the host is as it was. Nothing happens if it has ended."""
        ...


class WorkspaceHost(Protocol):
    """Where the files are that steps read and write."""

    def seed(self, declaration: Declaration, limits: WorkspaceLimits) -> Outcome[Seed, LimitExceeded | WorkspaceError]:
        """Copy what is declared, and look at what stands at the write targets. After a failure nothing is kept."""
        ...

    def measure_reads(
        self, declaration: Declaration, limits: WorkspaceLimits
    ) -> Outcome[MeasuredReads, LimitExceeded | WorkspaceError]:
        """What `seed` would read now, refused alike. Each file is read whole; no remembered digest counts."""
        ...

    def standing(
        self, declaration: Declaration, paths: Iterable[str], limits: WorkspaceLimits
    ) -> Outcome[Tree, LimitExceeded | WorkspaceError]:
        """What stands at the declared outputs, in the declared trees, their empty directories too, and at `paths`.

        With it what stands above these and is no directory. No remembered digest counts here either.
        """
        ...

    def has(self, path: str) -> bool:
        """Whether the host has anything at the path, without following links."""
        ...

    def copy_back(
        self, changes: tuple[NodeChange, ...], *, trees: tuple[str, ...] = (), reads: Reads | None = None
    ) -> CopyBack:
        """Begin to write changes to the host. Without changes only `reads` are looked at; without either, nothing is.

        A file of `reads` that has changed since, has gone or has come is a conflict, as a target that has moved is.

        Directories within `trees` that the changes leave empty go too; elsewhere an empty directory stays.
        """
        ...
