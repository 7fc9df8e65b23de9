"""A batch: one durable change as one pure value, and the verdicts that it can meet.

A batch names what it expects and what it writes; it is committed whole or not at all. `core/judgement.py` has the rules
by which every host judges it. `a + b` joins two batches into one. A host writes in the order of `writes`.

The values are structs of msgspec: some ten of them are made for every change, and a frozen dataclass takes ten times as
long to make. None can hold itself, so none is tracked by the collector of cycles. A `match` that each of them passes
names the classes and reads the attributes: to capture these in the pattern takes twice the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from .journal import Appended, Source
from .journal_writes import (
    Append,
    CacheAt,
    CompactJournal,
    EvictHead,
    ForgetJournal,
    JournalAt,
    RecordRow,
    RewindJournal,
    SetHead,
    SourceFree,
    WriteCheckpoint,
)
from .model import Conflict, Paths, ReceiptMismatch, Revision, StepId, StoreKey, StoreNotFound
from .run import RunColumns, RunRow
from .signal import SignalRow
from .step import StepRow
from .step_cache import Recorded, RecordedRef
from .waiter import Registered, Waiter

__all__ = [
    "BATCH_BYTES",
    "AlreadyApplied",
    "Batch",
    "ChangeRun",
    "Commit",
    "Committed",
    "CreateStore",
    "CutLog",
    "DeleteStore",
    "Document",
    "EraseStore",
    "Expectation",
    "Fenced",
    "ForgetRun",
    "Form",
    "InsertRun",
    "NoReceipt",
    "NoRun",
    "PassTurn",
    "PatchStore",
    "ReadSignal",
    "Receipt",
    "Refusal",
    "RegisterWaiter",
    "RemoveWaiter",
    "RenewLeases",
    "RunFence",
    "RunOpen",
    "SendSignal",
    "StoreAbsent",
    "StoreAt",
    "SweepSignals",
    "TrimRun",
    "WaiterAt",
    "Write",
    "WriteBase",
    "WriteReceipt",
    "WriteStep",
    "size_bytes",
]

BATCH_BYTES = 64 * 1024 * 1024
"""The most that one batch may write, in bytes of its documents, patches and values."""

# --- what is stored ---------------------------------------------------------


class Receipt(Struct, frozen=True, gc=False):
    """The record that a step's operation on a store was applied. It outlives the store.

    It names the revision that the operation left (for a deletion: the one that was deleted) and holds at most a small
    value as JSON, never the state.
    """

    key: StoreKey
    step: StepId
    kind: str
    revision: Revision
    value: bytes = b""


class Form(Struct, frozen=True, gc=False):
    """The form of a store's type in which a document was written.

    It is the version that the store's definition names, and the fingerprint of its schema.
    """

    version: int
    fingerprint: str


class Commit(Struct, frozen=True, gc=False):
    """One committed change of a store: the revision it made, and its patch as JSON.

    `form` is the form of the document from this revision on; None is that of the revision before it.
    """

    revision: Revision
    patch: bytes
    form: Form | None = None


class Document(Struct, frozen=True, gc=False):
    """A stored state: a whole JSON document, `base`, and the patches that lead from it to `revision`, in order.

    `seq` is the number under which the ledger keeps the change that made `revision`. `form` is the form of the document
    at that revision; None if it was written before forms were kept.
    """

    revision: Revision
    seq: int
    base: bytes
    patches: tuple[bytes, ...] = ()
    form: Form | None = None


# --- what a batch expects ---------------------------------------------------


class StoreAt(Struct, frozen=True, gc=False):
    """The store's tip is `revision`. Otherwise `StoreNotFound` or `Conflict`."""

    key: StoreKey
    revision: Revision


class StoreAbsent(Struct, frozen=True, gc=False):
    """There is no such store. Otherwise `Conflict`; `planned` is the revision that the batch would create."""

    key: StoreKey
    planned: Revision


class NoReceipt(Struct, frozen=True, gc=False):
    """The step has not been applied to the store. Otherwise `AlreadyApplied`, or `ReceiptMismatch` for another kind."""

    key: StoreKey
    step: StepId
    kind: str


class RunFence(Struct, frozen=True, gc=False):
    """The run stands at this fence. Otherwise `Fenced`."""

    run_id: str
    fence: int


class NoRun(Struct, frozen=True, gc=False):
    """There is no run of that id. Otherwise `Fenced`."""

    run_id: str


