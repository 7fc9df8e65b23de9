"""The rules of drafts: what updaters may be and give, what reaches the state, and when a draft is dead."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import json
import operator
import pickle
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_validator,
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


# --- nothing reaches the committed state -------------------------------------------


class Rich(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    n: int = 0
    items: list[Item] = [Item(id=1)]

    @functools.cached_property
    def total(self) -> int:
        return self.n + len(self.items)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.n * 2

    @property
    def first(self) -> Item:
        return self.items[0]

    def bump(self) -> None:
        self.n += 1
        self.items.append(Item(id=self.n))

    @field_validator("n")
    @classmethod
    def _small(cls, value: int) -> int:
        if value > 99:
            raise ValueError("too large")
        return value


class Ice(BaseModel, frozen=True):
    n: int = 0
    items: list[Item] = [Item(id=1)]


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Listed(RootModel[list[Item]]):
    pass


@dataclasses.dataclass(slots=True)
class Slim:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Solid:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


class Spot(NamedTuple):
    name: str
    seen: list[int]


def untouched(state: Any, updater: Callable[[Any], object]) -> Any:
    """The state that `updater` makes of `state`, which must stay as it was, whatever it did."""
    before = copy.deepcopy(state)

    def quietly(draft: Any) -> None:
        updater(draft)

    made = apply(state, quietly)
    assert same(state, before)
    assert vars(state).keys() == vars(before).keys() if hasattr(state, "__dict__") else True
    return made.state


def test_s145_vars_and_object_setattr_work_on_the_draft() -> None:
    def updater(draft: Any) -> None:
        object.__setattr__(draft, "n", 5)
        vars(draft)["n"] += 1
        draft.__dict__.update(items=[*draft.items, Item(id=9)])
        with pytest.raises(TypeError, match="no field"):
            vars(draft)["other"] = 1
        with pytest.raises(AttributeError):
            object.__setattr__(draft, "__dict__", {})
        with pytest.raises(AttributeError):
            object.__setattr__(draft, "__class__", Item)

    assert untouched(Rich(), updater) == Rich(n=6, items=[Item(id=1), Item(id=9)])


def test_s145_copies_of_a_draft_are_plain_and_apart() -> None:
    def updater(draft: Any) -> None:
        draft.n = 3
        for made in (copy.copy(draft), copy.deepcopy(draft), draft.model_copy(), draft.model_copy(deep=True)):
            assert type(made) is Rich
            assert made.n == 3
            made.items.append(Item())
            made.items[0].tags.append("lost")
        assert draft.model_copy(update={"n": 8}).n == 8
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(draft)

    assert same(untouched(Rich(), updater), Rich(n=3))


def test_s145_methods_properties_and_cached_properties_see_the_draft() -> None:
    def updater(draft: Any) -> None:
        assert (draft.total, draft.double, draft.first.id) == (1, 0, 1)
        draft.bump()
        assert (draft.total, draft.double) == (3, 2)
        draft.first.tags.append("t")
        assert isinstance(draft, Rich)
        assert isinstance(draft.items, list)
        assert draft.model_dump()["n"] == 1
        assert json.loads(draft.model_dump_json())["n"] == 1

    made = untouched(Rich(), updater)
    assert made == Rich(n=1, items=[Item(id=1, tags=["t"]), Item(id=1)])
    assert "total" not in vars(made)


def test_s145_a_validated_assignment_validates() -> None:
    def updater(draft: Any) -> None:
        draft.n = "7"
        assert draft.n == 7
        with pytest.raises(ValidationError, match="too large"):
            draft.n = 100

    assert untouched(Rich(), updater).n == 7


@pytest.mark.parametrize(("state", "error"), [(Ice(), ValidationError), (Solid(), dataclasses.FrozenInstanceError)])
def test_s145_a_frozen_record_stays_frozen_but_its_lists_do_not(state: Any, error: type[Exception]) -> None:
    def updater(draft: Any) -> None:
        with pytest.raises(error):
            draft.n = 1
        draft.items.append(draft.items[0] if draft.items else 5)
        object.__setattr__(draft, "n", 2)

    made = untouched(state, updater)
    assert made.n == 2
    assert len(made.items) == len(state.items) + 1


def test_undeclared_fields_are_tracked() -> None:
    state = Wide.model_validate({"n": 1, "more": [1], "gone": 2})

    def updater(draft: Any) -> None:
        draft.more.append(2)
        draft.new = {"a": 1}
        del draft.gone
        draft.model_extra["late"] = 3
        with pytest.raises(TypeError, match="cannot be deleted"):
            del draft.n

    applied = apply(state, updater)
    assert applied.state == Wide.model_validate({"n": 1, "more": [1, 2], "new": {"a": 1}, "late": 3})
    assert set(applied.changed_paths) == {("more", 1), ("more", SHAPE), ("new",), ("gone",), ("late",), (SHAPE,)}
    assert state == Wide.model_validate({"n": 1, "more": [1], "gone": 2})


def test_what_is_no_field_cannot_be_assigned() -> None:
    with pytest.raises(ValueError, match="no field"):
        apply(Doc(), lambda d: setattr(d, "absent", 1))
    with pytest.raises(TypeError, match="no field"):
        apply(Shape(), lambda d: setattr(d, "absent", 1))


@dataclasses.dataclass
class Shape:
    n: int = 0


def test_helpers_of_the_standard_library_see_a_draft() -> None:
    def updater(draft: Any) -> None:
        draft.n = 7
        draft.items += [1]
        assert dataclasses.asdict(draft) == {"n": 7, "items": [1]}
        assert dataclasses.replace(draft, n=50) == Listing(50, [1])
        assert draft == Listing(7, [1])
        assert Listing(7, [1]) == draft
        assert type(draft.items)((1, 2)) == [1, 2]

    assert untouched(Listing(), updater) == Listing(7, [1])


@dataclasses.dataclass
class Listing:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


class Own(BaseModel):
    """A model with ways of its own."""

    x: int = 0
    log: list[str] = []

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "x":
            self.log.append(f"x={value}")

    def __getattr__(self, name: str) -> Any:
        return 42 if name == "magic" else getattr(super(), "__getattr__")(name)  # noqa: B009

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.x == other.x

    def __hash__(self) -> int:
        return hash(self.x)

    def __len__(self) -> int:
        return len(self.log)

    def __contains__(self, entry: str) -> bool:
        return entry in self.log


def test_a_models_own_ways_work_on_its_draft() -> None:
    def updater(draft: Any) -> None:
        draft.x = 3
        assert draft.magic == 42
        assert (len(draft), "x=3" in draft, hash(draft)) == (1, True, hash(3))
        assert draft == Own(x=3)
        assert Own(x=3) == draft
        with pytest.raises(AttributeError):
            draft.absent  # noqa: B018

    made = untouched(Own(), updater)
    assert (made.x, made.log) == (3, ["x=3"])


def test_slotted_dataclasses_named_tuples_and_root_models_are_tracked() -> None:
    def updater(draft: Slim) -> None:
        draft.n = 1
        draft.items.append(1)

    slim = apply(Slim(), updater)
    assert (slim.state, set(slim.changed_paths)) == (Slim(1, [1]), {("n",), ("items", 0), ("items", SHAPE)})
    spot = apply(Spot("a", [1]), lambda d: d.seen.append(2))
    assert (spot.state, set(spot.changed_paths)) == (Spot("a", [1, 2]), {(1, 1), (1, SHAPE)})
    listed = apply(Listed([Item()]), lambda d: setattr(d.root[0], "id", 4))
    assert (listed.state, listed.changed_paths) == (Listed([Item(id=4)]), ((0, "id"),))


def test_hooks_of_the_users_class_do_not_run_for_drafts() -> None:
    made: list[type] = []

    class Watched(BaseModel):
        n: int = 0

        def __init_subclass__(cls, **options: Any) -> None:
            made.append(cls)

        @classmethod
        def __pydantic_init_subclass__(cls, **options: Any) -> None:
            made.append(cls)

    apply(Watched(), lambda d: setattr(d, "n", 1))
    assert made == []


# --- C code and other readers -------------------------------------------------------


def test_readers_see_the_draft_or_raise() -> None:
    def updater(draft: dict[str, Any]) -> None:
        draft["status"] = "changed"
        messages, profile = draft["messages"], draft["profile"]
        messages.append({"id": "msg-5"})
        assert [message["id"] for message in [*messages]] == [f"msg-{n}" for n in range(1, 6)]
        assert list(messages) == sorted(messages, key=lambda m: m["id"]) == [*tuple(messages)]
        assert {**draft}["status"] == dict(draft)["status"] == "changed"
        assert dict(profile) == profile == {"name": "dan", "tags": {}}
        assert (lambda **named: named)(**profile) == profile
        match draft:
            case {"status": status, "messages": [{"id": first}, *rest], **others}:
                assert (status, first, len(rest), list(others)) == ("changed", "msg-1", 4, ["profile"])
            case _:
                pytest.fail("the draft does not match as a mapping")
        match messages:
            case list():
                assert isinstance(messages, list)
            case _:
                pytest.fail("the draft does not match as a list")
        for bypass in (
            lambda: list.append(messages, 1),
            lambda: list.__setitem__(messages, 0, 1),
            lambda: dict.__setitem__(profile, "name", "eve"),
            lambda: dict.update(profile, name="eve"),
            lambda: json.dumps(messages),
            lambda: json.dumps(profile),
            lambda: TypeAdapter(list[dict[str, str]]).dump_json(messages, warnings="error"),
            lambda: pickle.dumps(messages),
        ):
            with pytest.raises((TypeError, ValueError)):
                bypass()

    state = apply(T, updater).state
    assert state["profile"]["name"] == "dan"


def test_pydantic_takes_a_draft_of_a_model_for_what_it_shows_or_raises() -> None:
    def updater(draft: Any) -> None:
        draft.items[0].id = 77
        taken = Doc(items=draft.items[:])
        draft.by["taken"] = taken.items[0]
        taken.items[0].tags.append("through the other model")
        with pytest.raises((TypeError, ValueError)):
            TypeAdapter(Doc).dump_json(draft)

    state = untouched(Doc(), updater)
    assert state.by["taken"].id == 77


def test_a_discriminated_field_may_change_its_class() -> None:
    class A(BaseModel):
        kind: str = "a"

    class B(BaseModel):
        kind: str = "b"
        x: int = 0

    class Both(BaseModel):
        value: A | B = Field(default_factory=A)

    def updater(draft: Both) -> None:
        draft.value = B()
        draft.value.x = 3

    applied = apply(Both(), updater)
    assert same(applied.state.value, B(x=3))
    assert applied.changed_paths == (("value",),)
