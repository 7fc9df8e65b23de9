"""The wake bus: edge-triggered, miss-tolerant, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from stepwell.layers import clock, wake_bus
from stepwell.layers.layer import Layer, build, get
from stepwell.layers.wake_bus import REMEMBERED_WAKES, MemoryWakeBus
from stepwell.services.clock import Clock, ManualClock
from stepwell.services.wake_bus import WakeBus, WakeToken

LAYERS = {"layer": wake_bus.layer, "layer_test": wake_bus.layer_test}


@pytest.fixture(params=LAYERS)
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[WakeBus]:
    async with build(LAYERS[str(request.param)]()) as built:
        yield get(built.unwrap(), WakeBus)


@pytest.fixture
async def noop() -> AsyncIterator[WakeBus]:
    async with build(wake_bus.layer_noop()) as built:
        yield get(built.unwrap(), WakeBus)


async def turns(count: int = 5) -> None:
    """Let every task that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def wait(bus: WakeBus, run_id: str, token: WakeToken | None = None) -> asyncio.Task[None]:
    """A task that waits for a wake, and has begun to."""
    task = asyncio.create_task(bus.await_wake(run_id, token))
    await turns()
    return task


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        _ = task.cancel()
    _ = await asyncio.gather(*tasks, return_exceptions=True)


# --- the bus alone ------------------------------------------------------------


async def test_w1_a_wake_before_the_wait_does_not_count(bus: WakeBus) -> None:
    await bus.wake("x")
    waiting = await wait(bus, "x")
    assert (waiting.done(), await bus.waiters("x")) == (False, 1)
    await bus.wake("x")
    await waiting
    assert await bus.waiters("x") == 0


async def test_w2_a_wake_releases_all_who_wait_for_that_id_and_nobody_else(bus: WakeBus) -> None:
    first, second, other = [await wait(bus, run_id) for run_id in ("run-a", "run-a", "run-b")]
    await bus.wake("run-a")
    await turns()
    assert [task.done() for task in (first, second, other)] == [True, True, False]
    assert (await bus.waiters("run-a"), await bus.waiters("run-b")) == (0, 1)
    await end(other)


async def test_w3_a_cancelled_wait_leaves_nothing(bus: WakeBus) -> None:
    waiting = await wait(bus, "x")
    assert await bus.waiters("x") == 1
    await end(waiting)
    assert (waiting.cancelled(), await bus.waiters("x")) == (True, 0)


async def test_w4_a_wait_that_lost_a_race_leaves_nothing(bus: WakeBus) -> None:
    manual = ManualClock()
    async with build(clock.layer_test(manual)) as built:
        timer = asyncio.create_task(get(built.unwrap(), Clock).sleep_until_ms(10))
        waiting = await wait(bus, "x")
        race = asyncio.create_task(asyncio.wait((timer, waiting), return_when=asyncio.FIRST_COMPLETED))
        await manual.advance(9)
        assert not race.done()
        await manual.advance(1)
        done, _ = await race
        assert done == {timer}
        await end(waiting)
    assert await bus.waiters("x") == 0


async def test_w5_without_a_bus_nobody_is_woken_or_counted(noop: WakeBus) -> None:
    await noop.wake("x")
    waiting = await wait(noop, "x")
    await noop.wake("x")
    await turns()
    assert (waiting.done(), await noop.waiters("x")) == (False, 0)
    await end(waiting)
    assert waiting.cancelled()


async def test_w6_a_wake_of_an_id_that_nobody_used_makes_no_entry(bus: WakeBus) -> None:
    await bus.wake("unknown")
    assert await bus.waiters("unknown") == 0
    assert isinstance(bus, MemoryWakeBus)
    assert bus.entries == 0


