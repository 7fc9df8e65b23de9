"""What shortens a journal: checkpoints, compaction to one of them, and rewinds.

Each is planned on what the journal is, and committed if it still is; if not, it is planned again. What the entries that
go have said of the step cache is carried on in the same batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, final

import msgspec

from ...core.batch import Batch, Expectation, Fenced, RunFence
from ...core.damage import Damaged
from ...core.event import encode_json
from ...core.journal import Checkpoint, Compacted, InvalidCheckpoint, Owner
from ...core.journal_chain import entries_between
from ...core.journal_writes import CacheAt, CompactJournal, JournalAt, RewindJournal, WriteCheckpoint
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.provenance import read_carried, write_carried
from ...services.journal_rows import CacheRows, CheckpointRow, JournalRow, JournalRows
from ...services.ledger import Ledger
from .fences import check_owner
from .following import Followers
from .said import found_in

__all__ = ["STATE_BYTES", "Trimming", "read_checkpoint"]

_E = TypeVar("_E")

STATE_BYTES: Final = 16 * 1024 * 1024
"""The largest state of a checkpoint, as JSON."""

ATTEMPTS: Final = 10
"""How often a plan is made before others are left alone."""

PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be committed, and what it is by itself."""

    expects: tuple[Expectation, ...]
    write: WriteCheckpoint | CompactJournal | RewindJournal
    count: int = 0


_Planned: TypeAlias = Outcome[_Plan | None, _E]


