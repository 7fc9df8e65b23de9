"""One database, the journals over it, and ledgers that come in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias, Unpack

from stepwell import Artifacts, Failure, Layer, Ledger, ManualClock, Outcome, Success, Unavailable, build, get, provides
from stepwell.core.batch import Batch, ChangeRun, InsertRun, NoRun
from stepwell.core.entry import EntryRow, RewindRow
from stepwell.core.journal import Entry, Projection, Source
from stepwell.core.run import RunRow
from stepwell.core.step_cache import RecordedRef
from stepwell.layers import clock
from stepwell.layers import journal as journals
from stepwell.layers import ledger as ledgers
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.layers.journal import JournalOptions, LedgerJournal
from stepwell.services.journal import Journal
from stepwell.services.journal_rows import CheckpointRow, EntryPage, JournalRow, JournalRows, SourceRow

from .ledger_double import LedgerDouble
from .store_world import Host, given_ledger, success

NOW_MS = 1_700_000_000_000
RUN = "run"
ROW = RecordedRef("k" * 64, RUN, 3)

Around: TypeAlias = Callable[[Ledger], Ledger]
Built: TypeAlias = Outcome[Journal, object]


def rows_of(ledger: Ledger) -> JournalRows:
    """What a ledger tells of journals."""
    assert isinstance(ledger, JournalRows)
    return ledger


class JournalDouble(LedgerDouble):
    """Hands on what a ledger tells of journals, too; a test replaces single calls."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.rows = rows_of(real)

    async def journal(self, run_id: str) -> Outcome[JournalRow | None, Unavailable]:
        return await self.rows.journal(run_id)

    async def journals(
        self, *, after: str | None = None, limit: int = 1000
    ) -> Outcome[tuple[JournalRow, ...], Unavailable]:
        return await self.rows.journals(after=after, limit=limit)

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        return await self.rows.entries(run_id, after=after, event_types=event_types, limit=limit)

    async def newest(self, limit: int) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return await self.rows.newest(limit)

    async def entry_of(self, run_id: str, source: Source) -> Outcome[SourceRow | None, Unavailable]:
        return await self.rows.entry_of(run_id, source)

    async def sources(
        self, run_id: str, *, after: Source | None = None, limit: int = 1000
    ) -> Outcome[tuple[SourceRow, ...], Unavailable]:
        return await self.rows.sources(run_id, after=after, limit=limit)

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        return await self.rows.checkpoints(run_id)

    async def rewinds(self, run_id: str) -> Outcome[tuple[RewindRow, ...], Unavailable]:
        return await self.rows.rewinds(run_id)


class World:
    """A database in memory or in a file, with one manual clock and one place for artifacts for all that is opened."""

    def __init__(self, host: Host, path: Path, scope: AsyncExitStack) -> None:
        self.host = host
        self.path = path
        self.clock = ManualClock(NOW_MS)
        self.artifacts = MemoryArtifacts(self.clock)
        self._scope = scope
        self.memory = ledgers.MemoryLedger(self.clock)

    async def ledger(self) -> Ledger:
        """A further connection to the database; in memory there is but one ledger."""
        if self.host == "memory":
            return self.memory
        clocks = clock.layer_test(self.clock)
        layer = ledgers.layer(self.path, durability="normal")
        env = success(await self._scope.enter_async_context(build(layer | clocks)))
        return get(env, Ledger)

    async def opened(
        self,
        around: Around | None = None,
        *,
        ledger: Ledger | None = None,
        spilling: bool = False,
        **options: Unpack[JournalOptions],
    ) -> Built:
        """A further journal, or why there is none; `around` comes between it and the ledger."""
        real = await self.ledger() if ledger is None else ledger
        hosts = given_ledger(real if around is None else around(real)) | clock.layer_test(self.clock)
        layer = journals.layer_spilling(**options) if spilling else journals.layer_test(**options)
        app = layer | hosts | _given_artifacts(self.artifacts)
        built = await self._scope.enter_async_context(build(app))
        if isinstance(built, Failure):
            failure = built.failure()
            return Failure(getattr(failure, "cause", failure))
        return Success(get(built.unwrap(), Journal))

    async def journal(
        self,
        around: Around | None = None,
        *,
        ledger: Ledger | None = None,
        spilling: bool = False,
        **options: Unpack[JournalOptions],
    ) -> LedgerJournal:
        """A further journal over the database."""
        journal = success(await self.opened(around, ledger=ledger, spilling=spilling, **options))
        assert isinstance(journal, LedgerJournal)
        return journal

    async def claim(self, run_id: str, fence: int) -> None:
        """The run exists, and its owner's fence is this."""
        ledger = await self.ledger()
        if success(await ledger.run(run_id)) is None:
            row = RunRow(id=run_id, workflow="w", fence=fence, created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
            _ = success(await ledger.commit(Batch((NoRun(run_id),), (InsertRun(row),))))
        else:
            _ = success(await ledger.commit(Batch((), (ChangeRun(run_id, {"fence": fence}),))))

    async def restart(self) -> None:
        """All that was opened ends; what was in memory stays there."""
        await self._scope.aclose()


def _given_artifacts(artifacts: Artifacts) -> Layer[Artifacts, Artifacts]:
    @provides
    def recipe() -> Iterator[Artifacts]:
        yield artifacts

    return recipe


@asynccontextmanager
async def open_world(host: Host, folder: Path) -> AsyncGenerator[World]:
    async with AsyncExitStack() as scope:
        yield World(host, folder / "app.db", scope)


# --- what tests ask ---------------------------------------------------------


async def entries(journal: Journal, run_id: str, after: int | None = None) -> list[Entry]:
    return list(success(await journal.entries(run_id, after=after)).entries)


async def payloads(journal: Journal, run_id: str, after: int | None = None) -> list[object]:
    return [entry.payload for entry in await entries(journal, run_id, after)]


async def first(following: AsyncIterator[Entry], count: int) -> list[Entry]:
    """The next so many entries."""
    return [await anext(following) for _ in range(count)]


def added(total: int, entry: Entry) -> int:
    assert isinstance(entry.payload, int)
    return total + entry.payload


SUM: Projection[int] = Projection(lambda: 0, added)


async def fill(journal: LedgerJournal, count: int, run_id: str = RUN) -> None:
    for number in range(count):
        _ = success(await journal.append(run_id, "t", number))


async def seqs(journal: LedgerJournal, run_id: str = RUN, after: int | None = None) -> list[int]:
    return [entry.seq for entry in await entries(journal, run_id, after)]
