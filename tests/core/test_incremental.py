"""Incremental settling is full settling: the same verdict, state, document, paths, patch and issues."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import datetime as dt
import enum
import os
import zoneinfo
from random import Random
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    BeforeValidator,
    JsonValue,
    OnErrorOmit,
    RootModel,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import to_json
from typing_extensions import TypedDict

from stepwell.core import draft, patch
from stepwell.core.model import Paths
from stepwell.core.outcome import Failure, Outcome
from stepwell.core.paths import SHAPE, diff
from stepwell.core.schema import Settled, StateSchema
from stepwell.core.sharing import BIG
from stepwell.core.value import NotStorable, clone, same

from .families import big, choices, containers, records, validators, writers
from .families.family import Family, Updates

UPDATES = 250
"""How many updates one example makes, one after another."""


class Counting(StateSchema[Any]):
    """A schema that counts how often it had to look at the whole."""

    wholes = 0

    def _settle_whole(self, before: Any, after: Any, written: Paths | None) -> Outcome[Settled[Any], Any]:
        self.wholes += 1
        return super()._settle_whole(before, after, written)


class Comparison:
    """One family, its updates settled both ways, and how many were."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.updates = Updates(family)
        self.parts = Counting(family.type_)
        self.full = StateSchema[Any](family.type_, validation="full")
        self.both = StateSchema[Any](family.type_, validation="both")
        self.reader = StateSchema[Any](family.type_)
        self.settled = self.valid = self.by_parts = 0

    def run(self, seed: int, count: int) -> None:
        random = Random(seed)
        state = clone(random.choice(self.updates.starts).state)
        for number in range(count):
            if number % 50 == 49:
                state = clone(random.choice(self.updates.starts).state)
            told: list[str] = []
            try:
                state = self.update(random, state, told, thorough=number % 8 == 0)
            except Exception as error:
                error.add_note(f"{self.family.name}, seed {seed}, update {number}:\n" + "\n".join(told))
                raise

    def update(self, random: Random, state: Any, told: list[str], *, thorough: bool) -> Any:
        try:
            drafted = draft.run(state, self.updates.updater(random, state, told), self.full.key_types)
        except NotStorable:
            return state
        self.settled += 1
        if drafted.written is None or (drafted.written == () and drafted.state is state):
            return state
        wholes = self.parts.wholes
        found = outcome_of(self.parts, state, drafted)
        by_parts = self.parts.wholes == wholes
        if not by_parts and not thorough:  # a look at the whole is one and the same in both
            self.valid += not isinstance(found, Failure)
            return state if isinstance(found, Failure) else found.unwrap().state
        whole = outcome_of(self.full, state, drafted)
        if thorough:
            assert_one(outcome_of(self.both, state, drafted), whole)
        if isinstance(found, Failure) or isinstance(whole, Failure):
            assert found == whole
            return state
        self.valid += 1
        self.by_parts += by_parts
        self.check(state, found.unwrap(), whole.unwrap(), thorough=thorough)
        return found.unwrap().state

    def check(self, before: Any, found: Settled[Any], whole: Settled[Any], *, thorough: bool) -> None:
        assert same(found.state, whole.state), diff(found.state, whole.state)
        assert set(found.changed) == set(whole.changed), (found.changed, whole.changed)
        old, new = self.parts.encode(clone(before)), self.parts.encode(clone(found.state))
        sent = patch.decode(patch.encode(found.patch))
        document = patch.replay_document(msgspec.json.decode(old), (sent,))
        assert to_json(document) == new
        if thorough:
            read = self.reader.decode(new).unwrap()
            assert same(read, found.state), diff(read, found.state)
            reached = self.reader.advance(self.reader.decode(old).unwrap(), sent).unwrap()
            assert same(reached, read), diff(reached, read)


def outcome_of(schema: StateSchema[Any], before: Any, drafted: draft.Drafted[Any]) -> Any:
    return schema.settle(before, drafted.state, drafted.written)


def assert_one(one: Any, other: Any) -> None:
    if isinstance(one, Failure) or isinstance(other, Failure):
        assert one == other
    else:
        assert same(one.unwrap().state, other.unwrap().state)


