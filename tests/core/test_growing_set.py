"""Properties of the growing set: it is a frozenset that can be added to, from any of its ages and any thread."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.growing_set import GrowingSet

if TYPE_CHECKING:
    from _typeshed import TraceFunction

ITEMS = st.integers(0, 9)


@given(st.lists(ITEMS), st.lists(st.tuples(st.integers(0, 99), ITEMS)))
def test_every_set_keeps_its_items_whichever_set_is_grown_next(first: list[int], steps: list[tuple[int, int]]) -> None:
    sets = [GrowingSet(first)]
    models = [frozenset(first)]
    for parent, item in steps:
        parent %= len(sets)
        sets.append(sets[parent].added(item))
        models.append(models[parent] | {item})
    for grown, model in zip(sets, models, strict=True):
        assert frozenset(grown) == model
        assert grown == GrowingSet(model)
        assert hash(grown) == hash(GrowingSet(sorted(model)))
        assert len(grown) == len(model)
        assert [item in grown for item in range(10)] == [item in model for item in range(10)]


@given(st.lists(ITEMS))
def test_items_come_in_order_of_arrival(items: list[int]) -> None:
    grown = GrowingSet[int]()
    for item in items:
        grown = grown.added(item)
    assert list(grown) == list(GrowingSet(items)) == list(dict.fromkeys(items))


@given(st.lists(ITEMS, min_size=1))
def test_adding_what_is_there_gives_the_same_object(items: list[int]) -> None:
    grown = GrowingSet(items)
    assert all(grown.added(item) is grown for item in items)


def test_what_a_younger_set_added_is_new_to_an_older_one() -> None:
    old = GrowingSet("x")
    young = old.added("y")
    again = old.added("y")
    assert again is not old
    assert again == young
    assert list(old) == ["x"]


def test_growing_step_by_step_hashes_each_item_twice_at_any_size() -> None:
    grown = GrowingSet[Counted]()
    items = [Counted() for _ in range(2_000)]
    for item in items:
        grown = grown.added(item)
    assert {item.hashed for item in items} == {2}, "once to look it up, once to place it, and never to copy it"


class Counted:
    """An item that counts how often it was hashed."""

    def __init__(self) -> None:
        self.hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_thread_that_grows_the_same_set_may_come_between_any_two_lines() -> None:
    line = 1
    while True:
        base = GrowingSet("x")
        rival = Rival(line, base)
        grown = rival.watch_added("y")
        if rival.grown is None:  # `added` has no line of that number
            break
        assert (list(base), list(grown), list(rival.grown)) == (["x"], ["x", "y"], ["x", "z", "w"])
        line += 1
    assert line > 10


class Rival:
    """Grows `base` twice, as another thread could, before the nth line of somebody's `base.added`."""

    def __init__(self, line: int, base: GrowingSet[str]) -> None:
        self.grown: GrowingSet[str] | None = None
        self._left = line
        self._base = base

    def watch_added(self, item: str) -> GrowingSet[str]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return self._base.added(item)
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        if frame.f_code.co_qualname != "GrowingSet.added":
            return None
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: object) -> TraceFunction:
        self._left -= event == "line"
        if self._left == 0 and self.grown is None:
            self.grown = self._base.added("z").added("w")
        return self._stepped


def test_an_item_that_cannot_be_hashed_is_refused_and_changes_nothing() -> None:
    grown = GrowingSet[object]([1])
    with pytest.raises(TypeError, match="unhashable"):
        grown.added([])
    assert list(grown.added(2)) == [1, 2]
