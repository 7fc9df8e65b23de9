"""The files of one body: what was seeded, and what the body made of it. Pure: contents are named by their digests.

Paths are normalised already. Each change either happens whole or is refused by a value; a refused one changes nothing.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from .node import DirNode, FileNode, LinkNode, Node, Tree
from .step_sandbox import LimitExceeded, WorkspaceError
from .tree import path_order
from .workspace_path import ancestors, parent_of

__all__ = ["Overlay"]

HOPS: Final = 40
"""How many links may lie on one way, as on Linux."""

Refused: TypeAlias = WorkspaceError | LimitExceeded

_DIR: Final = DirNode()


@final
class Overlay:
    """A tree of nodes that can be changed, with the directories that hold them."""

    __slots__ = ("_bytes", "_leaves", "_most_bytes", "_most_nodes", "_names", "_seeded", "_touched")

    def __init__(self, seeded: Tree, most_nodes: int, most_bytes: int) -> None:
        self._leaves: dict[str, FileNode | LinkNode] = {}
        self._names: dict[str, set[str]] = {"": set()}  # of each directory
        self._seeded = seeded
        self._touched: set[str] = set()
        self._bytes = 0  # of files that the body wrote
        self._most_nodes = len(seeded) + most_nodes
        self._most_bytes = most_bytes
        for path, node in seeded.items():
            self._enter(path, node)

    # --- looking ------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._leaves) + len(self._names) - 1

    def node(self, path: str) -> Node | None:
        """What stands at the path itself; a link is not followed."""
        return _DIR if path in self._names else self._leaves.get(path)

    @property
    def produced_bytes(self) -> int:
        """The bytes of all files together that the body wrote and that are still there."""
        return self._bytes

    def digests(self) -> frozenset[str]:
        """The contents of all files."""
        return frozenset(node.digest for node in self._leaves.values() if isinstance(node, FileNode))

    def names(self, directory: str) -> list[str]:
        """The names in a directory that is there, in the order of their bytes."""
        return sorted(self._names[directory], key=path_order)

    def produced(self, path: str) -> bool:
        """Whether the body itself made, replaced or removed what is, or was, at the path."""
        return path in self._touched

    def leaves(self) -> list[str]:
        """The paths of all files and links, in the order of their bytes."""
        return sorted(self._leaves, key=path_order)

    def tree(self) -> dict[str, Node]:
        """All files and links, and the directories that hold nothing."""
        empty = (path for path, names in self._names.items() if path and not names)
        return {**self._leaves, **dict.fromkeys(empty, _DIR)}

    def resolve(self, path: str, *, last: bool = True) -> str | WorkspaceError:
        """Where the way of `path` ends when its links are followed; with `last=False` not that of its last part."""
        todo, at, hops = path.split("/")[::-1] if path else [], "", 0
        while todo:
            name = todo.pop()
            if name == "..":
                at = parent_of(at)
                continue
            step = f"{at}/{name}" if at else name
            node = self._leaves.get(step)
            if isinstance(node, LinkNode) and (todo or last):
                hops += 1
                if hops > HOPS:
                    return WorkspaceError("not_found", f"{path}: its links lead in a circle")
                way = _way(at, node.target)
                if way is None:
                    message = f"{path}: the link {step} leads out of the workspace, to {node.target}"
                    return WorkspaceError("path_escapes_workspace", message)
                todo.extend(way)
                continue
            if isinstance(node, FileNode) and todo:
                return WorkspaceError("not_a_directory", f"{path}: {step} is a file")
            at = step
        return at

    # --- changing -----------------------------------------------------------

    def put(self, path: str, node: FileNode | LinkNode) -> Refused | None:
        """Make or replace a file or link, and the directories above it."""
        if path in self._names:
            return WorkspaceError("is_directory", f"{path} is a directory")
        problem: Refused | None = self._blocked(path)
        if problem is not None:
            return problem
        old = self._leaves.get(path)
        size = self._bytes + _size(node) - (_size(old) if path in self._touched else 0)
        if size > self._most_bytes:
            return LimitExceeded("produced_bytes", size, self._most_bytes)
        if old is None and (problem := self._full(path)):
            return problem
        self._bytes = size
        self._enter(path, node)
        self._touched.add(path)
        return None

    def make_dir(self, path: str) -> Refused | None:
        """Make a directory and those above it; one that is there stays."""
        if path in self._names:
            return None
        if path in self._leaves:
            return WorkspaceError("not_a_directory", f"{path} is a file or a link")
        problem = self._blocked(path) or self._full(path)
        if problem is not None:
            return problem
        self._enter(path, _DIR)
        self._touched.add(path)
        return None

    def drop(self, path: str) -> WorkspaceError | None:
        """Remove what is there: a file, a link, or a directory that holds nothing."""
        if path in self._names:
            if not path:
                return WorkspaceError("invalid_path", "the top of the workspace cannot be removed")
            if self._names[path]:
                return WorkspaceError("directory_not_empty", f"{path} still holds {', '.join(self.names(path)[:3])}")
            del self._names[path]
        else:
            if path in self._touched:
                self._bytes -= _size(self._leaves.get(path))
            del self._leaves[path]
        self._names[parent_of(path)].discard(path.rpartition("/")[2])
        self._touched.add(path)
        return None

    def below(self, directory: str) -> list[str]:
        """All that lies in a directory, deepest first, without the directory itself."""
        found: list[str] = []
        for name in self.names(directory):
            path = f"{directory}/{name}" if directory else name
            if path in self._names:
                found.extend(self.below(path))
            found.append(path)
        return found

    def _blocked(self, path: str) -> WorkspaceError | None:
        for directory in ancestors(path):
            if directory in self._leaves:
                return WorkspaceError("not_a_directory", f"{path}: {directory} is a file or a link")
        return None

    def _full(self, path: str) -> LimitExceeded | None:
        size = len(self) + 1 + sum(directory not in self._names for directory in ancestors(path))
        return LimitExceeded("nodes", size, self._most_nodes) if size > self._most_nodes else None

    def _enter(self, path: str, node: Node) -> None:
        if isinstance(node, DirNode):
            _ = self._names.setdefault(path, set())
        else:
            self._leaves[path] = node
        for directory in ancestors(path):
            made = directory not in self._names
            self._names.setdefault(directory, set()).add(path.rpartition("/")[2])
            if not made:
                return
            path = directory
        self._names[""].add(path)


def _way(directory: str, target: str) -> list[str] | None:
    """The parts that a link's target adds to the way, last first; None if it leads out of the workspace."""
    if target.startswith("/"):
        return None
    parts = [part for part in target.split("/") if part not in ("", ".")]
    depth = directory.count("/") + 1 if directory else 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return None
    return parts[::-1]


def _size(node: Node | None) -> int:
    return node.size if isinstance(node, FileNode) else 0
