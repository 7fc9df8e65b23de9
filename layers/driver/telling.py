"""Telling the journal of a run what its owner, or whoever else, writes of it: in the same batch, and once.

A batch is written again where nobody knows whether it was committed. Its rows are then what they were, but its entries
would be there twice; so it is looked up first whether they are there.
"""

from __future__ import annotations

from typing import final

from ...core.batch import Batch
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.run_events import Changed, is_written, run_entries
from ...services.journal import JoinableJournal
from ...services.ledger import Ledger, Verdict

__all__ = ["Told", "is_unclear", "look_up", "telling"]


def telling(journal: JoinableJournal | None, run_id: str, batch: Batch, changed: Changed | None = None) -> Batch:
    """The batch, and in it what the run's journal is told of it; nothing where none can join."""
    if journal is None:
        return batch
    entries = run_entries(batch, changed)
    return batch + journal.appending(run_id, entries) if entries else batch


def is_unclear(outcome: Outcome[object, object]) -> bool:
    """Whether a commit may have happened."""
    if isinstance(outcome, Success):
        return False
    failure = outcome.failure()
    return isinstance(failure, Unavailable) and failure.applied == "unknown"


async def look_up(ledger: Ledger, run_id: str, batch: Batch) -> Outcome[bool, Unavailable]:
    """Whether a batch of the run's present owner was committed."""
    run = await ledger.run(run_id)
    if isinstance(run, Failure):
        return run
    steps = await ledger.steps(run_id)
    return steps if isinstance(steps, Failure) else Success(is_written(batch, run.unwrap(), steps.unwrap()))


@final
class Told:
    """A batch of a run's owner, which may be committed until it is known that it was."""

    __slots__ = ("_batch", "_is_unclear", "_ledger", "_run_id", "_told")

    def __init__(self, ledger: Ledger, journal: JoinableJournal | None, run_id: str, batch: Batch) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._batch = batch
        self._told = telling(journal, run_id, batch)
        self._is_unclear = False

    async def commit(self) -> Verdict:
        """Commit it, with its entries if they are not there."""
        if self._is_unclear and self._told is not self._batch:
            found = await look_up(self._ledger, self._run_id, self._batch)
            if isinstance(found, Failure):
                return found
            if found.unwrap():
                self._told = self._batch
        verdict = await self._ledger.commit(self._told)
        self._is_unclear = is_unclear(verdict)
        return verdict
