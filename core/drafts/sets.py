"""Drafts of sets."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableSet
from collections.abc import Set as AbstractSet

from ..kind import Kind, acts_as_set, is_set, left_set
from ..model import Path
from ..value import clone
from .faces import FIND_MAKER, AnyNode, is_fixed, node_of, passes_for
from .node import Node, Report

__all__ = ["SetDraft"]


@passes_for(set, MutableSet)
class SetDraft(Node[set[object]]):
    """The draft of a set: every call does what the set would do. A set changes as a whole, and has one path.

    Its elements cannot be changed; those that could be by force, as frozen models, are given as copies.
    """

    __slots__ = ()

    def __init__(self, raw: set[object], parent: AnyNode, key: Hashable) -> None:
        super().__init__(raw, parent, key, parent._context)

    # --- as a node ---

    def _copied(self) -> set[object]:
        return self._raw.copy()

    def _report(self, path: Path, report: Report) -> None:
        report(path)

    # --- reading ---

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[object]:
        length = len(self._raw)
        for item in self._raw:
            if len(self._raw) != length:
                break
            yield item if is_fixed(item) else clone(item)
        if len(self._raw) != length:
            raise RuntimeError("Set changed size during iteration")

    def __contains__(self, item: object) -> bool:
        return _bare(item) in self._raw

    def copy(self) -> set[object]:
        return set(self)

    def __repr__(self) -> str:
        return repr(set(self))

    def isdisjoint(self, other: Iterable[object], /) -> bool:
        return set(self).isdisjoint(other)

    def issubset(self, other: Iterable[object], /) -> bool:
        return set(self).issubset(other)

    def issuperset(self, other: Iterable[object], /) -> bool:
        return set(self).issuperset(other)

    def union(self, *others: Iterable[object]) -> set[object]:
        return set(self).union(*others)

    def intersection(self, *others: Iterable[object]) -> set[object]:
        return set(self).intersection(*others)

    def difference(self, *others: Iterable[object]) -> set[object]:
        return set(self).difference(*others)

    def symmetric_difference(self, other: Iterable[object], /) -> set[object]:
        return set(self).symmetric_difference(other)

    # --- operators ---

    def __eq__(self, other: object) -> bool:
        return set(self) == (set(other) if isinstance(other, SetDraft) else other)

    def __lt__(self, other: object) -> bool:
        return set(self) < set(other) if acts_as_set(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return set(self) <= set(other) if acts_as_set(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return set(self) > set(other) if acts_as_set(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return set(self) >= set(other) if acts_as_set(other) else NotImplemented

    def __or__(self, other: object) -> set[object]:
        return set(self) | set(other) if acts_as_set(other) else NotImplemented

    def __and__(self, other: object) -> set[object]:
        return set(self) & set(other) if acts_as_set(other) else NotImplemented

    def __sub__(self, other: object) -> set[object]:
        return set(self) - set(other) if acts_as_set(other) else NotImplemented

    def __ror__(self, other: object) -> AbstractSet[object]:
        return left_set(other) | set(self) if acts_as_set(other) else NotImplemented

    def __rand__(self, other: object) -> AbstractSet[object]:
        return left_set(other) & set(self) if acts_as_set(other) else NotImplemented

    def __rsub__(self, other: object) -> AbstractSet[object]:
        return left_set(other) - set(self) if acts_as_set(other) else NotImplemented

    def __rxor__(self, other: object) -> AbstractSet[object]:
        return left_set(other) ^ set(self) if acts_as_set(other) else NotImplemented

    def __xor__(self, other: object) -> set[object]:
        return set(self) ^ set(other) if acts_as_set(other) else NotImplemented

    def __ior__(self, other: object) -> SetDraft:
        if not acts_as_set(other):
            return NotImplemented
        self.update(other)
        return self

    def __iand__(self, other: object) -> SetDraft:
        if not acts_as_set(other):
            return NotImplemented
        self.intersection_update(other)
        return self

    def __isub__(self, other: object) -> SetDraft:
        if not acts_as_set(other):
            return NotImplemented
        self.difference_update(other)
        return self

    def __ixor__(self, other: object) -> SetDraft:
        if not acts_as_set(other):
            return NotImplemented
        self.symmetric_difference_update(other)
        return self

    # --- writing ---

    def add(self, item: object, /) -> None:
        if item not in self:
            plain = self._plain(item)
            self._own().add(plain)
            self._settle()

    def discard(self, item: object, /) -> None:
        if item in self:
            self._own().discard(_bare(item))

    def remove(self, item: object, /) -> None:
        if item not in self:
            raise KeyError(item)
        self._own().remove(_bare(item))

    def pop(self) -> object:
        if not self._raw:
            raise KeyError("pop from an empty set")
        item = next(iter(self))
        self.remove(item)
        return item

    def clear(self) -> None:
        self._keep(set())

    def update(self, *others: Iterable[object]) -> None:
        for item in set[object]().union(*others):
            self.add(item)

    def intersection_update(self, *others: Iterable[object]) -> None:
        self._keep(self.intersection(*others))

    def difference_update(self, *others: Iterable[object]) -> None:
        self._keep(self.difference(*others))

    def symmetric_difference_update(self, other: Iterable[object], /) -> None:
        wanted = self.symmetric_difference(other)
        self._keep(wanted)
        self.update(wanted)

    def _keep(self, wanted: set[object]) -> None:
        for item in self._raw - wanted:
            self._own().discard(item)

    # --- copies ---

    def __copy__(self) -> set[object]:
        return self.copy()

    def __deepcopy__(self, memo: object) -> object:
        return self._present()

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a draft cannot be pickled; copy.deepcopy(draft) is a plain set")


def _bare(item: object) -> object:
    """An item to look for: a draft of a frozen record is looked for by its value."""
    node = node_of(item)
    return item if node is None else node._raw


def _make(raw: object, parent: AnyNode, key: Hashable) -> AnyNode:
    assert is_set(raw)
    return SetDraft(raw, parent, key)


FIND_MAKER[Kind.SET] = lambda _: _make
