"""What a command left in its workspace, read through a descriptor when nothing of the command is alive any more."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import BinaryIO, Final, final

from ....core.node import DirNode, FileNode, LinkNode, Node, Tree
from ....core.step_sandbox import LimitExceeded, WorkspaceError
from ....core.workspace_limits import WorkspaceLimits
from .values import Unsupported

__all__ = ["Remains", "Workspace", "look_through"]

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

KINDS: Final = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


@final
class Workspace:
    """A workspace of which nothing changes any more: its files, for as long as it is open. It is memory until then."""

    def __init__(self, directory: int) -> None:
        """Takes the descriptor over."""
        self._directory = directory
        self._files: frozenset[str] = frozenset()
        self._is_open = True

    @property
    def directory(self) -> int:
        return self._directory

    def has(self, files: frozenset[str]) -> None:
        """Say which paths are files."""
        self._files = files

    def open(self, path: str) -> BinaryIO:
        if path not in self._files or not self._is_open:
            raise KeyError(path)
        return os.fdopen(os.open(path, READ, dir_fd=self._directory), "rb")

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._directory)


@final
@dataclass(slots=True)
class Remains:
    """What was found so far."""

    tree: dict[str, Node] = field(default_factory=dict[str, Node])
    unsupported: list[Unsupported] = field(default_factory=list[Unsupported])
    nodes: int = 0
    produced: int = 0


def look_through(
    workspace: Workspace, seeded: Tree, made: frozenset[str], limits: WorkspaceLimits
) -> Remains | LimitExceeded | WorkspaceError:
    """Every file, link and empty directory of a workspace, or what stands in the way of it.

    Of a file its owner's right to execute it counts, and nothing else of its mode. `made` are the directories that were
    there before: they are left out where they are empty, unless they were seeded themselves.
    """
    remains = Remains()
    os.fchmod(workspace.directory, 0o700)  # whatever the command made of it
    todo: list[tuple[str, int]] = [("", 0)]
    while todo:
        above, depth = todo.pop()
        found = _folder(workspace.directory, above, remains, seeded, limits)
        if not isinstance(found, list):
            return found
        if found and depth >= limits.path_depth:
            return LimitExceeded("path_depth", depth + 1, limits.path_depth)
        todo += [(path, depth + 1) for path in found]
    for path in made - seeded.keys():
        remains.tree.pop(path, None)
    workspace.has(frozenset(path for path, node in remains.tree.items() if isinstance(node, FileNode)))
    return remains


def _folder(
    directory: int, above: str, remains: Remains, seeded: Tree, limits: WorkspaceLimits
) -> list[str] | LimitExceeded | WorkspaceError:
    """Note all that a directory holds; the directories among it."""
    folders: list[str] = []
    opened = _open(above or ".", FOLDER, directory)
    try:
        os.fchmod(opened, 0o700)  # names can be looked up in it, whatever the command made of it
        names = sorted(os.listdir(opened))
        if above and not names:
            remains.tree[above] = DirNode()
        for name in names:
            path = f"{above}/{name}" if above else name
            if (problem := _misnamed(path, limits)) is not None:
                return problem
            status = os.lstat(name, dir_fd=opened)
            remains.nodes += path not in seeded
            if remains.nodes > limits.nodes:
                return LimitExceeded("nodes", remains.nodes, limits.nodes)
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
            elif (beyond := _note(opened, name, path, status, remains, seeded, limits)) is not None:
                return beyond
    finally:
        os.close(opened)
    return folders


def _note(
    at: int,
    name: str,
    path: str,
    status: os.stat_result,
    remains: Remains,
    seeded: Tree,
    limits: WorkspaceLimits,
) -> LimitExceeded | WorkspaceError | None:
    """Note what is no directory."""
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(name, dir_fd=at)
        if not _is_text(target):
            return WorkspaceError("invalid_path", f"the target of the link {path!r} is not UTF-8: {target!a}")
        remains.tree[path] = LinkNode(target)
    elif not stat.S_ISREG(status.st_mode):
        remains.unsupported.append(Unsupported(path, KINDS.get(stat.S_IFMT(status.st_mode), "unknown kind of file")))
    elif status.st_size > limits.file_bytes:
        return LimitExceeded("file_bytes", status.st_size, limits.file_bytes)
    else:
        return _note_file(at, name, path, status, remains, seeded, limits)
    return None


def _note_file(
    at: int,
    name: str,
    path: str,
    status: os.stat_result,
    remains: Remains,
    seeded: Tree,
    limits: WorkspaceLimits,
) -> LimitExceeded | None:
    before = seeded.get(path)
    if not isinstance(before, FileNode) or before.size != status.st_size:
        remains.produced += status.st_size  # certainly, and it may be too large to be read at all
        if remains.produced > limits.produced_bytes:
            return LimitExceeded("produced_bytes", remains.produced, limits.produced_bytes)
    remains.tree[path] = FileNode(_digest(at, name), status.st_size, bool(status.st_mode & stat.S_IXUSR))
    return None


def _digest(at: int, name: str) -> str:
    with os.fdopen(_open(name, READ, at), "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(name: str, flags: int, at: int) -> int:
    """Open what is ours, also if its mode says that nobody may."""
    try:
        return os.open(name, flags, dir_fd=at)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=at)  # nothing is a link here: nobody is alive to make it one
        return os.open(name, flags, dir_fd=at)


def _misnamed(path: str, limits: WorkspaceLimits) -> LimitExceeded | WorkspaceError | None:
    if not _is_text(path):
        return WorkspaceError("invalid_path", f"a name in the workspace is not UTF-8: {path!a}")
    size = len(path.encode())
    return LimitExceeded("path_bytes", size, limits.path_bytes) if size > limits.path_bytes else None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
