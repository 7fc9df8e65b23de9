"""Drafts of dicts."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from itertools import islice
from typing import Final, TypeAlias

from ..kind import ATOMS, Kind, acts_as_dict, is_dict, is_text, key_text
from ..model import Path
from ..paths import SHAPE
from ..sharing import copy_dict
from .faces import FIND_MAKER, AnyNode, child_of, passes_for
from .intake import admit_key
from .node import Node, Report

__all__ = ["DictDraft"]

Pairs: TypeAlias = Mapping[object, object] | Iterable[tuple[object, object]]

_ABSENT: Final = object()


@passes_for(dict, MutableMapping)
class DictDraft(Node[dict[object, object]]):
    """The draft of a dict: every call does what the dict would do, and views are live.

    `_changed` holds the keys that were written; True for those that were removed at some time, so that they may stand
    in another place now.
    """

    __slots__ = ("_changed",)

    def __init__(self, raw: dict[object, object], parent: AnyNode, key: Hashable) -> None:
        super().__init__(raw, parent, key, parent._context)
        self._changed: dict[object, bool] = {}

    # --- as a node ---

    def _copied(self) -> dict[object, object]:
        return copy_dict(self._raw)

    def _at(self, key: Hashable) -> object:
        return self._raw[key]

    def _put(self, key: Hashable, value: object) -> None:
        self._own()[key] = value

    def _segments(self, key: Hashable) -> Path:
        return (key_text(key),)

    def _report(self, path: Path, report: Report) -> None:
        before, after = self._base, self._raw
        shape = False
        for key, removed in self._changed.items():
            old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
            shape = shape or (old is _ABSENT) is not (new is _ABSENT) or (removed and new is not _ABSENT)
            if old is not new:
                report((*path, key_text(key)))
        if shape:
            report((*path, SHAPE))
        for key, child in (self._children or {}).items():
            if child._raw is not child._base and key not in self._changed:
                child._report((*path, key_text(key)), report)

    def _store(self, key: object, value: object) -> None:
        if self._is_child_at(key, value):
            return
        key = admit_key(key, self._admitted_keys())
        plain = self._plain(value)
        self._own()[key] = plain
        self._drop(key)
        self._changed.setdefault(key, False)
        self._settle(key)

    def _admitted_keys(self) -> frozenset[type[object]]:
        """Types of keys that may be written: that of its own keys; if empty, the declared ones and what it had."""
        held = frozenset(type(key) for key in islice(self._raw or self._base, 1))
        return held if self._raw else held | self._context.key_types

    def _as_held(self, key: object) -> object:
        """The key that the dict holds in place of an equal one: `True` and `1.0` find `1`, and have another text."""
        if is_text(key):
            return str.__str__(key)
        if type(key) in self._context.key_types or type(key) is type(next(iter(self._raw), None)):
            return key
        return next((held for held in self._raw if held == key), key)

    def _remove(self, key: object) -> None:
        key = self._as_held(key)
        del self._own()[key]
        self._drop(key)
        self._changed[key] = True

    # --- reading ---

    def __getitem__(self, key: object) -> object:
        value = self._raw[key]
        return value if type(value) in ATOMS else child_of(self, self._as_held(key), value)

    def get(self, key: object, default: object = None, /) -> object:
        return self[key] if key in self._raw else default

    def __contains__(self, key: object) -> bool:
        return key in self._raw

    def __len__(self) -> int:
        return len(self._raw)

    def __iter__(self) -> Iterator[object]:
        return self._iterate(iter(self._raw))

    def __reversed__(self) -> Iterator[object]:
        return self._iterate(reversed(self._raw))

    def _iterate(self, keys: Iterator[object]) -> Iterator[object]:
        length = len(self._raw)
        for key in keys:
            if len(self._raw) != length:
                break
            yield key
        if len(self._raw) != length:
            raise RuntimeError("dictionary changed size during iteration")

    def keys(self) -> KeysView[object]:
        return _Keys(self)

    def values(self) -> ValuesView[object]:
        return _Values(self)

    def items(self) -> ItemsView[object, object]:
        return _Items(self)

    def copy(self) -> dict[object, object]:
        return dict(self.items())

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == (dict(other.items()) if isinstance(other, DictDraft) else other)

    def __or__(self, other: object) -> dict[object, object]:
        return self.copy() | dict(other.items()) if acts_as_dict(other) else NotImplemented

    def __ror__(self, other: object) -> dict[object, object]:
        return dict(other.items()) | self.copy() if acts_as_dict(other) else NotImplemented

    # --- writing ---

    def __setitem__(self, key: object, value: object) -> None:
        self._store(key, value)

    def __delitem__(self, key: object) -> None:
        if key not in self._raw:
            raise KeyError(key)
        self._remove(key)

    def setdefault(self, key: object, default: object = None, /) -> object:
        if key not in self._raw:
            self._store(key, default)
        return self[key]

    def pop(self, key: object, default: object = _ABSENT, /) -> object:
        if key not in self._raw:
            if default is _ABSENT:
                raise KeyError(key)
            return default
        value = self[key]
        self._remove(key)
        return value

    def popitem(self) -> tuple[object, object]:
        if not self._raw:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._raw))
        return key, self.pop(key)

    def update(self, other: Pairs = (), /, **named: object) -> None:
        for key, value in dict(other, **named).items():
            self._store(key, value)

    def __ior__(self, other: Pairs) -> DictDraft:  # type: ignore[misc]  # in place: what is answered is the draft
        self.update(other)
        return self

    def clear(self) -> None:
        for key in list(self._raw):
            self._remove(key)

    # --- copies ---

    def __copy__(self) -> dict[object, object]:
        return self.copy()

    def __deepcopy__(self, memo: object) -> object:
        return self._present()

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a draft cannot be pickled; copy.deepcopy(draft) is a plain dict")


class _Keys(KeysView[object]):
    """The keys of a draft, live, as `dict.keys` gives them."""

    def __init__(self, draft: DictDraft) -> None:
        super().__init__(draft)
        self._draft = draft

    def __reversed__(self) -> Iterator[object]:
        return reversed(self._draft)


class _Values(ValuesView[object]):
    """The values of a draft, live, as `dict.values` gives them."""

    def __init__(self, draft: DictDraft) -> None:
        super().__init__(draft)
        self._draft = draft

    def __reversed__(self) -> Iterator[object]:
        return (self._draft[key] for key in reversed(self._draft))


class _Items(ItemsView[object, object]):
    """The items of a draft, live, as `dict.items` gives them."""

    def __init__(self, draft: DictDraft) -> None:
        super().__init__(draft)
        self._draft = draft

    def __reversed__(self) -> Iterator[tuple[object, object]]:
        return ((key, self._draft[key]) for key in reversed(self._draft))


def _make(raw: object, parent: AnyNode, key: Hashable) -> AnyNode:
    assert is_dict(raw)
    return DictDraft(raw, parent, key)


FIND_MAKER[Kind.DICT] = lambda _: _make
