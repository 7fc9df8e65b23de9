"""What a ledger tells of the journals that it keeps, and of the step cache. Whoever writes a host adds both.

The calls tell what is committed at the moment of the call; several together are not of one moment. What is damaged so
that it cannot be told answers `Unavailable`, with the place in its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from ..core.entry import EntryRow, RewindRow
from ..core.journal import Source
from ..core.journal_row import CheckpointRow, EntryPage, JournalRow, SourceRow
from ..core.model import Unavailable
from ..core.outcome import Outcome
from ..core.recorded_row import HeadRow, StoredRow
from ..core.step_cache import RecordedRef

__all__ = ["CacheRows", "CheckpointRow", "EntryPage", "JournalRow", "JournalRows", "SourceRow", "StrayRows"]


@runtime_checkable
class JournalRows(Protocol):
    """A ledger that keeps journals: what has to be known of them. They are changed by batches."""

    async def journal(self, run_id: str) -> Outcome[JournalRow | None, Unavailable]: ...

    async def journals(
        self, *, after: str | None = None, limit: int = 1000
    ) -> Outcome[tuple[JournalRow, ...], Unavailable]:
        """The journals in ascending order of their runs, those after `after`; also of runs that were forgotten."""
        ...

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        """The entries of a run after a number. The floor is read with them, in one snapshot."""
        ...

    async def newest(self, limit: int) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        """The entries that were committed last, of all runs, the newest first."""
        ...

    async def entry_of(self, run_id: str, source: Source) -> Outcome[SourceRow | None, Unavailable]: ...

    async def sources(
        self, run_id: str, *, after: Source | None = None, limit: int = 1000
    ) -> Outcome[tuple[SourceRow, ...], Unavailable]:
        """All sources of a run's journal in ascending order of id and number, those after `after`."""
        ...

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        """The checkpoints of a run, the newest first."""
        ...

    async def rewinds(self, run_id: str) -> Outcome[tuple[RewindRow, ...], Unavailable]:
        """The rewinds of a run's journal, in their order."""
        ...


@runtime_checkable
class StrayRows(Protocol):
    """A ledger in which rows of journals can be that belong to none of them, if somebody changed what is stored."""

    async def stray_row(self) -> Outcome[str | None, Unavailable]:
        """One of them in words; None where there is none."""
        ...


@runtime_checkable
class CacheRows(Protocol):
    """A ledger that keeps a step cache: what has to be known of it. It is changed by batches."""

    async def cache_changes(self) -> Outcome[int, Unavailable]:
        """A number that every change of the step cache raises: of a head, a recorded row, an entry that speaks of it,
        and of a journal that is compacted, rewound or forgotten."""
        ...

    async def provenance(self, *, after: int = 0, limit: int = 10_000) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        """The entries of all runs that speak of the step cache, in the order of their commits; after that `no`."""
        ...

    async def head(self, key_digest: str) -> Outcome[HeadRow | None, Unavailable]: ...

    async def heads(
        self, *, after: str = "", created_before_ms: int | None = None, limit: int = 10_000
    ) -> Outcome[tuple[HeadRow, ...], Unavailable]:
        """The heads in ascending order of their keys, those after `after`, and recorded before that instant."""
        ...

    async def recorded(self, ref: RecordedRef) -> Outcome[StoredRow | None, Unavailable]:
        """A recorded row; a damaged one says so."""
        ...

    async def in_force(self, key_digest: str) -> Outcome[StoredRow | None, Unavailable]:
        """The row that the head of a key names, read with it; None where there is no head. One that is gone says so."""
        ...

    async def recorded_of(
        self, run_id: str, *, after: RecordedRef | None = None, limit: int = 1000
    ) -> Outcome[tuple[RecordedRef, ...], Unavailable]:
        """The rows that a run recorded, in ascending order of key and number; those after `after`."""
        ...

    async def are_recorded(self, refs: Sequence[RecordedRef]) -> Outcome[frozenset[RecordedRef], Unavailable]:
        """Those of the refs that have a row, damaged or not."""
        ...
