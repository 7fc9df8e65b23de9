"""How a ledger judges a batch: pure rules over what it holds.

Every host judges with `judge` or `judge_next`, inside the transaction that then writes. The order matters:

    1. the run's fence      an owner that has lost its run may learn nothing and write nothing; nor may who signals a
                            run that has ended, or speaks of a waiter that was registered again since
    2. the source           of an entry of the journal, which has another one already
    3. the receipt          a step that was applied stays applied, whatever became of the store since
    4. the store            missing, or at another revision than expected

Batches that are committed in one sequence may stand on one another: the second expects the revision that the first will
make. `judge_next` judges such a sequence, and a batch whose predecessor on the same store was refused is refused too.
"""

from __future__ import annotations

from typing import Final, Protocol

from .batch import (
    BATCH_BYTES,
    AlreadyApplied,
    Batch,
    ChangeRun,
    CreateStore,
    CutLog,
    DeleteStore,
    EraseStore,
    Fenced,
    ForgetRun,
    InsertRun,
    NoReceipt,
    NoRun,
    PassTurn,
    PatchStore,
    ReadSignal,
    Receipt,
    Refusal,
    RegisterWaiter,
    RemoveWaiter,
    RenewLeases,
    RunFence,
    RunOpen,
    SendSignal,
    StoreAbsent,
    StoreAt,
    SweepSignals,
    TrimRun,
    WaiterAt,
    WriteBase,
    WriteReceipt,
    WriteStep,
)
from .journal import Source
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
from .model import Conflict, ReceiptMismatch, Revision, StepId, StoreKey, StoreNotFound, TooLarge
from .outcome import Failure, Outcome, Success
from .provenance import CACHE_JOURNAL

__all__ = ["Tips", "check_writes", "judge", "judge_next", "stores_of"]


class Tips(Protocol):
    """What a ledger holds, as `judge` asks for it, inside the transaction that will write."""

    def tip(self, key: StoreKey) -> Revision | None: ...

    def receipt(self, key: StoreKey, step: StepId) -> Receipt | None: ...

    def fence(self, run_id: str) -> int | None:
        """The fence of a run, None where there is no such run."""
        ...

    def is_open(self, run_id: str) -> bool:
        """Whether there is such a run, and it has not ended."""
        ...

    def generation(self, key: StoreKey, step: StepId) -> int | None:
        """The generation at which the step's waiter on the store stands, None where there is none."""
        ...

    def source(self, run_id: str, source: Source) -> bytes | None:
        """The identity of the entry that the run's journal has of a source, None where it has none."""
        ...

    def journal(self, run_id: str) -> tuple[int, int | None]:
        """The generation and the floor of a run's journal; 0 and None where there is none."""
        ...

    def has_entry(self, run_id: str, seq: int) -> bool:
        """Whether the run's journal has the entry; not where it was compacted or rewound."""
        ...

    def has_checkpoint(self, run_id: str, seq: int) -> bool: ...

    def cache_changes(self) -> int:
        """How often the step cache was changed."""
        ...


def judge(batch: Batch, tips: Tips) -> Outcome[AlreadyApplied | None, Refusal]:
    """`Success(None)`: the batch may be written. The first broken expectation answers; see the module's text."""
    applied: Outcome[AlreadyApplied, ReceiptMismatch] | None = None
    refusal: Conflict | StoreNotFound | None = None
    source: SourceFree | None = None
    for expected in batch.expects:
        match expected:  # what is expected most often first, as in `size_bytes`
            case RunFence(run_id, fence):
                if tips.fence(run_id) != fence:
                    return Failure(Fenced(run_id))
            case StoreAt() | StoreAbsent():
                refusal = refusal or _judge_store(tips.tip(expected.key), expected)
            case NoReceipt():
                found = tips.receipt(expected.key, expected.step)
                if found is not None and applied is None:
                    applied = _judge_receipt(found, expected)
            case NoRun(run_id):
                if tips.fence(run_id) is not None:
                    return Failure(Fenced(run_id))
            case RunOpen(run_id):
                if not tips.is_open(run_id):
                    return Failure(Fenced(run_id))
            case WaiterAt():
                if tips.generation(expected.key, expected.step) != expected.generation:
                    return Failure(Fenced(expected.step.run_id))
            case JournalAt(run_id, generation, floor):
                if tips.journal(run_id) != (generation, floor):
                    return Failure(Fenced(run_id))
            case CacheAt(changes):
                if tips.cache_changes() != changes:
                    return Failure(Fenced(CACHE_JOURNAL))
            case SourceFree():
                source = expected if source is None and _is_taken(expected, tips) else source
    if source is not None:
        return Failure(Fenced(source.run_id, source.source))
    if applied is not None:
        return applied
    return _WRITE if refusal is None else Failure(refusal)


_WRITE: Final[Outcome[AlreadyApplied | None, Refusal]] = Success(None)


