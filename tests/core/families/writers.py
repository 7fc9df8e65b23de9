"""Validators of mode "after" that write: far beneath, in lists and dicts, into one another, a copy, too much."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .family import Family


class Line(BaseModel):
    count: int = 1
    price: int = 2
    total: int = 2
    rank: int = 0

    @model_validator(mode="after")
    def sum_up(self) -> Line:
        self.total = self.count * self.price
        return self


class Ranked(BaseModel):
    """It writes into each of its lines, whose own validator has run before, and may make that one write again."""

    lines: list[Line] = []
    sum: int = 0
    most: int = 9

    @model_validator(mode="after")
    def rank(self) -> Ranked:
        for at, line in enumerate(self.lines):
            if line.rank != at:
                line.rank = at
            if line.count > self.most:
                line.count = self.most  # its total is wrong then: it is read back as another
        self.sum = sum(line.total for line in self.lines)
        return self


class Kept(BaseModel):
    """It keeps the last ones of a list, which shifts all others, and counts what it has seen go."""

    most: int = Field(default=3, ge=0)
    values: list[int] = []
    lines: list[Line] = []
    gone: int = 0

    @model_validator(mode="after")
    def trim(self) -> Kept:
        while len(self.values) > self.most:
            self.values.pop(0)
            self.gone += 1
        del self.lines[: -self.most or None]
        return self


class Ordered(BaseModel):
    """It puts a list and the keys of a dict in order."""

    values: list[int] = []
    by: dict[str, int] = {}
    index: dict[str, int] = {}

    @model_validator(mode="after")
    def order(self) -> Ordered:
        self.values.sort()
        for key in sorted(self.by):
            if key != sorted(self.by)[-1] or list(self.by) != sorted(self.by):
                self.by[key] = self.by.pop(key)
        self.index = {f"v{value}": at for at, value in enumerate(self.values)}
        return self


class Copied(BaseModel):
    """It gives a copy back, whatever it finds."""

    x: int = 1
    values: list[int] = []

    @model_validator(mode="after")
    def copied(self) -> Copied:
        return self.model_copy(update={"x": min(self.x, 5)})


class Unsteady(BaseModel):
    """It writes anew at each look above three, and text in place of a number at seven."""

    x: int = 1
    y: int = 1

    @model_validator(mode="after")
    def count(self) -> Unsteady:
        if self.x == 7 and self.y != 8:
            text: Any = "8"
            self.y = text
        elif 3 < self.x < 7:
            self.y += 1
        return self


class Narrowing(BaseModel):
    """It puts numbers in place of truths, which are of a class beneath theirs, and shifts them in a list."""

    calm: bool = False
    one: bool | int = 1
    many: list[bool | int] = []

    @model_validator(mode="after")
    def tame(self) -> Narrowing:
        if self.calm:
            self.one = 2 if self.one is True else self.one
            self.many = [each for each in self.many if each is not False]
        return self


class Assigning(BaseModel):
    """What its validator assigns is validated, which calls it again."""

    model_config = ConfigDict(validate_assignment=True)

    x: int = 1
    y: int = 2

    @model_validator(mode="after")
    def double(self) -> Assigning:
        if self.y != self.x * 2:
            text: Any = str(self.x * 2)
            self.y = text
        return self


class Writers(BaseModel):
    """It writes, too, what the one within has summed up."""

    ranked: Ranked = Ranked()
    kept: Kept = Kept()
    ordered: Ordered = Ordered()
    copied: list[Copied] = []
    unsteady: Unsteady = Unsteady()
    narrowing: Narrowing = Narrowing()
    assigning: dict[str, Assigning] = {}
    sum: int = 0
    alarm: bool = False

    @model_validator(mode="after")
    def sum_up(self) -> Writers:
        self.sum = self.ranked.sum + len(self.kept.values)
        self.alarm = self.sum > 40
        if self.alarm and self.kept.most > 2:
            self.kept.most = 2  # the one within has more to trim then
        if self.sum > 90:
            raise ValueError("too much")
        return self


def few() -> Writers:
    return Writers(
        ranked=Ranked(lines=[Line(count=2), Line(price=3)]),
        kept=Kept(values=[1, 2, 3], lines=[Line()]),
        ordered=Ordered(values=[3, 1], by={"b": 1, "a": 2}),
        copied=[Copied.model_validate({}), Copied.model_validate({"values": [1]})],
        narrowing=Narrowing(one=True, many=[2, False, 3, True]),
        assigning={"a": Assigning()},
    )


FAMILY = Family(
    "writers",
    Writers,
    (Writers, few),
    {
        "count": (0, 1, 5, 9, 10, 30),
        "most": (0, 1, 2, 4),
        "x": (2, 3, 4, 5, 6, 7),
        "calm": (True, False),
        "one": (True, 3),
        "*": (4, True, False, Line(count=3, total=6), Line(count=3)),
    },
    ("a", "b", "c", "n"),
    0.5,
)

ROOT = Family("writer-of-the-root", Ordered, (Ordered,), {"*": (4, 3, 2)}, ("c", "a", "b"), 0.5)
