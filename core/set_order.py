"""An order for what a set holds, the same in every process: functions and classes are hashed by where they lie.

It is taken from names and values, and not from what code does: the forms of the elements tell that.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from types import FunctionType
from typing import Final

from .code_facts import Form, NoForm, atom, facts_of
from .code_home import class_name, function_name
from .kind import is_class, is_dict, is_frozenset, is_list, is_tuple
from .object_state import state_of

__all__ = ["in_set_order"]

DEPTH: Final = 8
"""How far down the parts of an element are looked at."""


def in_set_order(elements: Iterable[object]) -> list[object]:
    """The elements of a set. Of those that have one name, and parts that do, the order is any."""
    return sorted(elements, key=lambda element: json.dumps(_sketch(element, 0)))


def _sketch(value: object, depth: int) -> Form:
    """What tells a value from others, roughly."""
    try:
        return atom(value)
    except NoForm:
        pass
    if is_class(value):
        return ["class", class_name(value)]
    if isinstance(value, FunctionType):
        return ["function", function_name(value), facts_of(value.__code__).digest]
    name = class_name(type(value))
    if isinstance(value, enum.Enum):
        return ["member", name, value.name]
    return ["object", name] if depth >= DEPTH else ["object", name, *_parts(value, depth + 1)]


def _parts(value: object, depth: int) -> list[Form]:
    if is_tuple(value) or is_list(value):
        return [_sketch(part, depth) for part in value]
    if is_frozenset(value):
        return sorted((_sketch(part, depth) for part in value), key=json.dumps)
    if is_dict(value):
        return [[_sketch(key, depth), _sketch(part, depth)] for key, part in value.items()]
    if type(value).__module__.partition(".")[0] in _WRITTEN:
        return [repr(value)]
    return [[key, _sketch(part, depth)] for key, part in state_of(value).items()]


_WRITTEN: Final = frozenset({"datetime", "decimal", "fractions", "uuid", "pathlib", "ipaddress", "zoneinfo", "re"})
"""Modules whose objects are all of what they are written as."""
