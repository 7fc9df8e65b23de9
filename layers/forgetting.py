"""What goes with a run that is forgotten: its journal, the rows that it recorded, and the heads that are such rows.

    1. What its journal says of rows of other runs is said again in the journal of the step cache, which outlives it.
    2. Its rows are taken out of force, each with an entry that says why, so that a rebuild can explain that.
    3. Its journal and its rows go in the batch that forgets the run.

The first two are done a batch at a time, and may be done again: a process that ends in between has at worst taken rows
out of force a little early. The batch of the run is refused if its journal was compacted or rewound since.
"""

from __future__ import annotations

from typing import Final, final

from ..core.batch import Batch, RunFence, Write
from ..core.entry import NewEntry
from ..core.journal_writes import Append, EvictHead, ForgetJournal, JournalAt
from ..core.model import Unavailable
from ..core.outcome import Failure
from ..core.provenance import CACHE_JOURNAL, Action, Retirement, provenance_entry
from ..core.retention import CUT_ROWS
from ..core.step_cache import RecordedRef
from ..services.journal_rows import CacheRows, JournalRow, JournalRows
from ..services.ledger import Ledger
from .cache_reading import has_gap, recorded_among, recorded_by
from .journals.said import found_in
from .stopped import Stopped, value_of

__all__ = ["Forgetting"]

_RETIRING: Final[dict[str, Action]] = {
    "expired": "expired",
    "stale_read_set": "stale_read_set",
    "replay_failed": "replay_failed",
    "removed": "removed",
}


@final
class Forgetting:
    """Of runs in a ledger; one that keeps no journals has nothing to forget."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._journals = ledger if isinstance(ledger, JournalRows) else None
        self._cache = ledger if isinstance(ledger, CacheRows) else None

    async def last_batch(self, run_id: str, fence: int) -> Batch | None:
        """Do what need not be done in the batch that forgets the run, and tell what has to; None: the run goes on.

        A journal that lost what it said of rows of other runs stays, and its rows with it: that something is missing
        would be forgotten, and what it hides be taken for proven.
        """
        if self._journals is None or self._cache is None:
            return Batch()
        journal = value_of(await self._journals.journal(run_id))
        rows = await recorded_by(self._cache, run_id)
        if (journal is None and not rows) or (journal is not None and await has_gap(self._journals, journal)):
            return Batch()
        said = [] if journal is None else await self._said_of_others(self._journals, self._cache, journal)
        writes: list[Write] = [Append(CACHE_JOURNAL, (entry,)) for entry in said]
        writes += [EvictHead(ref.key_digest, ref, "retention") for ref in rows]
        while len(writes) > CUT_ROWS:
            batch = Batch((RunFence(run_id, fence),), tuple(writes[:CUT_ROWS]))
            verdict = await self._ledger.commit(batch)
            if isinstance(verdict, Failure):
                failure = verdict.failure()
                if isinstance(failure, Unavailable):
                    raise Stopped(failure)
                return None
            del writes[:CUT_ROWS]
        place = (0, None) if journal is None else (journal.generation, journal.floor)
        return Batch((JournalAt(run_id, *place),), (*writes, ForgetJournal(run_id)))

    async def _said_of_others(self, journals: JournalRows, cache: CacheRows, journal: JournalRow) -> list[NewEntry]:
        """What a journal says of the end of rows that other runs recorded, and that are still there."""
        found = value_of(await found_in(journals, journal))
        others = {RecordedRef(*row): said for row, said in found.retired.items() if row[1] != journal.run_id}
        recorded = await recorded_among(cache, others)
        return [_said_again(ref, said) for ref, said in others.items() if ref in recorded]


def _said_again(ref: RecordedRef, said: Retirement) -> NewEntry:
    return provenance_entry(_RETIRING[said.action], ref, said.reason)
