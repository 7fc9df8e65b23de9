"""A sandbox over a folder, or over files in memory, with the means to look at its host and to change it."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from stepwell import Clock, Layer, build, get
from stepwell.core.boundary import Boundary
from stepwell.core.node import DirNode, FileNode, LinkNode, Node, digest_of
from stepwell.core.outcome import Outcome
from stepwell.core.workspace_limits import LIMITS, WorkspaceLimits
from stepwell.layers import artifacts, clock, step_sandbox
from stepwell.layers.step_sandbox import MemoryFiles
from stepwell.services.artifacts import Artifacts
from stepwell.services.step_sandbox import (
    Accepted,
    CachingTransaction,
    ExecuteFailure,
    StepSandbox,
    Workspace,
    WorkspaceTransaction,
)

Host: TypeAlias = Literal["memory", "folder"]
R = TypeVar("R")

BASE: dict[str, str] = {
    "in.txt": "alpha\n",
    "secret": "s3cr3t\n",
    "old": "old\n",
    "src/a.py": "A=1\n",
    "src/.hid.py": "H=1\n",
    "src/d/b.py": "B=1\n",
}
SCRIPT = "#!/bin/sh\n"

EMPTY = "diff1_19d1b456d437132d53fe009ea19d70f9b6cb10a67855459e69ba9562f923d181"
BETA = "diff1_933e874ca86c8c09133b98afb63a457f0899dbbdd7b66ff94301491d3f13c7dd"

Snapshot: TypeAlias = dict[str, object]
"""Every file, link and directory of a host: its node, and where there is one its inode and the time of its change."""


class World(ABC):
    """A host with the base tree, and a sandbox over it."""

    sandbox: StepSandbox
    artifacts: Artifacts

    @abstractmethod
    def write(self, path: str, data: str | bytes, *, executable: bool = False) -> None: ...
    @abstractmethod
    def link(self, path: str, target: str) -> None: ...
    @abstractmethod
    def remove(self, path: str) -> None: ...
    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None if there is no file."""

    @abstractmethod
    def is_executable(self, path: str) -> bool: ...
    @abstractmethod
    def is_dir(self, path: str) -> bool: ...
    @abstractmethod
    def link_target(self, path: str) -> str | None: ...
    @abstractmethod
    def nodes(self) -> dict[str, Node]:
        """Every file, link and directory of the host; in memory only those directories that hold nothing."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The nodes, and of the files of a folder also what tells whether they were written anew."""

    async def open(self) -> WorkspaceTransaction:
        return (await self.sandbox.open()).unwrap()

    async def open_caching(self) -> CachingTransaction:
        transaction = await self.open()
        assert isinstance(transaction, CachingTransaction)
        return transaction

    async def run(
        self,
        body: Callable[[Workspace], R],
        reads: tuple[str, ...] = ("in.txt",),
        writes: tuple[str, ...] = ("out/r",),
        removes: tuple[str, ...] = (),
        mode: Literal["hard", "expected"] = "hard",
    ) -> Outcome[Accepted[R], ExecuteFailure]:
        """Execute a body in a transaction of its own; nothing is materialized."""
        async with await self.open() as transaction:
            return await transaction.execute(Boundary(reads, writes, removes, mode), body)

    async def settle(
        self,
        body: Callable[[Workspace], R],
        reads: tuple[str, ...] = ("in.txt",),
        writes: tuple[str, ...] = ("out/r",),
        removes: tuple[str, ...] = (),
        mode: Literal["hard", "expected"] = "hard",
    ) -> Accepted[R]:
        """Execute a body that is accepted, and materialize it."""
        async with await self.open() as transaction:
            accepted = (await transaction.execute(Boundary(reads, writes, removes, mode), body)).unwrap()
            _ = (await transaction.materialize(accepted)).unwrap()
            return accepted


class MemoryWorld(World):
    def __init__(self, files: MemoryFiles) -> None:
        self.files = files

    def write(self, path: str, data: str | bytes, *, executable: bool = False) -> None:
        self.files.write(path, data, executable=executable)

    def link(self, path: str, target: str) -> None:
        self.files.make_link(path, target)

    def remove(self, path: str) -> None:
        self.files.remove(path)

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def is_executable(self, path: str) -> bool:
        node = self.files.node(path)
        return isinstance(node, FileNode) and node.executable

    def is_dir(self, path: str) -> bool:
        return self.files.node(path) == DirNode()

    def link_target(self, path: str) -> str | None:
        node = self.files.node(path)
        return node.target if isinstance(node, LinkNode) else None

    def nodes(self) -> dict[str, Node]:
        return dict(self.files.tree())

    def snapshot(self) -> Snapshot:
        return dict(self.nodes())


class FolderWorld(World):
    def __init__(self, root: Path) -> None:
        self.root = root
        self.real_root = root.resolve()

    def write(self, path: str, data: str | bytes, *, executable: bool = False) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(0o755 if executable else 0o644)

    def link(self, path: str, target: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).symlink_to(target)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def read(self, path: str) -> bytes | None:
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def is_executable(self, path: str) -> bool:
        return bool((self.root / path).stat().st_mode & stat.S_IXUSR)

    def is_dir(self, path: str) -> bool:
        return (self.root / path).is_dir()

    def link_target(self, path: str) -> str | None:
        place = self.root / path
        return os.readlink(place) if place.is_symlink() else None

    def nodes(self) -> dict[str, Node]:
        return {path: _node_at(place) for path, place in self._places()}

    def snapshot(self) -> Snapshot:
        found: Snapshot = {}
        for path, place in self._places():
            status, node = place.lstat(), _node_at(place)
            found[path] = (node, status.st_ino, status.st_mtime_ns) if isinstance(node, FileNode) else node
        return found

    def _places(self) -> list[tuple[str, Path]]:
        places = [(str(place.relative_to(self.root)), place) for place in sorted(self.root.rglob("*"))]
        return [(path, place) for path, place in places if path.split("/")[0] != ".stepwell"]


def _node_at(place: Path) -> Node:
    if place.is_symlink():
        return LinkNode(os.readlink(place))
    if place.is_dir():
        return DirNode()
    data = place.read_bytes()
    return FileNode(digest_of(data), len(data), bool(place.stat().st_mode & stat.S_IXUSR))


@asynccontextmanager
async def open_world(
    host: Host,
    root: Path,
    *,
    limits: WorkspaceLimits = LIMITS,
    portable_names: bool = True,
    kept: Layer[Artifacts, Clock] | None = None,
) -> AsyncGenerator[World]:
    """A world with the base tree; large outputs are `kept` in memory, or where it is said."""
    world: MemoryWorld | FolderWorld
    if host == "memory":
        files = MemoryFiles()
        world = MemoryWorld(files)
        layer = step_sandbox.layer_test(files, limits=limits, portable_names=portable_names)
    else:
        os.makedirs(root, exist_ok=True)
        world = FolderWorld(root)
        layer = step_sandbox.layer(root, limits=limits, portable_names=portable_names)
    for path, text in BASE.items():
        world.write(path, text)
    world.write("run.sh", SCRIPT, executable=True)
    composed = layer | (kept or artifacts.layer_test()) | clock.layer_test()
    async with build(composed) as built:
        world.sandbox = get(built.unwrap(), StepSandbox)
        world.artifacts = get(built.unwrap(), Artifacts)
        yield world
