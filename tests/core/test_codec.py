"""Properties of the codec of arguments, results and recorded errors: what goes in comes out, or it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell import Failure, Outcome, RecordedError, Success
from stepwell.core.codec import (
    codec_of,
    elements,
    error_json,
    parameters_of,
    read_error,
    result_codec,
    same_json,
)
from stepwell.core.strict_json import DEPTH

T = TypeVar("T")

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Declined:
    reason: str


@dataclass(frozen=True)
class Busy:
    reason: str


@dataclass(frozen=True)
class Box(Generic[T]):
    held: T


class Order(BaseModel):
    id: UUID
    at: datetime
    lines: list[tuple[str, Decimal]]
    colour: Colour | None = None


class Shape(TypedDict, total=False):
    name: str
    sides: int


def strictly_same(a: object, b: object) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


# --- without an annotation ----------------------------------------------------


@given(JSON)
def test_json_comes_back_strictly_as_it_was(value: object) -> None:
    for annotation in (Any, object, TypeVar("Unbound")):
        codec = codec_of(annotation)
        assert strictly_same(codec.decode(codec.encode(value, "it"), "it"), value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ((1,), "it is a tuple"),
        ([0, {"a": (1,)}], "it[1]['a'] is a tuple"),
        ({"a": [datetime(2024, 1, 1, tzinfo=UTC)]}, "it['a'][0] is a datetime"),
        ({1: "x"}, "it has the key 1, a int"),
        ({"a": {True: 1}}, "it['a'] has the key True"),
        ([{1, 2}], "it[0] is a set"),
        (b"x", "it is a bytes"),
        (Declined("no"), "it is a Declined"),
        (Colour.RED, "it is a Colour"),
        (float("nan"), "it is nan"),
        ([float("-inf")], "it[0] is -inf"),
        ("\ud800", "it holds text that is not valid Unicode"),
        ({"\ud800": 1}, "it holds text that is not valid Unicode"),
        (10**5000, "it: "),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("it") else "value",
)
def test_what_is_not_json_is_refused_and_the_place_named(value: object, place: str) -> None:
    with pytest.raises(TypeError) as caught:
        _ = codec_of(Any).encode(value, "it")
    assert str(caught.value).startswith(place)


def test_subclasses_of_json_types_are_refused() -> None:
    class Text(str):
        pass

    class Whole(int):
        pass

    for value in (Text("x"), Whole(1), [Whole(1)]):
        with pytest.raises(TypeError):
            _ = codec_of(Any).encode(value, "it")


def test_what_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TypeError, match=f"more than {DEPTH} levels"):
        _ = codec_of(Any).encode(endless, "it")


# --- with an annotation -------------------------------------------------------

VALUES: list[tuple[object, object]] = [
    (int, 7),
    (float, 1.5),
    (bool, True),
    (str, "ä"),
    (bytes, b"\xff\0"),
    (type(None), None),
    (int | None, None),
    (int | str, "7"),
    (int | str, 7),
    (Decimal, Decimal("1.10")),
    (datetime, datetime(2024, 2, 29, 1, 2, 3, 456, tzinfo=UTC)),
    (date, date(2024, 2, 29)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (UUID, UUID(int=7)),
    (Colour, Colour.BLUE),
    (Literal["a", 1], 1),
    (tuple[int, str], (1, "x")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"x"})),
    (dict[int, list[date]], {1: [date(2024, 2, 29)]}),
    (list[bytes], [b"\xff"]),
    (Point, Point(1, 2.0)),
    (Declined, Declined("no")),
    (Box[int], Box(7)),
    (Box[datetime], Box(datetime(2024, 2, 29, tzinfo=UTC))),
    (list[Box[Colour]], [Box(Colour.RED)]),
    (Order, Order(id=UUID(int=1), at=datetime(2024, 1, 1, tzinfo=UTC), lines=[("x", Decimal("1.0"))])),
    (Declined | Order, Declined("x")),
    (Shape, {"name": "square"}),
    (dict[str, Shape], {"a": {"sides": 4}, "b": {}}),
    (dict[str, Any], {"a": [1, None, {"b": "c"}]}),
    (dict, {"a": [True]}),
    (list, [1, [2.5]]),
    (list[Success[int] | Failure[Declined]], [Success(1), Failure(Declined("no"))]),
    (tuple[Success[date] | Failure[Declined | Busy], int], (Failure(Busy("x")), 1)),
    (dict[str, list[Success[Point] | Failure[str]]] | None, {"a": [Success(Point(1, 2.0)), Failure("no")]}),
    (Box[Any], Box([1])),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=[str(at) for at in range(len(VALUES))])
def test_a_value_of_its_type_comes_back_as_that_type(annotation: object, value: object) -> None:
    codec = codec_of(annotation)
    back = codec.decode(codec.encode(value, "it"), "it")
    assert type(back) is type(value)
    assert back == value


@pytest.mark.parametrize("value", [(1,), {1}, datetime(2024, 1, 1, tzinfo=UTC), b"x", float("nan"), Declined("no")])
def test_what_has_no_annotation_of_its_own_must_be_json(value: object) -> None:
    for annotation, whole in (
        (dict[str, Any], {"a": value}),
        (list[object], [value]),
        (list, [[value]]),
        (dict, {"a": value}),
    ):
        with pytest.raises(TypeError, match=r"^it\[.* is a|^it does not fit its type: .* is nan"):
            _ = codec_of(annotation).encode(whole, "it")


def test_a_whole_number_may_stand_for_a_float() -> None:
    for annotation in (float, float | None):
        codec = codec_of(annotation)
        assert strictly_same(codec.decode(codec.encode(1, "it"), "it"), 1.0)


def test_members_of_a_union_that_cannot_be_told_apart_are_refused() -> None:
    codec = codec_of(Declined | Busy)
    assert codec.decode(codec.encode(Declined("x"), "it"), "it") == Declined("x")
    with pytest.raises(TypeError, match="it is a Busy and would come back as a Declined"):
        _ = codec.encode(Busy("x"), "it")


@given(st.floats())
def test_any_float_comes_back(value: float) -> None:
    for annotation, given_value in ((float, value), (float | None, value), (list[float | None], [value])):
        codec = codec_of(annotation)
        assert strictly_same(codec.decode(codec.encode(given_value, "it"), "it"), given_value)


@given(st.datetimes(timezones=st.just(UTC)), st.decimals(allow_nan=False, allow_infinity=False), st.binary(), TEXT)
def test_random_values_come_back(at: datetime, amount: Decimal, data: bytes, text: str) -> None:
    codec = codec_of(tuple[datetime, Decimal, bytes, str])
    value = (at, amount, data, text)
    assert codec.decode(codec.encode(value, "it"), "it") == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "7"), (str, 7), (list[int], ["x"]), (Declined, "x"), (datetime, "2024"), (tuple[int, int], (1,))],
    ids=str,
)
def test_a_value_of_another_type_is_refused(annotation: object, value: object) -> None:
    codec = codec_of(annotation)
    with pytest.raises(TypeError) as caught:
        _ = codec.decode(codec.encode(value, "it"), "it")
    assert str(caught.value).startswith("it")


def test_what_no_longer_fits_is_refused_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"it does not fit its type: lines\.0\.1: "):
        _ = codec_of(Order).decode(
            json.dumps({"id": str(UUID(int=1)), "at": "2024-01-01T00:00:00Z", "lines": [["x", "much"]]}).encode(), "it"
        )


def test_a_type_that_cannot_be_kept_is_refused_when_it_is_named() -> None:
    class Plain:
        pass

    with pytest.raises(TypeError, match="cannot be"):
        _ = codec_of(Plain)


# --- outcomes -----------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [Success(datetime(2024, 1, 1, tzinfo=UTC)), Failure(Declined("x")), Failure(Busy("x")), Failure(None)],
    ids=str,
)
def test_an_outcome_comes_back_with_the_class_of_its_failure(outcome: Outcome[datetime, object]) -> None:
    codec = codec_of(Success[datetime] | Failure[Declined | Busy | None])
    back = codec.decode(codec.encode(outcome, "it"), "it")
    assert type(back) is type(outcome)
    assert back == outcome


@given(st.booleans() | st.integers() | TEXT)
def test_a_failure_is_told_by_its_exact_type_first(held: bool | int | str) -> None:
    codec = codec_of(Success[None] | Failure[int | bool | str])
    back = codec.decode(codec.encode(Failure(held), "it"), "it")
    assert repr(back) == repr(Failure(held))


def test_a_failure_is_recorded_by_its_name_since_a_union_has_no_order() -> None:
    """What is made of `Busy | Declined` first decides what Python gives for `Declined | Busy` from then on."""
    codec = codec_of(Success[int] | Failure[Declined | Busy])
    assert codec.encode(Failure(Busy("x")), "it") == b'{"failure":{"reason":"x"},"of":"Busy"}'
    assert codec.decode(b'{"failure":{"reason":"x"},"of":"Declined"}', "it") == Failure(Declined("x"))
    assert codec.decode(b'{"failure":{"reason":"x"},"of":1}', "it") == Failure(Busy("x"))  # as it was recorded before


@pytest.mark.parametrize("of", ["Gone", -1, 2, None, 0.0, [], True])
def test_a_failure_that_is_not_listed_is_refused(of: object) -> None:
    codec = codec_of(Success[int] | Failure[Declined | Busy])
    with pytest.raises(TypeError, match="does not list"):
        _ = codec.decode(json.dumps({"failure": {"reason": "x"}, "of": of}).encode(), "it")


def test_members_of_one_name_are_told_apart() -> None:
    def made() -> type[Busy]:
        @dataclass(frozen=True)
        class Again(Busy):
            pass

        return Again

    one, other = made(), made()
    other.__module__ = "elsewhere"
    codec = codec_of(Success[int] | Failure[one | other])  # type: ignore[valid-type]  # made while this runs
    for cls in (one, other):
        back = cast("Failure[object]", codec.decode(codec.encode(Failure(cls("x")), "it"), "it"))
        assert type(back.failure()) is cls


def test_an_outcome_that_its_annotation_does_not_list_is_refused() -> None:
    codec = codec_of(Success[int] | Failure[Declined])
    for value in (7, Failure(Busy("x")), Failure("x")):
        with pytest.raises(TypeError) as caught:
            _ = codec.encode(value, "it")
        assert str(caught.value).startswith("it is a ")
    with pytest.raises(TypeError, match="does not list"):
        _ = codec.decode(b'{"failure":{"reason":"x"},"of":1}', "it")


# --- which codec a function has -------------------------------------------------


async def asynchronous(n: int) -> set[int]:
    return {n}


def synchronous(n: int) -> set[int]:
    return {n}


class Callable_:
    def __call__(self, n: int) -> set[int]:
        return {n}

    def method(self, n: int) -> set[int]:
        return {n}


def wrapped(n: int) -> Coroutine[Any, Any, set[int]]:
    return asynchronous(n)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "async": asynchronous,
    "sync": synchronous,
    "object": Callable_(),
    "method": Callable_().method,
    "partial": partial(synchronous, 1),
    "partial of partial": partial(partial(synchronous)),
    "gives a coroutine": wrapped,
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_annotation_of_what_is_called_decides(fn: Callable[..., object]) -> None:
    codec = result_codec(fn)
    assert codec.decode(codec.encode({1, 2}, "it"), "it") == {1, 2}


def test_a_class_gives_itself_and_what_says_nothing_gives_json() -> None:
    assert result_codec(Declined).decode(b'{"reason":"x"}', "it") == Declined("x")
    for fn in (lambda: 1, len, print):
        with pytest.raises(TypeError):
            _ = result_codec(fn).encode((1,), "it")


def test_the_parameters_after_the_first_are_the_arguments() -> None:
    def fn(run: object, a: int, b: tuple[int, ...] = (), *rest: date) -> None: ...

    parameters = parameters_of(fn)
    assert [parameter.name for parameter, _ in parameters] == ["a", "b", "rest"]
    assert parameters[1][1].decode(b"[1,2]", "it") == (1, 2)
    assert parameters[2][1].decode(b'"2024-02-29"', "it") == date(2024, 2, 29)


# --- JSON texts -----------------------------------------------------------------


@given(st.lists(JSON, max_size=5))
def test_the_elements_of_an_array_are_its_parts(values: list[object]) -> None:
    codec = codec_of(Any)
    parts = [codec.encode(value, "it") for value in values]
    found = elements(b"[" + b",".join(parts) + b"]")
    assert [codec.decode(part, "it") for part in found] == values
    assert all(same_json(part, given) for part, given in zip(found, parts, strict=True))


@given(st.dictionaries(TEXT, JSON, max_size=5), JSON)
def test_the_order_of_members_says_nothing(members: dict[str, object], other: object) -> None:
    codec = codec_of(Any)
    forth = codec.encode(members, "it")
    back = codec.encode(dict(reversed(members.items())), "it")
    assert same_json(forth, back)
    assert same_json(codec.encode(other, "it"), forth) is strictly_same_json(other, members)


def strictly_same_json(a: object, b: object) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(st.text(), st.text(), st.text(), st.sampled_from(["error", "timed_out", "unknown"]))
def test_recorded_errors_come_back(type_: str, message: str, traceback: str, kind: str) -> None:
    error = RecordedError(type_, message, traceback)
    assert read_error(error_json(error, kind)) == (error, kind)
