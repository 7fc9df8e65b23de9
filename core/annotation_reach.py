"""The classes that an annotation names: the code of their methods may run wherever a value of the annotation goes.

An annotation that is text is not evaluated. Each dotted name in it is looked up instead, so that a class is rather
found once too often than missed.
"""

from __future__ import annotations

import re
import typing
from functools import lru_cache
from types import ModuleType
from typing import Final

from .annotation import strip
from .kind import is_class, is_list

__all__ = ["classes_in"]

_DOTTED: Final = re.compile(r"[^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*")


def classes_in(annotation: object, names: dict[str, object]) -> list[type[object]]:
    """The classes, in the order in which the annotation names them; `names` are the globals around it."""
    if annotation is None:
        return []
    if is_class(annotation) and not typing.get_args(annotation):
        return [annotation]
    if isinstance(annotation, str):
        named = [each for dotted in _dotted_in(annotation) if (each := _named(dotted, names)) is not None]
        if classes := _plain_classes(named):
            return classes
        if not named:
            return []  # builtins only, as most are
    found: dict[type[object], None] = {}
    waiting, seen = [annotation], dict[int, object]()  # what is seen is held, so that no other thing has its id
    while waiting:
        part = waiting.pop()
        if is_class(part) and not typing.get_args(part):
            found[part] = None
        elif part is not None and id(part) not in seen:
            seen[id(part)] = part
            waiting += reversed(_parts(part, names))
    return list(found)


def _plain_classes(named: list[object]) -> list[type[object]]:
    """The classes, each once, if all of these are such and have no arguments; otherwise none."""
    classes = [each for each in named if is_class(each) and not typing.get_args(each)]
    return list(dict.fromkeys(classes)) if len(classes) == len(named) else []


def _parts(annotation: object, names: dict[str, object]) -> list[object]:
    """What an annotation is made of."""
    if isinstance(annotation, typing.ForwardRef):
        return [annotation.__forward_arg__]
    if isinstance(annotation, str):
        return [_named(dotted, names) for dotted in _dotted_in(annotation)]
    if is_list(annotation):
        return annotation
    if isinstance(annotation, typing.TypeVar):
        return [annotation.__bound__, *annotation.__constraints__]
    bare = strip(annotation)
    if bare.type is not annotation and bare.origin is None:
        return [bare.type]
    return [] if bare.origin is typing.Literal else [bare.origin, *bare.args]


@lru_cache(maxsize=4096)
def _dotted_in(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(re.split(r"\s*\.\s*", found)) for found in _DOTTED.findall(text))


def _named(dotted: tuple[str, ...], names: dict[str, object]) -> object:
    """What a dotted name leads to through modules and classes; None, if nothing, or a value."""
    found = names.get(dotted[0])
    for name in dotted[1:]:
        if not isinstance(found, ModuleType) and not is_class(found):
            return None
        found = vars(found).get(name)
    return None if isinstance(found, ModuleType | str) else found
