"""The fingerprint of a type changes with what decides how its documents are read, and with nothing else."""

from __future__ import annotations

import datetime
import decimal
import enum
import pathlib
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Generic, Literal, NamedTuple, NotRequired, TypeVar

import annotated_types
import pytest
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from stepwell.core.core_schema import compile_schema
from stepwell.core.fingerprint import fingerprint

_T = TypeVar("_T")


def fingerprint_of(type_: object) -> str:
    return fingerprint(compile_schema(type_, finite=True).schema)


def upper(text: str) -> str:
    return text.upper()


def lower(text: str) -> str:
    return text.lower()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)
    tags: set[str] = {"new", "hot", "cold"}

    @field_validator("sku")
    @classmethod
    def check_sku(cls, sku: str) -> str:
        return sku


class Basket(BaseModel):
    lines: list[Line] = []
    first: Line = Line(sku="tea")
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] | None = None


class Tree(BaseModel):
    value: int = 0
    children: list[Tree] = []


@dataclass
class Counter:
    by_day: dict[datetime.date, int] = field(default_factory=dict[datetime.date, int])
    price: decimal.Decimal = decimal.Decimal("1.50")


class Setting(TypedDict):
    colour: str
    path: NotRequired[pathlib.PurePath]


class PlainSetting(typing.TypedDict):
    colour: str
    path: NotRequired[pathlib.PurePath]


class Point(NamedTuple):
    x: int
    y: int = 0


class Cat(BaseModel):
    sort: Literal["cat"] = "cat"


class Dog(BaseModel):
    sort: Literal["dog"] = "dog"
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="sort")]


class Numbers(RootModel[list[int]]):
    pass


PINNED: dict[str, tuple[object, str]] = {
    "basket": (Basket, "3bab21d02858ff37"),
    "tree": (Tree, "01fa347c6c1e6d4d"),
    "counter": (Counter, "73eaec843cda2cd6"),
    "setting": (Setting, "3874318338e0eff9"),
    "point": (Point, "24a7d3e62a767d04"),
    "pets": (dict[str, Pet], "b593b072d8fbcc81"),
    "numbers": (Numbers, "1a6c324a469546b1"),
    "json": (dict[str, JsonValue], "250c6dd47a9d9716"),
    "ids": (dict[uuid.UUID, tuple[bytes, datetime.timedelta]], "ce6f6ba99992e37f"),
    "text": (Annotated[str, BeforeValidator(upper), Field(max_length=9)], "cfd5fa59e50ed336"),
}


@pytest.mark.parametrize("name", PINNED)
def test_fingerprints_stay_what_they_were(name: str) -> None:
    """On every Python and in every process. If an upgrade of pydantic changes one, that is harmless; see it is that."""
    type_, pinned = PINNED[name]
    assert fingerprint_of(type_) == pinned


# --- what changes nothing -----------------------------------------------------------


def a_model() -> type[BaseModel]:
    class Order(BaseModel):
        status: str = "new"
        total: int = Field(default=0, ge=0)

        @field_validator("status")
        @classmethod
        def check_status(cls, status: str) -> str:
            return status

    return Order


def the_same_renamed() -> type[BaseModel]:
    class Purchase(BaseModel):
        """Another name, words about it, titles, another order of the fields."""

        model_config = ConfigDict(title="A purchase", frozen=True)
        total: int = Field(default=0, ge=0, title="Total", description="in cents")
        status: str = Field(default="new", examples=["new"], alias="state")

        @field_validator("status")
        @classmethod
        def check_status(cls, status: str) -> str:
            """It has words too."""
            return status

    return Purchase


def the_same_written_otherwise() -> type[BaseModel]:
    class Order(BaseModel):
        status: str = "new"
        total: int = Field(default=0, ge=0)

        @field_validator("status")
        @classmethod
        def check_status(cls, status: str) -> str:
            return status

        @field_serializer("status")
        def write_status(self, status: str) -> str:
            return status

        @computed_field
        def double(self) -> int:
            return 2

    return Order


@pytest.mark.parametrize("other", [the_same_renamed, the_same_written_otherwise])
def test_names_and_words_and_writing_change_nothing(other: Callable[[], type[BaseModel]]) -> None:
    assert fingerprint_of(other()) == fingerprint_of(a_model())


