"""The most usual change of all, made cheap: one atom in place of another, at a place that is free.

It gives what `incremental.settle` gives, in one walk down and one up. Where anything is out of the ordinary the answer
is None, and that one looks.
"""

from __future__ import annotations

from math import isfinite
from typing import TypeVar

import msgspec
from msgspec import Raw

from .incremental import Settled
from .kind import ATOMS, stands_for
from .model import Path
from .parts import NO_PART, part_of, with_part
from .patch import Patch, Put
from .places import Place
from .value import same

__all__ = ["settle_atom"]

_T = TypeVar("_T")


def settle_atom(root: Place, before: _T, after: object, path: Path) -> Settled[_T] | None:
    """What `before` becomes by the atom that `after` has at `path`, if that is all that was written."""
    place: Place = root
    old: object = before
    above: list[object] = []
    for segment in path:
        below = place.beneath(old, segment)
        if below is None or place.checks:
            return None
        above.append(old)
        old, after, place = part_of(old, segment), part_of(after, segment), below
    if type(after) not in ATOMS or old is NO_PART or not above:
        return None
    json, made = _exact(place, after), after
    if json is None:
        admitted = _admitted(place, after)
        if admitted is None:
            return None
        made, json = admitted
    if same(old, after):
        return Settled(before, _NOTHING, ())
    for container, segment in zip(reversed(above), reversed(path), strict=True):
        made = with_part(container, segment, made, in_place=False)
    return Settled(stands_for(before, made), Patch((Put(path, Raw(json)),)), (path,))


_NOTHING = Patch()


def _exact(place: Place, atom: object) -> bytes | None:
    """The JSON of an atom of the very class that the place takes as it is; None if there is more to it."""
    if type(atom) is not place.exact or (type(atom) is float and not isfinite(atom)):
        return None
    try:
        return msgspec.json.encode(atom)
    except (UnicodeEncodeError, OverflowError):
        return None  # half of a surrogate pair; a number of more than 64 bits


def _admitted(place: Place, atom: object) -> tuple[object, bytes] | None:
    """The canonical atom for one that comes back from its JSON as it is, and the JSON; None otherwise."""
    unit = place.unit
    try:
        json = unit.writer.to_json(atom, by_alias=False, round_trip=True, warnings=False)
        found: object = unit.reader.validate_json(json, by_alias=False, by_name=True)
    except Exception:  # a validator's: the look at the whole tells it, or raises it, in its turn
        return None
    return (found, json) if same(atom, found) and (json != b"null" or atom is None) else None
