"""Lists and dicts that are held in chunks and in layers once they are written."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from stepwell.core.sharing import BIG

from .family import Family


class Item(BaseModel):
    id: int = 0
    tags: list[str] = []


class Numbers(BaseModel):
    values: list[Annotated[int, Field(ge=0)]] = []
    most: int = 10_000

    @model_validator(mode="after")
    def length(self) -> Numbers:
        if len(self.values) > self.most:
            raise ValueError("too many values")
        return self


class Big(BaseModel):
    items: list[Item] = []
    numbers: Numbers = Numbers()
    by: dict[str, Annotated[int, Field(lt=5_000)]] = {}
    limited: list[int] = Field(default=[], max_length=BIG + 3)
    sparse: dict[int, int] = {}


def items() -> Big:
    return Big(items=[Item(id=at) for at in range(BIG + 2)], by={"a": 1})


def numbers() -> Big:
    return Big(numbers=Numbers(values=list(range(BIG + 2)), most=BIG + 5), limited=list(range(BIG + 1)))


def keys() -> Big:
    return Big(by={f"k{at}": at for at in range(BIG + 2)}, sparse={at: at for at in range(BIG + 2)})


FAMILY = Family(
    "big",
    Big,
    (items, numbers, keys),
    {"id": (3, "4", None), "*": (3, 4_999, 5_000, -1, "7"), "most": (BIG, BIG + 4, 20_000)},
    ("a", "k1", "k7", "new", 1, 99_999),
    0.5,
)
