"""Followers of journals: who reads what, up to where, and how each hears of more."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final, final

from ...core.journal import Entry
from ...core.model import Unavailable
from ...core.outcome import Failure
from ...core.poll import PollPolicy
from ...services.clock import Clock
from ...services.journal import JournalError
from ...services.ledger import Ledger, News
from .reading import Reading

__all__ = ["CLOSED", "POLL", "Bell", "Followers", "Reader"]

POLL: Final = PollPolicy(200, 1.5, 1_000)
"""How often a follower looks for entries of which there was no news: those of other processes, at times."""

CLOSED: Final = Unavailable("the journal is closed: journal_closed", "no")


@final
class Bell:
    """Rings whenever the ledger has news, for as long as it is open; and when it is closed."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.rings = 0
        self.is_closed = False
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()
        self._unsubscribe: Callable[[], None] = ledger.subscribe(self._hear)

    def close(self) -> None:
        self.is_closed = True
        self._unsubscribe()
        self._ring()

    async def wait(self, rings: int, pause_ms: int) -> None:
        """Return when it has rung more often than that, or after a pause."""
        if self.rings != rings or self.is_closed:
            return
        loop = asyncio.get_running_loop()
        bell = loop.create_future()
        alarm = loop.create_task(self._sound(bell, self._clock.now_ms() + pause_ms))
        self._waiting.add(bell)
        try:
            await bell
        finally:
            self._waiting.discard(bell)
            _ = alarm.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(alarm, return_exceptions=True)

    def _hear(self, _news: News) -> None:
        self._ring()

    def _ring(self) -> None:
        self.rings += 1
        for bell in tuple(self._waiting):
            if not bell.done():
                bell.set_result(None)

    async def _sound(self, bell: asyncio.Future[None], at_ms: int) -> None:
        await self._clock.sleep_until_ms(at_ms)
        if not bell.done():
            bell.set_result(None)


@final
class Reader:
    """One who follows a journal; it has been given all entries up to `cursor`."""

    def __init__(self, cursor: int, leave: Callable[[Reader], None]) -> None:
        self.cursor = cursor
        self._leave = leave

    def leave(self) -> None:
        self._leave(self)


@final
class Followers:
    """All that follow, of this process. One that is behind stands against a compaction, until it ends or is dropped."""

    def __init__(self, reading: Reading, bell: Bell, poll: PollPolicy) -> None:
        self._reading = reading
        self._bell = bell
        self._poll = poll
        self._readers: dict[str, set[Reader]] = {}

    def behind(self, run_id: str, seq: int) -> int | None:
        """Where the last reader stands that still needs an entry below `seq`."""
        return min((each.cursor for each in self._readers.get(run_id, ()) if each.cursor < seq - 1), default=None)

    def follow(self, run_id: str, after: int) -> AsyncGenerator[Entry]:
        """All entries after a number. The reader counts from now on, whether or not it has begun."""
        readers = self._readers.setdefault(run_id, set())

        def leave(reader: Reader) -> None:
            readers.discard(reader)
            if not readers and self._readers.get(run_id) is readers:
                del self._readers[run_id]

        reader = Reader(after, leave)
        readers.add(reader)
        following = self._following(run_id, reader)
        # Who drops it, perhaps before it has begun, need not say so.
        weakref.finalize(following, reader.leave).atexit = False
        return following

    async def _following(self, run_id: str, reader: Reader) -> AsyncGenerator[Entry]:
        looks = 0
        try:
            while True:
                rings = self._bell.rings  # before the read: what is committed during it rings once more
                if self._bell.is_closed:
                    raise JournalError(CLOSED)
                read = await self._reading.page(run_id, reader.cursor, None, self._reading.page_size)
                if isinstance(read, Failure):
                    raise JournalError(read.failure())
                page = read.unwrap()
                for entry in page.entries:
                    reader.cursor = entry.seq
                    yield entry
                if not page.has_more:
                    looks = 1 if page.entries else looks + 1
                    await self._bell.wait(rings, self._poll.pause_ms(looks))
        finally:
            reader.leave()
