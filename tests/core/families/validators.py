"""Validators in every place where pydantic takes one, and whatever else a class does when an object is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    computed_field,
    field_validator,
    model_validator,
)

from .family import Family


def only_even(value: int) -> int:
    if value % 2:
        raise ValueError("not even")
    return value


def or_nothing(value: int, handler: ValidatorFunctionWrapHandler) -> int:
    try:
        made = handler(value)
    except ValueError:
        return 0
    assert isinstance(made, int)
    return made


def small(values: list[int]) -> list[int]:
    assert sum(values) < 50, "too much in all"
    return values


def text_of(value: object) -> object:
    return str(value) if isinstance(value, int) else value


class Fields(BaseModel):
    low: int = 0
    high: int = 10
    name: str = "n"
    any_number: Annotated[str, BeforeValidator(text_of)] = "1"
    even: Annotated[int, AfterValidator(only_even)] = 2
    near: Annotated[int, WrapValidator(or_nothing)] = 1
    numbers: Annotated[list[int], AfterValidator(small)] = []
    evens: list[Annotated[int, AfterValidator(only_even)]] = []
    tags: list[str] = []

    @field_validator("high")
    @classmethod
    def above(cls, value: int, info: ValidationInfo) -> int:
        if "low" in info.data and value < info.data["low"]:
            raise ValueError("high is below low")
        return value

    @field_validator("name", mode="before")
    @classmethod
    def named(cls, value: object) -> object:
        return value.strip() if isinstance(value, str) else value

    @field_validator("tags", mode="after")
    @classmethod
    def unique(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))


class Total(BaseModel):
    """It writes a derived field."""

    count: int = 1
    price: int = 2
    total: int = 0
    note: str = ""

    @model_validator(mode="after")
    def sum_up(self) -> Total:
        self.total = self.count * self.price
        return self


class Limit(BaseModel):
    """It only looks, at what is deep beneath it."""

    most: int = 20
    totals: list[Total] = []
    by: dict[str, int] = {}

    @model_validator(mode="after")
    def limit(self) -> Limit:
        if sum(each.count for each in self.totals) + sum(self.by.values()) > self.most:
            raise ValueError("more than the most")
        return self


class Other(BaseModel):
    """It gives another object back."""

    x: int = 1
    y: int = 1

    @model_validator(mode="after")
    def other(self) -> Other:
        return self if self.x <= 5 else self.model_copy(update={"x": 5})


class Before(BaseModel):
    x: int = 1
    ys: list[int] = []

    @model_validator(mode="before")
    @classmethod
    def take_text(cls, value: object) -> object:
        return {"x": value} if isinstance(value, str) else value


class Wrapped(BaseModel):
    x: int = 1
    y: int = 1

    @model_validator(mode="wrap")
    @classmethod
    def wrap(cls, value: object, handler: Callable[[object], Wrapped]) -> Wrapped:
        made = handler(value)
        if made.x > made.y + 10:
            raise ValueError("x is far above y")
        return made


class Informed(BaseModel):
    x: int = 1
    y: int = 1

    @model_validator(mode="after")
    def look(self, info: ValidationInfo) -> Informed:
        if self.x == 3 and info.context is None:
            raise ValueError("three without a context")
        return self


class Twice(BaseModel):
    """Two validators, of which the second one sees what the first one wrote, and a computed field."""

    a: int = 1
    b: int = 2
    c: list[int] = []

    @model_validator(mode="after")
    def first(self) -> Twice:
        self.b = self.a + 1
        return self

    @model_validator(mode="after")
    def second(self) -> Twice:
        if self.b > 9:
            raise ValueError("b is too big")
        return self

    @computed_field  # type: ignore[prop-decorator]  # as pydantic says
    @property
    def double(self) -> int:
        return self.a * 2


class Inited(BaseModel):
    x: int = 1
    y: int = 0

    def model_post_init(self, _context: object) -> None:
        self.y = self.x * 2


@dataclasses.dataclass
class PostInit:
    x: int = 1
    y: int = 0

    def __post_init__(self) -> None:
        self.y = self.x + 1


class Custom(BaseModel):
    x: int = 1
    ys: list[int] = []

    def __init__(self, **data: object) -> None:
        super().__init__(**data)
        if self.x > 50:
            raise ValueError("x is above 50")


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    a_name: int = Field(default=1, alias="aName")
    b_name: int = Field(default=1, validation_alias=AliasChoices("bName", "b"))
    c_name: list[int] = Field(default=[], serialization_alias="cName")


class Inner(RootModel[list[int]]):
    @model_validator(mode="after")
    def short(self) -> Inner:
        if len(getattr(self.root, "root", self.root)) > 2:
            raise ValueError("more than two")
        return self


class Outer(RootModel[Inner]):
    """A RootModel of a RootModel, each with a validator of its own: they have one path, and are two records."""

    @model_validator(mode="after")
    def ends(self) -> Outer:
        if self.root.root and self.root.root[-1] > 8:
            raise ValueError("the last one is above 8")
        return self


class Typed(RootModel[Total]):
    @model_validator(mode="after")
    def cheap(self) -> Typed:
        if self.root.price > 8:
            raise ValueError("too dear")
        return self


def first_is_least(value: Limit) -> Limit:
    if value.totals and value.totals[0].count > 4:
        raise ValueError("the first is above four")
    return value


class Validators(BaseModel):
    informed: Informed = Informed()  # its validator sees the fields before it
    fields: Fields = Fields()
    total: Total = Total()
    totals: list[Total] = []
    limit: Limit = Limit()
    noted: Annotated[Limit, AfterValidator(first_is_least)] = Limit()
    other: Other = Other()
    before: Before = Before()
    wrapped: Wrapped = Wrapped()
    twice: Twice = Twice()
    inited: Inited = Inited()
    post_init: PostInit = Field(default_factory=PostInit)
    custom: Custom = Field(default_factory=Custom)
    aliased: Aliased = Field(default_factory=Aliased)
    inner: Inner = Inner([])
    outer: Outer = Outer(Inner([]))
    typed: Typed = Typed(Total())
    free: int = 1

    @model_validator(mode="after")
    def all_of_it(self) -> Validators:
        if self.free == self.limit.most:
            raise ValueError("free is the most")
        return self


def full() -> Validators:
    return Validators(
        fields=Fields(evens=[2, 4], numbers=[1, 2], tags=["a", "b"]),
        totals=[Total(count=2), Total()],
        limit=Limit(totals=[Total(), Total(count=3)], by={"a": 1}),
        noted=Limit(totals=[Total()], most=9),
        twice=Twice(c=[1]),
        before=Before(ys=[1]),
        custom=Custom(ys=[1]),
        inner=Inner([1]),
        outer=Outer(Inner([1, 2])),
    )


NUMBERS = (0, 1, 2, 3, 4, 5, 7, 9, 12, 60, "3", 4.0)

FAMILY = Family(
    "validators",
    Validators,
    (Validators, full),
    {
        **dict.fromkeys(("low", "high", "even", "near", "count", "price", "most", "x", "y", "a", "free", "*"), NUMBERS),
        **dict.fromkeys(("a_name", "b_name", "total", "b"), NUMBERS),
        "any_number": (5, "6"),
        "name": (" n ", "m", 3),
        "tags": (["a", "a"], ["b"]),
        "before": ("7", {"x": 3}, Before(x=2)),
        "numbers": ([49], [1, 2], ["3"]),
        "other": ({"x": 9}, Other(x=1, y=2)),
        "totals": ([Total(count=30)], [{"count": 2}]),
        "outer": ([1], [1, 9], [1, 2, 3], Outer(Inner([4]))),
        "aliased": ({"aName": 3}, {"a_name": 4}, {"b": 3}),
    },
    ("a", "b"),
    0.4,
)
