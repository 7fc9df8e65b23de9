"""Reads: what counts as a read of what, and what a selector may be and do."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import functools
import gc
import itertools
import json
import pickle
import tracemalloc
import warnings
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, ItemsView, KeysView, Mapping
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import pydantic_core
import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr, RootModel, TypeAdapter

from stepwell.core.draft import DraftEnded, apply, take, track_reads
from stepwell.core.drafts.reads import place_of
from stepwell.core.model import Path, Paths
from stepwell.core.paths import EACH, SHAPE, decode, encode, intersect
from stepwell.core.value import same

Selector = Callable[[Any], Any]

T: dict[str, Any] = {
    "messages": [{"id": f"msg-{n}", "processed": False} for n in (1, 2, 3, 4)],
    "status": "idle",
    "profile": {"name": "dan", "tags": {}},
}


def read_by(selector: Selector, state: object = T) -> set[Path]:
    """The paths that a selector reads; the state does not change."""
    before = copy.deepcopy(state)
    _, paths = track_reads(state, selector)
    assert same(state, before)
    assert len(set(paths)) == len(paths)
    return set(paths)


def wakes(selector: Selector, updater: Callable[[Any], object], state: Any = T) -> bool:
    """Whether what an updater changes meets what a selector read."""

    def quietly(draft: Any) -> None:
        updater(draft)

    return intersect(track_reads(state, selector)[1], apply(state, quietly).changed_paths)


class Item(BaseModel):
    id: int = 0
    status: str = "new"
    tags: list[str] = []


class Owner(BaseModel):
    name: str = "ann"
    born: dt.date = dt.date(2000, 1, 1)

    @property
    def loud(self) -> str:
        return self.name.upper()

    @functools.cached_property
    def length(self) -> int:
        return len(self.name)

    def is_named(self, name: str) -> bool:
        return self.name == name

    def rename(self) -> None:
        self.name = "other"


class Doc(BaseModel):
    n: int = 0
    items: list[Item] = []
    by: dict[str, Item] = {}
    owner: Owner | None = None
    numbers: set[int] = {1, 2}
    words: frozenset[str] = frozenset("ab")
    pair: tuple[Item, int] = (Item(), 1)
    price: Decimal = Decimal("1.5")


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0
    _secret: int = PrivateAttr(7)


class Names(RootModel[list[str]]):
    pass


class Count(RootModel[int]):
    pass


@dataclasses.dataclass
class Basket:
    owner: str
    skus: list[str] = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.seal = len(self.skus)

    @property
    def first(self) -> str:
        return self.skus[0]


@dataclasses.dataclass(slots=True, frozen=True)
class Slim:
    a: int
    inner: list[int] = dataclasses.field(default_factory=list)


class Spot(NamedTuple):
    name: str
    seen: list[int]


DOC: Any = Doc(items=[Item(id=at) for at in range(3)], by={"a": Item(id=9)}, owner=Owner())


# --- what is a read of what -------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        (lambda s: s["status"], {("status",)}),
        (lambda s: s["messages"][0]["id"], {("messages", 0, "id")}),
        (lambda s: s["messages"][-1]["id"], {("messages", SHAPE), ("messages", 3, "id")}),
        (lambda s: s["messages"][9:] and None, {("messages", SHAPE)}),
        (lambda s: s["profile"]["name"] == "dan", {("profile", "name")}),
        (lambda s: s.get("b"), {("b",)}),
        (lambda s: "b" in s, {("b",)}),
        (lambda s: s.get("b", {}).get("c"), {("b",)}),
        (lambda s: len(s) > 9, {(SHAPE,)}),
        (lambda s: bool(s) and None, {(SHAPE,)}),
        (lambda s: bool(s["messages"]) and None, {("messages", SHAPE)}),
        (lambda s: [*s] and None, {(SHAPE,)}),
        (lambda s: [*s.keys()] and None, {(SHAPE,)}),
        (lambda s: s["messages"] is None, {("messages", SHAPE)}),
        (lambda s: isinstance(s["profile"], list), {("profile", SHAPE)}),
        (lambda s: s["messages"] == 5, {("messages",)}),
        (lambda s: s["messages"].index(3) if s.get("x") else None, {("x",)}),
        (lambda s: 7 in [m["n"] for m in s["messages"] if "n" in m], {("messages", SHAPE)}
         | {("messages", at, "n") for at in range(4)}),
        (lambda s: next((m for m in s["messages"] if m["id"] == "msg-2"), None) is None,
         {("messages", 0, "id"), ("messages", 1, "id")}),
        (lambda s: s["messages"] or None, {("messages",)}),
        (lambda s: s["messages"][1], {("messages", 1)}),
        (lambda s: s, {()}),
        (lambda s: None, {()}),
        (lambda s: repr(s["profile"]) and None, {("profile",)}),
        (lambda s: copy.copy(s["profile"]) and None, {("profile",)}),
        (lambda s: copy.deepcopy(s)["status"], {()}),
    ],
)  # fmt: skip
def test_a_read_of_plain_containers(selector: Selector, paths: set[Path]) -> None:
    assert read_by(selector) == paths


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        (lambda s: s.n, {("n",)}),
        (lambda s: s.owner.name, {("owner", "name")}),
        (lambda s: s.owner is None, {("owner", SHAPE)}),
        (lambda s: isinstance(s.owner, Item), {("owner", SHAPE)}),
        (lambda s: s.owner.loud, {("owner", "name")}),
        (lambda s: s.owner.length, {("owner", "name")}),
        (lambda s: s.owner.is_named("x"), {("owner", "name")}),
        (lambda s: s.owner.born.year, {("owner", "born")}),
        (lambda s: s.by["a"].id, {("by", "a", "id")}),
        (lambda s: 3 in s.numbers, {("numbers",)}),
        (lambda s: "c" in s.words, {("words",)}),
        (lambda s: s.price, {("price",)}),
        (lambda s: s.model_dump() and None, {()}),
        (lambda s: s.model_copy() and None, {()}),
        (lambda s: s.owner.model_dump_json(), {("owner",)}),
        (lambda s: getattr(s.owner, "zz", None), {("owner", SHAPE)}),
        (lambda s: vars(s.owner)["name"], {("owner", "name")}),
        (lambda s: s.pair[0].status, {("pair", SHAPE), ("pair", 1), ("pair", 0, "status")}),
        (lambda s: any(i.status == "x" for i in s.items),
         {("items", SHAPE), ("items", 0, "status"), ("items", 1, "status"), ("items", 2, "status")}),
        (lambda s: [i.status for i in s.items if i.id == 1] and None,
         {("items", SHAPE), ("items", 1, "status")} | {("items", n, "id") for n in range(3)}),
    ],
)  # fmt: skip
def test_a_read_of_models(selector: Selector, paths: set[Path]) -> None:
    assert read_by(selector, DOC) == paths


def test_reads_of_dataclasses_root_models_extras_and_tuples() -> None:
    basket = Basket("ann", ["a", "b"])
    assert read_by(lambda s: s.first, basket) == {("skus", 0)}
    assert read_by(lambda s: s.seal == 2, basket) == {()}
    assert read_by(lambda s: dataclasses.replace(s, owner="b").skus[0], basket) == {("skus", 0), ("skus", SHAPE)}
    assert track_reads(basket, dataclasses.asdict)[0] == dataclasses.asdict(basket)
    assert read_by(lambda s: s.a + s.inner[0], Slim(1, [2])) == {("a",), ("inner", 0)}
    assert read_by(lambda s: s.root[1], Names(["x", "y"])) == {(1,)}
    assert read_by(lambda s: s["c"].root, {"c": Count(3)}) == {("c",)}
    wide = Wide.model_validate({"n": 1, "more": [1, 2]})
    assert read_by(lambda s: s.more[0], wide) == {("more", 0)}
    assert read_by(lambda s: getattr(s, "less", None), wide) == {("less",)}
    assert read_by(lambda s: s._secret, wide) == {()}
    assert read_by(lambda s: s["at"].name, {"at": Spot("home", [1])}) >= {("at", 0)}
    assert track_reads({"at": Spot("home", [1])}, lambda s: s["at"])[0] == Spot("home", [1])


def test_keys_that_are_not_text_have_the_path_of_their_text() -> None:
    state = {1: {"x": 1}, 2: {"x": 2}}
    assert read_by(lambda s: s[1]["x"], state) == {("1", "x")}
    assert read_by(lambda s: s[True]["x"], state) == {("1", "x")}
    assert wakes(lambda s: s.get(1.0, {}).get("x"), lambda d: d[1].update(x=5), state)
    assert wakes(lambda s: s.get(3.0), lambda d: d.update({3: {}}), state)


def test_a_part_is_one_object_however_it_is_reached() -> None:
    assert track_reads(DOC, lambda s: s.items[1] is s.items[1] is [*s.items][1])[0]
    assert track_reads(DOC, lambda s: [i.id for i in s.items if i is not s.items[0]])[0] == [1, 2]
    assert track_reads({"r": Names(["x"])}, lambda s: (s["r"].root is s["r"].root, s["r"].root == ["x"]))[0][1]


def test_an_index_or_key_that_is_not_there_is_a_read_of_its_place() -> None:
    def second(state: Any) -> Any:
        try:
            return state["n"] and state["a"][1]
        except IndexError:
            return None

    def last(state: Any) -> Any:
        try:
            return state["a"][-1]
        except IndexError:
            return None

    state = {"n": 1, "a": [1]}
    assert read_by(second, state) == {("n",), ("a", 1)}
    assert wakes(second, lambda d: d["a"].append(2), state)
    assert wakes(last, lambda d: d["a"].append(2), {"a": []})
    assert wakes(last, lambda d: d["a"].append(2), {"a": [1]})
    assert read_by(lambda s: s["n"] == s.get("x"), state) == {("n",), ("x",)}


# --- cases of waking --------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "updater"),
    [
        pytest.param(lambda s: s["messages"], lambda d: d["messages"][3].update(processed=True), id="S88-whole"),
        pytest.param(lambda s: s["status"], lambda d: d.update(status="x"), id="S88-own"),
        pytest.param(lambda s: s["profile"]["name"], lambda d: d.update(profile={"name": "dan"}), id="S88-ancestor"),
        pytest.param(lambda s: s["profile"]["name"], lambda d: d["profile"].update(name="x"), id="S89"),
        pytest.param(
            lambda s: s["messages"][0]["processed"], lambda d: d["messages"].__setitem__(0, {}), id="S90-replaced"
        ),
        pytest.param(lambda s: s.get("b"), lambda d: d.update(b=1), id="S91-get"),
        pytest.param(lambda s: "b" in s, lambda d: d.update(b=1), id="S91-in"),
        pytest.param(lambda s: len(s) >= 9, lambda d: d.update(b=1), id="S91-len"),
        pytest.param(lambda s: [*s] and None, lambda d: d.update(b=1), id="S92-list"),
        pytest.param(lambda s: next((k for k in s if k == "b"), None), lambda d: d.update(b=1), id="S92-for"),
        pytest.param(lambda s: "b" in [*s.keys()], lambda d: d.update(b=1), id="S92-keys"),
        pytest.param(lambda s: dict(s.items()).get("b"), lambda d: d.update(b=1), id="S92-items"),
        pytest.param(lambda s: {**s}.get("b"), lambda d: d.update(b=1), id="S92-spread"),
        pytest.param(lambda s: {**s["profile"]}.get("b"), lambda d: d["profile"].update(b=1), id="S92-nested"),
        pytest.param(lambda s: len(s["messages"]) > 9, lambda d: d["messages"].append({}), id="S94-appended"),
        pytest.param(lambda s: len(s["messages"]) > 9, lambda d: d["messages"].pop(), id="S94-removed"),
    ],
)
def test_s88_to_s94_what_was_read_wakes(selector: Selector, updater: Callable[[Any], object]) -> None:
    assert wakes(selector, updater)


@pytest.mark.parametrize(
    ("selector", "updater"),
    [
        pytest.param(lambda s: s["messages"], lambda d: d.update(status="x"), id="S88-sibling-of-a-list"),
        pytest.param(lambda s: s["status"], lambda d: d["profile"].update(name="x"), id="S88-sibling-of-text"),
        pytest.param(lambda s: s["profile"]["name"], lambda d: d["profile"]["tags"].update(a=1), id="S89"),
        pytest.param(
            lambda s: s["messages"][0]["processed"], lambda d: d["messages"][1].update(processed=True), id="S90-another"
        ),
        pytest.param(lambda s: s["messages"][0]["processed"], lambda d: d["messages"][0].update(id="x"), id="S90-id"),
        pytest.param(
            lambda s: len(s["messages"]) > 9, lambda d: d["messages"][0].update(processed=True), id="S94-an-element"
        ),
        pytest.param(lambda s: s["messages"][0]["id"] and None, lambda d: d["messages"].append({}), id="appended"),
    ],
)
def test_s88_to_s94_what_was_not_read_wakes_nobody(selector: Selector, updater: Callable[[Any], object]) -> None:
    assert not wakes(selector, updater)


def test_s93_the_truth_of_a_container_is_a_read_of_its_length() -> None:
    def first(state: Any) -> Any:
        return state["messages"][0] if state["messages"] else None

    assert wakes(first, lambda d: d["messages"].append("x"), {"messages": []})
    assert wakes(lambda s: bool(s) and None, lambda d: d.update(a=1), {})
    assert wakes(lambda s: bool(s) and None, lambda d: d.append(1), [])


class Match(BaseModel):
    kind: str = "a"
    size: int = 1


def _matches(state: Any) -> Any:
    match state:
        case Match(kind="b", size=size):
            return size
        case {"messages": [{"id": "m"}, *_]}:
            return True
        case [1, 2, last]:
            return last
        case _:
            return None


@pytest.mark.parametrize(
    ("selector", "updater", "state"),
    [
        pytest.param(lambda s: s == {"a": 1}, lambda d: d["a"].append(2), {"a": [1]}, id="S146-equality"),
        pytest.param(lambda s: s == Doc(), lambda d: setattr(d.items[0], "id", 7), DOC, id="S146-equal-models"),
        pytest.param(lambda s: s.model_dump()["n"] > 5, lambda d: setattr(d, "n", 7), DOC, id="S146-dump"),
        pytest.param(lambda s: dict(s)["n"] > 5, lambda d: setattr(d, "n", 7), DOC, id="S146-dict-of-a-model"),
        pytest.param(lambda s: dict(s)["a"][0] > 5, lambda d: d["a"].insert(0, 9), {"a": [1]}, id="S146-dict"),
        pytest.param(lambda s: copy.copy(s)["a"] == [5], lambda d: d["a"].append(2), {"a": [1]}, id="S146-copy"),
        pytest.param(lambda s: copy.copy(s).n > 5, lambda d: setattr(d, "n", 7), DOC, id="S146-copy-of-a-model"),
        pytest.param(_matches, lambda d: setattr(d, "kind", "b"), Match(), id="S146-match-class"),
        pytest.param(_matches, lambda d: d["messages"].append({"id": "m"}), {"messages": []}, id="S146-match-mapping"),
        pytest.param(_matches, lambda d: d.append(3), [1, 2], id="S146-match-sequence"),
    ],
)
def test_s146_reads_as_a_whole(selector: Selector, updater: Callable[[Any], object], state: Any) -> None:
    assert wakes(selector, updater, state)


def test_match_of_a_view_finds_what_match_of_the_state_finds() -> None:
    for state in (Match(kind="b", size=4), {"messages": [{"id": "m"}, 2]}, [1, 2, 3], [1, 2], {}):
        assert track_reads(state, _matches)[0] == _matches(state)


# --- selectors change nothing -----------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.__setitem__("a", 1),
        lambda s: s.__delitem__("status"),
        lambda s: s["messages"].append(1),
        lambda s: s["messages"].sort(),
        lambda s: s["messages"].__iadd__([1]),
        lambda s: s["messages"].pop(),
        lambda s: s["messages"].clear(),
        lambda s: s["messages"].reverse(),
        lambda s: s["messages"].__delitem__(slice(0, 1)),
        lambda s: s["messages"][0].update(id="x"),
        lambda s: s["messages"][0].pop("id"),
        lambda s: s["profile"].setdefault("zz", 1),
        lambda s: s["profile"].setdefault("name", 1),
        lambda s: s["profile"].popitem(),
        lambda s: s["profile"].__ior__({"a": 1}),
        lambda s: [m.clear() for m in s["messages"]],
    ],
)
def test_s58_a_selector_that_changes_plain_containers_raises(change: Selector) -> None:
    before = copy.deepcopy(T)
    with pytest.raises(TypeError, match="selectors must not change state"):
        track_reads(T, change)
    assert same(T, before)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: setattr(s, "n", 1),
        lambda s: setattr(s, "unknown", 1),
        lambda s: delattr(s, "n"),
        lambda s: object.__setattr__(s, "n", 1),
        lambda s: s.__dict__.update(n=1),
        lambda s: s.__dict__.pop("n"),
        lambda s: s.owner.rename(),
        lambda s: s.items[0].tags.append("t"),
        lambda s: setattr(s.pair[0], "id", 4),
        lambda s: s.numbers.add(5),
        lambda s: s.numbers.__iand__({5}),
        lambda s: s.numbers.discard(1),
        lambda s: s.numbers.update([7]),
        lambda s: s.by.__setitem__("a", 1),
    ],
)
def test_s58_a_selector_that_changes_models_raises(change: Selector) -> None:
    before = copy.deepcopy(DOC)
    with pytest.raises(TypeError, match="selectors must not change state"):
        track_reads(DOC, change)
    assert same(DOC, before)
    assert "length" not in vars(DOC.owner)


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (Basket("ann"), lambda s: setattr(s, "owner", "bob")),
        (Basket("ann"), lambda s: setattr(s, "other", "bob")),
        (Slim(1), lambda s: object.__setattr__(s, "a", 2)),
        (Slim(1), lambda s: s.inner.append(2)),
        (Wide.model_validate({"m": [1]}), lambda s: s.m.append(2)),
        (Wide.model_validate({"m": [1]}), lambda s: setattr(s, "m", 2)),
        (Wide.model_validate({"m": [1]}), lambda s: s.model_extra.update(m=2)),
        (Wide(), lambda s: setattr(s, "_secret", 2)),
        (Names(["a"]), lambda s: s.root.append("b")),
        (Names(["a"]), lambda s: setattr(s, "root", [])),
    ],
)
def test_s58_a_selector_that_changes_other_records_raises(state: Any, change: Selector) -> None:
    before = copy.deepcopy(state)
    with pytest.raises(TypeError, match="selectors must not change state"):
        track_reads(state, change)
    assert same(state, before)


def test_s145_a_cached_property_is_computed_and_kept_nowhere() -> None:
    assert track_reads(DOC, lambda s: (s.owner.length, s.owner.length))[0] == (3, 3)
    assert "length" not in vars(DOC.owner)


def test_copies_of_a_view_are_plain_and_apart() -> None:
    def selector(state: Any) -> bool:
        for made in (copy.copy(state), copy.deepcopy(state), state.model_copy(deep=True)):
            assert type(made) is Doc
            made.items[0].tags.append("mine")
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(state)
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(state.items)
        return True

    before = copy.deepcopy(DOC)
    assert track_reads(DOC, selector)[0]
    assert same(DOC, before)


# --- what selectors may be --------------------------------------------------------


async def _async(state: Any) -> Any:
    return state["status"]


def _generator(state: Any) -> Any:
    yield state["status"]


async def _async_generator(state: Any) -> Any:
    yield state["status"]


@pytest.mark.parametrize("selector", [_async, _generator, _async_generator, lambda s: _async(s)])
def test_a_selector_is_an_ordinary_function(selector: Selector) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="must be an ordinary function"):
            track_reads(T, selector)
        gc.collect()


@pytest.mark.parametrize(
    "selector", [lambda s: iter(s["messages"]), lambda s: map(len, s["messages"]), lambda s: [reversed(s["messages"])]]
)
def test_a_selector_gives_no_iterator(selector: Selector) -> None:
    with pytest.raises(TypeError, match="not an iterator"):
        track_reads(T, selector)


def test_what_a_selector_raises_is_passed_on_and_its_views_are_dead() -> None:
    kept: list[Any] = []

    def selector(state: Any) -> None:
        kept.append(state["messages"])
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        track_reads(T, selector)
    with pytest.raises(DraftEnded):
        len(kept[0])


def test_s59_a_view_that_was_kept_is_dead() -> None:
    kept: list[Any] = []

    def selector(state: Any) -> bool:
        elements = [*state.items]
        kept.extend([state, state.items, state.by, state.numbers, state.pair, elements[0], state.owner])
        kept.extend([state.by.items(), vars(state.owner), iter(state.items)])
        return True

    track_reads(DOC, selector)
    state, items, by, numbers, pair, element, owner, view, fields, iterator = kept
    uses: list[Callable[[], object]] = [
        lambda: state.n,
        lambda: state.items,
        lambda: state == state,
        lambda: items[0],
        lambda: len(items),
        lambda: [*items],
        lambda: items == [],
        lambda: repr(items),
        lambda: copy.copy(items),
        lambda: by["a"],
        lambda: by.get("a"),
        lambda: "a" in by,
        lambda: [*by],
        lambda: 1 in numbers,
        lambda: numbers | {1},
        lambda: pair[0].id,
        lambda: element.id,
        lambda: owner.loud,
        lambda: owner.model_dump(),
        lambda: [*view],
        lambda: fields["name"],
        lambda: next(iterator),
    ]
    for use in uses:
        with pytest.raises(DraftEnded, match="kept after its selector ended"):
            use()
    with pytest.raises(TypeError, match="must not change"):
        items.append(1)


# --- what a selector returns ------------------------------------------------------


def plain_all_through(value: object) -> bool:
    """Whether there is no view in a value: every class is what it says it is."""
    if type(value) is not value.__class__:
        return False
    if isinstance(value, dict):
        return all(plain_all_through(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return all(map(plain_all_through, value))
    if isinstance(value, BaseModel):
        return all(map(plain_all_through, value.__dict__.values()))
    return True


class Report(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    found: Item
    rest: list[Item] = []


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize(
    "selector",
    [
        lambda s: s,
        lambda s: s.items,
        lambda s: s.items[1],
        lambda s: [i for i in s.items if i.id],
        lambda s: {i.id: i for i in s.items},
        lambda s: (s.by, s.numbers, {"deep": [(s.pair, s.owner)]}),
        lambda s: {"words": s.words, "n": s.n},
        lambda s: Report(found=s.items[0], rest=s.items[1:]),
        lambda s: defaultdict(list, {i.status: [i] for i in s.items}),
        lambda s: deque([s.items[0]]),
        lambda s: Counter(i.status for i in s.items),
        lambda s: Spot("x", s.items),
        lambda s: s.items[0].tags,
        lambda s: vars(s.owner),
        lambda s: s.pair,
        lambda s: [],
        lambda s: s.owner.born,
    ],
)
def test_what_is_returned_is_plain_private_and_equal(selector: Selector) -> None:
    before = copy.deepcopy(DOC)
    found, _ = track_reads(DOC, selector)
    assert found == selector(copy.deepcopy(DOC))
    assert type(found) is type(selector(copy.deepcopy(DOC)))
    assert plain_all_through(found)
    assert same(DOC, before)


def test_what_is_returned_shares_nothing_with_the_state() -> None:
    state: Any = Doc(items=[Item(id=1, tags=["t"])])
    found, paths = track_reads(state, lambda s: {"found": [s.items[0]], "tags": s.items[0].tags})
    found["found"][0].tags.append("mine")
    found["tags"].append("mine")
    assert state.items[0].tags == ["t"]
    assert paths == (("items", 0),)


def test_views_within_objects_of_other_classes_become_plain() -> None:
    held: Any = track_reads(DOC, lambda s: Holder([s.items[0]]))[0].held
    assert type(held[0]) is Item
    keys, values, items = track_reads(T, lambda s: (s.keys(), s["profile"].values(), s["profile"].items()))[0]
    assert ([*keys], [*values], dict(items)) == ([*T], ["dan", {}], T["profile"])


class Tag(BaseModel, frozen=True):
    name: str
    rank: int = 0


@dataclasses.dataclass(eq=False)
class Node:
    x: int
    y: int = 0


class Titled(dict[Any, Any]):
    title: Any = None


class Stack(list[Any]):
    pass


def _titled(state: Any) -> Any:
    made = Titled({state["tags"][0]: 1})
    made.title = state["tags"][1]
    return made


@pytest.mark.parametrize(
    "selector",
    [
        lambda s: {s["tags"][0]: 1},
        lambda s: Counter(s["tags"]),
        lambda s: defaultdict(int, {s["tags"][0]: 3}),
        lambda s: OrderedDict([(s["tags"][0], s["tags"][1])]),
        lambda s: MappingProxyType({s["tags"][0]: s["tags"][1]}),
        lambda s: ChainMap({s["tags"][0]: 1}),
        _titled,
        lambda s: Stack([{s["tags"][0]: 1}]),
        lambda s: {s["tags"][0]},
        lambda s: frozenset([s["tags"][0], (1, s["tags"][1])]),
        lambda s: {(1, (s["tags"][0], 2)): 3},
        lambda s: {frozenset([s["tags"][0]]): 3},
        lambda s: Counter([(1, s["tags"][0])]).keys(),
        lambda s: Counter(s["tags"]).items(),
        lambda s: Counter(s["tags"]).most_common(),
        lambda s: deque([{s["tags"][0]: 1}]),
    ],
)
def test_views_as_keys_are_copied_and_read_as_wholes(selector: Selector) -> None:
    state = {"tags": [Tag(name="a"), Tag(name="b")]}
    found, paths = track_reads(state, selector)
    expected = selector(state)
    assert type(found) is type(expected)
    assert found == expected
    assert "View" not in "".join(type(part).__name__ for part in parts_within(found))
    assert ("tags", 0) in paths
    assert take(state, selector, lambda d, f: None).selected == expected


def parts_within(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [value, *[part for pair in value.items() for one in pair for part in parts_within(one)]]
    if isinstance(value, list | tuple | set | frozenset | deque | KeysView | ItemsView):
        return [value, *[part for one in value for part in parts_within(one)]]
    assert type(value) is value.__class__
    return [value, *[part for one in getattr(value, "__dict__", {}).values() for part in parts_within(one)]]


def test_a_change_in_what_is_a_key_of_the_result_wakes() -> None:
    state = {"a": [Node(1), Node(2)]}
    selector: Selector = lambda s: defaultdict(int, {n: n.x for n in s["a"] if n.x == 1})  # noqa: E731
    assert wakes(selector, lambda d: setattr(d["a"][0], "y", 5), state)
    assert not wakes(selector, lambda d: setattr(d["a"][1], "y", 5), state)


def test_a_result_that_holds_itself_is_refused() -> None:
    def selector(state: Any) -> Any:
        ring: list[Any] = [state["status"]]
        ring.append(ring)
        return ring

    with pytest.raises(ValueError, match="hold itself"):
        track_reads(T, selector)


@pytest.mark.parametrize("state", [None, 5, "text", 2.5, True])
def test_a_state_that_is_an_atom_is_read_as_a_whole(state: object) -> None:
    assert track_reads(state, lambda s: s) == (state, ((),))


# --- scans --------------------------------------------------------------------------

MANY: Any = Doc(items=[Item(id=at) for at in range(3000)], by={f"k{at}": Item(id=at) for at in range(3000)})


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        (lambda s: next((i for i in s.items if i.status == "x"), None), {("items", EACH, "status"), ("items", SHAPE)}),
        (lambda s: [i for i in s.items if i.status == "x"] or None, {("items", EACH, "status"), ("items", SHAPE)}),
        (lambda s: max(s.items, key=lambda i: i.id) and None, {("items", EACH, "id"), ("items", SHAPE)}),
        (lambda s: any(i.id < 0 for i in s.by.values()), {("by", EACH, "id"), ("by", SHAPE)}),
        (lambda s: any(k == "x" or i.id < 0 for k, i in s.by.items()), {("by", EACH, "id"), ("by", SHAPE)}),
        (lambda s: any(i.id < 0 for i in reversed(s.items)), {("items", EACH, "id"), ("items", SHAPE)}),
        (lambda s: any(s.items[n].id < 0 for n in range(len(s.items))), {("items", EACH, "id"), ("items", SHAPE)}),
        (lambda s: any(s.by[k].id < 0 for k in s.by), {("by", EACH, "id"), ("by", SHAPE)}),
        (lambda s: any(i is None for i in s.items), {("items", EACH, SHAPE), ("items", SHAPE)}),
        (lambda s: any("t" in i.tags for i in s.items), {("items", EACH, "tags", SHAPE), ("items", SHAPE)}),
        (lambda s: sum(i.id for i in s.items if i.id % 7 == 0 and i.status == "new") < 0,
         {("items", EACH, "id"), ("items", EACH, "status"), ("items", SHAPE)}),
    ],
)  # fmt: skip
def test_a_scan_has_few_paths(selector: Selector, paths: set[Path]) -> None:
    assert read_by(selector, MANY) == paths


def test_a_scan_wakes_for_what_it_looked_at_in_any_element_and_for_nothing_else() -> None:
    def scan(state: Any) -> Any:
        return next((item for item in state.items if item.status == "x"), None)

    def set_(at: int, name: str, value: object, draft: Any) -> None:
        setattr(draft.items[at], name, value)

    for at in (0, 63, 64, 65, 2999):
        assert wakes(scan, partial(set_, at, "status", "y"), MANY)
        assert wakes(scan, lambda d: d.items.__setitem__(at, Item()), MANY)  # noqa: B023  # called at once
        assert not wakes(scan, partial(set_, at, "id", -1), MANY)
        assert not wakes(scan, partial(set_, at, "tags", ["t"]), MANY)
    assert wakes(scan, lambda d: d.items.append(Item()), MANY)
    assert wakes(scan, lambda d: d.items.pop(), MANY)


def test_a_hit_before_the_fold_is_precise_and_one_after_it_names_the_element() -> None:
    def find(number: int) -> Paths:
        return track_reads(MANY, lambda s: next(item for item in s.items if item.id == number))[1]

    assert find(1) == (("items", 0, "id"), ("items", 1))
    assert set(find(2000)) == {("items", EACH, "id"), ("items", 2000)}
    numbers = list(range(500))
    assert track_reads(numbers, lambda s: next(n for n in s if n == 2))[1] == ((0,), (1,), (2,))
    assert set(track_reads(numbers, lambda s: next((n for n in s if n == -1), None))[1]) == {(EACH,), (SHAPE,)}


def test_elements_of_a_folded_scan_may_be_kept_and_are_what_they_were() -> None:
    def selector(state: Any) -> Any:
        kept = [item for item in state.items if item.id % 3 == 0]
        halves = list(itertools.chain(*zip(state.items, state.items, strict=True)))
        assert [item.id for item in halves[::2]] == [item.id for item in halves[1::2]] == list(range(3000))
        tags = [item.tags for item in state.items]
        assert len(tags) == 3000
        return [item.id for item in kept] == list(range(0, 3000, 3)) and kept[700]

    assert track_reads(MANY, selector)[0].id == 2100


LONE = {
    "a": [Node(at) for at in range(100)],
    "g": [[Node(at) for at in range(10)]],
    "b": {str(n): Node(n) for n in range(70)},
}


@pytest.mark.parametrize(
    "selector",
    [
        lambda s: s["a"].index(max(s["a"], key=lambda n: n.x)),
        lambda s: max(s["a"], key=lambda n: n.x) in s["a"],
        lambda s: s["a"][99] == list(s["a"])[99],
        lambda s: s["a"][99] != list(s["a"])[99],
        lambda s: s["a"][98] == list(s["a"])[99],
        lambda s: len({*s["a"]} | {*s["a"]}),
        lambda s: s["a"].count(s["a"][-1]),
        lambda s: [n.x for n in s["a"] if n not in sorted(s["a"], key=lambda n: -n.x)[:90]],
        lambda s: [[n.x for n in g if n not in g[:9]] for g in s["g"]],
        lambda s: {n: n.x for n in s["a"]}[s["a"][80]],
        lambda s: s["b"]["69"] in s["b"].values(),
        lambda s: ("69", s["b"]["69"]) in [*s["b"].items()],
        lambda s: s["g"][0][9] in s["a"],
        lambda s: s["a"][0] == 0 or s["a"][0] == Node(0),
    ],
)
def test_equality_that_is_identity_holds_for_a_part_however_often_it_is_met(selector: Selector) -> None:
    assert track_reads(LONE, selector)[0] == selector(LONE)


def test_a_write_that_puts_another_part_in_place_of_one_that_was_compared_wakes() -> None:
    selector: Selector = lambda s: s["a"][70] in [n for n in s["a"] if n.x > 50]  # noqa: E731
    assert wakes(selector, lambda d: d["a"].__setitem__(70, Node(70)), LONE)
    assert wakes(selector, lambda d: d["a"].__delitem__(3), LONE)
    assert not wakes(selector, lambda d: setattr(d["a"][80], "y", 5), LONE)


def test_many_results_of_a_scan_are_taken_for_each_element() -> None:
    found, paths = track_reads(MANY, lambda s: [item for item in s.items if item.id >= 100])
    assert len(found) == 2900
    assert len(paths) <= 4
    assert wakes(
        lambda s: [item for item in s.items if item.id >= 100], lambda d: setattr(d.items[2500], "status", 1), MANY
    )


def test_scans_within_scans_stay_small() -> None:
    grid = [[[x, y, 0] for y in range(90)] for x in range(90)]
    paths = track_reads(grid, lambda s: any(cell[2] for row in s for cell in row))[1]
    assert set(paths) == {(SHAPE,), (EACH, SHAPE), (EACH, EACH, 2)}


def test_rare_reads_of_many_elements_fold_as_well() -> None:
    paths = track_reads(MANY, lambda s: any(i.id % 5 == 0 and i.id < 60 and i.status == "x" for i in s.items))[1]
    assert len(paths) <= 4
    few = track_reads(MANY, lambda s: any(i.id in (3, 9) and i.status == "x" for i in s.items))[1]
    assert set(few) == {("items", SHAPE), ("items", EACH, "id"), ("items", 3, "status"), ("items", 9, "status")}


class Mixed(BaseModel):
    id: int = 0
    x: int | Owner = 0


@pytest.mark.parametrize("apart", [64, 70])
def test_a_part_that_is_an_atom_in_one_element_and_a_record_in_another_is_read_as_a_whole(apart: int) -> None:
    records = [at < apart or at > 80 for at in range(200)]  # and so in each of the 64 that are told apart
    models = [Mixed(id=at, x=Owner() if is_record else at) for at, is_record in enumerate(records)]
    plain = [{"id": at, "x": {"name": "ann"} if is_record else at} for at, is_record in enumerate(records)]

    def by_name(item: Any) -> bool:
        return (item.x if isinstance(item.x, int) else item.x.name) == "x"

    def by_key(item: Any) -> bool:
        return (item["x"] if isinstance(item["x"], int) else item["x"]["name"]) == "x"

    only = {("items", EACH, "x"), ("items", SHAPE)}
    assert read_by(lambda s: any(by_name(i) for i in s["items"]), {"items": models}) == only
    assert read_by(lambda s: any(by_key(i) for i in s["items"]), {"items": plain}) == only
    both = {*only, ("items", EACH, "id")}
    assert read_by(lambda s: any(i.id < 0 or by_name(i) for i in s["items"]), {"items": models}) == both
    assert read_by(lambda s: any(i["id"] < 0 or by_key(i) for i in s["items"]), {"items": plain}) == both


def test_a_scan_of_100_000_elements_takes_less_than_a_megabyte() -> None:
    state = {"items": [{"id": at, "done": False} for at in range(100_000)]}
    gc.collect()
    tracemalloc.start()
    try:
        paths = track_reads(state, lambda s: next((item for item in s["items"] if item["done"]), None))[1]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert set(paths) == {("items", SHAPE), ("items", EACH, "done")}
    assert peak < 1_000_000


def test_an_index_or_a_key_may_be_anything_that_python_takes() -> None:
    assert read_by(lambda s: s["messages"][True]["id"]) == {("messages", 1, "id")}
    assert encode(tuple(read_by(lambda s: s["messages"][True]["id"]))) == b'[["messages",1,"id"]]'
    paths = track_reads(T, lambda s: (s.get("\ud800"), "\udfff" in s["profile"]))[1]
    assert decode(encode(paths)) == paths == (("\ud800",), ("profile", "\udfff"))


# --- what other code does with a view ---------------------------------------------


class Refused(Exception):
    def __init__(self, what: Any) -> None:
        super().__init__("refused")
        self.what = [what]


def _raise(error: BaseException) -> Any:
    raise error


def _while_handling(view: Any) -> Any:
    try:
        raise KeyError(view)
    except KeyError as error:
        raise RuntimeError("while looking") from error


def test_an_error_of_a_callback_keeps_its_text() -> None:
    state = {"a": [1], "tag": Tag(name="t")}
    token = object()

    def by(raising: Callable[[Any], Any]) -> list[Any]:
        errors: list[Any] = []
        for use in (
            lambda: track_reads(state, raising),
            lambda: apply(state, raising),
            lambda: take(state, raising, lambda d, _: None),
            lambda: take(state, lambda s: True, lambda d, _: raising(d)),
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011  # of any class
                use()
            errors.append(caught.value)
        return errors

    assert [str(error) for error in by(lambda s: _raise(RuntimeError(s["a"])))] == ["[1]"] * 4
    assert [str(error) for error in by(lambda s: _raise(KeyError(s["tag"])))] == [repr(state["tag"])] * 4
    assert [error.what for error in by(lambda s: _raise(Refused({"in": (s["a"], 2)})))] == [[{"in": ([1], 2)}]] * 4
    assert [str(error.__cause__) for error in by(lambda s: _while_handling(s["a"]))] == ["[1]"] * 4
    groups = by(lambda s: _raise(ExceptionGroup("two", [ValueError(s["a"]), ValueError(1)])))
    assert [[str(one) for one in error.exceptions] for error in groups] == [["[1]", "1"]] * 4
    assert all(error.args[0] is token for error in by(lambda s: _raise(RuntimeError(token, s["a"]))))


@pytest.mark.parametrize(
    "selector",
    [
        lambda s: frozenset({1}) | s["s"],
        lambda s: frozenset({1, 2}) & s["s"],
        lambda s: frozenset({1, 2}) - s["s"],
        lambda s: frozenset({1, 2}) ^ s["s"],
        lambda s: {1} | s["s"],
        lambda s: {1, 2} & s["s"],
        lambda s: {1, 2} - s["s"],
        lambda s: {1, 2} ^ s["s"],
        lambda s: s["s"] | frozenset({1}),
        lambda s: s["s"] | s["s"],
        lambda s: {2: 1}.keys() & s["s"],
        lambda s: s["f"] | s["s"],
    ],
)
def test_a_set_joined_with_a_view_is_of_the_class_that_python_makes(selector: Selector) -> None:
    state = {"s": {2}, "f": frozenset({3})}
    expected = selector(state)
    joined: list[Any] = []

    def update(draft: Any) -> None:
        joined.append(selector(draft))

    apply(state, update)
    joined.append(track_reads(state, selector)[0])
    assert joined == [expected] * 2
    assert [type(one) for one in joined] == [type(expected)] * 2


class Case(BaseModel):
    tag: Tag
    tags: list[Tag] = []


DUMPED: dict[str, Any] = {"tag": Tag(name="t"), "tags": [Tag(name="u")], "n": {"k": [1]}, "s": {1}, "node": Node(1)}


@pytest.mark.parametrize(
    "dump",
    [
        lambda s: pydantic_core.to_json(s["tag"]),
        lambda s: pydantic_core.to_json(s["tags"]),
        lambda s: pydantic_core.to_json({"in": [s["tag"], s["n"], s["s"], s["node"]]}),
        lambda s: pydantic_core.to_jsonable_python(s),
        lambda s: TypeAdapter(object).dump_python(s["tags"]),
        lambda s: TypeAdapter(list[Tag]).dump_python(s["tags"], warnings=False),
        lambda s: TypeAdapter(list[Tag]).dump_json(s["tags"], warnings=False),
        lambda s: TypeAdapter(dict[str, list[int]]).dump_python(s["n"], warnings=False),
        lambda s: TypeAdapter(Node).dump_python(s["node"]),
        lambda s: s["tag"].model_dump(),
        lambda s: json.dumps(copy.deepcopy(s["n"])),
    ],
)
def test_pydantic_writes_a_view_or_a_draft_as_the_plain_value(dump: Selector) -> None:
    expected = dump(DUMPED)
    assert track_reads(DUMPED, dump)[0] == expected
    dumped: list[Any] = []
    apply(DUMPED, lambda d: dumped.append(copy.deepcopy(dump(d))))
    assert dumped == [expected]
    whole = track_reads(DUMPED, lambda s: dump(s) and None)[1]
    assert intersect(whole, [("tag", "rank"), ("tags", 0, "rank"), ("n", "k", 0), ("s",), ("node", "y")])


def test_pydantic_takes_a_view_of_a_model_where_it_takes_the_model() -> None:
    assert track_reads(DUMPED, lambda s: TypeAdapter(Tag).validate_python(s["tag"]))[0] == Tag(name="t")
    case, paths = track_reads(DUMPED, lambda s: Case(tag=s["tag"], tags=[*s["tags"]]))
    assert case == Case(tag=Tag(name="t"), tags=[Tag(name="u")])
    assert type(case.tag) is Tag
    assert intersect(paths, [("tag", "rank")])
    assert intersect(paths, [("tags", 0, "rank")])


@pytest.mark.parametrize(
    "dump",
    [
        lambda s: TypeAdapter(Tag).dump_python(s["tag"]),
        lambda s: Case(tag=s["tag"]).model_dump(),
        lambda s: json.dumps(s["n"]),
    ],
)
def test_what_insists_on_a_true_object_raises(dump: Selector) -> None:
    with pytest.raises(TypeError, match="serializ"):
        track_reads(DUMPED, dump)
    with pytest.raises(TypeError, match="serializ"):
        apply(DUMPED, dump)


class Visit(NamedTuple):
    n: int


class Noted(Visit):
    pass


def test_a_named_tuple_that_may_have_attributes_is_handed_out_as_another() -> None:
    state = {"t": Noted(1)}

    def mark(value: Any) -> None:
        value["t"].seen = True

    track_reads(state, mark)
    apply(state, mark)
    assert not vars(state["t"])
    assert type(track_reads(state, lambda s: s["t"])[0]) is Noted


# --- what it costs ----------------------------------------------------------------


class Loud(str):
    """Text that counts how often it is looked at by others of its kind."""

    hashed = 0

    def __hash__(self) -> int:
        Loud.hashed += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, str(other))


class Label(BaseModel, frozen=True):
    copied: ClassVar[list[int]] = []
    n: int

    def __hash__(self) -> int:
        Label.copied.append(self.n)
        return self.n


def test_a_look_at_a_set_copies_none_of_it() -> None:
    state: dict[str, Any] = {"s": {Label(n=1), Label(n=2)}, "n": {1, 2}}
    Label.copied.clear()
    assert track_reads(state, lambda s: (len(s["s"]), bool(s["s"]), 7 in s["s"], 1 in s["n"]))[0] == (
        2,
        True,
        False,
        True,
    )
    assert Label.copied == []
    assert track_reads(state, lambda s: Label(n=1) in s["s"] and None)[1] == (("s",),)
    assert track_reads(state, lambda s: [type(one) for one in s["s"]])[0] == [Label] * 2
    found: Any = track_reads(state, lambda s: [*s["s"]])[0]
    assert all(one is not kept for one in found for kept in state["s"])


class Shop(BaseModel):
    lines: list[Item]
    computed: ClassVar[list[str]] = []

    @functools.cached_property
    def by_id(self) -> dict[int, Item]:
        Shop.computed.append("by_id")
        return {line.id: line for line in self.lines}


class Chain(RootModel[Shop]):
    @functools.cached_property
    def by_id(self) -> int:
        return len(self.root.by_id)


def test_a_cached_property_is_computed_once_for_a_view_and_never_kept_for_a_draft() -> None:
    shop = Shop(lines=[Item(id=at) for at in range(100)])
    Shop.computed.clear()
    found, paths = track_reads(shop, lambda s: sum(s.by_id[at].id for at in range(100)))
    assert (found, Shop.computed) == (4950, ["by_id"])
    assert intersect(paths, [("lines", 99, "id")])
    assert "by_id" not in vars(shop)
    assert track_reads(Chain(shop), lambda s: (s.by_id, s.by_id, len(s.root.by_id)))[0] == (100, 100, 100)
    seen: list[int] = []

    def update(draft: Any) -> None:
        seen.append(len(draft.by_id))
        draft.lines.append(Item(id=100))
        seen.append(len(draft.by_id))

    apply(shop, update)
    assert seen == [100, 101]
    shops = [Shop(lines=[Item(id=at)]) for at in range(200)]
    assert track_reads(shops, lambda s: [[*one.by_id] for one in s])[0] == [[at] for at in range(200)]


class Key(enum.StrEnum):
    A = "a"
    Z = "z"


def test_a_key_that_is_text_of_another_class_is_looked_up_as_text() -> None:
    state = {"a": {"n": 1}, **{f"k{at}": {"n": at} for at in range(9)}}
    assert track_reads(state, lambda s: s[Key.A]["n"])[1] == (("a", "n"),)
    assert track_reads(state, lambda s: s.get(Key.Z))[1] == (("z",),)
    assert track_reads(state, lambda s: Key.Z in s)[1] == (("z",),)
    keyed: dict[Any, Any] = {Key.A: {"n": 1}}
    assert track_reads(keyed, lambda s: (s[Key.A]["n"], s["a"]["n"])) == ((1, 1), (("a", "n"),))
    assert take(keyed, lambda s: s[Key.A], lambda d, found: found.update(n=2)).selected == {"n": 2}
    assert apply(keyed, lambda d: d["a"].update(n=2)).state == {Key.A: {"n": 2}}
    assert [*apply(keyed, lambda d: d["a"].update(n=2)).state] == [Key.A]
    loud = {"a": 1}
    assert track_reads(loud, lambda s: s[Loud("a")])[0] == 1


def peak_of(selector: Selector, state: object) -> tuple[int, set[Path]]:
    gc.collect()
    tracemalloc.start()
    try:
        paths = track_reads(state, selector)[1]
        return tracemalloc.get_traced_memory()[1], set(paths)
    finally:
        tracemalloc.stop()


def test_a_grid_that_is_read_index_by_index_has_few_records() -> None:
    grid = [[0] * 300 for _ in range(300)]

    def selector(state: Any) -> Any:
        return next((1 for i in range(300) for j in range(300) if state[i][j] == 9), None)

    peak, paths = peak_of(selector, grid)
    assert peak < 4_000_000
    assert len(paths) < 50
    for i, j in ((0, 0), (5, 299), (13, 250), (14, 0), (16, 20), (299, 299)):
        assert wakes(selector, lambda d: d[i].__setitem__(j, 9), grid)  # noqa: B023  # called at once


def test_many_records_deep_down_fold_and_none_is_lost() -> None:
    state = {f"a{a}": {f"b{b}": {f"c{c}": {"x": 0, "y": 0} for c in range(20)} for b in range(20)} for a in range(40)}

    def selector(view: Any) -> Any:
        return next((1 for a in view for b in view[a] for c in view[a][b] if view[a][b][c]["x"] == 9), None)

    peak, paths = peak_of(selector, state)
    assert peak < 12_000_000
    for a, b, c in ((0, 0, 0), (5, 9, 9), (12, 3, 19), (20, 19, 0), (39, 19, 19)):
        assert intersect(paths, [(f"a{a}", f"b{b}", f"c{c}", "x")])
    assert not intersect(paths, [("a0", "b0", "c0", "y")])
    fields = [Row(id=at) for at in range(20_000)]
    by_index: Selector = lambda s: any(s[at].note.text == "x" or s[at].id < 0 for at in range(20_000))  # noqa: E731
    paths = read_by(by_index, fields)
    assert intersect(paths, [(19_999, "note", "text")])
    assert intersect(paths, [(19_999, "id")])
    assert not intersect(paths, [(19_999, "other")])


class Text(BaseModel):
    text: str = ""


class Row(BaseModel):
    id: int
    note: Text = Text()
    other: int = 0


@pytest.mark.parametrize(
    "iterate",
    [
        lambda s: iter(s["list"]),
        lambda s: reversed(s["list"]),
        lambda s: iter(s["models"]),
        lambda s: iter(s["dict"]),
        lambda s: reversed(s["dict"]),
        lambda s: iter(s["dict"].keys()),
        lambda s: iter(s["dict"].values()),
        lambda s: iter(s["dict"].items()),
        lambda s: iter(s["set"]),
        lambda s: iter(vars(s["models"][0])),
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 70])
def test_s59_an_iterator_that_was_kept_is_dead(iterate: Selector, steps: int) -> None:
    state = {
        "list": list(range(1000)),
        "models": [Item(id=at) for at in range(1000)],
        "dict": {str(at): at for at in range(1000)},
        "set": set(range(1000)),
    }
    kept: list[Any] = []

    def selector(view: Any) -> bool:
        iterator = iterate(view)
        seen = [*itertools.islice(iterator, steps)]
        if len(seen) == steps:
            kept.append(iterator)
        return True

    track_reads(state, selector)
    for iterator in kept:
        with pytest.raises(DraftEnded):
            next(iterator)
    assert kept or steps == 70


def test_an_iteration_that_was_left_or_ended_leaves_nothing_behind() -> None:
    def selector(view: Any) -> int:
        for _ in range(3):
            assert next(item for item in view["l"] if item == 80) == 80
            assert len([*view["l"]]) == len([*view["d"]]) == len([*view["d"].items()]) == 600
            assert next(key for key in view["d"] if key == "500") == "500"
        place = place_of(view["l"])
        assert place is not None
        return len(place[1].extent.live)

    assert track_reads({"l": list(range(600)), "d": {str(at): at for at in range(600)}}, selector)[0] == 0
