"""Random programs over states: the same operations on a plain state and on a draft of it.

A program is a list of steps. Each picks a container of the state, counted in a fixed order, and does to it one thing
that Python offers. What a step gives or raises is compared as well.
"""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import enum
import operator
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from stepwell.core.value import clone


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


# --- families of states -------------------------------------------------------


class Item(BaseModel):
    id: int
    name: str = "n"
    tags: list[str] = []
    note: str | None = None

    def rename(self, name: str) -> str:
        self.name = name
        self.tags.append(name)
        return self.name


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Doc(BaseModel):
    n: int = 0
    items: list[Item] = []
    grid: list[list[int]] = []
    by: dict[str, Item] = {}
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    numbers: set[int] = set()
    pair: tuple[Item, int] = (Item(id=7), 1)


@dataclasses.dataclass
class Point:
    x: int = 0
    ys: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Slim:
    a: int
    inner: list[Point] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Fixed:
    label: str
    values: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Shapes:
    slim: Slim
    fixed: Fixed
    points: dict[str, Point] = dataclasses.field(default_factory=dict)
    slims: list[Slim] = dataclasses.field(default_factory=list)


class Message(TypedDict, total=False):
    id: str
    claimed_by: str


class Place(NamedTuple):
    name: str
    visits: list[int]


class Names(RootModel[list[str]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[int]]  # pyright: ignore[reportIncompatibleVariableOverride]  # as pydantic says
    x: int = 0


class Loose(BaseModel):
    names: Names
    open: Open
    place: Place
    by_number: dict[int, list[int]]
    colours: dict[str, Colour]
    chosen: frozenset[int] = frozenset((1, 2))


def doc() -> object:
    return Doc(
        items=[Item(id=at, tags=["t"]) for at in range(3)],
        grid=[[1, 2], [3]],
        by={key: Item(id=9) for key in "ab"},
        pets=[Cat(), Dog(tricks=["sit"])],
        numbers={1, 2, 3},
    )


def shapes() -> object:
    return Shapes(Slim(1, [Point(1, [1])]), Fixed("f", [1, 2]), {"p": Point(2)}, [Slim(3), Slim(4)])


def plain() -> object:
    return {"messages": [{"id": "m1"}, {"id": "m2"}], "deep": {"a": [1, {"z": [True, None]}]}, "empty": {}, "n": 1}


def loose() -> object:
    return Loose(
        names=Names(["x", "y"]),
        open=Open.model_validate({"x": 1, "more": [1, 2], "zzb": [3]}),
        place=Place("home", [1]),
        by_number={1: [1], 2: []},
        colours={"c": Colour.RED},
    )


FAMILIES: dict[str, Callable[[], object]] = {"doc": doc, "shapes": shapes, "plain": plain, "loose": loose}


# --- steps ----------------------------------------------------------------------

Step = tuple[int, int, int, int, str]

steps = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 60),
        st.integers(-5, 5),
        st.integers(-5, 5),
        st.sampled_from(["a", "b", "c", "x"]),
    ),
    max_size=10,
)


def containers(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], object]]:
    """Every container in a plain state that can be changed, with the way to it."""
    if isinstance(value, BaseModel):
        yield path, value
        for name in [*type(value).model_fields, *(value.__pydantic_extra__ or {})]:
            yield from containers(getattr(value, name), (*path, name))
    elif dataclasses.is_dataclass(value):
        yield path, value
        for field in dataclasses.fields(value):
            yield from containers(getattr(value, field.name), (*path, field.name))
    elif isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from containers(item, (*path, (key,)))
    elif isinstance(value, list | tuple):
        if isinstance(value, list):
            yield path, value
        for at, item in enumerate(value):
            yield from containers(item, (*path, (at,)))
    elif isinstance(value, set):
        yield path, value


def go(value: Any, path: tuple[object, ...]) -> Any:
    for step in path:
        value = value[step[0]] if isinstance(step, tuple) else getattr(value, str(step))
    return value


def fresh(a: int, b: int, k: str) -> object:
    """A value to store, new on every call."""
    choices: list[object] = [a, k, None, [a, b], {"k": [b]}, Item(id=a, tags=[k]), Point(a, [b]), (a, [b]), True, 1.0]
    return choices[(a + 2 * b) % len(choices)]


def poke(part: Any, b: int) -> None:
    """Write to a part that was held while it was stored elsewhere, and to what it holds."""
    if isinstance(part, list):
        for item in part[:2]:
            poke(item, b)
        part.append(b)
    elif isinstance(part, dict):
        for key, item in list(part.items()):
            poke(item, b)
            part[key] = [b]
    elif isinstance(part, set):
        part.add(b)
    elif isinstance(part, tuple):
        for item in part:
            poke(item, b)
    elif isinstance(part, BaseModel) or dataclasses.is_dataclass(part):
        names = (
            [*type(part).model_fields] if isinstance(part, BaseModel) else [f.name for f in dataclasses.fields(part)]
        )
        for name in names:
            poke(getattr(part, name), b)
        object.__setattr__(part, names[0], b)


