"""Reads: the views through which a selector reads a state.

A selector gets *views* in place of the containers of a state. A view keeps nothing but its place: the value itself, the
record of what was read there, the place it was reached from and its key there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, NoReturn, TypeAlias, TypeVar

from ..kind import ATOMS, Kind, is_dict, is_tuple, key_text, kind_of, make_tuple
from ..model import Path
from ..record import record_type
from ..value import clone, clone_members
from .faces import is_fixed
from .read_marks import Reads, new_reads

__all__ = [
    "FIND_VIEW",
    "PLACES",
    "Form",
    "Place",
    "View",
    "form_of",
    "inner_view",
    "made_view",
    "part",
    "path_of",
    "place_of",
    "read_whole",
    "refuse_change",
    "same_place",
    "segment_of",
    "view_of",
]

_R_co = TypeVar("_R_co", covariant=True)

# --- places and views -------------------------------------------------------------

Place: TypeAlias = "tuple[object, Reads, Place | None, Hashable]"
"""A value, what was read of it, where it was reached from, and its key there."""

PLACES: Final[dict[type[object], Callable[[object], Place]]] = {}
"""How the place of a view is found, by the type of the view."""

Form: TypeAlias = "tuple[type[object], Callable[[], object], Callable[[object, Place], None]]"
"""The type of a view, how one is made, still without a place, and how its place is set."""

FIND_VIEW: Final[dict[Kind, Callable[[type[object]], Form]]] = {}
"""The form of the views of values of a type, by its kind; each kind's module adds its own."""

_forms: Final[dict[type[object], Form]] = {}


def form_of(type_: type[object]) -> Form | None:
    """The form of the views of values of a type, if there was one yet."""
    return _forms.get(type_)


class View(Generic[_R_co]):
    """What the views of containers share; those of records have a place too, but are of the class of the record."""

    __slots__ = ("_place",)

    _place: tuple[_R_co, Reads, Place | None, Hashable]


def place_of(value: object) -> Place | None:
    """The place of a view; None for any other value."""
    find = PLACES.get(type(value))
    return None if find is None else find(value)


def refuse_change(*_: object, **__: object) -> NoReturn:
    raise TypeError("selectors must not change state: only look here, and change it in a claim or an updater")


def part(place: Place, segment: str | int, key: Hashable, value: object) -> object:
    """What a selector gets for `value`, found at `key` of `place`; a path calls it `segment`."""
    if type(value) in ATOMS:
        place[1].add(segment)
        return value
    return inner_view(place, segment, key, value)


def inner_view(place: Place, segment: str | int, key: Hashable, value: object, fold_after: int = 0) -> object:
    """What a selector gets for `value`, which is no atom, found at `key` of `place`; a path calls it `segment`.

    A selector waits for this more than for all else, so the record and the view are made here without a call.
    """
    reads = place[1]
    first, extent = reads.first, reads.extent
    if first is None or first == segment:
        known = reads.kid
        if known is not None:
            return view_of(value, known, place, key)
        kid = reads.kid = new_reads()
        kid.whole = first is not None
        reads.first = segment
    else:
        parts = reads.parts
        if parts is None:
            parts = reads.parts = {}
        known = parts.get(segment)
        if known is not None:
            return view_of(value, known, place, key)
        if not extent.has_room(len(parts) + 1):
            return view_of(value, reads.folded(), place, key)
        kid = new_reads()
        kid.whole = segment in parts
        parts[segment] = kid
    extent.records.append(kid)
    kid.extent = extent
    kid.first = kid.kid = kid.atom = kid.parts = kid.each = kid.view = None
    kid.shape = False
    kid.fold_after = fold_after or reads.fold_after
    kid.shared = shared = reads.shared
    form = _forms.get(type(value))
    if form is None:
        view = made_view(value, kid, place, key)
    else:
        view = form[1]()
        form[2](view, (value, kid, place, key))
    if not shared:
        kid.view = view
    return view


def view_of(value: object, reads: Reads, up: Place | None, key: Hashable) -> object:
    """What a selector gets for `value`, of which `reads` is the record: the one view of its place, if it has one."""
    view = reads.view
    if view is None:
        view = made_view(value, reads, up, key)
        if not reads.shared:
            reads.view = view
    return view


def made_view(value: object, reads: Reads, up: Place | None, key: Hashable) -> object:
    """A new view of `value`."""
    type_ = type(value)
    form = _forms.get(type_)
    if form is None:
        kind = kind_of(type_)
        if kind not in FIND_VIEW:
            return _other_of(value, kind, reads, up, key)
        form = _forms[type_] = FIND_VIEW[kind](type_)
    view = form[1]()
    form[2](view, (value, reads, up, key))
    return view


def _other_of(value: object, kind: Kind, reads: Reads, up: Place | None, key: Hashable) -> object:
    """A tuple is given as one, of views; what cannot be changed as it is, and other frozen sets as copies."""
    if kind is Kind.TUPLE and is_tuple(value) and not is_fixed(value):
        reads.shape = True
        place: Place = (value, reads, up, key)
        members = [part(place, at, at, item) for at, item in enumerate(value)]
        return tuple(members) if type(value) is tuple else make_tuple(value, members)
    reads.whole = True
    if kind is Kind.ATOM or is_fixed(value):
        return value
    return clone_members(value, clone)


def read_whole(place: Place) -> object:
    """A private copy of what lies there; it counts as read as a whole."""
    place[1].whole = True
    return clone(place[0])


def same_place(one: Place, other: Place) -> bool:
    """Whether two places are one, though they may have been reached in two ways, or in two passes of an iteration."""
    while one is not other:
        up, its = one[2], other[2]
        if one[0] is not other[0] or one[3] != other[3] or up is None or its is None:
            return False
        one, other = up, its
    return True


def segment_of(key: object) -> str | int:
    """What a path calls the key of a dict."""
    return key if type(key) is str else key_text(key)


def path_of(place: Place) -> Path:
    """The path to a place."""
    segments: list[str | int] = []
    up = place[2]
    while up is not None:
        key, value = place[3], up[0]
        if is_dict(value):
            segments.append(segment_of(key))
        elif isinstance(key, int):
            segments.append(key)
        elif not record_type(type(value)).transparent:
            assert isinstance(key, str)
            segments.append(key)
        place, up = up, up[2]
    return tuple(reversed(segments))
