"""`typing.TypedDict` of Python 3.11 as pydantic takes it.

Until Python 3.12 pydantic takes only the TypedDict of typing_extensions, since that of typing does not tell which keys
its bases require. A type that is used as a store's type is rebuilt with it; one that is the type of a model's field
is refused by pydantic when the model is defined.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable

import typing_extensions

from .annotation import is_required, strip, strip_qualifiers, subscripted
from .kind import is_class

__all__ = ["portable"]


def portable(type_: object) -> object:
    """The same type, in which each TypedDict is one that pydantic takes. TypeError if one holds itself."""
    return type_ if sys.version_info >= (3, 12) else _rebuilt(type_, ())


def _rebuilt(type_: object, above: tuple[object, ...]) -> object:
    if is_class(type_) and typing_extensions.is_typeddict(type_):
        return _rebuilt_dict(type_, above) if type(type_).__module__ == "typing" else type_
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if not args or origin is typing.Literal:
        return type_
    if origin is typing.Annotated:
        first, *metadata = args
        return subscripted(typing.Annotated, (_rebuilt(first, above), *metadata))
    rebuilt = tuple(_rebuilt(arg, above) for arg in args)
    if rebuilt == args:
        return type_
    return subscripted(typing.Union if strip(type_).is_union else origin, rebuilt)


def _rebuilt_dict(type_: type[object], above: tuple[object, ...]) -> object:
    if type_ in above:
        raise TypeError(f"{type_.__name__} holds itself: let it be a TypedDict of typing_extensions")
    required: frozenset[str] = getattr(type_, "__required_keys__", frozenset())
    fields: dict[str, object] = {}
    for name, hint in typing_extensions.get_type_hints(type_, include_extras=True).items():
        bare = _rebuilt(strip_qualifiers(hint), (*above, type_))
        needed = is_required(hint, name in required)
        fields[name] = subscripted(typing_extensions.Required if needed else typing_extensions.NotRequired, bare)
    make: Callable[[str, dict[str, object]], object] = vars(typing_extensions)["TypedDict"]
    made = make(type_.__name__, fields)
    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(type_, name))
    return made