async def test_w7_who_waits_again_at_once_is_not_released_twice_by_one_wake(bus: WakeBus) -> None:
    released = 0

    async def again_and_again() -> None:
        nonlocal released
        while True:
            await bus.await_wake("x")
            released += 1

    loops = [asyncio.create_task(again_and_again()) for _ in range(2)]
    await turns()
    await bus.wake("x")
    await turns(20)
    assert (released, await bus.waiters("x")) == (2, 2)
    await bus.wake("x")
    await turns(20)
    assert released == 4
    await end(*loops)


async def test_w8_when_all_have_left_the_bus_holds_no_entry(bus: WakeBus) -> None:
    ids = [f"run-{number}" for number in range(10_000)]
    waiting = [asyncio.create_task(bus.await_wake(run_id)) for run_id in ids]
    await turns()
    assert isinstance(bus, MemoryWakeBus)
    assert bus.entries == 10_000
    for run_id in ids[::2]:
        await bus.wake(run_id)
    for task in waiting[1::2]:
        _ = task.cancel()
    _ = await asyncio.gather(*waiting, return_exceptions=True)
    assert [task.cancelled() for task in waiting] == [False, True] * 5_000
    assert bus.entries == 0
    assert sum([await bus.waiters(run_id) for run_id in ids]) == 0


async def test_w9_one_of_two_may_leave(bus: WakeBus) -> None:
    first, second = await wait(bus, "x"), await wait(bus, "x")
    await end(first)
    assert await bus.waiters("x") == 1
    await bus.wake("x")
    await second


async def test_w10_two_wakes_in_one_turn_are_one_release(bus: WakeBus) -> None:
    waiting = await wait(bus, "x")
    await bus.wake("x")
    await bus.wake("x")
    await waiting
    again = await wait(bus, "x")
    assert not again.done()
    await end(again)


async def test_a_wait_that_is_woken_and_cancelled_in_one_turn_ends_cancelled(bus: WakeBus) -> None:
    waiting, other = await wait(bus, "x"), await wait(bus, "x")
    await bus.wake("x")
    _ = waiting.cancel()
    await turns()
    assert (waiting.cancelled(), other.done(), await bus.waiters("x")) == (True, True, 0)


async def test_a_wait_that_is_cancelled_and_woken_in_one_turn_does_not_disturb_the_wake(bus: WakeBus) -> None:
    waiting, other = await wait(bus, "x"), await wait(bus, "x")
    _ = waiting.cancel()
    await bus.wake("x")
    await turns()
    assert (waiting.cancelled(), other.done(), await bus.waiters("x")) == (True, True, 0)


# --- tokens -------------------------------------------------------------------


async def test_w17_a_wake_after_the_token_is_not_missed(bus: WakeBus) -> None:
    token = bus.token("x")
    await bus.wake("x")
    await bus.await_wake("x", token)
    assert await bus.waiters("x") == 0


async def test_w18_a_wake_before_the_token_does_not_count(bus: WakeBus) -> None:
    await bus.wake("x")
    waiting = await wait(bus, "x", bus.token("x"))
    assert (waiting.done(), await bus.waiters("x")) == (False, 1)
    await bus.wake("x")
    await waiting


async def test_w19_without_the_token_the_wait_is_edge_triggered(bus: WakeBus) -> None:
    _ = bus.token("x")
    await bus.wake("x")
    waiting = await wait(bus, "x")
    assert (waiting.done(), await bus.waiters("x")) == (False, 1)
    await end(waiting)


async def test_w20_a_token_may_be_used_again(bus: WakeBus) -> None:
    token = bus.token("x")
    waiting = await wait(bus, "x", token)
    assert not waiting.done()
    await bus.wake("x")
    await waiting
    await bus.await_wake("x", token)
    fresh = await wait(bus, "x", bus.token("x"))
    assert (fresh.done(), await bus.waiters("x")) == (False, 1)
    await end(fresh)


async def test_w21_two_may_hold_one_token(bus: WakeBus) -> None:
    token = bus.token("x")
    await bus.wake("x")
    both = await wait(bus, "x", token), await wait(bus, "x", token)
    assert [task.done() for task in both] == [True, True]


