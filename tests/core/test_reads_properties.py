"""Reads: no change of what a selector saw is missed, and it sees what it would see without tracking."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell.core.draft import apply, track_reads
from stepwell.core.patch import touched
from stepwell.core.paths import EACH, diff, intersect, minimal
from stepwell.core.value import clone, same

from .programs import Step, containers, go, take_step
from .reading import FAMILIES, Read, reads, run_reads, writes

STATES = {family: make() for family, make in FAMILIES.items()}
KEPT = copy.deepcopy(STATES)
PLACES = {family: list(containers(state)) for family, state in STATES.items()}
INDEX = {family: {id(part): at for at, (_, part) in enumerate(places)} for family, places in PLACES.items()}

SELECTORS = settings(deadline=None, max_examples=settings().max_examples * 17)
"""1,700 for each family and property in `make test`, 85,000 in `make soak`."""


def targets(family: str, selector: list[Read]) -> list[int]:
    """Which containers of a state a selector visits, with those in them: where a change is likely to matter to it."""
    visited: list[object] = []
    run_reads(STATES[family], selector, visited)
    found = dict.fromkeys(INDEX[family].get(id(part), 0) for part in visited)
    for at in list(found):
        way = PLACES[family][at][0]
        inner = [at + step for step in range(1, 200) if at + step < len(PLACES[family])]
        found.update(dict.fromkeys(near for near in inner if PLACES[family][near][0][:-1] == way))
    return list(found)


def update(family: str, program: list[Step], near: list[int], draft: Any) -> None:
    places = PLACES[family]
    for step in program:
        at = near[step[0] // 8 % len(near)] if step[0] % 8 else step[0] * 7 % len(places)
        with suppress(LookupError, AttributeError, TypeError):  # an earlier step may have taken away what lies there
            take_step(draft, *places[at], step)


@pytest.mark.parametrize("family", FAMILIES)
@SELECTORS
@given(selector=reads, program=writes)
def test_no_change_of_what_a_selector_saw_is_missed(family: str, selector: list[Read], program: list[Step]) -> None:
    state = STATES[family]
    near = targets(family, selector)
    applied = apply(state, lambda draft: update(family, program, near, draft))
    seen, read_paths = track_reads(state, lambda view: run_reads(view, selector)[0])
    again = run_reads(applied.state, selector)[0]
    if seen != again:
        assert intersect(read_paths, applied.changed_paths), (read_paths, applied.changed_paths)
        assert intersect(read_paths, diff(state, applied.state)), (read_paths, diff(state, applied.state))
        assert intersect(read_paths, touched(applied.patch)), (read_paths, applied.patch)
    found, read_paths = track_reads(state, lambda view: run_reads(view, selector)[1])
    if not same(found, clone(run_reads(applied.state, selector)[1])):
        assert intersect(read_paths, diff(state, applied.state)), (read_paths, diff(state, applied.state))


@pytest.mark.parametrize("family", FAMILIES)
@SELECTORS
@given(selector=reads)
def test_a_selector_sees_what_it_would_see_of_a_plain_state(family: str, selector: list[Read]) -> None:
    state = STATES[family]
    (notes, found), read_paths = track_reads(state, lambda view: run_reads(view, selector))
    plain_notes, plain_found = run_reads(state, selector)
    assert notes == plain_notes
    assert same(found, clone(plain_found))
    assert read_paths == minimal(read_paths)
    assert len(read_paths) == len(set(read_paths))
    assert sum(EACH in path for path in read_paths) <= 40


def test_the_states_that_all_these_selectors_saw_are_as_they_were() -> None:
    assert all(same(state, KEPT[family]) for family, state in STATES.items())


# --- precision --------------------------------------------------------------------


def leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each atom in a state that can be written there: names as text, keys and indices in tuples of one."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(value, BaseModel):
        parts = [(name, getattr(value, name)) for name in type(value).model_fields]
    elif dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        parts = [((key,), item) for key, item in value.items()]
    elif isinstance(value, list):
        parts = [((at,), item) for at, item in enumerate(value)]
    for step, part in parts:
        if isinstance(part, BaseModel | dict | list) or dataclasses.is_dataclass(part):
            yield from leaves(part, (*way, step))
        elif not isinstance(part, set | frozenset | tuple):
            yield (*way, step)


LEAVES = {family: list(leaves(state)) for family, state in STATES.items()}


def write(draft: Any, way: tuple[Any, ...]) -> None:
    holder, last = go(draft, way[:-1]), way[-1]
    if isinstance(last, tuple):
        holder[last[0]] = ["other"]
    else:
        object.__setattr__(holder, last, ["other"])  # also where the class is frozen


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None)
@given(data=st.data())
def test_a_write_to_another_leaf_meets_nothing(family: str, data: st.DataObject) -> None:
    state = STATES[family]
    read = data.draw(st.lists(st.sampled_from(LEAVES[family]), min_size=1, max_size=5))
    written = data.draw(st.sampled_from(LEAVES[family]))
    paths = track_reads(state, lambda view: [go(view, way) for way in read])[1]
    changed = apply(state, lambda draft: write(draft, written)).changed_paths
    assert intersect(paths, changed) is (written in read)
    assert len(paths) == len(set(read))