@final
class Trimming:
    """Over the ledger that keeps the journals; `followers` are those of this process."""

    def __init__(self, ledger: Ledger, rows: JournalRows, followers: Followers) -> None:
        self._ledger = ledger
        self._rows = rows
        self._followers = followers

    # --- checkpoints ----------------------------------------------------------

    async def checkpoint(
        self, run_id: str, seq: int, state: object, owner: Owner | None
    ) -> Outcome[Checkpoint, InvalidCheckpoint | Fenced | Unavailable]:
        """As `Journal.checkpoint` says."""
        encoded = encode_json("the state", state)
        why = encoded.failure() if isinstance(encoded, Failure) else None
        data = b"" if isinstance(encoded, Failure) else encoded.unwrap()
        if len(data) > STATE_BYTES:
            why = f"the state is {len(data)} bytes of JSON, and at most {STATE_BYTES} are kept"

        async def plan(fence: tuple[RunFence, ...]) -> _Planned[InvalidCheckpoint | Unavailable]:
            if why is not None:
                return Failure(InvalidCheckpoint(run_id, seq, message=why))
            read = await self._rows.journal(run_id)
            if isinstance(read, Failure):
                return read
            journal = read.unwrap()
            invalid = await self._misplaced(run_id, seq, journal)
            if invalid is not None or journal is None:
                return Failure(invalid or _missing(run_id, seq))
            return Success(_Plan((*fence, _stands(journal)), WriteCheckpoint(run_id, seq, data)))

        done = await self._commit(run_id, owner, plan)
        if isinstance(done, Failure):
            return done
        kept: object = msgspec.json.decode(data)
        return Success(Checkpoint(run_id, seq, kept, None))

    async def latest(self, run_id: str) -> Outcome[Checkpoint | None, Unavailable]:
        """As `Journal.latest_checkpoint` says."""
        read = await self._rows.checkpoints(run_id)
        if isinstance(read, Failure):
            return read
        rows = read.unwrap()
        return read_checkpoint(rows[0]) if rows else Success(None)

    async def _misplaced(
        self, run_id: str, seq: int, journal: JournalRow | None
    ) -> InvalidCheckpoint | Unavailable | None:
        """What is wrong with a checkpoint there."""
        floor = None if journal is None else journal.floor
        if type(seq) is not int or seq < 0 or journal is None or seq > journal.last_seq:
            return _missing(run_id, seq, floor)
        if floor is not None and seq <= floor:
            message = f"the journal was compacted to {floor}: a checkpoint can only be above that"
            return InvalidCheckpoint(run_id, seq, message=message, floor=floor)
        read = await self._rows.entries(run_id, after=seq - 1, limit=1)
        if isinstance(read, Failure):
            return read.failure()
        found = read.unwrap().entries
        return None if found and found[0].seq == seq else _missing(run_id, seq, floor)

    # --- compaction -----------------------------------------------------------

    async def compact(
        self, run_id: str, upto: int | None, owner: Owner | None
    ) -> Outcome[int, InvalidCheckpoint | Fenced | Unavailable]:
        """As `Journal.compact` says."""

        async def plan(fence: tuple[RunFence, ...]) -> _Planned[InvalidCheckpoint | Unavailable]:
            read = await self._rows.journal(run_id)
            if isinstance(read, Failure):
                return read
            journal = read.unwrap()
            chosen = await self._chosen(run_id, upto, journal)
            if isinstance(chosen, Failure):
                return chosen
            seq = chosen.unwrap()
            if journal is None or seq == journal.floor:
                return Success(None)
            behind = self._followers.behind(run_id, seq)
            if behind is not None:
                message = f"a reader of this process has read up to {behind} only"
                return Failure(InvalidCheckpoint(run_id, seq, "reader_behind", message, journal.floor))
            return await self._compaction(journal, seq, fence)

        return await self._commit(run_id, owner, plan)

    async def _chosen(
        self, run_id: str, upto: int | None, journal: JournalRow | None
    ) -> Outcome[int, InvalidCheckpoint | Unavailable]:
        """The number of the checkpoint to compact to. Nothing is removed for the sake of one that cannot be read."""
        read = await self._rows.checkpoints(run_id)
        if isinstance(read, Failure):
            return read
        row = next((each for each in read.unwrap() if upto is None or each.seq <= upto), None)
        floor = None if journal is None else journal.floor
        if row is None:
            if upto is not None and floor is not None and 0 <= upto <= floor:
                return Success(floor)
            up_to = "" if upto is None else f" up to {upto}"
            message = f"there is no checkpoint{up_to} to compact to"
            return Failure(InvalidCheckpoint(run_id, -1 if upto is None else upto, message=message, floor=floor))
        readable = read_checkpoint(row)
        return readable if isinstance(readable, Failure) else Success(row.seq)

    async def _compaction(
        self, journal: JournalRow, seq: int, fence: tuple[RunFence, ...]
    ) -> Outcome[_Plan, Unavailable]:
        run_id, first = journal.run_id, 0 if journal.floor is None else journal.floor
        carried = await self._carried(journal, first - 1, seq)
        if isinstance(carried, Failure):
            return carried
        count = await self.count(run_id, first, seq - 1)
        if isinstance(count, Failure):
            return count
        return Success(_Plan((*fence, _stands(journal)), CompactJournal(run_id, seq, carried.unwrap()), count.unwrap()))

    # --- rewinds --------------------------------------------------------------

    async def rewind(self, run_id: str, to_seq: int) -> Outcome[int, Compacted | Unavailable]:
        """As `Journal.rewind` says."""
        planned = -1

        async def plan(_fence: tuple[RunFence, ...]) -> _Planned[Compacted | Unavailable]:
            changes = await self._cache_changes()  # first: what is said of the cache after this is not lost
            if isinstance(changes, Failure):
                return changes
            read = await self._rows.journal(run_id)
            if isinstance(read, Failure):
                return read
            journal = read.unwrap()
            if journal is None or to_seq >= journal.last_seq:
                return Success(None)
            nonlocal planned
            planned = journal.last_seq
            if journal.floor is not None and to_seq < journal.floor:
                return Failure(Compacted(run_id, journal.floor))
            kept = await self._last_upto(journal, to_seq)
            if isinstance(kept, Failure):
                return kept
            return await self._rewinding(journal, kept.unwrap(), changes.unwrap())

        done = await self._commit(run_id, None, plan)
        if isinstance(done, Success):
            return await self._rewound(run_id, planned, done.unwrap()) if done.unwrap() else done
        failure = done.failure()
        if isinstance(failure, Fenced):
            raise RuntimeError(f"a rewind was refused, which has no owner: {failure}")
        return Failure(failure)

    async def _rewinding(
        self, journal: JournalRow, to_seq: int, changes: tuple[CacheAt, ...]
    ) -> Outcome[_Plan | None, Unavailable]:
        run_id = journal.run_id
        count = await self.count(run_id, to_seq + 1, journal.last_seq)
        if isinstance(count, Failure) or count.unwrap() == 0:
            return count if isinstance(count, Failure) else Success(None)
        carried = await self._carried(journal, to_seq, None)
        if isinstance(carried, Failure):
            return carried
        write = RewindJournal(run_id, to_seq, carried.unwrap())
        return Success(_Plan((_stands(journal), *changes), write, count.unwrap()))

    async def _rewound(self, run_id: str, planned: int, count: int) -> Outcome[int, Unavailable]:
        """How many entries the last rewind removed: those that were planned up to a number, and what came after it."""
        read = await self._rows.rewinds(run_id)
        return read if isinstance(read, Failure) else Success(count + read.unwrap()[-1].from_seq - planned)

    async def _cache_changes(self) -> Outcome[tuple[CacheAt, ...], Unavailable]:
        if not isinstance(self._rows, CacheRows):
            return Success(())
        read = await self._rows.cache_changes()
        return read if isinstance(read, Failure) else Success((CacheAt(read.unwrap()),))

    async def _last_upto(self, journal: JournalRow, to_seq: int) -> Outcome[int, Unavailable]:
        """The number of the last entry that is not after `to_seq`, whose own may be gone; -1 is before the first."""
        read = await self._rows.rewinds(journal.run_id)
        if isinstance(read, Failure):
            return read
        for rewind in reversed(read.unwrap()):
            if rewind.to_seq < to_seq <= rewind.from_seq:
                to_seq = rewind.to_seq
        return Success(to_seq)

    # --- what they share ------------------------------------------------------

    async def _commit(
        self,
        run_id: str,
        owner: Owner | None,
        plan: Callable[[tuple[RunFence, ...]], Awaitable[_Planned[_E]]],
    ) -> Outcome[int, _E | Fenced | Unavailable]:
        """Commit what is planned, and plan anew if the journal was changed meanwhile: how many entries go."""
        for _ in range(ATTEMPTS):
            fence = await check_owner(self._ledger, run_id, owner)
            if isinstance(fence, Failure):
                return fence
            planned = await plan(fence.unwrap())
            if isinstance(planned, Failure):
                return planned
            made = planned.unwrap()
            if made is None:
                return Success(0)
            verdict = await self._ledger.commit(Batch(made.expects, (made.write,)))
            if isinstance(verdict, Success):
                return Success(made.count)
            failure = verdict.failure()
            if isinstance(failure, Unavailable):
                return Failure(failure)
            if not isinstance(failure, Fenced):
                return Failure(Unavailable(f"the journal of {run_id!r} cannot be changed: {failure}", "no"))
        return Failure(Unavailable(f"the journal of {run_id!r} was changed by others all the time", "no"))

    async def count(self, run_id: str, first: int, last: int) -> Outcome[int, Unavailable]:
        """How many entries there are from one number to another, both included."""
        read = await self._rows.entries(run_id, after=first - 1, limit=1)
        if isinstance(read, Failure):
            return read
        rewinds = await self._rows.rewinds(run_id)
        if isinstance(rewinds, Failure):
            return rewinds
        found = read.unwrap().entries  # those before it may be of a journal that was forgotten
        return Success(entries_between(found[0].seq, last, rewinds.unwrap()) if found else 0)

    async def _carried(self, journal: JournalRow, after: int, below: int | None) -> Outcome[bytes, Unavailable]:
        """What the entries between say of the step cache, with what was carried before."""
        if not journal.sealed or (journal.carried is not None and read_carried(journal.carried) is None):
            return Failure(Damaged(f"decode_failed: the journal of {journal.run_id!r} is not as it was written", "no"))
        found = await found_in(self._rows, journal, after, below)
        return found if isinstance(found, Failure) else Success(write_carried(found.unwrap().carried()))


def read_checkpoint(row: CheckpointRow) -> Outcome[Checkpoint, Unavailable]:
    """A checkpoint as it was written; one that is damaged says so."""
    try:
        if row.state is not None:
            state: object = msgspec.json.decode(row.state)
            return Success(Checkpoint(row.run_id, row.seq, state, row.compacted_at_ms))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    place = f"the checkpoint at {row.seq} of the run {row.run_id!r}"
    return Failure(Damaged(f"decode_failed: {place} is not as it was written", "no"))


def _stands(journal: JournalRow) -> JournalAt:
    return JournalAt(journal.run_id, journal.generation, journal.floor)


def _missing(run_id: str, seq: int, floor: int | None = None) -> InvalidCheckpoint:
    return InvalidCheckpoint(run_id, seq, message=f"there is no entry {seq!r} for a checkpoint", floor=floor)
