"""Asking a run to end, in every state that it can be in."""

from __future__ import annotations

from typing import get_args

import pytest

from stepwell.core.cancellation import ends_at_once, request
from stepwell.core.run import ENDED, RunRow, RunState

STATES: tuple[RunState, ...] = get_args(RunState)


def row(state: RunState, owner: str | None = None) -> RunRow:
    return RunRow(
        id="r",
        workflow="w",
        state=state,
        created_at_ms=1,
        updated_at_ms=1,
        owner=owner,
        fence=3,
        waiting_on="sleep 'nap'",
        wake_at_ms=9,
    )


@pytest.mark.parametrize("state", ["pending", "stuck"])
def test_a_run_of_which_nothing_is_under_way_ends_at_once(state: RunState) -> None:
    assert ends_at_once(row(state))
    columns = request(row(state), 5)
    assert (columns.get("state"), columns.get("updated_at_ms"), columns.get("waiting_on")) == ("cancelled", 5, None)
    assert columns.get("fence") == 4  # whoever has read it before can claim it no more


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_a_run_under_way_is_asked_and_keeps_its_owner_and_fence(state: RunState) -> None:
    assert not ends_at_once(row(state))
    assert request(row(state, owner="o"), 5) == {"updated_at_ms": 5, "cancel_requested": True}


def test_a_run_that_nobody_owns_is_due_at_once() -> None:
    assert request(row("waiting"), 5) == {"updated_at_ms": 5, "cancel_requested": True, "wake_at_ms": None}


@pytest.mark.parametrize("state", sorted(ENDED))
def test_a_run_that_has_ended_cannot_be_asked(state: RunState) -> None:
    assert state in STATES
    with pytest.raises(LookupError, match="cannot cancel"):
        _ = request(row(state), 5)
