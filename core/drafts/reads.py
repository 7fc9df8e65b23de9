"""Reads: what a selector has read of a state, and the views through which it reads.

A selector gets *views* in place of the containers of a state. A view keeps nothing but its place: the value itself, the
record of what was read there, the place it was reached from and its key there. What is recorded are leaves and shapes:
to pass through a container on the way to a leaf is no read of its own, since a write that replaces the container meets
the leaf as well. A container of which nothing else was read counts as read in its shape: at least that it is there.

After some elements of one iteration all further ones share one record, whose segment is `EACH`. So a scan costs the
same few paths however long it is; a read is never lost, but is taken for one of every element.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice, repeat, starmap
from sys import getrefcount
from typing import Final, NoReturn, TypeAlias

from ..kind import ATOMS, Kind, is_dict, is_tuple, key_text, kind_of, make_tuple
from ..model import Path, Paths
from ..paths import EACH, SHAPE, minimal
from ..record import record_type
from ..value import clone, clone_members
from .faces import is_fixed
from .node import refuse_ended

__all__ = [
    "FIND_VIEW",
    "PLACES",
    "Form",
    "Place",
    "Reads",
    "View",
    "chunks",
    "elements",
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

FOLD_AFTER: Final = 64
"""So many elements of one iteration have a record of their own; the others share one."""

FOLD_INNER: Final = 8
"""An iteration within an iteration folds after that fraction of elements, so that scans in scans stay small."""

LIMITS: Final = ((0, 1024), (4096, 16), (8192, 4), (16_384, 1))
"""From how many records of one selector on, how many parts of one container have a record of their own, however they
are reached. All further parts share one."""

CHUNK: Final = 256
"""How many elements of a folded iteration are made at a time."""

FEW: Final = 8
"""Beside `EACH`, so many elements keep paths of their own; if there are more, these are taken for each as well."""


# --- what was read: the whole of it ---------------------------------------------


class Extent:
    """What the records of one selector share: how large they may grow, and what its iterations are about to give.

    `limit` is how many parts of one container may have a record of their own by now.
    """

    __slots__ = ("count", "limit", "live")

    def __init__(self) -> None:
        self.count = 0
        self.limit = LIMITS[0][1]
        self.live: dict[object, tuple[list[object], ...]] = {}

    def grow(self) -> None:
        """There is one record more."""
        self.count += 1
        if self.count in _STAGES:
            self.limit = _STAGES[self.count]

    def end(self) -> None:
        """Let each iteration come back here for what is next."""
        for ahead in self.live.values():
            for values in ahead:
                values.clear()
        self.live.clear()


_STAGES: Final = dict(LIMITS)


# --- what was read: at one place --------------------------------------------------------------


class Reads:
    """What was read at one place: `keys` are parts read as wholes, `kids` the records of others, `each` of all.

    A `shared` record is that of several places. Any other has the one `view` of its place, so that a part of a state
    is the same object however it is reached, and what properties of it have `cached`.
    """

    __slots__ = ("cached", "each", "extent", "fold_after", "keys", "kids", "shape", "shared", "view", "whole")

    def __init__(self, fold_after: int = FOLD_AFTER, shared: bool = False, extent: Extent | None = None) -> None:
        self.extent = extent or Extent()
        self.cached: dict[object, object] | None = None
        self.keys: dict[str | int, None] = {}
        self.kids: dict[str | int, Reads] | None = None
        self.each: Reads | None = None
        self.view: object = None
        self.shape = self.whole = False
        self.shared = shared
        self.fold_after = fold_after

    def add(self, segment: str | int) -> None:
        """A part was read as a whole, or was looked for and is not there."""
        keys = self.keys
        if segment not in keys:
            if len(keys) < self.extent.limit:
                self.extent.grow()
                keys[segment] = None
            else:
                self.folded().whole = True

    def kid(self, segment: str | int, fold_after: int | None = None) -> Reads:
        """The record of the part at `segment`."""
        kids = self.kids
        if kids is None:
            kids = self.kids = {}
        found = kids.get(segment)
        if found is None:
            extent = self.extent
            if len(kids) >= extent.limit:
                return self.folded()
            extent.grow()
            found = kids[segment] = Reads(fold_after or self.fold_after, self.shared, extent)
        return found

    def folded(self) -> Reads:
        """The one record of all parts that have none of their own."""
        if self.each is None:
            self.each = Reads(self.inner(), True, self.extent)
        return self.each

    def inner(self) -> int:
        """After how many elements an iteration within an element of this place folds."""
        return max(1, self.fold_after // FOLD_INNER)

    # --- at the end ---

    def paths(self) -> Paths:
        """The paths that were read, none beneath another; the root if there was no read at all."""
        found: list[Path] = []
        self._collect((), found)
        return ((),) if self._is_untouched() else tuple(found)

    def _is_untouched(self) -> bool:
        return not (self.whole or self.shape or self.keys or self.kids or self.each)

    def _collect(self, path: Path, found: list[Path]) -> None:
        if self.whole:
            found.append(path)
            return
        keys, kids = self.keys, self.kids
        if self.shape or not (keys or kids or self.each):
            found.append((*path, SHAPE))
        if self.each is not None:
            self._collect_folded(path, self.each, found)
            return
        for key in keys:
            found.append((*path, key))
        if kids:
            for key, kid in kids.items():
                if key not in keys:
                    kid._collect(path + (key,), found)  # noqa: RUF005  # which takes half the time

    def _collect_folded(self, path: Path, each: Reads, found: list[Path]) -> None:
        depth = len(path)
        folded: list[Path] = []
        each._collect((*path, EACH), folded)
        single: list[Path] = [(*path, key) for key in self.keys]
        for key, kid in (self.kids or {}).items():
            if key not in self.keys and not kid._is_untouched():  # what meets an element as a whole meets `each`
                kid._collect((*path, key), single)
        known = set(folded)
        left = [one for one in minimal((*folded, *single)) if one not in known]
        if len(left) > FEW:
            left = [(*path, EACH, *one[depth + 1 :]) for one in left]
        found += minimal((*folded, *left))

    def end(self) -> None:
        """Make every view that leads here dead."""
        if self.extent.live:
            self.extent.end()
        if self.kids is not None:
            for kid in self.kids.values():
                kid.end()
        if self.each is not None:
            self.each.end()
        self.view = self.cached = None  # which lead back here
        self.__class__ = _Ended  # pyright: ignore[reportAttributeAccessIssue]  # of the same layout: every use raises


def _refuse_ended(*_: object) -> NoReturn:
    refuse_ended("this view was kept after its selector ended; return what you need: it is copied")


class _Ended(Reads):
    """The record of a place whose selector has ended."""

    __slots__ = ()

    keys = kids = each = view = shape = whole = property(_refuse_ended, _refuse_ended)  # pyright: ignore[reportAssignmentType]
    shared = fold_after = extent = cached = property(_refuse_ended, _refuse_ended)  # pyright: ignore[reportAssignmentType]
    end = add = kid = folded = inner = paths = _refuse_ended  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


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


class View:
    """What the views of containers share; those of records have a place too, but are of the class of the record."""

    __slots__ = ("_place",)

    _place: Place


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
    return view_of(value, place[1].kid(segment), place, key)


def view_of(value: object, reads: Reads, up: Place | None, key: Hashable) -> object:
    """What a selector gets for `value`, of which `reads` is the record: the one view of its place, if it has one."""
    view = reads.view
    if view is None:
        form = _forms.get(type(value))
        if form is None:
            view = made_view(value, reads, up, key)
        else:
            view = form[1]()
            form[2](view, (value, reads, up, key))
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


# --- iteration --------------------------------------------------------------------


def elements(
    place: Place,
    keys: Iterable[Hashable],
    values: Iterable[object],
    segment: Callable[[Hashable], str | int] | None = None,
    *,
    named: bool = False,
) -> Iterator[tuple[Iterable[Hashable], Iterable[object]]]:
    """The elements of a container beside their keys: one by one at first, then many at a time, which share one record.

    `segment` says what a path calls a key, if that is not the key itself. The keys of those that come many at a time
    are given if `named`. When all have been given, their number has been seen.
    """
    reads = place[1]
    keys, values = iter(keys), iter(values)
    inner = reads.inner()
    for key, value in islice(zip(keys, values, strict=False), reads.fold_after):
        at = segment(key) if segment else key
        assert isinstance(at, str | int)
        if type(value) in ATOMS:
            reads.add(at)
            yield (key,), (value,)
        else:
            yield (key,), (view_of(value, reads.kid(at, inner), place, key),)
    pool: list[object] = []
    live, this = reads.extent.live, object()
    try:
        while chunk := list(islice(values, CHUNK)):
            names: list[object] = list(islice(keys, len(chunk))) if named else []
            pool = _shared(place, reads.folded(), iter(names) if named else keys, chunk, pool)
            live[this] = (names, pool)
            yield names, pool
        reads.shape = True
    finally:
        live.pop(this, None)


def chunks(reads: Reads, values: Iterable[object]) -> Iterator[list[object]]:
    """Values that need no view, many at a time; DraftEnded for those that are asked for when the selector has ended."""
    values = iter(values)
    live, this = reads.extent.live, object()
    try:
        while chunk := list(islice(values, CHUNK)):
            live[this] = (chunk,)
            yield chunk
            reads.inner()
    finally:
        live.pop(this, None)


def _shared(
    place: Place, each: Reads, keys: Iterator[Hashable], values: list[object], pool: list[object]
) -> list[object]:
    """What a selector gets for elements that share the record `each`, made without a step of Python for each of them.

    As many `keys` are taken as there are values. Views in `pool` that nobody holds any more are used again.
    """
    types = {*map(type, values)}
    if types <= ATOMS:
        each.whole = True
        deque(islice(keys, len(values)), maxlen=0)
        return values
    if len(types) == 1 and (form := _forms.get(types.pop())) is not None:
        view_type, make, set_place = form
        views = _unused(pool, make) if pool and type(pool[0]) is view_type else []
        del views[len(values) :]
        views += starmap(make, repeat((), len(values) - len(views)))
        deque(map(set_place, views, zip(values, repeat(each), repeat(place), keys, strict=False)), maxlen=0)
        return views
    return [_shared_one(place, each, key, value) for value, key in zip(values, keys, strict=False)]


def _unused(pool: list[object], make: Callable[[], object]) -> list[object]:
    """The views of one type that nothing refers to but `pool`; usually all but the last, which a loop still holds."""
    counts = [*map(getrefcount, pool)]
    if counts.count(_UNUSED) == len(pool):
        return pool
    if counts[-1] != _UNUSED and counts.count(_UNUSED) == len(pool) - 1:
        pool[-1] = make()
        return pool
    return [view for view, count in zip(pool, counts, strict=True) if count == _UNUSED]


_UNUSED: Final = [*map(getrefcount, [object()])][0]  # noqa: RUF015  # counted in the same way


def _shared_one(place: Place, each: Reads, key: Hashable, value: object) -> object:
    if type(value) in ATOMS:
        each.whole = True
        return value
    return view_of(value, each, place, key)
