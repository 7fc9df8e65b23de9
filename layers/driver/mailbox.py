"""Sending signals: the limits, the commit, and the hint to the run."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, final

from ...core.batch import Batch, RunOpen, SendSignal
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.signal import UNREAD_SIGNALS, SignalRow
from ...core.step import VALUE_BYTES
from .telling import telling
from .tools import Services

__all__ = ["Mailbox"]

REMEMBERED: Final = 1_024
"""Of how many runs it is known how many signals may be sent before their unread ones are to be counted."""


@dataclass(eq=False, slots=True)
class _Box:
    """The mailbox of one run, as this engine knows it.

    `free` may be sent before the unread ones are counted again. `senders` are under way, of which `sending` may be
    among those that are counted or not. Counts are numbered as they begin: `begun` is the last one, `counted` the last
    that ended well. It found `unread`, and if these are too many, `full` are their names and `dedupe`s.
    """

    free: int = 0
    senders: int = 0
    sending: int = 0
    begun: int = 0
    counted: int = 0
    unread: int = 0
    full: frozenset[tuple[str, str]] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    sent: asyncio.Event = field(default_factory=asyncio.Event)


@final
class Mailbox:
    """The signals that one engine sends.

    Counting unread signals is reading them, so it is done before the first one to a run, and again after half as many
    as are free then; several processes that send at once may exceed the limit by what is left of theirs. One engine
    never does: those that it is sending count too.
    """

    def __init__(self, services: Services) -> None:
        self._ledger = services.ledger
        self._wake_bus = services.wake_bus
        self._journal = services.joinable_journal
        self._boxes: OrderedDict[str, _Box] = OrderedDict()

    async def send(self, row: SignalRow) -> Outcome[bool, TooLarge | Unavailable]:
        """Send the signal, unless its `dedupe` was used. False: there is no such run, or it has ended."""
        if len(row.value) > VALUE_BYTES:
            return Failure(TooLarge(f"the value of the signal {row.name!r}", len(row.value), VALUE_BYTES))
        box = self._box(row.run_id)
        box.senders += 1
        try:
            return await self._send(row, box)
        finally:
            box.senders -= 1

    def _box(self, run_id: str) -> _Box:
        if (box := self._boxes.get(run_id)) is None:
            box = self._boxes[run_id] = _Box()
        self._boxes.move_to_end(run_id)
        if len(self._boxes) > REMEMBERED:
            idle = next((id for id, other in self._boxes.items() if not other.senders and other is not box), None)
            if idle is not None:
                del self._boxes[idle]
        return box

    async def _send(self, row: SignalRow, box: _Box) -> Outcome[bool, TooLarge | Unavailable]:
        counted = await self._count(row, box)
        if isinstance(counted, Failure):
            return counted
        if not counted.unwrap():
            return Success(True)
        try:
            batch = telling(self._journal, row.run_id, Batch((RunOpen(row.run_id),), (SendSignal(row),)))
            verdict = await self._ledger.commit(batch)
        finally:
            box.sending -= 1
            box.sent.set()
        if isinstance(verdict, Failure):
            failure = verdict.failure()
            return Failure(failure) if isinstance(failure, TooLarge | Unavailable) else Success(False)
        await self._hint(row.run_id)
        return Success(True)

    async def _count(self, row: SignalRow, box: _Box) -> Outcome[bool, TooLarge | Unavailable]:
        """Whether it is to be sent, and then it counts as being sent. False: one of the same `dedupe` is unread."""
        if box.free == 0:
            begun = box.begun
            async with box.lock:
                is_full = box.full is not None and box.counted > begun  # by a count that began after this call
                if box.free == 0 and not is_full:
                    counted = await self._count_anew(row.run_id, box)
                    if isinstance(counted, Failure):
                        return counted
        if box.free == 0:
            if row.dedupe is not None and box.full is not None and (row.name, row.dedupe) in box.full:
                return Success(False)
            return Failure(TooLarge(_unread(row.run_id), box.unread + 1, UNREAD_SIGNALS))
        box.free -= 1
        box.sending += 1
        return Success(True)

    async def _count_anew(self, run_id: str, box: _Box) -> Outcome[None, Unavailable]:
        """Count the unread signals. Where what is being sent makes the difference, wait until that is known."""
        while True:
            box.begun += 1
            sending = box.sending
            read = await self._ledger.signals(run_id)
            if isinstance(read, Failure):
                return read
            unread = read.unwrap()
            room = UNREAD_SIGNALS - len(unread) - sending
            if room > 0 or sending == 0:
                break
            while box.sending:
                box.sent.clear()
                _ = await box.sent.wait()
        box.counted = box.begun
        box.unread = len(unread)
        box.free = max(room // 2, 1) if room > 0 else 0
        full = frozenset((other.name, other.dedupe) for other in unread if other.dedupe is not None)
        box.full = None if room > 0 else full
        return Success(None)

    async def _hint(self, run_id: str) -> None:
        """The signal is there, whatever becomes of the hint."""
        try:
            await self._wake_bus.wake(run_id)
        except Exception as error:
            message = f"the wake bus failed, so run {run_id!r} hears of a signal by other ways"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def _unread(run_id: str) -> str:
    return f"the number of unread signals of run {run_id!r}"
