"""Who in this engine waits for the end of a run.

The drivers of this engine tell of theirs, with what was recorded. For the ends that others bring about, whoever waits
looks again when the ledger has news, all at once and not too often, and after growing pauses where news may be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias, final

from ...core.run import RunRow
from ...services.clock import Clock
from ...services.ledger import Ledger, News

__all__ = ["ResultListeners"]

Sign: TypeAlias = asyncio.Future[RunRow | None]

LEAST_MS: Final = 10
"""How often at most all who wait look again."""

LOOKS_PER_MS: Final = 4
"""How many of them look in a millisecond of these pauses: the more wait, the longer they are."""


@final
class ResultListeners:
    """A sign for everybody who waits for the end of a run: its row if that is known, otherwise to look at it.

    `drives` says whether a driver of this engine has the run, and will tell of its end.
    """

    __slots__ = ("_again", "_by_run", "_clock", "_drives", "_looked_at_ms", "_stop", "closed")

    def __init__(self, ledger: Ledger, clock: Clock, drives: Callable[[str], bool]) -> None:
        self.closed = False
        """Whoever waits from then on would not hear of the end."""
        self._clock = clock
        self._drives = drives
        self._by_run: dict[str, list[Sign]] = {}
        self._looked_at_ms = 0
        self._again: asyncio.Task[None] | None = None
        self._stop = ledger.subscribe(self._hear)

    def close(self) -> None:
        """Hear of nothing more; whoever waits looks once more."""
        self.closed = True
        self._stop()
        if self._again is not None:
            _ = self._again.cancel()
        for run_id in tuple(self._by_run):
            self.tell(run_id)

    @contextmanager
    def listening(self, run_id: str) -> Generator[Sign]:
        """A sign that the run may have ended since the block began; look at its row inside of the block."""
        sign: Sign = asyncio.get_running_loop().create_future()
        self._by_run.setdefault(run_id, []).append(sign)
        try:
            yield sign
        finally:
            listeners = self._by_run.get(run_id, [])
            if sign in listeners:
                listeners.remove(sign)
            if not listeners:
                _ = self._by_run.pop(run_id, None)

    def tell(self, run_id: str, ended: RunRow | None = None) -> None:
        """A driver is done with the run; `ended` is its row, if it has ended."""
        for sign in self._by_run.pop(run_id, ()):
            if not sign.done():
                sign.set_result(ended)

    async def wait(self, sign: Sign, most_ms: int) -> bool:
        """Return at the sign, or after so many milliseconds; whether it was the sign."""
        timer = asyncio.get_running_loop().create_task(self._clock.sleep_until_ms(self._clock.now_ms() + most_ms))
        try:
            _ = await asyncio.wait((timer, sign), return_when=asyncio.FIRST_COMPLETED)
        finally:
            _ = timer.cancel()
        return sign.done()

    def _hear(self, news: News) -> None:
        if not self._by_run or self._again is not None:
            return
        due_ms = self._looked_at_ms + max(LEAST_MS, len(self._by_run) // LOOKS_PER_MS)
        if due_ms <= self._clock.now_ms():
            self._tell_all()
        else:
            self._again = asyncio.get_running_loop().create_task(self._tell_all_at(due_ms))

    async def _tell_all_at(self, at_ms: int) -> None:
        await self._clock.sleep_until_ms(at_ms)
        self._again = None
        self._tell_all()

    def _tell_all(self) -> None:
        self._looked_at_ms = self._clock.now_ms()
        for run_id in tuple(self._by_run):
            if not self._drives(run_id):
                self.tell(run_id)
