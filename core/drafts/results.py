"""Results: what a selector returned, made again without its views, from values of the state or from drafts of them."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from contextlib import suppress
from types import MappingProxyType
from typing import Final, TypeGuard, TypeVar

from ..kind import (
    ATOMS,
    Kind,
    acts_as_dict,
    acts_as_list,
    is_dict,
    is_frozenset,
    is_list,
    is_set,
    is_tuple,
    kind_of,
)
from ..model import Path
from ..record import record_type
from ..value import clone, clone_members
from .faces import AnyNode, child_of, node_of
from .node import Root
from .reads import Place, path_of, place_of, read_whole

__all__ = ["Rebuild", "Selected", "detach_error", "detached", "present"]

_C = TypeVar("_C", list[object], dict[object, object])

SINGLE: Final = 64
"""So many results from a folded scan count as read at their own paths; with more, each element counts as read."""


class Rebuild:
    """Copies a value in which views and drafts may stand, with something else in place of each view."""

    __slots__ = ("_of_place",)

    def __init__(self, of_place: Callable[[Place], object]) -> None:
        self._of_place = of_place

    def __call__(self, value: object) -> object:
        """The copy. A ValueError for a value that holds itself, a TypeError for one that cannot be copied."""
        try:
            return self._take(value)
        except RecursionError:
            raise ValueError("what a selector selects must not hold itself, or be nested too deeply") from None

    def of_place(self, place: Place) -> object:
        return self._of_place(place)

    def _take(self, value: object) -> object:
        type_ = type(value)
        if type_ in ATOMS:
            return value
        place = place_of(value)
        if place is not None:
            return self._of_place(place)
        if node_of(value) is not None:
            return copy.deepcopy(value)
        if is_list(value):
            return [*map(self._take, value)]
        if is_dict(value):
            return {self._take(key): self._take(item) for key, item in value.items()}
        match kind_of(type_):
            case Kind.ATOM:
                return value
            case Kind.RECORD:
                return record_type(type_).clone(value, self._take)
            case Kind.UNKNOWN:
                return self._take_other(value)
            case _:
                return clone_members(value, self._take)

    def _take_other(self, value: object) -> object:
        if isinstance(value, Iterator):
            raise TypeError("a selector must return what it found, not an iterator that is still to look for it")
        if _is_keys(value):
            return {self._take(key): None for key in value}.keys()
        if _is_values(value):
            return dict(enumerate(map(self._take, value))).values()
        if _is_items(value):
            return {self._take(key): self._take(item) for key, item in value}.items()
        if _is_mapping_proxy(value):
            return MappingProxyType({self._take(key): self._take(item) for key, item in value.items()})
        if acts_as_dict(value):
            made = self._emptied(value)
            for key, item in value.items():
                made[self._take(key)] = self._take(item)
            return made
        if acts_as_list(value):
            listed = self._emptied(value)
            listed[:] = map(self._take, value)
            return listed
        if _is_deque(value):
            return deque(map(self._take, value), value.maxlen)
        return copy.deepcopy(value, {_REBUILD: self})

    def _emptied(self, value: _C) -> _C:
        """Another container of the same class that holds nothing yet, but has the same attributes."""
        made = copy.copy(value)
        made.clear()
        held: dict[str, object] = getattr(made, "__dict__", {})
        held.update({name: self._take(item) for name, item in held.items()})
        return made


_REBUILD: Final = -1  # no object has this id


def _is_keys(value: object) -> TypeGuard[KeysView[object]]:
    return isinstance(value, KeysView)


def _is_values(value: object) -> TypeGuard[ValuesView[object]]:
    return isinstance(value, ValuesView)


def _is_items(value: object) -> TypeGuard[ItemsView[object, object]]:
    return isinstance(value, ItemsView)


def _is_mapping_proxy(value: object) -> TypeGuard[MappingProxyType[object, object]]:
    return type(value) is MappingProxyType


def _is_deque(value: object) -> TypeGuard[deque[object]]:
    return type(value) is deque


def present(place: Place, memo: object) -> object:
    """What a view becomes in a deep copy: a private plain value, or what stands for it where a result is made again."""
    rebuild = memo.get(_REBUILD) if is_dict(memo) else None
    return rebuild.of_place(place) if isinstance(rebuild, Rebuild) else read_whole(place)


def detached(value: object) -> object:
    """`value`, with private copies in place of the drafts in it."""
    return value if type(value) in ATOMS else Rebuild(read_whole)(value)


# --- views in an error --------------------------------------------------------------


def detach_error(error: BaseException) -> None:
    """Let an error that a callback raised, and those that led to it, hold copies in place of views and drafts.

    It keeps its text then when they have ended. Objects of other classes that it holds stay the same objects.
    """
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__, *(one.exceptions if _is_group(one) else ())]
        with suppress(Exception):  # one that does not let itself be changed, or holds itself, stays as it is
            _detach_one(one)


def _detach_one(error: BaseException) -> None:
    if any(map(_holds_view, error.args)):
        error.args = tuple([detached(value) if _holds_view(value) else value for value in error.args])
    for name, value in list(vars(error).items()):
        if _holds_view(value):
            setattr(error, name, detached(value))


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _holds_view(value: object) -> bool:
    """Whether there is a view or a draft in a value: it is one, or a container of which one is a member."""
    if type(value) in ATOMS:
        return False
    if place_of(value) is not None or node_of(value) is not None:
        return True
    if is_dict(value):
        return any(map(_holds_view, value)) or any(map(_holds_view, value.values()))
    return (is_list(value) or is_tuple(value) or is_set(value) or is_frozenset(value)) and any(map(_holds_view, value))


# --- views in a result ------------------------------------------------------------


class Selected:
    """What a selector found, in which each view counts as read as a whole.

    `paths` are those of views that share the record of what was read of them with others.
    """

    __slots__ = ("_found", "paths")

    def __init__(self, found: object) -> None:
        self._found = found
        self.paths: list[Path] = []

    def detached(self) -> object:
        """It, with private copies in place of the views."""
        if type(self._found) in ATOMS:
            return self._found
        return Rebuild(self._copy)(self._found)

    def drafted(self, root: Root) -> object:
        """It, with the drafts of the same places in place of the views; `root` holds the state."""
        return Rebuild(lambda place: self._draft(place, root))(self._found)

    def _copy(self, place: Place) -> object:
        self._read(place)
        return clone(place[0])

    def _draft(self, place: Place, root: Root) -> object:
        self._read(place)
        return _node_at(place, root)._face

    def _read(self, place: Place) -> None:
        if place[1].shared and len(self.paths) < SINGLE:
            self.paths.append(path_of(place))
        else:
            place[1].whole = True


def _node_at(place: Place, root: Root) -> AnyNode:
    up, key = place[2], place[3]
    node: AnyNode = root if up is None else _node_at(up, root)
    child_of(node, key, node._at(key))
    assert node._children is not None
    return node._children[key]
