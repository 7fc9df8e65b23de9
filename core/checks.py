"""Checks: the validators of a whole record, in mode "after", called on a draft of the record that changed.

One that only looks is called once. One that writes is asked again by whoever settles what it wrote, as a validation of
the whole does when it reads back what it wrote down: then it must have nothing more to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from . import draft
from .draft import Drafted
from .fidelity import differences
from .kind import is_dict, is_list
from .model import Path, Paths, Replace
from .parts import NO_PART, part_of, root_of
from .paths import SHAPE, diff, minimal
from .places import Check, Place, Places
from .record import record_type
from .value import same

__all__ = ["Refused", "Unsettled", "WholeCheck", "checked", "differing_at", "narrows", "part_at", "whole_checks"]


class Unsettled(Exception):
    """Only a look at the whole state can tell."""


class Refused(Unsettled):
    """The same, and the state is not valid as it was written: a validator refuses it, or changes it further."""


def checked(place: Place, record: object) -> tuple[object, Paths]:
    """A record as its validators leave it, and where they changed it. `record` is not changed."""
    changed: list[Path] = []
    for roots, check in place.checks:
        looked_at = record
        for _ in range(roots):
            looked_at = record_type(type(looked_at)).fields(looked_at)["root"]
        drafted = _drafted(check, looked_at)
        wrote = _wrote(looked_at, drafted)
        if not wrote:
            continue
        if roots or () in wrote:
            raise Refused
        changed += wrote
        record = drafted.state
    return record, minimal(changed)


def _drafted(check: Check, record: object) -> Drafted[object]:
    try:
        return draft.run(record, _Updater(check))
    except (ValueError, AssertionError):  # what pydantic makes an issue of
        raise Refused from None
    except Exception:  # a bug of its own, or more than a draft can do: the look at the whole tells
        raise Unsettled from None


class _Updater:
    """A validator as an updater; what it gives back in place of the record stands for it."""

    __slots__ = ("_check",)

    def __init__(self, check: Check) -> None:
        self._check = check

    def __call__(self, record: object) -> Replace[object] | None:
        returned = self._check(record)
        return None if returned is record else Replace(returned)


def _wrote(record: object, drafted: Drafted[object]) -> list[Path]:
    if drafted.state is record or drafted.written == ():
        return []
    if drafted.written is None:
        return list(diff(record, drafted.state))
    return [each for path in drafted.written for each in differing_at(record, drafted.state, path)]


# --- what they may cost --------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class WholeCheck:
    """A validator that is called at each change of the record at `path`, and may read all of `parts` each time.

    The parts are those that can grow, as paths in the record.
    """

    path: Path
    name: str
    parts: Paths


def whole_checks(places: Places) -> tuple[WholeCheck, ...]:
    """The validators of whole records in which there are parts that can grow; any other costs little."""
    found: list[WholeCheck] = []
    for path, place in places.beneath(places.root):
        if place.checks and (parts := places.growing(place)):
            found += [WholeCheck(path, _name_of(check), parts) for _, check in place.checks]
    return tuple(found)


def _name_of(function: object) -> str:
    name: object = getattr(function, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else repr(function)


# --- where two states differ ----------------------------------------------------------


def part_at(state: object, path: Path) -> object:
    for segment in path:
        state = part_of(state, segment)
    return state


def differing_at(before: object, after: object, path: Path) -> Iterable[Path]:
    """Where two states differ at and beneath a path, as `diff` would say of the whole of them."""
    if path and path[-1] is SHAPE:
        old, new = root_of(part_at(before, path[:-1])), root_of(part_at(after, path[:-1]))
        alike = is_list(old) and is_list(new) and len(old) == len(new)
        alike = alike or (is_dict(old) and is_dict(new) and len(old) == len(new) and all(map(same, old, new)))
        return () if alike else (path,)
    old, new = part_at(before, path), part_at(after, path)
    if old is NO_PART or new is NO_PART:
        return () if old is new else (path,)
    return [(*path, *each) for each in diff(old, new)]


def narrows(given: object, kept: object, paths: Iterable[Path]) -> bool:
    """Whether at one of the paths a value is kept as one of the class that its own class stands beneath."""
    for path in paths:
        part = part_at(given, path)
        if part is not NO_PART and any(each.is_narrowed for each in differences(part, part_at(kept, path))):
            return True
    return False
