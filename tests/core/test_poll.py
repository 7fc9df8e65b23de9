"""Polling: the pauses grow from quick to seldom, and never end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.poll import PollPolicy


def test_w15_the_pauses_of_the_default_policy() -> None:
    policy = PollPolicy()
    assert [policy.pause_ms(attempt) for attempt in (1, 2, 3, 100)] == [200, 300, 450, 30_000]
    assert policy.pause_ms(10**9) == 30_000  # no number of attempts exhausts it


@given(st.integers(1, 1_000), st.floats(1, 10, allow_nan=False), st.integers(1_000, 100_000), st.integers(1, 200))
def test_no_pause_is_shorter_than_the_one_before_or_longer_than_the_cap(
    initial_ms: int, factor: float, cap_ms: int, attempt: int
) -> None:
    policy = PollPolicy(initial_ms, factor, cap_ms)
    assert policy.pause_ms(1) == initial_ms
    assert policy.pause_ms(attempt) <= policy.pause_ms(attempt + 1) <= cap_ms


@pytest.mark.parametrize(
    ("initial_ms", "factor", "cap_ms"), [(0, 1.5, 100), (200, 1.5, 100), (200, 0.5, 300), (200, float("nan"), 300)]
)
def test_a_policy_that_would_spin_or_shrink_is_refused(initial_ms: int, factor: float, cap_ms: int) -> None:
    with pytest.raises(ValueError, match="poll"):
        PollPolicy(initial_ms, factor, cap_ms)


def test_attempts_are_counted_from_1() -> None:
    with pytest.raises(ValueError, match="from 1"):
        PollPolicy().pause_ms(0)
