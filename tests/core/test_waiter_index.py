"""The index of read paths finds exactly those whom the linear definition finds, whatever was added and removed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.core.model import Path
from stepwell.core.paths import EACH, SHAPE, intersect
from stepwell.core.waiter_index import WaiterIndex

WRITTEN = ("a", "b", "0", 0, 1, SHAPE)
HOLDERS = range(6)

written = st.lists(st.sampled_from(WRITTEN), max_size=4).map(tuple)
read = st.lists(st.sampled_from((*WRITTEN, EACH, EACH)), max_size=4).map(tuple)
steps = st.lists(st.tuples(st.booleans(), read, st.sampled_from(HOLDERS)), min_size=1, max_size=25)

EVERY_WRITE: tuple[Path, ...] = ((), *((one,) for one in WRITTEN), *((one, two) for one in WRITTEN for two in WRITTEN))


class Linear:
    """Who holds which paths, and nothing else."""

    def __init__(self) -> None:
        self.held: list[tuple[Path, int]] = []

    def match(self, writes: list[Path]) -> set[int]:
        return {holder for path, holder in self.held if intersect([path], writes)}


@given(steps, st.lists(written, max_size=6))
@settings(max_examples=max(settings().max_examples, 500))
def test_it_finds_whom_the_linear_definition_finds(program: list[tuple[bool, Path, int]], writes: list[Path]) -> None:
    index, linear = WaiterIndex[int](), Linear()
    for added, path, holder in program:
        if added:
            index.add(path, holder)
            linear.held = [held for held in linear.held if held != (path, holder)] + [(path, holder)]
        else:
            held = [held for held in linear.held if held[1] == holder]
            if held:
                path = held[0][0]
            index.remove(path, holder)
            linear.held = [each for each in linear.held if each != (path, holder)]
        assert bool(index) == bool(linear.held)
    for write in (*EVERY_WRITE, *writes):  # 43 in each of 500 examples: more than 20,000 comparisons
        assert index.match([write]) == linear.match([write])
    assert index.match(writes) == linear.match(writes)


@given(steps)
def test_what_is_removed_leaves_nothing_behind(program: list[tuple[bool, Path, int]]) -> None:
    index = WaiterIndex[int]()
    for _, path, holder in program:
        index.add(path, holder)
    for _, path, holder in reversed(program):
        index.remove(path, holder)
    assert not index
    assert index.match([()]) == set()


def test_a_holder_is_what_it_is_given() -> None:
    """Also where holders are sets, or equal to others of no interest."""
    index = WaiterIndex[object]()
    holders: list[object] = [frozenset({1}), (), None, 0]
    for holder in holders:
        index.add(("a",), holder)
    assert index.match([("a",)]) == set(holders)
    index.remove(("a",), ())
    assert index.match([("a",)]) == {frozenset({1}), None, 0}


def test_a_shape_is_no_element() -> None:
    index = WaiterIndex[str]()
    index.add(("items", EACH, "status"), "each")
    index.add(("items", SHAPE), "shape")
    index.add(("items", 3, "status"), "third")
    assert index.match([("items", 3, "status")]) == {"each", "third"}
    assert index.match([("items", "3", "status")]) == {"each"}
    assert index.match([("items", SHAPE)]) == {"shape"}
    assert index.match([("items",)]) == {"each", "shape", "third"}
    assert index.match([("items", 3, "name"), ("other",)]) == set()
