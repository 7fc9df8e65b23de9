"""Records that are no plain models: dataclasses of both sorts, TypedDicts, open models, named tuples."""

# pyright: standard
# Open models and the configs of TypedDicts are written as pydantic says, and not as checkers expect.

from __future__ import annotations

import dataclasses
from typing import Annotated, NamedTuple, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from .family import Family


@dataclasses.dataclass
class Point:
    x: int = 0
    ys: list[Annotated[int, Field(ge=0)]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Slim:
    a: int
    inner: list[Point] = dataclasses.field(default_factory=list)
    text: str = "t"


@dataclasses.dataclass(kw_only=True)
class Keyed:
    name: str
    slim: Slim = dataclasses.field(default_factory=lambda: Slim(1))


@pydantic_dataclass(config=ConfigDict(str_strip_whitespace=True, str_max_length=5))
class Checked:
    label: str = "l"
    count: Annotated[int, Field(lt=10)] = 1
    point: Point = dataclasses.field(default_factory=Point)


class Message(TypedDict):
    id: Annotated[str, Field(max_length=4)]
    by: NotRequired[str]
    seen: NotRequired[list[int]]


class Closed(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    one: int
    message: Message


class Free(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    one: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[int]]  # pyright: ignore[reportIncompatibleVariableOverride]  # as pydantic says
    x: int = 0
    inner: Point = Field(default_factory=Point)


class Ignoring(BaseModel):
    model_config = ConfigDict(extra="ignore", str_to_upper=True)
    word: str = "W"
    point: Point = Field(default_factory=Point)
    checked: Checked = Field(default_factory=Checked)


class Place(NamedTuple):
    name: str
    visits: list[int]


class Records(BaseModel):
    point: Point = Field(default_factory=Point)
    points: dict[str, Point] = {}
    slim: Slim = Field(default_factory=lambda: Slim(1))
    keyed: Keyed = Field(default_factory=lambda: Keyed(name="k"))
    checked: list[Checked] = []
    message: Message = {"id": "m"}
    messages: list[Message] = []
    closed: Closed = {}
    open: Open = Open.model_validate({})
    opens: list[Open] = []
    ignoring: Ignoring = Ignoring()
    place: Place = Place("home", [1])
    by_number: dict[int, list[int]] = {}


def full() -> Records:
    return Records(
        points={"a": Point(1, [1])},
        slim=Slim(2, [Point(1, [1, 2]), Point()]),
        checked=[Checked(), Checked("x", 3, Point(5))],
        message={"id": "n", "by": "me", "seen": [1]},
        messages=[{"id": "a"}, {"id": "b", "seen": []}],
        closed={"one": 1, "message": {"id": "c"}},
        open=Open.model_validate({"x": 1, "more": [1, 2], "zz": [3]}),
        opens=[Open.model_validate({}), Open.model_validate({"more": []})],
        by_number={1: [1], 2: []},
    )


FAMILY = Family(
    "records",
    Records,
    (Records, full),
    {
        "x": (3, "3", 3.5),
        "a": (3, "3", None),
        "id": ("ok", "toolong", 5),
        "by": ("you", 3),
        "label": (" q ", "toolong", "r"),
        "count": (3, 10, "4"),
        "word": ("low", "UP"),
        "point": ({"x": 1}, Point(3), {"y": 1}),
        "slim": ({"a": "3"}, Slim(4)),
        "more": ([1], ["2"], "x"),
        "zz": ([5], None),
        "message": ({"id": "d", "other": 1}, {"id": "e"}, {}),
        "seen": ([1], ["2"], None),
        "place": (Place("far", []), ("far", [2]), ["far", ["3"]]),
        "one": (1, "2"),
    },
    ("a", "id", "by", "seen", "one", "message", "other", 1, 3, "5"),
    0.5,
)

ROOT = Family(
    "dataclass at the root",
    Keyed,
    (lambda: Keyed(name="n"), lambda: Keyed(name="m", slim=Slim(3, [Point(1, [2])]))),
    {"a": (3, "3"), "name": ("q", 3), "x": (1, "2")},
    (),
    0.5,
)
