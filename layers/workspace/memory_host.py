"""A host in memory: the files that a test gives, and what steps and the test itself make of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from sys import maxsize
from threading import RLock
from typing import BinaryIO, Final, final

from ...core.boundary import Declaration, directory_problem
from ...core.glob import Glob
from ...core.measured import MeasuredReads, measured_reads
from ...core.node import DirNode, FileNode, LinkNode, Node, Tree, digest_of
from ...core.outcome import Failure, Outcome, Success
from ...core.overlay import Overlay
from ...core.seeding import found_problem, seed_problem
from ...core.step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError
from ...core.tree import NodeChange, path_order
from ...core.workspace_limits import WorkspaceLimits
from ...core.workspace_path import PathProblem, ancestors, file_path
from .host import CopiedBack, Reads, Seed

__all__ = ["MemoryFiles", "MemoryHost"]

_DIR: Final = DirNode()


@final
class MemoryFiles(Mapping[str, bytes]):
    """The files of a host in memory, by path. A test reads what steps wrote, and changes files as somebody else would.

    Text is kept as UTF-8. A path that names nothing in a workspace is a ValueError. Any thread may call.
    """

    def __init__(self, files: Mapping[str, bytes | str] | None = None) -> None:
        self.lock = RLock()
        self._tree = Overlay({}, maxsize, maxsize)
        self._bytes: dict[str, bytes] = {}
        for path, data in (files or {}).items():
            self.write(path, data)

    def __getitem__(self, path: str) -> bytes:
        match self._tree.node(path):
            case FileNode(digest):
                return self._bytes[digest]
            case _:
                raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        with self.lock:
            return iter([path for path in self._tree.leaves() if isinstance(self._tree.node(path), FileNode)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def node(self, path: str) -> Node | None:
        """What stands at a path; a link is not followed."""
        return self._tree.node(path)

    def tree(self) -> Tree:
        """Everything that is there; of directories, those that hold nothing."""
        with self.lock:
            return self._tree.tree()

    def paths(self) -> list[str]:
        """The paths of all files and links, in the order of their bytes."""
        return self._tree.leaves()

    def write(self, path: str, data: bytes | str, *, executable: bool = False) -> None:
        """Make or replace a file."""
        kept = data.encode() if isinstance(data, str) else bytes(data)
        self.put(path, FileNode(digest_of(kept), len(kept), executable), kept)

    def make_link(self, path: str, target: str) -> None:
        """Make or replace a symbolic link."""
        self.put(path, LinkNode(target))

    def make_dir(self, path: str) -> None:
        """Make a directory."""
        self.put(path, _DIR)

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory."""
        with self.lock:
            if self._tree.node(path) is None:
                raise KeyError(path)
            _raise(self._tree.drop(path))

    def put(self, path: str, node: Node, data: bytes | None = None) -> None:
        """Put a node at a path; of a file also its bytes."""
        checked = file_path(path, ())
        if isinstance(checked, PathProblem):
            raise ValueError(checked.message)
        with self.lock:
            if isinstance(node, DirNode):
                _raise(self._tree.make_dir(checked))
                return
            _raise(self._tree.put(checked, node))
            if data is not None and isinstance(node, FileNode):
                self._bytes[node.digest] = data

    def is_within_link(self, path: str) -> bool:
        """Whether the way to a path leads through a link."""
        return any(isinstance(self._tree.node(directory), LinkNode) for directory in ancestors(path))

    def below(self, directory: str) -> list[str]:
        """All that lies in a directory, deepest first."""
        return self._tree.below(directory)

    def prune(self, directory: str) -> None:
        """Remove a directory if nothing is in it."""
        if self._tree.node(directory) == _DIR and not self._tree.names(directory):
            _raise(self._tree.drop(directory))


def _raise(problem: WorkspaceError | LimitExceeded | None) -> None:
    if problem is not None:
        raise ValueError(problem.message if isinstance(problem, WorkspaceError) else problem.what)


