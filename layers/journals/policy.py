"""Automatic compaction: once a journal has so many entries, somebody captures a state, and the entries before it go.

It follows an append, after the commit, and never fails it: what goes wrong is logged, and tried again once as many
entries have come again. How many there are is asked of the ledger when it may be enough, so that entries of other
processes, and those from before a restart, count as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, final

from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome
from ...services.clock import Clock
from ...services.journal_rows import JournalRows
from .trimming import Trimming

__all__ = ["CAPTURE_MS", "Compaction", "CompactionPolicy"]

CAPTURE_MS: Final = 30_000
"""How long a capture may take, in milliseconds of the clock."""

KEPT: Final = 10_000
"""Of how many journals it is known when to look at them again; of others it is asked."""

_log: Final = logging.getLogger("stepwell.journal")


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a journal has `entry_threshold` entries, it is compacted to its last one.

    `capture(run_id, seq)` gives the state, JSON, that stands for all entries up to `seq`. It is called within the
    append that reached the threshold, which goes on when it has ended.
    """

    entry_threshold: int
    capture: Callable[[str, int], Awaitable[object]]


@final
class CompactionPolicy:
    """Compacts journals over the ledger that keeps them; one journal once at a time."""

    def __init__(self, option: Compaction, rows: JournalRows, trimming: Trimming, clock: Clock) -> None:
        self._option = option
        self._rows = rows
        self._trimming = trimming
        self._clock = clock
        self._look_at: dict[str, int] = {}
        """The number of the entry with which a journal may have enough of them."""
        self._busy: set[str] = set()
        self._noted: dict[str, int] = {}
        """How many entries were on their way since the last look at a journal."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def appended(self, run_id: str, seq: int) -> None:
        """An entry was appended, and is no duplicate."""
        if seq < self._look_at.get(run_id, 0) or run_id in self._busy:
            return
        self._busy.add(run_id)
        if len(self._look_at) > KEPT:
            self._look_at.clear()
            self._noted.clear()
        threshold = self._option.entry_threshold
        try:
            count = await self._count(run_id, seq)
            if isinstance(count, Failure):
                self._failed(run_id, seq, count.failure())
            elif count.unwrap() < threshold:
                self._look_at[run_id] = seq + threshold - count.unwrap()
            else:
                await self._compact(run_id, seq)
        finally:
            self._busy.discard(run_id)

    def noted(self, run_id: str, entries: int) -> None:
        """So many are on their way in batches of others. Where they may be enough, the look is a task of its own."""
        noted = self._noted.get(run_id, 0) + entries
        self._noted[run_id] = noted
        if noted >= self._option.entry_threshold and run_id not in self._busy:
            task = asyncio.get_running_loop().create_task(self._look(run_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave nothing running."""
        tasks = tuple(self._tasks)
        for task in tasks:
            _ = task.cancel()
        _ = await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, run_id: str) -> None:
        self._noted[run_id] = 0
        read = await self._rows.journal(run_id)
        journal = None if isinstance(read, Failure) else read.unwrap()
        if journal is not None:
            await self.appended(run_id, journal.last_seq)
            missing = self._look_at.get(run_id, 0) - journal.last_seq
            self._noted[run_id] = self._noted.get(run_id, 0) + max(0, self._option.entry_threshold - missing)

    async def _count(self, run_id: str, seq: int) -> Outcome[int, Unavailable]:
        """How many entries there are up to `seq`."""
        read = await self._rows.journal(run_id)
        if isinstance(read, Failure):
            return read
        journal = read.unwrap()
        floor = None if journal is None else journal.floor
        return await self._trimming.count(run_id, 0 if floor is None else floor, seq)

    async def _compact(self, run_id: str, seq: int) -> None:
        try:
            state = await self._captured(run_id, seq)
        except Exception as error:
            self._failed(run_id, seq, error)
            return
        put = await self._trimming.checkpoint(run_id, seq, state, None)
        done = put if isinstance(put, Failure) else await self._trimming.compact(run_id, seq, None)
        if isinstance(done, Failure):
            self._failed(run_id, seq, done.failure())
        else:
            self._look_at[run_id] = seq + self._option.entry_threshold - 1  # the entry at the checkpoint stays

    async def _captured(self, run_id: str, seq: int) -> object:
        """What the capture gives. A cancellation within it goes on, as does one of who waits for it."""
        loop = asyncio.get_running_loop()
        capture = loop.create_task(_awaited(self._option.capture, run_id, seq))
        alarm = loop.create_task(self._clock.sleep_until_ms(self._clock.now_ms() + CAPTURE_MS))
        try:
            _ = await asyncio.wait((capture, alarm), return_when=asyncio.FIRST_COMPLETED)
            if not capture.done():
                raise TimeoutError(f"the capture took more than {CAPTURE_MS / 1000:g} s")
            return capture.result()
        finally:
            for task in (capture, alarm):
                if not task.done():
                    _ = task.cancel()
                    with suppress(asyncio.CancelledError):
                        _ = await asyncio.gather(task, return_exceptions=True)

    def _failed(self, run_id: str, seq: int, why: object) -> None:
        self._look_at[run_id] = seq + self._option.entry_threshold
        _log.warning("the journal of %r was not compacted at %d: %s", run_id, seq, why)


async def _awaited(capture: Callable[[str, int], Awaitable[object]], run_id: str, seq: int) -> object:
    return await capture(run_id, seq)
