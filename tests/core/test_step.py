"""What a durable call does, as a table over the row that its key has."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell.core.step import (
    DECISIONS,
    Decision,
    Mode,
    StepRow,
    StepStatus,
    decide_step,
    drop_step,
    mismatch,
    renamed,
)

STATUSES: tuple[StepStatus, ...] = get_args(StepStatus)
MODES: tuple[Mode, ...] = get_args(Mode)


def row(status: StepStatus = "done", kind: str = "step", target: str = "f") -> StepRow:
    return StepRow(run_id="r", key="k", kind=kind, target=target, status=status, recorded_at_ms=0)


def test_the_table_is_complete() -> None:
    assert set(DECISIONS) == {(status, mode) for status in (None, *STATUSES) for mode in MODES}
    assert set(DECISIONS.values()) == set(get_args(Decision))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("status", STATUSES)
def test_a_row_decides(status: StepStatus, mode: Mode) -> None:
    assert decide_step(row(status), mode) == DECISIONS[status, mode]
    assert decide_step(None, mode) == "perform"


@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_for_good_is_never_done_again(mode: Mode) -> None:
    assert {decide_step(row(status), mode) for status in ("done", "failed", "cancelled")} == {
        "answer",
        "raise",
        "cancel",
    }


def test_what_may_have_begun_is_executed_again_only_at_least_once() -> None:
    assert decide_step(row("started"), "at_most_once") == "unknown"
    assert decide_step(row("started"), "at_least_once") == "perform"
    assert decide_step(row("retrying"), "at_most_once") == "perform"


@given(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3), st.text(max_size=3))
def test_a_mismatch_shows_both_sides(kind: str, target: str, other_kind: str, other_target: str) -> None:
    problem = mismatch(row(kind=kind, target=target), other_kind, other_target)
    if (kind, target) == (other_kind, other_target):
        assert problem is None
    else:
        assert problem is not None
        assert "'k'" in problem
        assert f"{kind} {target}" in problem
        assert problem.endswith(f"{other_kind} {other_target}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("status", STATUSES)
def test_a_dropped_step_is_made_anew_and_keeps_what_it_gave(status: StepStatus, mode: Mode) -> None:
    recorded = replace(row(status), position=3, at_ms=5, attempt=2, value=b"7")
    dropped = drop_step(recorded, 9)
    assert decide_step(dropped, mode) == "perform"
    assert dropped == replace(recorded, status="dropped", position=None, at_ms=None, recorded_at_ms=9)


def test_a_renamed_step_shows_both_sides() -> None:
    text = renamed(row(target="charge"), "k2", "step", "charge")
    assert text == "step 'k' (step charge) was recorded and is not asked for; the code asks for 'k2' (step charge)"
    assert "'k' (sleep) was" in renamed(row(kind="sleep", target=""), "k2", "sleep", "")
