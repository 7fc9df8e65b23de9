"""Values of states: how they are copied, and when two are the same.

Equality is strict: of one type and of one value, so `1`, `1.0` and `True` are three values.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable

from .chunks import differing
from .kind import (
    ATOMS,
    Kind,
    acts_as_set,
    are_of_one_class,
    is_dict,
    is_frozenset,
    is_list,
    is_set,
    is_tuple,
    kind_of,
    make_tuple,
)
from .layered import step_between
from .record import record_type

__all__ = ["NotStorable", "clone", "clone_members", "same"]


class NotStorable(ValueError):
    """A value that no state can hold, because it holds itself or is nested too deeply."""


# --- copies -------------------------------------------------------------------


def clone(value: object) -> object:
    """A private copy of a plain value: equal, of the same types, sharing nothing that can be changed.

    Anything that occurs twice becomes two values. A value that holds itself is NotStorable; one of an unknown class is
    a TypeError.
    """
    try:
        return _clone(value)
    except RecursionError:
        raise NotStorable("the value holds itself, or is nested too deeply to be stored") from None


def _clone(value: object) -> object:
    type_ = type(value)
    if type_ in ATOMS:
        return value
    if is_list(value):
        return [item if type(item) in ATOMS else _clone(item) for item in value]
    if is_dict(value):
        return {key: item if type(item) in ATOMS else _clone(item) for key, item in value.items()}
    match kind_of(type_):
        case Kind.ATOM:
            return value
        case Kind.RECORD:
            return record_type(type_).clone(value, _clone)
        case _:
            return clone_members(value, _clone)


def clone_members(value: object, clone_value: Callable[[object], object]) -> object:
    """A copy of a tuple or a set whose members went through `clone_value`; a TypeError for other values."""
    if is_tuple(value):
        members = [clone_value(item) for item in value]
        return tuple(members) if type(value) is tuple else make_tuple(value, members)
    if is_set(value):
        return {clone_value(item) for item in value}
    if is_frozenset(value):
        return frozenset([clone_value(item) for item in value])
    name = type(value).__qualname__
    raise TypeError(f"a state cannot hold a value of class {name}; use a model, a dataclass, or plain lists and dicts")


# --- comparison ---------------------------------------------------------------


def same(one: object, other: object) -> bool:
    """Whether two plain values are strictly equal: types, values, order of keys; NaN is itself, 0.0 is not -0.0.

    How a list or a dict is held makes no difference; what two of them share is not looked at.
    """
    if one is other:
        return True
    type_ = type(one)
    if type_ is not type(other) and not are_of_one_class(one, other):
        return False
    if type_ is str or type_ is int:
        return one == other
    if is_list(one) and is_list(other):
        return len(one) == len(other) and _same_elements(one, other)
    if is_dict(one) and is_dict(other):
        return len(one) == len(other) and _same_entries(one, other)
    match kind_of(type_):
        case Kind.RECORD:
            known = record_type(type_)
            return same(known.fields(one), known.fields(other)) and same(known.extras(one), known.extras(other))
        case Kind.TUPLE if is_tuple(one) and is_tuple(other):
            return len(one) == len(other) and all(map(same, one, other))
        case Kind.SET | Kind.FROZENSET:
            return _same_members(one, other)
        case _:
            return _same_atoms(one, other)


def _same_elements(one: list[object], other: list[object]) -> bool:
    if type(one) is list and type(other) is list:
        return all(map(same, one, other))
    return all(same(old, new) for _, old, new in differing(one, other))


def _same_entries(one: dict[object, object], other: dict[object, object]) -> bool:
    step = step_between(one, other)
    if step is not None:
        return not step.gone and not step.came and all(same(one[key], other[key]) for key in step.put)
    return all(map(same, one, other)) and all(map(same, one.values(), other.values()))


def _same_members(one: object, other: object) -> bool:
    if not acts_as_set(one) or not acts_as_set(other) or one != other:
        return False
    twins: dict[object, object] = {item: item for item in other}
    return all(same(item, twins[item]) for item in one)


def _same_atoms(one: object, other: object) -> bool:
    match one, other:
        case float(), float():
            return float.hex(one) == float.hex(other)
        case (decimal.Decimal(), decimal.Decimal()):
            return one.as_tuple() == other.as_tuple()
        case (datetime.datetime(), datetime.datetime()):
            return one.isoformat() == other.isoformat()  # instants in two zones are equal, but not the same
        case (datetime.time(), datetime.time()):
            return one.isoformat() == other.isoformat()
        case _:
            return bool(one == other)
