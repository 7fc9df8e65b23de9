"""The classes that an annotation names: the code of their methods may run wherever a value of the annotation goes.

An annotation that is text is not evaluated. Each dotted name in it is looked up instead, so that a class is rather
found once too often than missed.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Final

from .annotation import strip
from .kind import is_class, is_list

__all__ = ["classes_in"]

DEPTH: Final = 32
"""How deeply annotations are followed that are made of others."""

_DOTTED: Final = re.compile(r"[^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*")


def classes_in(annotation: object, names: dict[str, object]) -> list[type[object]]:
    """The classes, in the order in which the annotation names them; `names` are the globals around it."""
    if annotation is None:
        return []
    if is_class(annotation) and not typing.get_args(annotation):
        return [annotation]
    return list(dict.fromkeys(_found(annotation, names, 0)))


def _found(annotation: object, names: dict[str, object], depth: int) -> Iterator[type[object]]:
    if depth > DEPTH:
        return
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        for dotted in _dotted_in(annotation):
            yield from _found(_named(dotted, names), names, depth + 1)
    elif is_list(annotation):
        for part in annotation:
            yield from _found(part, names, depth + 1)
    elif isinstance(annotation, typing.TypeVar):
        for part in (annotation.__bound__, *annotation.__constraints__):
            yield from _found(part, names, depth + 1)
    elif annotation is not None:
        bare = strip(annotation)
        if is_class(bare.type) and not bare.args:
            yield bare.type
        elif bare.origin is not typing.Literal:
            for part in (bare.origin, *bare.args):
                yield from _found(part, names, depth + 1)


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
