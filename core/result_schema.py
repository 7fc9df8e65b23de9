"""The fingerprints of what a function says it returns, and takes: what decides how results and arguments are read.

Where the annotation is made of others, as an outcome is, each part counts by itself: what stands in an outcome is read
by codecs of its own, of which the schema around them shows nothing.
"""

from __future__ import annotations

import types
import typing
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from inspect import signature
from typing import Final, TypeAlias, get_args, get_origin

from .canonical_json import canonical_material
from .codec import hints_of
from .core_schema import compile_schema
from .fingerprint import fingerprint
from .kind import is_class
from .node import digest_of
from .outcome import Failure, Success

__all__ = ["parameter_schema", "result_schema", "schema_of"]

_Form: TypeAlias = "str | list[_Form]"

_Named: TypeAlias = tuple[tuple[str, object], ...]
"""Annotations, with what they are of."""

_ANYTHING: Final[tuple[object, ...]] = (typing.Any, object)


def result_schema(fn: Callable[..., object]) -> str:
    """The fingerprint of the result of `fn`, or of what awaiting it gives; "json" where nothing is said."""
    if not isinstance(fn, types.FunctionType):
        return _result_of(fn)
    if (known := _KNOWN.get(fn)) is None or known[0] is not fn.__annotations__.get("return"):
        known = _KNOWN[fn] = (fn.__annotations__.get("return"), _result_of(fn))
    return known[1]


_KNOWN: Final[weakref.WeakKeyDictionary[types.FunctionType, tuple[object, str]]] = weakref.WeakKeyDictionary()
"""Found once for a function and its annotation: the schema of a class does not change under the class's name."""


def _result_of(fn: Callable[..., object]) -> str:
    if is_class(fn):
        return schema_of(fn)
    hints = hints_of(fn)
    if "return" not in hints:
        return "json"
    hint = hints["return"]
    return schema_of(get_args(hint)[-1] if get_origin(hint) in (Awaitable, Coroutine) else hint)


def parameter_schema(fn: Callable[..., object]) -> str:
    """The fingerprint of the parameters of `fn` after the first: of one JSON they make a list, a set, or a date."""
    if not isinstance(fn, types.FunctionType):
        return _parameters_of(fn)
    given = tuple(fn.__annotations__.items())
    if (known := _PARAMETERS.get(fn)) is None or not _are_same(known[0], given):
        known = _PARAMETERS[fn] = (given, _parameters_of(fn))
    return known[1]


_PARAMETERS: Final[weakref.WeakKeyDictionary[types.FunctionType, tuple[_Named, str]]] = weakref.WeakKeyDictionary()
"""The same for the parameters: to make the schemas takes longer than all else that a hit does."""


def _are_same(one: _Named, two: _Named) -> bool:
    pairs = zip(one, two, strict=False)
    return len(one) == len(two) and all(a[0] == b[0] and a[1] is b[1] for a, b in pairs)


def _parameters_of(fn: Callable[..., object]) -> str:
    hints = hints_of(fn)
    names = [*signature(fn).parameters][1:]
    return digest_of(canonical_material([schema_of(hints[name]) if name in hints else "json" for name in names]))


def schema_of(annotation: object) -> str:
    """The fingerprint of an annotation. TypeError, if values of it cannot be kept as JSON."""
    if any(annotation is each for each in _ANYTHING) or isinstance(annotation, typing.TypeVar):
        return "json"
    return digest_of(canonical_material(_form(annotation)))


def _form(annotation: object) -> _Form:
    if not _holds_an_outcome(annotation):
        return ["schema", fingerprint(compile_schema(annotation, finite=False).schema)]
    origin, parts = get_origin(annotation), [_form(part) for part in get_args(annotation)]
    if origin in (typing.Union, types.UnionType):
        return ["union", *sorted(parts, key=repr)]  # Python takes a union in any order for the same
    return [repr(origin), *parts]


def _holds_an_outcome(annotation: object) -> bool:
    return get_origin(annotation) in (Success, Failure) or any(map(_holds_an_outcome, get_args(annotation)))
