"""A group of batches, decided purely: prefetch, decide, and then one host writes the rows.

    asked = Asked.of(batches)              what has to be known to judge them
    held = Held(...)                       filled by the host, inside its transaction
    verdicts, rows = decide(group, held)   a verdict each, and all rows to be written, table by table
    rows.waits, rows.signals               what becomes of waiters and signals: the host finds out, in the same
                                           transaction and in this order, when the rows are written (`waiting.py`)
    rows.journals                          what is written of journals and the step cache; `held.journals` looks up
                                           what that depends on (`held_journals.py`)

Every batch is judged on its own, on what is stored and what the batches before it in the group will have written; so a
refused one writes nothing, and the others need no savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ...core.batch import (
    AlreadyApplied,
    Batch,
    ChangeRun,
    Committed,
    CreateStore,
    CutLog,
    DeleteStore,
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
    WriteBase,
    WriteReceipt,
    WriteStep,
)
from ...core.journal_writes import (
    Append,
    CompactJournal,
    EvictHead,
    ForgetJournal,
    RecordRow,
    RewindJournal,
    SetHead,
    WriteCheckpoint,
)
from ...core.judgement import check_writes, judge_next
from ...core.model import Revision, StoreKey
from ...core.outcome import Success
from ...core.run import ENDED, RunColumns
from ...core.step import StepRow
from ...services.ledger import Verdict
from .held import Held, HeldRun, HeldStore
from .journal_changes import JournalChanges, Told
from .rows import Row, Value, run_row
from .schema import CREATED, DELETED, PATCHED
from .statements import INSERT_RUN, RENEW_LEASES, update_run

__all__ = ["Erasure", "Judged", "Removal", "Rows", "SignalWrite", "Wait", "WaitWrite", "decide"]

Judged: TypeAlias = tuple[Batch, int, set[StoreKey]]
"""A batch with its size, and the stores on which one before it in its own sequence was refused (see `judge_next`)."""

StoreWrite: TypeAlias = PatchStore | CreateStore | DeleteStore

WaitWrite: TypeAlias = PatchStore | DeleteStore | RegisterWaiter | RemoveWaiter | PassTurn
SignalWrite: TypeAlias = SendSignal | ReadSignal


@dataclass(frozen=True, slots=True)
class Wait:
    """A write that concerns waiters: of which batch of the group, on which store, and how that stood then.

    `generation` is that of a registration.
    """

    write: WaitWrite
    batch: int
    store: HeldStore
    tip: Revision | None
    last_seq: int | None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Erasure:
    """A store whose history ends, with its number, that of its last change, and that of the last one to go at most."""

    write: EraseStore
    sid: int
    last_seq: int
    upto: int


Removal: TypeAlias = CutLog | Erasure
"""Both are carried out in the order of the writes, after what the group adds to the history."""


class StoreRows(NamedTuple):
    """Rows of stores and of their heads: new ones, those with another instance, and the heads of those that were.

    New rows are inserted and never put over others: what has their number belongs to a store that was lost.
    """

    new: list[Row]
    new_heads: list[Row]
    changed: list[Row]
    heads: list[Row]


class Rows:
    """What a group writes, in the order of the statements' parameters; the changes of runs each with its statement."""

    __slots__ = (
        "at_ms",
        "bases",
        "journals",
        "later_bases",
        "log",
        "receipts",
        "removals",
        "runs",
        "signals",
        "spent",
        "steps",
        "touched",
        "waits",
    )

    def __init__(self, at_ms: int, journals: JournalChanges) -> None:
        self.at_ms = at_ms
        self.journals = journals
        self.touched: dict[StoreKey, HeldStore] = {}
        self.log: list[Row] = []
        self.bases: list[Row] = []
        self.later_bases: list[Row] = []
        self.receipts: list[Row] = []
        self.removals: list[Removal] = []
        self.spent: list[tuple[TrimRun | ForgetRun | SweepSignals, int]] = []  # with the number of the run
        self.runs: list[tuple[str, Row]] = []
        self.steps: list[Row] = []
        self.waits: list[Wait] = []
        self.signals: list[tuple[SignalWrite, int]] = []  # with the number of the run

    def __bool__(self) -> bool:
        written = self.touched or self.log or self.later_bases or self.receipts or self.runs or self.steps
        return bool(written or self.waits or self.signals or self.removals or self.spent or self.journals)

    def stores(self) -> StoreRows:
        """The rows of each store that the group touched, as it stands in the end."""
        rows = StoreRows([], [], [], [])
        for key, store in self.touched.items():
            instance, version = (None, 0) if store.tip is None else (store.tip.instance_id, store.tip.version)
            head = (version, store.last_seq, store.fno, store.sid)
            if not store.stored:
                rows.new.append((instance, store.sid, key.name, key.id))
                rows.new_heads.append(head)
            else:
                rows.heads.append(head)
                if instance != store.instance:
                    rows.changed.append((instance, store.sid))
            store.instance = instance
        return rows


