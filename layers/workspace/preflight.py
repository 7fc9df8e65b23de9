"""What is looked at before a copy-back is decided: every target, and all that could stand in the way."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final

from ...core.copy_back import HardLinkReplaced, Op, is_beneath, required_directories
from ...core.node import DirNode, FileNode, Node
from ...core.special_node import Seen
from ...core.step_sandbox import MaterializationConflict, WorkspaceError
from ...core.tree import NodeChange, path_order
from ...core.workspace_path import ancestors, parent_of, protected_problem, shown
from .calls import DIRECTORY, FOLLOW_NOTHING
from .pinned import UNREADABLE, Hasher, look
from .site import Refused, Site, refusal_of

__all__ = ["Passed", "check_paths", "preflight"]


@final
@dataclass(frozen=True, slots=True)
class Passed:
    """All is as it should be. `missing` are the directories to be made first, `modes` the permissions by slot."""

    ops: tuple[Op, ...]
    missing: tuple[str, ...]
    modes: dict[int, int]
    events: tuple[HardLinkReplaced, ...]


def check_paths(changes: tuple[NodeChange, ...]) -> WorkspaceError | None:
    """The refusal of changes that no step may make, whatever it declared."""
    for change in changes:
        if problem := protected_problem(change.path):
            return WorkspaceError(problem.code, problem.message)
    return None


def preflight(
    site: Site,
    changes: tuple[NodeChange, ...],
    ops: tuple[Op, ...],
    hasher: Hasher,
    moved_reads: Callable[[], set[str]] = set,
) -> Passed:
    """Look at every target. `Refused` with all those that have changed, and with what was read and has changed; or with
    what the host does not allow."""
    return _Preflight(site, changes, ops, hasher).run(moved_reads)


@final
class _Preflight:
    def __init__(self, site: Site, changes: tuple[NodeChange, ...], ops: tuple[Op, ...], hasher: Hasher) -> None:
        self._site = site
        self._calls = site.calls
        self._changes = changes
        self._ops = ops
        self._hasher = hasher
        self._removed = {op.path for op in ops if op.kind in ("remove", "rmdir")}
        self._files_removed = {op.path for op in ops if op.kind == "remove"}
        self._slots = {op.path: op.slot for op in ops if op.kind == "replace"}
        self._checked: set[str] = set()
        self._modes: dict[int, int] = {}
        self._linked: list[HardLinkReplaced] = []

    def run(self, moved_reads: Callable[[], set[str]]) -> Passed:
        moved = {change.path for change in self._changes if not self._is_as_expected(change)} | moved_reads()
        missing = tuple(self._missing(moved))
        ops = tuple(self._present(moved))
        if moved:
            raise Refused(MaterializationConflict(tuple(sorted(moved, key=path_order))))
        return Passed(ops, missing, self._modes, tuple(self._linked))

    # --- targets ------------------------------------------------------------

    def _is_as_expected(self, change: NodeChange) -> bool:
        try:
            with self._site.root.parent(change.path) as (at, name):
                self._check_parent(parent_of(change.path), at)
                seen = look(self._calls, at, name, self._hasher)
                if seen == UNREADABLE:
                    raise Refused(WorkspaceError("host_unavailable", f"{shown(change.path)} may not be read"))
                if isinstance(seen, FileNode) and seen == change.before:
                    self._check_file(change, at, name)
        except FileNotFoundError:
            return change.before is None
        except OSError as error:
            gives_way = any(above in self._files_removed for above in ancestors(change.path))
            if error.errno == errno.ENOTDIR or (error.errno == errno.ELOOP and gives_way):
                return change.before is None and gives_way
            raise Refused(refusal_of(error, f"{shown(change.path)} cannot be written")) from error
        return seen in self._expected(change)

    def _expected(self, change: NodeChange) -> tuple[Seen, ...]:
        if change.before is None and isinstance(change.after, DirNode):
            return (None, DirNode())
        if change.before is None and change.path in self._removed:
            return (DirNode(),)
        return (change.before,)

    def _check_parent(self, path: str, descriptor: int) -> None:
        """Refused unless names may be made and removed in the directory that holds a target."""
        if path in self._checked:
            return
        if self._calls.stat(descriptor).st_dev != self._site.place.device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        if not self._calls.may_write(descriptor):
            raise OSError(errno.EACCES, f"the directory {shown(path)} is read-only", path)
        with self._site.root.directory(path, listed=True) as listed:
            self._refuse_unchangeable(path, listed)
        self._checked.add(path)

    def _check_file(self, change: NodeChange, at: int, name: str) -> None:
        descriptor = self._calls.open(name, os.O_RDONLY | FOLLOW_NOTHING, at=at)
        try:
            self._refuse_unchangeable(change.path, descriptor)
            status = self._calls.stat(descriptor)
        finally:
            self._calls.close(descriptor)
        if status.st_nlink > 1:
            self._linked.append(HardLinkReplaced(change.path))
        if change.path in self._slots and isinstance(change.after, FileNode):
            self._modes[self._slots[change.path]] = _mode(status.st_mode, change.after.executable)

    def _refuse_unchangeable(self, path: str, descriptor: int) -> None:
        if self._calls.is_unchangeable(descriptor):
            raise OSError(errno.EPERM, f"{shown(path)} is marked as immutable", path)

    # --- directories --------------------------------------------------------

    def _missing(self, moved: set[str]) -> Iterator[str]:
        """The directories that have to be made. What lies beneath a file that nobody expected has moved."""
        for path in required_directories(self._changes, self._ops):
            node = self._directory_at(path)
            if node is None:
                yield path
            elif not isinstance(node, DirNode):
                moved.update(it.path for it in self._changes if it.path == path or is_beneath(it.path, path))

    def _directory_at(self, path: str) -> Seen:
        try:
            with self._site.root.parent(path) as (at, name):
                return _kind_of(self._calls.stat_name(name, at=at).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refused(refusal_of(error, f"{shown(path)} cannot be made")) from error

    def _present(self, moved: set[str]) -> Iterator[Op]:
        """The operations with the permissions of directories that go; those that are not there are not pruned."""
        for op in self._ops:
            if op.kind not in ("rmdir", "prune"):
                yield op
                continue
            found = self._directory(op.path)
            if found is not None:
                mode, names = found
                if op.kind == "rmdir" and not self._is_emptied(op.path, names):
                    moved.add(op.path)
                yield replace(op, mode=mode)
            elif op.kind == "rmdir":
                moved.add(op.path)

    def _is_emptied(self, path: str, names: list[str]) -> bool:
        return all(f"{path}/{name}" in self._removed for name in names)

    def _directory(self, path: str) -> tuple[int, list[str]] | None:
        """The permissions of a directory and the names in it; None if there is none."""
        try:
            descriptor = self._site.root.open(path, os.O_RDONLY | DIRECTORY)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        try:
            return stat.S_IMODE(self._calls.stat(descriptor).st_mode), self._calls.names(descriptor)
        finally:
            self._calls.close(descriptor)


def _kind_of(mode: int) -> Node:
    """A directory, or something else; of a file's contents nothing is said."""
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return DirNode() if stat.S_ISDIR(mode) else FileNode("", 0)


def _mode(host: int, executable: bool) -> int:
    """The permissions of the host's file, of which only those to execute are set anew: for whoever may read it."""
    kept = host & 0o777
    if executable == bool(host & stat.S_IXUSR):
        return kept
    return kept | (kept & 0o444) >> 2 if executable else kept & ~0o111
