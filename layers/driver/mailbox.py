"""Sending signals: the limits, the commit, and the hint to the run."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, final

from ...core.batch import Batch, RunOpen, SendSignal
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.signal import UNREAD_SIGNALS, SignalRow
from ...core.step import VALUE_BYTES
from ...services.ledger import Ledger
from ...services.wake_bus import WakeBus

__all__ = ["Mailbox"]

REMEMBERED: Final = 1_024
"""For how many runs it is known how many signals may be sent before their unread ones are to be counted."""


@final
class Mailbox:
    """The signals that one engine sends.

    Counting unread signals is reading them, so it is done before the first one to a run, and again after half as many
    as are free then; several processes that send at once may exceed the limit by what is left of theirs.
    """

    def __init__(self, ledger: Ledger, wake_bus: WakeBus) -> None:
        self._ledger = ledger
        self._wake_bus = wake_bus
        self._free: OrderedDict[str, int] = OrderedDict()

    async def send(self, row: SignalRow) -> Outcome[bool, TooLarge | Unavailable]:
        """Send the signal, unless its `dedupe` was used. False: there is no such run, or it has ended."""
        if len(row.value) > VALUE_BYTES:
            return Failure(TooLarge(f"the value of the signal {row.name!r}", len(row.value), VALUE_BYTES))
        counted = await self._count(row)
        if isinstance(counted, Failure):
            return counted
        if not counted.unwrap():
            return Success(True)
        verdict = await self._ledger.commit(Batch((RunOpen(row.run_id),), (SendSignal(row),)))
        if isinstance(verdict, Failure):
            failure = verdict.failure()
            return Failure(failure) if isinstance(failure, TooLarge | Unavailable) else Success(False)
        await self._hint(row.run_id)
        return Success(True)

    async def _count(self, row: SignalRow) -> Outcome[bool, TooLarge | Unavailable]:
        """Whether it is to be sent. False: one of the same `dedupe` is unread."""
        if (free := self._free.get(row.run_id, 0)) == 0:
            read = await self._ledger.signals(row.run_id)
            if isinstance(read, Failure):
                return read
            unread = read.unwrap()
            if len(unread) >= UNREAD_SIGNALS:
                if row.dedupe is not None and any(_is_same(row, other) for other in unread):
                    return Success(False)
                return Failure(TooLarge(_unread(row.run_id), len(unread) + 1, UNREAD_SIGNALS))
            free = max((UNREAD_SIGNALS - len(unread)) // 2, 1)
        self._free[row.run_id] = free - 1
        self._free.move_to_end(row.run_id)
        if len(self._free) > REMEMBERED:
            _ = self._free.popitem(last=False)
        return Success(True)

    async def _hint(self, run_id: str) -> None:
        """The signal is there, whatever becomes of the hint."""
        try:
            await self._wake_bus.wake(run_id)
        except Exception as error:
            message = f"the wake bus failed, so run {run_id!r} hears of a signal by other ways"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def _is_same(row: SignalRow, other: SignalRow) -> bool:
    return (row.name, row.dedupe) == (other.name, other.dedupe)


def _unread(run_id: str) -> str:
    return f"the number of unread signals of run {run_id!r}"
