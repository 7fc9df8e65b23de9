"""Parts of a value, by the segments of paths: reading one, and making a value with another in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, TypeGuard

from . import layered
from .kind import Kind, is_dict, is_list, is_tuple, key_text, kind_of, make_tuple
from .model import Path
from .record import RecordType, record_type
from .sharing import copy_dict, copy_list

__all__ = ["NO_PART", "extras_of", "has_text_keys", "items_of", "part_of", "root_of", "with_part", "with_root"]


def has_text_keys(value: dict[object, object]) -> TypeGuard[dict[str, object]]:
    """Whether all keys are plain text."""
    return layered.has_text_keys(value)


def items_of(value: object) -> Iterator[tuple[Path, object]]:
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


def extras_of(value: object) -> dict[str, object]:
    """The undeclared fields of a record; none of any other value."""
    return (record_type(type(value)).extras(value) if kind_of(type(value)) is Kind.RECORD else None) or {}


def root_of(value: object) -> object:
    """The value itself, or what a RootModel, or one in another, holds: they have the same path."""
    while kind_of(type(value)) is Kind.RECORD and record_type(type(value)).transparent:
        value = record_type(type(value)).fields(value)["root"]
    return value


def part_of(value: object, segment: str | int) -> object:
    """The part at one segment of a path beneath `value`, or `NO_PART`."""
    type_ = type(value)
    return (_READERS.get(type_) or _find_reader(type_))(value, segment)


Reader: TypeAlias = Callable[[object, str | int], object]

_READERS: Final[dict[type[object], Reader]] = {}


def _find_reader(type_: type[object]) -> Reader:
    """How parts of values of a class are found."""
    match kind_of(type_):
        case Kind.RECORD:
            reader = _reader_of_record(record_type(type_))
        case Kind.DICT:
            reader = _entry_of
        case Kind.LIST | Kind.TUPLE:
            reader = _element_of
        case _:
            reader = _nothing_of
    _READERS[type_] = reader
    return reader


def _reader_of_record(known: RecordType) -> Reader:
    if known.transparent:
        return lambda value, segment: part_of(root_of(value), segment)
    if not known.is_model or known.extras_allowed:
        return lambda value, segment: known.get(value, segment, NO_PART) if isinstance(segment, str) else NO_PART
    names = frozenset(known.names)

    def field_of(value: object, segment: str | int) -> object:
        held: dict[str, object] = value.__dict__
        return held.get(segment, NO_PART) if isinstance(segment, str) and segment in names else NO_PART

    return field_of


def _entry_of(value: object, segment: str | int) -> object:
    assert is_dict(value)
    return value[segment] if segment in value else _by_text(value, segment)


def _element_of(value: object, segment: str | int) -> object:
    assert is_list(value) or is_tuple(value)
    return value[segment] if isinstance(segment, int) and 0 <= segment < len(value) else NO_PART


def _nothing_of(_: object, __: str | int) -> object:
    return NO_PART


def _by_text(value: dict[object, object], segment: str | int) -> object:
    for key, item in () if has_text_keys(value) else value.items():
        if type(key) is not str and key_text(key) == segment:
            return item
    return NO_PART


def with_part(value: object, segment: str | int, part: object, *, in_place: bool) -> object:
    """`value` with `part` at one segment, or without it if that is `NO_PART`: a copy, unless `in_place` allows less."""
    if kind_of(type(value)) is Kind.RECORD:
        return _record_with(value, segment, part)
    if is_dict(value):
        made = value if in_place else copy_dict(value)
        key = _key_at(made, segment)
        if part is NO_PART:
            del made[key]
        else:
            made[key] = part
        return made
    if is_list(value) and isinstance(segment, int):
        listed = value if in_place else copy_list(value)
        listed[segment] = part
        return listed
    if is_tuple(value) and isinstance(segment, int):
        members = [*value[:segment], part, *value[segment + 1 :]]
        return tuple(members) if type(value) is tuple else make_tuple(value, members)
    raise TypeError(f"{type(value).__qualname__} has no part {segment!r}")


def _key_at(value: dict[object, object], segment: str | int) -> object:
    if segment in value or has_text_keys(value):
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
