"""Patches: replaying one leads from the state before to the state after, as Python values and as documents."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from stepwell.core.patch import (
    Order,
    Patch,
    Put,
    Remove,
    Splice,
    between,
    decode,
    encode,
    replay,
    replay_document,
    touched,
)
from stepwell.core.paths import SHAPE, Path, diff, intersect
from stepwell.core.value import same

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab1", max_size=2), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=500)
@given(before=documents, after=documents, whole=st.booleans())
def test_a_patch_leads_from_one_document_to_the_other(before: object, after: object, whole: bool) -> None:
    changed = ((),) if whole else diff(before, after)
    kept = copy.deepcopy(before)
    patch = between(before, after, changed)
    assert same(replay(before, patch), after)
    assert same(before, kept), "replaying changed the document before"
    assert json.dumps(replay(before, patch)) == json.dumps(after), "the keys are in another order"
    again = decode(encode(patch))
    assert json.dumps(replay(before, again)) == json.dumps(after)
    met = touched(again)
    assert all(intersect([path], met) for path in diff(before, after)), "a part changed that the patch does not touch"


@pytest.mark.parametrize(
    ("operation", "paths"),
    [
        (Put((), 1), ((),)),
        (Put(("a", "b"), 1), (("a", "b"), ("a", SHAPE))),
        (Put(("a", 0), 1), (("a", 0),)),
        (Remove(("a",)), (("a",), (SHAPE,))),
        (Splice(("a",), 2, 2, (1, 2)), (("a", 2), ("a", 3))),
        (Splice(("a",), 2, 0, (1,)), (("a",),)),
        (Order(("a",), ("y", "x")), (("a", SHAPE),)),
    ],
)
def test_a_patch_touches_what_it_may_change(operation: Put | Remove | Splice | Order, paths: tuple[Path, ...]) -> None:
    assert touched(Patch((operation,))) == paths


segments = st.integers(-3, 4) | st.text("ab1", max_size=2)
puts = st.builds(Put, st.lists(segments, max_size=4).map(tuple), documents)


def outcome(replayed: Callable[[], object]) -> str:
    """The document as text, or the kind of the error."""
    try:
        return json.dumps(replayed())
    except (LookupError, TypeError, ValueError) as error:
        return type(error).__name__


@settings(deadline=None, max_examples=1000)
@given(document=documents, put=puts)
def test_in_place_a_put_does_what_it_does_to_a_copy_also_where_it_leads_nowhere(document: object, put: Put) -> None:
    """A damaged log may hold a patch of something else; it must not write to another place than it says."""
    expected = outcome(lambda: replay(document, Patch((put,))))
    assert outcome(lambda: replay_document(copy.deepcopy(document), [Patch((put,))])) == expected


@settings(deadline=None)
@given(states=st.lists(documents, min_size=2, max_size=5))
def test_many_patches_lead_through_all_documents_in_place(states: list[object]) -> None:
    steps = itertools.pairwise(states)
    patches = [decode(encode(between(one, other, diff(one, other)))) for one, other in steps]
    assert same(replay_document(copy.deepcopy(states[0]), patches), states[-1])


@settings(deadline=None)
@given(
    items=st.lists(documents, max_size=5),
    cut=st.integers(0, 4),
    count=st.integers(0, 3),
    put=st.lists(documents, max_size=3),
)
def test_a_change_in_a_list_is_one_slice_of_it(items: list[object], cut: int, count: int, put: list[object]) -> None:
    after = [*items[:cut], *put, *items[cut + count :]]
    patch = between(items, after, [()])
    assert same(replay(items, patch), after)
    held = sum(len(operation.values) for operation in patch.operations if isinstance(operation, Splice))
    assert not items or not after or held <= len(put)


@pytest.mark.parametrize(
    ("before", "after", "changed", "operations"),
    [
        pytest.param({"a": 1}, {"a": 2}, [("a",)], (Put(("a",), 2),), id="field"),
        pytest.param({"a": 1}, {}, [("a",), (SHAPE,)], (Remove(("a",)),), id="removed"),
        pytest.param([1, 2], [1, 2, 3], [(2,), (SHAPE,)], (Splice((), 2, 0, (3,)),), id="append"),
        pytest.param(
            [1, 2, 3, 4], [1, 3, 4], [(1,), (2,), (3,), (SHAPE,)], (Splice((), 1, 1, ()),), id="pop-in-the-middle"
        ),
        pytest.param([1, 3], [1, 2, 3], [(1,), (2,), (SHAPE,)], (Splice((), 1, 0, (2,)),), id="insert-in-the-middle"),
        pytest.param(
            [1, 2], [9, 2, 3], [(0,), (2,), (SHAPE,)], (Put((0,), 9), Splice((), 2, 0, (3,))), id="set-and-append"
        ),
        pytest.param(
            {"a": 1, "b": 2}, {"b": 2, "a": 3}, [("a",), (SHAPE,)], (Remove(("a",)), Put(("a",), 3)), id="again"
        ),
        pytest.param(1, 2, [()], (Put((), 2),), id="root"),
        pytest.param({"a": 1}, {"a": 1}, [("a",)], (), id="written-but-equal"),
        pytest.param({"a": 1}, {"a": 1}, [], (), id="nothing"),
    ],
)
def test_a_patch_holds_no_more_than_the_change(
    before: object, after: object, changed: list[Path], operations: tuple[object, ...]
) -> None:
    patch = between(before, after, changed)
    assert patch.operations == operations
    assert same(replay(before, patch), after)


def test_a_patch_is_a_value_of_few_bytes() -> None:
    patch = between({"items": [{"n": 1}], "title": "t"}, {"items": [{"n": 2}], "title": "t"}, [("items", 0, "n")])
    assert encode(patch) == b'[["=",["items",0,"n"],2]]'
    assert decode(encode(patch)) == patch
    assert len(patch) == 1
    assert encode(Patch()) == b"[]"


@pytest.mark.parametrize("bad", [b"{}", b'[["?",[]]]', b'[["=",[1.5],2]]', b"[[", b'[["~",[],0]]'])
def test_what_is_no_patch_is_refused(bad: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(bad)


class Inner(BaseModel):
    n: int


class Frozen(BaseModel, frozen=True):
    inner: Inner
    pair: tuple[Inner, int]
    by_number: dict[int, Inner]


class Listed(RootModel[list[Inner]]):
    pass


def test_a_patch_of_python_states_makes_values_of_their_classes() -> None:
    before = Frozen(inner=Inner(n=1), pair=(Inner(n=1), 2), by_number={1: Inner(n=1)})
    after = Frozen(inner=Inner(n=2), pair=(Inner(n=3), 2), by_number={1: Inner(n=1), 2: Inner(n=5)})
    replayed = replay(before, between(before, after, diff(before, after)))
    assert same(replayed, after)
    assert before.inner.n == 1


def test_a_patch_goes_through_a_root_model_without_a_segment() -> None:
    before, after = Listed([Inner(n=1), Inner(n=2)]), Listed([Inner(n=1), Inner(n=7), Inner(n=8)])
    patch = between(before, after, diff(before, after))
    assert same(replay(before, patch), after)
    one, other = before.model_dump(), after.model_dump()
    assert same(replay(one, between(one, other, diff(one, other))), other)


def test_parts_that_did_not_change_are_shared() -> None:
    before = {"a": [1], "b": [2]}
    after = replay(before, Patch((Put(("a", 0), 5),)))
    assert after["b"] is before["b"]
    assert before == {"a": [1], "b": [2]}
