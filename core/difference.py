"""What differs between two states of a store, as JSON values at paths."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct

from .model import Path, Paths
from .parts import NO_PART, part_of
from .patch import decode
from .paths import SHAPE, diff, minimal

__all__ = ["ABSENT", "Absent", "Difference", "changed_by", "differences"]


class Absent(Enum):
    """What a state has at a path where it has nothing: JSON's null is a value."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Difference(Struct, frozen=True):
    """The JSON values, or `ABSENT`, that two states have at a path."""

    path: Path
    before: object
    after: object


def differences(before: bytes, after: bytes) -> tuple[Difference, ...]:
    """Where two JSON documents differ, at the deepest paths that say so.

    Where only the order of keys differs, these are the paths of the objects.
    """
    one: object = msgspec.json.decode(before)
    other: object = msgspec.json.decode(after)
    found = diff(one, other)
    parts = [path for path in found if path[-1:] != (SHAPE,)]
    orders = [path[:-1] for path in found if path[-1:] == (SHAPE,)]
    parts += [path for path in orders if not any(part[: len(path)] == path for part in parts)]
    return tuple(Difference(path, _look(one, path), _look(other, path)) for path in parts)


def changed_by(patch: bytes) -> Paths:
    """The paths of the values that an encoded patch stores, removes or reorders. A garbled patch raises ValueError."""
    return minimal(operation.path for operation in decode(patch).operations)


def _look(value: object, path: Path) -> object:
    for segment in path:
        value = part_of(value, segment)
        if value is NO_PART:
            return ABSENT
    return value
