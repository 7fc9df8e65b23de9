"""Faces: what user code gets for a value of a draft, and the way back from a face to its node."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ..kind import ATOMS, Kind, is_frozenset, is_tuple, kind_of
from ..value import clone, clone_members
from .dumping import SERIALIZER, writes_as

if TYPE_CHECKING:
    from .node import Node

__all__ = ["FACES", "FIND_MAKER", "AnyNode", "Maker", "child_of", "node_of", "passes_for"]

_D = TypeVar("_D", bound="AnyNode")

AnyNode: TypeAlias = "Node[object]"
Maker: TypeAlias = "Callable[[object, AnyNode, Hashable], AnyNode]"

FIND_MAKER: Final[dict[Kind, Callable[[type[object]], Maker]]] = {}
"""How nodes for values of a type are made, by its kind; each kind's module adds its own."""

FACES: Final[dict[type[object], Callable[[object], AnyNode]]] = {}
"""How the node behind a face is found, by the type of the face."""

_makers: Final[dict[type[object], Maker]] = {}


def child_of(node: AnyNode, key: Hashable, value: object) -> object:
    """What user code gets for `value`, which is no atom, at `key` of `node`: the one draft of that place.

    A tuple or frozen set in which nothing can be changed is given as it is, other frozen sets as copies. A value of an
    unknown class is a TypeError: it could be changed unseen.
    """
    children = node._children
    if children is None:
        children = node._children = {}
    elif (found := children.get(key)) is not None:
        return found._face
    type_ = type(value)
    make = _makers.get(type_)
    if make is None:
        kind = kind_of(type_)
        if kind is Kind.ATOM or is_fixed(value):
            return value
        if kind is Kind.FROZENSET or kind is Kind.UNKNOWN:
            return clone_members(value, clone)
        make = FIND_MAKER[kind](type_)
        if kind is not Kind.TUPLE:  # of which each value is looked at
            _makers[type_] = make
    child = children[key] = make(value, node, key)
    return child._face


def is_fixed(value: object) -> bool:
    """Whether `value` is an atom, or a tuple or frozen set of such: it can be handed out as it is."""
    type_ = type(value)
    if type_ in ATOMS:
        return True
    if (is_tuple(value) and not type_.__dictoffset__) or is_frozenset(value):
        return all(map(is_fixed, value))
    return kind_of(type_) is Kind.ATOM


def node_of(value: object) -> AnyNode | None:
    """The node behind a draft; None for a plain value."""
    find = FACES.get(type(value))
    return None if find is None else find(value)


_NEW: Final = "__new__"
_NODE_ARGUMENTS: Final = 3  # of a node: its value, its parent and its key there


def passes_for(type_: type[object], protocol: object) -> Callable[[type[_D]], type[_D]]:
    """Let drafts of this class, which are their own nodes, pass for `type_` with `isinstance` and `match`.

    `type(draft)(values)`, as `dataclasses.asdict` has it, makes a plain container.
    """

    def new(draft: type[object], *args: object) -> object:
        return object.__new__(draft) if len(args) == _NODE_ARGUMENTS else type_(*args)

    def mark(draft: type[_D]) -> type[_D]:
        draft._passes_for = type_
        setattr(draft, _NEW, new)
        setattr(draft, SERIALIZER, _WRITES_PLAIN)
        if isinstance(protocol, ABCMeta):
            protocol.register(draft)  # so that `match` takes it for a sequence or a mapping
        FACES[draft] = _itself
        return draft

    return mark


def _plain(draft: object) -> object:
    node = node_of(draft)
    assert node is not None
    return node._present()


_WRITES_PLAIN: Final = writes_as(_plain)


def _itself(face: object) -> AnyNode:
    return face  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # only drafts that are nodes come here
