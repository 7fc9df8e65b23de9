"""Random programs of reads: what a selector may do to look at a state, as data.

A program is a list of steps. It begins at the root, and after each step goes on with the part that the step came upon,
if there is one. What it saw on the way is noted: atoms by their text, containers by their class alone, so that two
states in which a program notes the same are the same to it.
"""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from random import Random
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from .programs import FAMILIES as SMALL
from .programs import Item, Point, Step

Read = tuple[int, int, int, str]
Notes = list[object]

KEYS = ["a", "b", "c", "id", "name", "messages", "k70"]


def read_of(code: bytes) -> Read:
    a = code[1] % 75 if code[1] > 240 else code[1] % 9 - 4
    return code[0] % 60, a, code[2] % 9, KEYS[code[3] % len(KEYS)]


def reads_of(code: bytes) -> list[Read]:
    return [read_of(code[at : at + 4]) for at in range(0, len(code) - 3, 4)]


def steps_of(code: bytes) -> list[Step]:
    """The same for the steps of an updater."""
    return [
        (code[at], code[at + 1] % 61, code[at + 2] % 11 - 5, code[at + 3] % 11 - 5, "abcx"[code[at + 4] % 4])
        for at in range(0, len(code) - 4, 5)
    ]


def code_of(seed: int, longest: int) -> bytes:
    source = Random(seed)
    return source.randbytes(source.randint(5, longest))


# By a seed: drawn in parts, programs come out so alike that they leave whole kinds of reads out.
seeds = st.integers(0, 2**63)
reads: st.SearchStrategy[list[Read]] = seeds.map(lambda seed: reads_of(code_of(seed, 24)))
writes: st.SearchStrategy[list[Step]] = seeds.map(lambda seed: steps_of(code_of(seed, 20)))


# --- states in which iterations fold ----------------------------------------------


