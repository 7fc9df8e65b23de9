"""The clock: the only source of time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import timedelta
from math import isfinite
from typing import Final, Protocol

__all__ = ["Clock", "ManualClock", "span_ms"]

LONGEST_S: Final = 1_000 * 365.25 * 24 * 3600
"""The longest span of time, so that every instant is a date."""


def span_ms(what: str, span: object) -> int:
    """A span of time that a caller gave, in milliseconds. A TypeError or ValueError says of `what` that it is none."""
    if isinstance(span, bool) or not isinstance(span, timedelta | int | float):
        raise TypeError(f"{what} is a number of seconds or a timedelta, not {span!r}")
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not isfinite(seconds):
        raise ValueError(f"{what} is a number of seconds, not {span!r}")
    if abs(seconds) > LONGEST_S:
        raise ValueError(f"{what} is at most 1,000 years, not {span!r}; for no end at all leave it out")
    return round(seconds * 1000)


class Clock(Protocol):
    """Milliseconds since the epoch of this clock; instants are whole numbers."""

    def now_ms(self) -> int:
        """The present instant. It may go backwards, where the machine's clock is set back."""
        ...

    async def sleep_until_ms(self, at_ms: int) -> None:
        """Return when `now_ms()` is `at_ms` or later; at once if it is already."""
        ...


class ManualClock:
    """A clock that stands still until it is told to move, for tests; `stepwell.layers.clock.layer_test` gives it."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._moving = asyncio.Lock()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._now_ms

    async def sleep_until_ms(self, at_ms: int) -> None:
        if at_ms <= self._now_ms:
            return
        woken = asyncio.get_running_loop().create_future()
        sleeper = (at_ms, next(self._order), woken)
        heapq.heappush(self._sleepers, sleeper)
        try:
            await woken
        except asyncio.CancelledError:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)
            raise

    async def advance(self, ms: int) -> None:
        """Move on by `ms` milliseconds, stopping at each sleeper's instant, in order, to let it run.

        Sleepers of one instant run in the order in which they fell asleep, those that fall asleep meanwhile with them.
        After each the event loop is given a bounded number of turns, so that what became due has run, and has gone to
        sleep again, before time moves on. One advance follows the other. A negative number is a ValueError.
        """
        if ms < 0:
            raise ValueError(f"a clock moves forward: {ms} ms is negative")
        async with self._moving:
            end_ms = self._now_ms + ms
            await _settle()
            while self._sleepers and self._sleepers[0][0] <= end_ms:
                self._now_ms, _, woken = heapq.heappop(self._sleepers)
                if not woken.done():  # cancelled, and not yet out of the way
                    woken.set_result(None)
                await _settle()
            self._now_ms = end_ms


SETTLE_TURNS: Final = 50
"""How many turns of the event loop a woken task is given before time moves on."""


async def _settle() -> None:
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)
