"""Paths in a state: what was read, what was written, and whether the two meet.

A path leads from the root of a state to a part of it: text segments are field names and keys, whole numbers are
indices, so the key `"1"` and the index `1` are two segments. A path stands for the part and for all beneath it. The
segment `SHAPE` after a container's path stands for its length, its set of keys and their order alone. In a path that
was read, `EACH` stands for every element or key of a container; in one that was written it is not. The paths of a
state are the paths of its JSON document: a key that is not text has the text that JSON gives it, and the value of a
RootModel has the path of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, TypeAlias, final

import msgspec

from .chunks import differing
from .kind import Kind, are_of_one_class, is_dict, is_list, is_tuple, key_text, kind_of
from .layered import Step, step_between
from .model import Path, Paths
from .record import record_type
from .value import same

__all__ = ["EACH", "SHAPE", "Path", "Paths", "decode", "diff", "encode", "intersect", "minimal"]


@final
class _Mark(str):
    """The class of `SHAPE` and `EACH`, which equal nothing but themselves: no key of a user's is taken for one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return str.__str__(self)

    def __copy__(self) -> _Mark:
        return self

    def __deepcopy__(self, memo: object) -> _Mark:
        return self

    def __reduce__(self) -> str:
        return str.__str__(self)


SHAPE: Final[str] = _Mark("SHAPE")
"""A container's length and key set. A `str` subclass, so that a path stays `tuple[str | int, ...]`."""

EACH: Final[str] = _Mark("EACH")
"""Every element or key of a container, whatever it is, but not its `SHAPE`. It stands in paths that were read only."""

_EACH_ID: Final = id(EACH)  # to look for it by `in path` would call its `__eq__` for each segment


def intersect(reads: Iterable[Path], writes: Iterable[Path]) -> bool:
    """Whether one of `writes` may have changed what one of `reads` saw: one path leads to the other or beneath it."""
    written = set(writes)
    if not written:
        return False
    above = {path[:end] for path in written for end in range(len(path) + 1)}
    for read in reads:
        if _EACH_ID in map(id, read):
            if any(_meets(read, path) for path in written):
                return True
        elif read in above or any(read[:end] in written for end in range(len(read))):
            return True
    return False


def _meets(read: Path, written: Path) -> bool:
    return all(one == other or (one is EACH and other is not SHAPE) for one, other in zip(read, written, strict=False))


def minimal(paths: Iterable[Path]) -> Paths:
    """The same parts with no path twice and none beneath another, in the order of their first mention."""
    kept = dict.fromkeys(paths)
    if len(kept) <= 1:
        return tuple(kept)
    masks = {(len(path), _each_in(path)) for path in kept if _EACH_ID in map(id, path)}
    return tuple(path for path in kept if not _is_covered(path, kept, masks))


def _each_in(path: Path) -> tuple[int, ...]:
    return tuple(at for at, segment in enumerate(path) if segment is EACH)


def _is_covered(path: Path, others: Container[Path], masks: Iterable[tuple[int, tuple[int, ...]]]) -> bool:
    """Whether one of the others leads to the part at `path` or above it. `masks`: lengths and places of `EACH`."""
    if any(path[:end] in others for end in range(len(path))):
        return True
    for length, places in masks:
        if length <= len(path) and all(path[at] is not SHAPE for at in places):
            top = tuple(EACH if at in places else segment for at, segment in enumerate(path[:length]))
            if top != path and top in others:
                return True
    return False


def encode(paths: Iterable[Path]) -> bytes:
    """Paths as a JSON array of arrays, in which null stands for `SHAPE` and true for `EACH`.

    A key with half of a surrogate pair, which may be looked for though no state holds it, is an array of its escape.
    """
    written = [[_MARKS.get(segment, segment) for segment in path] for path in paths]
    try:
        return msgspec.json.encode(written)
    except UnicodeEncodeError:
        return msgspec.json.encode([[_escaped(segment) for segment in path] for path in written])


