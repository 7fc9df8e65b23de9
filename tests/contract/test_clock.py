"""The clocks: the one that tests move, the machine's, and none."""

from __future__ import annotations

import asyncio
import time

import pytest

from stepwell import Clock, ManualClock, build, get
from stepwell.layers import clock as clocks
from stepwell.layers.clock import SLICE_MS, NoopClock, SystemClock


class Sleepers:
    """Tasks that note when they woke, by name."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.woken: list[tuple[str, int]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, name: str, *instants: int) -> asyncio.Task[None]:
        task = asyncio.create_task(self._sleep(name, instants))
        self.tasks.append(task)
        return task

    async def _sleep(self, name: str, instants: tuple[int, ...]) -> None:
        for at_ms in instants:
            await self.clock.sleep_until_ms(at_ms)
            self.woken.append((name, self.clock.now_ms()))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- the clock that tests move -------------------------------------------------


async def test_it_stands_still_by_itself() -> None:
    clock = ManualClock(1_000)
    sleepers = Sleepers(clock)
    task = sleepers.add("a", 1_001)
    await turns()
    assert (clock.now_ms(), sleepers.woken) == (1_000, [])
    await clock.advance(1)
    assert (task.done(), clock.now_ms(), sleepers.woken) == (True, 1_001, [("a", 1_001)])


async def test_what_is_due_already_does_not_wait() -> None:
    clock = ManualClock(10)
    await clock.sleep_until_ms(10)
    await clock.sleep_until_ms(-5)
    assert clock.now_ms() == 10


async def test_sleepers_wake_at_their_own_instants_in_order() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)
    sleepers.add("late", 30)
    sleepers.add("early", 10)
    sleepers.add("beyond", 41)
    await turns()
    await clock.advance(40)
    assert sleepers.woken == [("early", 10), ("late", 30)]
    assert clock.now_ms() == 40
    await clock.advance(1)
    assert sleepers.woken[-1] == ("beyond", 41)


async def test_sleepers_of_one_instant_wake_in_the_order_in_which_they_fell_asleep() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)
    for name in ("c", "a", "b"):
        sleepers.add(name, 5)
    await turns()
    await clock.advance(5)
    assert sleepers.woken == [("c", 5), ("a", 5), ("b", 5)]


async def test_whoever_falls_asleep_during_an_advance_is_woken_by_it() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)
    sleepers.add("again", 10, 20, 25)
    sleepers.add("between", 15)
    await turns()
    await clock.advance(25)
    assert sleepers.woken == [("again", 10), ("between", 15), ("again", 20), ("again", 25)]


async def test_a_task_that_has_not_begun_yet_is_woken_too() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)
    sleepers.add("new", 10)
    await clock.advance(10)
    assert sleepers.woken == [("new", 10)]


async def test_a_cancelled_sleeper_is_gone_and_holds_up_nobody() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)
    gone = sleepers.add("gone", 10)
    sleepers.add("stays", 10)
    await turns()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await clock.advance(10)
    assert sleepers.woken == [("stays", 10)]


async def test_a_sleeper_that_is_cancelled_by_one_of_the_same_instant_does_not_wake() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)

    async def cancels() -> None:
        await clock.sleep_until_ms(10)
        victim.cancel()

    first = asyncio.create_task(cancels())
    await turns()
    victim = sleepers.add("victim", 10)
    await turns()
    await clock.advance(10)
    await first
    assert (sleepers.woken, victim.cancelled()) == ([], True)


async def test_a_cancelled_advance_leaves_the_clock_where_it_stopped() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)

    async def cancels() -> None:
        await clock.sleep_until_ms(10)
        moving.cancel()

    sleepers.tasks.append(asyncio.create_task(cancels()))
    sleepers.add("later", 20)
    moving = asyncio.create_task(clock.advance(30))
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert (clock.now_ms(), sleepers.woken) == (10, [])
    await clock.advance(20)
    assert sleepers.woken == [("later", 20)]


async def test_one_advance_follows_the_other() -> None:
    clock = ManualClock()
    sleepers = Sleepers(clock)
    for at_ms in (4, 9, 15, 22):
        sleepers.add(str(at_ms), at_ms)
    await asyncio.gather(clock.advance(10), clock.advance(12))
    assert sleepers.woken == [("4", 4), ("9", 9), ("15", 15), ("22", 22)]
    assert clock.now_ms() == 22


async def test_a_sleeper_may_advance_the_clock_itself() -> None:
    clock = ManualClock()

    async def moves() -> int:
        await clock.sleep_until_ms(5)
        await clock.advance(5)
        return clock.now_ms()

    mover = asyncio.create_task(moves())
    await clock.advance(5)
    assert await mover == 10
    assert clock.now_ms() == 10


async def test_it_does_not_go_back() -> None:
    clock = ManualClock(7)
    with pytest.raises(ValueError, match="-1 ms is negative"):
        await clock.advance(-1)
    await clock.advance(0)
    assert clock.now_ms() == 7


# --- the layers ------------------------------------------------------------------


async def test_layer_is_the_wall_clock_in_whole_milliseconds() -> None:
    async with build(clocks.layer()) as built:
        clock = get(built.unwrap(), Clock)
        before = time.time_ns() // 1_000_000
        now_ms = clock.now_ms()
        assert before <= now_ms <= time.time_ns() // 1_000_000
        await clock.sleep_until_ms(now_ms)
        await clock.sleep_until_ms(now_ms + 3)
        assert clock.now_ms() >= now_ms + 3
    assert SLICE_MS <= 10_000


async def test_sleeping_on_the_machines_clock_can_be_cancelled() -> None:
    clock = SystemClock()
    task = asyncio.create_task(clock.sleep_until_ms(clock.now_ms() + 1_000_000))
    await turns()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_layer_test_gives_the_clock_that_it_was_given() -> None:
    mine = ManualClock(5)
    async with build(clocks.layer_test(mine)) as built:
        assert get(built.unwrap(), Clock) is mine
    async with build(clocks.layer_test()) as built:
        own = get(built.unwrap(), Clock)
        assert isinstance(own, ManualClock)
        assert own.now_ms() == 0


async def test_layer_noop_raises_and_says_what_to_do() -> None:
    async with build(clocks.layer_noop()) as built:
        clock = get(built.unwrap(), Clock)
        assert isinstance(clock, NoopClock)
        with pytest.raises(RuntimeError, match="there is no clock here: override it by layer"):
            clock.now_ms()
        with pytest.raises(RuntimeError, match="there is no clock here"):
            await clock.sleep_until_ms(0)
