"""Types that choose: unions, literals, enumerations; and the atoms that JSON writes as text or numbers."""

# pyright: standard
# A discriminator takes anything.

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, Discriminator, Field, RootModel, Tag, field_validator, model_validator

from .family import Family

_T = TypeVar("_T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9
    toys: list[str] = []


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []
    lives: str = "1"


class Big(BaseModel):
    width: int
    note: str = "n"


class Pair(BaseModel, Generic[_T]):
    one: _T
    more: list[_T] = []


class Names(RootModel[list[str]]):
    pass


class Sorted(RootModel[list[int]]):
    @field_validator("root")
    @classmethod
    def order(cls, value: list[int]) -> list[int]:
        return sorted(value)


class Bounded(RootModel[dict[str, int]]):
    @model_validator(mode="after")
    def bound(self) -> Bounded:
        if sum(self.root.values()) > 20:
            raise ValueError("more than 20 in all")
        return self


class Outer(RootModel[Bounded]):
    pass


def tag_of(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "c" if kind == "cat" else "d"


class Choices(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    tagged: dict[str, Annotated[Annotated[Cat, Tag("c")] | Annotated[Dog, Tag("d")], Discriminator(tag_of)]] = {}
    smart: Big | list[int] | int = 1
    either: int | str | None = 1
    mixed: list[int | float | bool] = []
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    step: Literal["a", "b", 3] = "a"
    day: dt.date = dt.date(2026, 1, 1)
    at: dt.datetime | None = None
    clock: dt.time = dt.time(1, 2)
    span: dt.timedelta = dt.timedelta(seconds=1)
    price: Decimal = Decimal("1.50")
    precise: Annotated[Decimal, Field(max_digits=5, decimal_places=2)] = Decimal("1.5")
    raw: bytes = b"ab"
    id: uuid.UUID = uuid.UUID(int=7)
    names: Names = Names(["a"])
    order: Sorted = Sorted([1, 2])
    bounded: Bounded = Bounded({"a": 1})
    outer: Outer = Outer(Bounded({"a": 1}))
    pair: Pair[int] = Pair[int](one=1)
    pairs: dict[str, Pair[Colour]] = {}


def full() -> Choices:
    return Choices(
        pet=Dog(tricks=["sit"]),
        pets=[Cat(toys=["ball"]), Dog()],
        tagged={"a": Cat(), "b": Dog(tricks=["roll"])},
        smart=Big(width=2),
        either="text",
        mixed=[1, 2.5, True],
        colour=Colour.BLUE,
        level=Level.HIGH,
        step=3,
        at=dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC),
        price=Decimal("-0.00"),
        names=Names(["a", "b"]),
        order=Sorted([3, 1]),
        bounded=Bounded({"a": 9, "b": 9}),
        pair=Pair[int](one=2, more=[1, 2]),
        pairs={"a": Pair[Colour](one=Colour.RED, more=[Colour.BLUE])},
    )


FAMILY = Family(
    "choices",
    Choices,
    (Choices, full),
    {
        "pet": ({"kind": "cat"}, {"kind": "dog", "tricks": ["a"]}, {"kind": "fox"}, Cat(), Dog()),
        "kind": ("cat", "dog"),
        "lives": (3, "3", "many"),
        "smart": ({"width": 3}, {"width": 3, "note": "m"}, {"wide": 3}, [1], 4, Big(width=5)),
        "either": ("1", 1, True, 1.0, Level.HIGH, Colour.RED),
        "colour": ("blue", "green", Colour.BLUE, Level.LOW),
        "level": (2, 3, "1", Level.HIGH),
        "step": ("b", "3", 3, "c"),
        "day": ("2026-02-03", dt.datetime(2026, 1, 1), dt.date(2025, 5, 5), 0),
        "at": ("2026-02-03T04:05:06Z", dt.datetime(2026, 2, 3), 12345),
        "span": (5, "PT3S", dt.timedelta(days=1)),
        "price": ("1.5", 2, 2.5, Decimal("1.500"), Decimal("NaN")),
        "precise": ("1.234", "123456", Decimal("3.25")),
        "raw": ("text", b"\x00", "YWI="),
        "id": (str(uuid.UUID(int=8)), uuid.UUID(int=9), b"0" * 16),
        "names": (["q"], Names(["r"])),
        "order": ([3, 2, 1], Sorted([5])),
        "bounded": ({"a": 30}, Bounded({"b": 2})),
        "one": (1, "2", Colour.RED, "red"),
    },
    ("a", "b", "c"),
    0.5,
)

ROOT = Family(
    "RootModel at the root",
    Outer,
    (lambda: Outer(Bounded({})), lambda: Outer(Bounded({"a": 5, "b": 6}))),
    {"*": (1, 5, 19, "3")},
    ("a", "b", "c"),
    0.3,
)
