"""Small batches and rows, for tests of ledgers."""

from __future__ import annotations

from stepwell.core.batch import (
    Batch,
    Committed,
    CreateStore,
    DeleteStore,
    InsertRun,
    NoReceipt,
    NoRun,
    PatchStore,
    Receipt,
    StoreAbsent,
    StoreAt,
    WriteReceipt,
)
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.run import RunRow
from stepwell.core.step import StepRow
from stepwell.services.ledger import Verdict

NOW_MS = 1_700_000_000_000
ORDER = StoreKey("orders", "o-1")
STEP = StepId("run-1", "charge")
RUN = RunRow(id="run-1", workflow="fulfil", created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
CHARGE = StepRow(run_id="run-1", key="charge", kind="step", target="app.charge", status="done", recorded_at_ms=NOW_MS)


def at(version: int, instance: str = "instance-1") -> Revision:
    return Revision(instance, version)


FIRST = at(0)


def create(key: StoreKey = ORDER, revision: Revision = FIRST, document: bytes = b'{"n":0}') -> Batch:
    return Batch((StoreAbsent(key, revision),), (CreateStore(key, revision, document),))


def patch(version: int, key: StoreKey = ORDER, instance: str = "instance-1") -> Batch:
    """The change that makes `version`."""
    before, after = at(version - 1, instance), at(version, instance)
    return Batch((StoreAt(key, before),), (PatchStore(key, after, b"[%d]" % version),))


def delete(version: int, key: StoreKey = ORDER, instance: str = "instance-1") -> Batch:
    return Batch((StoreAt(key, at(version, instance)),), (DeleteStore(key, at(version, instance)),))


def applied(revision: Revision, *, key: StoreKey = ORDER, step: StepId = STEP, kind: str = "update") -> Batch:
    """What a step adds to its batch: its receipt, to be written once."""
    return Batch((NoReceipt(key, step, kind),), (WriteReceipt(Receipt(key, step, kind, revision, b'"paid"')),))


def start(row: RunRow) -> Batch:
    return Batch((NoRun(row.id),), (InsertRun(row),))


def committed(verdict: Verdict) -> Committed:
    answer = verdict.unwrap()
    assert isinstance(answer, Committed)
    return answer
