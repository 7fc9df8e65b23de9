"""A batch: one durable change as one pure value, and the verdicts that it can meet.

A batch names what it expects and what it writes; it is committed whole or not at all. `core/judgement.py` has the rules
by which every host judges it. `a + b` joins two batches into one. A host writes in the order of `writes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .model import Conflict, ReceiptMismatch, Revision, StepId, StoreKey, StoreNotFound
from .run import RunColumns, RunRow
from .step import StepRow

__all__ = [
    "BATCH_BYTES",
    "AlreadyApplied",
    "Batch",
    "ChangeRun",
    "Commit",
    "Committed",
    "CreateStore",
    "DeleteStore",
    "Document",
    "Expectation",
    "Fenced",
    "InsertRun",
    "NoReceipt",
    "NoRun",
    "PatchStore",
    "Receipt",
    "Refusal",
    "RenewLeases",
    "RunFence",
    "StoreAbsent",
    "StoreAt",
    "Write",
    "WriteBase",
    "WriteReceipt",
    "WriteStep",
    "size_bytes",
]

BATCH_BYTES = 64 * 1024 * 1024
"""The most that one batch may write, in bytes of its documents, patches and values."""

# --- what is stored ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Receipt:
    """The record that a step's operation on a store was applied. It outlives the store.

    It names the revision that the operation left (for a deletion: the one that was deleted) and holds at most a small
    value as JSON, never the state.
    """

    key: StoreKey
    step: StepId
    kind: str
    revision: Revision
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed change of a store: the revision it made, and its patch as JSON."""

    revision: Revision
    patch: bytes


@dataclass(frozen=True, slots=True)
class Document:
    """A stored state: a whole JSON document, `base`, and the patches that lead from it to `revision`, in order.

    `seq` is the number under which the ledger keeps the change that made `revision`.
    """

    revision: Revision
    seq: int
    base: bytes
    patches: tuple[bytes, ...] = ()


# --- what a batch expects ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreAt:
    """The store's tip is `revision`. Otherwise `StoreNotFound` or `Conflict`."""

    key: StoreKey
    revision: Revision


@dataclass(frozen=True, slots=True)
class StoreAbsent:
    """There is no such store. Otherwise `Conflict`; `planned` is the revision that the batch would create."""

    key: StoreKey
    planned: Revision


@dataclass(frozen=True, slots=True)
class NoReceipt:
    """The step has not been applied to the store. Otherwise `AlreadyApplied`, or `ReceiptMismatch` for another kind."""

    key: StoreKey
    step: StepId
    kind: str


@dataclass(frozen=True, slots=True)
class RunFence:
    """The run stands at this fence. Otherwise `Fenced`."""

    run_id: str
    fence: int


@dataclass(frozen=True, slots=True)
class NoRun:
    """There is no run of that id. Otherwise `Fenced`."""

    run_id: str


Expectation: TypeAlias = StoreAt | StoreAbsent | NoReceipt | RunFence | NoRun

# --- what a batch writes ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateStore:
    """A new instance of a store: its first revision, with the whole state as a JSON document."""

    key: StoreKey
    revision: Revision
    document: bytes


@dataclass(frozen=True, slots=True)
class PatchStore:
    """The next revision of a store: the JSON patch from the revision before it."""

    key: StoreKey
    revision: Revision
    patch: bytes


@dataclass(frozen=True, slots=True)
class DeleteStore:
    """The end of the instance whose tip is `revision`. Its revisions and receipts stay."""

    key: StoreKey
    revision: Revision


@dataclass(frozen=True, slots=True)
class WriteBase:
    """The whole document beside the change `seq`, so that reading need not begin at the first revision."""

    seq: int
    document: bytes


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class InsertRun:
    row: RunRow


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """New values for some columns of a run."""

    run_id: str
    columns: RunColumns


@dataclass(frozen=True, slots=True)
class RenewLeases:
    """All runs of `owner` stay its own until this instant."""

    owner: str
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class WriteStep:
    """A step's row, in place of the one that its key may have."""

    row: StepRow


Write: TypeAlias = (
    CreateStore | PatchStore | DeleteStore | WriteBase | WriteReceipt | InsertRun | ChangeRun | RenewLeases | WriteStep
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What is expected and what is written, as one value; the empty batch expects and writes nothing."""

    expects: tuple[Expectation, ...] = ()
    writes: tuple[Write, ...] = ()

    def __add__(self, other: Batch) -> Batch:
        return Batch(self.expects + other.expects, self.writes + other.writes)


def size_bytes(batch: Batch) -> int:
    """How much the batch writes: its documents, patches and values, without the small columns beside them."""
    size = 0
    for write in batch.writes:
        match write:
            case PatchStore(patch=data) | CreateStore(document=data) | WriteBase(document=data):
                size += len(data)
            case WriteStep(row):
                size += len(row.value or b"")
            case WriteReceipt(receipt):
                size += len(receipt.value)
            case InsertRun(row):
                size += len(row.arguments) + len(row.outcome or b"")
            case ChangeRun(columns=columns):
                size += len(columns.get("outcome") or b"")
            case DeleteStore() | RenewLeases():
                pass
    return size


# --- verdicts ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    """All writes are durable. `revision` is the store revision written, `seqs` the numbers given to store changes."""

    revision: Revision | None = None
    seqs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The step was applied before, by the same kind of operation: its receipt. Nothing was written."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Fenced:
    """The run is not as the batch expects: another owner has it, it ended, or it exists already. Nothing is written."""

    run_id: str


Refusal: TypeAlias = Conflict | StoreNotFound | ReceiptMismatch | Fenced