@final
class _Copies:
    """Copies of the contents of seeds."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self._contents = contents

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._contents[path])

    def close(self) -> None:
        self._contents = {}


@final
class MemoryHost:
    """A `WorkspaceHost` over files in memory, by the rules of the one over a folder."""

    def __init__(self, files: MemoryFiles, *, portable: bool = True) -> None:
        self._files = files
        self._portable = portable

    def has(self, path: str) -> bool:
        with self._files.lock:
            return self._files.node(path) is not None

    def seed(self, declaration: Declaration, limits: WorkspaceLimits) -> Outcome[Seed, LimitExceeded | WorkspaceError]:
        with self._files.lock:
            return self._seed(declaration, limits)

    def measure_reads(
        self, declaration: Declaration, limits: WorkspaceLimits
    ) -> Outcome[MeasuredReads, LimitExceeded | WorkspaceError]:
        with self._files.lock:
            read = self._read(declaration, limits)
        if isinstance(read, Failure):
            return read
        return Success(measured_reads(declaration, *read.unwrap()))

    def standing(
        self, declaration: Declaration, paths: Iterable[str], limits: WorkspaceLimits
    ) -> Outcome[Tree, LimitExceeded | WorkspaceError]:
        with self._files.lock:
            inside = {path for path in self._files.tree() if declaration.tree_of(path) is not None}
            places = inside.union(paths, declaration.outputs, declaration.trees)
            for path in sorted(places, key=path_order):
                if problem := self._unfit(path, path in inside, declaration, limits):
                    return Failure(problem)
            found = {path: node for path in places if (node := self._files.node(path)) is not None}
            above = {way: self._files.node(way) for path in places for way in ancestors(path)}
        if len(found) > limits.nodes:
            return Failure(LimitExceeded("nodes", len(found), limits.nodes))
        return Success(found | {way: node for way, node in above.items() if not isinstance(node, DirNode | None)})

    def _unfit(
        self, path: str, is_found: bool, declaration: Declaration, limits: WorkspaceLimits
    ) -> LimitExceeded | WorkspaceError | None:
        """Why what stands at a target cannot be looked at. A link that a tree holds gives way to what is recorded."""
        for way in ancestors(path):
            if isinstance(self._files.node(way), LinkNode) and declaration.tree_of(way) in (None, way):
                return _behind_link(path)
        node = self._files.node(path)
        if isinstance(node, FileNode) and node.size > limits.file_bytes:
            return LimitExceeded("file_bytes", node.size, limits.file_bytes)
        return found_problem(path, limits, self._portable) if is_found else None

    def _seed(self, declaration: Declaration, limits: WorkspaceLimits) -> Outcome[Seed, LimitExceeded | WorkspaceError]:
        read = self._read(declaration, limits)
        if isinstance(read, Failure):
            return read
        tree, matches = read.unwrap()
        baseline = self._baseline(declaration)
        if len(baseline) > limits.nodes:
            return Failure(LimitExceeded("nodes", len(baseline), limits.nodes))
        copies = _Copies({path: self._files[path] for path, node in tree.items() if isinstance(node, FileNode)})
        absent = frozenset(read.path for read in declaration.read_files if read.path not in tree)
        return Success(Seed(tree, copies, absent, matches, baseline))

    def _read(
        self, declaration: Declaration, limits: WorkspaceLimits
    ) -> Outcome[tuple[dict[str, Node], dict[str, tuple[str, ...]]], LimitExceeded | WorkspaceError]:
        """What stands at the reads and removals, and what the patterns match."""
        named = [read.path for read in declaration.read_files]
        matches = {glob.pattern: self._matching(glob) for glob in declaration.read_globs}
        paths = sorted({*named, *declaration.removals, *(path for found in matches.values() for path in found)})
        found = (found_problem(path, limits, self._portable) for paths in matches.values() for path in paths)
        unfit = self._unreadable(paths) or next((problem for problem in found if problem is not None), None)
        if unfit is not None:
            return Failure(unfit)
        tree = {path: node for path in paths if (node := self._files.node(path)) is not None}
        problem = _exceeded(tree.values(), limits) or seed_problem(tree, declaration, self._portable)
        return Success((tree, matches)) if problem is None else Failure(problem)

    def copy_back(
        self, changes: tuple[NodeChange, ...], *, trees: tuple[str, ...] = (), reads: Reads | None = None
    ) -> _MemoryCopyBack:
        return _MemoryCopyBack(self._files, changes, trees, reads)

    def _matching(self, glob: Glob) -> tuple[str, ...]:
        return tuple(path for path in self._files.paths() if glob.matches(path))

    def _unreadable(self, paths: Iterable[str]) -> WorkspaceError | None:
        for path in paths:
            if self._files.is_within_link(path):
                return _behind_link(path)
            if self._files.node(path) == _DIR:
                problem = directory_problem(path)
                return WorkspaceError(problem.code, problem.message)
        return None

    def _baseline(self, declaration: Declaration) -> dict[str, Node]:
        places = [*declaration.outputs, *declaration.trees]
        places += [path for path in self._files.tree() if declaration.writes(path)]
        found = {path: node for path in places if (node := self._files.node(path)) is not None}
        above = {path: self._files.node(path) for path in declaration.above_targets() - found.keys()}
        return found | {path: node for path, node in above.items() if not isinstance(node, DirNode | None)}


def _behind_link(path: str) -> WorkspaceError:
    return WorkspaceError("path_escapes_workspace", f"{path} lies behind a symbolic link, which is not followed")


def _exceeded(nodes: Iterable[Node], limits: WorkspaceLimits) -> LimitExceeded | None:
    files, total = 0, 0
    for node in nodes:
        files += 1
        size = node.size if isinstance(node, FileNode) else 0
        total += size
        if size > limits.file_bytes:
            return LimitExceeded("file_bytes", size, limits.file_bytes)
    if files > limits.seeded_files:
        return LimitExceeded("seeded_files", files, limits.seeded_files)
    return LimitExceeded("seeded_bytes", total, limits.seeded_bytes) if total > limits.seeded_bytes else None


@final
class _MemoryWriter:
    def __init__(self, staged: dict[str, bytes], path: str) -> None:
        self._staged = staged
        self._path = path
        self._data = bytearray()

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        self._data += data

    def close(self) -> None:
        self._staged[self._path] = bytes(self._data)


@final
class _MemoryCopyBack:
    """All changes at once, under the lock of the files."""

    def __init__(
        self, files: MemoryFiles, changes: tuple[NodeChange, ...], trees: tuple[str, ...], reads: Reads | None
    ) -> None:
        self._files = files
        self._reads = reads
        self._changes = changes
        self._trees = trees
        self._gone = {change.path for change in changes if change.after is None or isinstance(change.after, DirNode)}
        self._staged: dict[str, bytes] = {}

    def stage(self, path: str) -> _MemoryWriter:
        return _MemoryWriter(self._staged, path)

    def discard(self) -> None:
        self._staged.clear()

    def commit(self) -> Outcome[CopiedBack, MaterializationConflict | WorkspaceError]:
        with self._files.lock:
            moved = {change.path for change in self._changes if not self._is_as_it_was(change)} | self._moved_reads()
            if moved:
                return Failure(MaterializationConflict(tuple(sorted(moved, key=path_order))))
            for change in reversed(self._changes):
                if change.before is not None and (change.after is None or isinstance(change.after, DirNode)):
                    self._files.remove(change.path)
            for change in self._changes:
                if change.after is not None:
                    self._make_room(change)
                    self._files.put(change.path, change.after, self._staged.get(change.path))
            self._prune()
        return Success(CopiedBack())

    def _moved_reads(self) -> set[str]:
        if self._reads is None:
            return set()
        declared, tree = self._reads.declaration, self._reads.tree
        there = {path for path in self._files.paths() if declared.reads(path)}
        paths = there | {path for path in tree if declared.reads(path)}
        return {path for path in paths if self._files.node(path) != tree.get(path)}

    def _is_as_it_was(self, change: NodeChange) -> bool:
        there = self._files.node(change.path)
        if any(
            not isinstance(self._files.node(way), DirNode | None)
            for way in ancestors(change.path)
            if way not in self._gone
        ):
            return False
        if there == _DIR and change.after == _DIR:
            return change.before in (None, _DIR)
        if there == _DIR:
            inside = self._files.below(change.path)
            return (change.before == _DIR or bool(inside)) and self._are_gone(inside)
        return there == change.before

    def _are_gone(self, paths: list[str]) -> bool:
        """Whether these changes remove all of these files and links."""
        return all(path in self._gone for path in paths if self._files.node(path) != _DIR)

    def _make_room(self, change: NodeChange) -> None:
        """Remove the directory that is in the way of a file or a link."""
        if change.after != _DIR and self._files.node(change.path) == _DIR:
            for path in (*self._files.below(change.path), change.path):
                self._files.remove(path)

    def _prune(self) -> None:
        """Remove the directories within trees that this left empty, and that are not to be there empty."""
        kept = {change.path for change in self._changes if change.after is not None}
        for change in sorted(self._changes, key=lambda change: path_order(change.path), reverse=True):
            if change.after is None:
                for directory in ancestors(change.path):
                    if directory not in kept and any(directory.startswith(tree + "/") for tree in self._trees):
                        self._files.prune(directory)
