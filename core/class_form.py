"""The form of a class of the program: its bases, what is in it, and what its kind of class makes of that.

What a decorator or a metaclass has generated is left out where what it was made from is told.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Iterator
from typing import Final

from msgspec import StructMeta
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from .code_facts import Form
from .code_home import class_name, home_of, module_named
from .code_refusals import Unknown
from .code_value import Reach, type_form, value_form
from .kind import is_class, is_dict, is_tuple
from .object_state import attribute, is_python

__all__ = ["class_form", "known_form"]

_PLACE: Final = {"__module__", "__qualname__", "__dict__", "__weakref__", "__firstlineno__"}
_TOLD: Final = {
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__static_attributes__"),
    *("__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__type_params__", "__classcell__"),
    *("__dataclass_fields__", "__dataclass_params__", "__slots__"),
}
_PASSED_OVER: Final = frozenset(_PLACE | _TOLD)
"""Entries that tell where a class was written, or what is told elsewhere in the form."""

_OF_MODEL: Final = frozenset(
    {"model_fields", "model_computed_fields", "__class_vars__", "__private_attributes__", "__signature__"}
)
_OF_FIELD: Final = (
    *("alias", "alias_priority", "validation_alias", "serialization_alias", "exclude", "exclude_if", "discriminator"),
    *("frozen", "validate_default", "repr", "init", "init_var", "kw_only", "default_factory", "default"),
    *("title", "field_title_generator", "description", "examples", "json_schema_extra"),
)
"""What is said of a field. What is said to people too: a schema has it, and who is asked with a schema reads it."""

_OF_ENUM: Final = frozenset(
    {
        *("_member_map_", "_member_names_", "_member_type_", "_value2member_map_", "_hashable_values_", "_sort_order_"),
        *("_unhashable_values_", "_unhashable_values_map_", "_value_repr_", "_use_args_", "_new_member_", "_ignore_"),
        *("_flag_mask_", "_singles_mask_", "_all_bits_", "_inverted_", "_order_"),
    }
)
"""What an enumeration makes of its members and bases."""


def class_form(class_: type[object], reach: Reach) -> Form:
    """The form of an own class as it is now. Raises Unknown for what has none."""
    form: list[Form] = ["class", class_.__qualname__, class_.__name__, ["bases", *map(reach.class_, class_.__bases__)]]
    if type(class_) is not type:
        form.append(["made by", _metaclass(class_, reach)])
    form += [type_form(each, "a base", reach) for each in vars(class_).get("__orig_bases__", ())]
    form += _annotations(class_, reach)
    if issubclass(class_, enum.Enum):
        form += _members(class_, reach)
    elif _is_named_tuple(class_):
        form += _named_fields(class_, reach)
    elif _is_model(class_):
        form += _model(class_, reach)
    elif _is_struct(class_):
        form += _struct(class_, reach)
    elif "__dataclass_fields__" in vars(class_):
        form += _dataclass(class_, reach)
    for name, value in sorted(vars(class_).items()):
        if not _is_left_out(class_, name, value):
            form.append([name, _entry(value, f"`{name}`", reach)])
    return form


def _metaclass(class_: type[object], reach: Reach) -> Form:
    """The metaclass. One that is written in C may keep what it was told where only it knows."""
    made_by = type(class_)
    if not _is_struct(class_) and not all(each is type or is_python(each) for each in made_by.__mro__[:-1]):
        raise Unknown(f"`{class_.__qualname__}` is made by `{class_name(made_by)}`, which is not written in Python")
    return reach.class_(made_by)


def _entry(value: object, label: str, reach: Reach) -> Form:
    if isinstance(value, types.MemberDescriptorType):
        return ["slot"]
    return value_form(value, label, reach)


def _annotations(class_: type[object], reach: Reach) -> Iterator[Form]:
    """The annotations, in their order: fields are made of them. Classes that are named in text are reached too."""
    annotations: object = vars(class_).get("__annotations__")
    if not is_dict(annotations):
        return
    module = module_named(class_.__module__)
    names: dict[str, object] = {} if module is None else vars(module)
    for name, annotation in annotations.items():
        written = type_form(annotation, f"the annotation of `{name}`", reach)
        yield ["field", str(name), written, *reach.annotated(annotation, names)]


def _is_left_out(class_: type[object], name: str, value: object) -> bool:
    if name in _PASSED_OVER:
        return True
    if name == "__doc__":
        return _is_made_of_fields(class_, value)
    if issubclass(class_, enum.Enum):
        return name in class_.__members__ or name in _OF_ENUM
    if type(value).__name__ == "_DeprecatedFieldDescriptor":
        return True  # of a model; its field tells
    if _is_model(class_) and (name in _OF_MODEL or name.startswith("__pydantic_")):
        return True
    if _is_named_tuple(class_):
        return name in ("_fields", "_field_defaults") or _is_generated(value) or type(value).__name__ == "_tuplegetter"
    if name == "__hash__" and value is None and "__eq__" in vars(class_):
        return True  # follows from it
    return "__dataclass_fields__" in vars(class_) and (name == "__is_pydantic_dataclass__" or _is_generated(value))


def _is_made_of_fields(class_: type[object], doc: object) -> bool:
    """Whether the docstring of a class is none, or the signature that `dataclasses` writes for it."""
    is_signature = "__dataclass_fields__" in vars(class_) and str(doc).startswith(f"{class_.__name__}(")
    return doc is None or is_signature


def _function_in(value: object) -> types.FunctionType | None:
    """The function that an entry of a class is, or is made of."""
    inner = attribute(value, "__func__") if type(value) in (staticmethod, classmethod) else value
    return inner if isinstance(inner, types.FunctionType) else None


def _is_generated(value: object) -> bool:
    """Whether a method was made from what is told of the class: its fields, its members."""
    function = _function_in(value)
    if function is None:
        return False
    home = home_of(function)
    if home in _GENERATORS or home.startswith("namedtuple_"):
        return True
    return function.__code__.co_qualname.startswith("__create_fn__.<locals>.")  # as `dataclasses` names them


_GENERATORS: Final = frozenset({"dataclasses", "enum", "collections", "typing"})


# --- dataclasses ------------------------------------------------------------------


def _dataclass(class_: type[object], reach: Reach) -> Iterator[Form]:
    assert dataclasses.is_dataclass(class_)
    yield ["dataclass", repr(vars(class_)["__dataclass_params__"])]
    for each in dataclasses.fields(class_):
        label = f"field `{each.name}`"
        flags: list[Form] = [each.init, each.repr, each.hash, each.compare, each.kw_only is True]
        default = None if each.default is dataclasses.MISSING else [value_form(each.default, label, reach)]
        made = each.default_factory
        factory = None if made is dataclasses.MISSING else [value_form(made, label, reach)]
        yield ["field", each.name, flags, default, factory, value_form(each.metadata, label, reach)]


# --- enumerations and named tuples ------------------------------------------------


def _members(class_: type[enum.Enum], reach: Reach) -> Iterator[Form]:
    for name, member in class_.__members__.items():
        held: object = member._value_
        yield ["member", name, value_form(held, f"`{name}`", reach)]


def _is_named_tuple(class_: type[object]) -> bool:
    return tuple in class_.__mro__ and "_fields" in vars(class_)


def _named_fields(class_: type[object], reach: Reach) -> Iterator[Form]:
    yield ["named", value_form(vars(class_).get("_fields"), "a field", reach)]
    yield ["defaults", value_form(vars(class_).get("_field_defaults"), "a default", reach)]


# --- models and structs -----------------------------------------------------------


def _is_model(class_: type[object]) -> bool:
    return issubclass(class_, BaseModel) or "__pydantic_fields__" in vars(class_)


def _model(class_: type[object], reach: Reach) -> Iterator[Form]:
    """The fields of a model, or of a dataclass of pydantic, and which of its methods validate and write what."""
    if not attribute(class_, "__pydantic_complete__"):
        raise Unknown(f"`{class_.__qualname__}` names types that are not known yet; rebuild it when they are")
    fields = attribute(class_, "__pydantic_fields__")
    for name, field in fields.items() if is_dict(fields) else ():
        if isinstance(field, FieldInfo):
            yield ["field", str(name), *_field(f"field `{name}`", field, reach)]
    if issubclass(class_, BaseModel):
        for name, private in class_.__private_attributes__.items():
            held: list[object] = [private.default, private.default_factory]
            yield ["private", name, *(value_form(each, f"`{name}`", reach) for each in held)]
    else:
        yield from _dataclass(class_, reach)
        yield ["config", value_form(attribute(class_, "__pydantic_config__"), "the config", reach)]
    decorators = attribute(class_, "__pydantic_decorators__")
    for kind in _DECORATORS:
        found = attribute(decorators, kind)
        if is_dict(found) and found:
            yield [kind, *(_decorator(str(name), each, reach) for name, each in found.items())]


_DECORATORS: Final = (
    *("validators", "field_validators", "root_validators", "model_validators"),
    *("field_serializers", "model_serializers", "computed_fields"),
)


def _field(label: str, field: FieldInfo, reach: Reach) -> Iterator[Form]:
    yield type_form(field.annotation, label, reach)
    yield ["metadata", *(_constraint(each, label, reach) for each in field.metadata)]
    for each in _OF_FIELD:
        yield [each, value_form(getattr(field, each, None), label, reach)]
    deprecated = field.deprecated
    yield ["deprecated", deprecated if deprecated is None or isinstance(deprecated, str | bool) else deprecated.message]


def known_form(value: object, label: str, reach: Reach) -> Form:
    """The form of an adapter of pydantic, and of what it keeps in annotations, as fields; None for anything else."""
    adapted: object = getattr(value, "_type", None) if issubclass(type(value), TypeAdapter) else None
    if adapted is not None:
        return ["adapter", type_form(adapted, label, reach), value_form(getattr(value, "_config", None), label, reach)]
    if isinstance(value, FieldInfo):
        return ["field", *_field(label, value, reach)]
    return ["undefined"] if type(value).__name__ == "PydanticUndefinedType" else None


def _constraint(value: object, label: str, reach: Reach) -> Form:
    """A constraint of a field. Pydantic's own ones are plain objects."""
    class_ = type(value)
    if class_.__module__.partition(".")[0] == "pydantic" and not dataclasses.is_dataclass(class_):
        held = getattr(value, "__dict__", {})
        return ["constraint", class_.__qualname__, value_form(held, label, reach)]
    return value_form(value, label, reach)


