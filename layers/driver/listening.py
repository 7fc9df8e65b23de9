"""Who in this engine waits for the end of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from ...services.clock import Clock

__all__ = ["Listeners"]


@final
class Listeners:
    """Told by the drivers of this engine; of other drivers nothing is heard, so whoever waits looks again."""

    __slots__ = ("_by_run", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_run: dict[str, list[asyncio.Future[None]]] = {}

    @contextmanager
    def listening(self, run_id: str) -> Generator[asyncio.Future[None]]:
        """A sign that the run may have ended since the block began; look at its row inside of the block."""
        sign: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_run.setdefault(run_id, []).append(sign)
        try:
            yield sign
        finally:
            listeners = self._by_run.get(run_id, [])
            if sign in listeners:
                listeners.remove(sign)
            if not listeners:
                _ = self._by_run.pop(run_id, None)

    def tell(self, run_id: str) -> None:
        """A driver is done with the run."""
        for sign in self._by_run.pop(run_id, ()):
            if not sign.done():
                sign.set_result(None)

    async def wait(self, sign: asyncio.Future[None], most_ms: int) -> None:
        """Return at the sign, or after so many milliseconds."""
        timer = asyncio.get_running_loop().create_task(self._clock.sleep_until_ms(self._clock.now_ms() + most_ms))
        try:
            _ = await asyncio.wait((timer, sign), return_when=asyncio.FIRST_COMPLETED)
        finally:
            _ = timer.cancel()
