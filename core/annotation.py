"""Annotations as the schema of a store reads them: stripped to what a value is, and the fields of classes."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pydantic
import typing_extensions
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .kind import is_class

__all__ = [
    "Bare",
    "Field",
    "config_of",
    "fields_of",
    "is_required",
    "private_data",
    "strip",
    "strip_qualifiers",
    "subscripted",
]

_UNFIT: Final[frozenset[object]] = frozenset(
    {
        pydantic.PlainSerializer,
        pydantic.WrapSerializer,
        pydantic.SerializeAsAny,
        pydantic.SkipValidation,
        pydantic.InstanceOf,
        pydantic.GetPydanticSchema,
        pydantic.EncodedBytes,
        pydantic.EncodedStr,
        pydantic.Json,
    }
)
"""Parts of `Annotated` that make pydantic write, or take, something else than the annotated type says."""

_WRAPPERS = (
    *(typing.Required, typing.NotRequired, typing.Final, typing.ClassVar),
    *(typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly),
)


@dataclass(frozen=True, slots=True)
class Bare:
    """What is left of an annotation: a class or form, its origin and arguments, and what stood around it.

    `unfit` names a part that makes JSON differ from the value; `discriminated` says that a union tells its members
    apart by a field of theirs.
    """

    type: object
    unfit: str | None = None
    discriminated: bool = False
    origin: object = field(init=False)
    args: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", typing.get_origin(self.type))
        object.__setattr__(self, "args", typing.get_args(self.type))

    @property
    def is_union(self) -> bool:
        return self.origin is typing.Union or self.origin is types.UnionType

    @property
    def is_json_value(self) -> bool:
        return self.type is JsonValue


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a class: `problem` says why its value could not be read back from JSON; None if it could."""

    name: str
    type: object
    required: bool
    problem: str | None = None


def strip(annotation: object) -> Bare:
    """What an annotation comes down to, without names for types, constraints, validators and qualifiers."""
    unfit: str | None = None
    discriminated = False
    while annotation is not JsonValue:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation, *metadata = typing.get_args(annotation)
            unfit = unfit or next(filter(None, map(_unfit, metadata)), None)
            discriminated = discriminated or any(map(_discriminates, metadata))
        elif origin in _WRAPPERS:
            (annotation,) = typing.get_args(annotation)
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # from 3.12 on there are two of that name
            annotation = _value_of_alias(annotation)
        else:
            break
    return Bare(annotation, unfit, discriminated)


def _value_of_alias(alias: object) -> object:
    name = "__value__"  # a name, since no checker knows the attribute of both classes
    value: object = getattr(alias, name)
    return value


def _unfit(metadata: object) -> str | None:
    class_: type[object] = metadata if is_class(metadata) else type(metadata)
    return class_.__name__ if _UNFIT.intersection(class_.__mro__) else None


def _discriminates(metadata: object) -> bool:
    if isinstance(metadata, FieldInfo):
        return metadata.discriminator is not None
    return isinstance(metadata, pydantic.Discriminator)


def is_required(hint: object, otherwise: bool) -> bool:
    """Whether a key of a TypedDict is required: by its own word, if it has one; the class may not know."""
    origin = typing.get_origin(hint)
    if origin is typing.Required or origin is typing.NotRequired:
        return origin is typing.Required
    return otherwise


def strip_qualifiers(hint: object) -> object:
    """A key's type without the word that says whether it is required."""
    while typing.get_origin(hint) in _WRAPPERS:
        (hint,) = typing.get_args(hint)
    return hint


class _Form(typing.Protocol):
    def __getitem__(self, args: object) -> object: ...


def _takes_arguments(form: object) -> typing.TypeGuard[_Form]:
    return form is not None  # every form and class that had arguments takes them again


def subscripted(form: object, args: object) -> object:
    """`form[args]`, of which checkers know nothing."""
    assert _takes_arguments(form)
    return form[args]


# --- fields ---------------------------------------------------------------------


def fields_of(type_: type[object]) -> list[Field]:
    """The fields of a model, dataclass, TypedDict or named tuple. NameError if an annotation cannot be resolved."""
    if issubclass(type_, BaseModel):
        return [*_fields_of_infos(type_.model_fields), *_extras_of(type_)]
    hints = typing_extensions.get_type_hints(type_, include_extras=True)
    if dataclasses.is_dataclass(type_):
        return list(_fields_of_dataclass(type_, hints))
    required: frozenset[str] = getattr(type_, "__required_keys__", frozenset(hints))
    return [Field(name, hint, is_required(hint, name in required)) for name, hint in hints.items()]


def _fields_of_infos(infos: dict[str, FieldInfo]) -> Iterator[Field]:
    for name, info in infos.items():
        # Put back what pydantic has taken out of `Annotated`, so that it is judged in one place.
        yield Field(name, _annotated(info), info.is_required(), _problem_of(info))


def _annotated(info: FieldInfo) -> object:
    return subscripted(typing.Annotated, (info.annotation, info, *info.metadata))


def _problem_of(info: FieldInfo) -> str | None:
    if info.exclude or info.exclude_if is not None:
        return "it is excluded from JSON, so its value would be lost; remove exclude"
    if info.init is False or info.init_var:
        return "it is not read back from JSON; let it be an ordinary field"
    return None


def _extras_of(type_: type[BaseModel]) -> list[Field]:
    if type_.model_config.get("extra") != "allow":
        return []
    for base in type_.__mro__[: type_.__mro__.index(BaseModel)]:
        if "__pydantic_extra__" in inspect.get_annotations(base):
            hint = typing_extensions.get_type_hints(base, include_extras=True)["__pydantic_extra__"]
            return [Field("__pydantic_extra__", hint, False)]
    problem = 'extra="allow" admits values of any type; declare __pydantic_extra__: dict[str, JsonValue]'
    return [Field("__pydantic_extra__", object, False, problem)]


def _fields_of_dataclass(type_: type[object], hints: dict[str, object]) -> Iterator[Field]:
    infos: dict[str, FieldInfo] = getattr(type_, "__pydantic_fields__", {})
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            yield Field(name, object, True, "an InitVar is not written to JSON; let it be an ordinary field")
    assert dataclasses.is_dataclass(type_)
    for each in dataclasses.fields(type_):
        default: object = each.default
        info = infos.get(each.name, default)
        problem = _problem_of(info) if isinstance(info, FieldInfo) else None
        if not each.init:
            problem = "init=False: it is not read back from JSON; let it be an ordinary field"
        required = default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        yield Field(each.name, hints[each.name], required, problem)


def config_of(type_: type[object]) -> ConfigDict:
    """How pydantic is configured for a class."""
    if issubclass(type_, BaseModel):
        return type_.model_config
    config: ConfigDict = getattr(type_, "__pydantic_config__", ConfigDict())
    return config


def private_data(type_: type[BaseModel]) -> list[str]:
    """Names of private attributes that start with a value, which JSON does not hold."""
    return [
        name
        for name, private in type_.__private_attributes__.items()
        if private.default is not PydanticUndefined or private.default_factory is not None
    ]
