"""Fidelity: where a value that was written down differs from what is read back.

`differences` finds the places; who asks decides which of them matter. What comes back equal although it was of a
subclass of an atom or of a container is *taken for its value* (`True` for 1, text of a class of one's own, an
OrderedDict), and so is a whole number for a float. A member of an enumeration is not, nor is a record of a subclass:
what makes them what they are would be gone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Literal, TypeGuard

from msgspec import Struct

from .kind import Kind, acts_as_dict, acts_as_list, acts_as_set, is_dict, is_list, is_set, is_tuple, kind_of
from .model import Path
from .outcome import Failure, Outcome, Success
from .parts import NO_PART, items_of, part_of, root_of
from .record import record_type
from .value import same

__all__ = ["Difference", "differences", "own_fields", "place_in"]


class Difference(Struct, frozen=True):
    """What was given and what is kept of it: `NO_PART` if nothing is. A key has the path of its dict."""

    path: Path
    given: object
    kept: object
    sort: Literal["part", "key", "member"] = "part"

    @property
    def is_narrowed(self) -> bool:
        """Whether the value was of a subclass of what is kept."""
        is_other = self.kept is not NO_PART and type(self.given) is not type(self.kept)
        return is_other and self.sort == "part" and isinstance(self.given, type(self.kept))


def differences(given: object, kept: object, path: Path = ()) -> Iterator[Difference]:
    """Where `kept` is not what was `given`, from the top down; beneath two classes it goes on where it can."""
    if given is kept or same(given, kept):
        return
    if not _is_alike(given, kept):
        yield Difference(path, given, kept)
    if acts_as_set(given):
        yield from _in_set(given, kept, path)
    elif acts_as_dict(given):
        yield from _in_dict(given, kept, path)
    else:
        for segments, part in _items_of(given):
            twin = part_of(kept, segments[0]) if segments else _held(kept)
            yield from differences(part, twin, (*path, *segments))


def own_fields(given: object, kept: object) -> tuple[str, ...]:
    """The fields that a record has, and the one that is kept of it has not."""
    if kind_of(type(given)) is not Kind.RECORD or kind_of(type(kept)) is not Kind.RECORD:
        return ()
    return tuple(name for name in record_type(type(given)).names if name not in record_type(type(kept)).names)


def place_in(value: object, path: Path) -> str:
    """The place of a part as it is written in Python: `.lines[0]['sku']`."""
    text = ""
    for segment in path:
        is_field = isinstance(segment, str) and kind_of(type(value)) is Kind.RECORD
        text += f".{segment}" if is_field else f"[{segment!r}]"
        value = part_of(_held(value), segment)
    return text


def _is_alike(given: object, kept: object) -> bool:
    """Whether one stands for the other as far as can be told without looking at its parts."""
    if isinstance(given, enum.Enum) or kept is NO_PART:
        return False
    if acts_as_list(given):
        return is_list(kept) and len(given) >= len(kept)
    if acts_as_dict(given):
        return is_dict(kept) and len(given) >= len(kept)
    if acts_as_set(given):
        return is_set(kept) or type(kept) is type(given)
    if type(given) is type(kept):
        return _is_alike_in_class(given, kept)
    if type(given) is int and type(kept) is float:
        return given == kept
    if kind_of(type(given)) is Kind.RECORD:
        return _is_generic_of(type(given), type(kept))
    return kind_of(type(given)) is Kind.ATOM and isinstance(given, type(kept)) and bool(given == kept)


def _is_generic_of(given: type[object], kept: type[object]) -> bool:
    """Whether one is a generic model and the other that model of something: checkers take `Box(1)` for a `Box[int]`."""
    metadata: dict[str, object] = getattr(kept, "__pydantic_generic_metadata__", {})
    return metadata.get("origin") is given


def _is_alike_in_class(given: object, kept: object) -> bool:
    """The same of two values of one class, which are not the same."""
    if is_tuple(given) and is_tuple(kept):
        return len(given) >= len(kept)  # what is missing is found beneath
    if kind_of(type(given)) is Kind.RECORD or _is_outcome(given):
        return True
    return type(given).__eq__ is object.__eq__  # a class that cannot compare its values


def _items_of(value: object) -> Iterator[tuple[Path, object]]:
    if _is_outcome(value):
        yield (), _held(value)
    else:
        yield from items_of(list(value) if acts_as_list(value) else value)


def _is_outcome(value: object) -> TypeGuard[Outcome[object, object]]:
    return isinstance(value, Success | Failure)


def _held(value: object) -> object:
    """What an outcome or a RootModel holds, which has the same path; any other value itself."""
    if _is_outcome(value):
        return value.failure() if isinstance(value, Failure) else value.unwrap()
    return root_of(value)


def _in_dict(given: dict[object, object], kept: object, path: Path) -> Iterator[Difference]:
    keys: dict[object, object] = {key: key for key in kept} if is_dict(kept) else {}
    for key, item in given.items():
        if is_dict(kept) and not same(key, keys.get(key, NO_PART)):
            yield Difference(path, key, keys.get(key, NO_PART), "key")
        else:
            text = key if isinstance(key, str | int) else str(key)
            yield from differences(item, kept[key] if is_dict(kept) else part_of(kept, text), (*path, text))


def _in_set(given: object, kept: object, path: Path) -> Iterator[Difference]:
    assert acts_as_set(given)
    twins: dict[object, object] = {item: item for item in kept} if acts_as_set(kept) else {}
    for item in given:
        twin = twins.get(item, NO_PART)
        if twin is NO_PART or next(differences(item, twin), None) is not None:
            yield Difference(path, item, twin, "member")