async def test_w22_tokens_that_are_never_used_cost_the_bus_nothing(bus: WakeBus) -> None:
    assert isinstance(bus, MemoryWakeBus)
    ids = [f"run-{number}" for number in range(10_000)]
    _ = [bus.token(run_id) for run_id in ids]
    assert (bus.entries, bus.remembered) == (0, 0)
    tracemalloc.start()
    try:
        for run_id in ids:
            await bus.wake(run_id)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (bus.entries, bus.remembered) == (0, REMEMBERED_WAKES)
    assert held < 2**20
    assert sum([await bus.waiters(run_id) for run_id in ids]) == 0


async def test_w22_a_token_that_can_not_be_judged_any_more_returns_at_once(bus: WakeBus) -> None:
    old = bus.token("x")
    await bus.wake("forgotten")
    for number in range(REMEMBERED_WAKES - 1):
        await bus.wake(f"run-{number}")
    still_judged = await wait(bus, "x", old)  # what was woken since is all remembered, and "x" is not among it
    assert not still_judged.done()
    await end(still_judged)
    await bus.wake("one more")
    await bus.await_wake("x", old)
    fresh = await wait(bus, "x", bus.token("x"))
    assert not fresh.done()
    await end(fresh)


async def test_a_wake_that_is_remembered_is_not_taken_for_a_later_one(bus: WakeBus) -> None:
    await bus.wake("x")
    token = bus.token("x")
    for number in range(REMEMBERED_WAKES - 1):
        await bus.wake(f"run-{number}")
    waiting = await wait(bus, "x", token)
    assert not waiting.done()
    await end(waiting)


async def test_a_wake_moves_its_id_to_the_end_of_what_is_remembered(bus: WakeBus) -> None:
    await bus.wake("x")
    await bus.wake("y")
    await bus.wake("x")
    token = bus.token("x")
    for number in range(REMEMBERED_WAKES - 1):  # which forgets "y", but not "x"
        await bus.wake(f"run-{number}")
    waiting = await wait(bus, "x", token)
    assert not waiting.done()
    await end(waiting)


async def test_a_token_of_another_bus_returns_at_once(bus: WakeBus) -> None:
    other = MemoryWakeBus()
    await other.wake("x")
    await bus.await_wake("x", other.token("x"))


async def test_w23_without_a_bus_a_token_is_given_but_of_no_use(noop: WakeBus) -> None:
    token = noop.token("x")
    assert isinstance(token, WakeToken)
    await noop.wake("x")
    waiting = await wait(noop, "x", token)
    assert not waiting.done()
    await end(waiting)


# --- the rest -----------------------------------------------------------------


async def test_single_operations_of_an_absent_bus_can_be_replaced() -> None:
    calls: list[object] = []

    async def wake(run_id: str) -> None:
        calls.append(run_id)

    async def await_wake(run_id: str, token: WakeToken | None) -> None:
        calls.append((run_id, token))

    async def waiters(run_id: str) -> int:
        return len(run_id)

    replaced: Layer[WakeBus, WakeBus] = wake_bus.layer_noop(
        wake=wake, await_wake=await_wake, waiters=waiters, token=lambda _: WakeToken(7)
    )
    async with build(replaced) as built:
        bus = get(built.unwrap(), WakeBus)
        await bus.wake("a")
        await bus.await_wake("b", bus.token("b"))
        await bus.await_wake("c")
        assert await bus.waiters("four") == 4
    assert calls == ["a", ("b", WakeToken(7)), ("c", None)]


def test_another_event_loop_is_told_so() -> None:
    bus = MemoryWakeBus()
    asyncio.run(bus.wake("x"))
    with pytest.raises(RuntimeError, match="this wake bus belongs to another event loop"):
        asyncio.run(bus.wake("x"))
    with pytest.raises(RuntimeError, match="this wake bus belongs to another event loop"):
        asyncio.run(bus.await_wake("x", bus.token("x")))
