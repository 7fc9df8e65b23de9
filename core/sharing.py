"""Copies of containers that share what they can, and flat values, in which none does.

A big list or dict of a state is copied when it is first written, and from then on is one in chunks or in layers
(`chunks`, `layered`), whose copies share all but what was written. Users, pydantic and msgspec never get such a one:
what goes to them is cloned, or made flat.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from operator import is_
from typing import Annotated, Final, Literal, Union, get_args, get_origin, get_type_hints

from .chunks import Chunked
from .kind import ATOMS, Kind, is_class, is_dict, is_list, is_tuple, kind_of, make_tuple, stands_for
from .layered import Entries, Layered
from .record import record_type

__all__ = ["BIG", "copy_dict", "copy_list", "flat"]

BIG: Final = 1_024
"""A plain list or dict of more elements is copied in chunks or in layers: below, a plain copy is as cheap."""


def copy_list(value: list[object]) -> list[object]:
    """A list of the same elements, to be written by itself. `value` must not change any more if it is big."""
    if type(value) is list and len(value) > BIG:
        return stands_for(value, Chunked(value))
    return value.copy()


def copy_dict(value: dict[object, object]) -> dict[object, object]:
    """A dict of the same entries, to be written by itself. `value` must not change any more if it is big."""
    if type(value) is dict and len(value) > BIG:
        return stands_for(value, Layered(value))
    return value.copy()


# --- flat values ------------------------------------------------------------------


def flat(value: object) -> object:
    """`value` with plain lists and dicts in place of those in chunks or layers; it is not changed.

    All that holds none is shared with it. Lists of atoms, and of records that can hold no container, cost a step of C
    for each element.
    """
    type_ = type(value)
    if type_ in ATOMS:
        return value
    if is_list(value):
        made = _flat_all(value)
        return value if type_ is list and made is value else list(made)
    if isinstance(value, Layered) or is_dict(value):
        return _flat_dict(value)
    if is_tuple(value):
        members = _flat_all(value)
        if members is value:
            return value
        return tuple(members) if type_ is tuple else make_tuple(value, list(members))
    return _flat_record(value) if kind_of(type_) is Kind.RECORD else value


def _flat_all(values: Iterable[object]) -> Iterable[object]:
    """All values flat; the very argument if they were."""
    if all(map(_is_closed, {*map(type, values)})):
        return values
    made = [*map(flat, values)]
    return values if all(map(is_, made, values)) else made


def _flat_dict(value: Entries) -> dict[object, object]:
    plain = value.flat() if isinstance(value, Layered) else value
    values = plain.values()
    made = _flat_all(values)
    return plain if made is values else dict(zip(plain, made, strict=True))


def _flat_record(record: object) -> object:
    if _is_closed(type(record)):
        return record
    known = record_type(type(record))
    fields, extras = known.fields(record), known.extras(record)
    changed = False
    for held in (fields, extras or {}):
        for name, part in held.items():
            if type(part) not in ATOMS and (made := flat(part)) is not part:
                held[name] = made
                changed = True
    return known.make(fields, extras, record) if changed else record


_closed: Final[dict[type[object], bool]] = {}


def _is_closed(type_: type[object]) -> bool:
    """Whether no value of this class can hold a list or a dict, as its annotations say."""
    found = _closed.get(type_)
    if found is None:
        _closed[type_] = False  # for one that holds values of its own class
        found = _closed[type_] = _find_closed(type_)
    return found


def _find_closed(type_: type[object]) -> bool:
    kind = kind_of(type_)
    if kind is not Kind.RECORD:
        return kind is Kind.ATOM
    known = record_type(type_)
    if known.extras_allowed:
        return False
    try:
        hints = get_type_hints(type_)
    except Exception:  # names that cannot be found, or anything that evaluating them raises
        return False
    return all(name in hints and _is_closed_hint(hints[name]) for name in known.names)


def _is_closed_hint(hint: object) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_closed_hint(get_args(hint)[0])
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType):
        return all(map(_is_closed_hint, get_args(hint)))
    return hint is None or (is_class(hint) and not get_args(hint) and _is_closed(hint))
