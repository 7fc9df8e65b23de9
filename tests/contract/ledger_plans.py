"""Random batches that make sense: what somebody means to do, turned into a batch when it is known what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import strategies as st

from stepwell.core.batch import (
    Batch,
    ChangeRun,
    CreateStore,
    DeleteStore,
    Expectation,
    InsertRun,
    NoReceipt,
    NoRun,
    PatchStore,
    Receipt,
    RenewLeases,
    RunFence,
    StoreAbsent,
    StoreAt,
    Write,
    WriteBase,
    WriteReceipt,
    WriteStep,
)
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.run import RunRow
from stepwell.core.step import Pin, StepRow

from .ledger_model import LedgerModel

__all__ = ["KEYS", "OWNERS", "RUNS", "STEPS", "Plan", "Planner", "programs"]

KEYS = (StoreKey("a", "1"), StoreKey("a", "2"), StoreKey("b", "1"))
RUNS = ("run-1", "run-2")
STEPS = ("s1", "s2")
OWNERS = ("host:1", "host:2")

keys = st.sampled_from(KEYS)
runs = st.sampled_from(RUNS)
owners = st.sampled_from(OWNERS)
instants = st.integers(0, 50)
rarely_beside = st.sampled_from([0, 0, 0, 0, 0, -1, 1])


@dataclass(frozen=True)
class ChangeStore:
    """Mostly of the tip, rarely of a version `beside` it; perhaps by a step."""

    kind: Literal["create", "patch", "delete"]
    key: StoreKey
    beside: int
    step: StepId | None


@dataclass(frozen=True)
class AddBase:
    """Beside the last change but `back`."""

    back: int
    document: bytes


@dataclass(frozen=True)
class Start:
    """`careful`: expecting that there is no such run."""

    run_id: str
    wake_at_ms: int | None
    careful: bool


@dataclass(frozen=True)
class Claim:
    """Under the run's fence, or rarely under one `beside` it."""

    run_id: str
    owner: str | None
    lease_until_ms: int
    cancel: bool
    beside: int


@dataclass(frozen=True)
class Record:
    run_id: str
    key: str
    position: int | None
    pin: StoreKey | None


@dataclass(frozen=True)
class Renew:
    owner: str
    until_ms: int


Plan: TypeAlias = ChangeStore | AddBase | Start | Claim | Record | Renew

plans: st.SearchStrategy[Plan] = st.one_of(
    st.builds(
        ChangeStore,
        st.sampled_from(["create", "patch", "patch", "patch", "delete"]),
        keys,
        rarely_beside,
        st.none() | st.builds(StepId, runs, st.sampled_from(STEPS)),
    ),
    st.builds(AddBase, st.integers(0, 3), st.binary(max_size=3)),
    st.builds(Start, runs, st.none() | instants, st.booleans()),
    st.builds(Claim, runs, st.none() | owners, instants, st.booleans(), rarely_beside),
    st.builds(Record, runs, st.sampled_from(STEPS), st.none() | st.integers(0, 3), st.none() | keys),
    st.builds(Renew, owners, instants),
)

programs = st.lists(st.lists(st.lists(plans, min_size=1, max_size=2), min_size=1, max_size=6), min_size=1, max_size=6)
"""Sequences of batches, each of one or two plans, one sequence after another."""


class Planner:
    """Makes batches of plans. None has a bug in it: bugs raise, and have their own tests."""

    def __init__(self, model: LedgerModel) -> None:
        self._model = model
        self._made = 0

    def batch(self, plans: list[Plan]) -> Batch:
        parts = [self._part(plan) for plan in plans]
        whole = sum(parts[1:], parts[0])
        changed = [write.key for write in whole.writes if isinstance(write, CreateStore | PatchStore | DeleteStore)]
        if len(set(changed)) < len(changed) or not self._runs_fit(whole):
            return parts[0] if self._runs_fit(parts[0]) else Batch(parts[0].expects)
        return whole

    def _runs_fit(self, batch: Batch) -> bool:
        careful = {expected.run_id for expected in batch.expects if isinstance(expected, NoRun)}
        started: set[str] = set()
        receipts: set[tuple[StoreKey, StepId]] = set()
        for write in batch.writes:
            match write:
                case InsertRun(row):
                    if row.id in started or (row.id not in careful and self._model.run(row.id) is not None):
                        return False
                    started.add(row.id)
                case WriteStep(StepRow(run_id=run_id)) | ChangeRun(run_id):
                    if self._model.run(run_id) is None:
                        return False
                case WriteReceipt(receipt):
                    if (receipt.key, receipt.step) in receipts:
                        return False
                    receipts.add((receipt.key, receipt.step))
                case _:
                    pass
        return True

    def _part(self, plan: Plan) -> Batch:
        self._made += 1
        match plan:
            case ChangeStore():
                return self._change(plan)
            case AddBase(back, document):
                return Batch((), (WriteBase(len(self._model.changes) - back, document),))
            case Start(run_id, wake_at_ms, careful):
                started = RunRow(
                    id=run_id, workflow="w", created_at_ms=self._made, updated_at_ms=0, wake_at_ms=wake_at_ms
                )
                return Batch((NoRun(run_id),) if careful else (), (InsertRun(started),))
            case Claim():
                return self._claim(plan)
            case Record():
                return self._record(plan)
            case Renew(owner, until_ms):
                return Batch((), (RenewLeases(owner, until_ms),))

    def _claim(self, plan: Claim) -> Batch:
        row = self._model.run(plan.run_id)
        fence = 0 if row is None else row.fence
        change = ChangeRun(
            plan.run_id,
            {
                "owner": plan.owner,
                "fence": fence + 1,
                "state": "running",
                "lease_until_ms": plan.lease_until_ms,
                "cancel_requested": plan.cancel,
            },
        )
        return Batch((RunFence(plan.run_id, fence + plan.beside),), (change,))

    def _record(self, plan: Record) -> Batch:
        row = StepRow(
            run_id=plan.run_id,
            key=plan.key,
            kind="step",
            target="f",
            status="done",
            position=plan.position,
            value=b"%d" % self._made,
            pin=None if plan.pin is None else Pin(plan.pin, Revision("pinned", self._made)),
            recorded_at_ms=self._made,
        )
        return Batch((), (WriteStep(row),))

    def _change(self, plan: ChangeStore) -> Batch:
        key = plan.key
        tip = self._model.tip(key) or Revision("none", 0)
        at = Revision(tip.instance_id, tip.version + plan.beside)
        expects: list[Expectation] = [StoreAt(key, at)]
        writes: list[Write]
        match plan.kind:
            case "create":
                at = Revision(f"instance-{self._made}", 0)
                expects = [StoreAbsent(key, at)]
                writes = [CreateStore(key, at, b"{%d}" % self._made)]
            case "patch":
                writes = [PatchStore(key, Revision(at.instance_id, at.version + 1), b"[%d]" % self._made)]
            case "delete":
                writes = [DeleteStore(key, at)]
        if plan.step is not None:
            expects.append(NoReceipt(key, plan.step, plan.kind))
            writes.append(WriteReceipt(Receipt(key, plan.step, plan.kind, at, b"%d" % self._made)))
        return Batch(tuple(expects), tuple(writes))
