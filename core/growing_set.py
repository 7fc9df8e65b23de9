"""A set that never changes and yet grows cheaply: the state of a fold that only gathers.

Copying a set for each of n entries makes n²/2 copies. Here all the sets of one history share one record of the items
in order of arrival, and a set is how many of them it sees. The newest set has the right to append to the record, and
hands that right on to the set that it makes:

    a = GrowingSet("x")     sees 1 item of x
    b = a.added("y")        sees 2 items of x y; a still sees 1
    c = a.added("z")        a's right is used up: c sees 2 items of a record of its own, x z

So a place in the record is written once, by one thread, before there is a set that sees it: a set never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import TypeVar, final

__all__ = ["GrowingSet"]

_T = TypeVar("_T")


@final
class GrowingSet(Set[_T]):
    """An immutable set of hashable items. It iterates in their order of arrival, and equals any set of the same items.

    `added` takes the same time at any size as long as each set is grown once, as a fold does; to grow an older set
    again costs a copy of that set. A set keeps in memory what the sets grown from it have added.
    """

    __slots__ = ("_order", "_places", "_right", "_size")

    _order: list[_T]
    _places: dict[object, int]
    _right: list[int]  # shared like the record: the size of the one set that may append, or nothing
    _size: int

    def __init__(self, items: Iterable[_T] = ()) -> None:
        self._begin(list(dict.fromkeys(items)))

    def added(self, item: _T) -> GrowingSet[_T]:
        """The set with `item` in it too; this same object if it is there already."""
        size = self._size
        if self._places.get(item, size) < size:
            return self
        grown = object.__new__(type(self))
        try:
            self._right.remove(size)  # one indivisible act: of several threads, one has the right
        except ValueError:
            grown._begin([*self, item])
            return grown
        grown._order = self._order
        grown._places = self._places
        grown._right = self._right
        grown._size = size + 1
        self._order.append(item)
        self._places[item] = size
        self._right.append(size + 1)
        return grown

    def __contains__(self, item: object) -> bool:
        return self._places.get(item, self._size) < self._size

    def __iter__(self) -> Iterator[_T]:
        return iter(self._order[: self._size])

    def __len__(self) -> int:
        return self._size

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"GrowingSet({list(self)!r})"

    def _begin(self, items: list[_T]) -> None:
        """Start a record of its own with `items`, which are distinct."""
        self._order = items
        self._places = {item: place for place, item in enumerate(items)}
        self._size = len(items)
        self._right = [len(items)]
