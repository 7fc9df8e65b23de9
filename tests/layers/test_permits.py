"""Permits: one holder of a key at a time, in turn, and nothing left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from stepwell import Boundary
from stepwell.layers.driver.permits import Permit, Permits, Places


async def test_holders_of_a_key_follow_one_another_in_turn() -> None:
    permits, order = Permits(), list[int]()
    inside = 0

    async def hold(number: int) -> None:
        nonlocal inside
        with Permit(permits) as permit:
            assert await permit.take("k") == (number > 0)
            assert not await permit.take("k")
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            order.append(number)
            inside -= 1

    await asyncio.gather(*map(hold, range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert len(permits) == 0


async def test_who_leaves_while_waiting_is_passed_over_also_at_the_moment_of_its_turn() -> None:
    permits = Permits()
    assert not await permits.take("k")
    waiting = [asyncio.ensure_future(permits.take("k")) for _ in range(3)]
    await asyncio.sleep(0)
    _ = waiting[0].cancel()
    permits.give_back("k")  # it is the second one's turn
    _ = waiting[1].cancel()  # which leaves at the same moment
    for left in waiting[:2]:
        with suppress(asyncio.CancelledError):
            _ = await left
    assert await waiting[2]
    permits.give_back("k")
    assert len(permits) == 0


async def test_another_key_is_held_in_place_of_the_first() -> None:
    permits = Permits()
    with Permit(permits) as permit:
        _ = await permit.take("a")
        _ = await permit.take("b")
        assert len(permits) == 1
        assert not await permits.take("a")
        assert [permit.may_wait(key) for key in ("a", "b", "c")] == [True, False, False]
    assert len(permits) == 1


async def test_places_that_meet_wait_and_others_do_not() -> None:
    places, order = Places(), list[str]()

    async def hold(name: str, *writes: str) -> None:
        async with places.hold(Boundary(writes=writes)):
            order.append(f"+{name}")
            await asyncio.sleep(0)
            order.append(f"-{name}")

    await asyncio.gather(hold("a", "out/**"), hold("b", "out/x"), hold("c", "other"))
    assert order == ["+a", "+c", "-a", "-c", "+b", "-b"]


async def test_who_reads_what_another_one_writes_comes_in_the_order_of_the_calls() -> None:
    places, order = Places(), list[str]()

    async def hold(name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> None:
        async with places.hold(Boundary(reads=reads, writes=writes)):
            order.append(f"+{name}")
            await asyncio.sleep(0)
            order.append(f"-{name}")

    await asyncio.gather(
        hold("early", ("out/x",), ()),
        hold("writer", ("src/**",), ("out/x",)),
        hold("late", ("out/*",), ("more",)),
        hold("reader", ("src/a",), ()),
        hold("again", ("other",), ("out/x",)),
    )
    assert order == [
        "+early",
        "+reader",
        "-early",
        "-reader",
        "+writer",
        "-writer",
        "+late",
        "-late",
        "+again",
        "-again",
    ]


async def test_who_gives_up_waiting_is_in_nobodys_way() -> None:
    places, order = Places(), list[str]()
    first = asyncio.Event()

    async def hold(name: str, until: asyncio.Event | None = None) -> None:
        async with places.hold(Boundary(writes=("x",))):
            order.append(name)
            if until is not None:
                _ = await until.wait()

    one, two, three = (asyncio.ensure_future(each) for each in (hold("one", first), hold("two"), hold("three")))
    await asyncio.sleep(0)
    two.cancel()
    first.set()
    await asyncio.gather(one, three)
    assert order == ["one", "three"]
    assert two.cancelled()
