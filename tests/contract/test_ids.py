"""The ids: time-ordered, counted, and none."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Ids, build, get
from stepwell.layers import ids as layers
from stepwell.layers.ids import CountedIds, NoopIds, TimeOrderedIds

SHAPE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def assert_ascending(made: list[str]) -> None:
    assert all(SHAPE.fullmatch(one) for one in made)
    assert all(before < after for before, after in pairwise(made))


def test_they_are_uuids_of_version_7_of_the_present() -> None:
    made = uuid.UUID(TimeOrderedIds(wall_ms=lambda: 1_700_000_000_123).new())
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, 1_700_000_000_123)


def test_each_is_greater_than_the_one_before_within_one_millisecond() -> None:
    ids = TimeOrderedIds(wall_ms=lambda: 1_000)
    assert_ascending([ids.new() for _ in range(10_000)])


@given(
    st.lists(st.integers(0, 2**48 - 1_000), min_size=2, max_size=50),
    st.sampled_from([b"\x00", b"\x7f", b"\xff"]),
)
def test_whatever_the_clock_does_each_is_greater_than_the_one_before(instants: list[int], byte: bytes) -> None:
    times: Iterator[int] = iter(instants)
    ids = TimeOrderedIds(wall_ms=lambda: next(times), random=lambda size: byte * size)
    made = [ids.new() for _ in instants]
    assert_ascending(made)
    assert all(uuid.UUID(one).int >> 80 >= max(instants[: at + 1]) for at, one in enumerate(made))


def test_a_full_millisecond_goes_over_into_the_next() -> None:
    ids = TimeOrderedIds(wall_ms=lambda: 5, random=lambda size: b"\xff" * size)
    made = [ids.new(), ids.new()]
    assert_ascending(made)
    assert [uuid.UUID(one).int >> 80 for one in made] == [5, 6]


def test_threads_share_them_without_a_repetition() -> None:
    ids = TimeOrderedIds()
    made: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into.extend(ids.new() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own in made:
        assert_ascending(own)
    assert len({one for own in made for one in own}) == 8_000


async def test_layer_gives_other_ids_in_each_environment() -> None:
    layer = layers.layer()
    async with build(layer) as one, build(layer) as other:
        first, second = get(one.unwrap(), Ids), get(other.unwrap(), Ids)
        made = [first.new(), second.new(), first.new()]
    assert len(set(made)) == 3
    assert all(SHAPE.fullmatch(each) for each in made)


async def test_layer_test_gives_the_same_ids_in_every_execution() -> None:
    async with build(layers.layer_test()) as built:
        ids = get(built.unwrap(), Ids)
        made = [ids.new() for _ in range(300)]
    assert_ascending(made)
    assert made[0] == "00000000-0000-7000-8000-000000000001"
    again = CountedIds()
    assert made == [again.new() for _ in range(300)]


def test_ids_of_another_seed_are_others() -> None:
    one, other = CountedIds(1), CountedIds(2)
    made = {ids.new() for ids in (one, other) for _ in range(100)}
    assert len(made) == 200


async def test_layer_noop_raises_and_says_what_to_do() -> None:
    async with build(layers.layer_noop()) as built:
        ids = get(built.unwrap(), Ids)
        assert isinstance(ids, NoopIds)
        with pytest.raises(RuntimeError, match="there are no ids here: override them by layer"):
            ids.new()
