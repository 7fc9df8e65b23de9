"""Copy-back: in which order the changes of a step come to the host, and what is told of it.

A plan is a sequence of operations, each on one path and each atomic: what is removed, then the directories that this
leaves, then new directories, what is created, and what is replaced at last. A change of type at a path (a file that
becomes a directory, say) is two operations of one plan; both know what stood at the path and what will stand there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from .node import DirNode, FileNode, LinkNode, Node
from .tree import NodeChange, path_order
from .workspace_path import ancestors

__all__ = [
    "CopyBackDecision",
    "CopyBackEvent",
    "HardLinkReplaced",
    "LateWritePreserved",
    "Op",
    "OpKind",
    "PreimageKept",
    "Recovered",
    "is_beneath",
    "plan",
    "required_directories",
]

OpKind: TypeAlias = Literal["remove", "rmdir", "prune", "mkdir", "create", "replace"]

DEFAULT_MODE: Final = 0o777


@final
@dataclass(frozen=True, slots=True)
class Op:
    """One atomic change of one path. `before` and `after` are what the whole plan finds and leaves there.

    `slot` numbers the place beside the host's files where the new node waits and the old one is kept. `prune` removes
    a directory if nothing else is in it; `mode` are the permissions with which a removed directory is made again.
    """

    kind: OpKind
    path: str
    slot: int
    before: Node | None
    after: Node | None
    mode: int = DEFAULT_MODE


# --- what is told -----------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class CopyBackDecision:
    """What is about to be decided: all of these changes, under this transaction."""

    transaction: str
    bundle_identity: str


@final
@dataclass(frozen=True, slots=True)
class LateWritePreserved:
    """Somebody wrote to the replaced file through a handle from before; these bytes are kept at `kept`."""

    path: str
    kept: str


@final
@dataclass(frozen=True, slots=True)
class HardLinkReplaced:
    """The target had further names; it is a file of its own now, and the other names keep the old bytes."""

    path: str


@final
@dataclass(frozen=True, slots=True)
class PreimageKept:
    """A change was taken back, but somebody else's bytes stand at the path; what stood there before is at `kept`."""

    path: str
    kept: str


@final
@dataclass(frozen=True, slots=True)
class Recovered:
    """How a copy-back ended whose process had not ended it. `conflicts` are paths that somebody else changed."""

    transaction: str
    how: Literal["rolled forward", "undone", "cleaned up", "discarded"]
    conflicts: tuple[str, ...] = ()


CopyBackEvent: TypeAlias = LateWritePreserved | HardLinkReplaced | PreimageKept | Recovered


# --- paths ------------------------------------------------------------------


def is_beneath(path: str, directory: str) -> bool:
    """Whether the path lies within the directory; "" holds every path, and no path lies within itself."""
    return path.startswith(f"{directory}/") if directory else path != ""


# --- planning ---------------------------------------------------------------


def plan(changes: Iterable[NodeChange], trees: Iterable[str] = ()) -> tuple[Op, ...]:
    """The operations that make the changes, in the order in which they are applied.

    Directories within `trees` that are left empty are pruned. Directories that are made before anything else, because
    nothing stands in their way, are not among the operations: see `required_directories`.
    """
    return _Plan(tuple(sorted(changes, key=lambda change: path_order(change.path))), tuple(trees)).ops()


def required_directories(changes: Iterable[NodeChange], ops: Iterable[Op]) -> tuple[str, ...]:
    """The directories that must stand before the plan is applied, the upper ones first."""
    late = {op.path for op in ops if op.kind == "mkdir"}
    needed: set[str] = set()
    for change in changes:
        if change.after is not None:
            needed.update(ancestors(change.path))
        if isinstance(change.after, DirNode):
            needed.add(change.path)
    return tuple(sorted(needed - late, key=_shallow_first))


@final
class _Plan:
    def __init__(self, changes: tuple[NodeChange, ...], trees: tuple[str, ...]) -> None:
        self._changes = changes
        self._trees = trees
        self._removed = [it for it in changes if _is_entry(it.before) and not _is_entry(it.after)]
        self._above_gone = {above for it in changes if it.after is None for above in ancestors(it.path)}
        self._held = self._find_held()
        self._removed_directories = self._find_removed_directories()

    def ops(self) -> tuple[Op, ...]:
        drafts = [*self._removals(), *self._directory_removals(), *self._late_directories(), *self._creations()]
        drafts += [Op("replace", it.path, 0, it.before, it.after) for it in self._changes if _is_replacement(it)]
        return tuple(Op(op.kind, op.path, slot, op.before, op.after) for slot, op in enumerate(drafts))

    def _find_held(self) -> set[str]:
        """The directories that something stands in afterwards, or that stand themselves."""
        held = {it.path for it in self._changes if isinstance(it.after, DirNode)}
        for change in self._changes:
            if change.after is not None:
                held.update(ancestors(change.path))
        return held

    def _find_removed_directories(self) -> dict[str, Node | None]:
        """From each directory that has to go to what stands in its place."""
        going = [it.path for it in self._changes if isinstance(it.before, DirNode) and it.after is None]
        found: dict[str, Node | None] = dict.fromkeys(path for path in going if path not in self._held)
        for change in self._changes:
            if _is_entry(change.after) and not _is_entry(change.before) and self._was_directory(change):
                found[change.path] = change.after
        within = [
            path for path in self._above_gone if path not in found and not found.keys().isdisjoint(ancestors(path))
        ]
        found.update(dict.fromkeys(within))
        return found

    def _was_directory(self, change: NodeChange) -> bool:
        return isinstance(change.before, DirNode) or change.path in self._above_gone

    def _removals(self) -> Iterator[Op]:
        for change in sorted(self._removed, key=lambda it: _deep_first(it.path)):
            held = change.path in self._held
            yield Op("remove", change.path, 0, change.before, DirNode() if held else None)

    def _directory_removals(self) -> Iterator[Op]:
        pruned = self._find_pruned()
        for path in sorted(self._removed_directories.keys() | pruned, key=_deep_first):
            after = self._removed_directories.get(path)
            yield Op("prune" if path in pruned else "rmdir", path, 0, DirNode(), after)

    def _find_pruned(self) -> set[str]:
        inside = {path for path in self._above_gone if any(is_beneath(path, tree) for tree in self._trees)}
        return inside - self._held - self._removed_directories.keys()

    def _late_directories(self) -> Iterator[Op]:
        """Directories in whose way a file stands until it is removed, and those within them."""
        before = {it.path: it.before for it in self._removed}
        for path in sorted(self._held, key=_shallow_first):
            if path in before or any(above in before for above in ancestors(path)):
                yield Op("mkdir", path, 0, before.get(path), DirNode())

    def _creations(self) -> Iterator[Op]:
        for change in self._changes:
            if _is_entry(change.after) and not _is_entry(change.before):
                before = DirNode() if change.path in self._removed_directories else None
                yield Op("create", change.path, 0, before, change.after)


def _is_entry(node: Node | None) -> bool:
    """Whether it is moved as a whole, being no directory."""
    return isinstance(node, FileNode | LinkNode)


def _is_replacement(change: NodeChange) -> bool:
    return _is_entry(change.before) and _is_entry(change.after)


def _shallow_first(path: str) -> tuple[int, bytes]:
    return path.count("/"), path_order(path)


def _deep_first(path: str) -> tuple[int, bytes]:
    return -path.count("/"), path_order(path)
