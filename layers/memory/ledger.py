"""The ledger in memory: the whole contract in dictionaries, and the shortest way to learn it.

It judges by the same function as the durable hosts and numbers its changes as they do. What it holds ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Final, final

from msgspec import structs

from ...core.batch import (
    AlreadyApplied,
    Batch,
    ChangeRun,
    Commit,
    Committed,
    CutLog,
    DeleteStore,
    Document,
    EraseStore,
    ForgetRun,
    InsertRun,
    PassTurn,
    PatchStore,
    ReadSignal,
    Receipt,
    RegisterWaiter,
    RemoveWaiter,
    RenewLeases,
    SendSignal,
    SweepSignals,
    TrimRun,
    Write,
    WriteBase,
    WriteReceipt,
    WriteStep,
    size_bytes,
)
from ...core.journal import Source
from ...core.judgement import check_writes, judge_next
from ...core.model import Revision, StepId, StoreKey, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.retention import StoredChange
from ...core.run import RunRow, RunState
from ...core.signal import SignalRow
from ...core.step import StepRow
from ...core.waiter import Registered, Waiter, WaiterRow, Wake, touched_by
from ...services.clock import Clock
from ...services.ledger import DueRuns, News, PinPage, RunWeight, SignalPage, StoredPin, StoreTip, Verdict
from ..listeners import Listeners
from .history import History, StoreWrite
from .journal_reading import CLOSED, JournalReading
from .journals import Journals, JournalWrite, JournalWrites
from .waiting import Waiting

__all__ = ["MemoryLedger"]

CLAIMABLE: Final[frozenset[RunState]] = frozenset({"pending", "running", "waiting"})


@dataclass(slots=True)
class _Tables:
    """All that is held, as `judge` asks for it."""

    history: History = field(default_factory=History)
    receipts: dict[tuple[StoreKey, StepId], Receipt] = field(default_factory=dict[tuple[StoreKey, StepId], Receipt])
    runs: dict[str, RunRow] = field(default_factory=dict[str, RunRow])  # in the order of their start
    steps: dict[str, dict[str, StepRow]] = field(default_factory=dict[str, dict[str, StepRow]])
    waiting: Waiting = field(default_factory=Waiting)
    journals: Journals = field(default_factory=Journals)
    last_no: int = 0

    def tip(self, key: StoreKey) -> Revision | None:
        return self.history.tip(key)

    def receipt(self, key: StoreKey, step: StepId) -> Receipt | None:
        return self.receipts.get((key, step))

    def fence(self, run_id: str) -> int | None:
        row = self.runs.get(run_id)
        return None if row is None else row.fence

    def is_open(self, run_id: str) -> bool:
        row = self.runs.get(run_id)
        return row is not None and not row.ended

    def generation(self, key: StoreKey, step: StepId) -> int | None:
        return self.waiting.generation(key, step)

    def source(self, run_id: str, source: Source) -> bytes | None:
        return self.journals.identity(run_id, source)

    def journal(self, run_id: str) -> tuple[int, int | None]:
        return self.journals.place(run_id)

    def has_entry(self, run_id: str, seq: int) -> bool:
        return self.journals.has_entry(run_id, seq)

    def has_checkpoint(self, run_id: str, seq: int) -> bool:
        return self.journals.has_checkpoint(run_id, seq)

    def cache_changes(self) -> int:
        return self.journals.changes

    def erase(self, write: EraseStore) -> None:
        """As `EraseStore` says."""
        self.history.erase(write.key, write.upto)
        for step in write.receipts:
            applied = self.receipt(write.key, step)
            if applied is not None and not self.history.has(write.key, applied.revision.instance_id):
                self.receipts[write.key, step] = structs.replace(applied, value=b"")
        self.waiting.erase(write.key, partial(self.history.has, write.key))

    def trim(self, run_id: str, most: int | None) -> None:
        """Remove so many receipts, steps and unread signals of a run, or all."""
        for owned in [owned for owned in self.receipts if owned[1].run_id == run_id][:most]:
            del self.receipts[owned]
        steps = self.steps.get(run_id, {})
        for key in sorted(steps)[:most]:
            del steps[key]
        self.waiting.forget_signals(run_id, most)


@final
class MemoryLedger(JournalReading):
    """A ledger whose commits are steps of the event loop: each whole, in the order in which they were called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables = _Tables()
        self._commits = 0
        self._listeners = Listeners()
        self._closed = False

    @property
    def kept(self) -> Journals:
        return self._tables.journals

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Every later call answers `Unavailable`."""
        self._closed = True

    async def commit(self, batch: Batch) -> Verdict:
        (verdict,) = await self.commit_all((batch,))
        return verdict

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        if self._closed:
            return tuple(Failure(CLOSED) for _ in batches)
        try:
            await asyncio.sleep(0)  # as on every host, others commit between the plan and its judgement
        finally:  # a caller that is cancelled here withdraws nothing
            refused: set[StoreKey] = set()
            commits, owed = self._commits, self._tables.waiting.last_owed
            try:
                verdicts = tuple(self._judge_and_write(batch, refused) for batch in batches)
            finally:
                if self._commits > commits:
                    self._listeners.tell("wake" if self._tables.waiting.last_owed > owed else "commit")
        return verdicts

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.receipt(key, step))

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.tip(key))

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.history.tail(key, after))

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.history.document(key, at))

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.history.revisions(key, limit, before, patches))

    async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.history.tips(name))

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.runs.get(run_id))

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | int | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunRow, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        rows = list(self._tables.runs.values())
        if newest_first:
            rows.reverse()
        if isinstance(after, str):
            found = self._tables.runs.get(after)
            if found is None:
                return Success(())
            after = found.no
        if after is not None:
            rows = [row for row in rows if (row.no < after if newest_first else row.no > after)]
        chosen = [row for row in rows if state in (None, row.state) and workflow in (None, row.workflow)]
        return Success(tuple(chosen[:limit]))

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        rows = self._tables.steps.get(run_id, {}).values()
        return Success(tuple(sorted(rows, key=lambda row: (row.position is None, row.position or 0, row.key))))

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        claimable = [row for row in self._tables.runs.values() if row.workflow in workflows and row.state in CLAIMABLE]
        free_at = {row.id: _free_at_ms(row, dead) for row in claimable}
        rows = [row for row in claimable if free_at[row.id] <= now_ms]
        rows.sort(key=lambda row: row.created_at_ms if row.wake_at_ms is None else row.wake_at_ms)
        later = [int(at_ms) for at_ms in free_at.values() if at_ms > now_ms]
        return Success(DueRuns(tuple(rows[:limit]), min(later, default=None)))

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        owners = {row.owner for row in self._tables.runs.values() if row.owner is not None and not row.ended}
        return Success(tuple(sorted(owners)))

    async def cancel_requests(self, owner: str) -> Outcome[tuple[str, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        rows = self._tables.runs.values()
        return Success(
            tuple(sorted(row.id for row in rows if row.owner == owner and row.cancel_requested and not row.ended))
        )

    async def changes(self) -> Outcome[int, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._commits)

    async def waiters(
        self, *, key: StoreKey | None = None, run_id: str | None = None
    ) -> Outcome[tuple[WaiterRow, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.waiting.waiters(key, run_id))

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.waiting.wakes(after, self._tables.is_open))

    async def signals(self, run_id: str, name: str | None = None) -> Outcome[tuple[SignalRow, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        return Success(self._tables.waiting.signals(run_id, name))

    # --- what retention asks ------------------------------------------------

    async def histories(
        self, *, after: StoreKey | None = None, limit: int = 100
    ) -> Outcome[tuple[StoreKey, ...], Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        place = None if after is None else (after.name, after.id)
        later = [key for key in self._tables.history.keys if place is None or (key.name, key.id) > place]
        return Success(tuple(later[:limit]))

    async def pins(
        self, *, after: tuple[str | int, ...] | None = None, limit: int = 1000
    ) -> Outcome[PinPage, Unavailable]:
        """As promised, but all at once."""
        if self._closed:
            return Failure(CLOSED)
        receipts = self._tables.receipts.values()
        pins = [StoredPin(each.key, each.revision, each.step, len(each.value)) for each in receipts]
        steps = [row for rows in self._tables.steps.values() for row in rows.values()]
        pins += [
            StoredPin(row.pin.key, row.pin.revision, StepId(row.run_id, row.key))
            for row in steps
            if row.pin is not None
        ]
        return Success(PinPage(tuple(pins), None))

    async def run_weight(self, run_id: str) -> Outcome[RunWeight, Unavailable]:
        if self._closed:
            return Failure(CLOSED)
        steps = self._tables.steps.get(run_id, {}).values()
        receipts = [step for _, step in self._tables.receipts if step.run_id == run_id]
        if run_id not in self._tables.runs:
            return Success(RunWeight(0, 0))
        return Success(RunWeight(max(len(steps), len(receipts)), sum(len(row.value or b"") for row in steps)))

    async def last_change(self) -> Outcome[int, Unavailable]:
        return Failure(CLOSED) if self._closed else Success(self._tables.history.last_seq)

    async def stale_signals(self, *, after: int = 0, limit: int = 1000) -> Outcome[SignalPage, Unavailable]:
        """None: what is read is not kept here."""
        return Failure(CLOSED) if self._closed else Success(SignalPage((), None))

    async def settle(self) -> Outcome[None, Unavailable]:
        return Failure(CLOSED) if self._closed else Success(None)

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        """As promised; nobody else commits to this ledger, so there is no news from elsewhere."""
        return self._listeners.add(listener)

    # --- one batch ----------------------------------------------------------

    def _judge_and_write(self, batch: Batch, refused: set[StoreKey]) -> Verdict:
        judged = judge_next(batch, size_bytes(batch), self._tables, refused)
        if isinstance(judged, Failure):
            return judged
        applied = judged.unwrap()
        if isinstance(applied, AlreadyApplied):
            return Success(applied)
        check_writes(batch, self._tables)
        revision: Revision | None = None
        seqs: list[int] = []
        registered: list[Registered] = []
        written = JournalWrites(self._tables.journals, self._clock.now_ms())
        for write in batch.writes:
            if isinstance(write, JournalWrite):
                written.write(write)
            elif isinstance(write, StoreWrite):
                seqs.append(self._change_store(write))
                revision = write.revision
            elif isinstance(write, RegisterWaiter):
                registered.append(self._register(write.waiter))
            else:
                self._write(write)
        self._commits += bool(batch.writes)
        found = (tuple(written.appended), tuple(written.recorded), tuple(written.evicted))
        return Success(Committed(revision, tuple(seqs), tuple(registered), *found))

    def _change_store(self, write: StoreWrite) -> int:
        seq = self._tables.history.change(write, self._clock.now_ms())
        if isinstance(write, PatchStore):
            changed = write.changed
            self._tables.waiting.meet(write.key, lambda: touched_by(write.patch) if changed is None else changed)
        elif isinstance(write, DeleteStore):
            self._tables.waiting.end(write.key)
        return seq

    def _register(self, waiter: Waiter) -> Registered:
        tables = self._tables
        return tables.waiting.register(
            waiter,
            tables.tip(waiter.key),
            lambda seen: tables.history.tail(waiter.key, seen),
            self._clock.now_ms(),
        )

    def _write(self, write: Write) -> None:
        assert not isinstance(write, JournalWrite | StoreWrite | RegisterWaiter)  # these have an answer
        tables = self._tables
        match write:
            case WriteBase(seq, document):
                tables.history.add_base(seq, document)
            case WriteReceipt(receipt):
                tables.receipts[receipt.key, receipt.step] = receipt
            case InsertRun(row):
                tables.last_no += 1
                tables.runs[row.id] = replace(row, no=tables.last_no)
            case ChangeRun(run_id, columns):
                tables.runs[run_id] = replace(tables.runs[run_id], **columns)
            case RenewLeases(owner, lease_until_ms):
                for row in list(tables.runs.values()):
                    if row.owner == owner and not row.ended:
                        tables.runs[row.id] = replace(row, lease_until_ms=lease_until_ms)
            case WriteStep(row):
                tables.steps.setdefault(row.run_id, {})[row.key] = row
            case RemoveWaiter():
                tables.waiting.remove(write.key, write.step, write.generation)
            case PassTurn():
                tables.waiting.pass_turn(write.key, write.step, write.generation)
            case SendSignal(row):
                tables.waiting.send(row)
            case ReadSignal(run_id, no):
                tables.waiting.read(run_id, no)
            case CutLog():
                tables.history.cut(write)
            case EraseStore():
                tables.erase(write)
            case TrimRun(run_id, rows):
                tables.trim(run_id, rows)
            case ForgetRun(run_id):
                tables.trim(run_id, None)
                tables.runs.pop(run_id, None)
            case SweepSignals():
                pass  # what is read is not kept here


def _free_at_ms(row: RunRow, dead: Sequence[str]) -> float:
    """From when on the run may be claimed."""
    if row.owner is None:
        return -inf if row.wake_at_ms is None else row.wake_at_ms
    return -inf if row.owner in dead else row.lease_until_ms
