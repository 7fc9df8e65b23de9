"""Growing pauses between tries of a write that the ledger could not answer."""

from __future__ import annotations

from typing import final

from ...services.clock import Clock

__all__ = ["Pauses"]

FIRST_MS = 50
CAP_MS = 5_000


@final
class Pauses:
    """None before the second try, then 50 ms, doubling up to 5 s."""

    __slots__ = ("_clock", "_next_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = 0

    async def next(self) -> None:
        """Wait for the next pause to pass."""
        pause_ms = self._next_ms
        self._next_ms = min(pause_ms * 2 or FIRST_MS, CAP_MS)
        await self._clock.sleep_until_ms(self._clock.now_ms() + pause_ms)
