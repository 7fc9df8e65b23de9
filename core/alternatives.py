"""Alternatives: whether JSON tells the members of a union apart, so that a value is read back as the member it was."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import itertools
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import typing_extensions
from pydantic import BaseModel, RootModel

from .annotation import Bare, fields_of, strip
from .kind import is_class, is_subclass

__all__ = ["look_alike"]

_DEPTH: Final = 8
"""How deep containers are compared; deeper ones are taken to be told apart, and judged value by value when stored."""

_SCALARS: Final[dict[object, str]] = {
    type(None): "null",
    None: "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    datetime.datetime: "text",
    decimal.Decimal: "text",
}
"""What the JSON of an atom is; of those that are not named here it is text."""


_ARRAYS: Final[frozenset[object]] = frozenset({list, set, frozenset, tuple})


@dataclass(frozen=True, slots=True)
class _Form:
    """How the values of one member look in JSON, and what they are in Python."""

    member: object
    json: str
    python: object
    constants: frozenset[object] | None = None
    parts: tuple[object, ...] = ()


def look_alike(members: Sequence[object]) -> tuple[object, object] | None:
    """Two members of a union of which a value of one may be read back as the other; None if there are none."""
    forms = [form for member in members for form in _forms(member)]
    for one, other in itertools.combinations(forms, 2):
        if _alike(one, other, 0):
            return one.member, other.member
    return None


def _forms(member: object) -> Iterator[_Form]:
    bare = strip(member)
    if bare.is_union:
        for inner in bare.args:
            yield from _forms(inner)
    elif bare.is_json_value:
        for kind in ("boolean", "integer", "number", "text", "array", "object"):
            yield _Form(member, kind, bare.type)
    elif bare.origin is typing.Literal:
        yield from _constants(member, bare.args)
    elif isinstance(bare.type, type) and issubclass(bare.type, enum.Enum):
        yield from _constants(member, tuple(bare.type))
    elif bare.origin in _ARRAYS:
        yield _Form(member, "array", bare.origin, parts=bare.args)
    elif bare.origin is dict:
        yield _Form(member, "object", dict, parts=bare.args[1:])
    else:
        yield from _class_forms(member, bare)


def _constants(member: object, values: Sequence[object]) -> Iterator[_Form]:
    by_kind: dict[tuple[str, object], set[object]] = {}
    for value in values:
        plain: object = value.value if isinstance(value, enum.Enum) else value
        by_kind.setdefault((_SCALARS.get(type(plain), "text"), type(value)), set()).add(plain)
    for (kind, python), plains in by_kind.items():
        yield _Form(member, kind, python, frozenset(plains))


def _class_forms(member: object, bare: Bare) -> Iterator[_Form]:
    type_ = bare.type
    if not is_class(type_):
        yield _Form(member, _SCALARS.get(type_, "text"), type_)
    elif issubclass(type_, RootModel):
        for form in _forms(type_.model_fields["root"].annotation):
            yield dataclasses.replace(form, member=member, python=type_)
    elif is_subclass(type_, tuple):
        yield _Form(member, "array", type_, parts=tuple(field.type for field in fields_of(type_)))
    elif is_subclass(type_, BaseModel) or dataclasses.is_dataclass(type_) or typing_extensions.is_typeddict(type_):
        yield _Form(member, "object", type_)
    else:
        yield _Form(member, _SCALARS.get(type_, "text"), type_)


def _alike(one: _Form, other: _Form, depth: int) -> bool:
    if one.json != other.json or depth > _DEPTH:
        return False
    if one.constants is not None and other.constants is not None:
        return one.python is not other.python and bool(one.constants & other.constants)
    if one.json == "object" and not (one.python is dict and other.python is dict):
        return one.python is not other.python and not _told_apart(one.python, other.python)
    if one.python is not other.python:
        return True
    return len(one.parts) == len(other.parts) and any(
        _alike(inner, outer, depth + 1)
        for part, twin in zip(one.parts, other.parts, strict=True)
        for inner in _forms(part)
        for outer in _forms(twin)
    )


def _told_apart(one: object, other: object) -> bool:
    """Whether a field tells two classes apart: constants without a common one, or each needs one the other lacks."""
    if not is_class(one) or not is_class(other) or one is dict or other is dict:
        return False
    ours = {field.name: field for field in fields_of(one)}
    theirs = {field.name: field for field in fields_of(other)}
    for name in ours.keys() & theirs.keys():
        kinds = [list(_forms(field.type)) for field in (ours[name], theirs[name])]
        constants = [{value for form in forms for value in form.constants or ()} for forms in kinds]
        if all(form.constants is not None for forms in kinds for form in forms) and not constants[0] & constants[1]:
            return True
    needs_ours = any(field.required for name, field in ours.items() if name not in theirs)
    needs_theirs = any(field.required for name, field in theirs.items() if name not in ours)
    return needs_ours and needs_theirs
