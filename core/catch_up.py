"""Catching up: patches that others committed, replayed on a state that is held decoded, without its document.

An operation at a free place (`core/places.py`) is read by itself. Those beneath a barrier are replayed on the document
of its part, all of them before it is read: what lies between two of them need not be valid.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from pydantic_core import PydanticSerializationError, ValidationError

from .checks import Unsettled, part_at
from .incremental import Spot, json_of, spot_of
from .kind import is_dict, stands_for
from .model import Path
from .parts import root_of
from .patch import Operation, Order, Patch, Put, Remove, Splice, replay, replay_document
from .places import Place, Places

__all__ = ["advance"]

_T = TypeVar("_T")


def advance(places: Places, state: _T, patch: Patch) -> _T | None:
    """The canonical state to which a patch of documents leads; None if only the whole document can tell."""
    try:
        reached: object = state
        within: list[Operation] = []  # on parts of one barrier, at `barrier`
        barrier: Spot | None = None
        for operation in patch.operations:
            spot = spot_of(places.root, operation.path, reached)
            if barrier is not None and spot.path != barrier.path:
                reached = replay(reached, Patch((_read_within(barrier, reached, within),)))
                barrier, within = None, []
                spot = spot_of(places.root, operation.path, reached)
            read = None if barrier is not None else _read(spot, reached, operation)
            if read is None:
                barrier = spot
                within.append(operation)
            else:
                reached = replay(reached, Patch((read,)))
        if barrier is not None:
            reached = replay(reached, Patch((_read_within(barrier, reached, within),)))
    except (Unsettled, ValidationError, PydanticSerializationError, RecursionError):
        return None
    return stands_for(state, reached)


def _read(spot: Spot, state: object, operation: Operation) -> Operation | None:
    """The operation on the state that an operation on its document is; None beneath a barrier."""
    path = operation.path
    exact = len(spot.path) == len(path)
    match operation:
        case Put(value=value) if exact and path:
            return Put(path, _value(spot.place, msgspec.json.encode(value)))
        case Splice(start=start, removed=removed, values=values) if exact and spot.place.has_elements:
            element = spot.place.beneath(part_at(state, path), start)
            if element is None:
                raise Unsettled
            read = tuple(_value(element, msgspec.json.encode(value)) for value in values)
            return Splice(path, start, removed, read)
        case Remove() if exact and path:
            return operation
        case Order() if exact and not spot.place.is_barrier and is_dict(root_of(part_at(state, path))):
            return operation
        case _:
            return None


def _read_within(barrier: Spot, state: object, operations: list[Operation]) -> Operation:
    """Operations in the document of a barrier, as the new value of the whole of it."""
    if not barrier.path:
        raise Unsettled
    document: object = msgspec.json.decode(json_of(barrier.place, part_at(state, barrier.path)))
    above = tuple(_above(barrier.path, operation) for operation in operations)
    document = replay_document(document, (Patch(above),))
    return Put(barrier.path, _value(barrier.place, msgspec.json.encode(document)))


def _above(path: Path, operation: Operation) -> Operation:
    rest = operation.path[len(path) :]
    match operation:
        case Put(value=value):
            return Put(rest, value)
        case Remove():
            return Remove(rest)
        case Splice(start=start, removed=removed, values=values):
            return Splice(rest, start, removed, values)
        case Order(keys=keys):
            return Order(rest, keys)


def _value(place: Place, json: bytes) -> object:
    found: object = place.unit.reader.validate_json(json, by_alias=False, by_name=True)
    return found