def list_step(target: Any, op: int, a: int, b: int, k: str) -> object:
    match op % 34:
        case 0:
            return target.append(fresh(a, b, k))
        case 1:
            return target.insert(a, fresh(b, a, k))
        case 2:
            return target.pop()
        case 3:
            return target.pop(a)
        case 4:
            target[a] = fresh(a, b, k)
        case 5:
            del target[a]
        case 6:
            del target[a:b]
        case 7:
            target[a:b] = [fresh(a, b, k), fresh(b, a, k)]
        case 8:
            target[:: a or 1] = [fresh(b, a, k)] * len(target[:: a or 1])
        case 9:
            del target[:: a or 2]
        case 10:
            target.reverse()
        case 11:
            target.sort(key=repr, reverse=bool(b % 2))
        case 12:
            target += [fresh(a, b, k)]
        case 13:
            target *= a % 3
        case 14:
            target.extend(x for x in (a, b))
        case 15:
            taken = target.pop(a)
            target.append(taken)
            if isinstance(taken, list):
                taken.append(b)
        case 16:
            return target.index(a, b)
        case 17:
            return target.remove(fresh(a, b, k))
        case 18:
            return target.count(fresh(a, b, k)), len(target), fresh(a, b, k) in target
        case 19:
            return target[a], target[a:b], list(reversed(target)), target.copy()
        case 20:
            return (
                target == [*target],
                target < [a],
                operator.add(target, [b]),
                operator.add([b], target),
                target * 2,
                2 * target,
            )
        case 21:
            for item in target:
                if isinstance(item, list) and len(target) < 9:
                    target.append(b)
        case 22:
            target[a:a] = target
        case 23:
            first, *rest = target
            return first, rest
        case 24:
            target.clear()
        case 25 | 26:
            one, other = target[a], target[b]
            target[a], target[b] = other, one
            poke(one, b)
            poke(other, a)
        case 27:
            kept = [item for at, item in enumerate(target) if at % 2 == a % 2]
            target[:] = kept
            for item in kept:
                poke(item, b)
        case 28 | 29:
            one = target[a]
            target.append(one)
            del target[a % (len(target) - 1)]
            poke(one, b)
        case 30:
            kept = sorted(target, key=repr)
            target.clear()
            target.extend(kept)
            poke(kept[a], b)
        case 31:
            one = target[a]
            target[a] = [one, k]
            poke(one, b)
        case 32:
            first, *rest = target
            target[:] = [{"k": rest}, first]
            poke(first, b)
            poke(rest[0], b)
        case _:
            try:
                target.sort()
            except TypeError:  # then Python leaves some order or other, and a draft the one that was
                target.sort(key=repr)
                raise
    return None


def dict_step(target: Any, op: int, a: int, b: int, k: str) -> object:
    key: object = k if all(isinstance(key, str) for key in target) else a
    match op % 24:
        case 0 | 1:
            target[key] = fresh(a, b, k)
        case 2:
            return target.pop(key)
        case 3:
            return target.pop(key, fresh(a, b, k))
        case 4:
            return target.popitem()
        case 5:
            return target.setdefault(key, fresh(a, b, k))
        case 6:
            target.update({key: fresh(b, a, k)})
        case 7:
            target |= {key: fresh(a, b, k)}
        case 8:
            del target[key]
        case 9:
            target.clear()
        case 10:
            return target[key]
        case 11:
            return target.get(key), target.get(key, b), key in target, len(target), list(target), list(reversed(target))
        case 12:
            return list(target.keys()), list(target.values()), list(target.items()), target.copy()
        case 13:
            return target | {key: a}, {key: b} | target, target == dict(target), {**target}
        case 14:
            for name in target:
                target[name if b % 2 else key] = a
        case 15:
            target[key] = target.pop(key)
        case 16:
            target.update([(key, a)])
        case 17:
            target.setdefault(key, []).append(b)
        case 18:
            views = target.keys(), target.values(), target.items()
            target[key] = b
            return [list(view) for view in views], list(reversed(views[0])), key in views[0], b in views[1]
        case 20:
            kept = dict(reversed(target.items()))
            target.clear()
            target |= kept
            for item in kept.values():
                poke(item, b)
        case 21 | 22:
            first, last = next(iter(target)), next(reversed(target))
            one, other = target[first], target[last]
            target[first], target[last] = other, one
            poke(one, b)
            poke(other, a)
        case 23:
            one = target[key]
            target[key] = {"in": (a, [one])} if b % 2 else (one, a)
            poke(one, b)
        case _:
            return target.pop(key, None) is None
    return None


