"""What the memory ledger tells of its journals and its step cache: `JournalRows` and `CacheRows`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Final

from ...core.entry import EntryRow, RewindRow
from ...core.journal import Source
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.recorded_row import HeadRow, StoredRow
from ...core.step_cache import RecordedRef
from ...services.journal_rows import CheckpointRow, EntryPage, JournalRow, SourceRow
from .journals import Journals

__all__ = ["CLOSED", "JournalReading"]

CLOSED: Final = Unavailable("the ledger is closed", "no")


class JournalReading(ABC):
    """The calls, over the journals that a ledger keeps until it is closed."""

    @property
    @abstractmethod
    def kept(self) -> Journals: ...

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...

    async def journal(self, run_id: str) -> Outcome[JournalRow | None, Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.journal(run_id))

    async def journals(
        self, *, after: str | None = None, limit: int = 1000
    ) -> Outcome[tuple[JournalRow, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.journals(after, limit))

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        if self.is_closed:
            return Failure(CLOSED)
        return Success(self.kept.entries(run_id, after, event_types, limit))

    async def newest(self, limit: int) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.newest(limit))

    async def entry_of(self, run_id: str, source: Source) -> Outcome[SourceRow | None, Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.entry_of(run_id, source))

    async def sources(
        self, run_id: str, *, after: Source | None = None, limit: int = 1000
    ) -> Outcome[tuple[SourceRow, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.sources(run_id, after, limit))

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.checkpoints(run_id))

    async def rewinds(self, run_id: str) -> Outcome[tuple[RewindRow, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.rewinds(run_id))

    async def cache_changes(self) -> Outcome[int, Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.changes)

    async def provenance(self, *, after: int = 0, limit: int = 10_000) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.provenance(after, limit))

    async def head(self, key_digest: str) -> Outcome[HeadRow | None, Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.head(key_digest))

    async def heads(
        self, *, after: str = "", created_before_ms: int | None = None, limit: int = 10_000
    ) -> Outcome[tuple[HeadRow, ...], Unavailable]:
        if self.is_closed:
            return Failure(CLOSED)
        return Success(self.kept.heads(after, created_before_ms, limit))

    async def recorded(self, ref: RecordedRef) -> Outcome[StoredRow | None, Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.recorded(ref))

    async def in_force(self, key_digest: str) -> Outcome[StoredRow | None, Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.in_force(key_digest))

    async def recorded_of(
        self, run_id: str, *, after: RecordedRef | None = None, limit: int = 1000
    ) -> Outcome[tuple[RecordedRef, ...], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.recorded_of(run_id, after, limit))

    async def are_recorded(self, refs: Sequence[RecordedRef]) -> Outcome[frozenset[RecordedRef], Unavailable]:
        return Failure(CLOSED) if self.is_closed else Success(self.kept.are_recorded(refs))
