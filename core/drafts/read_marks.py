"""Marks of reads: what a selector has read at each place of a state, and the paths that come of it.

What is recorded are leaves and shapes: to pass through a container on the way to a leaf is no read of its own, since a
write that replaces the container meets the leaf as well. A container of which nothing else was read counts as read in
its shape: at least that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NoReturn

from ..model import Path, Paths
from ..paths import EACH, SHAPE, minimal
from .node import refuse_ended

__all__ = ["Extent", "Reads", "first_reads", "new_reads"]

FOLD_AFTER: Final = 64
"""So many elements of one iteration have a record of their own; the others share one."""

FOLD_INNER: Final = 8
"""An iteration within an iteration folds after that fraction of elements, so that scans in scans stay small."""

LIMIT: Final = 1024
"""So many parts of one container are told apart, however they are reached. All further parts share one record."""

LIMITS: Final = ((4096, 16), (8192, 4), (16_384, 1))
"""From how many parts read by one selector on, how many are then."""

FEW: Final = 8
"""Beside `EACH`, so many elements keep paths of their own; if there are more, these are taken for each as well."""

# --- the whole of it ------------------------------------------------------------------


class Extent:
    """What the records of one selector share: all of them, how large they may grow, and what is about to be given.

    `count` is how many parts without a record were met, and `limit` how many parts of one container are told apart by
    now. `live` is what iterations are about to give; `cached` are the values of cached properties.
    """

    __slots__ = ("cached", "count", "limit", "live", "next_limits", "records")

    cached: dict[object, object] | None
    count: int
    limit: int
    live: dict[object, tuple[list[object], ...]]
    next_limits: tuple[tuple[int, int], ...]
    records: list[Reads]

    def has_room(self, parts: int) -> bool:
        """Whether a container of which so many parts are told apart may have one more."""
        while self.next_limits and self.count + len(self.records) >= self.next_limits[0][0]:
            (_, self.limit), *rest = self.next_limits
            self.next_limits = tuple(rest)
        return parts < self.limit

    def end(self) -> None:
        """Make every view that leads to one of the records dead, and let each iteration come back for what is next."""
        if self.live:
            for ahead in self.live.values():
                for values in ahead:
                    values.clear()
            self.live.clear()
        self.cached = None  # which leads back here, as what follows does
        for record in self.records:
            record.view = None
            record.__class__ = _Ended  # of the same layout, and every use of it raises
        self.records.clear()


# --- at one place -----------------------------------------------------------------------


class Reads:
    """What was read at one place: parts of it, its `shape`, or the `whole`; `each` is the record of all other parts.

    Most places have one part that is read: `first`, of which `kid` is the record, or `atom` the type. The others are in
    `parts`, with their records; those that are atoms, or are not there, have none. Where one place has an atom and
    another that shares the record has none, the part is read as a whole.

    A `shared` record is that of several places. Any other has the one `view` of its place, so that a part of a state
    is the same object however it is reached. There is no `__init__`, whose call would be the larger half of the cost.
    """

    __slots__ = ("atom", "each", "extent", "first", "fold_after", "kid", "parts", "shape", "shared", "view", "whole")

    atom: type[object] | None
    each: Reads | None
    extent: Extent
    first: str | int | None
    fold_after: int
    kid: Reads | None
    parts: dict[str | int, Reads | None] | None
    shape: bool
    shared: bool
    view: object
    whole: bool

    def add(self, segment: str | int) -> None:
        """A part was read that is an atom, or was looked for and is not there."""
        first, extent = self.first, self.extent
        if first is None:
            self.first = segment
            extent.count += 1
            return
        parts = self.parts
        if first == segment:
            known = self.kid
        elif parts is not None and segment in parts:
            known = parts[segment]
        elif extent.has_room(1 + len(parts or ())):
            extent.count += 1
            if parts is None:
                self.parts = {segment: None}
            else:
                parts[segment] = None
            return
        else:
            known = self.folded()
        if known is not None:  # that of all others; or of this part in another place that shares the record
            known.whole = True

    def folded(self) -> Reads:
        """The one record of all parts that have none of their own."""
        if self.each is None:
            self.each = _made(self.extent, self.inner(), True)
        return self.each

    def inner(self) -> int:
        """After how many elements an iteration within an element of this place folds."""
        return max(1, self.fold_after // FOLD_INNER)

    # --- at the end ---

    def paths(self) -> Paths:
        """The paths that were read, none beneath another; the root if there was no read at all."""
        if self._is_untouched():
            return ((),)
        found: list[Path] = []
        self._collect((), found)
        return tuple(found)

    def _is_untouched(self) -> bool:
        return self.first is None and not (self.shape or self.whole or self.each)

    def _collect(self, path: Path, found: list[Path]) -> None:
        if self.whole:
            found.append(path)
            return
        first, parts, each = self.first, self.parts, self.each
        if self.shape or (first is None and each is None):
            found.append(path + (SHAPE,))  # noqa: RUF005  # which takes half the time, here and below
        if each is not None:
            self._collect_folded(path, each, found)
            return
        if first is not None:
            kid = self.kid
            if kid is None:
                found.append(path + (first,))  # noqa: RUF005
            else:
                kid._collect(path + (first,), found)  # noqa: RUF005
        if parts is not None:
            for key, kid in parts.items():
                if kid is None:
                    found.append(path + (key,))  # noqa: RUF005
                else:
                    kid._collect(path + (key,), found)  # noqa: RUF005

    def _parts(self) -> Iterator[tuple[str | int, Reads | None]]:
        if self.first is not None:
            yield self.first, self.kid
        if self.parts is not None:
            yield from self.parts.items()

    def _collect_folded(self, path: Path, each: Reads, found: list[Path]) -> None:
        depth = len(path)
        folded: list[Path] = []
        each._collect((*path, EACH), folded)
        single: list[Path] = []
        for key, kid in self._parts():
            if kid is None:
                single.append((*path, key))
            elif not kid._is_untouched():  # what meets an element as a whole meets `each`
                kid._collect((*path, key), single)
        known = set(folded)
        left = [one for one in minimal((*folded, *single)) if one not in known]
        if len(left) > FEW:
            left = [(*path, EACH, *one[depth + 1 :]) for one in left]
        found += minimal((*folded, *left))


new_reads: Final[Callable[[], Reads]] = partial(object.__new__, Reads)
"""A record of which nothing is set yet."""

_new_extent: Final[Callable[[], Extent]] = partial(object.__new__, Extent)


def first_reads() -> Reads:
    """The record of a state of which nothing was read yet."""
    extent = _new_extent()
    extent.cached = None
    extent.count = 0
    extent.limit, extent.next_limits = LIMIT, LIMITS
    extent.live = {}
    extent.records = []
    return _made(extent, FOLD_AFTER, False)


def _made(extent: Extent, fold_after: int, shared: bool) -> Reads:
    made = new_reads()
    made.extent = extent
    made.first = made.kid = made.atom = made.parts = made.each = made.view = None
    made.shape = made.whole = False
    made.shared = shared
    made.fold_after = fold_after
    extent.records.append(made)
    return made


def _refuse_ended(*_: object) -> NoReturn:
    refuse_ended("this view was kept after its selector ended; return what you need: it is copied")


class _Ended(Reads):
    """The record of a place whose selector has ended."""

    __slots__ = ()

    first = kid = atom = parts = each = view = property(_refuse_ended, _refuse_ended)  # pyright: ignore[reportAssignmentType]
    shape = whole = shared = fold_after = extent = property(_refuse_ended, _refuse_ended)  # pyright: ignore[reportAssignmentType]
    add = folded = inner = paths = _refuse_ended  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
