"""When what does not answer is left alone, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.breaker import CLOSED, Breaker, BreakerRule, admit_call, after_failure

RULE = BreakerRule(failures=3, first_ms=1_000, longest_ms=8_000)
TRIAL_MS = 500


def failed(breaker: Breaker, times: int, now_ms: int = 0) -> Breaker:
    for _ in range(times):
        breaker = after_failure(breaker, RULE, now_ms)
    return breaker


def test_so_many_failures_in_a_row_begin_a_pause() -> None:
    assert admit_call(failed(CLOSED, 2), RULE, 0, TRIAL_MS) == failed(CLOSED, 2)
    opened = failed(CLOSED, 3)
    assert opened.until_ms == 1_000
    assert admit_call(opened, RULE, 999, TRIAL_MS) is None
    assert admit_call(opened, RULE, 1_000, TRIAL_MS) is not None


def test_calls_that_were_under_way_do_not_lengthen_the_pause() -> None:
    assert failed(CLOSED, 20) == failed(CLOSED, 3)


def test_after_a_pause_one_call_tries_and_the_next_pause_is_twice_as_long() -> None:
    breaker, now_ms = failed(CLOSED, 3), 1_000
    for pause_ms in (2_000, 4_000, 8_000, 8_000):
        trying = admit_call(breaker, RULE, now_ms, TRIAL_MS)
        assert trying is not None
        assert admit_call(trying, RULE, now_ms, TRIAL_MS) is None
        breaker = after_failure(trying, RULE, now_ms)
        assert breaker.until_ms == now_ms + pause_ms
        now_ms += pause_ms


def test_a_call_that_tried_and_was_cancelled_does_not_stand_in_the_way_for_ever() -> None:
    trying = admit_call(failed(CLOSED, 3), RULE, 1_000, TRIAL_MS)
    assert trying is not None
    assert admit_call(trying, RULE, 1_000 + TRIAL_MS - 1, TRIAL_MS) is None
    assert admit_call(trying, RULE, 1_000 + TRIAL_MS, TRIAL_MS) is not None


@given(
    st.lists(st.tuples(st.booleans(), st.integers(-100_000, 100_000))),
    st.integers(1, 5),
    st.integers(1, 10_000),
    st.integers(1, 60_000),
)
def test_nobody_is_left_alone_for_longer_than_the_longest_pause(
    calls: list[tuple[bool, int]], failures: int, first_ms: int, longest_ms: int
) -> None:
    """Whatever answers come, and however the clock jumps."""
    rule = BreakerRule(failures, first_ms, longest_ms)
    breaker, now_ms = CLOSED, 0
    for succeeds, jump_ms in calls:
        now_ms += jump_ms
        admitted = admit_call(breaker, rule, now_ms, TRIAL_MS)
        if admitted is not None:
            breaker = CLOSED if succeeds else after_failure(admitted, rule, now_ms)
    assert admit_call(breaker, rule, now_ms + max(longest_ms, TRIAL_MS), TRIAL_MS) is not None