class RunOpen(Struct, frozen=True, gc=False):
    """There is such a run, and it has not ended. Otherwise `Fenced`."""

    run_id: str


class WaiterAt(Struct, frozen=True, gc=False):
    """The step's waiter on the store stands at this generation. Otherwise `Fenced`, naming the step's run."""

    key: StoreKey
    step: StepId
    generation: int


Expectation: TypeAlias = (
    StoreAt | StoreAbsent | NoReceipt | RunFence | NoRun | RunOpen | WaiterAt | SourceFree | JournalAt | CacheAt
)

# --- what a batch writes ----------------------------------------------------


class CreateStore(Struct, frozen=True, gc=False):
    """A new instance of a store: its first revision, with the whole state as a JSON document.

    `form` is the form in which it is written; None says that it is not known.
    """

    key: StoreKey
    revision: Revision
    document: bytes
    form: Form | None = None


class PatchStore(Struct, frozen=True, gc=False):
    """The next revision of a store: the JSON patch from the revision before it, and the paths that it changed.

    Waiters whose read paths meet `changed` become due. The paths are not stored; None are those that the patch touches.
    `form` is the form of the document from this revision on; None is that of the revision before it.
    """

    key: StoreKey
    revision: Revision
    patch: bytes
    changed: Paths | None = None
    form: Form | None = None


class DeleteStore(Struct, frozen=True, gc=False):
    """The end of the instance whose tip is `revision`. Its revisions and receipts stay; its waiters become due."""

    key: StoreKey
    revision: Revision


class WriteBase(Struct, frozen=True, gc=False):
    """The whole document beside the change `seq`, so that reading need not begin at the first revision."""

    seq: int
    document: bytes


class WriteReceipt(Struct, frozen=True, gc=False):
    receipt: Receipt


class InsertRun(Struct, frozen=True, gc=False):
    row: RunRow


class ChangeRun(Struct, frozen=True, gc=False):
    """New values for some columns of a run."""

    run_id: str
    columns: RunColumns


class RenewLeases(Struct, frozen=True, gc=False):
    """All runs of `owner` stay its own until this instant."""

    owner: str
    lease_until_ms: int


class WriteStep(Struct, frozen=True, gc=False):
    """A step's row, in place of the one that its key may have."""

    row: StepRow


class RegisterWaiter(Struct, frozen=True, gc=False):
    """A waiter, in place of the one that its step may have on the store; the ledger gives it its generation.

    It is due at once if a commit after `seen` met its read paths, if the instance is gone, or if that cannot be known.
    """

    waiter: Waiter


class RemoveWaiter(Struct, frozen=True, gc=False):
    """The end of a step's waiter on a store, if there is one; with a generation, only if it stands at that."""

    key: StoreKey
    step: StepId
    generation: int | None = None


class PassTurn(Struct, frozen=True, gc=False):
    """This waiter of a queue, if it is due and has the turn, has it no longer; the next one that waits becomes due."""

    key: StoreKey
    step: StepId
    generation: int


class SendSignal(Struct, frozen=True, gc=False):
    """A signal to a run; the ledger numbers it. One whose `dedupe` was used for that run and name writes nothing."""

    row: SignalRow


class ReadSignal(Struct, frozen=True, gc=False):
    """A signal is read, by the step `key` of its run."""

    run_id: str
    no: int
    key: str


class CutLog(Struct, frozen=True, gc=False):
    """The end of a stretch of a store's history: consecutive changes, `seqs`, the newest first, with their bases.

    `above` is the change right above them, of the instance `instance_id`, which stays and then follows `below`, the one
    right below them; None is nothing. Nothing is written if the history no longer is like that, or if `above` is a
    patch that has no base of its own; and without `above`, if the store exists.
    """

    key: StoreKey
    above: int | None
    seqs: tuple[int, ...]
    below: int | None
    instance_id: str = ""


class EraseStore(Struct, frozen=True, gc=False):
    """The end of what is kept of a store: its history up to the change `upto`, and the values of these receipts.

    Without `upto` it is the whole history, of a store that does not exist. What was changed later stays, and so does
    the history if the newest change that would go is not the end of an instance. The receipts themselves stay, with an
    empty value; of one that names an instance of which changes are left, the value stays too. So it is with waiters:
    those of an instance of which nothing is left have read anything, since a path names keys of the state.
    """

    key: StoreKey
    receipts: tuple[StepId, ...] = ()
    upto: int | None = None


