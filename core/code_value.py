"""The forms of values that code reaches: constants, what is made of them, and objects whose whole state can be seen."""

from __future__ import annotations

import builtins
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import ipaddress
import operator
import pathlib
import re
import sys
import types
import typing
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial, partialmethod
from typing import Final, Protocol, TypeAlias, TypeGuard

from .code_facts import Form, NoForm, atom
from .code_home import class_name, installed_name, is_installed, is_standard
from .code_refusals import Unknown, refuse_dynamic
from .kind import acts_as_dict, is_class, is_dict, is_frozenset, is_list, is_set, is_tuple
from .object_state import attribute, has_visible_state, state_of
from .set_order import in_set_order

__all__ = ["Reach", "type_form", "value_form"]

DEPTH: Final = 64
"""How deeply values may be nested."""


class Reach(Protocol):
    """Who goes through what is reached, and asks for the forms of values."""

    within: dict[int, int]
    """The containers that are being looked at, by identity, each with its depth."""

    def function(self, function: types.FunctionType) -> Form: ...
    def class_(self, class_: type[object]) -> Form: ...
    def module(self, module: types.ModuleType) -> Form: ...
    def is_own(self, class_: type[object]) -> bool: ...

    def known(self, value: object, label: str) -> Form:
        """The form of an object of a library's class whose settings are known; None for any other."""
        ...

    def annotated(self, annotation: object, names: dict[str, object]) -> list[Form]:
        """The own classes that an annotation names."""
        ...


