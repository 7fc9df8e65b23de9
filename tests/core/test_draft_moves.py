"""Drafts that are held while they are stored again: no write to them is lost in silence."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from stepwell.core.draft import apply
from stepwell.core.patch import replay
from stepwell.core.value import same


class Item(BaseModel):
    id: int
    ok: bool = True
    tags: list[str] = []


@dataclasses.dataclass(frozen=True)
class Mark:
    text: str


class Doc(BaseModel):
    items: list[Item]
    done: list[Item] = []
    by: dict[str, Item] = {}
    current: Item | None = None
    pair: tuple[Item, int] = (Item(id=90), 1)
    marks: set[Mark] = set()


def doc() -> Doc:
    return Doc(items=[Item(id=at, ok=at != 1) for at in range(4)], by={"a": Item(id=8), "b": Item(id=9)})


def swap(d: Doc) -> None:
    a, b = d.items[0], d.items[1]
    d.items[0], d.items[1] = b, a
    b.id = 71
    a.tags.append("a")


def swap_in_a_dict(d: Doc) -> None:
    a, b = d.by["a"], d.by["b"]
    d.by["a"], d.by["b"] = b, a
    b.id = 71
    b.tags.append("b")


def rotate(d: Doc) -> None:
    a, b, c = d.items[:3]
    d.items[0], d.items[1], d.items[2] = c, a, b
    for at, item in enumerate((a, b, c)):
        item.id = 70 + at


def keep_some(d: Doc) -> None:
    keep = [item for item in d.items if item.ok]
    d.items = keep
    keep[0].id = 7
    d.items[1].id = 8
    assert keep[1].id == 8


def keep_some_in_place(d: Doc) -> None:
    keep = [item for item in d.items if item.ok]
    d.items[:] = keep
    keep[0].tags.append("x")


def sort_anew(d: Doc) -> None:
    last = d.items[-1]
    d.items = sorted(d.items, key=lambda item: -item.id)
    last.id = 70


def append_then_remove(d: Doc) -> None:
    item = d.items[0]
    d.done.append(item)
    d.items.remove(item)
    item.id = 70


def join_then_remove(d: Doc) -> None:
    item = d.items[0]
    d.done = [*d.done, item]
    del d.items[0]
    item.tags.append("x")


def pop_into_a_new_list(d: Doc) -> None:
    item = d.items.pop()
    d.done = [item]
    item.id = 70


def take_the_first(d: Doc) -> None:
    item = d.items[0]
    d.current = item
    d.items = d.items[1:]
    item.id = 70


def wrap(d: Doc) -> None:
    item = d.items[0]
    d.by = {"x": item}
    d.items = []
    tags = item.tags
    tags.append("deep")


def into_a_tuple(d: Doc) -> None:
    item = d.items[0]
    d.pair = (item, 5)
    del d.items[0]
    item.id = 70
    assert d.pair[0].id == 70


def out_of_a_tuple(d: Doc) -> None:
    item = d.pair[0]
    d.pair = (item, 6)
    item.id = 70
    assert d.pair[0].id == 70


def put_back_where_it_was(d: Doc) -> None:
    item = d.items.pop(0)
    item.id = 70
    d.items.insert(0, item)
    item.tags.append("x")


MOVES: list[Callable[[Doc], None]] = [
    *(swap, swap_in_a_dict, rotate, keep_some, keep_some_in_place, sort_anew, append_then_remove, join_then_remove),
    *(pop_into_a_new_list, take_the_first, wrap, into_a_tuple, out_of_a_tuple, put_back_where_it_was),
]


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_a_draft_that_was_held_keeps_its_writes_as_a_plain_value_does(move: Callable[[Doc], None]) -> None:
    expected = doc()
    move(expected)
    before = doc()
    applied = apply(before, move)
    assert same(before, doc())
    assert same(applied.state, expected)
    assert same(replay(before, applied.patch), expected)


def test_a_draft_at_its_place_and_its_copy_are_two_values() -> None:
    def updater(d: Doc) -> None:
        d.current = d.items[0]
        d.items[0].id = 70
        d.current.tags.append("copy")

    state = apply(doc(), updater).state
    assert (state.items[0], state.current) == (Item(id=70), Item(id=0, tags=["copy"]))


def _changed_after_it_was_copied(d: Doc) -> Item:
    item = d.items[0]
    d.current = item
    item.id = 70
    d.items.remove(item)
    return item


def _whose_copy_was_changed(d: Doc) -> Item:
    item = d.items[0]
    d.current = item
    d.current.id = 70
    d.items.remove(item)
    return item


def _whose_place_was_taken(d: Doc) -> Item:
    item = d.items[0]
    d.current = item
    copied = d.current
    d.items.remove(item)
    item.id = 70
    return copied


@pytest.mark.parametrize("take", [_changed_after_it_was_copied, _whose_copy_was_changed, _whose_place_was_taken])
@pytest.mark.parametrize("write", [lambda item: setattr(item, "id", 1), lambda item: item.tags.append("x")])
def test_a_write_that_would_be_lost_is_refused(take: Callable[[Doc], Item], write: Callable[[Item], object]) -> None:
    def updater(d: Doc) -> None:
        item = take(d)
        assert item.ok, "it can be read"
        with pytest.raises(RuntimeError, match="stored again as a copy; change it where it is now"):
            write(item)
        d.done.append(Item(id=5))  # the draft itself is as good as before

    assert apply(doc(), updater).state.done == [Item(id=5)]


def test_a_write_to_a_part_whose_copy_was_validated_into_another_is_refused() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(validate_assignment=True)
        one: Item
        other: Item

    def updater(d: Strict) -> None:
        item = d.one
        d.other = item
        d.one = Item(id=3)
        with pytest.raises(RuntimeError, match="stored again as a copy"):
            item.id = 4

    state = apply(Strict(one=Item(id=1), other=Item(id=2)), updater).state
    assert (state.one.id, state.other.id) == (3, 1)


def test_a_part_that_is_in_the_state_no_more_and_nowhere_else_can_be_changed_and_put_back() -> None:
    def updater(d: Doc) -> None:
        item = d.items[0]
        d.current = item
        d.current = None
        d.items.remove(item)
        item.id = 70
        d.done.append(item)
        item.tags.append("x")

    assert apply(doc(), updater).state.done == [Item(id=70, tags=["x"])]


# --- at random ------------------------------------------------------------------


def _places(d: Any) -> list[Any]:
    return [d["one"], d["other"], *d["deep"]]


def _step(d: Any, held: list[Any], step: tuple[int, int, int]) -> None:
    """One thing after which each item lies at one place at most."""
    op, a, b = step
    places = _places(d)
    here, there = places[a % len(places)], places[b % len(places)]
    match op:
        case 0 if here:
            held.append(here[b % len(here)])
        case 1 if held:
            held[a % len(held)]["n"] = b
        case 2 if held:
            held[a % len(held)]["tags"].append(b)
        case 3 if here and there:
            x, y = here[b % len(here)], there[a % len(there)]
            here[b % len(here)], there[a % len(there)] = y, x
        case 4:
            here[:] = [item for at, item in enumerate(here) if at % 2 == b % 2]
        case 5:
            d["one"] = sorted(d["one"], key=repr)
        case 6 if here:
            there.append(here.pop(b % len(here)))
        case 7 if here and here is not there:
            item = here[b % len(here)]
            there.insert(0, item)
            del here[b % len(here)]
        case 8:
            d["one"], d["other"] = d["other"], d["one"]
        case 9:
            moved = [*d["one"], *d["other"]]
            d["one"], d["other"] = moved, []
        case 10:
            d["deep"] = d["deep"][::-1]
        case 11 if here:
            here[b % len(here)] = {"n": b, "tags": []}
        case _:
            here.reverse()


def _nested() -> dict[str, Any]:
    def items(start: int) -> list[dict[str, Any]]:
        return [{"n": start + at, "tags": [at]} for at in range(3)]

    return {"one": items(0), "other": items(10), "deep": [items(20), items(30)]}


@settings(deadline=None, max_examples=1000)
@given(program=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), st.integers(0, 9)), max_size=14))
def test_held_drafts_are_changed_as_plain_values_are_or_the_write_is_refused(
    program: list[tuple[int, int, int]],
) -> None:
    expected, refused = _nested(), False

    def updater(draft: Any) -> None:
        nonlocal refused
        plain_held: list[Any] = []
        held: list[Any] = []
        for step in program:
            try:
                _step(draft, held, step)
            except RuntimeError as error:
                if "stored again as a copy" not in str(error):
                    raise
                refused = True
                return
            _step(expected, plain_held, step)
            assert same(copy.deepcopy(draft), expected), step

    before = _nested()
    applied = apply(before, updater)
    assert same(before, _nested())
    if not refused:
        assert same(applied.state, expected)
        assert same(replay(before, applied.patch), expected)
