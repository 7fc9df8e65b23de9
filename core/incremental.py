"""Incremental settling: what an updater wrote is validated and written down by itself, without the rest of the state.

`settle` gives what validating the whole state would give, or None where only that can tell: nothing here says that a
state is wrong. What was written is cut back to the nearest place whose part is free (`core/places.py`); each part goes
through its JSON and comes back, so that what is kept is canonical; and the new state is the old one with those parts
replayed on it, so that nothing else an updater did can reach it. `core/catch_up.py` does the same with patches that
others committed.

Cost: the parts that were written, and one copy of each container above them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct
from pydantic_core import PydanticSerializationError, SchemaError, ValidationError, from_json

from .checks import Refused, Unsettled, checked, differing_at, narrows, part_at
from .fidelity import differences
from .kind import ATOMS, is_dict, is_list, stands_for
from .model import Path, Paths
from .parts import NO_PART, part_of, root_of
from .patch import Operation, Order, Patch, Put, Remove, Splice, between, replay
from .paths import SHAPE, diff, minimal
from .places import Place, Places
from .sharing import flat
from .value import NotStorable, clone, same

__all__ = ["Settled", "Spot", "changed_of", "json_of", "settle", "spot_of"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Settled(Struct, Generic[_T_co], frozen=True):
    """What a changed state became: the canonical state, the patch of documents that leads to it, and what changed."""

    state: _T_co
    patch: Patch
    changed: Paths


class Spot(NamedTuple):
    """A path from the root as far as there are places, the last of them, and the records with checks on the way."""

    path: Path
    place: Place
    checked: tuple[tuple[Path, Place], ...]


def settle(places: Places, before: _T, after: object, written: Paths) -> Settled[_T] | None:
    """What a canonical state became that an updater changed at `written` only; None if the whole must be looked at.

    `Refused` says that it must, and that the state is not valid as it was written.
    """
    try:
        return _Settling(places, before, after, written).settled(before)
    except Refused:
        raise
    except (Unsettled, ValidationError, SchemaError, PydanticSerializationError, NotStorable, RecursionError):
        return None


class _Settling:
    """One settling. `confirms`: checks wrote some of what was written, and validation may change nothing more."""

    def __init__(
        self, places: Places, before: object, after: object, written: Paths, *, confirms: bool = False
    ) -> None:
        self._places = places
        self._confirms = confirms
        self._before = before
        self._after = after
        self._written = written
        self._spots: dict[Path, Spot] = {}
        self._removed: set[Path] = set()
        self._wholes: set[Path] = set()
        self._coerced: list[Path] = []  # where validation changed what was written
        self._documents: list[Operation] = []
        self._values: list[Operation] = []

    def settled(self, before: _T) -> Settled[_T]:
        spots = [self._spot(path) for path in self._written]
        cut = minimal(spot.path for spot in spots)
        if () in cut:
            raise Unsettled
        for operation in between(self._before, self._after, cut).operations:
            self._operate(operation)
        if not self._documents:
            return Settled(before, Patch(), ())
        state = stands_for(before, replay(self._before, Patch(tuple(self._values))))
        state, wrote = _after_checks(state, spots)
        if wrote or (self._confirms and self._coerced):
            return self._confirmed(before, state, wrote)
        return Settled(state, Patch(tuple(self._documents)), self._changed(state))

    def _confirmed(self, before: _T, state: _T, wrote: list[Path]) -> Settled[_T]:
        """The same with what checks wrote, once the parts and the checks above them leave it as it is."""
        if self._confirms or narrows(self._after, state, wrote):
            raise Refused
        paths = minimal([*wrote, *self._coerced, *self._written])
        changed = tuple(each for path in paths for each in differing_at(before, state, path))
        return _Settling(self._places, before, state, changed, confirms=True).settled(before)

    # --- the parts that were written ------------------------------------------

    def _operate(self, operation: Operation) -> None:
        match operation:
            case Put(path=path, value=value):
                self._put(path, value)
            case Splice(path=path, start=start, removed=removed, values=values):
                self._splice(path, start, removed, values)
            case Remove(path=path):
                _admit_length(self._place(path[:-1]), part_at(self._after, path[:-1]))
                self._removed.add(path)
                self._values.append(operation)
                self._documents.append(operation)
            case Order():
                self._values.append(operation)
                self._documents.append(operation)

    def _spot(self, path: Path) -> Spot:
        spot = self._spots.get(path)
        if spot is None:
            spot = self._spots[path] = spot_of(self._places.root, path, self._after)
        return spot

    def _place(self, path: Path) -> Place:
        spot = self._spot(path)
        if len(spot.path) < len(path):
            raise Unsettled
        return spot.place

    def _put(self, path: Path, value: object) -> None:
        place = self._place(path)
        found, json = self._admitted(place, value, path)
        old = NO_PART if path in self._removed else part_at(self._before, path)  # it may come again, at the end
        if old is NO_PART:
            self._admit_key(path)
        elif same(old, found):
            return
        elif type(value) not in ATOMS and (place.is_barrier or path not in self._written):
            self._values.append(Put(path, found))
            self._documents += self._within(path, json_of(place, old), json)
            return
        self._values.append(Put(path, found))
        self._documents.append(Put(path, Raw(json)))

    def _within(self, path: Path, old: bytes, new: bytes) -> Iterable[Operation]:
        """What changed in the document of a barrier: its parts have paths, though no places."""
        before, after = msgspec.json.decode(old), msgspec.json.decode(new)
        written = [each[len(path) :] for each in self._written if each[: len(path)] == path]
        if path in self._coerced:
            written = [()] if () in written else list(diff(before, after))
        for operation in between(before, after, written).operations:
            yield _beneath(path, operation)

    def _admit_key(self, path: Path) -> None:
        """A key that comes new into a dict is validated too; no other container has new keys of its own."""
        place, key = self._place(path[:-1]), path[-1]
        if place.keys is None or not isinstance(key, str):
            raise Unsettled
        found, _ = self._admitted(place.keys, key, path)
        if not same(found, key):
            raise Unsettled
        _admit_length(place, part_at(self._after, path[:-1]))

    def _splice(self, path: Path, start: int, removed: int, values: Sequence[object]) -> None:
        place = self._place(path)
        if place.is_barrier:  # a list that must be looked at as a whole, once for all of its runs
            if path not in self._wholes:
                self._wholes.add(path)
                self._put(path, part_at(self._after, path))
            return
        _admit_length(place, part_at(self._after, path))
        found: list[object] = []
        documents: list[object] = []
        for index, value in enumerate(values, start):
            element = place.beneath(part_at(self._after, path), index)
            if element is None:
                raise Unsettled
            admitted, json = self._admitted(element, value, (*path, index))
            found.append(admitted)
            documents.append(Raw(json))
        self._values.append(Splice(path, start, removed, tuple(found)))
        self._documents.append(Splice(path, start, removed, tuple(documents)))

    def _admitted(self, place: Place, value: object, path: Path) -> tuple[object, bytes]:
        """The canonical part for one that was written, and its JSON.

        Whatever a validator raises, also one that asks for the value to be left out, the look at the whole meets again.
        """
        try:
            found, json = self._found(place, value, path)
        except Exception:
            raise Unsettled from None
        if type(value) not in ATOMS and not _is_readable(json, len(path)):
            raise Unsettled
        return found, json

    def _found(self, place: Place, value: object, path: Path) -> tuple[object, bytes]:
        unit = place.unit
        plain = value if type(value) in ATOMS else flat(value)
        try:
            json = _json(place, plain)
            found: object = unit.reader.validate_json(json, by_alias=False, by_name=True)
            if same(plain, found):
                return found, json  # also of an atom: a zone by name has become its offset
        except (ValueError, PydanticSerializationError):
            pass  # JSON alone cannot tell what it should be
        admitted: object = unit.admitter.validate_python(clone(plain), by_alias=False, by_name=True)
        json = _json(place, admitted)
        found = unit.reader.validate_json(json, by_alias=False, by_name=True)
        if not same(admitted, found) or any(each.is_narrowed for each in differences(plain, found)):
            raise Unsettled
        self._coerced.append(path)
        return found, json

    # --- what changed ---------------------------------------------------------

    def _changed(self, state: object) -> Paths:
        """What was written, without what is there as before; or what differs, where validation changed some of it."""
        if not self._coerced:
            return changed_of(self._before, state, self._written)
        coerced = minimal([*self._coerced, *self._written])
        return tuple(each for path in coerced for each in differing_at(self._before, state, path))


SURELY_READABLE: Final = 100
"""So deep may JSON be nested without a question to the parser, which has a limit of its own above that."""


def _is_readable(json: bytes, depth: int) -> bool:
    """Whether the JSON of a part is read where it lies: the parser sets a limit to how deep the whole is nested."""
    if json.count(b"[") + json.count(b"{") + depth <= SURELY_READABLE:
        return True
    try:
        from_json(b"[" * depth + json + b"]" * depth)
    except ValueError:
        return False
    return True


def _json(place: Place, part: object) -> bytes:
    json = place.unit.writer.to_json(part, by_alias=False, round_trip=True, warnings=False)
    if json == b"null" and part is not None:
        raise Unsettled  # elsewhere it would be read as nothing
    return json


def json_of(place: Place, part: object) -> bytes:
    return _json(place, part if type(part) in ATOMS else flat(part))


def spot_of(root: Place, path: Path, state: object) -> Spot:
    """How far the places go along a path. The shape of a container is at the place of the container."""
    place, value = root, state
    checked: list[tuple[Path, Place]] = []
    for depth, segment in enumerate(path):
        below = place if segment is SHAPE and place.has_elements else place.beneath(value, segment)
        if below is None:
            return Spot(path[:depth], place, tuple(checked))
        if place.checks:
            checked.append((path[:depth], place))
        if segment is SHAPE:
            break
        place, value = below, part_of(value, segment)
        if value is NO_PART and depth < len(path) - 1:
            raise Unsettled
    return Spot(path, place, tuple(checked))


def _admit_length(place: Place, value: object) -> None:
    inner = root_of(value)
    if not place.has_elements or not (is_list(inner) or is_dict(inner)) or not place.holds(len(inner)):
        raise Unsettled


def _is_equal(before: object, after: object, path: Path) -> bool:
    """Whether an atom was written that was there before."""
    if path and path[-1] is SHAPE:
        return False
    old, new = part_at(before, path), part_at(after, path)
    return type(new) in ATOMS and same(old, new)


def changed_of(before: object, after: object, written: Paths) -> Paths:
    """Those of the paths that were written at which there is not just an atom that was there before."""
    return tuple(path for path in minimal(written) if not _is_equal(before, after, path))


def _after_checks(state: _T, spots: Sequence[Spot]) -> tuple[_T, list[Path]]:
    """The state as the validators of its records leave it, the innermost first, and where they changed it."""
    records = dict.fromkeys(each for spot in spots for each in spot.checked)
    reached: object = state
    wrote: list[Path] = []
    for path, place in sorted(records, key=lambda each: len(each[0]), reverse=True):
        record, changed = checked(place, part_at(reached, path))
        if changed:
            reached = replay(reached, Patch((Put(path, record),)))
            wrote += [(*path, *each) for each in changed]
    return stands_for(state, reached), wrote


def _beneath(path: Path, operation: Operation) -> Operation:
    match operation:
        case Put(path=rest, value=value):
            return Put((*path, *rest), value)
        case Remove(path=rest):
            return Remove((*path, *rest))
        case Splice(path=rest, start=start, removed=removed, values=values):
            return Splice((*path, *rest), start, removed, values)
        case Order(path=rest, keys=keys):
            return Order((*path, *rest), keys)
