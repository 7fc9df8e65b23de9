"""What states are made of: atoms, lists, dicts, sets, tuples and records, and how to copy and compare them.

An *atom* cannot be changed and holds nothing that can: numbers, text, dates, members of enumerations. A *record* has
named fields: a pydantic model or a dataclass. Everything else that is not one of the containers is unknown, and no
state holds it. Equality here is strict: of one type and of one value, so `1`, `1.0` and `True` are three values.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Final, TypeGuard

from pydantic import AnyUrl, BaseModel, RootModel

__all__ = [
    "ATOMS",
    "NO_PART",
    "Kind",
    "NotStorable",
    "RecordType",
    "clone",
    "clone_members",
    "has_text_keys",
    "is_dict",
    "is_list",
    "is_set",
    "is_tuple",
    "items_of",
    "key_text",
    "kind_of",
    "make_tuple",
    "part_of",
    "record_type",
    "root_of",
    "same",
    "with_part",
    "with_root",
]

Clone = Callable[[object], object]

ATOMS: Final[set[type]] = {
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


class NotStorable(ValueError):
    """A value that no state can hold, because it holds itself or is nested too deeply."""


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


_KINDS: Final[dict[type, Kind]] = {
    list: Kind.LIST,
    dict: Kind.DICT,
    set: Kind.SET,
    frozenset: Kind.FROZENSET,
    tuple: Kind.TUPLE,
    **dict.fromkeys(ATOMS, Kind.ATOM),
}


def kind_of(type_: type) -> Kind:
    """What values of exactly this type are. Subclasses of the containers are unknown, but for named tuples."""
    kind = _KINDS.get(type_)
    if kind is None:
        kind = _KINDS[type_] = _find_kind(type_)
        if kind is Kind.ATOM:
            ATOMS.add(type_)
    return kind


def _find_kind(type_: type) -> Kind:
    if issubclass(type_, BaseModel) or dataclasses.is_dataclass(type_):
        return Kind.RECORD
    if issubclass(type_, _ATOM_BASES):
        return Kind.ATOM
    if issubclass(type_, tuple) and hasattr(type_, "_make"):
        return Kind.TUPLE
    return Kind.UNKNOWN


# --- records ------------------------------------------------------------------


class RecordType:
    """How records of one class are read and made without running any code of theirs.

    `transparent` marks a RootModel: its only field is the value itself, so that the field is no segment of a path.
    """

    __slots__ = ("extras_allowed", "is_model", "names", "transparent", "type")

    def __init__(self, type_: type) -> None:
        self.type = type_
        self.is_model = issubclass(type_, BaseModel)
        self.transparent = issubclass(type_, RootModel)
        self.extras_allowed = False
        if issubclass(type_, BaseModel):
            self.names: tuple[str, ...] = tuple(type_.model_fields)
            self.extras_allowed = type_.model_config.get("extra") == "allow"
        else:
            self.names = tuple(field.name for field in dataclasses.fields(_as_dataclass(type_)))

    def fields(self, record: object) -> dict[str, object]:
        """A new dict of the declared fields of `record`, with the values themselves."""
        if self.is_model:
            held: dict[str, object] = record.__dict__
            if len(held) == len(self.names):
                return held.copy()
            return {name: held[name] for name in self.names if name in held}
        return {name: getattr(record, name) for name in self.names if hasattr(record, name)}

    def extras(self, record: object) -> dict[str, object] | None:
        """A new dict of the undeclared fields that a model with `extra="allow"` holds; None if it may hold none."""
        if not self.extras_allowed:
            return None
        assert isinstance(record, BaseModel)
        return dict(record.__pydantic_extra__ or {})

    def make(self, fields: dict[str, object], extras: dict[str, object] | None, like: object) -> object:
        """A new record that holds exactly these fields: a model keeps both dicts as they are. `like` is an old one."""
        made = object.__new__(self.type)
        if not self.is_model:
            for name, value in fields.items():
                object.__setattr__(made, name, value)
            return made
        assert isinstance(like, BaseModel)
        private = like.__pydantic_private__
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", like.__pydantic_fields_set__.copy())
        object.__setattr__(made, "__pydantic_extra__", extras)
        object.__setattr__(made, "__pydantic_private__", copy.deepcopy(private) if private else private)
        return made

    def clone(self, record: object, clone_value: Clone) -> object:
        """A copy of `record` whose fields went through `clone_value`."""
        fields = self.fields(record)
        for name, value in fields.items():
            if type(value) not in ATOMS:
                fields[name] = clone_value(value)
        extras = self.extras(record)
        if extras:
            extras = {name: clone_value(value) for name, value in extras.items()}
        return self.make(fields, extras, record)


def _as_dataclass(type_: type) -> type:
    if not dataclasses.is_dataclass(type_):
        raise TypeError(f"{type_.__qualname__} is neither a pydantic model nor a dataclass")
    return type_


_RECORDS: Final[dict[type, RecordType]] = {}


def record_type(type_: type) -> RecordType:
    """How records of this class are read and made."""
    found = _RECORDS.get(type_)
    if found is None:
        found = _RECORDS[type_] = RecordType(type_)
    return found


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


def clone_members(value: object, clone_value: Clone) -> object:
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


def make_tuple(like: tuple[object, ...], members: list[object]) -> tuple[object, ...]:
    """A tuple of the class of `like`, which may be a named one, made without running any code of that class."""
    return tuple.__new__(type(like), members)


# --- what a value is, in a form that type checkers follow ------------------------


def is_list(value: object) -> TypeGuard[list[object]]:
    return type(value) is list


def is_dict(value: object) -> TypeGuard[dict[object, object]]:
    return type(value) is dict


def is_set(value: object) -> TypeGuard[set[object]]:
    return type(value) is set


def is_frozenset(value: object) -> TypeGuard[frozenset[object]]:
    return type(value) is frozenset


def is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return kind_of(type(value)) is Kind.TUPLE


# --- comparison ---------------------------------------------------------------


def same(one: object, other: object) -> bool:
    """Whether two plain values are strictly equal: types, values, order of keys; NaN is itself, 0.0 is not -0.0."""
    if one is other:
        return True
    type_ = type(one)
    if type_ is not type(other):
        return False
    if type_ is str or type_ is int:
        return one == other
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(same, one, other))
    if is_dict(one) and is_dict(other):
        return len(one) == len(other) and all(map(same, one, other)) and all(map(same, one.values(), other.values()))
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


def _same_members(one: object, other: object) -> bool:
    if not (isinstance(one, set | frozenset) and isinstance(other, set | frozenset)) or one != other:
        return False
    twins: dict[object, object] = {item: item for item in other}
    return all(same(item, twins[item]) for item in one)


def _same_atoms(one: object, other: object) -> bool:
    match one, other:
        case float(), float():
            return float.hex(one) == float.hex(other)
        case (decimal.Decimal(), decimal.Decimal()):
            return one.as_tuple() == other.as_tuple()
        case (datetime.datetime(), datetime.datetime()) | (datetime.time(), datetime.time()):
            return one.isoformat() == other.isoformat()  # instants in two zones are equal, but not the same
        case _:
            return bool(one == other)


# --- parts --------------------------------------------------------------------


def key_text(key: object) -> str:
    """The key of a dict as it is written in JSON and in a path."""
    if isinstance(key, enum.Enum):
        return key_text(key.value)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, datetime.date):
        return key.isoformat()
    return str(key)


def has_text_keys(value: dict[object, object]) -> TypeGuard[dict[str, object]]:
    """Whether all keys are plain text."""
    return {*map(type, value)} <= {str}


def items_of(value: object) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """The parts of a container that have a path of their own, each with the segments that lead to it."""
    if is_dict(value):
        for key, item in value.items():
            yield (key_text(key),), item
    elif is_list(value) or is_tuple(value):
        for index, item in enumerate(value):
            yield (index,), item
    elif kind_of(type(value)) is Kind.RECORD:
        known = record_type(type(value))
        for name, item in {**known.fields(value), **(known.extras(value) or {})}.items():
            yield (() if known.transparent else (name,)), item


NO_PART: Final = object()
"""What `part_of` answers when there is nothing."""


def root_of(value: object) -> object:
    """The value itself, or what a RootModel, or one in another, holds: they have the same path."""
    while kind_of(type(value)) is Kind.RECORD and record_type(type(value)).transparent:
        value = record_type(type(value)).fields(value)["root"]
    return value


def part_of(value: object, segment: str | int) -> object:
    """The part at one segment of a path beneath `value`, or `NO_PART`."""
    if is_dict(value):
        return value[segment] if segment in value else _by_text(value, segment)
    if is_list(value):
        return value[segment] if isinstance(segment, int) and 0 <= segment < len(value) else NO_PART
    kind = kind_of(type(value))
    if kind is Kind.RECORD:
        known = record_type(type(value))
        if known.transparent:
            return part_of(root_of(value), segment)
        found = known.fields(value).get(str(segment), NO_PART)
        return (known.extras(value) or {}).get(str(segment), NO_PART) if found is NO_PART else found
    if is_tuple(value):
        return value[segment] if isinstance(segment, int) and 0 <= segment < len(value) else NO_PART
    return NO_PART


def _by_text(value: dict[object, object], segment: str | int) -> object:
    for key, item in value.items():
        if type(key) is not str and key_text(key) == segment:
            return item
    return NO_PART


def with_part(value: object, segment: str | int, part: object, *, in_place: bool) -> object:
    """`value` with `part` at one segment, or without it if that is `NO_PART`: a copy, unless `in_place` allows less."""
    if kind_of(type(value)) is Kind.RECORD:
        return _record_with(value, segment, part)
    if is_dict(value):
        made = value if in_place else value.copy()
        key = _key_at(made, segment)
        if part is NO_PART:
            del made[key]
        else:
            made[key] = part
        return made
    if is_list(value) and isinstance(segment, int):
        listed = value if in_place else value.copy()
        listed[segment] = part
        return listed
    if is_tuple(value) and isinstance(segment, int):
        members = [*value[:segment], part, *value[segment + 1 :]]
        return tuple(members) if type(value) is tuple else make_tuple(value, members)
    raise TypeError(f"{type(value).__qualname__} has no part {segment!r}")


def _key_at(value: dict[object, object], segment: str | int) -> object:
    if segment in value:
        return segment
    return next((key for key in value if key_text(key) == segment), segment)


def _record_with(value: object, segment: str | int, part: object) -> object:
    known = record_type(type(value))
    fields, extras = known.fields(value), known.extras(value)
    if known.transparent:
        fields["root"] = with_part(fields["root"], segment, part, in_place=False)
    elif segment in known.names or extras is None:
        fields[str(segment)] = part
    elif part is NO_PART:
        del extras[str(segment)]
    else:
        extras[str(segment)] = part
    return known.make(fields, extras, value)


def with_root(value: object, root: object) -> object:
    """`root` in place of what a RootModel holds, also one in another; `root` itself for any other value."""
    if kind_of(type(value)) is Kind.RECORD and (known := record_type(type(value))).transparent:
        return known.make({"root": with_root(known.fields(value)["root"], root)}, None, value)
    return root
