"""Random programs of two clients and those who wait, against the naive definition: look again after every commit.

Time stands still, so that no poll helps. What is checked of each wait:

- when all is quiet, it has ended if the state matches, or if the instance that it began with is gone;
- what it found was there at some time since it began;
- where the program pauses after each call, it ended with the first state that matched, and its selector ran when it
  began, and then only after commits that changed its cell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import (
    Failure,
    ManualClock,
    Outcome,
    Replace,
    Revision,
    Store,
    StoreKey,
    StoreNotFound,
    Success,
    Unavailable,
    define_store,
)
from stepwell.core.batch import Batch, Commit, Document
from stepwell.core.model import InvalidState, TimedOut
from stepwell.layers.ids import CountedIds
from stepwell.layers.memory.ledger import MemoryLedger
from stepwell.layers.store import LedgerStore
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import Verdict

from .ledger_double import LedgerDouble

State: TypeAlias = dict[str, int]
Kind: TypeAlias = Literal["put", "replace", "nothing", "delete", "create", "wait"]

cells = define_store("waits.cells", State)
KEY = "ab"


@dataclass(frozen=True)
class Call:
    kind: Kind
    client: int
    cell: str
    value: int


calls = st.lists(
    st.builds(
        Call,
        st.sampled_from(["put", "put", "put", "put", "wait", "wait", "wait", "replace", "nothing", "delete", "create"]),
        st.integers(0, 1),
        st.sampled_from(KEY),
        st.integers(0, 3),
    ),
    max_size=14,
)


class Slow(LedgerDouble):
    """Every call takes some turns of the loop, before and after, as `turns` says."""

    def __init__(self, real: MemoryLedger, turns: Iterator[int]) -> None:
        super().__init__(real)
        self._turns = turns

    async def _pass(self) -> None:
        for _ in range(next(self._turns)):
            await asyncio.sleep(0)

    async def commit(self, batch: Batch) -> Verdict:
        await self._pass()
        verdict = await super().commit(batch)
        await self._pass()
        return verdict

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        await self._pass()
        answer = await super().tip(key)
        await self._pass()
        return answer

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        await self._pass()
        answer = await super().tail(key, after)
        await self._pass()
        return answer

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        await self._pass()
        answer = await super().document(key, at)
        await self._pass()
        return answer


@dataclass
class Wait:
    """Somebody who waits for a cell to be at least `value`. `begun` is the number of a state of the history."""

    cell: str
    value: int
    begun: int
    runs: int = 0
    task: asyncio.Task[Outcome[int, StoreNotFound | InvalidState | TimedOut | Unavailable]] | None = None

    def select(self, state: State) -> int | None:
        self.runs += 1
        found = state.get(self.cell)
        return found if found is not None and found >= self.value else None

    def matches(self, state: State | None) -> bool:
        return state is not None and state.get(self.cell, -1) >= self.value

    def outcome(self) -> Outcome[int, object] | None:
        assert self.task is not None
        return self.task.result() if self.task.done() else None


@dataclass
class World:
    """Two clients of one ledger, and all states that there were, None where there was no store."""

    stores: list[Store]
    history: list[tuple[str | None, State | None]] = field(default_factory=list[tuple[str | None, State | None]])
    waits: list[Wait] = field(default_factory=list[Wait])

    async def make(self, call: Call) -> None:
        store = self.stores[call.client]
        if call.kind == "put":
            await store.update(cells, "s", lambda state: state.update({call.cell: call.value}))
        elif call.kind == "replace":
            await store.update(cells, "s", lambda _: Replace({call.cell: call.value}))
        elif call.kind == "nothing":
            await store.update(cells, "s", lambda _: None)
        elif call.kind == "delete":
            await store.delete(cells, "s")
        elif call.kind == "create":
            await store.get_or_create(cells, "s", {"a": 0, "b": 0})
        else:
            wait = Wait(call.cell, call.value, len(self.history) - 1)
            wait.task = asyncio.create_task(store.handle(cells, "s").when(wait.select))
            self.waits.append(wait)

    async def note(self) -> None:
        """Remember the state in force."""
        outcome = await self.stores[0].get(cells, "s")
        if isinstance(outcome, Success):
            snapshot = outcome.unwrap()
            self.history.append((snapshot.instance_id, snapshot.state))
        else:
            self.history.append((None, None))


async def quiet() -> None:
    for _ in range(600):
        await asyncio.sleep(0)


async def run(program: list[Call], turns: list[int], *, pauses: bool) -> World:
    ids, clock, bus = CountedIds(), ManualClock(), MemoryWakeBus()
    memory, delays = MemoryLedger(clock), cycle(turns)
    ledger = memory if pauses else Slow(memory, delays)
    stores = [LedgerStore(ledger, clock, ids, bus) for _ in range(2)]
    world = World([*stores])
    success = await stores[0].get_or_create(cells, "s", {"a": 0, "b": 0})
    assert isinstance(success, Success)
    await world.note()
    running: list[asyncio.Task[None]] = []
    for call in program:
        if pauses:
            await world.make(call)
            await quiet()
            await world.note()
        else:
            running.append(asyncio.create_task(world.make(call)))
            for _ in range(next(delays)):
                await asyncio.sleep(0)
    await quiet()
    while not all(task.done() for task in running):  # others passed them, and they pause before they try again
        await clock.advance(32)
    await quiet()
    await world.note()
    return world


async def end(world: World) -> None:
    for wait in world.waits:
        assert wait.task is not None
        wait.task.cancel()
        await asyncio.wait((wait.task,))
    for store in world.stores:
        assert isinstance(store, LedgerStore)
        await store.close()


async def check_quiet(program: list[Call], turns: list[int]) -> None:
    world = await run(program, turns, pauses=False)
    _, state = world.history[-1]
    for wait in world.waits:
        outcome = wait.outcome()
        if outcome is None:
            assert state is not None, "it waits for a store that is gone"
            assert not wait.matches(state), "it was not woken"
        elif isinstance(outcome, Success):
            assert outcome.unwrap() >= wait.value
        else:
            assert isinstance(outcome.failure(), StoreNotFound)
    await end(world)


async def check_in_order(program: list[Call]) -> None:
    world = await run(program, [0], pauses=True)
    for wait in world.waits:
        instance, state = world.history[wait.begun]
        expected: Outcome[int, object] | None = None
        looks = 0
        for number in range(wait.begun, len(world.history)):
            now_instance, now = world.history[number]
            if now is None or now_instance != instance:
                expected = Failure(StoreNotFound(cells.key("s")))
                break
            looks += number == wait.begun or state is None or now.get(wait.cell) != state.get(wait.cell)
            if wait.matches(now):
                expected = Success(now[wait.cell])
                break
            state = now
        assert wait.outcome() == expected
        same = sum(call.kind == "put" and call.cell == wait.cell for call in program)  # what was written anew may wake
        assert looks <= wait.runs <= looks + same
    await end(world)


@settings(max_examples=200)
@given(calls, st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_no_wait_outlasts_a_state_that_matches(program: list[Call], turns: list[int]) -> None:
    asyncio.run(check_quiet(program, turns))


@settings(max_examples=60)
@given(calls)
def test_with_pauses_every_wait_ends_with_the_first_state_that_matches(program: list[Call]) -> None:
    asyncio.run(check_in_order(program))
