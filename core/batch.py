"""A batch: one durable change as one pure value, and how a ledger judges it.

A batch names what it expects and what it writes; it is committed whole or not at all. Every host judges with the one
function `judge`, over what it has stored, inside the transaction that then writes. The order of judgement matters:

    1. the run's fence      an owner that has lost its run may learn nothing and write nothing
    2. the receipt          a step that was applied stays applied, whatever became of the store since
    3. the store            missing, or at another revision than expected

`a + b` joins two batches into one. A host writes in the order of `writes`.

Batches that are committed in one sequence may stand on one another: the second expects the revision that the first will
make. `judge_next` judges such a sequence, and a batch whose predecessor on the same store was refused is refused too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from .model import Conflict, ReceiptMismatch, Revision, StepId, StoreKey, StoreNotFound
from .outcome import Failure, Outcome, Success
from .run import RunColumns, RunRow
from .step import StepRow

__all__ = [
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
    "Tips",
    "Write",
    "WriteBase",
    "WriteReceipt",
    "WriteStep",
    "judge",
    "judge_next",
]

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
    """The end of an instance, at `revision`. Its revisions and receipts stay."""

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
    """The run is not as the batch expects: another owner has it, it ended, or it exists already. Nothing was written."""

    run_id: str


Refusal: TypeAlias = Conflict | StoreNotFound | ReceiptMismatch | Fenced


class Tips(Protocol):
    """What a ledger holds, as `judge` asks for it, inside the transaction that will write."""

    def tip(self, key: StoreKey) -> Revision | None: ...

    def receipt(self, key: StoreKey, step: StepId) -> Receipt | None: ...

    def fence(self, run_id: str) -> int | None:
        """The fence of a run, None where there is no such run."""
        ...


def judge(batch: Batch, tips: Tips) -> Outcome[AlreadyApplied | None, Refusal]:
    """`Success(None)`: the batch may be written. It is the first broken expectation that answers; see the module's text."""
    for expectation in batch.expects:
        match expectation:
            case RunFence(run_id, fence) if tips.fence(run_id) != fence:
                return Failure(Fenced(run_id))
            case NoRun(run_id) if tips.fence(run_id) is not None:
                return Failure(Fenced(run_id))
            case _:
                pass
    for expectation in batch.expects:
        if isinstance(expectation, NoReceipt):
            found = tips.receipt(expectation.key, expectation.step)
            if found is not None:
                return _judge_receipt(found, expectation)
    for expectation in batch.expects:
        if isinstance(expectation, StoreAt | StoreAbsent):
            refusal = _judge_store(tips.tip(expectation.key), expectation)
            if refusal is not None:
                return Failure(refusal)
    return Success(None)


def judge_next(batch: Batch, tips: Tips, refused: set[StoreKey]) -> Outcome[AlreadyApplied | None, Refusal]:
    """`judge` for one batch of a sequence; `refused` begins empty, and collects the stores on which one was refused.

    A revision is named by its version. Where another writer has made the version that a refused batch was to make, the
    next batch would find the name that it expects on a state that it was not planned on; so it is refused unread.
    """
    stores = [e for e in batch.expects if isinstance(e, StoreAt | StoreAbsent)]
    verdict = judge(batch, tips)
    if isinstance(verdict, Success) and verdict.unwrap() is None:
        for expected in stores:
            if expected.key in refused:
                planned = expected.revision if isinstance(expected, StoreAt) else expected.planned
                verdict = Failure(Conflict(expected.key, expected=planned, actual=tips.tip(expected.key) or planned))
                break
        else:
            return verdict
    refused.update(expected.key for expected in stores)
    return verdict


def _judge_receipt(found: Receipt, expected: NoReceipt) -> Outcome[AlreadyApplied, ReceiptMismatch]:
    if found.kind == expected.kind:
        return Success(AlreadyApplied(found))
    return Failure(ReceiptMismatch(expected.step, recorded=found.kind, requested=expected.kind))


def _judge_store(tip: Revision | None, expected: StoreAt | StoreAbsent) -> Conflict | StoreNotFound | None:
    match expected:
        case StoreAt(key, revision):
            if tip is None:
                return StoreNotFound(key, expected=revision)
            return None if tip == revision else Conflict(key, expected=revision, actual=tip)
        case StoreAbsent(key, planned):
            return None if tip is None else Conflict(key, expected=planned, actual=tip)
