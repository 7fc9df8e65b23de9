"""How an owner leaves a run: by its end, or by giving it back to whoever takes it up next.

Either writes the run's row for the last time under the fence that this owner has, and removes the waiters that nobody
would ask for any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from ...core.batch import Batch, ChangeRun, Fenced, Write
from ...core.lease import leave
from ...core.model import StepId, StoreKey, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.run import WANTS_OWNER, RunColumns, RunEvent
from ...core.waiting_on import until_text
from .intervening import Interventions
from .pause import Pauses
from .record import RunRecord
from .telling import telling
from .tools import Tools

__all__ = ["Leaving"]

STORE_WAITS: Final = frozenset({"store.when", "store.take"})
"""Calls that may have a waiter."""

GIVE_BACK_TRIES = 2
"""How often a run is given back to a ledger that does not answer."""


@final
class Leaving:
    """The last write of one execution."""

    __slots__ = ("_record", "_tools")

    def __init__(self, record: RunRecord, tools: Tools) -> None:
        self._record = record
        self._tools = tools

    async def end(self, event: RunEvent, outcome: bytes | None, problem: str | None) -> None:
        """Record how the run ended. Nobody writes to it after that, whatever he has read before."""
        _ = self._record.going_on()  # a run that ends is not waiting, whatever its row said last
        pauses = Pauses()
        while isinstance(left := await self._waiters_left(), Failure):
            _ = await self._record.try_again(left.failure(), pauses)
        removals = self._removals(left.unwrap())
        last = self._leave(event, {"outcome": outcome, "problem": problem})
        _ = await self._record.commit(*removals, last)
        self._record.row = replace(self._record.row, **last.columns)
        await self._forget_all(left.unwrap())

    def _leave(self, event: RunEvent, columns: RunColumns) -> ChangeRun:
        """The change by which this owner leaves the run; whatever names its fence after that is refused."""
        return ChangeRun(
            self._record.row.id, {**leave(self._record.row, event, self._record.clock.now_ms()), **columns}
        )

    async def _waiters_left(self) -> Outcome[Mapping[StepId, StoreKey], Unavailable]:
        """The waiters of a run that ends, also those of waits that this execution did not come to."""
        left = {StepId(self._record.row.id, key): store for key, store in self._record.open_waiters.items()}
        if self._record.history.waits(STORE_WAITS):
            read = await self._tools.ledger.waiters(run_id=self._record.row.id)
            if isinstance(read, Failure):
                return read
            left |= {row.waiter.step: row.waiter.key for row in read.unwrap()}
        return Success(left)

    def _removals(self, left: Mapping[StepId, StoreKey]) -> tuple[Write, ...]:
        """What removes these waiters, to be written with the end of the run."""
        if (waiters := self._tools.joinable_waiters) is None:
            return ()
        return tuple(write for step, store in left.items() for write in waiters.removal(store, step).writes)

    async def _forget_all(self, left: Mapping[StepId, StoreKey]) -> None:
        """The run has ended: let waiters know that were not removed in that batch."""
        if self._tools.joinable_waiters is None:
            for step, store in left.items():
                _ = await self._tools.waiters.cancel(store, step)

    async def give_back(self) -> bool:
        """The execution is over and the run is not: whoever takes it up next begins from what is recorded.

        False: the ledger does not answer, so the run may still be this owner's.
        """
        if self._record.lost:
            return True
        for _ in range(GIVE_BACK_TRIES):
            left: Mapping[StepId, StoreKey] = {}
            if self._ends_cancelled:
                found = await self._waiters_left()
                if isinstance(found, Failure):
                    continue
                left = found.unwrap()
            batch = Batch((self._record.fence,), (*self._removals(left), self._given_back()))
            verdict = await self._tools.ledger.commit(telling(self._tools.joinable_journal, self._record.row.id, batch))
            if isinstance(verdict, Success):
                await self._forget_all(left)
                if self._record.erased:
                    await self._cancel_if_asked()
                return True
            if isinstance(verdict.failure(), Fenced):
                return True
        return False

    @property
    def _ends_cancelled(self) -> bool:
        """Whether its time to clean up is over, or it cannot clean up: no code could replay it."""
        cancellation = self._record.cancellation
        return cancellation.expired or (self._record.erased and cancellation.requested)

    async def _cancel_if_asked(self) -> None:
        """End a run that no code could replay, if that was asked of it before it was stuck."""
        read = await self._tools.ledger.run(self._record.row.id)
        row = None if isinstance(read, Failure) else read.unwrap()
        if row is not None and row.cancel_requested:
            _ = await Interventions(self._tools).cancel(row.id)

    def _given_back(self) -> ChangeRun:
        if self._ends_cancelled:
            return self._leave("cancel", {})
        if self._record.problem is not None:
            return self._leave("stop", {"problem": self._record.problem})
        wake_at_ms = self._record.waits.free_ms if self._record.idle else None
        waiting_on = WANTS_OWNER
        if (
            self._record.idle and (text := self._record.waits.text) is not None
        ):  # a run that hears no wake is due at once
            waiting_on = until_text(text, self._record.waits.earliest_ms) if wake_at_ms is None else text
        return self._leave("release", {"wake_at_ms": wake_at_ms, "waiting_on": waiting_on})
