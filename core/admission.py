"""Admission: which types a store can keep, decided from the type alone when the store is defined.

A type is admitted if the JSON of each of its values is read back as the same value, and if a draft can track every
part of it that can be changed. What is refused raises TypeError with the path of the field, the reason, and what to use
instead. Refused are: values of any type (`Any`, `object`, open collections such as `Sequence`), classes that drafts do
not know, secrets, fields that are left out of JSON, private attributes that carry data, serializers and types that
write another form than they read, and unions whose members look alike in JSON.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import ipaddress
import pathlib
import typing
import uuid
from collections.abc import Collection, Hashable, Iterator
from typing import Final, NoReturn

import pydantic
import pydantic.networks
import typing_extensions
from pydantic import AnyUrl, BaseModel, RootModel
from pydantic._internal._decorators import DecoratorInfos  # the serializers of a class: no public name tells them

from .alternatives import look_alike
from .annotation import Bare, config_of, fields_of, private_data, strip
from .kind import is_class, is_subclass

__all__ = ["admit"]

LEAVES: Final = frozenset(
    {
        *(str, int, float, bool, bytes, type(None), None),
        *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID),
        *(pathlib.Path, pathlib.PurePath, pathlib.PosixPath, pathlib.PurePosixPath, pydantic.networks.EmailStr),
        *(ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv6Address, ipaddress.IPv6Network),
        *(pydantic.AwareDatetime, pydantic.NaiveDatetime, pydantic.PastDatetime, pydantic.PastDate),
    }
)
"""Types of atoms whose JSON is read back as the same value, however pydantic is configured."""

KEYS: Final = frozenset({str, int, uuid.UUID, datetime.date})
"""Types of keys whose text in JSON is read back as the same key. Enumerations of text are, too."""

_SETS: Final[frozenset[object]] = frozenset({set, frozenset})
_CONTAINERS: Final[frozenset[object]] = _SETS | {list, tuple, dict}

_ANYTHING: Final[frozenset[object]] = frozenset({typing.Any, object})

_USE_INSTEAD: Final[dict[object, str]] = {
    "SecretStr": "JSON would hold stars in place of it; store a reference to the secret, or str",
    "SecretBytes": "JSON would hold stars in place of it; store a reference to the secret, or bytes",
    "Callable": "a function has no JSON; store its name",
    "FutureDate": "what is in the future now is not when it is read later; use date",
    "FutureDatetime": "what is in the future now is not when it is read later; use AwareDatetime",
    list: "say of what, as in list[str]",
    dict: "say of what, as in dict[str, int]",
    set: "say of what, as in set[str]",
    frozenset: "say of what, as in frozenset[str]",
    tuple: "say of what, as in tuple[str, ...]",
    complex: "use a tuple of two floats",
    bytearray: "use bytes",
}


def admit(type_: object) -> frozenset[type[object]]:
    """The types of keys, beside text, that dicts of this type declare; TypeError if the type cannot be kept."""
    walk = _Walk()
    try:
        walk.visit(type_, _named(type_))
    except RecursionError:
        raise TypeError(f"{_named(type_)}: a name for types stands for itself, without an end") from None
    return frozenset(walk.key_types)


def _refuse(place: str, what: str, why: str) -> NoReturn:
    raise TypeError(f"{place}: {what} cannot be stored: {why}")


class _Walk:
    """Visits every type beneath one; each class of records once."""

    def __init__(self) -> None:
        self.key_types: set[type[object]] = {str}
        self._seen: set[object] = set()
        self._within: list[Bare] = []

    def visit(self, type_: object, place: str, container: Bare | None = None) -> None:
        """Visit a type, which may be that of the elements of a container."""
        bare = strip(type_)
        if not isinstance(bare.type, Hashable):
            _refuse(place, repr(type_), "it is a value and no type; write list[int], or dict[str, int]")
        if bare.unfit:
            _refuse(place, bare.unfit, "what it writes may not be what is read back; leave it out")
        if bare.type in LEAVES or bare.is_json_value:
            return
        if bare.type in _ANYTHING:
            _refuse(place, _named(bare.type), _instead_of_anything(container))
        if bare.origin is typing.Literal:
            _check_literal(bare, place)
        elif bare.is_union or (bare.origin in _CONTAINERS and bare.args):
            self._visit_form(bare, place)
        elif is_class(bare.type):
            self._visit_class(bare.type, place)
        elif isinstance(bare.type, typing.TypeVar):
            _refuse(place, f"the type variable {bare.type}", "give the generic type its argument, as in Box[int]")
        else:
            _refuse(place, _named(bare.type), _advice(bare))

    def _visit_form(self, bare: Bare, place: str) -> None:
        """A union or a container; by a `type` statement it may be named in itself, and is visited once then."""
        if any(outer.type is bare.type for outer in self._within):
            return
        self._within.append(bare)
        if bare.is_union:
            self._visit_union(bare, place)
        else:
            self._visit_container(bare, place)
        self._within.pop()

    def _visit_union(self, bare: Bare, place: str) -> None:
        for member in bare.args:
            self.visit(member, place)
        if not bare.discriminated and (pair := look_alike(bare.args)) is not None:
            one, other = map(_named, pair)
            why = f"{one} and {other} look alike in JSON, so one may be read back as the other; "
            _refuse(place, f"the union of {one} and {other}", why + "use one of them, or models with a discriminator")

    def _visit_container(self, bare: Bare, place: str) -> None:
        if bare.origin is dict:
            key, value = bare.args
            self._visit_key(key, place)
            self.visit(value, f"{place}[]", bare)
            return
        for member in bare.args:
            if member is not Ellipsis:
                self.visit(member, f"{place}[]", bare)
                if bare.origin in _SETS and not _is_fixed(member):
                    _refuse(f"{place}[]", _named(member), "elements of a set must not be changeable; use a list")

    def _visit_key(self, type_: object, place: str) -> None:
        bare = strip(type_)
        if is_class(bare.type) and issubclass(bare.type, enum.Enum):
            if all(type(member.value) is str for member in bare.type):
                self.key_types.add(bare.type)
                return
        elif bare.origin is typing.Literal and all(type(value) is str for value in bare.args):
            return
        elif is_class(bare.type) and bare.type in KEYS and not bare.unfit:
            self.key_types.add(bare.type)
            return
        _refuse(place, f"a dict with keys of {_named(type_)}", "its text in JSON may not be read back; use text keys")

    def _visit_class(self, type_: type[object], place: str) -> None:
        if type_ in self._seen:
            return
        self._seen.add(type_)
        if issubclass(type_, enum.Enum):
            _check_enum(type_, place)
        elif _has_fields(type_):
            for problem, name in _problems(type_):
                _refuse(f"{place}.{name}" if name else place, name or type_.__name__, problem)
            self._visit_fields(type_, place)
        elif not issubclass(type_, AnyUrl):
            _refuse(place, type_.__name__, _advice(Bare(type_)))

    def _visit_fields(self, type_: type[object], place: str) -> None:
        try:
            fields = fields_of(type_)
        except NameError as error:
            raise TypeError(f"{place}: {error}; its annotations must be names of its module") from None
        for field in fields:
            beneath = place if issubclass(type_, RootModel) else f"{place}.{field.name}"
            if field.problem:
                _refuse(beneath, "this field", field.problem)
            self.visit(field.type, beneath)


def _has_fields(type_: type[object]) -> bool:
    named_tuple = is_subclass(type_, tuple) and hasattr(type_, "_fields")
    record = is_subclass(type_, BaseModel) or dataclasses.is_dataclass(type_)
    return named_tuple or record or typing_extensions.is_typeddict(type_)


def _is_fixed(type_: object) -> bool:
    """Whether values of this type are atoms, or tuples and frozen sets of such."""
    bare = strip(type_)
    if bare.is_union or bare.origin is tuple or bare.origin is frozenset:
        return all(member is Ellipsis or _is_fixed(member) for member in bare.args)
    if bare.origin is typing.Literal or bare.type in LEAVES:
        return True
    return is_class(bare.type) and is_subclass(bare.type, enum.Enum, AnyUrl)


def _named(type_: object) -> str:
    return getattr(type_, "__name__", None) or str(type_)


# --- reasons to refuse ------------------------------------------------------------


def _check_literal(bare: Bare, place: str) -> None:
    for value in bare.args:
        if isinstance(value, bytes) or (isinstance(value, enum.Enum) and not isinstance(value, str | int)):
            why = "its JSON is not read back as it; use text, a whole number, or the enumeration itself"
            _refuse(place, f"the literal {value!r}", why)


def _check_enum(type_: type[enum.Enum], place: str) -> None:
    for member in type_:
        if type(member.value) not in (str, int, float, bool):
            why = f"its member {member.name} is {member.value!r}; members must be text, numbers or booleans"
            _refuse(place, type_.__name__, why)


def _problems(type_: type[object]) -> Iterator[tuple[str, str]]:
    """What else keeps records of a class from being stored: the reason, and the name of the member it is about."""
    different = "what it writes may not be what is read back; states are written as they are, so leave it out"
    decorators = getattr(type_, "__pydantic_decorators__", None)
    if isinstance(decorators, DecoratorInfos):
        for name in decorators.model_serializers:
            yield f"it is a model serializer: {different}", name
        for name, decorator in decorators.field_serializers.items():
            for field in decorator.info.fields:
                yield f"it has a serializer, {name}: {different}", field
    config = config_of(type_)
    if config.get("json_encoders"):
        yield f"its json_encoders write another form: {different}", ""
    if config.get("extra") == "allow" and dataclasses.is_dataclass(type_):
        yield 'a dataclass does not write what extra="allow" lets in; declare the fields', ""
    for each in dataclasses.fields(type_) if dataclasses.is_dataclass(type_) else ():
        if _is_computed(inspect.getattr_static(type_, each.name, None)):
            why = "a property or descriptor stands for it, which runs code; give the field a name of its own"
            yield why, each.name
    if issubclass(type_, BaseModel):
        for name in private_data(type_):
            yield "a private attribute with a default carries data that JSON does not hold; make it a field", name
        if "__get_pydantic_core_schema__" in {name for base in type_.__mro__[:-1] for name in _defined_by_user(base)}:
            yield "its own core schema may write another form than it reads", ""


def _is_computed(attribute: object) -> bool:
    """Whether an attribute of a class runs code of the user's to read and write what lies beneath its name."""
    return inspect.isdatadescriptor(attribute) and not inspect.ismemberdescriptor(attribute)


