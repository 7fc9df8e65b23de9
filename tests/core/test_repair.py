"""Taking runs up again: which may be, how they stand then, and which recorded calls are set aside."""

from __future__ import annotations

from typing import get_args

import pytest

from stepwell.core.batch import BATCH_BYTES
from stepwell.core.repair import drop, may_resume, resume
from stepwell.core.run import RunRow, RunState
from stepwell.core.step import StepRow

STATES: tuple[RunState, ...] = get_args(RunState)


def run(state: RunState, *, cancel_requested: bool = False) -> RunRow:
    return RunRow(
        id="r",
        workflow="w",
        state=state,
        created_at_ms=0,
        updated_at_ms=0,
        fence=4,
        problem="broken",
        outcome=b"{}",
        crashes=2,
        cancel_requested=cancel_requested,
    )


def step(key: str, value: bytes = b"7") -> StepRow:
    return StepRow(
        run_id="r", key=key, kind="step", target="f", status="done", position=1, value=value, recorded_at_ms=0
    )


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_stuck_runs_may_be_resumed_and_failed_ones_be_reopened(state: RunState, reopen: bool) -> None:
    assert may_resume(run(state), reopen=reopen) is (state == "stuck" or (state == "failed" and reopen))


@pytest.mark.parametrize("state", ["stuck", "failed"])
def test_a_resumed_run_waits_as_if_nothing_had_gone_wrong(state: RunState) -> None:
    columns = resume(run(state), 9)
    assert columns == {
        "state": "waiting",
        "updated_at_ms": 9,
        "fence": 5,
        "problem": None,
        "outcome": None,
        "waiting_on": "an engine that drives its workflow",
        "cancel_requested": False,
        "crashes": 0,
    }


@pytest.mark.parametrize(("state", "stays"), [("stuck", True), ("failed", False)])
def test_a_cancellation_stays_asked_for_unless_the_run_has_ended_since(state: RunState, stays: bool) -> None:
    assert resume(run(state, cancel_requested=True), 9).get("cancel_requested") is stays


def test_keys_are_dropped_once_and_no_others() -> None:
    rows = [step("a"), step("b"), step("c")]
    assert [(row.key, row.status, row.value) for row in drop("r", rows, ["c", "a", "c"], 9)] == [
        ("c", "dropped", b"7"),
        ("a", "dropped", b"7"),
    ]
    assert drop("r", rows, [], 9) == ()


def test_an_unknown_key_is_named_with_those_that_there_are() -> None:
    rows = [step(f"k{n}") for n in range(25)]
    with pytest.raises(ValueError, match="run 'r' has recorded nothing under 'x', 'y'") as caught:
        _ = drop("r", rows, ["k1", "x", "y"], 9)
    assert "'k0', 'k1'" in str(caught.value)
    assert str(caught.value).endswith("'k19' and 5 more")
    with pytest.raises(ValueError, match=r"it has recorded nothing$"):
        _ = drop("r", [], ["x"], 9)


def test_what_dropped_calls_gave_is_kept_as_long_as_one_batch_can_hold_it() -> None:
    rows = [step(f"k{n}", bytes(BATCH_BYTES // 4)) for n in range(3)]
    assert [row.value is None for row in drop("r", rows, ["k0", "k1"], 9)] == [False, False]
    assert [row.value is None for row in drop("r", rows, ["k0", "k1", "k2"], 9)] == [True, True, True]
