"""Cancelling a caller withdraws no batch that is with the ledger, and fails no neighbour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from stepwell import ManualClock, StepId, Store, Success, Unavailable
from stepwell.core.batch import Batch
from stepwell.layers.ids import CountedIds
from stepwell.layers.store import LedgerStore
from stepwell.layers.ticket import VERDICT_MS
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import Verdict

from .ledger_double import Gated, LedgerDouble, Rivalled
from .store_contract import made, messages
from .store_world import Chat, Host, World, append, chats, failure, open_world, success


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("memory", tmp_path) as opened:
        yield opened


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled(task: asyncio.Task[object]) -> bool:
    """Whether the task ends cancelled."""
    await asyncio.wait({task})
    return task.cancelled()


async def gated(world: World, clock: ManualClock) -> tuple[Store, Gated]:
    await made((await world.client()).store)
    gate = Gated(world.memory)
    return (await world.client(around=lambda _: gate, clock=clock)).store, gate


def start(store: Store, *names: str) -> list[asyncio.Task[object]]:
    return [asyncio.create_task(store.update(chats, "c", append(name))) for name in names]


async def test_a_caller_that_still_waits_is_withdrawn_at_once(world: World) -> None:
    store, gate = await gated(world, ManualClock())
    first, victim, behind = start(store, "first", "victim", "behind")
    await gate.entered()
    await turns()
    victim.cancel()
    assert await cancelled(victim)
    gate.open()
    assert isinstance(await first, Success)
    assert isinstance(await behind, Success)
    assert await messages(store) == (2, ["first", "behind"])


async def test_a_caller_whose_batch_is_with_the_ledger_waits_for_the_verdict(world: World) -> None:
    store, gate = await gated(world, ManualClock())
    first, victim, behind = start(store, "first", "victim", "behind")
    await turns()
    gate.let_one()
    await asyncio.wait({first})  # now the two others are with the ledger, together
    await turns()
    assert gate.calls == [1, 2]
    victim.cancel()
    await turns()
    assert not victim.done()
    gate.open()
    assert await cancelled(victim)
    assert isinstance(await behind, Success)
    assert await messages(store) == (3, ["first", "victim", "behind"])


async def test_it_waits_for_a_bounded_time(world: World) -> None:
    clock = ManualClock()
    store, gate = await gated(world, clock)
    first, victim, behind = start(store, "first", "victim", "behind")
    await turns()
    gate.let_one()
    await asyncio.wait({first})
    await turns()
    victim.cancel()
    await clock.advance(VERDICT_MS - 1)
    assert not victim.done()
    await clock.advance(1)
    assert await cancelled(victim)
    gate.open()
    assert isinstance(await behind, Success)
    assert await messages(store) == (3, ["first", "victim", "behind"])


async def test_a_second_cancellation_ends_the_wait(world: World) -> None:
    store, gate = await gated(world, ManualClock())
    first, victim, behind = start(store, "first", "victim", "behind")
    await turns()
    gate.let_one()
    await asyncio.wait({first})
    await turns()
    victim.cancel()
    await turns()
    victim.cancel()
    assert await cancelled(victim)
    gate.open()
    assert isinstance(await behind, Success)
    assert await messages(store) == (3, ["first", "victim", "behind"])


async def test_a_cancelled_caller_whose_batch_is_refused_is_not_planned_again(world: World) -> None:
    other = (await world.client()).store
    store, gate = await gated(world, ManualClock())
    first, victim, behind = start(store, "first", "victim", "behind")
    await turns()
    gate.let_one()
    await asyncio.wait({first})
    await turns()
    victim.cancel()
    success(await other.update(chats, "c", append("other")))
    gate.open()
    assert await cancelled(victim)
    assert isinstance(await behind, Success)
    assert await messages(store) == (3, ["first", "other", "behind"])


async def test_a_caller_alone_that_is_cancelled_hands_the_lane_on(world: World) -> None:
    store, gate = await gated(world, ManualClock())
    (alone,) = start(store, "alone")
    await gate.entered()
    behind = start(store, "one", "two")
    await turns()
    alone.cancel()
    assert await cancelled(alone)  # this double is not as careful as a ledger: the batch is withdrawn
    gate.open()
    assert [isinstance(await task, Success) for task in behind] == [True, True]
    assert await messages(store) == (2, ["one", "two"])


async def test_a_caller_that_pauses_between_attempts_can_be_cancelled(world: World) -> None:
    other = (await world.client()).store
    await made(other)

    async def rival() -> None:
        success(await other.update(chats, "c", append("other")))

    clock = ManualClock()
    store = (await world.client(around=lambda ledger: Rivalled(ledger, rival), clock=clock)).store
    victim, behind = start(store, "victim", "behind")
    await turns(100)
    assert not victim.done()
    victim.cancel()
    assert await cancelled(victim)
    behind.cancel()
    assert await cancelled(behind)
    _, ids = await messages(other)
    assert set(ids) == {"other"}


async def test_an_initial_state_that_is_awaited_holds_up_nobody(world: World) -> None:
    store = (await world.client()).store

    async def never() -> Chat:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    victim = asyncio.create_task(store.get_or_create(chats, "c", never))
    await turns()
    created = await made(store)
    victim.cancel()
    assert await cancelled(victim)
    assert success(await store.get(chats, "c")) == created


async def test_when_the_store_is_closed_whoever_waits_is_told(world: World) -> None:
    await made((await world.client()).store)
    gate = Gated(world.memory)
    store = LedgerStore(gate, ManualClock(), CountedIds(), MemoryWakeBus())
    tasks = [asyncio.create_task(store.update(chats, "c", append(str(number)))) for number in range(3)]
    await turns()
    gate.let_one()
    await asyncio.wait({tasks[0]})
    await turns()
    tasks.append(asyncio.create_task(store.update(chats, "c", append("late"))))
    await turns()
    await store.close()
    assert [failure(await task) for task in tasks[1:]] == [
        Unavailable("the store was closed while a call waited", "unknown"),  # with the ledger, together
        Unavailable("the store was closed while a call waited", "unknown"),
        Unavailable("the store was closed while a call waited", "no"),
    ]


# --- at every point ------------------------------------------------------------------


class Slow(LedgerDouble):
    """Every call takes some turns of the loop, so that there are many points to be cancelled at."""

    async def commit(self, batch: Batch) -> Verdict:
        await turns(2)
        return await super().commit(batch)


Call = Callable[[Store], "asyncio.Future[object]"]


@pytest.mark.parametrize("host", ["memory", "sqlite"])
@pytest.mark.parametrize("step", [None, StepId("run", "victim")])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_cancelled_at_any_point_a_call_fails_no_neighbour(
    tmp_path: Path, host: Host, step: StepId | None, place: int
) -> None:
    """Three callers of one store, one of which is cancelled after 0, 1, 2 … turns, until that is too late.

    In memory every point is reached; beside a thread that commits, how far 100 turns reach is a matter of its speed.
    """
    async with AsyncExitStack() as scope:
        world = World(host, tmp_path / "app.db", scope)
        store = (await world.client(around=Slow, clock=ManualClock())).store
        for point in range(100):
            id = f"c-{point}"
            await made(store, id)
            tasks: list[asyncio.Task[object]] = []
            for number in range(3):
                own = step if number == place else None
                tasks.append(asyncio.create_task(store.update(chats, id, append(str(number)), step=own)))
            await turns(point)
            tasks[place].cancel()
            await asyncio.wait(tasks)
            for number, task in enumerate(tasks):
                assert number == place or isinstance(task.result(), Success)
            after = success(await store.update(chats, id, append("after")))
            version, ids = await messages(store, id)
            assert (version, version) == (after.version, len(ids))
            assert len(ids) == len(set(ids))
            assert {"after", *(str(n) for n in range(3) if n != place)} <= set(ids)
            if step is not None:
                again = success(await store.update(chats, id, append(str(place)), step=step))
                assert (await messages(store, id))[1].count(str(place)) == 1
                assert again.version <= 4
            if not tasks[place].cancelled():
                return
    assert host == "sqlite"
