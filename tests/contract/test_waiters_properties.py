"""Whatever happens in whatever order, what is owed is delivered, and nothing is that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from stepwell import (
    ManualClock,
    Registered,
    Revision,
    StepId,
    StoreKey,
    Success,
    Waiter,
    Waiters,
    build,
    get,
)
from stepwell.core.batch import Batch, CreateStore, DeleteStore, PatchStore, StoreAbsent, StoreAt
from stepwell.layers import clock, waiters, wake_bus
from stepwell.layers.ledger import MemoryLedger

from .store_world import given_ledger, success
from .waiters_world import NOW_MS, turns

KEY = StoreKey("orders", "o-1")

Action: TypeAlias = tuple[str, int, int]

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("register", "register-late", "change", "change", "recreate"),
                *("acknowledge", "acknowledge-old", "cancel"),
                *("fail", "work", "wait", "wait-long", "settle", "restart"),
            )
        ),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=40,
)


@dataclass
class Model:
    """The naive definition: a waiter is owed a wake from the first change of what it read on, until it is removed."""

    fields_of: dict[str, int] = field(default_factory=dict[str, int])
    owed: set[str] = field(default_factory=set[str])
    delivered: set[str] = field(default_factory=set[str])
    prompt: set[str] = field(default_factory=set[str])
    """Came to be owed while the bus worked, which it has done since."""

    def readers(self, number: int | None = None) -> set[str]:
        """Who waits for a field; without one, who waits."""
        return {run_id for run_id, read in self.fields_of.items() if number in (None, read)}

    def owe(self, run_ids: set[str], *, failing: bool) -> None:
        new = run_ids - self.owed
        self.owed |= new
        self.prompt |= set() if failing else new

    def remove(self, run_id: str) -> None:
        _ = self.fields_of.pop(run_id, None)
        for each in (self.owed, self.delivered, self.prompt):
            each.discard(run_id)


class System:
    """A store of three fields, runs that wait for one of them each, and a bus that fails when it is told to."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.ledger = MemoryLedger(self.clock)
        self.model = Model()
        self.failing = False
        self.tip = Revision("instance-0", 0)
        self.history = [(0, self.tip)]  # which field each revision changed
        self.last: dict[str, Waiter] = {}
        self.older: dict[str, Waiter] = {}
        self.wrong: list[str] = []
        self.finished = False

    async def wake(self, run_id: str) -> None:
        """A wake that is not owed at this very moment is noted."""
        rows = success(await self.ledger.waiters(run_id=run_id))
        if all(row.due_no is None for row in rows):
            self.wrong.append(run_id)
        if self.failing:
            raise OSError("out of order")
        self.model.delivered.add(run_id)

    async def execute(self, actions: Sequence[Action]) -> None:
        await self.commit(Batch((StoreAbsent(KEY, self.tip),), (CreateStore(KEY, self.tip, b"{}"),)))
        rest = list(actions)
        while rest or not self.finished:
            layer = (
                given_ledger(self.ledger)
                | clock.layer_test(self.clock)
                | wake_bus.layer_noop(wake=self.wake)
                | waiters.layer_test()
            )
            async with build(layer) as built:
                service = get(success(built), Waiters)
                while rest:
                    action, run, number = rest.pop(0)
                    if action == "restart":
                        break
                    await self.act(service, action, f"run-{run}", number)
                    due = {wake.run_id for wake in success(await self.ledger.wakes())}
                    assert due == self.model.owed
                else:
                    await self.finish()

    async def finish(self) -> None:
        """The bus works, and time passes: all that is owed has been delivered since it came to be owed, or will be."""
        self.failing = False
        self.model.delivered.clear()
        await turns()
        await self.clock.advance(400_000)
        assert self.model.delivered == self.model.owed
        assert self.wrong == []
        self.finished = True

    async def act(self, service: Waiters, action: str, run_id: str, number: int) -> None:
        match action:
            case "register":
                await self.register(service, run_id, number, len(self.history) - 1)
            case "register-late":
                await self.register(service, run_id, number, max(0, len(self.history) - 3))
            case "change":
                await self.change(number)
            case "recreate":
                await self.recreate()
            case "acknowledge" if (waiter := self.last.get(run_id)) is not None:
                assert success(await service.acknowledge(waiter)) is (run_id in self.model.fields_of)
                self.model.remove(run_id)
            case "acknowledge-old" if (waiter := self.older.get(run_id)) is not None:
                assert success(await service.acknowledge(waiter)) is False
            case "cancel":
                assert success(await service.cancel(KEY, StepId(run_id, "wait"))) is None
                self.model.remove(run_id)
            case "fail" | "work":
                self.failing = action == "fail"
                self.model.prompt.clear()
            case "wait" | "wait-long":
                await self.clock.advance(700 * (number + 1) if action == "wait" else 40_000)
            case "settle":
                await self.settle()
            case _:
                pass

    async def settle(self) -> None:
        """With a bus that works, what came to be owed is delivered without any time passing."""
        await turns()
        assert self.model.prompt <= self.model.delivered

    async def register(self, service: Waiters, run_id: str, number: int, at: int) -> None:
        seen = self.history[at][1]
        waiter = Waiter(KEY, StepId(run_id, "wait"), seen, ((f"field-{number}",),))
        late = seen.instance_id != self.tip.instance_id or any(each == number for each, _ in self.history[at + 1 :])
        answer = await service.register(waiter)
        assert isinstance(answer, Success)
        self.model.remove(run_id)
        self.model.fields_of[run_id] = number
        if late:
            self.model.owe({run_id}, failing=self.failing)
        registered = answer.unwrap()
        assert registered == Registered(registered.waiter, late)
        if run_id in self.last:
            self.older[run_id] = self.last[run_id]
        self.last[run_id] = registered.waiter

    async def change(self, number: int) -> None:
        before, after = self.tip, Revision(self.tip.instance_id, self.tip.version + 1)
        patch = b'[["=",["field-%d"],%d]]' % (number, after.version)
        write = PatchStore(KEY, after, patch, ((f"field-{number}",),))
        await self.commit(Batch((StoreAt(KEY, before),), (write,)))
        self.model.owe(self.model.readers(number), failing=self.failing)
        self.tip = after
        self.history.append((number, after))

    async def recreate(self) -> None:
        new = Revision(f"instance-{len(self.history)}", 0)
        await self.commit(Batch((StoreAt(KEY, self.tip),), (DeleteStore(KEY, self.tip),)))
        self.model.owe(self.model.readers(), failing=self.failing)
        await self.commit(Batch((StoreAbsent(KEY, new),), (CreateStore(KEY, new, b"{}"),)))
        self.tip = new
        self.history.append((-1, new))

    async def commit(self, batch: Batch) -> None:
        _ = success(await self.ledger.commit(batch))


@given(ACTIONS)
def test_s66_s74_what_is_owed_is_delivered_and_nothing_else_is(actions: list[Action]) -> None:
    asyncio.run(System().execute(actions))
