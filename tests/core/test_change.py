"""Changes: what an updater did, made valid, with a patch from document to document and exact changed paths."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue, field_validator, model_validator
from typing_extensions import TypedDict

from stepwell.core import draft, incremental, patch
from stepwell.core.change import Change, Claimed, Miss, decide_change, decide_take
from stepwell.core.core_schema import compile_schema
from stepwell.core.draft import Drafted
from stepwell.core.model import Issue, Replace
from stepwell.core.outcome import Failure, Success
from stepwell.core.paths import SHAPE, diff
from stepwell.core.places import Places
from stepwell.core.schema import StateSchema
from stepwell.core.value import same

from .programs import Doc, Item, Loose, Shapes, Step, doc, loose, plain, run_on_both, shapes, steps


def change_of(schema: StateSchema[Any], state: Any, updater: Callable[[Any], Any]) -> Change[Any]:
    """The change that an updater makes of a state, which must be possible. What holds of any change is checked."""
    before = schema.validate(state).unwrap()
    kept = copy.deepcopy(before.state)
    change = decide_change(schema, before.state, updater).unwrap()
    assert same(before.state, kept), "the committed state was changed"
    json = schema.encode(change.state)
    assert same(schema.decode(json).unwrap(), change.state), "the document does not say what the state is"
    document = patch.replay(msgspec.json.decode(before.json), patch.decode(change.patch_json))
    assert same(document, msgspec.json.decode(json)), "the patch does not lead to the document"
    assert patch.replay_json(before.json, [change.patch_json]) == json
    covered = set(change.changed_paths)
    for path in diff(before.state, change.state):
        assert any(path[:end] in covered for end in range(len(path) + 1)), (path, covered)
    return change


FAMILIES: dict[str, tuple[StateSchema[Any], Callable[[], object]]] = {
    "doc": (StateSchema(Doc), doc),
    "shapes": (StateSchema(Shapes), shapes),
    "plain": (StateSchema(dict[str, JsonValue]), plain),
    "loose": (StateSchema(Loose), loose),
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=150)
@given(program=steps)
def test_any_program_ends_in_a_canonical_state_or_in_issues(family: str, program: list[Step]) -> None:
    schema, make = FAMILIES[family]
    state = make()
    before = schema.validate(state).unwrap()
    made: object = None

    def updater(draft: object) -> None:
        nonlocal made
        made = run_on_both(copy.deepcopy(before.state), draft, program)

    outcome = decide_change(schema, before.state, updater)
    expected = schema.validate(made)
    if isinstance(outcome, Failure):
        assert isinstance(expected, Failure)
        assert outcome.failure() == expected.failure()
    else:
        assert same(outcome.unwrap().state, expected.unwrap().state)
        change_of(schema, before.state, updater)


# --- the usual change ---------------------------------------------------------------


class Order(BaseModel):
    status: str = "new"
    count: int = 0
    price: float = 1.5
    total: float = 0.0
    tags: list[str] = []
    at: dt.datetime | None = None
    sizes: dict[int, int] = {}

    @model_validator(mode="after")
    def _total(self) -> Order:
        self.total = self.count * self.price
        return self

    @field_validator("status")
    @classmethod
    def _status(cls, value: str) -> str:
        if value == "bug":
            raise RuntimeError("a bug in a validator")
        if value == "bad":
            raise ValueError("no such status")
        return value.strip()


ORDERS = StateSchema(Order)


def test_a_change_of_one_field_is_one_path_and_a_small_patch() -> None:
    change = change_of(ORDERS, Order(), lambda d: setattr(d, "status", "paid"))
    assert change.state.status == "paid"
    assert change.changed_paths == (("status",),)
    assert change.patch_json == b'[["=",["status"],"paid"]]'


def _add(key: str, value: JsonValue, draft: dict[str, JsonValue]) -> None:
    draft[key] = value


def test_a_document_made_by_patches_is_the_document_of_the_state() -> None:
    schema = StateSchema(dict[str, JsonValue])
    values: list[JsonValue] = [1e22, -0.0, 2**70, "\u2028é", None, [True, {"b": 1, "a": 2}], 5e-324]
    before = schema.validate({}).unwrap()
    valid, patches = before, list[bytes]()
    for at, value in enumerate(values):
        change = decide_change(schema, valid.state, partial(_add, str(at), value)).unwrap()
        patches.append(change.patch_json)
        valid = schema.validate(change.state).unwrap()
    assert patch.replay_json(before.json, patches) == valid.json


def test_s57_an_update_that_changes_nothing_leaves_the_very_state() -> None:
    before = ORDERS.validate(Order()).unwrap()
    change = decide_change(ORDERS, before.state, lambda _: None).unwrap()
    assert change == Change(before.state, b"[]", ())
    assert change.state is before.state


@pytest.mark.parametrize(
    ("updater", "after", "changed"),
    [
        pytest.param(lambda d: setattr(d, "count", "3"), Order(count=3), {("count",), ("total",)}, id="S150-coerced"),
        pytest.param(lambda d: setattr(d, "count", 4), Order(count=4), {("count",), ("total",)}, id="S150-other-field"),
        pytest.param(lambda d: setattr(d, "status", " paid "), Order(status="paid"), {("status",)}, id="S150-stripped"),
        pytest.param(lambda d: setattr(d, "status", " new "), Order(), set(), id="S150-back-to-what-it-was"),
        pytest.param(lambda d: setattr(d, "tags", ("a", "b")), Order(tags=["a", "b"]), None, id="S150-tuple-to-list"),
        pytest.param(lambda d: setattr(d, "at", "2026-01-01T00:00:00Z"), None, {("at",)}, id="S150-text-to-date"),
        pytest.param(
            lambda d: d.sizes.update({1: 2}), Order(sizes={1: 2}), {("sizes", "1"), ("sizes", SHAPE)}, id="declared-key"
        ),
    ],
)
def test_s150_the_validated_state_is_the_one_that_counts(updater: Any, after: Order | None, changed: Any) -> None:
    change = change_of(ORDERS, Order(), updater)
    assert after is None or same(change.state, ORDERS.validate(after).unwrap().state)
    assert changed is None or set(change.changed_paths) == changed


class WithDefault(TypedDict, total=False):
    id: str
    claimed_by: str
    done: bool


class Basket(BaseModel):
    items: list[Item] = []
    label: str = Field(default="", max_length=3)


def test_s150_defaults_are_part_of_the_state() -> None:
    change = change_of(StateSchema(Basket), Basket(), lambda d: d.items.append({"id": 1}))
    assert change.state == Basket(items=[Item(id=1)])
    assert set(change.changed_paths) == {("items", 0), ("items", SHAPE)}


def test_an_optional_key_that_comes_in_between_is_one_change() -> None:
    schema = StateSchema(list[WithDefault])
    change = change_of(schema, [{"id": "1", "done": False}], lambda d: d[0].update(claimed_by="me"))
    assert list(change.state[0]) == ["id", "claimed_by", "done"]
    assert set(change.changed_paths) == {(0, "claimed_by"), (0, SHAPE)}


# --- many items ---------------------------------------------------------------------


class Mail(TypedDict):
    messages: list[WithDefault]


MAILS = StateSchema(Mail)


def mail(count: int) -> Mail:
    return {"messages": [{"id": f"msg-{number}"} for number in range(count)]}


def test_s83_a_field_that_is_written_three_times_is_one_path() -> None:
    def updater(draft: Order) -> None:
        for status in ("paid", "sent", "done"):
            draft.status = status

    assert change_of(ORDERS, Order(), updater).changed_paths == (("status",),)


def first_unclaimed(state: Mail) -> WithDefault | None:
    return next((each for each in state["messages"] if "claimed_by" not in each), None)


def claim(_: Mail, message: WithDefault) -> None:
    message["claimed_by"] = "me"


def add(draft: Mail) -> None:
    draft["messages"].append({"id": "x"})


def assert_not_compared(before: Mail, drafted: Drafted[Mail] | None) -> None:
    """What was written is validated by itself, so the recorded paths stand: no states are compared."""
    assert drafted is not None
    assert drafted.written is not None
    settled = incremental.settle(Places(compile_schema(Mail, finite=True)), before, drafted.state, drafted.written)
    assert settled is not None
    assert set(settled.changed) == set(drafted.written)


def test_s47_a_claim_among_5000_changes_what_it_wrote() -> None:
    before = MAILS.validate(mail(5_000)).unwrap()
    taken = decide_take(MAILS, before.state, first_unclaimed, claim).unwrap()
    assert isinstance(taken, Claimed)
    assert taken.selected == {"id": "msg-0", "claimed_by": "me"}
    assert set(taken.change.changed_paths) == {("messages", 0, "claimed_by"), ("messages", 0, SHAPE)}
    assert_not_compared(before.state, draft.take(before.state, first_unclaimed, claim).drafted)
    assert len(taken.change.patch_json) < 100


def test_s87_an_append_to_5000_changes_what_it_wrote() -> None:
    before = MAILS.validate(mail(5_000)).unwrap()
    change = decide_change(MAILS, before.state, add).unwrap()
    assert set(change.changed_paths) == {("messages", 5_000), ("messages", SHAPE)}
    assert_not_compared(before.state, draft.run(before.state, add))


def test_s45_a_change_by_way_of_a_derived_list_is_recorded_where_it_is() -> None:
    before = MAILS.validate(mail(4)).unwrap()

    def odd(state: Mail) -> list[WithDefault]:
        return [each for each in state["messages"] if each.get("id") in ("msg-1", "msg-3")]

    def claim(_: Mail, found: list[WithDefault]) -> None:
        found[1]["done"] = True

    taken = decide_take(MAILS, before.state, odd, claim).unwrap()
    assert isinstance(taken, Claimed)
    assert set(taken.change.changed_paths) == {("messages", 3, "done"), ("messages", 3, SHAPE)}
    assert [dict(each) for each in taken.selected] == [{"id": "msg-1"}, {"id": "msg-3", "done": True}]


def test_s41_a_miss_is_what_was_read() -> None:
    before = MAILS.validate(mail(0)).unwrap()
    missed = decide_take(
        MAILS, before.state, lambda state: next(iter(state["messages"]), None), lambda *_: None
    ).unwrap()
    assert missed == Miss((("messages", SHAPE),))


# --- replacing ----------------------------------------------------------------------


def test_replacing_reports_what_differs() -> None:
    schema = StateSchema(dict[str, JsonValue])
    change = change_of(schema, {"messages": ["a"], "unrelated": 1}, lambda _: Replace({"messages": ["b"]}))
    assert change.state == {"messages": ["b"]}
    assert set(change.changed_paths) == {("messages", 0), ("unrelated",), (SHAPE,)}


def test_s56_replacing_by_none_is_a_state_only_where_the_type_says_so() -> None:
    before = ORDERS.validate(Order()).unwrap()
    empty: Any = Replace(None)
    outcome = decide_change(ORDERS, before.state, lambda _: empty)
    assert isinstance(outcome, Failure)
    maybe: StateSchema[int | None] = StateSchema(int | None)
    change = change_of(maybe, 5, lambda _: Replace(None))
    assert (change.state, change.patch_json, change.changed_paths) == (None, b'[["=",[],null]]', ((),))


def _write_what_json_would_hide(draft: Any) -> None:
    draft.status = dt.date(2026, 1, 1)
    draft.price = float("nan")


# --- what is refused ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("updater", "issues"),
    [
        pytest.param(
            lambda d: setattr(d, "status", 42), (Issue(("status",), "Input should be a valid string"),), id="wrong-type"
        ),
        pytest.param(lambda d: setattr(d, "status", "bad"), (Issue(("status",), "no such status"),), id="validator"),
        pytest.param(
            _write_what_json_would_hide,
            (
                Issue(("status",), "Input should be a valid string"),
                Issue(("price",), "Input should be a finite number"),
            ),
            id="what-json-would-hide",
        ),
    ],
)
def test_s99_an_invalid_change_is_all_its_issues_in_order(updater: Any, issues: tuple[Issue, ...]) -> None:
    before = ORDERS.validate(Order()).unwrap()
    kept = copy.deepcopy(before.state)
    outcome = decide_change(ORDERS, before.state, updater)
    assert outcome == Failure(issues)
    assert same(before.state, kept)


def test_s100_a_bug_in_a_validator_is_passed_on() -> None:
    before = ORDERS.validate(Order()).unwrap()
    with pytest.raises(RuntimeError, match="a bug in a validator"):
        decide_change(ORDERS, before.state, lambda d: setattr(d, "status", "bug"))
    assert same(before.state, ORDERS.validate(Order()).unwrap().state)


def test_a_value_that_holds_itself_is_an_issue() -> None:
    schema = StateSchema(dict[str, JsonValue])
    before = schema.validate({}).unwrap()
    loop: list[JsonValue] = []
    loop.append(loop)
    outcome = decide_change(schema, before.state, lambda d: d.update(loop=loop))
    assert isinstance(outcome, Failure)
    assert "holds itself" in outcome.failure()[0].message


def test_s86_an_undeclared_key_is_refused_where_others_are_declared() -> None:
    class Keys(BaseModel):
        text: dict[str, int] = {}
        numbers: dict[int, int] = {}

    schema = StateSchema(Keys)
    before = schema.validate(Keys()).unwrap()
    assert change_of(schema, Keys(), lambda d: d.numbers.update({1: 1})).state.numbers == {1: 1}
    number: Any = 1
    outcome = decide_change(schema, before.state, lambda d: d.text.update({number: 1}))
    assert isinstance(outcome, Failure)
    with pytest.raises(TypeError, match="keys are text"):
        decide_change(schema, before.state, lambda d: d.text.update({number > 0: 1}))


@pytest.mark.parametrize("key", [True, 1.0])
@pytest.mark.parametrize(
    "updater",
    [
        pytest.param(lambda d, key: d[key].append(2), id="write-beneath"),
        pytest.param(lambda d, key: d.setdefault(key, []).append(2), id="setdefault"),
        pytest.param(lambda d, key: d.pop(key) and None, id="pop"),
        pytest.param(lambda d, key: d.__delitem__(key), id="delete"),
    ],
)
def test_a_key_that_equals_the_one_that_is_held_has_its_path(updater: Any, key: object) -> None:
    change = change_of(StateSchema(dict[int, list[int]]), {1: [1]}, lambda d: updater(d, key))
    assert {path[0] for path in change.changed_paths} <= {"1", SHAPE}


# --- types are kept, the committed state is never reached ------------------


@pytest.mark.parametrize(("before", "after"), [(True, 1), (1, 1.0), (0, False), (0.0, -0.0), ([], {}), (None, False)])
def test_s98_a_change_of_type_alone_is_a_change(before: Any, after: Any) -> None:
    schema = StateSchema(dict[str, JsonValue])
    change = change_of(schema, {"v": before}, lambda d: d.update(v=after))
    assert change.changed_paths == (("v",),)
    assert type(change.state["v"]) is type(after)


class Meddling(BaseModel):
    inner: Item = Item(id=1)
    n: int = 0

    @model_validator(mode="before")
    @classmethod
    def _meddle(cls, data: Any) -> Any:
        target = data["inner"] if isinstance(data, dict) else data.inner
        if isinstance(target, Item):
            target.tags.append("reached")
            object.__setattr__(target, "name", "reached")
        return data


def test_s145_a_validator_that_changes_its_input_does_not_reach_the_committed_state() -> None:
    schema = StateSchema(Meddling)
    before = schema.validate({"inner": {"id": 1}}).unwrap()
    kept = copy.deepcopy(before.state)
    decide_change(schema, before.state, lambda d: setattr(d, "n", "5"))
    assert same(before.state, kept)


def test_what_is_handed_out_is_the_callers_own() -> None:
    before = ORDERS.validate(Order(tags=["a"])).unwrap()
    out = ORDERS.clone(before.state)
    out.tags.append("mine")
    change = decide_change(ORDERS, before.state, lambda d: d.tags.append("b")).unwrap()
    ORDERS.clone(change.state).tags.append("mine")
    assert change.state.tags == ["a", "b"]
    assert before.state.tags == ["a"]


def test_a_document_of_an_earlier_type_is_brought_up_by_the_patch() -> None:
    @dataclasses.dataclass
    class Now:
        n: int
        added: list[int] = dataclasses.field(default_factory=lambda: [7])

    schema = StateSchema(Now)
    old = b'{"n":1}'
    state = schema.decode(old).unwrap()
    change = decide_change(schema, state, lambda d: setattr(d, "n", 2), stored=old).unwrap()
    assert patch.replay(msgspec.json.decode(old), patch.decode(change.patch_json)) == {"n": 2, "added": [7]}
    assert set(change.changed_paths) == {("n",), ("added",), (SHAPE,)}


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(st.integers(0, 9), max_size=6), at=st.integers(0, 9))
def test_the_comparison_of_whole_states_is_not_needed_for_what_was_recorded(rows: list[int], at: int) -> None:
    change = change_of(StateSchema(list[int]), rows, lambda d: d.append(at))
    assert set(change.changed_paths) == {(len(rows),), (SHAPE,)}


def test_writing_what_is_there_already_changes_nothing() -> None:
    state: dict[str, list[int]] = {"a": [1, 2]}
    schema = StateSchema(dict[str, list[int]])

    def rewrite(draft: dict[str, list[int]]) -> None:
        draft["a"] = [*draft["a"]]

    decided = decide_change(schema, state, rewrite, stored=schema.encode(state))
    assert isinstance(decided, Success)
    change = decided.unwrap()
    assert change.state is state
    assert (change.changed_paths, change.patch_json) == ((), b"[]")
