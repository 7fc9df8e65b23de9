"""Views of lists and dicts: they read like the container, record what was read, and take no change.

Like drafts they are no lists and dicts, they only say so to `isinstance` and to `match`.
"""

# pyright: reportPrivateUsage=false
# The views of this package share their parts; the underscore keeps these from users, to whom they are shown.

from __future__ import annotations

import operator
from abc import ABCMeta
from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    MutableMapping,
    MutableSequence,
    ValuesView,
)
from functools import partial
from itertools import chain, starmap
from operator import itemgetter
from typing import ClassVar, Final, SupportsIndex, TypeVar

from ..kind import ATOMS, Kind, acts_as_dict, acts_as_list, is_text
from .dumping import SERIALIZER, writes_as
from .read_scans import chunks, elements
from .reads import (
    FIND_VIEW,
    PLACES,
    Place,
    View,
    inner_view,
    part,
    place_of,
    read_whole,
    refuse_change,
    segment_of,
)
from .results import present

__all__ = ["ContainerView", "DictView", "ListView", "passes_for_kind"]

_V = TypeVar("_V", bound=View[object])
_R_co = TypeVar("_R_co", covariant=True)

_VALUE: Final = itemgetter(1)
_NEW: Final = "__new__"


class ContainerView(View[_R_co]):
    """What views of containers share beyond that."""

    __slots__ = ()

    _passes_for: ClassVar[type[object]] = object

    @property  # type: ignore[misc]
    def __class__(self) -> type[object]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `isinstance` is told."""
        return self._passes_for

    def __copy__(self) -> object:
        return self.copy()

    def copy(self) -> object:
        return read_whole(self._place)

    def __deepcopy__(self, memo: object) -> object:
        return present(self._place, memo)

    def __repr__(self) -> str:
        return repr(read_whole(self._place))

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a selector's view cannot be pickled; copy.deepcopy(view) is a plain value")

    clear = pop = refuse_change


def _plain(view: object) -> object:
    place = place_of(view)
    assert place is not None
    return read_whole(place)


setattr(ContainerView, SERIALIZER, writes_as(_plain))


def passes_for_kind(type_: type[object], kind: Kind, protocol: object) -> Callable[[type[_V]], type[_V]]:
    """Let views of this class pass for `type_`; `type(view)(values)`, as in `dataclasses.asdict`, is a plain one."""

    def mark(view: type[_V]) -> type[_V]:
        setattr(view, "_passes_for", type_)  # noqa: B010  # of the classes that have it

        def new(_: type[object], *args: object) -> object:
            return type_(*args)

        setattr(view, _NEW, new)
        if isinstance(protocol, ABCMeta):
            protocol.register(view)  # so that `match` takes it for a sequence or a mapping
        PLACES[view] = View.__dict__["_place"].__get__
        set_place: Callable[[object, Place], None] = View.__dict__["_place"].__set__
        FIND_VIEW[kind] = lambda _: (view, partial(object.__new__, view), set_place)
        return view

    return mark


# --- lists ----------------------------------------------------------------------


@passes_for_kind(list, Kind.LIST, MutableSequence)
class ListView(ContainerView[list[object]]):
    """A list, as a selector sees it."""

    __slots__ = ()

    @property
    def _raw(self) -> list[object]:
        return self._place[0]

    def __getitem__(self, index: SupportsIndex | slice) -> object:
        place = self._place
        raw = place[0]
        if type(index) is int and 0 <= index < len(raw):  # the usual case
            value = raw[index]
            if type(value) in ATOMS:
                place[1].add(index)
                return value
            return inner_view(place, index, index, value)
        if isinstance(index, slice):
            return self._slice(index)
        reads = place[1]
        at = index if type(index) is int else int(operator.index(index))
        if at < 0:
            reads.shape = True  # which element it is depends on the length
            at += len(raw)
        if not 0 <= at < len(raw):
            if at >= 0:
                reads.add(at)
            raise IndexError("list index out of range")
        return part(place, at, at, raw[at])

    def _slice(self, index: slice) -> list[object]:
        place, raw = self._place, self._raw
        wanted = range(*index.indices(len(raw)))
        place[1].shape = True
        return [part(place, at, at, raw[at]) for at in wanted]

    def __iter__(self) -> Iterator[object]:
        raw = self._raw
        return chain.from_iterable(map(_VALUE, elements(self._place, range(len(raw)), raw)))

    def __reversed__(self) -> Iterator[object]:
        raw = self._raw
        self._place[1].shape = True
        backwards = elements(self._place, range(len(raw) - 1, -1, -1), reversed(raw))
        return chain.from_iterable(map(_VALUE, backwards))

    def __len__(self) -> int:
        place = self._place
        place[1].shape = True
        return len(place[0])

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)

    def index(self, value: object, start: SupportsIndex = 0, stop: SupportsIndex = 2**63 - 1, /) -> int:
        if operator.index(start) < 0 or operator.index(stop) < 0:
            self._place[1].shape = True
        raw = self._raw
        for at in range(*slice(start, stop).indices(len(raw))):
            if (item := part(self._place, at, at, raw[at])) is value or item == value:
                return at
        self._place[1].shape = True
        raise ValueError(f"{value!r} is not in list")

    def count(self, value: object, /) -> int:
        return sum(1 for item in self if item is value or item == value)

    def copy(self) -> list[object]:
        self._place[1].whole = True
        return list(self)

    def __eq__(self, other: object) -> bool:
        self._place[1].whole = True
        return list(self) == (list(other) if isinstance(other, ListView) else other)

    def __lt__(self, other: object) -> bool:
        self._place[1].whole = True
        return list(self) < list(other) if acts_as_list(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        self._place[1].whole = True
        return list(self) <= list(other) if acts_as_list(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        self._place[1].whole = True
        return list(self) > list(other) if acts_as_list(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        self._place[1].whole = True
        return list(self) >= list(other) if acts_as_list(other) else NotImplemented

    def __add__(self, other: object) -> list[object]:
        return [*self, *other] if acts_as_list(other) else NotImplemented

    def __radd__(self, other: object) -> list[object]:
        return [*other, *self] if acts_as_list(other) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[object]:
        return list(self) * times

    __rmul__ = __mul__

    __setitem__ = __delitem__ = __iadd__ = __imul__ = refuse_change
    append = extend = insert = remove = reverse = sort = refuse_change


# --- dicts ----------------------------------------------------------------------

_ABSENT: Final = object()


@passes_for_kind(dict, Kind.DICT, MutableMapping)
class DictView(ContainerView[dict[object, object]]):
    """A dict, as a selector sees it; its keys, values and items are live views as well."""

    __slots__ = ()

    @property
    def _raw(self) -> dict[object, object]:
        return self._place[0]

    def _find(self, key: object) -> object:
        place = self._place
        raw = place[0]
        if is_text(key):
            key = str.__str__(key)
        value = raw.get(key, _ABSENT)
        if type(key) is str:
            if type(value) in ATOMS or value is _ABSENT:
                place[1].add(key)
                return value
            return part(place, key, key, value)
        if value is _ABSENT:
            place[1].shape = True  # an equal key of another type, as 1.0 for 1, has another text
            return value
        held = key if type(key) is type(next(iter(raw))) else next(other for other in raw if other == key)
        return part(place, segment_of(held), held, value)

    def __getitem__(self, key: object) -> object:
        place = self._place
        raw = place[0]
        if type(key) is str and key in raw:  # the usual case
            value = raw[key]
            if type(value) in ATOMS:
                place[1].add(key)
                return value
            return inner_view(place, key, key, value)
        value = self._find(key)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: object, default: object = None, /) -> object:
        value = self._find(key)
        return default if value is _ABSENT else value

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not _ABSENT

    def __len__(self) -> int:
        place = self._place
        place[1].shape = True
        return len(place[0])

    def __iter__(self) -> Iterator[object]:
        reads = self._place[1]
        reads.shape = True
        return chain.from_iterable(chunks(reads, self._raw))

    def __reversed__(self) -> Iterator[object]:
        reads = self._place[1]
        reads.shape = True
        return chain.from_iterable(chunks(reads, reversed(self._raw)))

    def keys(self) -> KeysView[object]:
        return Keys(self)

    def values(self) -> ValuesView[object]:
        return Values(self)

    def items(self) -> ItemsView[object, object]:
        return Items(self)

    def _parts(
        self, *, backwards: bool = False, named: bool = False
    ) -> Iterator[tuple[Iterable[Hashable], Iterable[object]]]:
        raw = self._raw
        self._place[1].shape = True
        if backwards:
            return elements(self._place, reversed(raw), reversed(raw.values()), segment_of, named=named)
        return elements(self._place, raw, raw.values(), segment_of, named=named)

    def copy(self) -> dict[object, object]:
        self._place[1].whole = True
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, DictView) else other)

    def __or__(self, other: object) -> dict[object, object]:
        return dict(self.items()) | dict(other.items()) if acts_as_dict(other) else NotImplemented

    def __ror__(self, other: object) -> dict[object, object]:
        return dict(other.items()) | dict(self.items()) if acts_as_dict(other) else NotImplemented

    __setitem__ = __delitem__ = __ior__ = setdefault = popitem = update = refuse_change


class Keys(KeysView[object]):
    """The keys of a dict, as a selector sees them."""

    def __init__(self, view: DictView) -> None:
        super().__init__(view)
        self._view = view

    def __reversed__(self) -> Iterator[object]:
        return reversed(self._view)

    def __deepcopy__(self, memo: object) -> object:
        return dict.fromkeys(self).keys()


class Values(ValuesView[object]):
    """The values of a dict, as a selector sees them."""

    def __init__(self, view: DictView) -> None:
        super().__init__(view)
        self._view = view

    def __iter__(self) -> Iterator[object]:
        return chain.from_iterable(map(_VALUE, self._view._parts()))

    def __contains__(self, value: object) -> bool:
        return any(item is value or item == value for item in self)

    def __reversed__(self) -> Iterator[object]:
        return chain.from_iterable(map(_VALUE, self._view._parts(backwards=True)))


class Items(ItemsView[object, object]):
    """The items of a dict, as a selector sees them."""

    def __init__(self, view: DictView) -> None:
        super().__init__(view)
        self._view = view

    def __iter__(self) -> Iterator[tuple[object, object]]:
        return chain.from_iterable(starmap(_pairs, self._view._parts(named=True)))

    def __reversed__(self) -> Iterator[tuple[object, object]]:
        return chain.from_iterable(starmap(_pairs, self._view._parts(backwards=True, named=True)))


def _pairs(keys: Iterable[object], values: Iterable[object]) -> Iterable[tuple[object, object]]:
    return zip(keys, values, strict=True)
