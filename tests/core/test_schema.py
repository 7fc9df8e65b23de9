"""Schemas: canonical states, issues in order, and documents that are read back as they were written."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import functools
import inspect
import math
import typing
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    computed_field,
    field_validator,
    model_validator,
)
from pydantic_core import SchemaSerializer, SchemaValidator
from typing_extensions import TypedDict

from stepwell.core.model import Issue
from stepwell.core.outcome import Failure, Success
from stepwell.core.schema import StateSchema
from stepwell.core.value import same


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    id: int
    label: str | None = None


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Message(TypedDict, total=False):
    id: str
    claimed_by: str


class Place(NamedTuple):
    name: str
    size: int


class Every(BaseModel):
    model_config = ConfigDict(ser_json_bytes="utf8", ser_json_timedelta="float")
    number: int = Field(default=0, alias="theNumber")
    real: float = 0.5
    either: int | float | bool | str | None = None
    at: dt.datetime | None = None
    day: dt.date = dt.date(2026, 1, 2)
    wait: dt.timedelta = dt.timedelta(microseconds=1)
    raw: bytes = b"\xff\x00"
    ident: uuid.UUID = uuid.UUID(int=5)
    price: Decimal = Decimal("1.10")
    level: Level = Level.LOW
    kind: Literal["a", "b"] = "a"
    parts: list[Part] = []
    by_number: dict[int, Part] = {}
    by_colour: dict[Colour, list[int]] = {}
    names: set[str] = set()
    frozen: frozenset[tuple[int, str]] = frozenset()
    pair: tuple[Part, int] = (Part(id=1), 2)
    point: Point = Field(default_factory=lambda: Point(1.0))
    message: Message = {}
    place: Place = Place("here", 1)
    free: JsonValue = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.number * 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
parts = st.builds(Part, id=st.integers(), label=st.none() | st.text(max_size=3))
finite = st.floats(allow_nan=False, allow_infinity=False)
everything = st.fixed_dictionaries(
    {},
    optional={
        "number": st.integers(),
        "real": finite,
        "either": st.integers() | finite | st.booleans() | st.text(max_size=4) | st.none(),
        "at": st.datetimes(timezones=st.none() | st.just(dt.UTC)),
        "day": st.dates(),
        "wait": st.timedeltas(dt.timedelta(days=-9), dt.timedelta(days=9)),
        "raw": st.binary(max_size=5),
        "ident": st.uuids(),
        "price": st.decimals(allow_nan=False, allow_infinity=False, places=3),
        "level": st.sampled_from(Level),
        "parts": st.lists(parts, max_size=3),
        "by_number": st.dictionaries(st.integers(), parts, max_size=3),
        "by_colour": st.dictionaries(st.sampled_from(Colour), st.lists(st.integers(), max_size=2)),
        "names": st.sets(st.text(max_size=3), max_size=4),
        "frozen": st.frozensets(st.tuples(st.integers(), st.text(max_size=2)), max_size=3),
        "pair": st.tuples(parts, st.integers()),
        "point": st.builds(Point, x=finite, y=finite),
        "message": st.fixed_dictionaries({}, optional={"id": st.text(max_size=2), "claimed_by": st.text(max_size=2)}),
        "place": st.builds(Place, st.text(max_size=2), st.integers()),
        "free": json_values,
    },
)
EVERY = StateSchema(Every)


@settings(deadline=None, max_examples=300)
@given(fields=everything)
def test_a_state_is_read_back_as_it_was_written(fields: dict[str, Any]) -> None:
    state = Every.model_construct(**{**Every().__dict__, **fields})
    kept = copy.deepcopy(state)
    valid = EVERY.validate(state).unwrap()
    assert same(state, kept), "validation changed what it was given"
    assert same(EVERY.decode(valid.json).unwrap(), valid.state)
    assert EVERY.encode(valid.state) == valid.json
    assert same(EVERY.clone(valid.state), valid.state)
    assert same(valid.state, state) or isinstance(fields.get("message"), dict)
    again = EVERY.validate(valid.state).unwrap()
    assert again.json == valid.json


@settings(deadline=None, max_examples=200)
@given(one=everything, other=everything)
def test_equal_bytes_mean_the_same_state(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (
        EVERY.validate(Every.model_construct(**{**Every().__dict__, **each})).unwrap() for each in (one, other)
    )
    assert (first.json == second.json) is same(first.state, second.state)


def test_a_valid_state_shares_nothing_with_what_it_was_made_from() -> None:
    given_state = Every(theNumber=1, parts=[Part(id=1)], free={"a": [1]}, names={"x"})
    valid = EVERY.validate(given_state).unwrap()
    given_state.parts[0].id = 9
    given_state.parts.append(Part(id=2))
    given_state.names.add("y")
    copied = EVERY.clone(valid.state)
    copied.parts.clear()
    copied.pair[0].id = 99
    assert (len(valid.state.parts), valid.state.parts[0].id, valid.state.names) == (1, 1, {"x"})
    assert valid.state.pair[0].id == 1


def test_fields_go_by_name_and_computed_ones_stay_out() -> None:
    valid = EVERY.validate(Every(theNumber=4)).unwrap()
    assert b'"number":4' in valid.json
    assert b"theNumber" not in valid.json
    assert b"double" not in valid.json
    assert EVERY.validate({"number": 5}).unwrap().state.number == 5


def test_sets_are_written_in_one_order() -> None:
    schema = StateSchema(set[str])
    names = [f"name-{at}" for at in range(50)]
    assert schema.validate(set(names)).unwrap().json == schema.validate({*names[::-1]}).unwrap().json


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (int | None, None),
        (int, 0),
        (bool, False),
        (str, ""),
        (list[int], []),
        (dict[str, int], {}),
        (Point, Point(1.0)),
    ],
    ids=str,
)
def test_falsy_and_plain_states_are_states(type_: Any, value: object) -> None:
    schema: StateSchema[Any] = StateSchema(type_)
    valid = schema.validate(value).unwrap()
    assert same(valid.state, value)
    assert same(schema.decode(valid.json).unwrap(), value)


def test_a_zone_by_name_becomes_its_offset() -> None:
    at = dt.datetime(2026, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("UTC"))
    state = StateSchema(dt.datetime).validate(at).unwrap().state
    assert state == at


class Owner(typing.TypedDict):
    name: str


class Plain(typing.TypedDict, total=False):
    id: typing.Required[str]
    owner: Owner | None


def test_a_typed_dict_of_typing_is_a_type_of_state_on_every_python() -> None:
    schema: StateSchema[Any] = StateSchema(dict[str, list[Plain]])
    valid = schema.validate({"a": [{"id": "1", "owner": {"name": "n"}}, {"id": "2"}]}).unwrap()
    assert valid.json == b'{"a":[{"id":"1","owner":{"name":"n"}},{"id":"2"}]}'
    assert schema.validate({"a": [{"owner": {}}]}).failure() == (
        Issue(("a", 0, "id"), "Field required"),
        Issue(("a", 0, "owner", "name"), "Field required"),
    )
    assert StateSchema(Plain).validate({"id": "1"}).unwrap().json == b'{"id":"1"}'


# --- issues ------------------------------------------------------------------------


class Checked(BaseModel):
    a: int = 0
    b: int = 0

    @field_validator("a", "b")
    @classmethod
    def _check(cls, value: int, info: Any) -> int:
        if value < 0:
            raise ValueError("m1" if info.field_name == "a" else "m2")
        if value == 13:
            raise RuntimeError("a bug in a validator")
        return value


def test_s99_all_issues_are_told_in_order_with_path_and_message() -> None:
    schema = StateSchema(dict[str, Checked])
    bad = {"x": Checked.model_construct(a=-1, b=-1)}
    assert schema.validate(bad) == Failure((Issue(("x", "a"), "m1"), Issue(("x", "b"), "m2")))
    assert schema.decode(b'{"x":{"a":-1,"b":-1}}') == Failure((Issue(("x", "a"), "m1"), Issue(("x", "b"), "m2")))


def test_s100_a_bug_in_a_validator_is_passed_on() -> None:
    with pytest.raises(RuntimeError, match="a bug in a validator"):
        StateSchema(Checked).validate(Checked.model_construct(a=13))
    with pytest.raises(RuntimeError, match="a bug in a validator"):
        StateSchema(Checked).decode(b'{"a":13}')


def _loop() -> object:
    loop: list[object] = []
    loop.append(loop)
    return loop


def _deep() -> object:
    value: object = 1
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("type_", "value", "path", "says"),
    [
        pytest.param(float, math.nan, (), "finite", id="nan"),
        pytest.param(dict[str, float | None], {"a": math.inf}, ("a",), "finite", id="infinity"),
        pytest.param(JsonValue, [math.nan], (0,), "finite", id="nan-in-json"),
        pytest.param(Decimal, Decimal("NaN"), (), "finite", id="decimal-nan"),
        pytest.param(list[str], ["ok", "\ud800"], (1,), "Unicode", id="surrogate"),
        pytest.param(JsonValue, {"a": ["\udfff"]}, ("a", 0), "", id="surrogate-in-json"),
        pytest.param(dict[str, int], {"\ud800": 1}, (), "", id="surrogate-in-a-key"),
        pytest.param(JsonValue, _loop(), (), "holds itself", id="cycle"),
        pytest.param(JsonValue, _deep(), (), "nested", id="deep"),
        pytest.param(JsonValue, {"at": dt.date(2026, 1, 1)}, ("at",), "JSON", id="date-in-json"),
        pytest.param(JsonValue, {"t": (1, 2)}, ("t",), "JSON", id="tuple-in-json"),
        pytest.param(dict[str, int], {None: 1}, None, "string", id="key"),
        pytest.param(Part, Point(1.0), (), "Part", id="another-class"),
        pytest.param(list[int], object(), (), "list", id="no-value-at-all"),
        pytest.param(int, "x", (), "integer", id="no-number"),
        pytest.param(list[Part], [{}], (0, "id"), "required", id="missing-field"),
        pytest.param(int | list[float], ["x"], (0,), "number", id="member-of-a-union"),
        pytest.param(dict[int, int], {7: "x"}, ("7",), "integer", id="under-a-number"),
    ],
)
def test_what_cannot_be_stored_is_an_issue(
    type_: Any, value: object, path: tuple[str | int, ...] | None, says: str
) -> None:
    match StateSchema(type_).validate(value):
        case Failure(issues):
            assert any(says in issue.message and path in (None, issue.path) for issue in issues), issues
        case Success(valid):
            pytest.fail(f"accepted as {valid}")


@pytest.mark.parametrize("json", [b"", b"{", b"[1]", b'{"id":"x"}', b"\xff", b"[" * 5000])
def test_a_document_that_does_not_fit_is_an_issue(json: bytes) -> None:
    assert isinstance(StateSchema(Part).decode(json), Failure)


class Counting(BaseModel):
    count: int = 0

    @model_validator(mode="after")
    def _count(self) -> Counting:
        self.count += 1
        return self


def test_a_validator_that_never_settles_is_an_issue() -> None:
    failure = StateSchema(Counting).validate(Counting.model_construct(count=1)).failure()
    assert [issue.path for issue in failure] == [("count",)]
    assert "must give back unchanged" in failure[0].message


class Wrapped(RootModel[dict[str, list[Part]]]):
    pass


def test_models_within_root_models_are_validated_anew() -> None:
    wrong: Any = "x"
    bad = Wrapped.model_construct({"a": [Part.model_construct(id=wrong)]})
    assert StateSchema(Wrapped).validate(bad).failure()[0].path == ("a", 0, "id")


def test_pydantic_still_lets_its_prebuilt_validators_be_passed_over() -> None:
    for made in (SchemaValidator, SchemaSerializer):
        assert "_use_prebuilt" in inspect.signature(made).parameters


@dataclasses.dataclass
class Indexed:
    names: list[str]

    def __post_init__(self) -> None:
        self.places = {name: at for at, name in enumerate(self.names)}

    @functools.cached_property
    def first(self) -> str:
        return self.names[0]


def test_a_dataclass_is_handed_out_with_what_it_made_of_its_fields() -> None:
    schema = StateSchema(list[Indexed])
    state = schema.validate([Indexed(["a", "b"])]).unwrap().state
    assert state[0].first == "a"
    handed_out = schema.clone(state)
    assert vars(handed_out[0]) == {"names": ["a", "b"], "places": {"a": 0, "b": 1}}
    handed_out[0].places.clear()
    assert state[0].places == {"a": 0, "b": 1}


class Tree(BaseModel):
    parts: list[Tree] = []


def test_what_json_cannot_hold_is_told_with_its_place() -> None:
    numbers = StateSchema(dict[str, list[int]])
    assert isinstance(numbers.validate({"a": [1, 10**4299]}), Success)
    assert numbers.validate({"a": [1, -(10**5000)]}) == Failure(
        (Issue(("a", 1), "a whole number of more than 4,300 digits cannot be stored; store its text"),)
    )
    tree = Tree()
    for _ in range(120):
        tree = Tree(parts=[tree])
    assert StateSchema(Tree).validate(tree) == Failure((Issue((), "the value is nested too deeply to be stored"),))


# --- slices -----------------------------------------------------------------------------


class Warehouse(BaseModel):
    name: str = "w"
    parts: list[Part] = []
    by_key: dict[str, Part] = {}
    points: dict[str, list[Point]] = {}
    open: RootModel[list[float]] = RootModel[list[float]]([])


@pytest.mark.parametrize("count", [0, 1, 1_024, 1_025, 5_000])
@pytest.mark.parametrize(
    "type_", [Warehouse, list[Part], dict[str, Part], RootModel[list[Part]], RootModel[dict[str, int]]]
)
def test_the_slices_of_a_state_are_its_document(type_: Any, count: int) -> None:
    parts = [Part(id=at, label=f"\u00e9{at}" if at % 3 else None) for at in range(count)]
    named = {f'"{at}': part for at, part in enumerate(parts)}
    values: dict[Any, Any] = {
        Warehouse: Warehouse(
            parts=parts, by_key=named, points={"a": [Point(0.5)] * count}, open=RootModel([1.0] * count)
        ),
        list[Part]: parts,
        dict[str, Part]: named,
        RootModel[list[Part]]: RootModel(parts),
        RootModel[dict[str, int]]: RootModel({f"k{at}": at for at in range(count)}),
    }
    schema: StateSchema[Any] = StateSchema(type_)
    valid = schema.validate(values[type_]).unwrap()
    written = list(schema.slices(valid.state))
    assert b"".join(written) == valid.json
    assert max(map(len, written)) < 100_000


def test_a_state_that_is_written_as_a_whole_is_one_slice() -> None:
    schema = StateSchema(set[int])
    valid = schema.validate(set(range(5_000))).unwrap()
    assert list(schema.slices(valid.state)) == [valid.json]