def judge_next(
    batch: Batch, size: int, tips: Tips, refused: set[StoreKey]
) -> Outcome[AlreadyApplied | None, Refusal | TooLarge]:
    """`judge` for one batch of a sequence, of which `size_bytes` is known.

    `refused` begins empty, and collects the stores on which one was refused.

    A revision is named by its version. Where another writer has made the version that a refused batch was to make, the
    next batch would find the name that it expects on a state that it was not planned on; so it is refused unread.
    """
    verdict: Outcome[AlreadyApplied | None, Refusal | TooLarge] = judge(batch, tips)
    if isinstance(verdict, Success) and verdict.unwrap() is None:
        unread = next((each for each in stores_of(batch) if each.key in refused), None) if refused else None
        if unread is not None:
            planned = unread.revision if isinstance(unread, StoreAt) else unread.planned
            verdict = Failure(Conflict(unread.key, expected=planned, actual=tips.tip(unread.key) or planned))
        elif size > BATCH_BYTES:
            verdict = Failure(TooLarge("a batch", size, BATCH_BYTES))
        else:
            return verdict
    refused.update(expected.key for expected in stores_of(batch))
    return verdict


def stores_of(batch: Batch) -> list[StoreAt | StoreAbsent]:
    """What the batch expects of stores."""
    return [expected for expected in batch.expects if isinstance(expected, StoreAt | StoreAbsent)]


def check_writes(batch: Batch, tips: Tips) -> None:
    """A ValueError if a write does not follow from what is held: a bug of whoever planned the batch.

    A host calls it for a batch that may be written, before the first write, so that none is left half written.
    """
    after: dict[StoreKey, Revision | None] = {}
    new_runs: set[str] = set()
    checkpoints: set[tuple[str, int]] = set()
    for write in batch.writes:
        match write:  # what is written most often first, as in `size_bytes`
            case WriteStep(row):
                _check_run(row.run_id, new_runs, tips)
            case Append():
                pass
            case PatchStore() | CreateStore() | DeleteStore():
                key, revision = write.key, write.revision
                tip = after[key] if after and key in after else tips.tip(key)
                if not _follows(write, tip):
                    raise ValueError(
                        f"{type(write).__name__} of {key} at {revision} does not follow from the tip {tip}"
                    )
                after[key] = None if isinstance(write, DeleteStore) else revision
            case WriteReceipt():
                receipt = write.receipt
                if tips.receipt(receipt.key, receipt.step) is not None:
                    raise ValueError(f"the receipt of {receipt.step} on {receipt.key} is written already")
            case InsertRun(row):
                if row.id in new_runs or tips.fence(row.id) is not None:
                    raise ValueError(f"there is a run {row.id!r} already")
                new_runs.add(row.id)
            case SendSignal(row):
                _check_run(row.run_id, new_runs, tips)
            case ChangeRun(run_id) | ReadSignal(run_id):
                _check_run(run_id, new_runs, tips)
            case EraseStore(key, upto=None):
                if (after[key] if key in after else tips.tip(key)) is not None:
                    raise ValueError(f"{key} exists: what is kept of it is erased once it is deleted")
            case TrimRun(run_id) | ForgetRun(run_id):
                if tips.fence(run_id) is not None and tips.is_open(run_id):
                    raise ValueError(f"the run {run_id!r} has not ended: it needs its rows")
            case WriteBase() | RenewLeases() | RegisterWaiter() | RemoveWaiter() | PassTurn():
                pass
            case CutLog() | EraseStore() | SweepSignals():
                pass
            case WriteCheckpoint(run_id, seq):
                if not tips.has_entry(run_id, seq):
                    raise ValueError(f"the journal of {run_id!r} has no entry {seq} for a checkpoint to be at")
                checkpoints.add((run_id, seq))
            case CompactJournal(run_id, seq):
                if (run_id, seq) not in checkpoints and not tips.has_checkpoint(run_id, seq):
                    raise ValueError(f"the journal of {run_id!r} has no checkpoint at {seq} to be compacted to")
            case RewindJournal(run_id, to_seq):
                if (floor := tips.journal(run_id)[1]) is not None and to_seq < floor:
                    raise ValueError(f"the journal of {run_id!r} begins at {floor} and cannot be rewound to {to_seq}")
            case ForgetJournal():
                pass
            case RecordRow() | EvictHead() | SetHead():
                pass


def _is_taken(expected: SourceFree, tips: Tips) -> bool:
    known = tips.source(expected.run_id, expected.source)
    return known is not None and known != expected.identity


def _judge_receipt(found: Receipt, expected: NoReceipt) -> Outcome[AlreadyApplied, ReceiptMismatch]:
    if found.kind == expected.kind:
        return Success(AlreadyApplied(found))
    return Failure(ReceiptMismatch(expected.step, recorded=found.kind, requested=expected.kind))


def _judge_store(tip: Revision | None, expected: StoreAt | StoreAbsent) -> Conflict | StoreNotFound | None:
    match expected:
        case StoreAt():
            if tip is None:
                return StoreNotFound(expected.key, expected.revision)
            return None if tip == expected.revision else Conflict(expected.key, expected.revision, actual=tip)
        case StoreAbsent(key, planned):
            return None if tip is None else Conflict(key, expected=planned, actual=tip)


def _follows(write: PatchStore | CreateStore | DeleteStore, tip: Revision | None) -> bool:
    match write:
        case PatchStore():
            made = write.revision
            return tip is not None and made.instance_id == tip.instance_id and made.version == tip.version + 1
        case CreateStore():
            return tip is None
        case DeleteStore(revision=last):
            return tip == last


def _check_run(run_id: str, new_runs: set[str], tips: Tips) -> None:
    if run_id not in new_runs and tips.fence(run_id) is None:
        raise ValueError(f"there is no run {run_id!r} to change")
