"""Paths as rows of a database: the ranges of a write hold the rows of exactly the reads that it meets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.core.model import Path
from stepwell.core.paths import EACH, SHAPE, intersect
from stepwell.layers.sql.path_rows import MASK_BITS, Range, path_rows, ranges_met

AWKWARD = ("a", "ab", "", "\0", "\1", "\1\1", "a\0", "*", "#", "i0", "0", "ä", "\ud800", 0, 1, 10, -1, 10**30, SHAPE)

written = st.lists(st.sampled_from(AWKWARD), max_size=4).map(tuple)
read = st.lists(st.sampled_from((*AWKWARD, EACH, EACH, EACH)), max_size=4).map(tuple)


def is_found(reads: list[Path], writes: list[Path]) -> bool:
    rows = path_rows(reads)
    ranges = ranges_met(writes, {mask for mask, _ in rows})
    return any(holds(found, row) for found in ranges for row in rows)


def holds(found: Range, row: tuple[int, bytes]) -> bool:
    mask, lowest, highest = found
    return mask == row[0] and lowest <= row[1] <= highest


@given(st.lists(read, max_size=4), st.lists(st.lists(written, max_size=3), min_size=20, max_size=20))
@settings(max_examples=max(settings().max_examples, 200))
def test_a_write_finds_the_reads_that_it_meets(reads: list[Path], commits: list[list[Path]]) -> None:
    for writes in commits:
        assert is_found(reads, writes) == intersect(reads, writes)


@given(st.lists(read, min_size=2, max_size=2, unique=True))
def test_two_paths_are_two_rows(reads: list[Path]) -> None:
    assert len(path_rows(reads)) == 2


def test_a_read_of_any_segment_that_is_too_deep_counts_as_one_of_the_part_above() -> None:
    deep = ("a",) * MASK_BITS
    assert is_found([(*deep[:-1], EACH)], [deep])
    assert not is_found([(*deep[:-1], EACH)], [(*deep[:-1], SHAPE)])
    for written in ((*deep, "b"), (*deep, "c"), (*deep, SHAPE)):
        assert is_found([(*deep, EACH, "b")], [written])
    assert not is_found([(*deep, EACH, "b")], [("b",)])