def _defined_by_user(base: type[object]) -> list[str]:
    return [] if base.__module__.startswith("pydantic.") else list(vars(base))


def _instead_of_anything(container: Bare | None) -> str:
    """What to write in place of a type that any value has, where it stands."""
    if container is None:
        return "use JsonValue, of pydantic, which takes whatever JSON holds, or name the type"
    or_name = f"name the type, as in {_with_anything_as('str', container)}"
    if container.origin in _SETS:
        return or_name
    written = _with_anything_as("JsonValue", container)
    return f"use JsonValue, of pydantic, which takes whatever JSON holds: {written}; or {or_name}"


def _with_anything_as(word: str, container: Bare) -> str:
    """A container as one writes it, with a word for each type of its elements that any value has."""
    words = [
        "..." if each is Ellipsis else word if strip(each).type in _ANYTHING else _in_full(each)
        for each in container.args
    ]
    return f"{_named(container.origin)}[{', '.join(words)}]"


def _in_full(type_: object) -> str:
    return type_.__name__ if is_class(type_) else str(type_).replace("typing.", "")


def _advice(bare: Bare) -> str:
    """Why a type that is none of those that can be stored cannot, and what to use."""
    type_ = bare.origin or bare.type
    if isinstance(type_, str | typing.ForwardRef):
        return "it is the name of a type that is not to be found; give the type, or define it in its module"
    if bare.args and is_class(type_) and _has_fields(type_):
        return "its type variables are not known beneath it; use a generic model, or a class without type variables"
    known = _USE_INSTEAD.get(type_) or _USE_INSTEAD.get(_named(type_))
    if known:
        return known
    if is_class(type_) and is_subclass(type_, Collection):
        return "its JSON is read back as another collection; use list, dict, set or tuple"
    return (
        "a draft cannot see changes in it, or its JSON is not read back as the same value; use a model or a dataclass"
    )
