"""Values of an annotated type as JSON, by pydantic, and only such that come back as what they were."""

from __future__ import annotations

from typing import final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from .core_schema import compile_schema
from .fidelity import Difference, differences, place_in
from .kind import is_class
from .model import Path
from .parts import NO_PART, items_of
from .strict_json import DEPTH

__all__ = ["TypedCodec"]


@final
class TypedCodec:
    """Values of an annotated type, by pydantic; fields go by their names, not by their aliases.

    What is written is read back at once, and refused unless it is what it was: pydantic would write a model of a
    subclass as its base, a tuple in a bare list as a list, and a dict in place of a model as it is.
    """

    def __init__(self, annotation: object, type_: object, *, is_union: bool) -> None:
        """`type_` is what pydantic is to make of the annotation."""
        self._compiled = compile_schema(type_, finite=False)
        self._annotation = annotation
        self._is_union = is_union

    def encode(self, value: object, what: str) -> bytes:
        data = self.write(value, what)
        try:
            back = self._read(data)
        except ValidationError as error:
            raise TypeError(self._misfit(value, what, error)) from None
        for difference in differences(value, back):
            raise TypeError(self._altered(value, difference, what))
        return data

    def write(self, value: object, what: str) -> bytes:
        """The JSON of a value, whether or not it would be read back as what it was."""
        try:
            return self._compiled.writer.to_json(value, by_alias=False, round_trip=True, warnings=False)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            path, part = _unwritable(value)
            place = what + place_in(value, path)
            raise TypeError(f"{place}, a {_kind(part)}, cannot be written as JSON: {_reason(part, error)}") from None

    def decode(self, data: bytes, what: str) -> object:
        try:
            return self._read(data)
        except ValidationError as error:
            raise TypeError(f"{what} does not fit its type: {_issues(error)}") from None

    def _read(self, data: bytes) -> object:
        value: object = self._compiled.reader.validate_json(data, by_alias=False, by_name=True)
        return value

    def _misfit(self, value: object, what: str, error: ValidationError) -> str:
        if is_class(self._annotation) and self._annotation not in type(value).__mro__:
            return f"{what} is a {_kind(value)}, and its annotation says {self._annotation.__name__}: {_issues(error)}"
        return f"{what} does not fit its type: {_issues(error)}"

    def _altered(self, value: object, found: Difference, what: str) -> str:
        place, given, back = what + place_in(value, found.path), _kind(found.given), _kind(found.kept)
        if found.sort == "key" and isinstance(found.given, str):
            return f"{place} has the key {found.given!r}, which its type does not know, so it would not come back"
        if found.sort == "key":
            return f"{place} has the key {found.given!r}, a {given}: {_DECLARE_KEYS}"
        if found.sort == "member" or found.kept is NO_PART or given == back:
            return f"{place} holds {found.given!r:.200}, a {given}, which would not come back as it is"
        if found.path:
            return f"{place} is a {given} and would come back as a {back}: give a {back}, or annotate it as {given}"
        if self._is_union:
            return (
                f"{place} is a {given} and would come back as a {back}: "
                f"name {given} in the union, and give its members a field that tells them apart"
            )
        says = self._annotation.__name__ if is_class(self._annotation) else self._annotation
        return (
            f"{place} is a {given}, and its annotation says {says}: it would come back as a {back}; "
            f"give that, or annotate it as {given}"
        )


_DECLARE_KEYS = "keys come back as text; give text, or declare them, as in dict[int, str]"


def _kind(value: object) -> str:
    return type(value).__name__


def _issues(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'value'}: {each['msg']}" for each in found)


def _unwritable(value: object, path: Path = ()) -> tuple[Path, object]:
    """The deepest part of a value that has no JSON, and where it is."""
    for segments, part in items_of(value) if len(path) < DEPTH else ():
        if not _is_writable(part):
            return _unwritable(part, (*path, *segments))
    return path, value


def _is_writable(value: object) -> bool:
    try:
        _ = to_json(value, bytes_mode="base64", inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, RecursionError):
        return False
    return True


def _reason(part: object, error: Exception) -> str:
    if isinstance(part, str):
        return "it is text that is not valid Unicode (a lone surrogate)"
    return str(error).rpartition("TypeError: ")[2]  # what a serializer of ours raised, without pydantic's words
