"""Ledgers that come in between a journal and the real one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from msgspec.structs import replace

from stepwell import Failure, Ledger, Outcome, Success, Unavailable
from stepwell.core.batch import Batch
from stepwell.core.entry import EntryRow, RewindRow
from stepwell.layers.journal import LedgerJournal
from stepwell.services.journal_rows import CacheRows, CheckpointRow, EntryPage, JournalRows
from stepwell.services.ledger import News, Prunable, Verdict

from .cache_world import RowsDouble
from .journal_world import JournalDouble
from .store_world import success


class Refusing(JournalDouble):
    """A ledger whose commits fail as it is told, once."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.failing: Unavailable | None = None

    async def commit(self, batch: Batch) -> Verdict:
        failing, self.failing = self.failing, None
        return await super().commit(batch) if failing is None else Failure(failing)


class Damaged(JournalDouble):
    """A ledger that gives one entry, and the checkpoint that has it, otherwise than they were written."""

    seq = -1
    checkpoint = -1

    def _spoilt(self, row: EntryRow) -> EntryRow:
        return replace(row, payload=b'"other"') if row.seq == self.seq else row

    async def newest(self, limit: int) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return Success(tuple(map(self._spoilt, success(await super().newest(limit)))))

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        page = success(await super().entries(run_id, after=after, event_types=event_types, limit=limit))
        return Success(replace(page, entries=tuple(map(self._spoilt, page.entries))))

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        rows = success(await super().checkpoints(run_id))
        return Success(tuple(replace(row, state=None) if row.seq == self.checkpoint else row for row in rows))


class SlowToRead(JournalDouble):
    """Another commits between the look at a journal and the next one, at its rewinds or at its checkpoints."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.rival: LedgerJournal | None = None
        self.does: Literal["rewind", "compact"] = "rewind"
        self.at: Literal["rewinds", "checkpoints"] = "checkpoints"

    async def rewinds(self, run_id: str) -> Outcome[tuple[RewindRow, ...], Unavailable]:
        read = await super().rewinds(run_id)
        await self._let_rival("rewinds", run_id)
        return read

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        read = await super().checkpoints(run_id)
        await self._let_rival("checkpoints", run_id)
        return read

    async def _let_rival(self, at: str, run_id: str) -> None:
        if self.rival is not None and self.at == at:
            rival, self.rival = self.rival, None
            _ = success(await (rival.rewind(run_id, 5) if self.does == "rewind" else rival.compact(run_id)))


class Deaf(JournalDouble):
    """A ledger that has no news for anybody."""

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        return lambda: None


class Overtaken(RowsDouble):
    """Somebody commits a batch after the look at what a journal says of the step cache."""

    def __init__(self, real: Ledger) -> None:
        assert isinstance(real, CacheRows)
        assert isinstance(real, JournalRows)
        assert isinstance(real, Prunable)
        super().__init__(real)
        self.batch: Batch | None = None

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        page = await super().entries(run_id, after=after, event_types=event_types, limit=limit)
        batch = self.batch
        if event_types is not None and batch is not None:
            self.batch = None
            _ = success(await self.real.commit(batch))
        return page
