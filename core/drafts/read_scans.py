"""Scans: iteration over the containers of a state by a selector.

After some elements of one iteration all further ones share one record, whose segment is `EACH`. So a scan costs the
same few paths however long it is; a read is never lost, but is taken for one of every element.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice, repeat, starmap
from sys import getrefcount
from typing import Final

from ..kind import ATOMS
from .read_marks import Reads
from .reads import Place, form_of, inner_view, view_of

__all__ = ["chunks", "elements"]

CHUNK: Final = 256
"""How many elements of a folded iteration are made at a time."""


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
            yield (key,), (inner_view(place, at, key, value, inner),)
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
    if len(types) == 1 and (form := form_of(types.pop())) is not None:
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
