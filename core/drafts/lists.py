"""Drafts of lists."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableSequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, SupportsIndex, TypeGuard, overload

from ..chunks import differing
from ..kind import ATOMS, Kind, acts_as_list, is_iterable, is_list
from ..model import Path
from ..paths import SHAPE
from ..sharing import copy_list
from .faces import FIND_MAKER, AnyNode, child_of, passes_for
from .node import Node, Report

if TYPE_CHECKING:
    from _typeshed import SupportsDunderLT

__all__ = ["ListDraft"]

MAX_INDICES: Final = 128
"""More changed indices of one list than this, and the list is reported as a whole: one path instead of hundreds."""


@passes_for(list, MutableSequence)
class ListDraft(Node[list[object]]):
    """The draft of a list: every call does what the list would do.

    `_changed` holds the indices that were written; all from `_moved` on may hold something else than before, because
    an element was put in or taken out there.
    """

    __slots__ = ("_changed", "_moved")

    def __init__(self, raw: list[object], parent: AnyNode, key: Hashable) -> None:
        super().__init__(raw, parent, key, parent._context)
        self._changed: set[int] = set()
        self._moved: int | None = None

    # --- as a node ---

    def _copied(self) -> list[object]:
        return copy_list(self._raw)

    def _at(self, key: Hashable) -> object:
        assert isinstance(key, int)
        return self._raw[key]

    def _put(self, key: Hashable, value: object) -> None:
        assert isinstance(key, int)
        self._own()[key] = value

    def _report(self, path: Path, report: Report) -> None:
        before, after = self._base, self._raw
        indices = self._changed_indices() if self._changed or self._moved is not None else {}
        if len(indices) > MAX_INDICES:
            report(path)
            return
        for index in indices:
            report((*path, index))
        if len(before) != len(after):
            report((*path, SHAPE))
        for key, child in (self._children or {}).items():
            if child._raw is not child._base and key not in indices:
                child._report((*path, *self._segments(key)), report)

    def _changed_indices(self) -> dict[int, None]:
        """Every index that may hold another value than before, without those that hold the very same.

        Once there are more than are reported, the others are not looked for.
        """
        before, after, moved = self._base, self._raw, self._moved
        shared = min(len(before), len(after))
        indices: Iterable[int] = self._changed
        if moved is not None:
            indices = (index for index in indices if index < moved)
        found = [index for index in sorted(indices) if index >= shared or before[index] is not after[index]]
        if moved is not None:
            apart = (index for index, _, _ in differing(before, after, moved))
            beyond = range(max(moved, shared), max(len(before), len(after)))
            found += islice(chain(apart, beyond), MAX_INDICES + 1)
        return dict.fromkeys(found)

    def _move(self, start: int, removed: int, added: int) -> None:
        """At `start`, `removed` elements made way for `added` others: mark that, and keep the drafts in step."""
        if removed != added:
            self._moved = start if self._moved is None else min(self._moved, start)
        else:
            self._changed.update(range(start, start + added))
        if not self._children:
            return
        kept: dict[Hashable, AnyNode] = {}
        for key, child in self._children.items():
            assert isinstance(key, int)
            if key < start:
                kept[key] = child
            elif key < start + removed:
                child._cut()
            else:
                child._key = key + added - removed
                kept[child._key] = child
        self._children = kept

    def _splice(self, start: int, stop: int, values: Iterable[object]) -> None:
        plain = [self._plain(value) for value in list(values)]
        if start == stop and not plain:
            return
        self._own()[start:stop] = plain
        self._move(start, stop - start, len(plain))
        if self._context.taken:
            self._settle(*range(start, start + len(plain)))

    # --- reading ---

    @overload
    def __getitem__(self, index: SupportsIndex) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> list[object]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> object:
        raw = self._raw
        if type(index) is int and 0 <= index < len(raw):  # the usual case
            value = raw[index]
            return value if type(value) in ATOMS else child_of(self, index, value)
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(raw)))]
        value = raw[index]
        if type(value) in ATOMS:
            return value
        at = operator.index(index)
        return child_of(self, at if at >= 0 else at + len(raw), value)

    def __iter__(self) -> Iterator[object]:
        index = 0
        while index < len(self._raw):
            value = self._raw[index]
            yield value if type(value) in ATOMS else child_of(self, index, value)
            index += 1

    def __reversed__(self) -> Iterator[object]:
        index = len(self._raw) - 1
        while index >= 0:
            if index < len(self._raw):
                yield self[index]
            index -= 1

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)

    def index(self, value: object, start: SupportsIndex = 0, stop: SupportsIndex = 2**63 - 1, /) -> int:
        for at in range(*slice(start, stop).indices(len(self._raw))):
            if (item := self[at]) is value or item == value:
                return at
        raise ValueError(f"{value!r} is not in list")

    def count(self, value: object, /) -> int:
        return sum(1 for item in self if item is value or item == value)

    def copy(self) -> list[object]:
        return list(self)

    def __repr__(self) -> str:
        return repr(list(self))

    # --- comparing and joining ---

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, ListDraft) else other)

    def __lt__(self, other: object) -> bool:
        return list(self) < list(other) if acts_as_list(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return list(self) <= list(other) if acts_as_list(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return list(self) > list(other) if acts_as_list(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return list(self) >= list(other) if acts_as_list(other) else NotImplemented

    def __add__(self, other: object) -> list[object]:
        return [*self, *other] if acts_as_list(other) else NotImplemented

    def __radd__(self, other: object) -> list[object]:
        return [*other, *self] if acts_as_list(other) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[object]:
        return list(self) * times

    __rmul__ = __mul__

    # --- writing ---

    def __setitem__(self, index: SupportsIndex | slice, value: object) -> None:
        if isinstance(index, slice):
            if not is_iterable(value):
                raise TypeError("can only assign an iterable")
            self._set_slice(index, value)
            return
        at = operator.index(index)
        at = at if at >= 0 else at + len(self._raw)
        if not 0 <= at < len(self._raw):
            raise IndexError("list assignment index out of range")
        if self._is_child_at(at, value):
            return
        plain = self._plain(value)
        self._own()[at] = plain
        self._drop(at)
        self._changed.add(at)
        self._settle(at)

    def _set_slice(self, index: slice, values: Iterable[object]) -> None:
        start, stop, step = index.indices(len(self._raw))
        if step == 1:
            self._splice(start, max(start, stop), values)
            return
        new = list(values)
        places = range(start, stop, step)
        if len(places) != len(new):
            raise ValueError(f"attempt to assign sequence of size {len(new)} to extended slice of size {len(places)}")
        for at, value in zip(places, new, strict=True):
            self[at] = value

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        length = len(self._raw)
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step == 1:
                self._splice(start, max(start, stop), ())
            else:
                for at in sorted(range(start, stop, step), reverse=True):
                    self._splice(at, at + 1, ())
            return
        at = operator.index(index)
        at = at if at >= 0 else at + length
        if not 0 <= at < length:
            raise IndexError("list assignment index out of range")
        self._splice(at, at + 1, ())

    def append(self, value: object, /) -> None:
        at = len(self._raw)
        plain = self._plain(value)
        self._own().append(plain)
        if self._moved is None or at < self._moved:
            self._moved = at
        self._settle(at)

    def extend(self, values: Iterable[object], /) -> None:
        length = len(self._raw)
        self._splice(length, length, values)

    def insert(self, index: SupportsIndex, value: object, /) -> None:
        at = slice(index, None).indices(len(self._raw))[0]
        self._splice(at, at, [value])

    def pop(self, index: SupportsIndex = -1, /) -> object:
        length = len(self._raw)
        if not length:
            raise IndexError("pop from empty list")
        at = operator.index(index)
        at = at if at >= 0 else at + length
        if not 0 <= at < length:
            raise IndexError("pop index out of range")
        value = self[at]
        self._splice(at, at + 1, ())
        return value

    def remove(self, value: object, /) -> None:
        for at, item in enumerate(self):
            if item is value or item == value:
                self._splice(at, at + 1, ())
                return
        raise ValueError("list.remove(x): x not in list")

    def clear(self) -> None:
        self._splice(0, len(self._raw), ())

    def reverse(self) -> None:
        self._reorder(range(len(self._raw) - 1, -1, -1))

    def sort(self, *, key: Callable[[object], object] | None = None, reverse: bool = False) -> None:
        items = list(self)
        keys = items if key is None else [key(item) for item in items]
        assert _ordered(keys)
        self._reorder(sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse))

    def _reorder(self, order: Iterable[int]) -> None:
        """Let the element at `order[i]` be the one at `i`."""
        places = list(order)
        moved = [to for to, at in enumerate(places) if to != at]
        if not moved:
            return
        raw = self._own()
        raw[:] = [raw[at] for at in places]
        self._changed.update(moved)
        if self._children:
            to_place = {at: to for to, at in enumerate(places)}
            children: dict[Hashable, AnyNode] = {}
            for at, child in self._children.items():
                assert isinstance(at, int)
                child._key = to_place[at]
                children[child._key] = child
            self._children = children

    def __iadd__(self, values: Iterable[object]) -> ListDraft:  # type: ignore[misc]  # in place: what is answered is the draft
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> ListDraft:
        if operator.index(times) <= 0:
            self.clear()
        else:
            self.extend(list(self) * (operator.index(times) - 1))
        return self

    # --- copies ---

    def __copy__(self) -> list[object]:
        return list(self)

    def __deepcopy__(self, memo: object) -> object:
        return self._present()

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a draft cannot be pickled; copy.deepcopy(draft) is a plain list")


def _ordered(keys: list[object]) -> TypeGuard[list[SupportsDunderLT[object]]]:
    return True  # those that cannot be ordered raise TypeError when they are


def _make(raw: object, parent: AnyNode, key: Hashable) -> AnyNode:
    assert is_list(raw)
    return ListDraft(raw, parent, key)


FIND_MAKER[Kind.LIST] = lambda _: _make
