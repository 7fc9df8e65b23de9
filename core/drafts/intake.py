"""Intake: how a value of the user's becomes part of a draft, as a copy.

Copying keeps whatever the user still holds out of the state: a change made to it later is not a change of the state.
The one exception is a draft that was taken out of the state (`pop`) and is put back: it moves, and lives on there
(`moves`).
"""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kind import ATOMS, Kind, acts_as_dict, acts_as_list, is_dict, is_list, key_text, kind_of
from ..record import record_type
from ..value import NotStorable, clone_members
from .faces import node_of

if TYPE_CHECKING:
    from .faces import AnyNode

__all__ = ["admit_key", "plain"]


def plain(value: object, place: AnyNode) -> object:
    """The plain value to store beneath `place` for `value`: a copy, in which each draft is what it stands for.

    A key that is not text and not declared, or a value of an unknown class, is a TypeError; a value that holds itself
    is NotStorable.
    """
    if type(value) in ATOMS:
        return value
    node = node_of(value)
    if node is not None:
        return node._leave_for(place)
    try:
        return _Intake(place, _key_types_at(place)).take(value)
    except BaseException as error:
        place._context.taken.clear()  # nothing was stored
        if not isinstance(error, RecursionError):
            raise
        raise NotStorable("the value holds itself, or is nested too deeply to be stored") from None


def _key_types_at(place: AnyNode) -> frozenset[type[object]]:
    """Types of keys that values beneath `place` may have: the declared ones, and those of its own keys."""
    declared = place._context.key_types
    if is_dict(place._raw) and place._raw:
        return declared | {type(next(iter(place._raw)))}
    return declared


def admit_key(key: object, admitted: frozenset[type[object]]) -> object:
    """The key as it is stored: a TypeError unless it is text or of one of the `admitted` types."""
    type_ = type(key)
    if type_ is str or type_ in admitted:
        return key
    if isinstance(key, str):
        return key_text(key)
    raise TypeError(
        f"the key {key!r} of class {type_.__name__} cannot be stored: keys are text, unless the type declares others"
    )


class _Intake:
    """Copies one value. Inside a record any key is let through: its class says which there may be."""

    __slots__ = ("_key_types", "_place", "_records")

    def __init__(self, place: AnyNode, key_types: frozenset[type[object]]) -> None:
        self._place = place
        self._key_types = key_types
        self._records = 0

    def take(self, value: object) -> object:
        type_ = type(value)
        if type_ in ATOMS:
            return value
        node = node_of(value)
        if node is not None:
            return node._leave_for(self._place)
        if is_list(value):
            return [self.take(item) for item in value]
        if is_dict(value):
            return self._take_dict(value)
        kind = kind_of(type_)
        if kind is Kind.ATOM:
            return value
        if kind is Kind.RECORD:
            self._records += 1
            taken = record_type(type_).clone(value, self.take)
            self._records -= 1
            return taken
        if kind is Kind.UNKNOWN:
            return self._take_subclass(value)
        return clone_members(value, self.take)

    def _take_dict(self, value: dict[object, object]) -> dict[object, object]:
        if self._records:
            return {key: self.take(item) for key, item in value.items()}
        return {admit_key(key, self._key_types): self.take(item) for key, item in value.items()}

    def _take_subclass(self, value: object) -> object:
        """A subclass of list or dict becomes a plain one; a value of any other unknown class is refused."""
        if acts_as_list(value):
            return [self.take(item) for item in value]
        if acts_as_dict(value):
            return self._take_dict(value)
        return clone_members(value, self.take)
