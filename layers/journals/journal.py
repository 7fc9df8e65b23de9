"""The journal over a ledger: what is appended is a batch, and what is read are its rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypedDict, TypeVar, final

from ...core.batch import AlreadyApplied, Batch, Expectation, Fenced
from ...core.entry import NewEntry
from ...core.event import Event, new_entry, positive, redacted
from ...core.journal import (
    PAYLOAD_BYTES,
    Appended,
    Checkpoint,
    Compacted,
    Entry,
    IdempotencyConflict,
    InvalidCheckpoint,
    InvalidEvent,
    Owner,
    Page,
    Projection,
    Source,
    Tampered,
    Verified,
)
from ...core.journal_writes import Append, SourceFree
from ...core.model import Unavailable, check_whole
from ...core.outcome import Failure, Outcome, Success
from ...core.poll import PollPolicy
from ...core.provenance import CACHE_JOURNAL
from ...core.redaction import Redaction, Redactor
from ...services.artifacts import Artifacts
from ...services.clock import Clock
from ...services.journal_rows import JournalRow, JournalRows
from ...services.ledger import Ledger
from .fences import fence_of
from .following import CLOSED, POLL, Bell, Followers
from .payloads import Payloads
from .policy import Compaction, CompactionPolicy
from .reading import PAGE, Reading, check_cursor, check_run
from .trimming import Trimming
from .verification import Verification

__all__ = ["REDACTION", "JournalOptions", "LedgerJournal", "Options"]

_S = TypeVar("_S")

REDACTION: Final = Redaction()

_RUNS: Final = 1_000
"""How many journals are listed at once."""


class JournalOptions(TypedDict, total=False):
    """What may be told a journal; `Options` has what goes for what is left out.

    Entries are read `page_size` at a time, and payloads are at most `payload_bytes` of JSON long. `redaction` takes out
    what is secret; None stores everything verbatim. `compaction` compacts journals by itself. Followers look as often
    as `poll` says for entries of which the ledger gave no news. Without `check` the newest entries are not looked at
    when the journal is opened.
    """

    page_size: int
    payload_bytes: int
    redaction: Redactor | None
    compaction: Compaction | None
    poll: PollPolicy
    check: bool


@dataclass(frozen=True, slots=True)
class Options:
    """How a journal is kept, as `JournalOptions` says."""

    page_size: int = PAGE
    payload_bytes: int = PAYLOAD_BYTES
    redaction: Redactor | None = REDACTION
    compaction: Compaction | None = None
    poll: PollPolicy = POLL
    check: bool = True

    def invalid(self) -> InvalidEvent | None:
        """What is wrong with them."""
        threshold = 1 if self.compaction is None else self.compaction.entry_threshold
        return (
            positive("page_size", self.page_size)
            or positive("payload_bytes", self.payload_bytes)
            or positive("entry_threshold", threshold)
        )


@final
class LedgerJournal:
    """A journal in the rows of a ledger; it is joinable, so the engine commits its entries with what they tell of."""

    def __init__(
        self, ledger: Ledger, rows: JournalRows, clock: Clock, options: Options, artifacts: Artifacts | None = None
    ) -> None:
        self._ledger = ledger
        self._rows = rows
        self._options = options
        self._payloads = Payloads(artifacts, options.payload_bytes)
        self._reading = Reading(rows, self._payloads, options.page_size)
        self._bell = Bell(ledger, clock)
        self._followers = Followers(self._reading, self._bell, options.poll)
        self._trimming = Trimming(ledger, rows, self._followers)
        self._verification = Verification(rows, self._payloads, options.page_size)
        self._policy: CompactionPolicy | None = None
        if options.compaction is not None:
            self._policy = CompactionPolicy(options.compaction, rows, self._trimming, clock)

    async def open(self) -> Outcome[None, Tampered | Unavailable]:
        """Look at the entries that were committed last, if that is asked for."""
        return await self._verification.newest() if self._options.check else Success(None)

    async def close(self) -> None:
        """Every later call answers `Unavailable`, and so do the followers; what was begun is carried through."""
        self._bell.close()
        if self._policy is not None:
            await self._policy.close()

    # --- appending ------------------------------------------------------------

    async def append(
        self,
        run_id: str,
        event_type: str,
        payload: object,
        *,
        source: Source | None = None,
        owner: Owner | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> Outcome[Appended, IdempotencyConflict | Fenced | InvalidEvent | Unavailable]:
        if self._bell.is_closed:
            return Failure(CLOSED)
        made = new_entry(Event(run_id, event_type, payload, source, meta), self._options.redaction)
        if isinstance(made, Failure):
            return made
        fence = fence_of(run_id, owner)
        if isinstance(fence, Failure):
            return fence
        kept = await self._payloads.kept(made.unwrap())
        if isinstance(kept, Failure):
            return kept
        appended = await self._commit(run_id, fence.unwrap(), kept.unwrap())
        if self._policy is not None and isinstance(appended, Success) and not appended.unwrap().duplicate:
            await self._policy.appended(run_id, appended.unwrap().seq)
        return appended

    async def _commit(
        self, run_id: str, fence: tuple[Expectation, ...], entry: NewEntry
    ) -> Outcome[Appended, IdempotencyConflict | Fenced | Unavailable]:
        verdict = await self._ledger.commit(Batch(fence, ()) + _batch(run_id, (entry,)))
        if isinstance(verdict, Success):
            answer = verdict.unwrap()
            if isinstance(answer, AlreadyApplied) or len(answer.appended) != 1:
                raise RuntimeError(f"the ledger did not say how an entry was appended, but answered {answer}")
            return Success(answer.appended[0])
        match verdict.failure():
            case Unavailable() as unavailable:
                return Failure(unavailable)
            case Fenced(source=Source() as taken):
                return Failure(IdempotencyConflict(run_id, taken))
            case Fenced() as fenced:
                return Failure(fenced)
            case other:
                raise RuntimeError(f"an entry was refused, which expects nothing of that: {other}")

    def appending(self, run_id: str, entries: Iterable[NewEntry]) -> Batch:
        """What is not stepwell's own is redacted here too. Payloads are stored in the entries, however long."""
        left = tuple(redacted(entry, self._options.redaction) for entry in entries)
        if self._policy is not None:
            self._policy.noted(run_id, len(left))
        return _batch(run_id, left)

    # --- reading --------------------------------------------------------------

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[Page, Compacted | Unavailable]:
        run_id, cursor, limit = check_run(run_id), check_cursor(after), check_whole("limit", limit, 1)
        if self._bell.is_closed:
            return Failure(CLOSED)
        return await self._reading.page(run_id, cursor, event_types, limit)

    def follow(self, run_id: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        return self._follow(run_id, after)

    def _follow(self, run_id: str, after: int | None) -> AsyncGenerator[Entry]:
        return self._followers.follow(check_run(run_id), check_cursor(after))

    async def project(
        self, run_id: str, projection: Projection[_S], *, after: int | None = None
    ) -> Outcome[_S, Compacted | Unavailable]:
        run_id, cursor = check_run(run_id), check_cursor(after)
        if self._bell.is_closed:
            return Failure(CLOSED)
        return await self._reading.fold(run_id, projection, cursor)

    async def states(self, run_id: str, projection: Projection[_S], *, after: int | None = None) -> AsyncGenerator[_S]:
        async with aclosing(self._follow(run_id, after)) as following:
            state = projection.initial()
            yield state
            async for entry in following:
                state = projection.reduce(state, entry)
                yield state

    async def runs(self) -> Outcome[tuple[str, ...], Unavailable]:
        if self._bell.is_closed:
            return Failure(CLOSED)
        runs: list[str] = []
        after: str | None = None
        while True:
            read = await self._rows.journals(after=after, limit=_RUNS)
            if isinstance(read, Failure):
                return read
            journals = read.unwrap()
            for journal in journals:
                after = journal.run_id
                has = Success(False) if after == CACHE_JOURNAL else await self._has_entries(journal)
                if isinstance(has, Failure):
                    return has
                if has.unwrap():
                    runs.append(after)
            if len(journals) < _RUNS:
                return Success(tuple(runs))

    async def _has_entries(self, journal: JournalRow) -> Outcome[bool, Unavailable]:
        """Only one that was rewound, or whose run was forgotten, may have none."""
        if journal.floor is not None or (journal.generation == 0 and journal.floor_chain is None):
            return Success(journal.last_seq >= 0)
        read = await self._rows.entries(journal.run_id, limit=1)
        return read if isinstance(read, Failure) else Success(bool(read.unwrap().entries))

    # --- what shortens it -----------------------------------------------------

    async def checkpoint(
        self, run_id: str, seq: int, state: object, *, owner: Owner | None = None
    ) -> Outcome[Checkpoint, InvalidCheckpoint | Fenced | Unavailable]:
        run_id = check_run(run_id)
        return Failure(CLOSED) if self._bell.is_closed else await self._trimming.checkpoint(run_id, seq, state, owner)

    async def latest_checkpoint(self, run_id: str) -> Outcome[Checkpoint | None, Unavailable]:
        run_id = check_run(run_id)
        return Failure(CLOSED) if self._bell.is_closed else await self._trimming.latest(run_id)

    async def compact(
        self, run_id: str, upto: int | None = None, *, owner: Owner | None = None
    ) -> Outcome[int, InvalidCheckpoint | Fenced | Unavailable]:
        run_id = check_run(run_id)
        upto = None if upto is None else check_whole("upto", upto, 0)
        return Failure(CLOSED) if self._bell.is_closed else await self._trimming.compact(run_id, upto, owner)

    async def rewind(self, run_id: str, to_seq: int) -> Outcome[int, Compacted | Unavailable]:
        run_id, to_seq = check_run(run_id), check_whole("to_seq", to_seq, -1)
        return Failure(CLOSED) if self._bell.is_closed else await self._trimming.rewind(run_id, to_seq)

    async def verify(self, run_id: str | None = None) -> Outcome[Verified, Tampered | Unavailable]:
        if self._bell.is_closed:
            return Failure(CLOSED)
        if run_id is None:
            return await self._verification.all()
        return await self._verification.one(check_run(run_id))


def _batch(run_id: str, entries: tuple[NewEntry, ...]) -> Batch:
    free = tuple(SourceFree(run_id, each.source, each.identity) for each in entries if each.source is not None)
    return Batch(free, (Append(run_id, entries),))
