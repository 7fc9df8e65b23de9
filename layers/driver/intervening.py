"""What is done to a run from outside, by whoever may write to it: it is looked up, and asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ...core import cancellation, repair
from ...core.batch import Batch, ChangeRun, Fenced, RemoveWaiter, RunFence, Write, WriteStep
from ...core.damage import read_document
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.run import RunColumns, RunRow
from ...core.waiter import WaiterRow
from ...services.engine import RunNotFound
from .telling import telling
from .tools import Services

__all__ = ["Interventions"]


@final
class Interventions:
    """Reads and changes of rows of runs, whoever owns these."""

    __slots__ = ("_clock", "_journal", "_ledger")

    def __init__(self, services: Services) -> None:
        self._ledger = services.ledger
        self._clock = services.clock
        self._journal = services.joinable_journal

    async def row(self, id: str) -> Outcome[RunRow, RunNotFound | Unavailable]:
        """The row of a run as it is now."""
        read = await self._ledger.run(id)
        if isinstance(read, Failure):
            return read
        row = read.unwrap()
        return Failure(RunNotFound(id)) if row is None else Success(row)

    async def waits(self, id: str) -> Outcome[list[tuple[WaiterRow, bytes | None]], Unavailable]:
        """The waiters of a run, each with the present state of what it looked at as JSON; None where that is gone."""
        read = await self._ledger.waiters(run_id=id)
        if isinstance(read, Failure):
            return read
        waits: list[tuple[WaiterRow, bytes | None]] = []
        for row in read.unwrap():
            found = await self._ledger.document(row.waiter.key)
            if isinstance(found, Failure):
                return found
            document = found.unwrap()
            if document is not None and document.revision.instance_id != row.waiter.seen.instance_id:
                document = None
            whole = Success(None) if document is None else read_document(row.waiter.key, document)
            if isinstance(whole, Failure):
                return whole
            waits.append((row, whole.unwrap()))
        return Success(waits)

    async def cancel(self, id: str) -> Outcome[RunRow, RunNotFound | Unavailable]:
        """Ask a run to end, unless it has; its row as it was before."""
        while True:
            found = await self.row(id)
            if isinstance(found, Failure) or found.unwrap().ended:
                return found
            row = found.unwrap()
            removed = await self._waiters_removed(id) if cancellation.ends_at_once(row) else Success(())
            if isinstance(removed, Failure):
                return removed
            changed = await self._change(row, cancellation.request(row, self._clock.now_ms()), *removed.unwrap())
            if isinstance(changed, Failure):
                return changed
            if changed.unwrap():
                return Success(row)

    async def resume(self, id: str, *, drop: Sequence[str], reopen: bool) -> Outcome[bool, RunNotFound | Unavailable]:
        """Let a run try again, with these calls set aside; whether it was one that may."""
        while True:
            found = await self.row(id)
            if isinstance(found, Failure):
                return found
            row = found.unwrap()
            if not repair.may_resume(row, reopen=reopen):
                return Success(False)
            dropped = await self._dropped(id, drop)
            if isinstance(dropped, Failure):
                return dropped
            changed = await self._change(row, repair.resume(row, self._clock.now_ms()), *dropped.unwrap())
            if isinstance(changed, Failure):
                return changed
            if changed.unwrap():
                return Success(True)

    async def _dropped(self, id: str, keys: Sequence[str]) -> Outcome[tuple[Write, ...], Unavailable]:
        """The writes that set these keys of a run aside, with what they wait for."""
        if not keys:
            return Success(())
        read = await self._ledger.steps(id)
        if isinstance(read, Failure):
            return read
        dropped = map(WriteStep, repair.drop(id, read.unwrap(), keys, self._clock.now_ms()))
        removed = await self._waiters_removed(id, keys)
        return removed if isinstance(removed, Failure) else Success((*dropped, *removed.unwrap()))

    async def _waiters_removed(
        self, id: str, keys: Sequence[str] | None = None
    ) -> Outcome[tuple[RemoveWaiter, ...], Unavailable]:
        """The writes that end the waits of a run that nobody executes, all of them or those of these keys."""
        read = await self._ledger.waiters(run_id=id)
        if isinstance(read, Failure):
            return read
        waiters = [row.waiter for row in read.unwrap() if keys is None or row.waiter.step.key in keys]
        return Success(tuple(RemoveWaiter(waiter.key, waiter.step) for waiter in waiters))

    async def _change(self, row: RunRow, columns: RunColumns, *writes: Write) -> Outcome[bool, Unavailable]:
        """Change a run that still stands at this fence. False: it does not any more. `writes` go with it."""
        batch = Batch((RunFence(row.id, row.fence),), (*writes, ChangeRun(row.id, columns)))
        verdict = await self._ledger.commit(telling(self._journal, row.id, batch))
        match verdict:
            case Success():
                return Success(True)
            case Failure(Fenced()):
                return Success(False)
            case Failure(Unavailable() as failure):
                return Failure(failure)
            case Failure(refusal):
                raise AssertionError(f"a change of run {row.id!r} was refused by {refusal!r}")