class TrimRun(Struct, frozen=True, gc=False):
    """The end of some of the rows that belong to an ended run: at most so many receipts, steps, and signals."""

    run_id: str
    rows: int


class ForgetRun(Struct, frozen=True, gc=False):
    """The end of an ended run, with its receipts, steps and unread signals: its id is free again."""

    run_id: str


class SweepSignals(Struct, frozen=True, gc=False):
    """The end of the signals numbered from `first` to `last` that were read by runs which are forgotten."""

    first: int
    last: int


Write: TypeAlias = (
    CreateStore
    | PatchStore
    | DeleteStore
    | WriteBase
    | WriteReceipt
    | InsertRun
    | ChangeRun
    | RenewLeases
    | WriteStep
    | RegisterWaiter
    | RemoveWaiter
    | PassTurn
    | SendSignal
    | ReadSignal
    | CutLog
    | EraseStore
    | TrimRun
    | ForgetRun
    | SweepSignals
    | Append
    | WriteCheckpoint
    | CompactJournal
    | RewindJournal
    | ForgetJournal
    | RecordRow
    | EvictHead
    | SetHead
)


class Batch(Struct, frozen=True, gc=False):
    """What is expected and what is written, as one value; the empty batch expects and writes nothing."""

    expects: tuple[Expectation, ...] = ()
    writes: tuple[Write, ...] = ()

    def __add__(self, other: Batch) -> Batch:
        return Batch(self.expects + other.expects, self.writes + other.writes)


def size_bytes(batch: Batch) -> int:
    """How much the batch writes: its documents, patches and values, without the small columns beside them."""
    size = 0
    for write in batch.writes:
        match write:  # what is written most often first: that a value is of no such class takes a while to find out
            case WriteStep(row):
                size += len(row.value or b"")
            case Append(entries=entries):
                size += sum([len(entry.payload) for entry in entries])
                size += sum([len(entry.meta) for entry in entries if entry.meta is not None])
            case PatchStore():
                size += len(write.patch)
            case WriteReceipt():
                size += len(write.receipt.value)
            case CreateStore() | WriteBase():
                size += len(write.document)
            case InsertRun(row):
                size += len(row.arguments) + len(row.outcome or b"")
            case ChangeRun(columns=columns):
                size += len(columns.get("outcome") or b"")
            case RegisterWaiter(waiter):
                size += sum(len(path) for path in waiter.read_paths) * PATH_SEGMENT_BYTES
            case SendSignal(row):
                size += len(row.value)
            case WriteCheckpoint(state=state):
                size += len(state)
            case CompactJournal() | RewindJournal():
                size += len(write.carried)
            case RecordRow(row):
                size += len(row.result) + len(row.meta)
            case EvictHead() | SetHead():
                size += HEAD_BYTES
            case ForgetJournal():
                pass
            case DeleteStore() | RenewLeases() | RemoveWaiter() | PassTurn() | ReadSignal():
                pass
            case CutLog() | EraseStore() | TrimRun() | ForgetRun() | SweepSignals():
                pass
    return size


PATH_SEGMENT_BYTES = 16
"""What a segment of a path is counted as."""

HEAD_BYTES = 256
"""What a change of a head is counted as."""


# --- verdicts ---------------------------------------------------------------


class Committed(Struct, frozen=True, gc=False):
    """All writes are durable. `revision` is the store revision written, `seqs` the numbers given to store changes.

    `registered` are the waiters that were registered, `appended` the numbers of the entries of its `Append`s,
    `recorded` what became of the rows of the step cache, and `evicted` the heads that went: each in the order of the
    writes.
    """

    revision: Revision | None = None
    seqs: tuple[int, ...] = ()
    registered: tuple[Registered, ...] = ()
    appended: tuple[Appended, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    evicted: tuple[RecordedRef | None, ...] = ()


class AlreadyApplied(Struct, frozen=True, gc=False):
    """The step was applied before, by the same kind of operation: its receipt. Nothing was written."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Fenced:
    """The run is not as the batch expects: another owner has it, it ended, it exists already, or its waiter is another.

    So it is with a journal that was compacted or rewound since, with the step cache, and with a `source` that has
    another entry. Nothing is written.
    """

    run_id: str
    source: Source | None = field(default=None, compare=False)


Refusal: TypeAlias = Conflict | StoreNotFound | ReceiptMismatch | Fenced