def _decorator(name: str, decorator: object, reach: Reach) -> Form:
    """A validator or serializer: its function is in the class, its settings are here."""
    info: object = getattr(decorator, "info", None)
    settings: list[Form] = []
    if dataclasses.is_dataclass(info) and not is_class(info):
        for each in dataclasses.fields(info):
            held: object = getattr(info, each.name)
            settings.append([each.name, value_form(held, f"`{name}`", reach)])
    return [name, *settings]


def _is_struct(class_: object) -> bool:
    return isinstance(class_, StructMeta)


def _struct(class_: type[object], reach: Reach) -> Iterator[Form]:
    """The fields of a struct with their defaults, and its config, which are not among its attributes."""
    for told in ("__struct_fields__", "__struct_encode_fields__"):
        yield [told, value_form(attribute(class_, told), "a field", reach)]
    defaults = attribute(class_, "__struct_defaults__")
    for each in defaults if is_tuple(defaults) else ():
        made: object = getattr(each, "factory", None) if type(each).__module__ == "msgspec._core" else each
        yield ["default", type(each).__name__, value_form(made, "a default", reach)]
    config = attribute(class_, "__struct_config__")
    for name in dir(config):
        if not name.startswith("_"):
            yield [name, value_form(attribute(config, name), f"`{name}`", reach)]
