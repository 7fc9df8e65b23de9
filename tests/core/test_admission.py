"""Admission: which types can be stored, and what a refusal says."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import pathlib
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import pydantic
import pydantic.dataclasses
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SecretBytes,
    SecretStr,
    field_serializer,
    model_serializer,
)

from stepwell.core.admission import admit
from stepwell.core.schema import StateSchema
from stepwell.core.value import same

V = TypeVar("V")


class Colour(enum.Enum):
    RED = "red"


class Rank(enum.Enum):
    FIRST = 1


class Size(enum.Enum):
    BIG = "big"


class Tone(enum.StrEnum):
    LOW = "low"


class Deferred(BaseModel):
    model_config = ConfigDict(defer_build=True)
    x: int = 0


class Item(BaseModel):
    id: int
    tags: list[str] = []


class Tree(BaseModel):
    children: list[Tree] = []


class Items(RootModel[list[Item]]):
    pass


class Box(BaseModel, Generic[V]):
    value: V


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]  # pyright: ignore[reportIncompatibleVariableOverride]  # as pydantic says


class WithPrivate(BaseModel):
    _cache: dict[str, int] = PrivateAttr()
    x: int = 0


@dataclasses.dataclass
class Point:
    x: int
    next: Point | None = None


class Message(TypedDict, total=False):
    id: Required[str]
    at: NotRequired[dt.datetime]


class Place(NamedTuple):
    name: str
    at: tuple[float, float]


@pytest.mark.parametrize(
    "type_",
    [
        *(int, str, float, bool, None, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, uuid.UUID),
        *(pathlib.Path, Colour, JsonValue, int | None, int | float, Literal["a", 1], Literal["a"] | str, Colour | Size),
        *(list[int], dict[str, int], set[str], frozenset[int], tuple[int, ...], tuple[int, str], set[tuple[int, str]]),
        *(dict[str, JsonValue], dict[str, list[dict[str, Item]]], list[int] | dict[str, int], dt.date | int | None),
        *(Item, Tree, Items, Box[int], Box[list[Item]], Cat | Dog, Open, WithPrivate, Point, Message, Place),
        *(Annotated[Cat | Dog, Field(discriminator="kind")], Annotated[int, Field(gt=0), AfterValidator(abs)]),
        *(pydantic.AwareDatetime, pydantic.NaiveDatetime, pydantic.PastDatetime, pydantic.PastDate | None),
        *(Literal[Tone.LOW], Deferred),
    ],
    ids=str,
)
def test_types_whose_json_is_read_back_are_admitted(type_: object) -> None:
    assert admit(type_) == {str}


def test_declared_keys_that_are_not_text_are_told() -> None:
    assert admit(dict[int, dict[Colour, int]]) == {str, int, Colour}
    assert admit(dict[uuid.UUID, dict[dt.date, int]]) == {str, uuid.UUID, dt.date}


class Unknown:
    pass


class HasSecret(BaseModel):
    token: SecretStr


class Nested(BaseModel):
    parts: list[HasSecret]


class HasSecretBytes(BaseModel):
    key: SecretBytes | None


class HasExcluded(BaseModel):
    hidden: int = Field(exclude=True)


class HasPrivate(BaseModel):
    _count: int = 0


class HasPrivateFactory(BaseModel):
    _seen: list[int] = PrivateAttr(default_factory=list)


class HasAny(BaseModel):
    anything: Any


class HasUnknown(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    thing: Unknown


class HasCallable(BaseModel):
    call: Callable[[int], int]


class HasFieldSerializer(BaseModel):
    at: int

    @field_serializer("at")
    def _write(self, value: int) -> str:
        return str(value)


class HasModelSerializer(BaseModel):
    at: int

    @model_serializer
    def write(self) -> int:
        return self.at


class HasAnnotatedSerializer(BaseModel):
    at: Annotated[int, PlainSerializer(str)]


class HasOpenExtras(BaseModel):
    model_config = ConfigDict(extra="allow")


class HasUnion(BaseModel):
    when: str | dt.datetime


@dataclasses.dataclass
class HasComputed:
    x: int
    y: int = dataclasses.field(init=False, default=1)


@dataclasses.dataclass
class HasInitVar:
    x: dataclasses.InitVar[int]


class HasUnknownName(BaseModel):
    x: list[Nowhere]  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable]  # noqa: F821


class HasLiteralMember(BaseModel):
    colour: Literal[Colour.RED] = Colour.RED


@dataclasses.dataclass
class Pair(Generic[V]):
    one: V
    other: V


@pydantic.dataclasses.dataclass(config=ConfigDict(extra="allow"))
class OpenPoint:
    x: int


class A(BaseModel):
    x: int


class B(BaseModel):
    x: int
    y: int = 0


class OwnSchema(BaseModel):
    x: int

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler(source)


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        pytest.param(HasSecret, "HasSecret.token: SecretStr cannot be stored", id="S148-secret"),
        pytest.param(Nested, "Nested.parts[].token: SecretStr cannot be stored", id="S148-nested"),
        pytest.param(HasSecretBytes, "HasSecretBytes.key: SecretBytes", id="S148-secret-bytes"),
        pytest.param(
            HasExcluded, "HasExcluded.hidden: this field cannot be stored: it is excluded", id="S148-excluded"
        ),
        pytest.param(HasPrivate, "HasPrivate._count", id="S148-private"),
        pytest.param(HasPrivateFactory, "HasPrivateFactory._seen", id="S148-private-factory"),
        pytest.param(HasAny, "HasAny.anything: Any cannot be stored: use JsonValue", id="S148-any"),
        pytest.param(HasUnknown, "HasUnknown.thing: Unknown cannot be stored", id="S148-unknown"),
        pytest.param(HasCallable, "HasCallable.call: Callable", id="callable"),
        pytest.param(
            HasFieldSerializer, "HasFieldSerializer.at: at cannot be stored: it has a serializer", id="serializer"
        ),
        pytest.param(HasModelSerializer, "HasModelSerializer.write", id="model-serializer"),
        pytest.param(HasAnnotatedSerializer, "HasAnnotatedSerializer.at: PlainSerializer", id="annotated-serializer"),
        pytest.param(HasOpenExtras, "HasOpenExtras.__pydantic_extra__", id="extras"),
        pytest.param(HasUnion, "HasUnion.when: the union of str and datetime", id="union"),
        pytest.param(HasComputed, "HasComputed.y: this field cannot be stored: init=False", id="computed"),
        pytest.param(HasInitVar, "HasInitVar.x", id="init-var"),
        pytest.param(OwnSchema, "OwnSchema: OwnSchema cannot be stored: its own core schema", id="own-schema"),
        pytest.param(OpenPoint, "OpenPoint cannot be stored: a dataclass does not write", id="open-dataclass"),
        pytest.param(HasLiteralMember, "HasLiteralMember.colour: the literal <Colour.RED", id="literal-member"),
        pytest.param(Literal[b"a"], "the literal b'a'", id="literal-bytes"),
        pytest.param(HasUnknownName, "HasUnknownName.x: ForwardRef", id="unknown-name"),
        pytest.param(
            pydantic.FutureDate, "FutureDate: FutureDate cannot be stored: what is in the future", id="future"
        ),
        pytest.param(Box, "Box.value: the type variable ~V", id="type-variable"),
        pytest.param(Pair[int], "Pair cannot be stored: its type variables", id="generic-dataclass"),
        pytest.param(dict[str, Any], "dict[]: Any", id="any-in-a-dict"),
        pytest.param(dict[str, Any], "JSON holds: dict[str, JsonValue]; or", id="what-instead-in-a-dict"),
        pytest.param(dict[str, list[Any]], "dict[][]: Any cannot be stored: use JsonValue", id="any-in-a-list"),
        pytest.param(
            dict[str, list[Any]], ": list[JsonValue]; or name the type, as in list[str]", id="instead-in-a-list"
        ),
        pytest.param(tuple[object, ...], ": tuple[JsonValue, ...]; or", id="instead-in-a-tuple"),
        pytest.param(tuple[int, list[int], Any], ": tuple[int, list[int], JsonValue]; or", id="instead-beside-others"),
        pytest.param(set[Any], "set[]: Any cannot be stored: name the type, as in set[str]", id="any-in-a-set"),
        pytest.param(list[int] | set[int], "look alike in JSON", id="list-or-set"),
        pytest.param(list[int] | tuple[int, ...], "look alike in JSON", id="list-or-tuple"),
        pytest.param(list[str] | list[dt.date], "look alike in JSON", id="lists-of-texts"),
        pytest.param(A | B, "A and B look alike", id="models"),
        pytest.param(A | dict[str, int], "look alike", id="model-or-dict"),
        pytest.param(Colour | str, "look alike", id="enum-or-text"),
        pytest.param(bytes | str, "look alike", id="bytes-or-text"),
        pytest.param(JsonValue | dt.date, "look alike", id="json-or-date"),
        pytest.param(dict[int | str, int], "keys of int | str", id="keys-of-two-types"),
        pytest.param(dict[Rank, int], "keys of Rank", id="keys-of-numbers-by-name"),
        pytest.param(dict[float, int], "keys of float", id="keys-of-floats"),
        pytest.param(set[A], "must not be changeable", id="set-of-models"),
        pytest.param(pydantic.Json[int], "Json cannot be stored", id="json"),
        *(
            pytest.param(type_, "use list, dict, set or tuple", id=str(type_))
            for type_ in (Sequence[int], Mapping[str, int], collections.deque[int], collections.OrderedDict[str, int])
        ),
        *(
            pytest.param(type_, f"{name}: {name} cannot be stored", id=name)
            for type_, name in ((list, "list"), (dict, "dict"), (object, "object"), (Any, "Any"), (complex, "complex"))
        ),
    ],
)
def test_s148_a_type_that_cannot_be_stored_is_refused_with_the_field(type_: object, says: str) -> None:
    with pytest.raises(TypeError) as refused:
        admit(type_)
    assert says in str(refused.value)


def _by_statement(text: str) -> Any:
    """What a `type` statement makes, which Python knows from 3.12 on."""
    names: dict[str, Any] = {}
    exec(text, names)
    return names["Name"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is of Python 3.12")
def test_a_type_may_be_named_in_itself() -> None:
    tree = _by_statement("type Name = dict[str, Name] | list[Name] | int")
    assert admit(tree) == {str}
    state = {"a": [{"b": 1}, 2]}
    assert same(StateSchema(tree).validate(state).unwrap().state, state)
    with pytest.raises(TypeError, match="stands for itself"):
        admit(_by_statement("type Name = Name | int"))
    with pytest.raises(TypeError, match="look alike"):
        admit(_by_statement("type Name = dict[str, Name] | set[int] | list[int]"))


def test_a_model_may_be_built_later() -> None:
    assert StateSchema(Deferred).validate({"x": 1}).unwrap().state == Deferred(x=1)


def test_what_pydantic_cannot_compile_is_a_type_error() -> None:
    torn = enum.Enum("torn", {"A": "\ud800"})
    with pytest.raises(TypeError, match="torn"):
        StateSchema(torn)


def test_encoders_of_a_model_are_refused_like_serializers() -> None:
    with pytest.warns(DeprecationWarning, match="json_encoders"):
        type_ = pydantic.create_model("Timed", __config__=ConfigDict(json_encoders={dt.date: str}), at=dt.date)
    with pytest.raises(TypeError, match="Timed cannot be stored: its json_encoders"):
        admit(type_)


@pytest.mark.parametrize("value", [[int], {"a": int}, {int}])
def test_a_value_in_place_of_a_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be stored: it is a value and no type; write list\[int\]"):
        admit(value)


@dataclasses.dataclass
class Shadowed:
    id: int
    name: str = ""


@dataclasses.dataclass
class Slotted:
    __slots__ = ("id",)
    id: int


@dataclasses.dataclass(slots=True, frozen=True)
class Slim:
    id: int = 3


class Upper:
    def __get__(self, obj: object, owner: object = None) -> str:
        return "A"

    def __set__(self, obj: object, value: object) -> None:
        pass


@dataclasses.dataclass
class Described:
    name: Upper = Upper()


def test_a_field_that_is_a_property_is_refused_before_it_can_run() -> None:
    admit(Shadowed)
    ran: list[object] = []
    Shadowed.name = property(ran.append)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    for type_ in (Shadowed, list[Shadowed], dict[str, Described]):
        with pytest.raises(TypeError, match=r"\.name: name cannot be stored: a property or descriptor stands for it"):
            admit(type_)
    assert ran == []
    admit(Slotted)
    admit(Slim)
