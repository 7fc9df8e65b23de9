"""What pydantic's serializers do with a view or a draft that they come upon: they write a plain copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic_core import SchemaSerializer, core_schema

__all__ = ["SERIALIZER", "named_for_errors", "writes_as"]

SERIALIZER: Final = "__pydantic_serializer__"
"""Where pydantic looks for how an object of a class that it does not know is written."""


def writes_as(plain: Callable[[object], object]) -> SchemaSerializer:
    """What to keep at `SERIALIZER` of a class: objects of it are written as what `plain` makes of them."""
    written = core_schema.plain_serializer_function_ser_schema(plain)
    return SchemaSerializer(core_schema.any_schema(serialization=written))


def named_for_errors(type_: type[object]) -> None:
    """Let a class that stands for the fields of a model say what to do where pydantic insists on a true dict.

    Pydantic's error says no more than the name: the serializer of a model's class reads `__dict__` in C.
    """
    type_.__name__ = type_.__qualname__ = "view of the fields of a model (serialize a copy.deepcopy of the model)"
