"""Patches: what leads from one state to the next, without the rest of the state.

A patch is a few operations in order, each at a path. It is of the domain of the two states that it was made from:
Python values, or JSON documents. In either domain, replaying it on the state before gives the state after: strictly
equal, with keys in the same order. `between` makes it from the two states and the paths that changed, and looks at
nothing else. A patch of documents is itself written as JSON, compactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeGuard, TypeVar, assert_never, final

import msgspec
from pydantic_core import to_json

from .chunks import differing, differing_back, shared_runs
from .kind import are_of_one_class, is_dict, is_list, stands_for
from .layered import Step, step_between
from .model import Path, Paths
from .parts import NO_PART, extras_of, has_text_keys, part_of, root_of, with_part, with_root
from .paths import SHAPE, minimal
from .sharing import copy_list
from .value import same

__all__ = [
    "Order",
    "Patch",
    "Put",
    "Remove",
    "Splice",
    "between",
    "decode",
    "encode",
    "replay",
    "replay_document",
    "replay_json",
    "touched",
]

_T = TypeVar("_T")


class Put(msgspec.Struct, frozen=True, array_like=True, tag="="):
    """Store `value` at `path`; a new key comes last. At the root it is the whole state."""

    path: Path
    value: object


class Remove(msgspec.Struct, frozen=True, array_like=True, tag="-"):
    """Remove the key at `path`."""

    path: Path


class Splice(msgspec.Struct, frozen=True, array_like=True, tag="~"):
    """In the list at `path`, put `values` in place of the `removed` elements from `start` on."""

    path: Path
    start: int
    removed: int
    values: tuple[object, ...]


class Order(msgspec.Struct, frozen=True, array_like=True, tag="<"):
    """Bring the keys of the dict at `path` into this order."""

    path: Path
    keys: tuple[str, ...]


Operation: TypeAlias = Put | Remove | Splice | Order


@final
@dataclass(frozen=True, slots=True)
class Patch:
    """What leads from one state to another. An empty patch changes nothing."""

    operations: tuple[Operation, ...] = ()

    def __len__(self) -> int:
        return len(self.operations)


# --- replaying ------------------------------------------------------------------


def replay(state: _T, patch: Patch) -> _T:
    """The state that `patch` leads to from `state`, which is not changed; parts that did not change are shared."""
    made = _Replay(in_place=False)
    value: object = state
    for operation in patch.operations:
        value = made.apply(value, operation)
    return stands_for(state, value)


def replay_document(document: object, patches: Iterable[Patch]) -> object:
    """The JSON document that many patches lead to, made in place: `document` and the patches are used up."""
    made = _Replay(in_place=True)
    for patch in patches:
        for operation in patch.operations:
            if not (type(operation) is Put and _put(operation, document)):
                document = made.apply(document, operation)
    return document


def _put(operation: Put, document: object) -> bool:
    """Replace a part that there is, in plain containers, as most operations do: and say whether that is done."""
    if not operation.path:
        return False
    value: object = document
    for segment in operation.path[:-1]:
        if not _is_plain_part(value, segment):
            return False
        value = value[segment]
    last = operation.path[-1]
    if not _is_plain_part(value, last):
        return False
    value[last] = operation.value
    return True


def _is_plain_part(value: object, segment: str | int) -> TypeGuard[dict[str | int, object]]:
    """Whether `value[segment]` is a part of a plain dict, or of a plain list, which is indexed in the same way."""
    if type(value) is dict:
        return segment in value
    return is_list(value) and type(segment) is int and 0 <= segment < len(value) and type(value) is list


class _Replay:
    """Applies operations; each container on their paths is copied once, unless it may be changed in place."""

    __slots__ = ("_in_place", "_own")

    def __init__(self, *, in_place: bool) -> None:
        self._in_place = in_place
        self._own: dict[int, object] = {}

    def apply(self, state: object, operation: Operation) -> object:
        return self._edit(state, operation.path, 0, operation)

    def _edit(self, value: object, path: Path, depth: int, operation: Operation) -> object:
        match operation:
            case Put(value=new):
                if depth == len(path):
                    return new
                last = depth == len(path) - 1
                part = new if last else self._edit(part_of(value, path[depth]), path, depth + 1, operation)
                return self._with_part(value, path[depth], part)
            case Remove() if depth == len(path) - 1:
                return self._with_part(value, path[depth], NO_PART)
            case Splice() | Order() if depth == len(path):
                return self._rebuilt(value, operation)
            case _:
                part = self._edit(part_of(value, path[depth]), path, depth + 1, operation)
                return self._with_part(value, path[depth], part)

    def _with_part(self, value: object, segment: str | int, part: object) -> object:
        if part is part_of(value, segment):
            return value
        made = with_part(value, segment, part, in_place=self._may_change(value))
        self._own[id(made)] = made
        return made

    def _may_change(self, value: object) -> bool:
        return self._in_place or id(value) in self._own

    def _rebuilt(self, value: object, operation: Splice | Order) -> object:
        inner = root_of(value)
        made: object
        match operation:
            case Splice(start=start, removed=removed, values=values):
                assert is_list(inner)
                made = inner if self._may_change(inner) else copy_list(inner)
                made[start : start + removed] = values
            case Order(keys=keys):
                assert is_dict(inner)
                made = {key: inner[key] for key in keys}
            case _:
                assert_never(operation)
        self._own[id(made)] = made
        return with_root(value, made)


# --- making ---------------------------------------------------------------------


def between(before: object, after: object, changed_paths: Iterable[Path]) -> Patch:
    """The patch from `before` to `after`, which differ at most at and beneath `changed_paths`.

    The patch holds parts of `after` itself: as long as the patch is used, these must not be changed.
    """
    operations: list[Operation] = []
    changed = list(changed_paths)
    if len(changed) == 1 and (not changed[0] or changed[0][-1] is not SHAPE):
        _compare_at(before, after, changed[0], operations)
    else:
        _compare(before, after, changed, (), operations)
    return Patch(tuple(operations))


def _compare_at(before: object, after: object, path: Path, found: list[Operation]) -> None:
    """The usual case, in which one part changed that both states have."""
    for depth, segment in enumerate(path):
        if type(before) is not type(after) and not are_of_one_class(before, after):
            found.append(Put(path[:depth], after))
            return
        old, new = part_of(before, segment), part_of(after, segment)
        if old is NO_PART or new is NO_PART:
            _compare_part(before, after, segment, [path[depth + 1 :]], path[:depth], found)
            return
        before, after = old, new
    if before is not after:
        _replace(before, after, path, found)


def _compare(before: object, after: object, changed: Sequence[Path], path: Path, found: list[Operation]) -> None:
    if before is after or not changed:
        return
    if not are_of_one_class(before, after):
        found.append(Put(path, after))
        return
    if () in changed:
        _replace(before, after, path, found)
        return
    beneath: dict[str | int, list[Path]] = {}
    for segments in changed:
        beneath.setdefault(segments[0], []).append(segments[1:])
    if is_list(before) and is_list(after):
        _compare_lists(before, after, beneath, path, found)
    elif is_dict(before) and is_dict(after):
        _compare_dicts(before, after, beneath, path, found)
    elif (inner := root_of(before)) is not before:
        _compare(inner, root_of(after), changed, path, found)
    else:
        moved = _extras_moved(before, after) if beneath.pop(SHAPE, None) else {}
        for segment, rest in beneath.items():
            if segment not in moved:
                _compare_part(before, after, segment, rest, path, found)
        found += [Remove((*path, name)) for name in moved if part_of(before, name) is not NO_PART]
        found += [Put((*path, name), value) for name, value in moved.items()]


def _extras_moved(before: object, after: object) -> dict[str, object]:
    """The undeclared fields of `after`, from the first on that is not where those that both records have would be."""
    old, new = extras_of(before), extras_of(after)
    stayed = [name for name in old if name in new]
    at = next((at for at, (one, other) in enumerate(zip(stayed, new, strict=False)) if one != other), len(new))
    return dict(islice(new.items(), at, None))


def _compare_part(
    before: object, after: object, segment: str | int, rest: list[Path], path: Path, found: list[Operation]
) -> None:
    old, new = part_of(before, segment), part_of(after, segment)
    if new is NO_PART:
        if old is not NO_PART:
            found.append(Remove((*path, segment)))
    elif old is NO_PART:
        found.append(Put((*path, segment), new))
    else:
        _compare(old, new, rest, (*path, segment), found)


def _replace(before: object, after: object, path: Path, found: list[Operation]) -> None:
    if is_list(before) and is_list(after) and before and after:
        _splice(before, after, 0, path, found)
    else:
        found.append(Put(path, after))


def _compare_lists(
    before: list[object], after: list[object], beneath: dict[str | int, list[Path]], path: Path, found: list[Operation]
) -> None:
    """Elements that kept their places one by one; if the length changed, the run of changed ones at the end at once."""
    end = max(len(before), len(after))
    if len(before) != len(after):
        end = min(len(before), len(after))
        while () in beneath.get(end - 1, ()):
            end -= 1
    for index, rest in beneath.items():
        if isinstance(index, int) and index < end:
            _compare(before[index], after[index], rest, (*path, index), found)
    if len(before) != len(after):
        _splice(before, after, end, path, found)


def _splice(before: list[object], after: list[object], start: int, path: Path, found: list[Operation]) -> None:
    """Replace what differs from `start` on, without what both lists begin and end with, and without shared chunks.

    In front of a splice all is as it is `after`, so that its start is an index there.
    """
    start = _alike(before, after, start)
    tail = _alike_at_end(before, after, start)
    runs = shared_runs(before, after, start, tail)
    old_start, new_start = start, start
    for old_end, new_end, length in (*runs, (len(before) - tail, len(after) - tail, 0)):
        old_part, new_part = before[old_start:old_end], after[new_start:new_end]
        first = last = 0
        if runs:  # otherwise that was looked for already
            first = _alike(old_part, new_part, 0)
            last = _alike_at_end(old_part, new_part, first)
        removed, values = len(old_part) - first - last, tuple(new_part[first : len(new_part) - last])
        if removed or values:
            found.append(Splice(path, new_start + first, removed, values))
        old_start, new_start = old_end + length, new_end + length


def _alike(before: list[object], after: list[object], start: int) -> int:
    """The first index from `start` on at which two lists differ, or the length of the shorter one."""
    end = min(len(before), len(after))
    return next((at for at, old, new in differing(before, after, start) if not same(old, new)), end)


def _alike_at_end(before: list[object], after: list[object], start: int) -> int:
    """How many elements at the ends of two lists are the same, without those before `start`."""
    most = min(len(before), len(after)) - start
    back = differing_back(before, after) if most else ()
    return min(next((end for end, old, new in back if end >= most or not same(old, new)), most), most)


def _compare_dicts(
    before: dict[object, object],
    after: dict[object, object],
    beneath: dict[str | int, list[Path]],
    path: Path,
    found: list[Operation],
) -> None:
    step = step_between(before, after) if SHAPE in beneath else None
    if not has_text_keys(before) or not has_text_keys(after):
        found.append(Put(path, after))
        return
    if step is not None:
        _compare_by_step(before, after, beneath, step, path, found)
        return
    if SHAPE not in beneath:
        for key, rest in beneath.items():
            _compare_part(before, after, key, rest, path, found)
        return
    again: set[str | int] = {key for key, rest in beneath.items() if () in rest and key in before and key in after}
    if _natural_order(before, after, set()) == list(after):
        again.clear()
    for key in before:
        if key not in after or key in again:
            found.append(Remove((*path, key)))
    for key in after:
        if key not in before or key in again:
            found.append(Put((*path, key), after[key]))
        elif key in beneath:
            _compare(before[key], after[key], beneath[key], (*path, key), found)
    if _natural_order(before, after, again) != list(after):
        found.append(Order(path, tuple(after)))


def _compare_by_step(
    before: dict[str, object],
    after: dict[str, object],
    beneath: dict[str | int, list[Path]],
    step: Step,
    path: Path,
    found: list[Operation],
) -> None:
    """Keys went, and came last; none moved."""
    gone = [key for key in step.gone if isinstance(key, str)]
    came = [key for key in step.came if isinstance(key, str)]
    found += [Remove((*path, key)) for key in gone]
    found += [Put((*path, key), after[key]) for key in came]
    for key, rest in beneath.items():
        if key in before and key in after:
            _compare_part(before, after, key, rest, path, found)


def _natural_order(before: dict[str, object], after: dict[str, object], again: set[str | int]) -> list[str]:
    """The order of keys that removing those that went or come `again`, and adding the others at the end, gives."""
    stayed = [key for key in before if key in after and key not in again]
    return stayed + [key for key in after if key not in before or key in again]


# --- what a patch touches ---------------------------------------------------------


def touched(patch: Patch) -> Paths:
    """The paths that `patch` may have changed: each that did change is among them, or meets one of them."""
    found: list[Path] = []
    for operation in patch.operations:
        path = operation.path
        match operation:
            case Put() | Remove():
                found.append(path)
                if path and not isinstance(path[-1], int):  # a key may have come, gone or moved; an index stays
                    found.append((*path[:-1], SHAPE))
            case Splice(start=start, removed=removed, values=values):
                if removed == len(values):
                    found += [(*path, index) for index in range(start, start + removed)]
                else:  # how many elements moved is not known here
                    found.append(path)
            case Order():
                found.append((*path, SHAPE))
            case _:
                assert_never(operation)
    return minimal(found)


# --- as JSON ----------------------------------------------------------------------

_decoder: Final = msgspec.json.Decoder(tuple[Operation, ...])


def encode(patch: Patch) -> bytes:
    """A patch of JSON documents as JSON: an array of `["=", path, value]`, `["-", path]`,
    `["~", path, start, removed, values]` and `["<", path, keys]`."""
    return msgspec.json.encode(patch.operations)


def decode(json: bytes) -> Patch:
    """The patch that `encode` wrote; msgspec.DecodeError for anything else."""
    return Patch(_decoder.decode(json))


def replay_json(base: bytes, patches: Iterable[bytes]) -> bytes:
    """The document, as JSON, to which the encoded patches lead from the document `base`.

    It is written as pydantic writes: byte for byte the document of the state that the last patch was made for.
    """
    return to_json(replay_document(msgspec.json.decode(base), map(decode, patches)))
