"""What journals and heads say of a step cache, read page by page; `Stopped` where the ledger does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from itertools import islice
from typing import Final, final

from ..core.batch import Committed
from ..core.cache_rebuild import Gap, Proof
from ..core.cache_verdict import Explanation
from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.provenance import CACHE_JOURNAL, read_carried
from ..core.step_cache import RecordedRef
from ..services.journal_rows import CacheRows, JournalRow, JournalRows
from ..services.ledger import Verdict
from .stopped import value_of

__all__ = ["PAGE", "CacheReading", "has_gap", "heads_of", "plain_verdict", "recorded_among", "recorded_by"]

PAGE: Final = 1_000
"""How many rows are asked for at a time by their names."""

SLICE: Final = 10_000
"""How many keys are gone through before others have their turn on the event loop."""


@final
class CacheReading:
    """What the journals prove, and the heads beside it. `due` has the row that each key should have in force.

    The first reading is of everything. `read_again` brings it up to date for the keys in question, and for those that
    were spoken of meanwhile. `settled` are keys that were put right since, and are in question no more; `live` keeps
    the heads that they had. `seen_first` are the keys whose heads were read before the entries.
    """

    def __init__(self, rows: CacheRows, journals: JournalRows) -> None:
        self.rows = rows
        self._journals = journals
        self.proof = Proof()
        self.live: dict[str, RecordedRef] = {}
        self.due: dict[str, RecordedRef] = {}
        self.settled: set[str] = set()
        self.seen_first: Collection[str] = ()
        self.runs: set[str] = set()
        self.compacted = 0
        self.rewound = 0
        self._suspects: set[str] = set()
        self._last_no = 0
        self._carried: dict[str, bytes | None] = {}

    async def read(self) -> None:
        """Read everything: the entries, what journals carry, the heads, and which rows are recorded."""
        _ = await self._read_journals()
        self.live = await heads_of(self.rows)
        await self._find_due(None)
        due, live = self.due, self.live
        suspects = {key for key, head in live.items() if due.get(key) is not head}
        if len(live) - len(suspects) < len(due):  # more than those that match
            suspects.update(due.keys() - live.keys())
        self._suspects = suspects

    async def read_of(self, key: str) -> None:
        """Read what is said of one key, its head first; the entries have to be read for it all the same."""
        await self._read_heads((key,))
        _ = await self._read_journals()
        await self._find_due((key,))

    async def read_again(self, keys: Collection[str]) -> None:
        """Read what was committed since, and the heads of these keys anew."""
        await self._read_heads(keys)
        had_gaps = self.proof.has_gaps
        touched = await self._read_journals()
        self.seen_first = keys
        await self._read_heads(touched.difference(keys))
        self._suspects.update(touched)
        await self._find_due(None if self.proof.has_gaps != had_gaps else self._suspects)

    def differing(self) -> list[str]:
        """The keys in question whose head is not the row that it should be, in ascending order."""
        keys = sorted(self._suspects - self.settled)
        return [key for key in keys if self.due.get(key) != self.live.get(key)]

    def explain(self, key: str) -> Explanation:
        due = self.due.get(key)
        if due is not None:
            return Explanation(key, "restored", due)
        return self.proof.explain(key, self.live.get(key), recorded=False)

    async def explanations(self) -> list[Explanation]:
        """One for each key that has a head, or of which anything was found, in ascending order."""
        keys = [*self.live, *sorted(self.proof.keys() - self.live.keys())]
        keys.sort()  # of two sorted parts, which is soon done
        due, explained = self.due, list[Explanation]()
        for at in range(0, len(keys), SLICE):
            explained += [
                self.explain(key) if (ref := due.get(key)) is None else Explanation(key, "restored", ref)
                for key in keys[at : at + SLICE]
            ]
            await asyncio.sleep(0)
        return explained

    # --- reading --------------------------------------------------------------

    async def _read_journals(self) -> set[str]:
        """The entries since the last reading, and then what journals carry: the keys of which that says something.

        What is compacted, or rewound, between the two is carried, and so in the second.
        """
        touched: set[str] = set()
        while entries := value_of(await self.rows.provenance(after=self._last_no)):
            keys = self.proof.add(entries)
            if self._last_no:
                touched.update(keys)
            self.runs.update([entry.run_id for entry in entries])
            self._last_no = entries[-1].no
        self.compacted = self.rewound = 0
        after: str | None = None
        while page := value_of(await self._journals.journals(after=after)):
            for journal in page:
                touched.update(await self._read_journal(journal))
            after = page[-1].run_id
        self.runs.discard(CACHE_JOURNAL)
        return touched

    async def _read_journal(self, journal: JournalRow) -> list[str]:
        if journal.floor is None and journal.generation == 0 and journal.carried is None and journal.sealed:
            return []
        run_id = journal.run_id
        self.compacted += journal.floor is not None
        carried = read_carried(journal.carried)
        if carried is None:
            return await self._read_gap(journal)
        self.rewound += journal.generation > 0
        if self._carried.get(run_id) == journal.carried:
            return []
        self._carried[run_id] = journal.carried
        if carried.admitted or carried.retired:
            self.runs.add(run_id)
        return self.proof.union(carried)

    async def _read_gap(self, journal: JournalRow) -> list[str]:
        """Take note of a gap, if there is one."""
        run_id = journal.run_id
        rewinds = value_of(await self._journals.rewinds(run_id)) if journal.generation else ()
        self.rewound += bool(rewinds)
        if not await has_gap(self._journals, journal):
            return []
        ends: list[int | None] = [] if journal.sealed else [None]
        if journal.floor is not None:
            ends.append(await self._entry_no(run_id, journal.floor - 1))
        if rewinds:
            ends.append(await self._entry_no(run_id, rewinds[-1].from_seq))
        known = [end for end in ends if end is not None]
        recorded = await recorded_by(self.rows, run_id)
        self.proof.add_gap(Gap(run_id, max(known) if len(known) == len(ends) else None), recorded)
        return []

    async def _entry_no(self, run_id: str, after: int) -> int | None:
        """Where in the order of commits the first entry after that one stands."""
        page = value_of(await self._journals.entries(run_id, after=after, limit=1))
        return page.entries[0].no if page.entries else None

    async def _read_heads(self, keys: Collection[str]) -> None:
        if len(keys) > PAGE:
            heads = await heads_of(self.rows)
        else:
            heads = {key: head.ref for key in keys if (head := value_of(await self.rows.head(key))) is not None}
        for key in keys:
            if key in heads:
                self.live[key] = heads[key]
            else:
                _ = self.live.pop(key, None)

    async def _find_due(self, keys: Collection[str] | None) -> None:
        """Which rows should be in force, of these keys or of all: those that are proven, and recorded."""
        if keys is None:
            self.due = {}
            candidates: Iterable[RecordedRef] = self.proof.candidates(self.live)
        else:
            candidates = [ref for key in keys if (ref := self.proof.candidate(key)) is not None]
            for key in keys:
                _ = self.due.pop(key, None)
        async for some, recorded in _recorded(self.rows, candidates):
            there = some if len(recorded) == len(some) else [ref for ref in some if ref in recorded]
            self.due.update([(ref.key_digest, ref) for ref in there])


async def heads_of(rows: CacheRows) -> dict[str, RecordedRef]:
    """The row that each key has in force, in ascending order of the keys."""
    heads: dict[str, RecordedRef] = {}
    after = ""
    while page := value_of(await rows.heads(after=after)):
        for head in page:
            heads[head.ref.key_digest] = head.ref
        after = page[-1].ref.key_digest
    return heads


async def recorded_by(rows: CacheRows, run_id: str) -> list[RecordedRef]:
    """The rows that a run recorded."""
    recorded: list[RecordedRef] = []
    after: RecordedRef | None = None
    while page := value_of(await rows.recorded_of(run_id, after=after)):
        recorded += page
        after = page[-1]
    return recorded


async def has_gap(journals: JournalRows, journal: JournalRow) -> bool:
    """Whether a journal lost entries of which it carries nothing that can be read. One that was forgotten lost none."""
    if read_carried(journal.carried) is not None:
        return False
    if journal.floor is not None or not journal.sealed:
        return True
    return journal.generation > 0 and bool(value_of(await journals.rewinds(journal.run_id)))


async def recorded_among(rows: CacheRows, refs: Iterable[RecordedRef]) -> set[RecordedRef]:
    """Those of the refs that have a row, damaged or not."""
    recorded: set[RecordedRef] = set()
    async for _, some in _recorded(rows, refs):
        recorded |= some
    return recorded


async def _recorded(
    rows: CacheRows, refs: Iterable[RecordedRef]
) -> AsyncIterator[tuple[tuple[RecordedRef, ...], frozenset[RecordedRef]]]:
    """Page by page those that are asked for, which are different ones, and those of them that have a row."""
    rest = iter(refs)
    while some := tuple(islice(rest, PAGE)):
        yield some, value_of(await rows.are_recorded(some))


def plain_verdict(verdict: Verdict) -> Outcome[Committed, Unavailable]:
    """The verdict on a batch that expects nothing, and is not too large."""
    if isinstance(verdict, Failure):
        failure = verdict.failure()
        if isinstance(failure, Unavailable):
            return Failure(failure)
        raise RuntimeError(f"a batch that expects nothing was refused: {failure}")
    committed = verdict.unwrap()
    if isinstance(committed, Committed):
        return Success(committed)
    raise RuntimeError(f"a batch without a receipt was applied before: {committed}")