FAMILIES = {
    family.name: family
    for family in (
        *(containers.FAMILY, containers.ROOT_LIST, containers.ROOT_DICT),
        *(choices.FAMILY, choices.ROOT),
        validators.FAMILY,
        *(records.FAMILY, records.ROOT),
        *(writers.FAMILY, writers.ROOT),
        big.FAMILY,
    )
}

EXAMPLES = {"containers": 80, "choices": 80, "validators": 80, "records": 80, "writers": 40}
SOAK = bool(os.environ.get("STEPWELL_SOAK"))


@pytest.mark.parametrize("name", FAMILIES)
def test_incremental_settling_is_full_settling(name: str) -> None:
    comparison = Comparison(FAMILIES[name])
    examples = 80 if SOAK else EXAMPLES.get(name, 4)

    @settings(deadline=None, max_examples=examples)
    @given(seed=st.integers(0, 2**32))
    def compare(seed: int) -> None:
        comparison.run(seed, UPDATES)

    compare()
    assert comparison.settled >= examples * UPDATES * 0.95
    share = comparison.by_parts / comparison.valid
    print(f"{name}: {comparison.settled} updates, {comparison.valid} valid, {share:.0%} by parts")
    assert share >= FAMILIES[name].share


# --- what the comparison has found ------------------------------------------------------


def settled(type_: Any, state: Any, updater: Any) -> Any:
    """What an updater makes of a state, settled both ways, which agree; and read by a schema that knows the patch only.

    The issues, if it is not valid; the state, the changed paths and the number of looks at the whole otherwise.
    """
    comparison = Comparison(Family("one", type_, (lambda: state,), {}, (), 0.0))
    before = comparison.updates.starts[0].state
    drafted = draft.run(before, updater, comparison.full.key_types)
    whole = outcome_of(comparison.full, before, drafted)
    found = outcome_of(comparison.parts, before, drafted)
    assert_one(outcome_of(comparison.both, before, drafted), whole)
    assert_one(found, whole)
    if isinstance(found, Failure):
        return found.failure()
    comparison.check(before, found.unwrap(), whole.unwrap(), thorough=True)
    return found.unwrap().state, set(found.unwrap().changed), comparison.parts.wholes


class Ascending(RootModel[list[int]]):
    @field_validator("root")
    @classmethod
    def order(cls, value: list[int]) -> list[int]:
        return sorted(value)


def test_whoever_catches_up_reads_a_part_that_is_put_in_order_once_all_of_it_is_there() -> None:
    def raise_both(draft: dict[str, Ascending]) -> None:
        draft["a"].root[0] = draft["a"].root[1] = 3

    before = {"a": Ascending([1, 2])}
    state, _, _ = settled(dict[str, Ascending], before, raise_both)
    assert state == {"a": Ascending([3, 3])}


def test_half_of_a_surrogate_pair_in_a_new_key_is_an_issue() -> None:
    issues = settled(dict[str, JsonValue], {}, lambda d: d.update({"\ud800": 1}))
    assert [issue.path for issue in issues] == [()]


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")]])
def test_a_number_that_is_not_finite_is_an_issue_also_where_any_json_is_one(value: Any) -> None:
    issues = settled(dict[str, JsonValue], {"a": [1]}, lambda d: d["a"].append(value))
    assert [issue.message for issue in issues] == ["Input should be a finite number"]


def test_a_key_that_validation_changes_within_a_barrier_is_the_path_of_what_it_became() -> None:
    state, changed, wholes = settled(
        dict[str, tuple[dict[Annotated[str, StringConstraints(strip_whitespace=True)], int]]],
        {"a": ({},)},
        lambda d: d["a"][0].update({" k ": 1}),
    )
    assert state == {"a": ({"k": 1},)}
    assert changed == {("a", 0, "k"), ("a", 0, SHAPE)}
    assert not wholes


class Entry(TypedDict, total=False):
    one: int
    two: int


def test_keys_of_a_typed_dict_that_changed_their_order_are_back_in_it() -> None:
    def move(state: list[Entry]) -> None:
        state[0]["one"] = state[0].pop("one")

    assert settled(list[Entry], [{"one": 1, "two": 2}], move)[:2] == ([{"one": 1, "two": 2}], set())


