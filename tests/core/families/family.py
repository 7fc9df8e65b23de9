"""Families of states, and random updates of them that meet every rule of their types.

What an update stores is taken from what is valid at that place, from what a family adds, and from what is valid
nowhere; so about half of the updates leave a valid state.
"""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from pydantic import BaseModel

from stepwell.core.kind import Kind, kind_of
from stepwell.core.schema import StateSchema

Site = tuple[str, ...]
"""A path in which every index and every key of a dict is `*`."""


class Family(NamedTuple):
    """A type, some valid states of it, and what else updates store.

    `values` are by the last name of a path, `keys` are for dicts. Of all updates at least `share` (of those that leave
    a valid state) must be settled by the parts that were written.
    """

    name: str
    type_: Any
    states: tuple[Callable[[], Any], ...]
    values: Mapping[str, tuple[Any, ...]]
    keys: tuple[Any, ...]
    share: float


JUNK: tuple[Any, ...] = (
    *(None, True, 0, 1, -7, 2**70, 1.0, 2.5, float("nan"), "", "x", " x ", "12", "\ud800", b"\xff", "2026-01-01"),
    *([], [1], {}, {"a": 1}, {"x": "y"}, (), (1, 2), {1}, [[]], [None]),
    *(dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC), Decimal("1.50"), object()),
)


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The parts of a container with their step in a site."""
    if isinstance(value, dict):
        return [("*", item) for item in value.values()]
    if kind_of(type(value)) is Kind.RECORD:
        return [(name, getattr(value, name)) for name in names_of(value)]
    return [("*", item) for item in value] if isinstance(value, list | tuple | set | frozenset) else []


def names_of(record: Any) -> list[str]:
    if isinstance(record, BaseModel):
        return [*type(record).model_fields, *(record.__pydantic_extra__ or {})]
    return [each.name for each in dataclasses.fields(record)]


class Updates:
    """Random updates of the states of one family."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._known: dict[Site, list[Any]] = {}
        self.starts = [StateSchema(family.type_, validation="full").validate(make()).unwrap() for make in family.states]
        for start in self.starts:
            self._learn(start.state, ())

    def _learn(self, value: Any, site: Site) -> None:
        known = self._known.setdefault(site, [])
        if len(known) < 40:
            known.append(value)
        for step, part in _parts(value)[:40]:
            self._learn(part, (*site, step))

    def updater(self, random: Random, state: Any, told: list[str]) -> Callable[[Any], None]:
        """An updater that does one to three things; what it does is told."""
        seeds = [random.getrandbits(32) for _ in range(random.choice((1, 1, 1, 2, 3)))]

        def update(draft: Any) -> None:
            for seed in seeds:
                self._step(Random(seed), draft, told)

        return update

    def _step(self, random: Random, draft: Any, told: list[str]) -> None:
        target: Any = draft
        site: Site = ()
        way = ""
        while random.random() < 0.72:
            choices = _beneath(target, random)
            if choices is None:
                break
            name, step, part = choices
            if not _is_container(part):
                break
            target, site, way = part, (*site, step), f"{way}.{name}"
        try:
            self._change(random, target, site, way, told)
        except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
            told.append(f"   {type(error).__name__}: {error}")

    def _value(self, random: Random, site: Site) -> Any:
        more = self._family.values.get(site[-1] if site else "", ())
        chosen = random.random()
        if more and chosen < 0.35:
            return copy.deepcopy(random.choice(more))
        known = self._known.get(site)
        if known and chosen < 0.85:
            return copy.deepcopy(random.choice(known))
        return random.choice(JUNK)

    def _key(self, random: Random, target: Any) -> Any:
        if len(target) and random.random() < 0.5:
            return random.choice(list(target)) if len(target) < 50 else next(iter(target))
        return random.choice(self._family.keys or ("k",))

    def _change(self, random: Random, target: Any, site: Site, way: str, told: list[str]) -> None:
        beneath = (*site, "*")
        if isinstance(target, dict):
            self._change_dict(random, target, beneath, way, told)
        elif isinstance(target, list):
            self._change_list(random, target, beneath, way, told)
        elif isinstance(target, set):
            value = self._value(random, beneath)
            told.append(f"{way} set {value!r}")
            (target.add if random.random() < 0.5 else target.discard)(value)
        elif isinstance(target, BaseModel) or dataclasses.is_dataclass(target):
            names = names_of(target)
            name = random.choice(names) if names and random.random() < 0.93 else random.choice(("zz", "more"))
            if random.random() < 0.04:
                told.append(f"{way} delete {name}")
                delattr(target, name)
                return
            value = self._value(random, (*site, name))
            told.append(f"{way}.{name} = {value!r:.200}")
            setattr(target, name, value)

    def _change_dict(self, random: Random, target: Any, site: Site, way: str, told: list[str]) -> None:
        key = self._key(random, target)
        named = (*site[:-1], str(key)) if str(key) in self._family.values else site
        match random.randrange(8):
            case 0:
                told.append(f"{way} pop {key!r}")
                target.pop(key, None)
            case 1:
                told.append(f"{way} move {key!r}")
                target[key] = target.pop(key)
            case 2 if random.random() < 0.2:
                told.append(f"{way} clear")
                target.clear()
            case _:
                value = self._value(random, named)
                told.append(f"{way}[{key!r}] = {value!r:.200}")
                target[key] = value

    def _change_list(self, random: Random, target: Any, site: Site, way: str, told: list[str]) -> None:
        at = random.randrange(len(target) + 1)
        value = self._value(random, site)
        op = random.randrange(10)
        told.append(f"{way} list {op} at {at}: {value!r:.200}")
        match op:
            case 0 | 1:
                target.append(value)
            case 2:
                target.insert(at, value)
            case 3:
                target.pop(at)
            case 4:
                target[at:] = [value, self._value(random, site)]
            case 5 if random.random() < 0.3:
                target.clear()
            case 6 if random.random() < 0.3:
                target.reverse()
            case 7:
                del target[at : at + 2]
            case _:
                target[at] = value


def _beneath(target: Any, random: Random) -> tuple[str, str, Any] | None:
    """A part of a draft, chosen at random, with its name and its step in a site."""
    if isinstance(target, dict):
        if not len(target):
            return None
        key = random.choice(list(target)) if len(target) < 50 else next(iter(target))
        return f"[{key!r}]", "*", target[key]
    if isinstance(target, list | tuple):
        if not len(target):
            return None
        at = random.randrange(len(target))
        return f"[{at}]", "*", target[at]
    if isinstance(target, BaseModel) or dataclasses.is_dataclass(target):
        names = names_of(target)
        if not names:
            return None
        name = random.choice(names)
        return name, name, getattr(target, name, None)
    return None


def _is_container(value: Any) -> bool:
    return isinstance(value, list | dict | set | tuple | BaseModel) or dataclasses.is_dataclass(value)
