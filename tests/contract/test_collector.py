"""The collector of cycles is left as it was, whoever asked it to look more rarely, and in whatever order they end."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from stepwell.layers.collector import RARELY, rarely_collected


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    try:
        yield 700, 11, 12
    finally:
        gc.set_threshold(*before)


def test_it_looks_more_rarely_for_as_long_as_that_lasts(thresholds: tuple[int, int, int]) -> None:
    with rarely_collected():
        assert gc.get_threshold() == (RARELY, 11, 12)
        assert gc.isenabled()
    assert gc.get_threshold() == thresholds


def test_an_error_ends_it_too(thresholds: tuple[int, int, int]) -> None:
    with pytest.raises(ZeroDivisionError), rarely_collected():
        _ = 1 / 0
    assert gc.get_threshold() == thresholds


def test_those_that_overlap_end_it_with_the_last_of_them(thresholds: tuple[int, int, int]) -> None:
    first, second = rarely_collected(), rarely_collected()
    first.__enter__()
    second.__enter__()
    _ = first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == RARELY
    _ = second.__exit__(None, None, None)
    assert gc.get_threshold() == thresholds


def test_what_somebody_else_sets_meanwhile_stays() -> None:
    with rarely_collected():
        gc.set_threshold(5_000, 10, 10)
    assert gc.get_threshold() == (5_000, 10, 10)


@pytest.mark.parametrize("first", [0, RARELY, RARELY * 2])
def test_who_has_it_never_look_or_more_rarely_still_keeps_that(first: int) -> None:
    gc.set_threshold(first, 11, 12)
    with rarely_collected():
        assert gc.get_threshold()[0] == first
    assert gc.get_threshold()[0] == first
