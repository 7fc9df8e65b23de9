"""Drafts in tuples: the tuple itself cannot be changed, but what it holds can."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from collections.abc import Hashable

from ..kind import ATOMS, Kind, is_tuple, make_tuple
from ..model import Path
from .faces import FIND_MAKER, AnyNode, child_of
from .node import Node, Report

__all__ = ["TupleNode"]


class TupleNode(Node[tuple[object, ...]]):
    """One place that holds a tuple. User code gets a real tuple, of the same class, that holds drafts."""

    __slots__ = ()

    def __init__(self, raw: tuple[object, ...], parent: AnyNode, key: Hashable) -> None:
        super().__init__(raw, parent, key, parent._context)
        self._make_face()

    def _renew_face(self) -> None:
        self._make_face()
        if self._parent is not None:
            self._parent._renew_face()  # another tuple holds the face itself

    def _make_face(self) -> None:
        raw = self._raw
        members = [item if type(item) in ATOMS else child_of(self, at, item) for at, item in enumerate(raw)]
        self._face = tuple(members) if type(raw) is tuple else make_tuple(raw, members)

    def _copied(self) -> tuple[object, ...]:
        return self._raw

    def _at(self, key: Hashable) -> object:
        assert isinstance(key, int)
        return self._raw[key]

    def _put(self, key: Hashable, value: object) -> None:
        assert isinstance(key, int)
        members = list(self._raw)
        members[key] = value
        self._raw = tuple(members) if type(self._raw) is tuple else make_tuple(self._raw, members)
        self._owned = True
        if self._parent is not None:
            self._parent._put(self._key, self._raw)

    def _report(self, path: Path, report: Report) -> None:
        for key, child in (self._children or {}).items():
            if child._raw is not child._base:
                child._report((*path, *self._segments(key)), report)


def _make(raw: object, parent: AnyNode, key: Hashable) -> AnyNode:
    assert is_tuple(raw)
    return TupleNode(raw, parent, key)


FIND_MAKER[Kind.TUPLE] = lambda _: _make
