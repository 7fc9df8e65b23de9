"""What a run's journal is told: by which write, with which facts, and nothing that may be secret."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import get_args

import pytest
from hypothesis import given
from msgspec import structs
from msgspec.json import decode

from stepwell.core import cancellation, lease, repair
from stepwell.core.batch import Batch, ChangeRun, InsertRun, ReadSignal, RemoveWaiter, RunFence, SendSignal, WriteStep
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.run import RunColumns, RunRow
from stepwell.core.run_events import RUN_EVENTS, Changed, RunEventType, is_written, run_entries
from stepwell.core.signal import SignalRow
from stepwell.core.step import StepRow, StepStatus

from .run_lives import FAILED, LIVES, NOW_MS, SECRET, Life

ORDERS = StoreKey("orders", "o-1")
RUN = RunRow(id="r", workflow="ship", fence=3, created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
STEP = StepRow(run_id="r", key="charge", kind="step", target="pay", status="done", recorded_at_ms=NOW_MS)
FENCE = RunFence("r", 3)


def told(
    *writes: WriteStep | ChangeRun | InsertRun | SendSignal | ReadSignal | RemoveWaiter,
) -> list[tuple[str, object]]:
    return [(entry.event_type, decode(entry.payload)) for entry in run_entries(Batch((FENCE,), writes))]


def changed(columns: RunColumns) -> list[tuple[str, object]]:
    return told(ChangeRun("r", columns))


def digest(value: bytes) -> str:
    return sha256(value).hexdigest()


# --- runs -----------------------------------------------------------------------


def test_a_start_tells_the_workflow_and_the_digest_of_its_arguments() -> None:
    row = replace(RUN, version="2", arguments=b'["hunter2"]', owner="host/1", state="running")
    facts = {"workflow": "ship", "version": "2", "arguments": digest(b'["hunter2"]'), "owner": "host/1", "fence": 3}
    assert told(InsertRun(row)) == [("stepwell.run-started", facts)]


def test_a_claim_tells_who_has_the_run_now_and_what_it_has_lost_before() -> None:
    assert changed(lease.claim(RUN, "host/1", NOW_MS, 0)) == [("stepwell.run-claimed", {"owner": "host/1", "fence": 4})]
    lost = replace(RUN, state="running", owner="host/1")
    facts = {"owner": "host/2", "fence": 4, "crashes": 1}
    assert changed(lease.claim(lost, "host/2", NOW_MS, 0)) == [("stepwell.run-claimed", facts)]


def test_a_run_that_lost_too_many_owners_is_told_to_be_stuck() -> None:
    lost = replace(RUN, state="running", owner="host/1", crashes=lease.CRASHES - 1)
    assert changed(lease.claim(lost, "host/2", NOW_MS, 0)) == [("stepwell.run-stuck", {"crashes": lease.CRASHES})]


def test_a_wait_tells_until_when_and_going_on_is_told_before_what_was_found() -> None:
    shown: RunColumns = {"state": "waiting", "updated_at_ms": NOW_MS, "waiting_on": "signal", "wake_at_ms": 5}
    assert changed(shown) == [("stepwell.run-waiting", {"at_ms": 5})]
    gone_on: RunColumns = {"state": "running", "updated_at_ms": NOW_MS, "waiting_on": None, "wake_at_ms": None}
    entries = told(WriteStep(STEP), RemoveWaiter(ORDERS, StepId("r", "charge")), ChangeRun("r", gone_on))
    assert [event_type for event_type, _ in entries] == ["stepwell.wake-scheduled", "stepwell.step-completed"]
    assert entries[0][1] == {}


@pytest.mark.parametrize(
    ("columns", "event_type", "facts"),
    [
        (
            lease.leave(replace(RUN, state="running"), "release", NOW_MS) | {"wake_at_ms": 7},
            "stepwell.run-released",
            {"at_ms": 7},
        ),
        (
            lease.leave(replace(RUN, state="running"), "complete", NOW_MS) | {"outcome": b'"hunter2"'},
            "stepwell.run-completed",
            {"result": digest(b'"hunter2"')},
        ),
        (
            lease.leave(replace(RUN, state="running"), "fail", NOW_MS) | {"outcome": FAILED},
            "stepwell.run-failed",
            {"error": "TimeoutError", "failure": "timed_out"},
        ),
        (lease.leave(replace(RUN, state="running"), "cancel", NOW_MS), "stepwell.run-cancelled", {}),
        (lease.leave(replace(RUN, state="running"), "stop", NOW_MS) | {"problem": SECRET}, "stepwell.run-stuck", {}),
        (repair.resume(replace(RUN, state="stuck"), NOW_MS), "stepwell.run-resumed", {}),
        (cancellation.request(replace(RUN, state="stuck"), NOW_MS), "stepwell.run-cancelled", {}),
        (cancellation.request(replace(RUN, state="running"), NOW_MS), "stepwell.run-cancel-requested", {}),
    ],
)
def test_what_becomes_of_a_run_is_one_entry(columns: RunColumns, event_type: str, facts: object) -> None:
    assert changed(columns) == [(event_type, facts)]


def test_to_cancel_a_run_is_told_once_for_each_owner() -> None:
    request = ChangeRun("r", cancellation.request(replace(RUN, state="running"), NOW_MS))
    first, again = run_entries(Batch((FENCE,), (request,))), run_entries(Batch((FENCE,), (request,)))
    assert first == again
    assert first[0].source is not None
    (later,) = run_entries(Batch((RunFence("r", 4),), (request,)))
    assert later.source not in (None, first[0].source)


def test_a_change_that_is_none_of_the_run_s_life_is_not_told() -> None:
    assert changed({"lease_until_ms": 5}) == []


# --- calls ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "event_type", "facts"),
    [
        (structs.replace(STEP, status="started", attempt=1), "stepwell.step-started", {"attempt": 1}),
        (structs.replace(STEP, status="waiting", at_ms=9), "stepwell.step-waiting", {"at_ms": 9}),
        (
            structs.replace(STEP, status="retrying", attempt=1, at_ms=9, value=FAILED),
            "stepwell.step-retrying",
            {"attempt": 1, "at_ms": 9, "error": "TimeoutError", "failure": "timed_out"},
        ),
        (
            structs.replace(STEP, attempt=2, position=4, value=b'"hunter2"'),
            "stepwell.step-completed",
            {"attempt": 2, "position": 4, "result": digest(b'"hunter2"')},
        ),
        (
            structs.replace(STEP, status="failed", attempt=3, position=4, value=FAILED),
            "stepwell.step-failed",
            {"attempt": 3, "position": 4, "error": "TimeoutError", "failure": "timed_out"},
        ),
        (structs.replace(STEP, status="cancelled", position=4), "stepwell.step-cancelled", {"position": 4}),
        (structs.replace(STEP, status="lost"), "stepwell.step-lost", {}),
        (structs.replace(STEP, status="dropped", value=b'"hunter2"'), "stepwell.step-dropped", {}),
    ],
)
def test_what_becomes_of_a_call_is_one_entry(row: StepRow, event_type: str, facts: dict[str, object]) -> None:
    assert told(WriteStep(row)) == [(event_type, {"key": "charge", "kind": "step", "target": "pay", **facts})]


@pytest.mark.parametrize("revision", [Revision("i-1", 5), None])
def test_a_call_that_changes_a_store_tells_the_key_and_the_revision_in_its_one_entry(revision: Revision | None) -> None:
    row = structs.replace(STEP, kind="store.update", target="orders/o-1", position=4, value=b"{}")
    (entry,) = run_entries(Batch((FENCE,), (WriteStep(row),)), Changed(ORDERS, revision))
    assert entry.event_type == "stepwell.store-changed"
    where = {} if revision is None else {"instance_id": "i-1", "version": 5}
    named = {"key": "charge", "kind": "store.update", "target": "orders/o-1", "position": 4, "result": digest(b"{}")}
    assert decode(entry.payload) == {**named, "store": "orders", "id": "o-1", **where}


def test_a_call_that_reads_a_signal_tells_that_in_its_one_entry() -> None:
    row = structs.replace(STEP, key="signal:news:1", kind="signal", target="news", position=4, value=b"{}")
    named = {"key": "signal:news:1", "kind": "signal", "target": "news", "position": 4, "result": digest(b"{}")}
    assert told(WriteStep(row), ReadSignal("r", 12, row.key)) == [("stepwell.signal-read", {**named, "signal": 12})]
    assert told(WriteStep(row)) == [("stepwell.step-completed", named)]  # it timed out, or has one again


# --- signals ----------------------------------------------------------------------


def test_a_signal_is_told_by_its_name_and_the_digest_of_its_value() -> None:
    sent = SendSignal(SignalRow("r", "news", b'"hunter2"'))
    assert told(sent) == [("stepwell.signal-sent", {"name": "news", "value": digest(b'"hunter2"')})]
    (entry,) = run_entries(Batch((), (sent,)))
    assert entry.source is None


def test_a_signal_that_has_a_dedupe_has_a_source_so_that_it_is_told_as_often_as_it_is_there() -> None:
    def source(name: str, dedupe: str, value: bytes = b"1") -> object:
        (entry,) = run_entries(Batch((), (SendSignal(SignalRow("r", name, value, dedupe)),)))
        return entry.source, entry.identity

    assert source("news", "a") == source("news", "a", b"2")
    assert len({source("news", "a"), source("news", "b"), source("new", "sa"), source("n", "1:a")}) == 4


# --- the set as a whole -------------------------------------------------------------


def test_every_type_is_explained() -> None:
    assert tuple(RUN_EVENTS) == get_args(RunEventType)
    assert all(text.endswith(".") for text in RUN_EVENTS.values())


@given(LIVES)
def test_whatever_happens_is_told_by_types_of_the_set_and_no_value_or_text_of_an_error_is(life: Life) -> None:
    for batch in life.batches:
        for entry in run_entries(batch):
            assert entry.event_type in RUN_EVENTS
            assert SECRET.encode() not in entry.payload
            assert SECRET not in str(entry.source)
            assert entry.meta is None


@given(LIVES)
def test_every_write_of_a_run_is_told_by_exactly_one_entry(life: Life) -> None:
    for batch in life.batches:
        of_runs = [write for write in batch.writes if not isinstance(write, ReadSignal)]
        assert len(run_entries(batch)) == len(of_runs)


# --- after an unclear commit ----------------------------------------------------------


def test_a_batch_was_committed_if_the_rows_of_its_calls_are_there() -> None:
    status: StepStatus = "waiting"
    row = structs.replace(STEP, position=4, value=b"1")
    batch = Batch((FENCE,), (WriteStep(row), ChangeRun("r", {"state": "running"})))
    assert is_written(batch, RUN, (structs.replace(STEP, key="other"), row))
    assert not is_written(batch, RUN, ())
    assert not is_written(batch, RUN, (structs.replace(row, status=status),))


def test_a_batch_without_calls_was_committed_if_the_run_is_as_it_says() -> None:
    batch = Batch((FENCE,), (ChangeRun("r", {"state": "waiting", "wake_at_ms": 5}),))
    assert is_written(batch, replace(RUN, state="waiting", wake_at_ms=5), ())
    assert not is_written(batch, replace(RUN, state="waiting", wake_at_ms=6), ())
    assert not is_written(batch, None, ())
