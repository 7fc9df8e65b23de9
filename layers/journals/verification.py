"""Verification: everything that is kept of a journal is looked at, and compared with the hashes.

    the journal's own row, what it carries, and its rewinds     by their seals
    entries                                                     along the chain, each from the one before it
    checkpoints, sources                                        by their seals, and against the entries
    payloads that are artifacts                                 by their digests

It goes by pages, and others have their turn between them. What is committed meanwhile does no harm: what is appended is
not looked at, and a journal that was compacted or rewound meanwhile is looked at again.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias, final

from ...core.damage import Damaged
from ...core.entry import EntryRow, RewindRow
from ...core.journal import Source, Tampered, Verified
from ...core.journal_chain import ChainWalk
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.provenance import CACHE_JOURNAL, read_carried
from ...services.journal_rows import JournalRow, JournalRows, StrayRows
from .payloads import Payloads
from .trimming import read_checkpoint

__all__ = ["NEWEST", "Verification"]

NEWEST: Final = 64
"""How many entries are looked at when a journal is built."""

ATTEMPTS: Final = 5
"""How often a journal is looked at that is changed by others meanwhile."""

_Wrong: TypeAlias = Tampered | Unavailable


@final
class Verification:
    """Looks at what a ledger keeps of journals, `page_size` rows at a time."""

    def __init__(self, rows: JournalRows, payloads: Payloads, page_size: int) -> None:
        self._rows = rows
        self._payloads = payloads
        self._page_size = page_size

    async def all(self) -> Outcome[Verified, _Wrong]:
        """All journals, in the order of their runs."""
        runs, entries = 0, 0
        after: str | None = None
        while True:
            read = await self._rows.journals(after=after, limit=self._page_size)
            if isinstance(read, Failure):
                return _damaged(read.failure(), "" if after is None else after, -1)
            journals = read.unwrap()
            for journal in journals:
                after = journal.run_id
                looked = await self.one(after)
                if isinstance(looked, Failure):
                    return looked
                verified = looked.unwrap()
                runs, entries = runs + verified.runs, entries + verified.entries
            if len(journals) < self._page_size:
                break
        strays = await self._strays()
        return strays if isinstance(strays, Failure) else Success(Verified(runs, entries))

    async def one(self, run_id: str) -> Outcome[Verified, _Wrong]:
        """The journal of one run. That of the step cache is none of a run, and its entries count all the same."""
        for _ in range(ATTEMPTS):
            read = await self._rows.journal(run_id)
            if isinstance(read, Failure):
                return _damaged(read.failure(), run_id, -1)
            journal = read.unwrap()
            if journal is None:
                return Success(Verified(0, 0))
            looked = await self._look(journal)
            if isinstance(looked, Success):
                entries = looked.unwrap()
                return Success(Verified(int(entries > 0 and run_id != CACHE_JOURNAL), entries))
            again = await self._rows.journal(run_id)
            if isinstance(again, Failure) or _place(again.unwrap()) == _place(journal):
                return looked
        return Failure(Unavailable(f"the journal of {run_id!r} was changed by others all the time", "no"))

    async def newest(self) -> Outcome[None, _Wrong]:
        """The entries that were committed last, of all runs."""
        found: Outcome[None, _Wrong] = Success(None)
        for _ in range(ATTEMPTS):
            found = await self._look_at_newest()
            if isinstance(found, Success) or isinstance(found.failure(), Unavailable):
                return found
        return found

    async def _strays(self) -> Outcome[None, _Wrong]:
        """What belongs to a journal that there is not, whose run nobody can name."""
        if not isinstance(self._rows, StrayRows):
            return Success(None)
        read = await self._rows.stray_row()
        if isinstance(read, Failure):
            return _damaged(read.failure(), "", -1)
        stray = read.unwrap()
        return Success(None) if stray is None else _tampered("", -1, stray)

    # --- one journal ----------------------------------------------------------

    async def _look(self, journal: JournalRow) -> Outcome[int, _Wrong]:
        """How many entries it has, if everything is as it was written."""
        run_id, last = journal.run_id, journal.last_seq
        if not journal.sealed or (journal.carried is not None and read_carried(journal.carried) is None):
            return _tampered(run_id, last, "what is kept of the journal itself is not as it was written")
        rewinds = await self._rewinds(journal)
        if isinstance(rewinds, Failure):
            return rewinds
        walk = ChainWalk(run_id, rewinds.unwrap(), journal.floor, journal.floor_chain)
        walked = await self._walk(journal, walk)
        if isinstance(walked, Failure):
            return walked
        seqs, named = walked.unwrap()
        wrong = walk.end(last, journal.chain)
        if wrong is not None:
            return _tampered(run_id, last, wrong)
        looked = await self._look_at_checkpoints(journal, seqs)
        if isinstance(looked, Success):
            looked = await self._look_at_sources(journal, seqs, named)
        if isinstance(looked, Failure):
            return looked
        return Success(len(seqs))

    async def _rewinds(self, journal: JournalRow) -> Outcome[tuple[RewindRow, ...], _Wrong]:
        read = await self._rows.rewinds(journal.run_id)
        if isinstance(read, Failure):
            return _damaged(read.failure(), journal.run_id, journal.last_seq)
        rewinds = tuple(each for each in read.unwrap() if each.generation <= journal.generation)
        for expected, rewind in enumerate(rewinds, journal.generation - len(rewinds) + 1):
            if not rewind.sealed or rewind.generation != expected:
                return _tampered(journal.run_id, rewind.to_seq, "a rewind is not as it was written")
        return Success(rewinds)

    async def _walk(self, journal: JournalRow, walk: ChainWalk) -> Outcome[tuple[set[int], dict[int, Source]], _Wrong]:
        """The numbers of the entries, and the sources of those that have one."""
        seqs: set[int] = set()
        named: dict[int, Source] = {}
        after = -1
        while True:
            page = await self._page(journal.run_id, after)
            if isinstance(page, Failure):
                return page
            rows, has_more = page.unwrap()
            for row in rows:
                if row.seq > journal.last_seq:
                    return Success((seqs, named))
                wrong = walk.step(row)
                if wrong is not None:
                    return _tampered(row.run_id, row.seq, wrong)
                spilled = await self._look_at_artifact(row)
                if isinstance(spilled, Failure):
                    return spilled
                seqs.add(row.seq)
                after = row.seq
                if row.source is not None:
                    named[row.seq] = row.source
            if not has_more:
                return Success((seqs, named))
            await asyncio.sleep(0)

    async def _page(self, run_id: str, after: int) -> Outcome[tuple[tuple[EntryRow, ...], bool], _Wrong]:
        read = await self._rows.entries(run_id, after=after, limit=self._page_size)
        if isinstance(read, Success):
            page = read.unwrap()
            return Success((page.entries, page.has_more))
        failure = read.failure()
        if not isinstance(failure, Damaged):
            return Failure(failure)
        while True:  # one by one, to the one that cannot be read
            one = await self._rows.entries(run_id, after=after, limit=1)
            if isinstance(one, Failure):
                return _damaged(one.failure(), run_id, after + 1)
            if not one.unwrap().entries:
                return _tampered(run_id, after + 1, failure.why or failure.reason)
            after = one.unwrap().entries[0].seq

    async def _look_at_artifact(self, row: EntryRow) -> Outcome[None, _Wrong]:
        if not row.spilled:
            return Success(None)
        got = await self._payloads.spilled(row)
        if isinstance(got, Success):
            return Success(None)
        why = got.failure()
        return Failure(why) if isinstance(why, Unavailable) else _tampered(row.run_id, row.seq, why)

    async def _look_at_checkpoints(self, journal: JournalRow, seqs: set[int]) -> Outcome[None, _Wrong]:
        run_id = journal.run_id
        read = await self._rows.checkpoints(run_id)
        if isinstance(read, Failure):
            return _damaged(read.failure(), run_id, journal.last_seq)
        rows = read.unwrap()
        for row in rows:
            if isinstance(read_checkpoint(row), Failure):
                return _tampered(run_id, row.seq, "the checkpoint is not as it was written")
            if row.seq <= journal.last_seq and row.seq not in seqs:
                return _tampered(run_id, row.seq, "there is a checkpoint, and no entry")
        if journal.floor is not None and journal.floor not in {row.seq for row in rows}:
            return _tampered(run_id, journal.floor, "the checkpoint that the journal was compacted to is missing")
        return Success(None)

    async def _look_at_sources(
        self, journal: JournalRow, seqs: set[int], named: dict[int, Source]
    ) -> Outcome[None, _Wrong]:
        """Those of entries that were compacted are kept, too; all others have their entry, and it has them."""
        run_id, first = journal.run_id, 0 if journal.floor is None else journal.floor
        after: Source | None = None
        while True:
            read = await self._rows.sources(run_id, after=after, limit=self._page_size)
            if isinstance(read, Failure):
                return _damaged(read.failure(), run_id, journal.last_seq)
            rows = read.unwrap()
            for row in rows:
                after = row.source
                if not row.sealed:
                    return _tampered(
                        run_id, row.seq, f"what is kept of the source {row.source} is not as it was written"
                    )
                if first <= row.seq <= journal.last_seq and named.pop(row.seq, None) != row.source:
                    return _tampered(run_id, row.seq, f"it is no entry of {row.source}")
            if len(rows) < self._page_size:
                break
            await asyncio.sleep(0)
        for seq, source in named.items():
            return _tampered(run_id, seq, f"that it is the entry of {source} is not kept")
        return Success(None)

    # --- the newest entries ---------------------------------------------------

    async def _look_at_newest(self) -> Outcome[None, _Wrong]:
        read = await self._rows.newest(NEWEST)
        if isinstance(read, Failure):
            return _damaged(read.failure(), "", -1)
        runs: dict[str, list[EntryRow]] = {}
        for row in reversed(read.unwrap()):
            runs.setdefault(row.run_id, []).append(row)
        for run_id, rows in runs.items():
            walk = await self._walk_before(run_id, rows[0].seq)
            if isinstance(walk, Failure):
                return walk
            for row in rows:
                wrong = walk.unwrap().step(row)
                if wrong is not None:
                    return _tampered(run_id, row.seq, wrong)
        return Success(None)

    async def _walk_before(self, run_id: str, seq: int) -> Outcome[ChainWalk, _Wrong]:
        """A walk that stands before an entry, behind the last one that there is."""
        read = await self._rows.journal(run_id)
        if isinstance(read, Failure):
            return _damaged(read.failure(), run_id, seq)
        journal = read.unwrap()
        if journal is None:
            return _tampered(run_id, seq, "there is an entry, and nothing is kept of its journal")
        rewinds = await self._rewinds(journal)
        if isinstance(rewinds, Failure):
            return rewinds
        if journal.floor == seq:
            return Success(ChainWalk(run_id, rewinds.unwrap(), seq, journal.floor_chain))
        between = [each.to_seq for each in rewinds.unwrap() if each.from_seq == seq - 1]
        before = between[-1] if between else seq - 1
        page = await self._rows.entries(run_id, after=before - 1, limit=1)
        if isinstance(page, Failure):
            return _damaged(page.failure(), run_id, before)
        found = page.unwrap().entries
        if found and found[0].seq == before:
            return Success(ChainWalk.after(found[0], rewinds.unwrap()))
        return Success(ChainWalk(run_id, rewinds.unwrap(), journal.floor, journal.floor_chain))


def _place(journal: JournalRow | None) -> tuple[int, int | None, bytes | None] | None:
    """What is another one after a compaction, a rewind, or once a run is forgotten."""
    return None if journal is None else (journal.generation, journal.floor, journal.floor_chain)


def _tampered(run_id: str, seq: int, message: str) -> Failure[_Wrong]:
    return Failure(Tampered(run_id, seq, message))


def _damaged(failure: Unavailable, run_id: str, seq: int) -> Failure[_Wrong]:
    """What cannot be read because it is not what was written is told as such."""
    if isinstance(failure, Damaged):
        return _tampered(run_id, seq, failure.why or failure.reason)
    return Failure(failure)
