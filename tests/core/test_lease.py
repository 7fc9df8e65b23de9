"""Who takes a run, until when, and when a run that loses its owners is stopped."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.lease import CRASHES, LEASE_MS, RENEW_MS, claim, hold
from stepwell.core.run import TRANSITIONS, RunColumns, RunRow, RunState

STATES: tuple[RunState, ...] = get_args(RunState)
CLAIMABLE = [state for state in STATES if (state, "claim") in TRANSITIONS]


def row(
    state: RunState = "running",
    owner: str | None = "a",
    *,
    fence: int = 1,
    crashes: int = 0,
    mark: int = 0,
) -> RunRow:
    return RunRow(
        id="r",
        workflow="w",
        state=state,
        owner=owner,
        fence=fence,
        crashes=crashes,
        mark=mark,
        created_at_ms=0,
        updated_at_ms=0,
        wake_at_ms=5,
        waiting_on="something",
        problem="old",
    )


def after(before: RunRow, columns: RunColumns) -> tuple[int, int]:
    return columns.get("crashes", before.crashes), columns.get("mark", before.mark)


def test_a_lease_is_renewed_in_time_though_two_renewals_fail() -> None:
    assert hold(7) == 7 + LEASE_MS
    assert 3 * RENEW_MS <= LEASE_MS


@given(
    st.sampled_from(CLAIMABLE),
    st.sampled_from(["a", None]),
    st.integers(0, 99),
    st.integers(0, 9),
    st.integers(0, 10**9),
)
def test_whoever_claims_a_run_raises_the_fence_and_holds_it(
    state: RunState, owner: str | None, fence: int, position: int, now_ms: int
) -> None:
    columns = claim(row(state, owner, fence=fence), "b", now_ms, position)
    assert columns.get("fence") == fence + 1
    assert columns.get("state") == "running"
    assert columns.get("owner") == "b"
    assert columns.get("lease_until_ms") == hold(now_ms)
    assert columns.get("updated_at_ms") == now_ms
    assert columns.get("mark") == position
    assert {"wake_at_ms", "waiting_on", "problem"} <= columns.keys()
    assert (columns.get("wake_at_ms"), columns.get("waiting_on"), columns.get("problem")) == (None, None, None)


@given(st.sampled_from(["pending", "waiting"]), st.integers(0, CRASHES - 1), st.integers(0, 9))
def test_only_an_owner_that_is_lost_while_it_executes_counts(state: RunState, crashes: int, position: int) -> None:
    for owner in ("a", None):
        columns = claim(row(state, owner, crashes=crashes, mark=position), "b", 0, position)
        assert columns.get("crashes") == crashes
    given_back = claim(row("running", None, crashes=crashes, mark=position), "b", 0, position)
    assert given_back.get("crashes") == crashes


@given(st.integers(0, CRASHES - 1), st.integers(0, 9), st.integers(0, 9))
def test_progress_begins_the_count_anew(crashes: int, mark: int, position: int) -> None:
    columns = claim(row(crashes=crashes, mark=mark), "b", 0, position)
    assert columns.get("crashes") == (crashes + 1 if position == mark else 1)


@given(st.lists(st.booleans(), max_size=12))
def test_a_run_is_stopped_after_so_many_losses_in_a_row(progress: list[bool]) -> None:
    current, position, in_a_row = row(), 0, 0
    for moved in progress:
        position += moved
        in_a_row = 1 if moved else in_a_row + 1
        columns = claim(current, "b", 0, position)
        if in_a_row >= CRASHES:
            assert columns.get("state") == "stuck"
            assert columns.get("owner") is None
            assert columns.get("lease_until_ms") == 0
            problem = columns.get("problem") or ""
            assert f"{in_a_row} times in a row" in problem
            assert "as a;" in problem
            assert "resume" in problem
            return
        assert columns.get("state") == "running"
        crashes, mark = after(current, columns)
        current = row(crashes=crashes, mark=mark)
