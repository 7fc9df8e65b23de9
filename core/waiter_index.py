"""An index of read paths: who has read what a write changes, found along the written path and not by going through all.

It is a trie whose edges are runs of segments, so that a path which nobody shares costs one node. A read that ends
above a write, at it, or beneath it has met it; `EACH` in a read stands for any element or key, never for `SHAPE`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar, cast, final

from .model import Path
from .paths import EACH, SHAPE

__all__ = ["WaiterIndex"]

_H = TypeVar("_H", bound=Hashable)


class _Many(set[_H]):
    """The holders of one path, where they are several; one alone is kept as it is, since that is the common case."""

    __slots__ = ()


@final
class _Node(Generic[_H]):
    """`tail` leads to this place from where the node above branches; `below` is by the next segment, None for none."""

    __slots__ = ("below", "held", "tail")

    def __init__(self, tail: Path, held: _H | _Many[_H] | _Nobody) -> None:
        self.tail = tail
        self.held: _H | _Many[_H] | _Nobody = held
        self.below: dict[str | int, _Node[_H]] | None = None


@final
class _Nobody:
    """Who holds a path that only leads on to others."""


NOBODY: Final = _Nobody()


@final
class WaiterIndex(Generic[_H]):
    """Holders, each under any number of paths. Matching a write costs its length and what is found."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[_H] = _Node((), NOBODY)

    def __bool__(self) -> bool:
        """Whether anybody holds a path."""
        return self._root.held is not NOBODY or self._root.below is not None

    def add(self, path: Path, holder: _H) -> None:
        """Let the holder have read `path`; twice is once."""
        node, at = self._root, 0
        while at < len(path):
            if node.below is None:
                node.below = {}
            segment = path[at]
            child = node.below.get(segment)
            if child is None:
                node.below[segment] = _Node(path[at + 1 :], holder)
                return
            shared = _shared(child.tail, path, at + 1)
            if shared < len(child.tail):
                node.below[segment] = child = _split(child, shared)
            node, at = child, at + 1 + shared
        if node.held is NOBODY:
            node.held = holder
        elif isinstance(node.held, _Many):
            node.held.add(holder)
        elif node.held != holder:
            node.held = _Many((cast("_H", node.held), holder))  # neither nobody nor many: it is a holder

    def remove(self, path: Path, holder: _H) -> None:
        """Forget that the holder has read `path`; nothing happens if it has not."""
        way: list[tuple[_Node[_H], str | int]] = []
        node, at = self._root, 0
        while at < len(path):
            child = None if node.below is None else node.below.get(path[at])
            if child is None or path[at + 1 : at + 1 + len(child.tail)] != child.tail:
                return
            way.append((node, path[at]))
            node, at = child, at + 1 + len(child.tail)
        if isinstance(node.held, _Many):
            node.held.discard(holder)
            if len(node.held) == 1:
                (node.held,) = node.held
        elif node.held == holder:
            node.held = NOBODY
            _prune(way, node)

    def match(self, writes: Iterable[Path]) -> set[_H]:
        """Who has read what one of these writes changes. A write holds no `EACH`."""
        found: set[_H] = set()
        for write in writes:
            self._match(write, found)
        return found

    def _match(self, write: Path, found: set[_H]) -> None:
        end = len(write)
        todo: list[tuple[_Node[_H], int]] = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            tail = node.tail
            if tail:
                over = at + len(tail) > end
                if over:
                    tail = tail[: end - at]
                if tail != write[at : at + len(tail)] and not _stands_for(tail, write, at):
                    continue
                at += len(tail)
            if at == end:
                _gather(node, found)
                continue
            _give(node.held, found)
            below = node.below
            if below is not None:
                segment = write[at]
                child = below.get(segment)
                if child is not None:
                    todo.append((child, at + 1))
                if segment is not SHAPE:
                    child = below.get(EACH)
                    if child is not None:
                        todo.append((child, at + 1))


def _shared(tail: Path, path: Path, begin: int) -> int:
    """How many segments of `tail` the path has from `begin` on."""
    count = 0
    for ours, its in zip(tail, path[begin:], strict=False):
        if ours != its:
            break
        count += 1
    return count


def _split(node: _Node[_H], at: int) -> _Node[_H]:
    """A new node for the first `at` segments of the node's tail, above the node, which keeps those after the next."""
    above: _Node[_H] = _Node(node.tail[:at], NOBODY)
    above.below = {node.tail[at]: node}
    node.tail = node.tail[at + 1 :]
    return above


def _prune(way: list[tuple[_Node[_H], str | int]], node: _Node[_H]) -> None:
    """Take out a node that nobody holds any more, and join those that only lead on."""
    if node.below is None and way:
        above, segment = way.pop()
        if above.below is not None:
            del above.below[segment]
            if not above.below:
                above.below = None
        node = above
    if way and node.held is NOBODY:
        above, segment = way[-1]
        if node.below is None:
            _prune(way, node)
        elif len(node.below) == 1 and above.below is not None:
            ((next_segment, only),) = node.below.items()
            only.tail = (*node.tail, next_segment, *only.tail)
            above.below[segment] = only


def _stands_for(tail: Path, write: Path, at: int) -> bool:
    """Whether the segments read are those written from `at` on, or `EACH` in the place of one."""
    return all(
        read == write[at + offset] or (read is EACH and write[at + offset] is not SHAPE)
        for offset, read in enumerate(tail)
    )


def _give(held: _H | _Many[_H] | _Nobody, found: set[_H]) -> None:
    if isinstance(held, _Many):
        found.update(held)
    elif held is not NOBODY:
        found.add(cast("_H", held))  # neither nobody nor many: it is a holder


def _gather(node: _Node[_H], found: set[_H]) -> None:
    """All holders of the node and beneath it."""
    todo = [node]
    while todo:
        node = todo.pop()
        _give(node.held, found)
        if node.below is not None:
            todo.extend(node.below.values())
