"""The turnstile by itself: results reach branches one by one, and what is abandoned or claimed holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from stepwell.layers.driver.turnstile import Turnstile


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def begin(coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(coroutine)


def forked(branches: int) -> Turnstile:
    """A turnstile of so many branches, all of them at a durable call."""
    turnstile = Turnstile()
    turnstile.fork(branches)
    for _ in range(branches):
        turnstile.block()
    return turnstile


async def test_a_later_result_is_handed_over_when_an_earlier_one_is_abandoned() -> None:
    turnstile = forked(2)
    turnstile.assign(1)
    turnstile.assign(2)
    later = begin(turnstile.pass_(2))
    await turns()
    assert not later.done()
    turnstile.abandon(1)
    await turns()
    assert later.done()


async def test_a_claim_waits_for_what_is_on_its_way_and_holds_up_what_comes_after_it() -> None:
    turnstile = forked(3)
    for position in (1, 2, 3):
        turnstile.assign(position)
    claim = begin(turnstile.claim(2))
    later = begin(turnstile.pass_(3))
    await turns()
    assert not claim.done()
    await turnstile.pass_(1)  # its branch runs now
    await turns()
    assert not claim.done()
    turnstile.block()  # and stands again
    await turns()
    assert claim.done()
    await turns()
    assert not later.done()
    await turnstile.pass_(2)  # the claim was good: its result is handed over first
    turnstile.block()
    await turns()
    assert later.done()


async def test_a_claim_that_came_to_nothing_lets_the_next_one_through() -> None:
    turnstile = forked(2)
    for position in (1, 2):
        turnstile.assign(position)
    await turnstile.claim(1)
    later = begin(turnstile.pass_(2))
    await turns()
    assert not later.done()
    turnstile.abandon(1)
    await turns()
    assert later.done()


async def test_a_branch_that_waits_elsewhere_holds_a_claim_up_for_a_few_turns_only() -> None:
    turnstile = forked(2)
    turnstile.unblock()
    turnstile.assign(1)
    async with asyncio.timeout(10):
        await turnstile.claim(1)