def test_keys_that_are_no_text_change_their_order_for_those_who_catch_up() -> None:
    def move(state: dict[str, dict[int, int]]) -> None:
        state["a"][1] = state["a"].pop(1)

    assert settled(dict[str, dict[int, int]], {"a": {1: 1, 2: 2}}, move)[0] == {"a": {2: 2, 1: 1}}


def test_a_key_that_is_no_text_goes_from_a_big_dict_for_those_who_catch_up() -> None:
    many = {at: at for at in range(BIG + 2)}
    state = settled(dict[str, dict[int, int]], {"a": many}, lambda d: d["a"].pop(7) and None)[0]
    assert len(state["a"]) == BIG + 1


def test_what_is_wrong_with_a_big_state_that_was_written_before_is_told() -> None:
    schema = StateSchema(list[int])
    before = schema.validate(list(range(BIG + 2))).unwrap().state
    first = draft.run(before, lambda d: d.append(1))
    held = schema.settle(before, first.state, first.written).unwrap().state
    wrong: Any = "x"
    second = draft.run(held, lambda d: d.append(wrong))
    issues = schema.settle(held, second.state, second.written).failure()
    assert [issue.path for issue in issues] == [(BIG + 3,)]


class Nested(BaseModel):
    inner: list[Nested] = []


def nested(depth: int) -> Nested:
    made = Nested()
    for _ in range(depth):
        made = Nested(inner=[made])
    return made


@pytest.mark.parametrize(("added", "is_readable"), [(8, True), (20, False)])
def test_a_part_that_is_nested_too_deeply_for_where_it_lies_is_an_issue(added: int, is_readable: bool) -> None:
    def deepen(state: Nested) -> None:
        while state.inner:
            state = state.inner[0]
        state.inner = [nested(added)]

    found = settled(Nested, nested(85), deepen)
    if is_readable:
        assert found[0] == nested(85 + 1 + added)
    else:
        assert [issue.message for issue in found] == ["the value is nested too deeply to be stored"]


def test_what_is_not_valid_is_left_out_where_the_type_says_so() -> None:
    wrong: Any = "x"
    assert settled(list[OnErrorOmit[int]], [1], lambda d: d.append(wrong))[:2] == ([1], set())
    assert settled(list[OnErrorOmit[int]], [1], lambda d: d.append(2))[2] == 0
    assert settled(dict[str, OnErrorOmit[int]], {"a": 1}, lambda d: d.update(a=wrong))[:2] == (
        {},
        {("a",), (SHAPE,)},
    )


class Faulty(BaseModel):
    first: int = 1
    second: int = 2

    @field_validator("first", "second", mode="before")
    @classmethod
    def fail(cls, value: int) -> int:
        if value == 7:
            raise RuntimeError("seven")
        if value == 8:
            raise ZeroDivisionError("eight")
        return value


def test_what_validators_raise_is_raised_in_the_order_of_the_fields() -> None:
    schema = StateSchema(Faulty)

    def update(state: Faulty) -> None:
        state.second = 8
        state.first = 7

    drafted = draft.run(Faulty(), update)
    with pytest.raises(RuntimeError, match="seven"):
        schema.settle(Faulty(), drafted.state, drafted.written)


def test_the_validator_of_a_model_in_a_model_of_its_root_sees_its_own_model() -> None:
    state, _, wholes = settled(
        validators.Outer, validators.Outer(validators.Inner([1])), lambda d: d.root.root.append(2)
    )
    assert state == validators.Outer(validators.Inner([1, 2]))
    assert not wholes


