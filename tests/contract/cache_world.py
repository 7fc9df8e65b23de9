"""A step cache on each host, with a clock that stands still, and hands that reach behind the services."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar, cast

import apsw
import msgspec

from stepwell import Failure, Ledger, ManualClock, Outcome, StoreKey, Success, Unavailable, build, get
from stepwell.core.batch import Batch, Committed, InsertRun, Write
from stepwell.core.cache_fold import EVENT_TYPE
from stepwell.core.cache_verdict import Rebuilt
from stepwell.core.entry import EntryRow, NewEntry
from stepwell.core.journal import Entry
from stepwell.core.journal_writes import Append, CompactJournal, RewindJournal, SetHead, WriteCheckpoint
from stepwell.core.provenance import CACHE_JOURNAL, Action, Found, provenance_entry, read_carried, write_carried
from stepwell.core.recorded_row import HeadRow, StoredRow
from stepwell.core.retention import Retention
from stepwell.core.run import RunRow
from stepwell.core.step_cache import CacheEntry, RecordedRef
from stepwell.layers import clock
from stepwell.layers import journal as journals
from stepwell.layers import ledger as ledgers
from stepwell.layers.cache_fold import LedgerCacheFold
from stepwell.layers.journal import Compaction
from stepwell.layers.revisions import LedgerRevisions
from stepwell.layers.sql.opening import Durability
from stepwell.layers.step_cache import LedgerStepCache
from stepwell.services.journal import Journal
from stepwell.services.journal_rows import CacheRows, JournalRow, JournalRows
from stepwell.services.ledger import PinPage, Prunable, RunWeight, SignalPage, Verdict

from .journal_world import JournalDouble

_A = TypeVar("_A")
_E = TypeVar("_E")

Host: TypeAlias = Literal["memory", "sqlite"]
HOSTS: tuple[Host, ...] = ("memory", "sqlite")
NOW_MS = 10_000


class Rows(Ledger, CacheRows, JournalRows, Prunable, Protocol):
    """A ledger that keeps journals and a step cache, and from which history can be removed."""


class RowsDouble(JournalDouble):
    """Hands on what a ledger tells of the step cache and of history, too; a test replaces single calls."""

    def __init__(self, real: Rows) -> None:
        super().__init__(real)
        self.kept = real

    async def cache_changes(self) -> Outcome[int, Unavailable]:
        return await self.kept.cache_changes()

    async def provenance(self, *, after: int = 0, limit: int = 10_000) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return await self.kept.provenance(after=after, limit=limit)

    async def head(self, key_digest: str) -> Outcome[HeadRow | None, Unavailable]:
        return await self.kept.head(key_digest)

    async def heads(
        self, *, after: str = "", created_before_ms: int | None = None, limit: int = 10_000
    ) -> Outcome[tuple[HeadRow, ...], Unavailable]:
        return await self.kept.heads(after=after, created_before_ms=created_before_ms, limit=limit)

    async def recorded(self, ref: RecordedRef) -> Outcome[StoredRow | None, Unavailable]:
        return await self.kept.recorded(ref)

    async def in_force(self, key_digest: str) -> Outcome[StoredRow | None, Unavailable]:
        """By the two calls that a double may have its own answers to."""
        read = await self.head(key_digest)
        if isinstance(read, Failure):
            return read
        if (head := read.unwrap()) is None:
            return Success(None)
        found = await self.recorded(head.ref)
        return found if isinstance(found, Failure) else Success(found.unwrap() or StoredRow(head.ref, None))

    async def recorded_of(
        self, run_id: str, *, after: RecordedRef | None = None, limit: int = 1000
    ) -> Outcome[tuple[RecordedRef, ...], Unavailable]:
        return await self.kept.recorded_of(run_id, after=after, limit=limit)

    async def are_recorded(self, refs: Sequence[RecordedRef]) -> Outcome[frozenset[RecordedRef], Unavailable]:
        return await self.kept.are_recorded(refs)

    async def histories(
        self, *, after: StoreKey | None = None, limit: int = 100
    ) -> Outcome[tuple[StoreKey, ...], Unavailable]:
        return await self.kept.histories(after=after, limit=limit)

    async def pins(
        self, *, after: tuple[str | int, ...] | None = None, limit: int = 1000
    ) -> Outcome[PinPage, Unavailable]:
        return await self.kept.pins(after=after, limit=limit)

    async def run_weight(self, run_id: str) -> Outcome[RunWeight, Unavailable]:
        return await self.kept.run_weight(run_id)

    async def last_change(self) -> Outcome[int, Unavailable]:
        return await self.kept.last_change()

    async def stale_signals(self, *, after: int = 0, limit: int = 1000) -> Outcome[SignalPage, Unavailable]:
        return await self.kept.stale_signals(after=after, limit=limit)

    async def settle(self) -> Outcome[None, Unavailable]:
        return await self.kept.settle()


BROKEN = Unavailable("the cable was pulled out", "no")


class Failing(RowsDouble):
    """Does not answer the calls that are named; a batch is refused if one of its writes is of such a type."""

    def __init__(self, real: Rows, *calls: str, writes: tuple[type[Write], ...] = ()) -> None:
        super().__init__(real)
        self._calls = calls
        self._writes = writes

    async def commit(self, batch: Batch) -> Verdict:
        if any(isinstance(write, self._writes) for write in batch.writes):
            return Failure(BROKEN)
        return await super().commit(batch)

    async def journals(
        self, *, after: str | None = None, limit: int = 1000
    ) -> Outcome[tuple[JournalRow, ...], Unavailable]:
        return Failure(BROKEN) if "journals" in self._calls else await super().journals(after=after, limit=limit)

    async def provenance(self, *, after: int = 0, limit: int = 10_000) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return Failure(BROKEN) if "provenance" in self._calls else await super().provenance(after=after, limit=limit)

    async def recorded(self, ref: RecordedRef) -> Outcome[StoredRow | None, Unavailable]:
        return Failure(BROKEN) if "recorded" in self._calls else await super().recorded(ref)


class Damaging(RowsDouble):
    """Tells that the rows in `damaged` cannot be read."""

    def __init__(self, real: Rows) -> None:
        super().__init__(real)
        self.damaged: set[RecordedRef] = set()

    async def recorded(self, ref: RecordedRef) -> Outcome[StoredRow | None, Unavailable]:
        return Success(StoredRow(ref, None)) if ref in self.damaged else await super().recorded(ref)


class Between(RowsDouble):
    """Before each commit that expects something, `rival` is awaited."""

    def __init__(self, real: Rows, rival: Callable[[], AsyncGenerator[None, None]]) -> None:
        super().__init__(real)
        self._rival = rival()

    async def commit(self, batch: Batch) -> Verdict:
        if batch.expects:
            await anext(self._rival, None)
        return await super().commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        await anext(self._rival, None)
        return await super().commit_all(batches)


class Interrupting(RowsDouble):
    """Before each look at the journals, `rival` is awaited; the entries were read before."""

    def __init__(self, real: Rows, rival: Callable[[], AsyncGenerator[None, None]]) -> None:
        super().__init__(real)
        self._rival = rival()

    async def journals(
        self, *, after: str | None = None, limit: int = 1000
    ) -> Outcome[tuple[JournalRow, ...], Unavailable]:
        if after is None:
            await anext(self._rival, None)
        return await super().journals(after=after, limit=limit)


# --- the world ----------------------------------------------------------------


def good(outcome: Outcome[_A, _E]) -> _A:
    assert isinstance(outcome, Success), outcome
    return outcome.unwrap()


def row(key: str, run: str = "a", seq: int = 0) -> RecordedRef:
    return RecordedRef(key, run, seq)


def entry_of(ref: RecordedRef, result: object = "one", *, meta: dict[str, object] | None = None) -> CacheEntry:
    return CacheEntry(ref, result, {} if meta is None else meta, 0)


@dataclass
class World:
    host: Host
    ledger: Rows
    clock: ManualClock
    journal: Journal
    path: Path | None = None
    cache: LedgerStepCache = field(init=False)
    fold: LedgerCacheFold = field(init=False)

    def __post_init__(self) -> None:
        self.cache = LedgerStepCache(self.ledger, self.clock)
        self.fold = LedgerCacheFold(self.ledger)

    # --- doing ----------------------------------------------------------------

    async def commit(self, *writes: Write) -> Committed:
        committed = good(await self.ledger.commit(Batch((), writes)))
        assert isinstance(committed, Committed)
        return committed

    async def put(self, key: str, run: str = "a", seq: int = 0, result: object = "one") -> RecordedRef:
        """Put a row, whatever becomes of it."""
        ref = row(key, run, seq)
        _ = await self.cache.put(entry_of(ref, result))
        return ref

    async def say(self, run: str, action: Action, ref: RecordedRef, reason: str | None = None) -> None:
        _ = await self.commit(Append(run, (provenance_entry(action, ref, reason),)))

    async def tell(self, run: str, payload: object, event_type: str = EVENT_TYPE) -> None:
        _ = await self.commit(Append(run, (NewEntry(event_type, msgspec.json.encode(payload)),)))

    async def compact(self, run: str, seq: int, *, carries: bool = True) -> None:
        """Compact a journal to its entry `seq`; without `carries` as nobody does it."""
        carried = await self._carried(run, lambda entry: entry.seq < seq) if carries else b""
        _ = await self.commit(WriteCheckpoint(run, seq, b"{}"), CompactJournal(run, seq, carried))

    async def rewind(self, run: str, to_seq: int, *, carries: bool = True) -> None:
        carried = await self._carried(run, lambda entry: entry.seq > to_seq) if carries else b""
        _ = await self.commit(RewindJournal(run, to_seq, carried))

    async def _carried(self, run: str, goes: Callable[[EntryRow], bool]) -> bytes:
        journal = good(await self.ledger.journal(run))
        assert journal is not None
        gone = [entry for entry in await self.entries(run) if goes(entry)]
        return write_carried(Found.of(gone, read_carried(journal.carried)).carried())

    async def run(self, id: str) -> None:
        """A run that has ended."""
        now_ms = self.clock.now_ms()
        ended = RunRow(id=id, workflow="w", state="completed", created_at_ms=now_ms, updated_at_ms=now_ms)
        _ = await self.commit(InsertRun(ended))

    async def collected(self, ledger: Rows | None = None, *, dry_run: bool = False) -> int:
        """Forget the runs that have ended: how many were."""
        revisions = LedgerRevisions(ledger or self.ledger, self.clock)
        return good(await revisions.collect(Retention(keep_ended_runs_ms=0), dry_run=dry_run)).runs

    async def set_head(self, ref: RecordedRef | str) -> None:
        """Put a row in force, or none for a key, so that no journal says so: as raw SQL would."""
        key = ref if isinstance(ref, str) else ref.key_digest
        _ = await self.commit(SetHead(key, None if isinstance(ref, str) else ref))

    def execute(self, statement: str) -> None:
        """Raw SQL on the file."""
        assert self.path is not None
        # Not by sqlite3: another library in the process that closes the file drops the locks of the first one.
        with closing(apsw.Connection(str(self.path))) as db:
            _ = db.execute(statement).fetchall()

    # --- looking --------------------------------------------------------------

    async def entries(self, run: str) -> tuple[EntryRow, ...]:
        return good(await self.ledger.entries(run, limit=10_000)).entries

    async def said(self, run: str = CACHE_JOURNAL) -> list[tuple[str, str, str | None]]:
        """What a journal says of the cache: actions, keys and reasons."""
        payloads = [msgspec.json.decode(entry.payload) for entry in await self.entries(run)]
        return [(each["action"], each["key_digest"], each.get("reason")) for each in payloads]

    def payload(self, entry: EntryRow) -> object:
        return msgspec.json.decode(entry.payload)

    def as_entry(self, entry: EntryRow) -> Entry:
        """An entry as a journal hands it out."""
        return Entry(entry.run_id, entry.seq, entry.event_type, self.payload(entry), None, entry.at_ms, None)

    async def heads(self) -> dict[str, RecordedRef]:
        return {head.ref.key_digest: head.ref for head in good(await self.ledger.heads())}

    async def is_recorded(self, ref: RecordedRef) -> bool:
        return good(await self.ledger.recorded(ref)) is not None

    async def everything(self) -> tuple[object, ...]:
        """All that is stored, and the numbers that every change raises."""
        ledger = self.ledger
        runs = good(await ledger.journals())
        return (
            runs,
            [await self.entries(run.run_id) for run in runs],
            good(await ledger.heads()),
            good(await ledger.cache_changes()),
            good(await ledger.changes()),
        )

    async def rebuilt(self) -> Rebuilt:
        return good(await self.fold.rebuild())

    async def verdicts(self) -> dict[str, str]:
        """By key, from a rebuild."""
        return {each.key_digest: each.verdict for each in (await self.rebuilt()).keys}


def counts(rebuilt: Rebuilt) -> dict[str, int]:
    """The counters that are not 0."""
    names = ("runs", "compacted", "rewound", "admitted", "retired", "heads")
    values = {name: cast(int, getattr(rebuilt, name)) for name in names}
    return {name: value for name, value in values.items() if value}


@asynccontextmanager
async def opened(
    host: Host, path: Path, compaction: Compaction | None = None, *, durability: Durability = "full"
) -> AsyncGenerator[World, None]:
    ledger = ledgers.layer_test() if host == "memory" else ledgers.layer(path, durability)
    manual = ManualClock(NOW_MS)
    journal = journals.layer(compaction=compaction)
    async with build(ledger | clock.layer_test(manual) | journal) as built:
        env = built.unwrap()
        kept = get(env, Ledger)
        assert isinstance(kept, CacheRows)
        assert isinstance(kept, JournalRows)
        yield World(host, cast(Rows, kept), manual, get(env, Journal), None if host == "memory" else path)
