"""The clock: the only source of time."""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol

__all__ = ["Clock", "ManualClock"]


class Clock(Protocol):
    """Milliseconds since the epoch of this clock; instants are whole numbers."""

    def now_ms(self) -> int:
        """The present instant. It may go backwards, where the machine's clock is set back."""
        ...

    async def sleep_until_ms(self, at_ms: int) -> None:
        """Return when `now_ms()` is `at_ms` or later; at once if it is already."""
        ...


class ManualClock:
    """A clock that stands still until it is told to move; for tests. `layer_test` of `stepwell.layers.clock` gives it."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = 0

    def now_ms(self) -> int:
        return self._now_ms

    async def sleep_until_ms(self, at_ms: int) -> None:
        if at_ms <= self._now_ms:
            return
        self._order += 1
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (at_ms, self._order, woken))
        await woken

    async def advance(self, ms: int) -> None:
        """Move on by `ms` milliseconds, stopping at each sleeper's instant, in order, to let it run.

        A negative number is a ValueError. After each wake the event loop is given a bounded number of turns, so that
        what became due has run, and has gone to sleep again, before time moves on.
        """
        if ms < 0:
            raise ValueError(f"a clock moves forward: {ms} ms is negative")
        end = self._now_ms + ms
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at_ms, _, woken = heapq.heappop(self._sleepers)
            if woken.done():  # its sleeper was cancelled
                continue
            self._now_ms = max(self._now_ms, at_ms)
            woken.set_result(None)
            await _settle()
        self._now_ms = end


SETTLE_TURNS = 50
"""How many turns of the event loop a woken task is given before time moves on."""


async def _settle() -> None:
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)
