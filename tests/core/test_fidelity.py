"""Values that would come back as something else: refused by codecs and by stores, with the place and both classes."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, computed_field

from stepwell import Failure, Issue, Replace, Success
from stepwell.core.change import decide_change
from stepwell.core.codec import codec_of
from stepwell.core.outcome import Outcome
from stepwell.core.schema import StateSchema

T = TypeVar("T")


class Base(BaseModel):
    name: str = ""


class Sub(Base):
    extra: int = 0


class Bare(Base):
    """A subclass without fields of its own."""


@dataclass(frozen=True)
class Plain:
    name: str = ""


@dataclass(frozen=True)
class PlainSub(Plain):
    extra: int = 0


class Tone(enum.StrEnum):
    HIGH = "high"


class Rank(enum.IntEnum):
    FIRST = 1


class Text(str):
    __slots__ = ()


class Ratio(float):
    __slots__ = ()


class Pair(NamedTuple):
    left: int
    right: int


class Shape(TypedDict):
    sides: int


class Order(BaseModel):
    id: int
    payload: dict[str, Any] = {}
    anything: Any = None


class Held(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="null")
    data: bytes = b""
    ratio: float = 0.0


class Crate(BaseModel, Generic[T]):
    held: T


class Whole(BaseModel):
    """What it computes is not written, so it need not be read."""

    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.a * 2


@dataclass
class Late:
    a: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = self.a * 2


class Basket(BaseModel):
    items: list[Base] = []
    by_name: dict[str, Plain] = {}
    tone: str = ""
    rank: int = 0
    ratio: float = 0.0
    pair: tuple[int, int] = (0, 0)
    on: date = date(2024, 1, 1)


AT = datetime(2024, 1, 1, tzinfo=UTC)

# --- codecs -------------------------------------------------------------------

ALTERED: list[tuple[object, object, str]] = [
    (Base, Sub(extra=9), "it is a Sub, and its annotation says Base"),
    (Base, Bare(), "it is a Bare, and its annotation says Base"),
    (Plain, PlainSub(), "it is a PlainSub, and its annotation says Plain"),
    (list[Base], [Base(), Sub()], "it[1] is a Sub and would come back as a Base"),
    (dict[str, Plain], {"a": PlainSub()}, "it['a'] is a PlainSub and would come back as a Plain"),
    (frozenset[Plain], frozenset({PlainSub()}), "it holds PlainSub("),
    (Success[Base] | Failure[Plain], Success(Sub()), "it is a Sub, and its annotation says Base"),
    (Success[Base] | Failure[Plain], Failure(PlainSub()), "it is a PlainSub, and its annotation says Plain"),
    (list[Success[Base] | Failure[Plain]], [Success(Sub())], "it[0] is a Sub"),
    (Base | None, Sub(), "it is a Sub and would come back as a Base"),
    (str, Tone.HIGH, "it is a Tone, and its annotation says str"),
    (int, Rank.FIRST, "it is a Rank, and its annotation says int"),
    (tuple[int, int], Pair(1, 2), "it is a Pair, and its annotation says tuple"),
    (int, "7", "it is a str, and its annotation says int"),
    (int, "seven", "it is a str, and its annotation says int"),
    (date, datetime(2024, 1, 1), "it is a datetime, and its annotation says date"),
    (float, 2**53 + 1, "it is a int, and its annotation says float"),
    (Order, {"id": 1}, "it is a dict, and its annotation says Order"),
    (Order, {}, "it is a dict, and its annotation says Order"),
    (Order, Order(id=1).model_copy(update={"id": "x"}), "it does not fit its type: id: "),
    (Order, Order(id=1, payload={"at": AT}), "it.payload['at'] is a datetime"),
    (Order, Order(id=1, anything=(1,)), "it.anything is a tuple"),
    (Shape, {"sides": 4, "name": "square"}, "it has the key 'name', which its type does not know"),
    (Shape, {}, "it is a dict, and its annotation says Shape: sides: Field required"),
    (Sequence[int], (1, 2), "it is a tuple, and its annotation says collections.abc.Sequence[int]: it would"),
    (list[Crate[Base]], [Crate(held=Sub())], "it[0].held is a Sub and would come back as a Base"),
    (dict, {"when": AT}, "it['when'] is a datetime"),
    (dict, {5: "x"}, "it has the key 5"),
    (Mapping, {5: "x"}, "it has the key 5"),
    (Mapping, {"when": AT}, "it['when'] is a datetime"),
    (list, [[AT]], "it[0][0] is a datetime"),
    (tuple, (1, (2, 3)), "it[1] is a tuple"),
    (set, {(1, 2)}, "it does not fit its type: 0: Set items should be hashable"),
    (frozenset, frozenset({AT}), "it holds datetime"),
    (list[dict[str, object]], [{"a": (1,)}], "it[0]['a'] is a tuple"),
    (dict[str, Any], {"a": [Sub()]}, "it['a'][0] is a Sub"),
    (list[Any], [math.nan], "it"),
]


@pytest.mark.parametrize(("annotation", "value", "text"), ALTERED, ids=[str(at) for at in range(len(ALTERED))])
def test_what_would_come_back_as_something_else_is_refused(annotation: object, value: object, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        _ = codec_of(annotation).encode(value, "it")
    assert str(caught.value).startswith(text)
    assert "Pydantic" not in str(caught.value)


KEPT: list[tuple[object, object]] = [
    (float, 1),
    (int, True),
    (str, Text("x")),
    (float, Ratio(1.5)),
    (dict[str, int], OrderedDict(a=1)),
    (list[float], [1, 2]),
    (Plain, Plain("x")),
    (Sub | Base, Sub(extra=3)),
    (Whole, Whole(a=2)),
    (Crate[int], Crate(held=1)),
    (list[Crate[Base]], [Crate(held=Base())]),
    (Late, Late(2)),
    (Held, Held(data=b"\xff\x00", ratio=1)),
    (dict, {"a": [1, None, {"b": "c"}]}),
    (tuple, (1, "x", [None])),
    (set, {1, "x"}),
    (Mapping, {"a": 1}),
    (Sequence[int], [1, 2]),
    (Mapping[str, Shape], {"a": {"sides": 3}}),
]


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=[str(at) for at in range(len(KEPT))])
def test_what_comes_back_equal_is_taken(annotation: object, value: object) -> None:
    codec = codec_of(annotation)
    assert codec.decode(codec.encode(value, "it"), "it") == value


def test_a_float_of_a_model_with_a_configuration_of_its_own_comes_back() -> None:
    codec = codec_of(list[Held])
    for ratio in (math.nan, math.inf, -math.inf):
        value = [Held(ratio=ratio)]
        assert repr(codec.decode(codec.encode(value, "it"), "it")) == repr(value)


def test_what_cannot_be_written_is_named() -> None:
    for annotation, value, place in (
        (Base, Base(name="\ud800"), "it.name"),
        (dict[str, list[str]], {"a": ["", "\ud800"]}, "it['a'][1]"),
        (list[Any], [1, object()], "it[1]"),
    ):
        with pytest.raises(TypeError) as caught:
            _ = codec_of(annotation).encode(value, "it")
        assert str(caught.value).startswith(f"{place}, a ")


# --- stores -------------------------------------------------------------------

SCHEMA = StateSchema(Basket)
Change = Callable[[Basket], Replace[Basket] | None]


def changed(updater: Change) -> Outcome[object, tuple[Issue, ...]]:
    valid = SCHEMA.validate(Basket()).unwrap()
    return decide_change(SCHEMA, valid.state, updater)


def set_(name: str, value: object) -> Change:
    return lambda basket: setattr(basket, name, value)


def append_sub(basket: Basket) -> None:
    basket.items.append(Sub(extra=9))


def replace_with_sub(basket: Basket) -> Replace[Basket]:
    return Replace(Basket(items=[Base(), Sub(extra=9)]))


REFUSED: list[tuple[Change, tuple[str | int, ...], str, str]] = [
    (append_sub, ("items", 0), "Sub", "Base"),
    (replace_with_sub, ("items", 1), "Sub", "Base"),
    (set_("items", [Bare()]), ("items", 0), "Bare", "Base"),
    (set_("by_name", {"a": PlainSub()}), ("by_name", "a"), "PlainSub", "Plain"),
    (set_("tone", Tone.HIGH), ("tone",), "Tone", "str"),
    (set_("rank", Rank.FIRST), ("rank",), "Rank", "int"),
    (set_("pair", Pair(1, 2)), ("pair",), "Pair", "tuple"),
    (set_("on", datetime(2024, 1, 1)), ("on",), "datetime", "date"),
]


@pytest.mark.parametrize(("updater", "path", "given", "kept"), REFUSED, ids=[str(at) for at in range(len(REFUSED))])
def test_a_store_refuses_what_it_would_keep_as_its_base(
    updater: Change, path: tuple[str | int, ...], given: str, kept: str
) -> None:
    outcome = changed(updater)
    assert isinstance(outcome, Failure)
    (issue,) = outcome.failure()
    assert issue.path == path
    assert f"a {given} cannot stand for a {kept}" in issue.message


def test_a_store_refuses_a_subclass_in_what_it_is_made_from() -> None:
    for initial in (Basket(items=[Sub()]), {"items": [Sub()]}):
        outcome = SCHEMA.validate(initial)
        assert isinstance(outcome, Failure)
        (issue,) = outcome.failure()
        assert issue.path == ("items", 0)
        assert "extra" in issue.message


def test_a_store_takes_values_that_are_equal() -> None:
    for name, value in (("rank", True), ("ratio", 1), ("tone", Text("x")), ("ratio", Ratio(1.5))):
        assert isinstance(changed(set_(name, value)), Success)


def test_a_store_refuses_a_key_that_its_typed_dict_does_not_declare() -> None:
    class Before(TypedDict):
        sides: int
        colour: str

    def add(shapes: list[Shape]) -> None:
        untyped: Any = shapes[0]
        untyped["name"] = "square"

    schema = StateSchema(list[Shape])
    valid = schema.validate([{"sides": 4}]).unwrap()
    outcome = decide_change(schema, valid.state, add)
    assert [issue.path for issue in outcome.failure()] == [(0, "name")]
    assert isinstance(schema.validate([{"sides": 4, "name": "square"}]), Failure)
    written = StateSchema(list[Before]).validate([{"sides": 4, "colour": "red"}]).unwrap()
    assert schema.decode(written.json) == Success([{"sides": 4}])  # a key that was declared once may be read
