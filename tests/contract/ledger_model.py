"""A ledger as simple as it can be said: the whole history in lists, every question answered by looking through them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from stepwell.core.batch import (
    AlreadyApplied,
    Batch,
    ChangeRun,
    Commit,
    Committed,
    CreateStore,
    DeleteStore,
    Document,
    Fenced,
    InsertRun,
    NoReceipt,
    NoRun,
    PatchStore,
    Receipt,
    RenewLeases,
    RunFence,
    StoreAbsent,
    StoreAt,
    WriteBase,
    WriteReceipt,
    WriteStep,
)
from stepwell.core.model import Conflict, ReceiptMismatch, Revision, StepId, StoreKey, StoreNotFound
from stepwell.core.outcome import Failure, Success
from stepwell.core.run import RunRow
from stepwell.core.step import StepRow
from stepwell.services.ledger import DueRuns, Verdict

__all__ = ["LedgerModel"]


Change: TypeAlias = CreateStore | PatchStore | DeleteStore


@dataclass
class LedgerModel:
    """The changes of stores by their number, their place from 1; receipts, runs and steps in the order of writing."""

    changes: list[Change] = field(default_factory=list[Change])
    bases: dict[int, bytes] = field(default_factory=dict[int, bytes])
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    runs: list[RunRow] = field(default_factory=list[RunRow])
    steps: list[StepRow] = field(default_factory=list[StepRow])

    # --- questions ----------------------------------------------------------

    def tip(self, key: StoreKey) -> Revision | None:
        last = [change for change in self.changes if change.key == key][-1:]
        return None if not last or isinstance(last[0], DeleteStore) else last[0].revision

    def receipt(self, key: StoreKey, step: StepId) -> Receipt | None:
        return next((receipt for receipt in self.receipts if (receipt.key, receipt.step) == (key, step)), None)

    def run(self, run_id: str) -> RunRow | None:
        return next((row for row in self.runs if row.id == run_id), None)

    def steps_of(self, run_id: str) -> tuple[StepRow, ...]:
        rows = [row for row in self.steps if row.run_id == run_id]
        done = sorted((row for row in rows if row.position is not None), key=lambda row: (row.position or 0, row.key))
        return (*done, *sorted((row for row in rows if row.position is None), key=lambda row: row.key))

    def due(self, now_ms: int, dead: tuple[str, ...]) -> DueRuns:
        rows: list[RunRow] = []
        later: list[int] = []
        for row in self.runs:
            if row.state not in ("pending", "running", "waiting"):
                continue
            free_at = (row.wake_at_ms or 0) if row.owner is None else 0 if row.owner in dead else row.lease_until_ms
            if free_at <= now_ms:
                rows.append(row)
            else:
                later.append(free_at)
        rows.sort(key=lambda row: row.created_at_ms if row.wake_at_ms is None else row.wake_at_ms)
        return DueRuns(tuple(rows), min(later) if later else None)

    def tail(self, key: StoreKey, after: Revision) -> tuple[Commit, ...] | None:
        tip = self.tip(key)
        if tip is None or tip.instance_id != after.instance_id or self._number(key, after) is None:
            return None
        return tuple(
            Commit(change.revision, change.patch)
            for change in self.changes
            if isinstance(change, PatchStore)
            and change.key == key
            and change.revision.instance_id == tip.instance_id
            and change.revision.version > after.version
        )

    def document(self, key: StoreKey, at: Revision | None) -> Document | None:
        at = self.tip(key) if at is None else at
        number = None if at is None else self._number(key, at)
        if at is None or number is None:
            return None
        patches: list[bytes] = []
        for earlier in range(number, 0, -1):
            change = self.changes[earlier - 1]
            if change.key != key or change.revision.instance_id != at.instance_id:
                continue
            if earlier in self.bases:
                return Document(at, number, self.bases[earlier], tuple(reversed(patches)))
            if isinstance(change, PatchStore):
                patches.append(change.patch)
        return None

    def _number(self, key: StoreKey, revision: Revision) -> int | None:
        for number, change in enumerate(self.changes, 1):
            if not isinstance(change, DeleteStore) and (change.key, change.revision) == (key, revision):
                return number
        return None

    # --- commits ------------------------------------------------------------

    def commit(self, batch: Batch, refused: set[StoreKey]) -> Verdict:
        refusal = self._judge(batch, refused)
        if refusal is not None:
            refused |= {e.key for e in batch.expects if isinstance(e, StoreAt | StoreAbsent)}
            return refusal
        seqs: list[int] = []
        for write in batch.writes:
            self._write(write, seqs)
        revision = self.changes[seqs[-1] - 1].revision if seqs else None
        return Success(Committed(revision, tuple(seqs)))

    def _judge(self, batch: Batch, refused: set[StoreKey]) -> Verdict | None:
        stores = [e for e in batch.expects if isinstance(e, StoreAt | StoreAbsent)]
        for e in batch.expects:
            if isinstance(e, RunFence):
                row = self.run(e.run_id)
                if row is None or row.fence != e.fence:
                    return Failure(Fenced(e.run_id))
            if isinstance(e, NoRun) and self.run(e.run_id) is not None:
                return Failure(Fenced(e.run_id))
        for e in batch.expects:
            if isinstance(e, NoReceipt) and (receipt := self.receipt(e.key, e.step)) is not None:
                if receipt.kind == e.kind:
                    return Success(AlreadyApplied(receipt))
                return Failure(ReceiptMismatch(e.step, receipt.kind, e.kind))
        for e in stores:
            tip = self.tip(e.key)
            if isinstance(e, StoreAt) and tip is None:
                return Failure(StoreNotFound(e.key, e.revision))
            if isinstance(e, StoreAt) and tip is not None and tip != e.revision:
                return Failure(Conflict(e.key, e.revision, tip))
            if isinstance(e, StoreAbsent) and tip is not None:
                return Failure(Conflict(e.key, e.planned, tip))
        for e in stores:
            if e.key in refused:
                planned = e.revision if isinstance(e, StoreAt) else e.planned
                return Failure(Conflict(e.key, planned, self.tip(e.key) or planned))
        return None

    def _write(self, write: object, seqs: list[int]) -> None:
        match write:
            case CreateStore() | PatchStore() | DeleteStore():
                self.changes.append(write)
                seqs.append(len(self.changes))
                if isinstance(write, CreateStore):
                    self.bases[len(self.changes)] = write.document
            case WriteBase(seq, document):
                if 0 < seq <= len(self.changes) and not isinstance(self.changes[seq - 1], DeleteStore):
                    self.bases[seq] = document
            case WriteReceipt(receipt):
                self.receipts.append(receipt)
            case InsertRun(row):
                self.runs.append(row)
            case ChangeRun(run_id, columns):
                self.runs = [replace(row, **columns) if row.id == run_id else row for row in self.runs]
            case RenewLeases(owner, until):
                for row in list(self.runs):
                    if row.owner == owner and not row.ended:
                        self._write(ChangeRun(row.id, {"lease_until_ms": until}), seqs)
            case WriteStep(row):
                self.steps = [old for old in self.steps if (old.run_id, old.key) != (row.run_id, row.key)] + [row]
            case _:
                raise AssertionError(write)
