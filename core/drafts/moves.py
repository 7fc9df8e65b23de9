"""Moves: where a draft lives on once it has been stored again.

A draft that is in the state keeps its place when it is stored a second time: the other place holds a copy, another
value. A draft that is not, because it or what held it was taken out, moves to where it is stored. If it is taken out
only after it was copied, it moves to its copy when it is next written, as long as the two have not come apart;
otherwise that write is refused. So no write is lost in silence, and `a, b = b, a` does what it does to plain values.
"""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeAlias

from ..kind import ATOMS, Kind, is_dict, is_list, is_tuple, kind_of
from ..record import record_type
from .faces import AnyNode, child_of

__all__ = ["come_home", "settle"]

Keys: TypeAlias = tuple[Hashable, ...]

LOST: Final = "this part was stored again as a copy; change it where it is now"


# --- storing ------------------------------------------------------------------


def settle(place: AnyNode, keys: Iterable[Hashable]) -> None:
    """Let the drafts that were stored just now, at or beneath `keys` of `place`, move there or know their copies."""
    context = place._context
    waiting: dict[int, list[AnyNode]] = {}
    for node in context.taken:
        waiting.setdefault(id(node._raw), []).append(node)
    taken = {id(node): node for node in context.taken}
    context.taken.clear()
    for key in keys:
        for way, nodes in _ways(place._at(key), waiting, (key,)):
            node = nodes.pop(0) if len(nodes) > 1 else nodes[0]  # the last one stands for every further place
            _settle_one(place, way, node)
            taken.pop(id(node), None)
    for node in taken.values():  # stored where no draft can be, as in a set
        node._release()
        context.copies.setdefault(id(node), []).append(None)


def _settle_one(place: AnyNode, way: Keys, node: AnyNode) -> None:
    for key in way[:-1]:
        place = _child_at(place, key)
    key = way[-1]
    if _may_move(node, place):
        _put_in(node, place, key)
    else:
        node._release()
        copies = node._context.copies.setdefault(id(node), [])
        copies.append(_child_at(place, key))


def _ways(value: object, wanted: dict[int, list[AnyNode]], way: Keys) -> Iterator[tuple[Keys, list[AnyNode]]]:
    """The ways to where the wanted values lie, each with the nodes that have that value."""
    if (nodes := wanted.get(id(value))) is not None:
        yield way, nodes
        return
    for key, item in _members(value):
        if type(item) not in ATOMS:
            yield from _ways(item, wanted, (*way, key))


def _members(value: object) -> Iterable[tuple[Hashable, object]]:
    if is_list(value) or is_tuple(value):
        return enumerate(value)
    if is_dict(value):
        return value.items()
    if kind_of(type(value)) is Kind.RECORD:
        known = record_type(type(value))
        return {**known.fields(value), **(known.extras(value) or {})}.items()
    return ()


def _child_at(place: AnyNode, key: Hashable) -> AnyNode:
    child_of(place, key, place._at(key))
    assert place._children is not None
    return place._children[key]


def _may_move(node: AnyNode, place: AnyNode) -> bool:
    if place._is_beneath(node):
        return False
    return node._parent is None or (not _is_in_state(node) and _is_in_state(place))


def _put_in(node: AnyNode, place: AnyNode, key: Hashable) -> None:
    """Let `node` be the draft of that place, whose value it holds."""
    if node._parent is not None and node._parent._children:
        node._release()  # what held it keeps the value
        node._parent._children.pop(node._key)
    node._parent = place
    node._key = key
    if place._children is None:
        place._children = {}
    place._children[key] = node
    place._renew_face()


# --- writing ------------------------------------------------------------------


def come_home(node: AnyNode) -> None:
    """Before a first write: if the draft is outside the state while a copy of it is inside, let it move there.

    A RuntimeError if it cannot, because the one or the other has been written since, or may have been taken apart.
    """
    try:
        _come_home(node, set())
    except RuntimeError:
        node._context.taken.clear()  # nothing will be stored
        raise


def _come_home(node: AnyNode, seen: set[int]) -> bool:
    """Whether the draft is in the state, perhaps only now."""
    line = [node]
    while line[-1]._parent is not None:
        line.append(line[-1]._parent)
    if line[-1]._is_root:
        return True
    for each in line:
        if id(each) not in seen:
            seen.add(id(each))
            if _find_home(each, seen):
                return True
    return False


def _find_home(node: AnyNode, seen: set[int]) -> bool:
    """Let the draft, which is outside the state, take the place of its last copy that is inside."""
    for copy in reversed(node._context.copies.get(id(node), ())):
        if copy is None:
            raise RuntimeError(LOST)
        if not _come_home(copy, seen):
            if copy._children is not None:  # parts of it may have been stored elsewhere
                raise RuntimeError(LOST)
            continue
        if not _is_in_state(node):
            if copy._raw is not node._raw:
                raise RuntimeError(LOST)
            _take_place_of(node, copy)
        return True
    return False


def _take_place_of(node: AnyNode, copy: AnyNode) -> None:
    place, key, copies = copy._parent, copy._key, node._context.copies
    assert place is not None
    copy._cut()
    _put_in(node, place, key)
    copies[id(node)] = [other for other in copies[id(node)] if other is not copy]
    copies.setdefault(id(copy), []).append(node)


def _is_in_state(node: AnyNode) -> bool:
    while node._parent is not None:
        node = node._parent
    return node._is_root