def _refuse(value: object, label: str) -> Unknown:
    kind = type(value)
    if isinstance(value, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        why = f"a {kind.__name__}, which goes on from where it is"
    elif isinstance(value, io.IOBase):
        why = "an open file"
    elif isinstance(value, types.BuiltinMethodType):
        owner: object = value.__self__
        has_state = owner is not None and not isinstance(owner, types.ModuleType)
        of = f"a method of a `{class_name(type(owner))}`, whose state cannot be told"
        why = of if has_state else "not written in Python, nor a builtin of the standard library"
    elif is_standard(kind.__module__) or not callable(value):
        why = f"a `{class_name(kind)}`, whose state cannot be told"
    else:
        why = f"a `{class_name(kind)}`, a callable of another package whose state cannot be told"
    return Unknown(f"{label} is {why}")


# --- values -----------------------------------------------------------------------

_Former: TypeAlias = Callable[[object, str, Reach], Form]


def value_form(value: object, label: str, reach: Reach) -> Form:
    """The form of a value as it is now; `label` says for people what it is. Raises Unknown if it has none."""
    former = _FORMERS.get(type(value))
    if former is not None:
        return former(value, label, reach)
    if is_class(value):
        return reach.class_(value)
    if isinstance(value, enum.Enum):
        return ["member", reach.class_(type(value)), value.name, *_state(value._value_, label, reach)]
    if type(value).__module__ in _TYPING:
        return type_form(value, label, reach)
    if isinstance(value, types.BuiltinFunctionType):  # of a subclass that has no name
        return _builtin(value, label, reach)
    if callable(value) and (name := installed_name(value)) is not None:
        return ["builtin", name]
    return _object(value, label, reach)


def _state(value: object, label: str, reach: Reach) -> list[Form]:
    """The value of a member of an enumeration, if that is a constant; else its class tells."""
    try:
        return [atom(value)]
    except NoForm:
        return []


def _atom(value: object, label: str, reach: Reach) -> Form:
    return atom(value)


def _written(value: object, label: str, reach: Reach) -> Form:
    """A value that is all of what it is written as."""
    if isinstance(value, datetime.datetime | datetime.time) and value.tzinfo is not None:
        return ["written", repr(value.replace(tzinfo=None)), value_form(value.tzinfo, label, reach)]
    return ["written", class_name(type(value)), repr(value)]


def _items(value: object, label: str, reach: Reach) -> Form:
    with_label = _part(label)
    if is_list(value):
        return _entered(value, label, reach, lambda: ["list", *(value_form(it, with_label, reach) for it in value)])
    if is_dict(value):
        if value is sys.modules:
            refuse_dynamic("sys.modules")
        return _entered(value, label, reach, lambda: ["dict", *_pairs(value, with_label, reach)])
    if is_tuple(value):
        return ["tuple", *(value_form(item, with_label, reach) for item in value)]
    if is_set(value) or is_frozenset(value):
        return [type(value).__name__, *(value_form(item, with_label, reach) for item in in_set_order(list(value)))]
    raise _refuse(value, label)


def _part(label: str) -> str:
    return label if label.startswith("a part of ") else f"a part of {label}"


def _pairs(value: dict[object, object], label: str, reach: Reach) -> Iterator[Form]:
    """The members in their order, which code can tell."""
    for key, item in list(value.items()):  # at one moment, whoever else changes it
        yield [value_form(key, label, reach), value_form(item, label, reach)]


def _entered(value: object, label: str, reach: Reach, form: Callable[[], Form]) -> Form:
    """The form of a container; where it holds itself, how far up."""
    depth = len(reach.within)
    if (at := reach.within.get(id(value))) is not None:
        return ["above", depth - at]
    if depth >= DEPTH:
        raise Unknown(f"{label} is nested more than {DEPTH} levels deep")
    reach.within[id(value)] = depth
    try:
        return form()
    finally:
        del reach.within[id(value)]


def _view(value: object, label: str, reach: Reach) -> Form:
    copied = attribute(value, "copy")
    held: object = copied() if callable(copied) else None
    if not is_dict(held):
        raise _refuse(value, label)
    return _entered(value, label, reach, lambda: ["view", *_pairs(held, _part(label), reach)])


def _collected(value: object, label: str, reach: Reach) -> Form:
    """A dict of the standard library's `collections`, with what a missing key gives."""
    assert acts_as_dict(value)
    if getattr(value, "__dict__", None):
        raise _refuse(value, label)
    made = value_form(getattr(value, "default_factory", None), label, reach)
    held: dict[object, object] = {}
    held.update(value)
    return _entered(value, label, reach, lambda: [class_name(type(value)), made, *_pairs(held, _part(label), reach)])


def _queue(value: object, label: str, reach: Reach) -> Form:
    assert _is_deque(value)
    return _entered(value, label, reach, lambda: ["deque", value.maxlen, _items([*value], label, reach)])


def _is_deque(value: object) -> TypeGuard[deque[object]]:
    return isinstance(value, deque)


def _namespace(value: object, label: str, reach: Reach) -> Form:
    held = attribute(value, "__dict__")
    assert is_dict(held)
    return _entered(value, label, reach, lambda: ["namespace", *_pairs(held, _part(label), reach)])


def _slice(value: object, label: str, reach: Reach) -> Form:
    parts = (attribute(value, name) for name in ("start", "stop", "step"))
    return ["slice", *(value_form(each, label, reach) for each in parts)]


def _bytearray(value: object, label: str, reach: Reach) -> Form:
    assert isinstance(value, bytearray)
    return ["bytearray", value.hex()]


def _pattern(value: object, label: str, reach: Reach) -> Form:
    return ["pattern", *(atom(attribute(value, name)) for name in ("pattern", "flags"))]


# --- callables --------------------------------------------------------------------


def _function(value: object, label: str, reach: Reach) -> Form:
    assert isinstance(value, types.FunctionType)
    return reach.function(value)


def _module(value: object, label: str, reach: Reach) -> Form:
    assert isinstance(value, types.ModuleType)
    return reach.module(value)


def _method(value: object, label: str, reach: Reach) -> Form:
    assert isinstance(value, types.MethodType)
    return ["method", value_form(value.__func__, label, reach), value_form(value.__self__, f"self of {label}", reach)]


def _builtin(value: object, label: str, reach: Reach) -> Form:
    assert isinstance(value, types.BuiltinFunctionType)
    owner: object = value.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        module = value.__module__ or builtins.__name__
        if not is_standard(module):
            if (name := installed_name(value) or _of_module(value, owner)) is None:
                raise _refuse(value, label)
            return ["builtin", name]
        refuse_dynamic(f"{module}.{value.__qualname__}")
        return ["builtin", f"{module}.{value.__qualname__}"]
    if is_class(owner) and is_standard(owner.__module__):
        return ["builtin", class_name(owner), value.__name__]
    if type(owner) in _FIXED:
        return ["builtin", class_name(type(owner)), value.__name__, value_form(owner, label, reach)]
    raise _refuse(value, label)


def _of_module(value: types.BuiltinFunctionType, owner: object) -> str | None:
    """The name of a function that a module of an installed package has made, whatever it is called from there."""
    if isinstance(owner, types.ModuleType) and is_installed(owner.__name__):
        return f"{owner.__name__}.{value.__name__}"
    return None


_FIXED: Final = frozenset({str, bytes, int, float, tuple, frozenset, re.Pattern})
"""Classes of objects that cannot change, whose methods are all of what they and their object are."""

_DESCRIPTORS: Final = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _descriptor(value: object, label: str, reach: Reach) -> Form:
    """A method of a builtin class, as `str.upper`."""
    assert isinstance(value, _DESCRIPTORS)
    if not is_standard(value.__objclass__.__module__):
        raise _refuse(value, label)
    return ["builtin", class_name(value.__objclass__), value.__name__]


def _partial(value: object, label: str, reach: Reach) -> Form:
    held = (value_form(attribute(value, name), f"`{name}` of {label}", reach) for name in ("func", "args", "keywords"))
    return [type(value).__name__, *held, *_given(value, label, reach)]


def _given(value: object, label: str, reach: Reach) -> Iterator[Form]:
    """The attributes that somebody gave to a callable, but for what it tells of itself."""
    for name, held in state_of(value).items():
        if not name.startswith("__"):
            yield [name, value_form(held, f"`{name}` of {label}", reach)]


def _lru_cache(value: object, label: str, reach: Reach) -> Form:
    """A cached function; what it has in its cache is what it would give anew."""
    parameters = attribute(value, "cache_parameters")
    assert callable(parameters)
    return [
        "lru_cache",
        value_form(attribute(value, "__wrapped__"), label, reach),
        value_form(parameters(), label, reach),
        *_given(value, label, reach),
    ]


def _in_class(value: object, label: str, reach: Reach) -> Form:
    """What a class makes of a function, or of several."""
    held = (value_form(attribute(value, name), label, reach) for name in _IN_CLASS[type(value)])
    return [type(value).__name__, *held]


_IN_CLASS: Final[dict[type[object], tuple[str, ...]]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    **dict.fromkeys((property, enum.property, types.DynamicClassAttribute), ("fget", "fset", "fdel")),
    cached_property: ("func",),
}


# --- objects ----------------------------------------------------------------------

_TYPING: Final = frozenset({"typing", "typing_extensions", "types", "collections.abc"})


def type_form(value: object, label: str, reach: Reach) -> Form:
    """The form of a type as it is written in annotations, text among it."""
    if value is None or isinstance(value, str):
        return ["type", value]
    if isinstance(value, typing.ForwardRef):
        return ["type", value.__forward_arg__]
    if is_list(value):
        return ["types", *(type_form(each, label, reach) for each in value)]
    origin, arguments = typing.get_origin(value), typing.get_args(value)
    if origin is typing.Annotated:
        extra = (value_form(each, f"a part of {label}", reach) for each in arguments[1:])
        return ["annotated", type_form(arguments[0], label, reach), *extra]
    if origin is typing.Literal:
        return ["literal", *(value_form(each, label, reach) for each in arguments)]
    if origin is not None and origin is not value:  # of `Generic` it is itself
        return ["type", type_form(origin, label, reach), *(type_form(each, label, reach) for each in arguments)]
    if is_class(value):
        return reach.class_(value)
    if isinstance(value, typing.TypeVar):
        limits = (value.__bound__, *value.__constraints__)
        return ["variable", value.__name__, *(type_form(each, label, reach) for each in limits)]
    if type(value).__name__ == "TypeAliasType":  # from 3.12 on there are two of that name
        return ["alias", *(type_form(attribute(value, name), label, reach) for name in ("__name__", "__value__"))]
    if isinstance(value, typing.NewType):
        return ["new", value.__name__, type_form(value.__supertype__, label, reach)]
    if value is Ellipsis or type(value).__module__ in _TYPING:
        return ["type", repr(value)]
    return value_form(value, label, reach)


def _object(value: object, label: str, reach: Reach) -> Form:
    """An object of which all state can be seen: of an own class, of a dataclass, or a named tuple."""
    class_ = type(value)
    if value is sys.stdout or value is sys.stderr:
        return ["stream"]
    if is_tuple(value):
        return ["tuple of", reach.class_(class_), *(value_form(item, _part(label), reach) for item in value)]
    if (tuple in class_.__mro__ and class_.__module__ == "sys") or class_.__module__ == "__future__":
        return ["written", repr(value)]  # as `sys.version_info`, and `annotations`
    if isinstance(value, datetime.tzinfo) and is_standard(class_.__module__):
        return _written(value, label, reach)
    if class_.__module__ == "logging" and class_.__name__ in ("Logger", "RootLogger"):
        return ["logger", atom(attribute(value, "name"))]
    if class_ in _GETTERS:
        return ["getter", class_.__name__, value_form(value.__reduce__(), label, reach)]
    if (known := reach.known(value, label)) is not None:
        return known
    is_plain = has_visible_state(class_, reach.is_own)
    if not is_plain and not (dataclasses.is_dataclass(class_) and has_visible_state(class_, lambda _: True)):
        raise _refuse(value, label)
    return _entered(value, label, reach, lambda: ["object", reach.class_(class_), *_fields(value, label, reach)])


_GETTERS: Final[frozenset[object]] = frozenset({operator.attrgetter, operator.itemgetter, operator.methodcaller})


def _fields(value: object, label: str, reach: Reach) -> Iterator[Form]:
    for name, held in state_of(value).items():  # in their order, which code can tell
        yield [name, value_form(held, f"`{name}` of {label}", reach)]


def _sentinel(value: object, label: str, reach: Reach) -> Form:
    return ["object"]


_FORMERS: Final[dict[type[object], _Former]] = {
    **dict.fromkeys((type(None), bool, int, float, str, bytes, complex, type(...), type(NotImplemented)), _atom),
    **dict.fromkeys((list, dict, tuple, set, frozenset), _items),
    **dict.fromkeys((datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone), _written),
    **dict.fromkeys((decimal.Decimal, fractions.Fraction, uuid.UUID, range), _written),
    **dict.fromkeys((pathlib.PosixPath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.WindowsPath), _written),
    **dict.fromkeys(
        (ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv6Address, ipaddress.IPv6Network), _written
    ),
    types.FunctionType: _function,
    types.ModuleType: _module,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    **dict.fromkeys(_DESCRIPTORS, _descriptor),
    **dict.fromkeys((partial, partialmethod), _partial),
    **dict.fromkeys(_IN_CLASS, _in_class),
    type(lru_cache(len)): _lru_cache,
    types.MappingProxyType: _view,
    bytearray: _bytearray,
    deque: _queue,
    types.SimpleNamespace: _namespace,
    slice: _slice,
    **dict.fromkeys((Counter, OrderedDict, defaultdict), _collected),
    re.Pattern: _pattern,
    object: _sentinel,
}
