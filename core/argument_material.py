"""The arguments of a call as material of a key: equal only if no body can tell them apart.

Lists, dicts, tuples and sets count by what is in them; models and dataclasses by their class and all that they hold, so
too by which fields of a model were set; members of enumerations, dates, decimals, identifiers and paths by their class
and text. Any other object has a state that cannot be told, and is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence, Sized
from math import isfinite
from typing import Final, TypeVar

from .canonical_json import DEPTH, NotCanonical, Tagged, canonical_material
from .code_home import class_name, is_standard
from .kind import Kind, acts_as_dict, acts_as_list, is_frozenset, is_set, is_tuple, kind_of
from .object_state import has_visible_state, state_of

__all__ = ["canonical_arguments"]


def canonical_arguments(args: Sequence[object] = (), named: Mapping[str, object] | None = None) -> bytes:
    """The canonical form of positional and named arguments.

    Raises NotCanonical for a value that has none; its place begins with the argument, as in `[0]['when']`.
    """
    held = dict(_each((named or {}).items(), 0))
    return canonical_material([[item for _, item in _each(enumerate(args), 0)], held])


_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})


def _material(value: object, depth: int) -> object:
    """What `canonical_material` takes in the place of a value."""
    class_ = type(value)
    if class_ in _PLAIN:
        if isinstance(value, float) and not isfinite(value):
            raise NotCanonical(f"it is {value}, which JSON cannot hold")
        return value
    if depth > DEPTH:
        raise NotCanonical(f"it is nested more than {DEPTH} levels deep, or holds itself")
    if acts_as_list(value) and kind_of(class_) is Kind.LIST:
        return [item for _, item in _each(enumerate(value), depth)]
    if acts_as_dict(value) and kind_of(class_) is Kind.DICT:
        return _apart({_key(key, depth): item for key, item in _each(value.items(), depth)}, len(value))
    if is_set(value):
        return _apart({_key(item, depth) for item in value}, len(value))
    if is_frozenset(value):
        return _apart(frozenset(_key(item, depth) for item in value), len(value))
    if is_tuple(value):
        items = tuple(item for _, item in _each(enumerate(value), depth))
        return items if class_ is tuple else Tagged(f"tuple:{class_name(class_)}", items)
    return _tagged(value, class_, depth)


_Held = TypeVar("_Held", bound=Sized)


def _apart(held: _Held, size: int) -> _Held:
    """What a set or a dict holds, if no two of its keys became one, as objects that nothing tells apart would."""
    if len(held) != size:
        raise NotCanonical("it holds two objects that only their identities tell apart")
    return held


def _key(value: object, depth: int) -> object:
    material = _material(value, depth + 1)
    try:
        hash(material)
    except TypeError:
        raise NotCanonical(f"it has a {type(value).__name__} as a key, which can be changed") from None
    return material


def _each(items: Iterable[tuple[object, object]], depth: int) -> Iterable[tuple[object, object]]:
    for key, item in items:
        try:
            yield key, _material(item, depth + 1)
        except NotCanonical as error:
            raise NotCanonical(error.reason, f"[{key!r}]{error.place}") from None


def _tagged(value: object, class_: type[object], depth: int) -> Tagged:
    if isinstance(value, enum.Enum):
        return Tagged(f"member:{class_name(class_)}", value.name or _material(value.value, depth + 1))
    kind = kind_of(class_)
    if kind is Kind.ATOM and _is_all_text(class_):
        zone: object = getattr(value, "tzinfo", None)
        if not _is_all_text(type(zone)):
            raise NotCanonical(f"its zone is a {class_name(type(zone))}, whose state cannot be told")
        return Tagged(f"atom:{class_name(class_)}", repr(value))
    if kind is Kind.RECORD and has_visible_state(class_, lambda _: True):
        held = _each(sorted(state_of(value).items()), depth)
        return Tagged(f"record:{class_name(class_)}", tuple(held))
    raise NotCanonical(f"it is a {class_name(class_)}, whose state cannot be told")


def _is_all_text(class_: type[object]) -> bool:
    """Whether an atom is all of what it is written as; one of a program's own class may hold more."""
    return is_standard(class_.__module__) or class_.__module__.partition(".")[0] == "pydantic"
