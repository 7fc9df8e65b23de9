"""Copies what a step declares to read out of a folder, or measures it, and looks at what stands where it will write.

The bytes that a body reads are those that were hashed: each file is opened once, copied through that descriptor, and
known by the digest of the copy. A measurement is the same without the copy, so that it names what a copy would have
held. What globs match is found by descriptors too, and no link is followed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import BinaryIO, TypeAlias, final

from ...core.boundary import Declaration, directory_problem
from ...core.glob import Glob
from ...core.measured import MeasuredReads, measured_reads
from ...core.node import DirNode, FileNode, Node, Tree
from ...core.seeding import found_problem, seed_problem
from ...core.special_node import Seen, SpecialNode
from ...core.step_sandbox import LimitExceeded, WorkspaceError
from ...core.tree import path_order
from ...core.workspace_limits import WorkspaceLimits
from ...core.workspace_path import ancestors, shown
from .calls import SystemCalls
from .host import Seed
from .pinned import PIECE, UNREADABLE, Hasher, Pinned, look, read_all
from .search import walk
from .site import refusal_of
from .spool import Spool

__all__ = ["SeedRefused", "Seeder"]


class SeedRefused(Exception):
    """Ends the seeding with an answer."""

    def __init__(self, answer: LimitExceeded | WorkspaceError) -> None:
        super().__init__(answer)
        self.answer = answer


@final
class SpooledContents:
    """The copies of one seed."""

    def __init__(self, spool: Spool, tree: dict[str, Node]) -> None:
        self._spool = spool
        self._digests = {path: node.digest for path, node in tree.items() if isinstance(node, FileNode)}

    def open(self, path: str) -> BinaryIO:
        return self._spool.open(self._digests[path])

    def close(self) -> None:
        self._spool.close()


@final
class Seeder:
    """Seeds one workspace. `hasher` gives the digests of files that are not copied; `portable` is about names."""

    def __init__(
        self, root: Pinned, declaration: Declaration, limits: WorkspaceLimits, hasher: Hasher, *, portable: bool
    ) -> None:
        self._root = root
        self._declaration = declaration
        self._limits = limits
        self._measure = hasher
        self._portable = portable
        self._read_bytes = 0
        self._spool = Spool(limits.memory_bytes)
        self._held = ExitStack()  # the directory that was looked at last
        self._held_path: str | None = None
        self._held_descriptor = -1

    def run(self) -> Seed:
        """The seed. After `SeedRefused` nothing is kept."""
        try:
            return self._run()
        except BaseException:
            self._spool.close()
            raise
        finally:
            self._let_go()

    def _run(self) -> Seed:
        tree, matches = self._read(self._spool.put_file)
        absent = frozenset(read.path for read in self._declaration.read_files if read.path not in tree)
        return Seed(tree, SpooledContents(self._spool, tree), absent, matches, self._baseline(tree))

    def _read(self, take: _Take) -> tuple[dict[str, Node], dict[str, tuple[str, ...]]]:
        """What stands at the reads and removals, each file read once to its end, and what the patterns match."""
        declared = self._declaration
        matches = {glob.pattern: self._matching(glob) for glob in declared.read_globs}
        wanted = {read.path for read in declared.read_files}.union(declared.removals, *matches.values())
        self._limit("seeded_files", len(wanted))
        tree = {path: node for path in sorted(wanted, key=path_order) if (node := self._take(path, take)) is not None}
        problem = seed_problem(tree, declared, self._portable)
        if problem is not None:
            raise SeedRefused(problem)
        return tree, matches

    def measure(self) -> MeasuredReads:
        """What a seed would read now, without keeping it."""
        try:
            return measured_reads(self._declaration, *self._read(_hash))
        finally:
            self._spool.close()
            self._let_go()

    def standing(self, paths: Iterable[str]) -> dict[str, Node]:
        """What stands at the declared outputs and trees, at `paths`, and above them all that is no directory.

        Each file is read: what stays where it is, because it is right already, is not taken on trust.
        """
        try:
            return self._find_standing({*paths, *self._declaration.outputs, *self._declaration.trees})
        finally:
            self._spool.close()
            self._let_go()

    def _find_standing(self, paths: set[str]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        inside = (path for tree in self._declaration.trees for path in self._in_tree(tree))
        for path in sorted(paths.union(inside), key=path_order):
            if any(not isinstance(found.get(above), DirNode | None) for above in ancestors(path)):
                continue  # nothing stands beneath a file or a link
            node = self._node(path, self._seen(path, self._hashed))
            if node is not None:
                found[path] = node
                self._limit("nodes", len(found))
        above = {above for path in paths for above in ancestors(path)} - found.keys()
        for path in sorted(above, key=path_order):
            node = self._node(path, self._seen(path, self._hashed))
            if not isinstance(node, DirNode | None):
                found[path] = node
        return found

    def _hashed(self, descriptor: int, status: os.stat_result) -> str:
        self._limit("file_bytes", status.st_size)
        return read_all(self._root.calls, descriptor)

    def moved(self, tree: Tree) -> set[str]:
        """The declared reads that are not as they were when `tree` was seeded; a pattern, if it can not be told."""
        try:
            return self._moved(tree)
        finally:
            self._let_go()

    def _moved(self, tree: Tree) -> set[str]:
        declared = self._declaration
        paths = {read.path for read in declared.read_files} | {path for path in tree if declared.reads(path)}
        moved: set[str] = set()
        for glob in declared.read_globs:
            try:
                paths.update(self._matching(glob))
            except SeedRefused:
                moved.add(glob.pattern)
        return moved | {path for path in sorted(paths) if self._seen(path, self._measure) != tree.get(path)}

    def _limit(self, what: str, actual: int) -> None:
        limit: int = getattr(self._limits, what)
        if actual > limit:
            raise SeedRefused(LimitExceeded(what, actual, limit))

    # --- globs --------------------------------------------------------------

    def _matching(self, glob: Glob) -> tuple[str, ...]:
        """The files and links that a glob matches, in the order of their bytes."""
        found: list[str] = []
        for path in self._below(glob.base, glob):
            found.append(path)
            self._limit("seeded_files", len(found))
        return tuple(sorted(found, key=path_order))

    def _below(self, base: str, glob: Glob) -> Iterator[str]:
        try:
            for entry in walk(self._root, base, glob.may_hold):
                if not entry.is_directory and glob.matches(entry.path):
                    yield self._checked(entry.path)
        except OSError as error:
            raise SeedRefused(refusal_of(error, f"{shown(glob.pattern)} cannot be looked for")) from error

    def _checked(self, path: str) -> str:
        """A path that was found, if a workspace can have it."""
        problem = found_problem(path, self._limits, self._portable)
        if problem is not None:
            raise SeedRefused(problem)
        return path

    # --- copies -------------------------------------------------------------

    def _take(self, path: str, take: _Take) -> Node | None:
        sizes: list[int] = []

        def taken(descriptor: int, status: os.stat_result) -> str:
            self._limit("file_bytes", status.st_size)
            digest, size = take(_Source(self._root.calls, descriptor, status.st_size, self._count))
            sizes.append(size)
            return digest

        node = self._node(path, self._seen(path, taken))
        if isinstance(node, DirNode):
            self._check_directory(path)
        return replace(node, size=sizes[-1]) if isinstance(node, FileNode) else node

    def _count(self, size: int, whole: int) -> None:
        """Count bytes that are read: of all files, and of the present one as a whole."""
        self._limit("file_bytes", whole)
        self._read_bytes += size
        self._limit("seeded_bytes", self._read_bytes)

    def _seen(self, path: str, hasher: Hasher) -> Seen:
        above, _, name = path.rpartition("/")
        try:
            return look(self._root.calls, self._directory(above), name, hasher)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SeedRefused(refusal_of(error, f"{shown(path)} cannot be read")) from error

    def _directory(self, path: str) -> int:
        """A descriptor of a directory, which is kept until another one is asked for: paths come in order."""
        if path != self._held_path:
            self._let_go()
            self._held_descriptor = self._held.enter_context(self._root.directory(path))
            self._held_path = path
        return self._held_descriptor

    def _let_go(self) -> None:
        self._held_path = None
        self._held.close()

    def _node(self, path: str, seen: Seen) -> Node | None:
        if seen == UNREADABLE:
            raise SeedRefused(WorkspaceError("host_unavailable", f"{shown(path)} may not be read"))
        if isinstance(seen, SpecialNode):
            message = f"{shown(path)} is {seen.kind}; a step reads and writes files, links and directories"
            raise SeedRefused(WorkspaceError("unsupported_file_type", message))
        return seen

    def _check_directory(self, path: str) -> None:
        """A directory is no read; one that is to be removed is empty."""
        if not self._declaration.removes(path):
            raise SeedRefused(directory_problem(path).as_failure())
        try:
            with self._root.directory(path, listed=True) as descriptor:
                names = self._root.calls.names(descriptor)
        except OSError as error:
            raise SeedRefused(refusal_of(error, f"{shown(path)} cannot be listed")) from error
        if names:
            message = f"{shown(path)} is a directory that is not empty; declare the removal of each file in it"
            raise SeedRefused(WorkspaceError("unsupported_file_type", message))

    # --- the baseline -------------------------------------------------------

    def _baseline(self, tree: dict[str, Node]) -> dict[str, Node]:
        """What stands at the write targets, and what stands above them that is no directory."""
        found: dict[str, Node] = {}
        for path in self._targets():
            node = self._standing(path, tree)
            if node is not None:
                found[path] = node
                self._limit("nodes", len(found))
        for path in self._declaration.above_targets() - found.keys():
            node = self._standing(path, tree)
            if not isinstance(node, DirNode | None):
                found[path] = node
        return found

    def _standing(self, path: str, tree: dict[str, Node]) -> Node | None:
        return tree.get(path) or self._node(path, self._seen(path, self._measured))

    def _measured(self, descriptor: int, status: os.stat_result) -> str:
        self._limit("file_bytes", status.st_size)
        return self._measure(descriptor, status)

    def _targets(self) -> Iterator[str]:
        yield from self._declaration.outputs
        for glob in self._declaration.write_globs:
            yield from self._below(glob.base, glob)
        for tree in self._declaration.trees:
            yield tree
            yield from self._in_tree(tree)

    def _in_tree(self, tree: str) -> Iterator[str]:
        """The files and links of a tree, and its empty directories."""
        try:
            for entry in walk(self._root, tree, lambda _: True):
                if not entry.is_directory or entry.is_empty:
                    yield self._checked(entry.path)
        except OSError as error:
            raise SeedRefused(refusal_of(error, f"{shown(tree)} cannot be looked through")) from error


@final
class _Source:
    """Reads an open file, and says how much: `take` gets the size of each piece, and of all of them so far."""

    def __init__(self, calls: SystemCalls, descriptor: int, size: int, take: Callable[[int, int], None]) -> None:
        self._calls = calls
        self._descriptor = descriptor
        self._size = size
        self._take = take
        self._whole = 0

    def read(self, size: int, /) -> bytes:
        pieces: list[bytes] = []
        while size and (piece := self._calls.read(self._descriptor, size)):
            pieces.append(piece)
            size -= len(piece)
            self._whole += len(piece)
            self._take(len(piece), self._whole)
            if self._whole == self._size:  # what is appended meanwhile is not of this copy
                break
        return b"".join(pieces)


_Take: TypeAlias = Callable[[_Source], tuple[str, int]]
"""Reads a source to its end, and gives the digest of its bytes and how many they are."""


def _hash(source: _Source) -> tuple[str, int]:
    hashed, size = hashlib.sha256(), 0
    while piece := source.read(PIECE):
        hashed.update(piece)
        size += len(piece)
    return hashed.hexdigest(), size
