"""The arguments of a call in its key: nothing is equal by accident, and what cannot be told is refused by its place."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import PurePosixPath
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, PrivateAttr

from stepwell.core.argument_material import canonical_arguments
from stepwell.core.canonical_json import NotCanonical


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    RED = "red"


class Flags(enum.Flag):
    A = 1
    B = 2


class Pair(NamedTuple):
    a: int
    b: int = 0


@dataclass(frozen=True)
class Point:
    a: int
    b: object = 0


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: object = 0


@dataclass(eq=False)
class Same:
    a: int
    held: list[int] = field(default_factory=list[int])


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int
    b: object = 0
    _secret: int = PrivateAttr(0)

    def keeping(self, secret: int) -> Model:
        self._secret = secret
        return self


class Named(str):
    __slots__ = ("name",)


class OwnZone(tzinfo):
    def utcoffset(self, dt: datetime | None, /) -> timedelta:
        return timedelta(0)

    def dst(self, dt: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None, /) -> str:
        return "own"


WHEN = datetime(2026, 3, 29, 2, 30)
APART: list[object] = [
    *(1, 1.0, True, "1", b"1", [1], (1,), {1}, {1: 1}, {"1": 1}, Decimal(1), Decimal("1.0"), 1 + 0j, Level.LOW),
    *("red", Word.RED, Colour.RED, Colour.BLUE, "RED", Flags.A, Flags.B, Flags.A | Flags.B, Flags(0)),
    *(Pair(1), Pair(1, 1), (1, 0), Point(1), Point(1, 1), Point(1, 1.0), Slotted(1), {"a": 1, "b": 0}),
    *(Model(a=1), Model(a=1, b=0), Model(a=1, b=1), Model.model_validate({"a": 1, "c": 1}), Model(a=1).keeping(1)),
    *(WHEN, WHEN.replace(fold=1), WHEN.replace(tzinfo=UTC), WHEN.replace(tzinfo=ZoneInfo("Europe/Berlin"))),
    *(WHEN.replace(tzinfo=timezone(timedelta(hours=1))), WHEN.date(), WHEN.time(), WHEN.isoformat(), time(2, 30, 1)),
    *(date(2026, 3, 30), timedelta(1), timedelta(days=2), PurePosixPath("a"), PurePosixPath("b"), UUID(int=1)),
    *(AnyUrl("https://a.example/"), "https://a.example/", {Point(1): 1}, {Point(1, 1): 1}, {Colour.RED}, {Point(1)}),
    *([Point(1)], (Point(1),), {"a": Point(1)}, [[Point(1)]], {"$record:x": 1}, None, (), [], {}),
]


def test_nothing_is_equal_by_accident() -> None:
    forms = [canonical_arguments([value]) for value in APART]
    assert [forms.index(form) for form in forms] == [*range(len(forms))]


def test_where_an_argument_stands_makes_a_difference() -> None:
    calls = [
        canonical_arguments(),
        canonical_arguments([1]),
        canonical_arguments([1, 2]),
        canonical_arguments([2, 1]),
        canonical_arguments([[1, 2]]),
        canonical_arguments([1], {"a": 2}),
        canonical_arguments([1], {"b": 2}),
        canonical_arguments([], {"a": 2}),
        canonical_arguments([{"a": 2}]),
    ]
    assert len(set(calls)) == len(calls)


def test_the_order_of_names_dicts_and_sets_makes_no_difference() -> None:
    one = canonical_arguments([{"a": 1, "b": {1, 9, 17}}], {"x": 1, "y": Point(1, {"c": 1, "d": 2})})
    two = canonical_arguments([{"b": {17, 9, 1}, "a": 1}], {"y": Point(1, {"d": 2, "c": 1}), "x": 1})
    assert one == two
    assert canonical_arguments([Model(a=1, b=2)]) == canonical_arguments([Model(b=2, a=1)])


def cyclic() -> object:
    value: list[object] = []
    value.append({"a": value})
    return value


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: [1, {"a": object()}], r"builtins.object, whose state cannot be told \(at \[0\]\[1\]\['a'\]\)"),
    (lambda: Point(1, len), r"at \[0\]\['b'\]"),
    (lambda: Point(1, float("nan")), r"it is nan, which JSON cannot hold \(at \[0\]\['b'\]\)"),
    (lambda: lambda: 1, "function"),
    (lambda: Named("a"), "Named"),
    (lambda: WHEN.replace(tzinfo=OwnZone()), "its zone is a"),
    (cyclic, "holds itself"),
    (lambda: {Same(1), Same(1)}, "as a key"),
    (lambda: bytearray(b"1"), "bytearray"),
    (lambda: (i for i in "1"), "generator"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED)
def test_what_cannot_be_told_is_refused_with_its_place(make: Callable[[], object], why: str) -> None:
    with pytest.raises(NotCanonical, match=why):
        canonical_arguments([make()])


@dataclass(eq=False, frozen=True)
class Identical:
    a: int


def test_objects_that_only_their_identities_tell_apart_are_refused_as_keys() -> None:
    assert canonical_arguments([{Identical(1), Identical(2)}])
    for value in ({Identical(1), Identical(1)}, {Identical(1): 1, Identical(1): 2}):
        with pytest.raises(NotCanonical, match="only their identities"):
            canonical_arguments([value])


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=2)
LEAVES = st.none() | st.booleans() | st.integers(0, 2) | NUMBERS | TEXTS
ATOMS = st.binary(max_size=2) | st.sampled_from(Colour) | st.dates() | st.decimals(allow_nan=False) | st.uuids()
SMALL = st.integers(0, 2)
VALUES = st.recursive(
    LEAVES | ATOMS,
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(TEXTS, parts, max_size=3)
        | st.tuples(parts, parts)
        | st.builds(Point, SMALL, parts)
        | st.builds(Model, a=SMALL, b=parts)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_copy_has_the_same_form(value: object) -> None:
    holder = Model(a=1, b=value).model_copy(deep=True)
    assert canonical_arguments([holder]) == canonical_arguments([Model(a=1, b=value)])