_Written: TypeAlias = str | int | bool | list[str] | None
_MARKS: Final[dict[str | int, bool | None]] = {SHAPE: None, EACH: True}
_read_paths: Final = msgspec.json.Decoder(list[list[_Written]])


def _escaped(segment: str | int | bool | None) -> _Written:
    if isinstance(segment, str) and any("\ud800" <= character <= "\udfff" for character in segment):
        return [segment.encode("unicode_escape").decode("ascii")]
    return segment


def decode(json: bytes) -> Paths:
    """The paths that `encode` wrote."""
    return tuple(tuple(map(_segment, path)) for path in _read_paths.decode(json))


def _segment(written: _Written) -> str | int:
    if isinstance(written, list):
        return "".join(written).encode("ascii").decode("unicode_escape")
    return SHAPE if written is None else EACH if written is True else written


# --- comparison of two whole states ---------------------------------------------


def diff(before: object, after: object) -> Paths:
    """Where two states differ, strictly: the deepest paths that say so, none beneath another.

    Lists that differ in length give each index that only one of them has and the shape; dicts likewise give keys, and
    the shape also if the keys they share are in another order. Values of two kinds or classes, sets, and tuples of two
    lengths differ as wholes. What two big lists or dicts share is not looked at.
    """
    found: list[Path] = []
    _diff(before, after, (), found.append)
    return tuple(dict.fromkeys(found))  # the keys 1 and "1" have one path


_Report = Callable[[Path], None]


def _diff(before: object, after: object, path: Path, report: _Report) -> None:
    if before is after:
        return
    if not are_of_one_class(before, after):
        report(path)
    elif is_list(before) and is_list(after):
        _diff_lists(before, after, path, report)
    elif is_dict(before) and is_dict(after):
        _diff_dicts(before, after, path, report)
    elif is_tuple(before) and is_tuple(after) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            _diff(old, new, (*path, index), report)
    elif kind_of(type(before)) is Kind.RECORD:
        _diff_records(before, after, path, report)
    elif not same(before, after):
        report(path)


def _diff_lists(before: list[object], after: list[object], path: Path, report: _Report) -> None:
    for index, old, new in differing(before, after):
        _diff(old, new, (*path, index), report)
    short, long = sorted((len(before), len(after)))
    for index in range(short, long):
        report((*path, index))
    if short != long:
        report((*path, SHAPE))


def _diff_dicts(before: dict[object, object], after: dict[object, object], path: Path, report: _Report) -> None:
    step = step_between(before, after)
    if step is not None:
        _diff_by_step(before, after, step, path, report)
        return
    shared: list[object] = []
    for key, old in before.items():
        if key not in after:
            report((*path, key_text(key)))
        else:
            shared.append(key)
            if old is not (new := after[key]):
                _diff(old, new, (*path, key_text(key)), report)
    for key in after:
        if key not in before:
            report((*path, key_text(key)))
    if not len(before) == len(shared) == len(after) or not same(shared, list(after)):
        report((*path, SHAPE))


def _diff_by_step(
    before: dict[object, object], after: dict[object, object], step: Step, path: Path, report: _Report
) -> None:
    for key in step.put:
        if (old := before[key]) is not (new := after[key]):
            _diff(old, new, (*path, key_text(key)), report)
    for key in (*step.gone, *step.came):
        report((*path, key_text(key)))
    if step.gone or step.came:
        report((*path, SHAPE))


def _diff_records(before: object, after: object, path: Path, report: _Report) -> None:
    known = record_type(type(before))
    old_fields, new_fields = known.fields(before), known.fields(after)
    for name in known.names:
        old, new = old_fields.get(name, _ABSENT), new_fields.get(name, _ABSENT)
        if old is not new:
            _diff(old, new, path if known.transparent else (*path, name), report)
    if known.extras_allowed:
        _diff(known.extras(before), known.extras(after), path, report)


_ABSENT: Final = object()
