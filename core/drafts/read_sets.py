"""Views of sets: a set changes as a whole, and is read as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from collections.abc import Set as AbstractSet
from itertools import chain

from ..kind import ATOMS, Kind, acts_as_set, left_set
from ..value import clone
from .faces import is_fixed
from .read_scans import chunks
from .read_views import ContainerView, passes_for_kind
from .reads import refuse_change

__all__ = ["SetView"]


@passes_for_kind(set, Kind.SET, MutableSet)
class SetView(ContainerView[set[object]]):
    """A set, as a selector sees it. It is read as a whole: it changes as a whole."""

    __slots__ = ()

    def _read(self) -> set[object]:
        raw, reads, *_ = self._place
        reads.whole = True
        return raw

    def _all(self) -> set[object]:
        raw = self._read()
        return raw.copy() if ATOMS.issuperset(map(type, raw)) else set(map(_handed, raw))

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[object]:
        return chain.from_iterable(chunks(self._place[1], map(_handed, self._read())))

    def __contains__(self, item: object) -> bool:
        return item in (self._read() if type(item) in ATOMS else self._all())

    def copy(self) -> set[object]:
        return self._all()

    def isdisjoint(self, other: Iterable[object], /) -> bool:
        return self._all().isdisjoint(other)

    def issubset(self, other: Iterable[object], /) -> bool:
        return self._all().issubset(other)

    def issuperset(self, other: Iterable[object], /) -> bool:
        return self._all().issuperset(other)

    def union(self, *others: Iterable[object]) -> set[object]:
        return self._all().union(*others)

    def intersection(self, *others: Iterable[object]) -> set[object]:
        return self._all().intersection(*others)

    def difference(self, *others: Iterable[object]) -> set[object]:
        return self._all().difference(*others)

    def symmetric_difference(self, other: Iterable[object], /) -> set[object]:
        return self._all().symmetric_difference(other)

    def __eq__(self, other: object) -> bool:
        return self._all() == (set(other) if isinstance(other, SetView) else other)

    def __lt__(self, other: object) -> bool:
        return self._all() < set(other) if acts_as_set(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._all() <= set(other) if acts_as_set(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._all() > set(other) if acts_as_set(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._all() >= set(other) if acts_as_set(other) else NotImplemented

    def __or__(self, other: object) -> set[object]:
        return self._all() | set(other) if acts_as_set(other) else NotImplemented

    def __and__(self, other: object) -> set[object]:
        return self._all() & set(other) if acts_as_set(other) else NotImplemented

    def __sub__(self, other: object) -> set[object]:
        return self._all() - set(other) if acts_as_set(other) else NotImplemented

    def __ror__(self, other: object) -> AbstractSet[object]:
        return left_set(other) | self._all() if acts_as_set(other) else NotImplemented

    def __rand__(self, other: object) -> AbstractSet[object]:
        return left_set(other) & self._all() if acts_as_set(other) else NotImplemented

    def __rsub__(self, other: object) -> AbstractSet[object]:
        return left_set(other) - self._all() if acts_as_set(other) else NotImplemented

    def __rxor__(self, other: object) -> AbstractSet[object]:
        return left_set(other) ^ self._all() if acts_as_set(other) else NotImplemented

    def __xor__(self, other: object) -> set[object]:
        return self._all() ^ set(other) if acts_as_set(other) else NotImplemented

    __ior__ = __iand__ = __isub__ = __ixor__ = refuse_change
    add = discard = remove = update = refuse_change
    intersection_update = difference_update = symmetric_difference_update = refuse_change


def _handed(item: object) -> object:
    """What a selector gets for an element of a set: a copy of one that could be changed by force, as a frozen model."""
    return item if is_fixed(item) else clone(item)
