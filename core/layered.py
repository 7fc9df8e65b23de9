"""Big dicts in two layers, so that a copy of one shares all but the changes.

A `Layered` stands for a plain dict inside states that the library holds; users never get one. It is a base, a plain
dict that others may have too, and what was changed since: values of keys of the base, keys that went, and keys that
came, in their order. A copy takes the changes alone. When these have grown, the next write makes a base of its own.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from itertools import chain, filterfalse
from math import isqrt
from typing import Final, TypeAlias, TypeGuard

__all__ = ["Entries", "Layered", "Step", "has_text_keys", "step_between"]

MIN_CHANGES: Final = 64
"""So many changes a dict may have beside its base; a big one as many more as the square root of its length.

A copy costs the changes, a new base the length; with this the two cost about the same for each change.
"""

_ABSENT: Final = object()


class Layered:
    """A dict in two layers: it does what a dict does, in the same order, as far as states need it.

    `most` is how many changes there may be beside the base. `base` must not change any more.
    """

    __slots__ = ("_base", "_came", "_gone", "_most", "_own", "_put", "_text")

    def __init__(self, base: dict[object, object], most: int | None = None) -> None:
        self._base = base
        self._put: dict[object, object] = {}  # other values of keys that are where the base has them
        self._gone: dict[object, None] = {}  # keys of the base that are not there any more
        self._came: dict[object, object] = {}  # all others, which come last
        self._most = most
        self._own = False  # whether no other has the base, so that it may be written
        self._text: bool | None = None  # whether all keys of the base are text, once that is known

    def copy(self) -> Layered:
        """An equal one that is written by itself. It costs the changes."""
        made: Layered = _new(Layered)
        made._base = self._base
        made._put = self._put.copy()
        made._gone = self._gone.copy()
        made._came = self._came.copy()
        made._most = self._most
        made._own = self._own = False
        made._text = self._text
        return made

    def flat(self) -> dict[object, object]:
        """A plain dict of the same."""
        made = self._base.copy()
        made.update(self._put)
        for key in self._gone:
            del made[key]
        made.update(self._came)
        return made

    # --- reading ---

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._came)

    def __contains__(self, key: object) -> bool:
        return (key in self._base and key not in self._gone) or key in self._came

    def get(self, key: object, default: object = None) -> object:
        if self._came and key in self._came:
            return self._came[key]
        if self._gone and key in self._gone:
            return default
        if self._put and key in self._put:
            return self._put[key]
        return self._base.get(key, default)

    def __getitem__(self, key: object) -> object:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[object]:
        return chain(self._kept(self._base), self._came)

    def __reversed__(self) -> Iterator[object]:
        return chain(reversed(self._came), self._kept(reversed(self._base)))

    def _kept(self, keys: Iterable[object]) -> Iterator[object]:
        return filterfalse(self._gone.__contains__, keys) if self._gone else iter(keys)

    def keys(self) -> KeysView[object]:
        return _Keys(self)

    def values(self) -> ValuesView[object]:
        return _Values(self)

    def items(self) -> ItemsView[object, object]:
        return _Items(self)

    def iterate_values(self, *, backwards: bool = False) -> Iterator[object]:
        """The values, without a step of Python for each."""
        base, came = self._base, self._came
        if not self._gone and not backwards:
            kept = map(self._put.get, base, base.values()) if self._put else base.values()
        else:
            held = map(base.__getitem__, self._kept(reversed(base) if backwards else base))
            kept = map(self._put.get, self._kept(reversed(base) if backwards else base), held)
        return chain(reversed(came.values()), kept) if backwards else chain(kept, came.values())

    def has_text_keys(self) -> bool:
        """Whether all keys are plain text. The base is looked at once, for all copies."""
        if self._text is None:
            self._text = {*map(type, self._base)} <= {str}
        if self._text:
            return {*map(type, self._came)} <= {str}
        return bool(self._gone) and {*map(type, self)} <= {str}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Layered):
            return self.flat() == other.flat()
        return self.flat() == other

    def __repr__(self) -> str:
        return repr(self.flat())

    # --- writing ---

    def __setitem__(self, key: object, value: object) -> None:
        if self._own:
            if type(key) is not str:
                self._text = None
            self._base[key] = value
            return
        if key in self._base and key not in self._gone:
            self._put[key] = value
        else:
            self._came[key] = value
        self._settle()

    def __delitem__(self, key: object) -> None:
        if self._own:
            del self._base[key]
            self._text = self._text or None
            return
        if key in self._came:
            del self._came[key]
            return
        if key not in self._base or key in self._gone:
            raise KeyError(key)
        self._put.pop(key, None)
        self._gone[key] = None
        self._settle()

    def _settle(self) -> None:
        """Make a base of its own if there are many changes. Iterators that are under way keep the layers they have."""
        changes = len(self._put) + len(self._gone) + len(self._came)
        if changes > (MIN_CHANGES if self._most is None else self._most) and (
            self._most is not None or changes > MIN_CHANGES + isqrt(len(self._base))
        ):
            self._text = (self._text and self.has_text_keys()) or None
            self._base = self.flat()
            self._put, self._gone, self._came = {}, {}, {}
            self._own = True

    # --- comparing ---

    def layers(self) -> Layers:
        """The base, and what was changed: values put, keys gone, keys that came. Not to be changed."""
        return self._base, self._put, self._gone, self._came


def _new(type_: type[Layered]) -> Layered:
    return object.__new__(type_)


class _Keys(KeysView[object]):
    """The keys, live."""

    def __init__(self, of: Layered) -> None:
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def __iter__(self) -> Iterator[object]:
        return iter(self._of)

    def __reversed__(self) -> Iterator[object]:
        return reversed(self._of)


class _Values(ValuesView[object]):
    """The values, live."""

    def __init__(self, of: Layered) -> None:
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[object]:
        return self._of.iterate_values()

    def __reversed__(self) -> Iterator[object]:
        return self._of.iterate_values(backwards=True)


class _Items(ItemsView[object, object]):
    """The items, live."""

    def __init__(self, of: Layered) -> None:
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[tuple[object, object]]:
        return zip(self._of, self._of.iterate_values(), strict=True)

    def __reversed__(self) -> Iterator[tuple[object, object]]:
        return zip(reversed(self._of), self._of.iterate_values(backwards=True), strict=True)


Entries: TypeAlias = dict[object, object] | Layered
Layers: TypeAlias = tuple[dict[object, object], dict[object, object], dict[object, None], dict[object, object]]


# --- what two dicts do not share -----------------------------------------------------


def has_text_keys(value: Entries) -> bool:
    """Whether all keys are plain text."""
    return value.has_text_keys() if _is_layered(value) else {*map(type, value)} <= {str}


class Step:
    """How a dict came from another: keys that went, keys that came last, and keys of both that may differ in value."""

    __slots__ = ("came", "gone", "put")

    def __init__(self, put: list[object], gone: list[object], came: list[object]) -> None:
        self.put = put
        self.gone = gone
        self.came = came


def step_between(before: Entries, after: Entries) -> Step | None:
    """The step between two dicts, told by their changes alone; None where only a look at all keys can tell.

    That is where they have no base in common, where keys have moved, and where a changed one is not text.
    """
    if not (_is_layered(before) or _is_layered(after)):
        return None
    base, put, gone, came = _layers(before)
    its_base, its_put, its_gone, its_came = _layers(after)
    if base is not its_base or not gone.keys() <= its_gone.keys():
        return None
    if not {*map(type, chain(put, its_put, its_gone, came, its_came))} <= {str}:
        return None  # keys that are equal, as `1` and `True`, may have another text
    if not (its_gone.keys() - gone.keys()).isdisjoint(its_came):
        return None  # a key that left its place in the base, and came again
    stayed = [key for key in came if key in its_came]
    new = [key for key in its_came if key not in came]
    if [*stayed, *new] != [*its_came]:
        return None
    lost = [*[key for key in its_gone if key not in gone], *[key for key in came if key not in its_came]]
    both = [key for key in dict.fromkeys([*put, *its_put]) if key not in its_gone]
    return Step([*both, *[key for key in stayed if came[key] is not its_came[key]]], lost, new)


def _layers(value: Entries) -> Layers:
    return value.layers() if isinstance(value, Layered) else (value, {}, {}, {})


def _is_layered(value: Entries) -> TypeGuard[Layered]:
    return type(value) is Layered
