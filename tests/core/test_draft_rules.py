"""The rules of drafts: what updaters may be and give, what reaches the state, and when a draft is dead."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import gc
import json
import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import (
    BaseModel,
)

from stepwell.core.draft import Applied, DraftEnded, apply
from stepwell.core.model import Path, Replace
from stepwell.core.paths import SHAPE, diff
from stepwell.core.value import NotStorable, same

T: dict[str, Any] = {
    "messages": [{"id": f"msg-{n}"} for n in (1, 2, 3, 4)],
    "status": "idle",
    "profile": {"name": "dan", "tags": {}},
}


def changed_by(updater: Callable[[Any], None], state: object = T) -> set[Path]:
    """The paths that an updater changes; the state that came in must not change."""
    before = copy.deepcopy(state)
    applied = apply(state, updater)
    assert same(state, before)
    return set(applied.changed_paths)


# --- what updaters may be and give ------------------------------------------------


async def _async(draft: dict[str, Any]) -> None:
    draft["status"] = "never"


def _generator(draft: dict[str, Any]) -> Any:
    draft["status"] = "never"
    yield


async def _async_generator(draft: dict[str, Any]) -> Any:
    draft["status"] = "never"
    yield


def _plain_that_returns_an_awaitable(draft: dict[str, Any]) -> Any:
    draft["status"] = "changed before it returned"
    return _async(draft)


def _plain_that_returns_a_generator(draft: dict[str, Any]) -> Any:
    draft["status"] = "changed before it returned"
    return _generator(draft)


@pytest.mark.parametrize(
    "updater",
    [
        pytest.param(_async, id="S48-core"),
        pytest.param(_generator, id="S49-generator-core"),
        pytest.param(_async_generator, id="S49-async-generator-core"),
        pytest.param(_plain_that_returns_an_awaitable, id="S49-awaitable-core"),
        pytest.param(_plain_that_returns_a_generator, id="S49-returned-generator-core"),
    ],
)
def test_s48_s49_an_updater_is_an_ordinary_function(updater: Any) -> None:
    state = copy.deepcopy(T)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="must be an ordinary function"):
            apply(state, updater)
        gc.collect()
    assert same(state, T)


@pytest.mark.parametrize(
    ("updater", "says"),
    [
        pytest.param(lambda d: d, "returned a draft", id="S52-the-draft-core"),
        pytest.param(lambda d: d["messages"], "returned a draft", id="S52-a-part-core"),
        pytest.param(lambda d: d["messages"].pop(), "returned a draft", id="S53-pop-core"),
        pytest.param(lambda d: d.setdefault("n", 1), "value of type int", id="S53-setdefault-core"),
        pytest.param(lambda _: False, "value of type bool", id="S53-false-core"),
        pytest.param(lambda _: {"messages": []}, "Replace", id="S53-a-new-state-core"),
    ],
)
def test_s52_s53_an_updater_returns_nothing_or_replace(updater: Any, says: str) -> None:
    state = copy.deepcopy(T)
    with pytest.raises(TypeError, match=says):
        apply(state, updater)
    assert same(state, T)


def test_s56_replace_takes_any_value_even_none() -> None:
    empty: Any = Replace(None)
    emptied: Applied[Any] = apply({"a": [1]}, lambda _: empty)
    assert (emptied.state, emptied.changed_paths) == (None, ((),))
    kept = {"a": [1]}
    replaced = apply({"a": [0]}, lambda _: Replace(kept)).state
    kept["a"].append(2)
    assert replaced == {"a": [1]}


def test_replace_may_hold_parts_of_the_draft() -> None:
    applied = apply(T, lambda d: Replace({**T, "messages": [d["messages"][2]], "status": "one"}))
    assert same(applied.state, {**T, "messages": [{"id": "msg-3"}], "status": "one"})
    assert set(applied.changed_paths) == set(diff(T, applied.state))


def test_s57_an_updater_that_does_nothing_changes_nothing() -> None:
    applied = apply(T, lambda _: None)
    assert applied.state is T
    assert applied.changed_paths == ()
    assert len(applied.patch) == 0


def test_what_an_updater_raises_is_passed_on_and_leaves_nothing() -> None:
    state = copy.deepcopy(T)

    def updater(draft: dict[str, Any]) -> None:
        draft["messages"].clear()
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        apply(state, updater)
    assert same(state, T)


@pytest.mark.parametrize("state", [None, 5, "text", 2.5, True])
def test_a_state_that_is_an_atom_can_only_be_replaced(state: object) -> None:
    assert apply(state, lambda _: Replace("new")).state == "new"
    assert apply(state, lambda _: None).state is state


# --- kept drafts ------------------------------------------------------------------


class Item(BaseModel):
    id: int = 0
    tags: list[str] = []


class Doc(BaseModel):
    n: int = 0
    items: list[Item] = [Item()]
    by: dict[str, Item] = {"a": Item()}
    numbers: set[int] = {1}
    pair: tuple[Item, int] = (Item(), 1)


USES: dict[str, Callable[[Any], object]] = {
    "read a field": lambda d: d.n,
    "write a field": lambda d: setattr(d, "n", 1),
    "set by object": lambda d: object.__setattr__(d, "n", 1),
    "vars": lambda d: dict(vars(d)),
    "write through vars": lambda d: vars(d).update(n=1),
    "dump": lambda d: d.model_dump(),
    "copy": lambda d: copy.copy(d),
    "deepcopy": lambda d: copy.deepcopy(d),
    "fields set": lambda d: d.model_fields_set,
    "compare": lambda d: d == Doc(),
    "repr": lambda d: repr(d),
    "a list": lambda d: d.items,
}

PARTS: dict[str, tuple[Callable[[Any], Any], list[Callable[[Any], object]]]] = {
    "list": (
        lambda d: d.items,
        [
            *(len, list, repr, bool, copy.copy, copy.deepcopy, lambda v: v[0], lambda v: v[0:1], lambda v: v == []),
            *(
                lambda v: v.append(1),
                lambda v: v.extend([]),
                lambda v: v.pop(),
                lambda v: v.sort(),
                lambda v: v.clear(),
            ),
            *(
                lambda v: v.__setitem__(0, 1),
                lambda v: v.reverse(),
                lambda v: 1 in v,
                lambda v: operator.add(v, [1]),
                lambda v: v * 2,
            ),
        ],
    ),
    "dict": (
        lambda d: d.by,
        [
            *(
                len,
                list,
                repr,
                bool,
                copy.copy,
                copy.deepcopy,
                lambda v: v["a"],
                lambda v: v.get("a"),
                lambda v: v == {},
            ),
            *(
                lambda v: v.update(x=1),
                lambda v: v.pop("a"),
                lambda v: v.clear(),
                lambda v: list(v.items()),
                lambda v: "a" in v,
            ),
            *(lambda v: v.__setitem__("a", 1), lambda v: v | {}, lambda v: v.popitem(), lambda v: v.setdefault("q")),
        ],
    ),
    "set": (
        lambda d: d.numbers,
        [
            *(
                len,
                list,
                repr,
                bool,
                copy.copy,
                copy.deepcopy,
                lambda v: 1 in v,
                lambda v: v == set(),
                lambda v: v | {1},
            ),
            *(
                lambda v: v.add(9),
                lambda v: v.discard(1),
                lambda v: v.pop(),
                lambda v: v.clear(),
                lambda v: v.update([4]),
            ),
        ],
    ),
    "model": (lambda d: d.items[0], [lambda v: v.id, lambda v: setattr(v, "id", 1), lambda v: v.tags.append("x")]),
    "model in a tuple": (lambda d: d.pair[0], [lambda v: v.id, lambda v: setattr(v, "id", 1)]),
    "view": (lambda d: d.by.items(), [list, len]),
    "vars": (vars, [dict, len, lambda v: v["n"], lambda v: v.__setitem__("n", 1)]),
    "iterator of a list": (lambda d: iter(d.items), [next]),
    "iterator of a dict": (lambda d: iter(d.by), [next]),
    "popped": (lambda d: d.items.pop(), [lambda v: v.id, lambda v: setattr(v, "id", 1)]),
}


@pytest.mark.parametrize("use", USES)
def test_s59_a_kept_draft_is_dead(use: str) -> None:
    state, kept = Doc(), []
    apply(state, lambda d: kept.append(d))
    with pytest.raises(DraftEnded, match="after its callback ended"):
        USES[use](kept[0])
    assert same(state, Doc())


@pytest.mark.parametrize("part", PARTS)
def test_s59_a_kept_part_of_a_draft_is_dead(part: str) -> None:
    find, uses = PARTS[part]
    state, kept = Doc(), []
    applied = apply(state, lambda d: kept.append(find(d)))
    result = copy.deepcopy(applied.state)
    for use in uses:
        with pytest.raises(DraftEnded):
            use(kept[0])
    assert same(state, Doc())
    assert same(applied.state, result)


def test_a_kept_draft_cannot_be_stored_by_the_next_updater() -> None:
    kept: list[Any] = []
    apply(Doc(), lambda d: kept.append(d.items))
    with pytest.raises(DraftEnded):
        apply(Doc(), lambda d: setattr(d, "items", kept[0]))


# --- values that come in ------------------------------------------------------------


def test_s85_no_draft_remains_in_the_state_at_any_depth() -> None:
    def updater(draft: dict[str, Any]) -> None:
        draft["deep"] = [{"x": draft["messages"][0], "y": (draft["profile"], {"z": draft["messages"]})}]

    state = apply(T, updater).state
    expected = {**T, "deep": [{"x": T["messages"][0], "y": (T["profile"], {"z": T["messages"]})}]}
    assert same(state, expected)
    assert json.loads(json.dumps(state)) == json.loads(json.dumps(expected))


def test_what_the_updater_holds_is_no_part_of_the_state() -> None:
    mine: dict[str, Any] = {"id": "mine", "tags": ["a"]}

    def updater(draft: dict[str, Any]) -> None:
        draft["messages"].append(mine)
        mine["tags"].append("after")

    state = apply(T, updater).state
    mine["tags"].append("later")
    assert state["messages"][-1] == {"id": "mine", "tags": ["a"]}


def test_what_is_stored_twice_is_two_values() -> None:
    def updater(draft: dict[str, Any]) -> None:
        shared = {"n": 0}
        draft["one"] = draft["other"] = shared
        draft["one"]["n"] = 1
        draft["status"] = draft["profile"]
        draft["status"]["name"] = "eve"

    state = apply(T, updater).state
    assert (state["one"], state["other"]) == ({"n": 1}, {"n": 0})
    assert (state["profile"]["name"], state["status"]["name"]) == ("dan", "eve")


def test_a_draft_that_was_taken_out_lives_on_where_it_is_put() -> None:
    def updater(draft: dict[str, Any]) -> None:
        message = draft["messages"].pop(0)
        draft["profile"]["last"] = message
        message["read"] = True

    assert apply(T, updater).state["profile"]["last"] == {"id": "msg-1", "read": True}


def test_a_draft_put_beneath_itself_is_a_copy() -> None:
    def updater(draft: dict[str, Any]) -> None:
        message = draft["messages"].pop(0)
        message["self"] = message
        draft["messages"].append(message)
        draft["profile"]["tags"]["all"] = draft

    state = apply(T, updater).state
    assert state["messages"][-1] == {"id": "msg-1", "self": {"id": "msg-1"}}
    assert state["profile"]["tags"]["all"]["profile"]["tags"] == {}


def test_a_value_that_holds_itself_is_refused() -> None:
    def updater(draft: dict[str, Any]) -> None:
        loop: list[object] = []
        loop.append({"loop": loop})
        draft["status"] = loop

    with pytest.raises(NotStorable, match="holds itself"):
        apply(T, updater)


def test_a_value_of_an_unknown_class_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot hold a value of class object"):
        apply(T, lambda d: d.update(status=object()))
    with pytest.raises(TypeError, match="cannot hold a value of class Unknown"):
        apply({"u": type("Unknown", (), {})()}, lambda d: d["u"] and None)


@pytest.mark.parametrize("key", [1, True, None, 1.5, ("a",)])
@pytest.mark.parametrize(
    "write",
    [
        lambda d, key: d.__setitem__(key, 1),
        lambda d, key: d["profile"]["tags"].__setitem__(key, 1),
        lambda d, key: d.setdefault(key, 1) and None,
        lambda d, key: d.update({key: 1}),
        lambda d, key: d.__ior__({key: 1}) and None,
        lambda d, key: d["messages"].append({key: 1}),
        lambda d, key: d.__setitem__("new", [{"deep": {key: 1}}]),
    ],
)
def test_s86_a_key_that_is_not_text_is_refused(key: object, write: Any) -> None:
    state = copy.deepcopy(T)
    with pytest.raises(TypeError, match="keys are text"):
        apply(state, lambda d: write(d, key))
    assert same(state, T)


def test_s86_a_text_key_and_an_index_are_two_segments() -> None:
    assert changed_by(lambda d: d["a"].__setitem__("1", 0), {"a": {"1": 1}}) == {("a", "1")}
    assert changed_by(lambda d: d["a"].__setitem__(1, 0), {"a": [1, 1]}) == {("a", 1)}


def test_a_dict_of_numbers_takes_numbers() -> None:
    applied = apply({1: [1]}, lambda d: d.update({2: [2]}))
    assert same(applied.state, {1: [1], 2: [2]})
    assert set(applied.changed_paths) == {("2",), (SHAPE,)}
    with pytest.raises(TypeError, match="keys"):
        apply({1: [1]}, lambda d: d.update({True: [2]}))

    def empty_and_fill(draft: dict[int, list[int]]) -> None:
        draft.clear()
        draft[5] = [5]

    assert apply({1: [1]}, empty_and_fill).state == {5: [5]}


def _write_beneath_and_replace(draft: dict[str, Any]) -> None:
    draft["messages"][0]["a"] = 1
    draft["messages"] = []


def _write_and_shift(draft: dict[str, Any]) -> None:
    draft["messages"][3]["id"] = "z"
    draft["messages"].pop(0)


# --- what is recorded ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("updater", "paths"),
    [
        pytest.param(
            lambda d: d["messages"].append({"id": "msg-5"}), {("messages", 4), ("messages", SHAPE)}, id="append"
        ),
        pytest.param(
            lambda d: d["messages"].pop(1) and None,
            {("messages", 1), ("messages", 2), ("messages", 3), ("messages", SHAPE)},
            id="pop-in-the-middle",
        ),
        pytest.param(
            lambda d: d["messages"].pop(0) and None,
            {("messages", at) for at in range(4)} | {("messages", SHAPE)},
            id="pop-at-the-start",
        ),
        pytest.param(
            lambda d: d["profile"]["tags"].update(a=1, b=2),
            {("profile", "tags", "a"), ("profile", "tags", "b"), ("profile", "tags", SHAPE)},
            id="two-new-keys",
        ),
        pytest.param(
            lambda d: [d.update(status=s) for s in "abc"] and None, {("status",)}, id="three-writes-of-one-field"
        ),
        pytest.param(lambda d: d["messages"].reverse(), {("messages", at) for at in range(4)}, id="reverse"),
        pytest.param(lambda d: d["messages"].sort(key=lambda m: m["id"]), set(), id="sorted-already"),
        pytest.param(lambda d: d["messages"].insert(1, d["messages"].pop(1)), set(), id="taken-out-and-put-back"),
        pytest.param(
            lambda d: d["messages"].insert(3, {}),
            {("messages", 3), ("messages", 4), ("messages", SHAPE)},
            id="insert",
        ),
        pytest.param(lambda d: d.pop("status") and None, {("status",), (SHAPE,)}, id="removed-key"),
        pytest.param(lambda d: d.update(x=d.pop("status")), {("status",), ("x",), (SHAPE,)}, id="renamed-key"),
        pytest.param(
            lambda d: d["messages"][2].update(a=1), {("messages", 2, "a"), ("messages", 2, SHAPE)}, id="nested"
        ),
        pytest.param(
            lambda d: d["messages"].extend({"id": str(at)} for at in range(500)), {("messages",)}, id="many-indices"
        ),
        pytest.param(_write_beneath_and_replace, {("messages",)}, id="covered"),
        pytest.param(
            _write_and_shift,
            {("messages", at) for at in range(4)} | {("messages", SHAPE)},
            id="written-then-shifted",
        ),
    ],
)
def test_the_changed_paths_are_exact_and_minimal(updater: Any, paths: set[Path]) -> None:
    assert changed_by(updater) == paths


def test_one_change_in_a_long_list_copies_no_element() -> None:
    state = {"items": [{"n": at} for at in range(20_000)]}
    applied = apply(state, lambda d: d["items"][7].update(n=-1))
    assert applied.changed_paths == (("items", 7, "n"),)
    assert all(
        new is old for at, (new, old) in enumerate(zip(applied.state["items"], state["items"], strict=True)) if at != 7
    )