def set_step(target: Any, op: int, a: int, b: int, k: str) -> object:
    other = {a, b, 2}
    match op % 20:
        case 0:
            return target.add(a)
        case 1:
            return target.discard(a)
        case 2:
            return target.remove(a)
        case 3:
            popped = target.pop()
            gone = popped not in target
            target.add(popped)
            target.remove(min(target))
            return gone
        case 4:
            target.update([a], (b,))
        case 5:
            target |= other
        case 6:
            target &= other
        case 7:
            target -= other
        case 8:
            target ^= other
        case 9:
            target.intersection_update([a, b, 1])
        case 10:
            target.difference_update([a], [b])
        case 11:
            target.symmetric_difference_update([a, b])
        case 12:
            return target | other, other | target, target & other, other & target
        case 13:
            return target - other, other - target, target ^ other, other ^ target
        case 14:
            return target <= other, target < other, target >= other, target > other, target == other
        case 15:
            return target.issubset(other), target.issuperset([a]), target.isdisjoint([b])
        case 16:
            return target.union([a]), target.intersection([a]), target.difference([a]), target.symmetric_difference([a])
        case 17:
            return len(target), a in target, sorted(target), target.copy()
        case 18:
            target.clear()
        case _:
            target.add([a])
    return None


def record_step(target: Any, op: int, a: int, b: int, k: str) -> object:
    names = (
        list(type(target).model_fields)
        if isinstance(target, BaseModel)
        else [f.name for f in dataclasses.fields(target)]
    )
    name = names[a % len(names)]
    extras = getattr(target, "model_extra", None)
    match op % 19:
        case 0 | 1:
            setattr(target, name, fresh(a, b, k))
        case 15 if extras is not None:
            delattr(target, list(extras)[a])
        case 16 | 17 if extras:
            again = list(extras)[a % len(extras)]
            held = extras[again] if b % 2 else fresh(a, b, k)
            delattr(target, again)
            setattr(target, again, held)
        case 18 if extras is not None:
            del extras["zz" + k if b % 2 else "more"]
        case 12 | 13:
            kept = [item for at, item in enumerate(getattr(target, name)) if at % 2 == a % 2]
            setattr(target, name, kept)
            for item in kept:
                poke(item, b)
        case 14:
            part = getattr(target, name)
            setattr(target, name, (part, {"k": a}))
            poke(part, b)
        case 2:
            setattr(target, name, getattr(target, name))
        case 3 if isinstance(target, Item):
            return target.rename(k)
        case 4 if isinstance(target, BaseModel):
            setattr(target, "zz" + k, [a])
        case 5:
            return getattr(target, name), getattr(target, "absent", None)
        case 6:
            return target == copy.deepcopy(target), copy.deepcopy(target) == target, repr(target)
        case 7 if isinstance(target, BaseModel):
            return target.model_dump(warnings=False), dict(target), target.model_copy(update={name: 1})
        case 8:
            object.__setattr__(target, name, fresh(b, a, k))
        case 9:
            return vars(target)[name] if hasattr(target, "__dict__") else None
        case 10 if hasattr(target, "__dict__"):
            vars(target)[name] = fresh(a, b, k)
        case _:
            return [str(getattr(target, each)) for each in names]
    return None


def take_step(root: Any, path: tuple[object, ...], plain_target: object, step: Step) -> object:
    """One step on what lies at `path` beneath `root`; what it gives, or the exception that it raises."""
    _, op, a, b, k = step
    target = go(root, path)
    kinds: list[tuple[type, Callable[[Any, int, int, int, str], object]]] = [
        (list, list_step),
        (dict, dict_step),
        (set, set_step),
    ]
    do = next((do for kind, do in kinds if isinstance(plain_target, kind)), record_step)
    try:
        return copy.deepcopy(do(target, op, a, b, k))
    except Exception as error:
        return error


def shown(given: object) -> str:
    """What was given as text, with the elements of each set in one order: two sets that are equal may differ in it."""
    return re.sub(r"\{([^{}:]*)\}", lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", repr(given))


def run_on_both(plain_state: object, draft: object, program: list[Step]) -> object:
    """Run a program on both; each step must give or raise the same. The plain state at the end.

    What is stored twice is two values in a draft, so the plain state is copied after each step, as values.
    """
    for step in program:
        places = list(containers(plain_state))
        path, target = places[step[0] % len(places)]
        expected = take_step(plain_state, path, target, step)
        given = take_step(draft, path, target, step)
        if isinstance(expected, Exception):
            assert type(given) is type(expected), (step, path, expected, given)
        else:
            assert not isinstance(given, Exception), (step, path, expected, given)
            assert shown(given) == shown(expected), (step, path)
        plain_state = clone(plain_state)
    return plain_state