class Sub(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int = 0
    ys: list[int] = []


class Row(BaseModel):
    id: int
    status: str = "new"
    sub: Sub | None = None
    tags: list[str] = []
    spot: tuple[int, Point] = (0, Point())

    @property
    def busy(self) -> bool:
        return self.status == "busy" or bool(self.tags)

    @property
    def load(self) -> int:
        return self.id + len(self.tags)


@dataclasses.dataclass(eq=False)
class Mark:
    """Equal to nothing but itself."""

    x: int = 0
    ys: list[int] = dataclasses.field(default_factory=list)


class Wide(BaseModel):
    rows: list[Row | Item]
    by: dict[str, dict[str, int]]
    numbers: list[int]
    grid: list[list[int]]
    by_number: dict[int, Point]
    marks: list[Mark]


def wide() -> object:
    rows: list[Row | Item] = [
        Item(id=at)
        if at % 13 == 5
        else Row(id=at, sub=Sub(x=at) if at % 3 else None, tags=["t"] if at % 5 == 0 else [])
        for at in range(67)
    ]
    return Wide(
        rows=rows,
        by={f"k{at}": {"n": at} for at in range(66)},
        numbers=list(range(70)),
        grid=[[at, at + 1] for at in range(66)],
        by_number={at: Point(at) for at in range(66)},
        marks=[Mark(at % 7) for at in range(68)],
    )


def nested() -> object:
    return {"messages": [{"id": str(at), "to": ["a", {"b": [at] * 10}]} for at in range(70)], "a": [[1] * 12] * 70}


FAMILIES: dict[str, Callable[[], object]] = {**SMALL, "wide": wide, "nested": nested}


# --- notes ------------------------------------------------------------------------


def is_container(value: object) -> bool:
    return isinstance(value, list | dict | set | frozenset | tuple | BaseModel) or dataclasses.is_dataclass(value)


def note(value: object) -> object:
    """What there is to say of a value without looking into it."""
    if is_container(value):
        return value.__class__.__name__
    return (type(value).__name__, repr(value))


def note_all(values: Iterable[object]) -> list[object]:
    return [note(value) for value in values]


def run_reads(state: Any, program: list[Read], visited: list[object] | None = None) -> tuple[Notes, object]:
    """What a program notes of a state, and the part that it came upon last. `visited` gets all parts on the way."""
    notes: Notes = []
    at: Any = state
    for op, a, b, k in program:
        notes.append(note(at))
        if visited is not None:
            visited.append(at)
        try:
            at = step(at, op, a, b, k, notes)
        except (LookupError, AttributeError, ValueError, TypeError, StopIteration) as error:
            notes.append(type(error).__name__)
            at = state
        if not is_container(at):
            notes.append(note(at))
            at = state
    notes.append(note(at))
    return notes, at


def step(at: Any, op: int, a: int, b: int, k: str, notes: Notes) -> Any:
    if isinstance(at, list):
        return list_read(at, op, a, b, k, notes)
    if isinstance(at, dict):
        return dict_read(at, op, a, b, k, notes)
    if isinstance(at, set | frozenset):
        return set_read(at, op, a, b, k, notes)
    if isinstance(at, tuple):
        notes.append(len(at))
        return at[a]
    return record_read(at, op, a, b, k, notes)


def first_of(items: Iterable[Any], b: int, notes: Notes) -> Any:
    """The first element of which something holds; the way to it is noted."""
    for item in items:
        seen = item[1] if isinstance(item, tuple) and len(item) == 2 else item
        if isinstance(seen, list):
            found = len(seen) > b
        elif isinstance(seen, dict):
            found = seen.get("id", seen.get("n")) == b
        elif isinstance(seen, BaseModel) or dataclasses.is_dataclass(seen):
            names = [field for field in ("status", "id", "x", "kind", "label") if hasattr(seen, field)]
            found = bool(names) and getattr(seen, names[0]) in ("busy", b * 9)
        else:
            found = seen == b * 9
        notes.append(found)
        if found:
            return seen
    return None


def list_read(at: Any, op: int, a: int, b: int, k: str, notes: Notes) -> Any:
    match op % 27:
        case 0 | 1 | 2:
            return at[a]
        case 3:
            return at[a : a + b]
        case 4:
            notes.append(len(at))
        case 5:
            notes.append(bool(at))
        case 6:
            notes += note_all(islice(at, b))
        case 7:
            notes += note_all(at)
        case 8:
            notes.append(a in at)
        case 9:
            notes.append(at.index(a))
        case 10:
            notes.append(at.count(a))
        case 11:
            notes.append(at == [a, b])
        case 12:
            notes.append(at == copy.deepcopy(at))
        case 13:
            notes.append(at < [a])
        case 14:
            notes += note_all(islice(reversed(at), b))
            return next(reversed(at))
        case 15 | 16:
            return first_of(at, b, notes)
        case 17:
            first, *rest = at
            notes.append(len(rest))
            return first
        case 18:
            match at:
                case []:
                    notes.append("none")
                case [one]:
                    return one
                case [_, *_, last]:
                    return last
                case _:
                    return None
        case 19:
            return [item for item in at if isinstance(item, Row | dict)] or None
        case 20:
            notes += note_all(sorted(at, key=note_text))
        case 21:
            notes += note_all(at[:1] + at)
            return (at * 2)[b]
        case 22:
            return [item for _, item in zip(range(b), at, strict=False)]
        case 23:
            chosen = max(at, key=note_text) if b % 2 else at[a]
            notes += [chosen in at, at.index(chosen), at.count(chosen), [item == chosen for item in at]]
            return chosen
        case 24:
            notes.append([item in at[:a] for item in at])
            notes.append(len({*at, *at}))
        case 25:
            return dict.fromkeys(at)
        case _:
            notes.append(repr(at) if b % 2 else str(at.copy()))
    return at


def note_text(value: object) -> str:
    return str(note(value))


def dict_read(at: Any, op: int, a: int, b: int, k: str, notes: Notes) -> Any:
    key: object = k if b % 3 else a
    match op % 24:
        case 0 | 1 | 2:
            return at[key]
        case 3:
            return at.get(key)
        case 4:
            return at.get(key, [a])
        case 5:
            notes.append(key in at)
        case 6:
            notes.append(len(at))
        case 7:
            notes.append(bool(at))
        case 8:
            notes += note_all(islice(at, b))
        case 9:
            notes += note_all(at.keys())
        case 10:
            notes += note_all(islice(at.values(), b))
        case 11:
            notes += note_all(value for _, value in at.items())
        case 12:
            return first_of(at.values(), b, notes)
        case 13:
            return first_of(at.items(), b, notes)
        case 14:
            notes.append(at == {key: a})
        case 15:
            notes.append(at == copy.deepcopy(at))
        case 16:
            return {**at}
        case 17:
            return dict(at)
        case 18:
            return at[next(reversed(at))]
        case 19:
            match at:
                case {"a": inner} | {"messages": inner}:
                    return inner
                case {"id": inner, **rest}:
                    notes.append(len(rest))
                    return inner
                case _:
                    return None
        case 20:
            notes += note_all(value for _, value in reversed(at.items()))
            notes += note_all(reversed(at.values()))
        case 21:
            notes.append(a in at.values())
            notes.append((k, b) in at.items())
            notes.append(sorted(at.keys() & {"a", "b", k}))
        case 22:
            return at | {key: a}
        case _:
            notes.append(repr(at) if b % 2 else str(copy.copy(at)))
    return at[next(iter(at))] if b % 4 == 0 else at.get(k)


def set_read(at: Any, op: int, a: int, b: int, k: str, notes: Notes) -> Any:
    other = {a, b, k}
    match op % 10:
        case 0:
            notes.append(a in at)
        case 1:
            notes.append(len(at))
        case 2:
            notes.append(bool(at))
        case 3:
            notes += sorted(note_all(at), key=str)
        case 4:
            notes += [at == other, at <= other, at >= other, at < other, at > other]
        case 5:
            notes += [sorted(made, key=str) for made in (at | other, at & other, at - other, at ^ other)]
        case 6:
            notes += [sorted(made, key=str) for made in (other | at, other & at, other - at, other ^ at)]
        case 7:
            notes += [at.issubset(other), at.issuperset(other), at.isdisjoint(other)]
        case 8:
            notes.append(sorted(at.union([a]), key=str))
        case _:
            notes.append(sorted(copy.copy(at), key=str))
    return None


def record_read(at: Any, op: int, a: int, b: int, k: str, notes: Notes) -> Any:
    kind = at.__class__
    names = list(kind.model_fields) if isinstance(at, BaseModel) else [field.name for field in dataclasses.fields(at)]
    name = names[a % len(names)]
    match op % 24:
        case 0 | 1 | 2 | 3 | 4 | 5 | 6:
            return getattr(at, name)
        case 7:
            notes.append(hasattr(at, k))
            return getattr(at, "more", None)
        case 8:
            notes.append(at == copy.deepcopy(at))
        case 9:
            notes.append(repr(at))
        case 10 if isinstance(at, BaseModel):
            notes.append(str(at.model_dump(warnings=False)))
        case 11 if isinstance(at, BaseModel):
            return dict(at)
        case 12 if hasattr(at, "__dict__"):
            return vars(at)[name]
        case 13 if hasattr(at, "__dict__"):
            notes += sorted(vars(at))
        case 14:
            return copy.copy(at)
        case 15 if not isinstance(at, BaseModel):
            # From Python 3.13 on it asks for the very type of a list, and leaves what a view of one holds as it is.
            return dataclasses.asdict(at if sys.version_info < (3, 13) else copy.deepcopy(at))
        case 16 if not isinstance(at, BaseModel):
            return dataclasses.replace(at, **{names[0]: b})
        case 17 if isinstance(at, Row):
            notes.append(at.busy)
        case 18 if isinstance(at, Row):
            notes.append(at.load)
        case 19:
            match at:
                case Row(sub=Sub(x=x)):
                    notes.append(x)
                case Item(id=0, tags=[first]) | Point(first):
                    return first
                case _:
                    return None
        case 20 if isinstance(at, BaseModel):
            notes += list(at.model_extra or {})
            return dict(at.model_extra or {})
        case 22 if isinstance(at, BaseModel) and at.model_extra:
            notes.append(next(iter(at.model_extra)))
            return at.model_extra[next(reversed(at.model_extra))]
        case 21 if isinstance(at, BaseModel):
            return at.model_copy(update={name: b})
        case _:
            notes.append(at == b)
            return getattr(at, names[b % len(names)])
    return at