def test_where_a_class_stands_changes_nothing() -> None:
    def local() -> type[object]:
        @dataclass
        class Elsewhere:
            price: decimal.Decimal = decimal.Decimal("1.50")
            by_day: dict[datetime.date, int] = field(default_factory=dict[datetime.date, int])

        return Elsewhere

    assert fingerprint_of(local()) == fingerprint_of(Counter)


def test_which_typed_dict_it_is_changes_nothing() -> None:
    """Until Python 3.12 that of typing is rebuilt, so one database has one form on every Python."""
    assert fingerprint_of(PlainSetting) == fingerprint_of(Setting)
    assert fingerprint_of(dict[str, list[PlainSetting]]) == fingerprint_of(dict[str, list[Setting]])


def test_the_name_of_a_recursive_class_changes_nothing() -> None:
    class Box(BaseModel, Generic[_T]):
        value: int = 0
        children: list[_T] = []

    class Branch(BaseModel):
        value: int = 0
        children: list[Branch] = []

    Branch.model_rebuild(_types_namespace={"Branch": Branch})
    assert fingerprint_of(Branch) == fingerprint_of(Tree)
    assert fingerprint_of(Box[Tree]) != fingerprint_of(Tree), "one level more, without an end, is another structure"


# --- what changes it ----------------------------------------------------------------


class N0(BaseModel):
    n: int = 0


class N1(BaseModel):
    n: int = 1


class NRequired(BaseModel):
    n: int


class NFalse(BaseModel):
    n: bool = False


class NNone(BaseModel):
    n: bool | None = None


class NFalseOrNone(BaseModel):
    n: bool | None = False


class NStrict(BaseModel):
    model_config = ConfigDict(strict=True)
    n: int = 0


class NForbids(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int = 0


class NKeeps(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class NOther(BaseModel):
    m: int = 0


class NMore(BaseModel):
    n: int = 0
    m: int = 0


class NChecked(BaseModel):
    n: int = 0

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        return n


class NCheckedAgain(BaseModel):
    n: int = 0

    @field_validator("n")
    @classmethod
    def check_again(cls, n: int) -> int:
        return n


class NChecksFirst(BaseModel):
    n: int = 0

    @field_validator("n", mode="before")
    @classmethod
    def check(cls, n: int) -> int:
        return n


class NWhole(BaseModel):
    n: int = 0

    @model_validator(mode="after")
    def check(self) -> NWhole:
        return self


class NType(BaseModel):
    type: int = 0


class NTitle(BaseModel):
    title: int = 0


class NMetadata(BaseModel):
    metadata: int = 0


class OneColour(enum.Enum):
    RED = "red"


DIFFERENT: list[object] = [
    *(N0, N1, NRequired, NFalse, NNone, NFalseOrNone, NStrict, NForbids, NKeeps, NOther, NMore),
    *(NChecked, NCheckedAgain, NChecksFirst, NWhole, NType, NTitle, NMetadata),
    *(int, str, float, bool, bytes, decimal.Decimal, uuid.UUID, datetime.date, datetime.datetime, Colour, OneColour),
    *(list[int], list[str], set[int], frozenset[int], dict[str, int], dict[int, int], dict[str, str]),
    *(tuple[int, ...], tuple[int], tuple[int, int], list[N0], list[N1], int | None, int | str, str | None),
    *(Literal["a"], Literal["a", "b"], Literal[1], Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)]),
    *(Annotated[int, Field(ge=1)], Annotated[str, Field(max_length=3)], Annotated[str, Field(pattern="a")]),
    *(Annotated[list[int], annotated_types.Len(1, 2)], Annotated[str, BeforeValidator(upper)]),
    *(Annotated[str, BeforeValidator(lower)], Tree, Basket, Line, Counter, Setting, Point, Pet, Cat, Dog, Numbers),
]


def test_whatever_decides_how_a_document_is_read_changes_it() -> None:
    found: dict[str, object] = {}
    for type_ in DIFFERENT:
        other = found.setdefault(fingerprint_of(type_), type_)
        assert other is type_, f"{other} and {type_} have one fingerprint"
    assert len(found) == len(DIFFERENT)