class Between(BaseModel):
    low: int = 0
    high: int = 9
    note: str = ""

    @field_validator("high")
    @classmethod
    def above(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("low", value):
            raise ValueError("high is below low")
        return value


def test_a_field_that_comes_after_those_that_see_others_is_settled_by_itself() -> None:
    assert settled(Between, Between(), lambda d: setattr(d, "note", "n"))[1:] == ({("note",)}, 0)
    assert settled(Between, Between(), lambda d: setattr(d, "low", 3))[1:] == ({("low",)}, 1)
    assert settled(list[Between], [Between()], lambda d: setattr(d[0], "low", 3))[1:] == ({(0, "low")}, 0)
    assert [issue.message for issue in settled(Between, Between(), lambda d: setattr(d, "low", 10))] == [
        "high is below low"
    ]


class Within(BaseModel):
    """Its validator is called before its own fields are known: it sees those of the record it lies in."""

    value: int = 0

    @model_validator(mode="before")
    @classmethod
    def below(cls, value: Any, info: ValidationInfo) -> Any:
        if value.get("value", 0) > (info.data or {}).get("most", 9):
            raise ValueError("more than the most")
        return value


class WithinRoot(RootModel[int]):
    @field_validator("root")
    @classmethod
    def below(cls, value: int, info: ValidationInfo) -> int:
        if value > (info.data or {}).get("most", 9):
            raise ValueError("more than the most")
        return value


class Around(BaseModel):
    most: int = 5
    model: Within = Within()
    models: dict[str, list[Within]] = {"a": [Within()]}
    root: WithinRoot = WithinRoot(0)
    note: str = ""


def put_root(draft: Around, value: int) -> None:
    draft.root.root = value


@pytest.mark.parametrize(
    ("updater", "path"),
    [
        (lambda d: setattr(d.model, "value", 7), ("model",)),
        (lambda d: setattr(d, "model", Within(value=7)), ("model",)),
        (lambda d: setattr(d.models["a"][0], "value", 7), ("models", "a", 0)),
        (lambda d: d.models["a"].append(Within(value=7)), ("models", "a", 1)),
        (lambda d: put_root(d, 7), ("root",)),
        (lambda d: setattr(d, "most", -1), ("model",)),
    ],
)
def test_a_validator_within_a_field_that_sees_the_fields_before_it_is_asked_with_them(
    updater: Any, path: tuple[str | int, ...]
) -> None:
    issues = settled(Around, Around(), updater)
    assert (issues[0].path, issues[0].message) == (path, "more than the most")


def test_a_field_after_one_that_holds_such_a_validator_is_settled_by_itself() -> None:
    assert settled(Around, Around(), lambda d: setattr(d, "note", "n"))[1:] == ({("note",)}, 0)


class Sort(enum.StrEnum):
    TEA = "tea"


class Stock(RootModel[dict[str, int]]):
    pass


class Shop(BaseModel):
    by_sort: dict[Sort, int] = {}
    stock: Stock = Stock({})
    models: list[Within] = []


def test_a_key_that_becomes_text_in_a_model_of_its_root_is_told_with_what_changed_and_no_more() -> None:
    def put(draft: Shop) -> None:
        draft.models = []
        draft.stock.root[Sort.TEA] = 1

    assert settled(Shop, Shop(), put)[1] == {("stock", "tea"), ("stock", SHAPE)}


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("after", [["put"], ["put", "more"]], ids=len)
def test_a_zone_by_name_becomes_its_offset_as_for_those_who_read_it(after: list[str]) -> None:
    """Half a year later it would be another hour, in the process that wrote it and in no other."""

    def put(draft: dict[str, dt.datetime]) -> None:
        for key in after:
            draft[key] = dt.datetime(2026, 1, 1, tzinfo=BERLIN)

    state, _, wholes = settled(dict[str, dt.datetime], {"put": dt.datetime(2025, 1, 1, tzinfo=dt.UTC)}, put)
    assert not wholes
    assert {(at + dt.timedelta(days=180)).utcoffset() for at in state.values()} == {dt.timedelta(hours=1)}


def at_most_a_hundred(value: float) -> float:
    return min(value, 100.0)


class Capped(BaseModel):
    value: Annotated[float, BeforeValidator(at_most_a_hundred)] = 1.0


def test_a_validator_that_cannot_take_what_json_makes_of_a_value_is_asked_with_the_value() -> None:
    state, changed, _ = settled(Capped, Capped(), lambda d: setattr(d, "value", float("inf")))
    assert (state, changed) == (Capped(value=100.0), {("value",)})


class Number(RootModel[int]):
    pass


class Numbered(BaseModel):
    number: Number = Number(1)


def test_an_atom_in_place_of_a_model_of_its_root_becomes_the_model() -> None:
    wrong: Any = 5
    state = settled(Numbered, Numbered(), lambda d: setattr(d, "number", wrong))[0]
    assert same(state, Numbered(number=Number(5)))
