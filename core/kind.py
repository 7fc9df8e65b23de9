"""What states are made of: atoms, lists, dicts, sets, tuples and records.

An *atom* cannot be changed and holds nothing that can: numbers, text, dates, members of enumerations. A *record* has
named fields: a pydantic model or a dataclass. Everything else that is not one of the containers is unknown, and no
state holds it.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import uuid
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, TypeGuard, TypeVar

from pydantic import AnyUrl, BaseModel

from .chunks import Chunked
from .layered import Layered

__all__ = [
    "ATOMS",
    "Kind",
    "acts_as_dict",
    "acts_as_list",
    "acts_as_set",
    "are_of_one_class",
    "is_a",
    "is_class",
    "is_dict",
    "is_frozenset",
    "is_iterable",
    "is_list",
    "is_set",
    "is_subclass",
    "is_text",
    "is_tuple",
    "key_text",
    "kind_of",
    "left_set",
    "make_tuple",
    "stands_for",
]

_T = TypeVar("_T")

ATOMS: Final[set[type[object]]] = {
    *(int, str, float, bool, type(None), bytes, complex),
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID),
}
"""Types of atoms met so far; `kind_of` adds the subclasses and enumerations that it finds."""

_ATOM_BASES: Final = (
    *ATOMS,
    enum.Enum,
    datetime.tzinfo,
    pathlib.PurePath,
    AnyUrl,
    *(ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv6Address, ipaddress.IPv6Network),
)


class Kind(enum.Enum):
    """The sorts of values that differ in how they are copied, compared and drafted."""

    ATOM = enum.auto()
    LIST = enum.auto()
    DICT = enum.auto()
    SET = enum.auto()
    FROZENSET = enum.auto()
    TUPLE = enum.auto()
    RECORD = enum.auto()
    UNKNOWN = enum.auto()


_KINDS: Final[dict[type[object], Kind]] = {
    **dict.fromkeys((list, Chunked), Kind.LIST),
    **dict.fromkeys((dict, Layered), Kind.DICT),
    set: Kind.SET,
    frozenset: Kind.FROZENSET,
    tuple: Kind.TUPLE,
    **dict.fromkeys(ATOMS, Kind.ATOM),
}


def kind_of(type_: type[object]) -> Kind:
    """What values of exactly this type are. Subclasses of the containers are unknown, but for named tuples."""
    kind = _KINDS.get(type_)
    if kind is None:
        kind = _KINDS[type_] = _find_kind(type_)
        if kind is Kind.ATOM:
            ATOMS.add(type_)
    return kind


def _find_kind(type_: type[object]) -> Kind:
    if is_subclass(type_, BaseModel) or dataclasses.is_dataclass(type_):
        return Kind.RECORD
    if is_subclass(type_, *_ATOM_BASES):
        return Kind.ATOM
    if is_subclass(type_, tuple) and hasattr(type_, "_make"):
        return Kind.TUPLE
    return Kind.UNKNOWN


# --- what a value is, in a form that type checkers follow ------------------------


def is_class(value: object) -> TypeGuard[type[object]]:
    return isinstance(value, type)


def is_a(value: object, *classes: type[object]) -> bool:
    """`isinstance` for what a caller gives against its annotation, of which a checker says that it cannot be."""
    return isinstance(value, classes)


def is_subclass(type_: type[object], *bases: object) -> bool:
    """`issubclass`, after which a checker still knows no more of `type_` than before."""
    return any(isinstance(base, type) and issubclass(type_, base) for base in bases)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether this is a list of a state, in chunks perhaps: in core such a one passes for a list."""
    return type(value) is list or type(value) is Chunked


def is_dict(value: object) -> TypeGuard[dict[object, object]]:
    """Whether this is a dict of a state, in layers perhaps: in core such a one passes for a dict."""
    return type(value) is dict or type(value) is Layered


def are_of_one_class(one: object, other: object) -> bool:
    """Whether two values are of one class; how a list or a dict is held makes no difference."""
    return type(one) is type(other) or (is_list(one) and is_list(other)) or (is_dict(one) and is_dict(other))


def is_set(value: object) -> TypeGuard[set[object]]:
    return type(value) is set


def is_frozenset(value: object) -> TypeGuard[frozenset[object]]:
    return type(value) is frozenset


def is_text(value: object) -> TypeGuard[str]:
    """Whether this is text that finds in a dict what its plain text finds; members of a `StrEnum` do."""
    if type(value) is str:
        return True
    return isinstance(value, str) and type(value).__eq__ is str.__eq__ and type(value).__hash__ is str.__hash__


def is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return kind_of(type(value)) is Kind.TUPLE


def acts_as_list(value: object) -> TypeGuard[list[object]]:
    """Whether this is a list, of a subclass, in chunks, or a draft of one."""
    return isinstance(value, list | Chunked)


def acts_as_dict(value: object) -> TypeGuard[dict[object, object]]:
    """Whether this is a dict, of a subclass, in layers, or a draft of one."""
    return isinstance(value, dict | Layered)


def acts_as_set(value: object) -> TypeGuard[AbstractSet[object]]:
    """Whether this is a set of any sort, or a draft of one."""
    return isinstance(value, AbstractSet)


def left_set(value: AbstractSet[object]) -> AbstractSet[object]:
    """The left one of two sets that are joined by an operator, which says of what class the result is."""
    return frozenset(value) if isinstance(value, frozenset) else set(value)


def is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable)


# --- keys and tuples ------------------------------------------------------------


def key_text(key: object) -> str:
    """The key of a dict as it is written in JSON and in a path."""
    if isinstance(key, enum.Enum):
        return key_text(key.value)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, datetime.date):
        return key.isoformat()
    return str(key)


_NEW: Final = "__new__"  # by its name: the declared type of `tuple.__new__` does not take the class it makes


def make_tuple(like: tuple[object, ...], members: list[object]) -> tuple[object, ...]:
    """A tuple of the class of `like`, which may be a named one, made without running any code of that class."""
    new: Callable[[object, list[object]], tuple[object, ...]] = getattr(tuple, _NEW)
    return new(type(like), members)


def stands_for(like: _T, value: object) -> _T:
    """`value`, which has the type of `like`: a draft, a copy or the next revision of it. No checker can know."""
    return value  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