def decide(group: Sequence[Judged], held: Held, at_ms: int) -> tuple[list[Verdict], Rows]:
    """The verdicts of a group's batches, in order, and what they write. A batch with a bug in it raises."""
    rows = Rows(at_ms, JournalChanges(held.journals, at_ms))
    writer = _Writer(held, rows)
    return [_decide_one(number, judged, held, writer) for number, judged in enumerate(group)], rows


def _decide_one(number: int, judged: Judged, held: Held, writer: _Writer) -> Verdict:
    batch, size, refused = judged
    verdict = judge_next(batch, size, held, refused)
    if not isinstance(verdict, Success):
        return verdict
    applied = verdict.unwrap()
    if isinstance(applied, AlreadyApplied):
        return Success(applied)
    check_writes(batch, held)
    return Success(writer.write(number, batch))


class _Writer:
    """Turns the writes of batches into rows, and keeps `held` as if they were stored."""

    def __init__(self, held: Held, rows: Rows) -> None:
        self._held = held
        self._rows = rows

    def write(self, number: int, batch: Batch) -> Committed:
        revision: Revision | None = None
        seqs: list[int] = []
        told = Told([], [], [])
        for write in batch.writes:
            match write:  # what is written most often first, as in `size_bytes`
                case WriteStep():
                    self._add_step(write.row)
                case Append():
                    self._rows.journals.write(write, told)
                case PatchStore() | CreateStore() | DeleteStore():
                    seqs.append(self._change_store(number, write))
                    revision = write.revision
                case WriteReceipt():
                    self._add_receipt(write.receipt)
                case ChangeRun(run_id, columns):
                    self._change_run(run_id, columns)
                case WriteBase(seq, document):
                    self._rows.later_bases.append((document, seq))
                case RenewLeases(owner, lease_until_ms):
                    self._rows.runs.append((RENEW_LEASES, (lease_until_ms, owner)))
                case InsertRun(row):
                    self._held.last_no += 1
                    self._held.runs[row.id] = HeldRun(self._held.last_no, row.fence, row.ended)
                    self._rows.runs.append((INSERT_RUN, (*run_row(row), self._held.last_no)))
                case RegisterWaiter() | RemoveWaiter() | PassTurn():
                    self._change_waiter(number, write)
                case SendSignal():
                    self._rows.signals.append((write, self._held.runs[write.row.run_id].no))
                case ReadSignal():
                    self._rows.signals.append((write, self._held.runs[write.run_id].no))
                case CutLog() | EraseStore():
                    self._remove(write)
                case TrimRun() | ForgetRun() | SweepSignals():
                    self._spend(write)
                case WriteCheckpoint() | CompactJournal() | RewindJournal() | ForgetJournal():
                    self._rows.journals.write(write, told)
                case RecordRow() | EvictHead() | SetHead():
                    self._rows.journals.write(write, told)
        found = (tuple(told.appended), tuple(told.recorded), tuple(told.evicted))
        return Committed(revision, tuple(seqs), (), *found)

    def _change_waiter(self, number: int, write: RegisterWaiter | RemoveWaiter | PassTurn) -> None:
        """Give a registration its generation, which others of the group may expect; the rest is found out later."""
        held, generation = self._held, 0
        store: HeldStore | None
        match write:
            case RegisterWaiter(waiter):
                held.generations[waiter.key, waiter.step] = generation = held.next_number()
                self._sid(waiter.key)
                store = held.store(waiter.key)
                store.waited = True
            case RemoveWaiter(key, step, only):
                if only is None or held.generation(key, step) == only:
                    held.generations.pop((key, step), None)
                store = held.stores.get(key)
            case PassTurn(key):
                store = held.stores.get(key)
        if store is not None:
            self._rows.waits.append(Wait(write, number, store, store.tip, store.last_seq, generation))

    def _change_store(self, number: int, write: StoreWrite) -> int:
        held, rows, revision = self._held, self._rows, write.revision
        store = self._touch(write.key)
        held.last_seq = seq = held.last_seq + 1
        place = (seq, store.sid, revision.version, store.last_seq)
        store.last_seq, store.tip = seq, revision
        match write:
            case PatchStore():
                if write.form is not None:
                    store.fno = held.form(write.key.name, write.form)
                rows.log.append((*place, None, PATCHED, rows.at_ms, write.patch, store.fno))
            case CreateStore():
                store.fno = None if write.form is None else held.form(write.key.name, write.form)
                rows.log.append((*place, revision.instance_id, CREATED, rows.at_ms, None, store.fno))
                rows.bases.append((seq, store.sid, revision.version, write.document))
            case DeleteStore():
                rows.log.append((*place, revision.instance_id, DELETED, rows.at_ms, None, store.fno))
                store.tip = store.fno = None
        if store.waited and not isinstance(write, CreateStore):
            rows.waits.append(Wait(write, number, store, store.tip, seq))
        return seq

    def _remove(self, write: CutLog | EraseStore) -> None:
        store = self._held.stores.get(write.key)
        if store is None:
            return
        if isinstance(write, EraseStore):
            last_seq = store.last_seq or 0
            upto = last_seq if write.upto is None else write.upto
            self._rows.removals.append(Erasure(write, store.sid, last_seq, upto))
            if store.tip is None and upto >= last_seq:
                self._touch(write.key).last_seq = None
            return
        if store.last_seq is None:
            return
        if write.above is None:
            if store.tip is not None or write.below is not None or write.seqs != (store.last_seq,):
                return
            self._touch(write.key).last_seq = None
        self._rows.removals.append(write)

    def _spend(self, write: TrimRun | ForgetRun | SweepSignals) -> None:
        run = None if isinstance(write, SweepSignals) else self._held.runs.get(write.run_id)
        if run is not None or isinstance(write, SweepSignals):
            self._rows.spent.append((write, 0 if run is None else run.no))
        if isinstance(write, ForgetRun) and run is not None:
            self._forget(write.run_id, run.no)

    def _forget(self, run_id: str, no: int) -> None:
        """Stored rows of the run go before anything is written, so what the group was going to write of it is not."""
        held, rows = self._held, self._rows
        del held.runs[run_id]
        held.receipts = {place: receipt for place, receipt in held.receipts.items() if place[1].run_id != run_id}
        rows.receipts = [row for row in rows.receipts if row[0] != run_id]
        rows.steps = [row for row in rows.steps if row[0] != no]
        rows.signals = [(write, of) for write, of in rows.signals if of != no]
        rows.runs = [(sql, values) for sql, values in rows.runs if values[-1] != no]

    def _touch(self, key: StoreKey) -> HeldStore:
        store = self._held.store(key)
        self._rows.touched[key] = store
        return store

    def _sid(self, key: StoreKey) -> int:
        """The store's number; a receipt or a pin may name one that never existed here, and then it gets a row."""
        store = self._held.store(key)
        return store.sid if store.stored else self._touch(key).sid

    def _add_receipt(self, receipt: Receipt) -> None:
        key, step, revision = receipt.key, receipt.step, receipt.revision
        self._held.receipts[key, step] = receipt
        self._rows.receipts.append(
            (
                step.run_id,
                step.key,
                self._sid(key),
                receipt.kind,
                revision.instance_id,
                revision.version,
                receipt.value,
            )
        )

    def _add_step(self, row: StepRow) -> None:
        pin = row.pin
        self._rows.steps.append(
            (
                self._held.runs[row.run_id].no,
                row.key,
                row.kind,
                row.target,
                row.status,
                row.attempt,
                row.position,
                row.at_ms,
                row.value,
                None if pin is None else self._sid(pin.key),
                None if pin is None else pin.revision.instance_id,
                None if pin is None else pin.revision.version,
                row.recorded_at_ms,
            )
        )

    def _change_run(self, run_id: str, columns: RunColumns) -> None:
        if not columns:
            return
        if unknown := columns.keys() - CHANGEABLE:
            raise ValueError(f"a run has no columns {sorted(unknown)} that can be changed")
        run = self._held.runs[run_id]
        run.fence = columns.get("fence", run.fence)
        if (state := columns.get("state")) is not None:
            run.ended = state in ENDED
        self._rows.runs.append((update_run(tuple(columns)), (*map(_value, columns.values()), run.no)))


def _value(value: object) -> Value:
    if isinstance(value, int | str | bytes | None):
        return int(value) if isinstance(value, bool) else value
    raise TypeError(f"{value!r} cannot be a column of a run")


CHANGEABLE: Final = RunColumns.__optional_keys__
"""Names of columns become text of SQL, so none but these."""
