"""Random histories of programs of three versions on one store: each does what a model says, or is InvalidState."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell import Failure, InvalidState, Replace, Revision, Success
from stepwell.services.store import StoreDefinition

from .store_world import Client, open_world, success

EXAMPLES = 2_000 if os.environ.get("STEPWELL_SOAK") else 40


class One(BaseModel):
    """It counts in one field."""

    n: int = 0
    seen: list[int] = []


class Two(BaseModel):
    """It counts by tens and ones."""

    tens: int = 0
    ones: int = 0
    seen: list[int] = []


class Three(BaseModel):
    """As the first, and in a field of its name, which means something else."""

    n: dict[str, int]
    seen: list[int] = []


def to_two(old: dict[str, Any]) -> object:
    n = old.pop("n")
    return {**old, "tens": n // 10, "ones": n % 10}


def to_three(old: dict[str, Any]) -> object:
    return {"n": {"all": 10 * old["tens"] + old["ones"]}, "seen": old["seen"]}


def count_one(state: One, by: int) -> None:
    state.n += by
    state.seen.append(by)


def count_two(state: Two, by: int) -> None:
    n = 10 * state.tens + state.ones + by
    state.tens, state.ones = divmod(n, 10)
    state.seen.append(by)


def count_three(state: Three, by: int) -> None:
    state.n["all"] += by
    state.seen.append(by)


@dataclass(frozen=True)
class Program:
    """How a program of one version names the state, counts, and what it reads of a sum and what was added."""

    definition: StoreDefinition[Any]
    count: Callable[[Any, int], None]
    state: Callable[[int, list[int]], object]


UP: dict[int, Callable[..., object]] = {1: to_two, 2: to_three}
PROGRAMS = {
    1: Program(StoreDefinition("counted", One), count_one, lambda n, seen: One(n=n, seen=seen)),
    2: Program(
        StoreDefinition("counted", Two, version=2, upcasters={1: to_two}),
        count_two,
        lambda n, seen: Two(tens=n // 10, ones=n % 10, seen=seen),
    ),
    3: Program(
        StoreDefinition("counted", Three, version=3, upcasters=UP),
        count_three,
        lambda n, seen: Three(n={"all": n}, seen=seen),
    ),
}

Act: TypeAlias = Literal["get", "count", "replace", "nothing", "restart"]
ACTS: st.SearchStrategy[tuple[int, Act, int]] = st.tuples(
    st.sampled_from([1, 1, 2, 2, 3]),
    st.sampled_from(["get", "count", "count", "replace", "nothing", "restart"]),
    st.integers(0, 12),
)


class Model:
    """The sum and what was added at each version of the store, and which version of the type wrote it."""

    def __init__(self) -> None:
        self.past: list[tuple[int, list[int], int]] = [(0, [], 1)]

    def add(self, by: int, version: int) -> None:
        n, seen, _ = self.past[-1]
        self.past.append((n + by, [*seen, by], version))

    def add_nothing(self, version: int) -> None:
        n, seen, _ = self.past[-1]
        self.past.append((n, seen, version))


async def check(client: Client, version: int, model: Model, at: int | None) -> None:
    """What this program reads is what the model says, in its own form."""
    program = PROGRAMS[version]
    n, seen, written = model.past[-1 if at is None else at]
    read = await client.store.get(program.definition, "c", version=at)
    if written > version:
        assert isinstance(read, Failure)
        assert isinstance(read.failure(), InvalidState)
    else:
        assert success(read).state == program.state(n, seen)


async def play(folder: Path, acts: list[tuple[int, Act, int]]) -> None:
    async with open_world("sqlite" if len(acts) % 4 == 0 else "memory", folder) as world:
        clients = {version: await world.client() for version in PROGRAMS}
        first = success(await clients[1].store.get_or_create(PROGRAMS[1].definition, "c", One()))
        model = Model()
        for version, act, by in acts:
            if act == "restart":
                clients[version] = await world.client()
            elif act == "get":
                await check(clients[version], version, model, None)
            else:
                await change(clients[version], version, act, by, model)
            document = success(await clients[1].ledger.document(PROGRAMS[1].definition.key("c")))
            assert document is not None
            assert document.form == PROGRAMS[model.past[-1][2]].definition.form
            assert document.revision == Revision(first.instance_id, len(model.past) - 1)
        for version, client in clients.items():
            for at in range(len(model.past)):
                await check(client, version, model, at)


async def change(client: Client, version: int, act: Act, by: int, model: Model) -> None:
    program = PROGRAMS[version]

    def updater(state: Any) -> Replace[Any] | None:
        if act == "count":
            program.count(state, by)
        elif act == "replace":
            n, seen, _ = model.past[-1]
            return Replace(program.state(n + by, [*seen, by]))
        return None

    changed = await client.store.update(program.definition, "c", updater)
    if model.past[-1][2] > version:
        assert isinstance(changed, Failure)
        assert isinstance(changed.failure(), InvalidState)
        return
    assert isinstance(changed, Success)
    if act == "nothing":
        model.add_nothing(version)
    else:
        model.add(by, version)
    n, seen, _ = model.past[-1]
    assert changed.unwrap().state == program.state(n, seen)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(ACTS, max_size=14))
def test_programs_of_three_versions_on_one_store(acts: list[tuple[int, Act, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder), acts))
