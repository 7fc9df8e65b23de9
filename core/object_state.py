"""The whole state of an object: what its attributes hold, where nothing else can hold any of it.

No code of the object's class is run.
"""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Callable
from typing import Final

import typing_extensions
from pydantic import BaseModel

__all__ = ["attribute", "has_visible_state", "is_python", "state_of"]

_EMPTY: Final = frozenset({object, abc.ABC, typing.Generic, typing.Protocol, typing_extensions.Protocol, BaseModel})
"""Classes that give their objects no state but attributes."""

_HEAP_TYPE: Final = 1 << 9
"""The flag of classes that were made by a class statement, or as if by one."""


def has_visible_state(class_: type[object], is_own: Callable[[type[object]], bool]) -> bool:
    """Whether objects of a class have nothing but attributes: all its bases are own classes, or known to be empty.

    A class that is written in C, as a list, keeps its state where only it knows.
    """
    return all(base in _EMPTY or (is_own(base) and is_python(base)) for base in class_.__mro__)


def is_python(class_: type[object]) -> bool:
    """Whether a class may be written in Python; one in C that looks like it has methods that have no form."""
    return bool(class_.__flags__ & _HEAP_TYPE)


def attribute(value: object, name: str) -> object:
    """An attribute of an object of a known class, which checkers would type as anything."""
    found: object = getattr(value, name)
    return found


def state_of(value: object) -> dict[str, object]:
    """The attributes of an object itself, in slots or not, by their names."""
    found: dict[str, object] = {}
    for class_ in type(value).__mro__:
        for name, member in vars(class_).items():
            if isinstance(member, types.MemberDescriptorType) and name not in found:
                try:
                    found[name] = member.__get__(value, type(value))
                except AttributeError:  # nothing was assigned
                    continue
    try:
        held: object = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return found
    assert isinstance(held, dict)
    return found | held
