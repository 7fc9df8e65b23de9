"""Containers, constraints and configs: what lies between a field and the rules of what is around it."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from .family import Family


class Leaf(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_max_length=6)

    name: str = "leaf"
    size: int = Field(default=1, ge=0, lt=100)
    words: list[str] = []
    named: dict[str, int] = {}


class Rigid(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    count: int = 0
    share: float = 0.5
    flag: bool = False
    leaf: Leaf = Leaf()
    maybe: int | None = None
    loose: Annotated[int, Field(strict=False)] = 1


class Tree(BaseModel):
    label: str = "t"
    children: list[Tree] = Field(default=[], max_length=3)
    by: dict[str, Tree | None] = {}


class Containers(BaseModel):
    leaf: Leaf = Leaf()
    leaves: list[Leaf] = Field(default=[Leaf()], min_length=1, max_length=4)
    rigid: Rigid = Rigid()
    rigids: dict[Annotated[str, StringConstraints(pattern="^[a-z]{1,3}$")], Rigid] = {}
    short: dict[Annotated[str, StringConstraints(to_lower=True, max_length=4)], Annotated[int, Field(le=9)]] = {}
    few: Annotated[dict[str, list[int]], Len(1, 3)] = {"a": [1]}
    tree: Tree = Tree()
    maybe: Leaf | None = None
    maybes: list[list[int] | None] | None = None
    numbers: set[int] = {1}
    fixed: tuple[int, Leaf] = (1, Leaf())
    many: tuple[Annotated[int, Field(gt=0)], ...] = (1,)
    chosen: frozenset[str] = frozenset({"a"})
    grid: list[Annotated[list[Annotated[int, Field(multiple_of=2)]], Len(0, 3)]] = []
    anything: dict[str, JsonValue] = {}
    multiple: Annotated[float, Field(gt=0, lt=10)] = 1.0


def full() -> Containers:
    return Containers(
        leaves=[Leaf(name="a"), Leaf(words=["x", "y"], named={"a": 1})],
        rigids={"a": Rigid(), "b": Rigid(maybe=1)},
        short={"a": 1, "b": 2},
        few={"a": [1, 2], "b": []},
        tree=Tree(children=[Tree(label="u", children=[Tree()]), Tree()], by={"x": Tree(by={"y": None}), "n": None}),
        maybe=Leaf(),
        maybes=[[1], None, [2, 3]],
        grid=[[2, 4], []],
        anything={"a": [1, {"b": None}], "c": "d"},
    )


FAMILY = Family(
    "containers",
    Containers,
    (Containers, full),
    {
        "name": ("ab", " ab ", "toolong", "   ", 3),
        "size": (0, 99, 100, -1, "7", 7.0),
        "count": (2, "2", 2.0, True),
        "loose": ("2", 3, 4.5),
        "share": (1, 0.25, "0.5"),
        "children": ([], [Tree()], [Tree(), Tree(), Tree(), Tree()]),
        "multiple": (1, 9.5, 10.0, "2"),
        "leaves": ([], [Leaf()], [{"name": " q "}]),
        "leaf": ({"name": "n", "size": "3"}, {"name": "n", "more": 1}),
    },
    ("a", "b", "abcd", "ABC", "A", "zz", "toolong", "", " a ", "1", "\ud800", 1),
    0.6,
)


# --- the same at the root of a state -------------------------------------------------

ROOT_LIST = Family(
    "list at the root",
    Annotated[list[Leaf | None], Len(1, 5)],
    (lambda: [Leaf()], lambda: [None, Leaf(words=["a"]), Leaf()]),
    {"name": ("ab", " ab ", "toolong"), "size": (5, 100)},
    ("a", "toolong"),
    0.5,
)

ROOT_DICT = Family(
    "dict at the root",
    dict[str, JsonValue],
    (dict, lambda: {"a": 1, "b": [1, {"c": None}], "d": {"e": "f"}}),
    {},
    ("a", "b", "c", "\ud800", "é"),
    0.6,
)
