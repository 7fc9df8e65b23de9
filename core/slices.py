"""A document in slices: the JSON of a large state, written a part at a time, so that others may run in between.

The slices of a state joined are its document, byte for byte. A container that only validates and writes as a whole
(`core/places.py`) is one slice, however large.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from pydantic_core import to_json

from .kind import ATOMS, Kind, is_dict, is_list, kind_of
from .parts import root_of
from .places import Place
from .record import record_type
from .sharing import flat

__all__ = ["SLICE", "slices"]

SLICE: Final = 1_024
"""How many elements of one list or dict are written at once: some 0.5 ms."""


def slices(place: Place, state: object) -> Iterator[bytes]:
    """The JSON of a canonical state at its place."""
    inner = root_of(state)
    if place.has_elements and (is_list(inner) or is_dict(inner)) and len(inner) > SLICE:
        return _elements(place, inner)
    if not place.is_barrier and not place.has_elements and kind_of(type(inner)) is Kind.RECORD:
        return _fields(place, inner)
    return iter([_written(place, state)])


def _fields(place: Place, record: object) -> Iterator[bytes]:
    known = record_type(type(record))
    fields = known.fields(record)
    beneath = {name: place.beneath(record, name) for name in fields}
    if known.extras_allowed or not all(beneath.values()):
        yield _written(place, record)
        return
    before = b"{"
    for name, part in fields.items():
        below = beneath[name]
        assert below is not None
        yield before + to_json(name) + b":"
        yield from slices(below, part)
        before = b","
    yield b"{}" if before == b"{" else b"}"


def _elements(place: Place, value: list[object] | dict[object, object]) -> Iterator[bytes]:
    """The elements of a list or a dict, each written by itself."""
    element = place.beneath(value, 0) if is_list(value) else place.beneath(value, "")
    assert element is not None
    keyed = is_dict(value)
    before = b"{" if keyed else b"["
    rest: Iterator[tuple[object, object]] = iter(value.items()) if is_dict(value) else ((None, part) for part in value)
    while some := list(islice(rest, SLICE)):
        if keyed:
            yield before + b",".join([to_json(key) + b":" + _written(element, part) for key, part in some])
        else:
            yield before + b",".join([_written(element, part) for _, part in some])
        before = b","
    yield b"}" if keyed else b"]"


def _written(place: Place, part: object) -> bytes:
    plain = part if type(part) in ATOMS else flat(part)
    return place.unit.writer.to_json(plain, by_alias=False, round_trip=True, warnings=False)
