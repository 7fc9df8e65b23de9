"""What the ledger tells of its journals and its step cache: `JournalRows` and `CacheRows`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from ...core.entry import EntryRow, RewindRow
from ...core.journal import Source
from ...core.model import Unavailable
from ...core.outcome import Outcome
from ...core.recorded_row import HeadRow, StoredRow
from ...core.step_cache import RecordedRef
from ...services.journal_rows import CheckpointRow, EntryPage, JournalRow, SourceRow
from . import cache_queries, journal_queries
from .connection import Connection

__all__ = ["JournalReading"]

_T = TypeVar("_T")


class JournalReading(ABC):
    """The calls. Each asks the file once, and sees one moment of it."""

    @abstractmethod
    async def ask(self, query: Callable[[Connection], _T]) -> Outcome[_T, Unavailable]:
        """What the file answers."""

    # --- journals -----------------------------------------------------------

    async def journal(self, run_id: str) -> Outcome[JournalRow | None, Unavailable]:
        return await self.ask(lambda connection: journal_queries.journal(connection, run_id))

    async def journals(
        self, *, after: str | None = None, limit: int = 1000
    ) -> Outcome[tuple[JournalRow, ...], Unavailable]:
        return await self.ask(lambda connection: journal_queries.journals(connection, after, limit))

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        return await self.ask(lambda connection: journal_queries.entries(connection, run_id, after, event_types, limit))

    async def newest(self, limit: int) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return await self.ask(lambda connection: journal_queries.newest(connection, limit))

    async def entry_of(self, run_id: str, source: Source) -> Outcome[SourceRow | None, Unavailable]:
        return await self.ask(lambda connection: journal_queries.entry_of(connection, run_id, source))

    async def sources(
        self, run_id: str, *, after: Source | None = None, limit: int = 1000
    ) -> Outcome[tuple[SourceRow, ...], Unavailable]:
        return await self.ask(lambda connection: journal_queries.sources(connection, run_id, after, limit))

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        return await self.ask(lambda connection: journal_queries.checkpoints(connection, run_id))

    async def rewinds(self, run_id: str) -> Outcome[tuple[RewindRow, ...], Unavailable]:
        return await self.ask(lambda connection: journal_queries.rewinds(connection, run_id))

    async def stray_row(self) -> Outcome[str | None, Unavailable]:
        return await self.ask(journal_queries.stray_row)

    # --- the step cache -----------------------------------------------------

    async def cache_changes(self) -> Outcome[int, Unavailable]:
        return await self.ask(cache_queries.cache_changes)

    async def provenance(self, *, after: int = 0, limit: int = 10_000) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return await self.ask(lambda connection: journal_queries.provenance(connection, after, limit))

    async def head(self, key_digest: str) -> Outcome[HeadRow | None, Unavailable]:
        return await self.ask(lambda connection: cache_queries.head(connection, key_digest))

    async def heads(
        self, *, after: str = "", created_before_ms: int | None = None, limit: int = 10_000
    ) -> Outcome[tuple[HeadRow, ...], Unavailable]:
        return await self.ask(lambda connection: cache_queries.heads(connection, after, created_before_ms, limit))

    async def recorded(self, ref: RecordedRef) -> Outcome[StoredRow | None, Unavailable]:
        return await self.ask(lambda connection: cache_queries.recorded(connection, ref))

    async def in_force(self, key_digest: str) -> Outcome[StoredRow | None, Unavailable]:
        return await self.ask(lambda connection: cache_queries.in_force(connection, key_digest))

    async def recorded_of(
        self, run_id: str, *, after: RecordedRef | None = None, limit: int = 1000
    ) -> Outcome[tuple[RecordedRef, ...], Unavailable]:
        return await self.ask(lambda connection: cache_queries.recorded_of(connection, run_id, after, limit))

    async def are_recorded(self, refs: Sequence[RecordedRef]) -> Outcome[frozenset[RecordedRef], Unavailable]:
        return await self.ask(lambda connection: cache_queries.are_recorded(connection, refs))
