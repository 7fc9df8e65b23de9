"""Properties of retries: how many there are, and how long the pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Retry, StepId
from stepwell.core.retry import NO_RETRY, pause_ms

STEP = StepId("run", "step")
SECONDS = st.floats(0, 1e6)


@given(SECONDS, st.floats(0, 100), SECONDS, st.floats(0, 10), st.integers(1, 10_000))
def test_a_pause_is_never_negative_and_never_over_the_cap(
    initial: float, factor: float, cap: float, jitter: float, failed: int
) -> None:
    retry = Retry(max_attempts=3, initial=initial, factor=factor, cap=cap, jitter=jitter)
    assert 0 <= pause_ms(retry, failed, STEP) <= round(cap * 1000)


@given(st.floats(0.001, 10), st.floats(1, 3), st.integers(1, 8))
def test_without_jitter_pauses_grow_by_the_factor(initial: float, factor: float, failed: int) -> None:
    retry = Retry(initial=initial, factor=factor, cap=1e9)
    assert pause_ms(retry, failed, STEP) == round(initial * factor ** (failed - 1) * 1000)


@given(st.floats(0.1, 10), st.floats(0, 1), st.integers(1, 5), st.text(max_size=5))
def test_jitter_lengthens_by_at_most_its_fraction_and_is_the_same_every_time(
    initial: float, jitter: float, failed: int, name: str
) -> None:
    step = StepId("run", f"key {name}".replace("\0", "") if name.isascii() else "key")
    plain = Retry(initial=initial, cap=1e9)
    spread = Retry(initial=initial, cap=1e9, jitter=jitter)
    pause = pause_ms(spread, failed, step)
    assert pause == pause_ms(spread, failed, step)
    assert pause_ms(plain, failed, step) <= pause <= pause_ms(plain, failed, step) * (1 + jitter) + 1


def test_jitter_differs_between_runs_keys_and_attempts() -> None:
    retry = Retry(initial=10, factor=1, jitter=1)
    pauses = {
        pause_ms(retry, failed, StepId(run, key)) for run in ("a", "b") for key in ("x", "y") for failed in (1, 2)
    }
    assert len(pauses) == 8


def test_zero_is_a_pause_and_the_defaults_are_what_they_are() -> None:
    assert pause_ms(Retry(initial=0), 1, STEP) == 0
    assert [pause_ms(Retry(), failed, STEP) for failed in (1, 2, 3, 100, 100_000)] == [200, 400, 800, 30_000, 30_000]
    assert (Retry().max_attempts, NO_RETRY.max_attempts) == (3, 1)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["initial", "factor", "cap", "jitter"])
def test_numbers_that_make_no_sense_are_refused(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=name):
        _ = Retry(**{name: wrong})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@given(st.integers(max_value=0))
def test_a_step_has_at_least_one_attempt(attempts: int) -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        _ = Retry(max_attempts=attempts)
