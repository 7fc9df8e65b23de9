"""Paths: what meets what, and where two states differ."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from stepwell.core.paths import EACH, SHAPE, Path, decode, diff, encode, intersect, minimal

# --- the segment SHAPE ---------------------------------------------------------


def test_shape_is_text_that_equals_no_key() -> None:
    assert isinstance(SHAPE, str)
    for key in ("<shape>", str.__str__(SHAPE), "SHAPE", "#"):
        assert key != SHAPE
        assert key != SHAPE
        assert {key: 1}.get(SHAPE) is None
    assert ("a", SHAPE) == ("a", SHAPE)
    assert repr(("a", SHAPE)) == "('a', SHAPE)"


def test_each_is_text_that_equals_no_key() -> None:
    assert isinstance(EACH, str)
    for key in ("EACH", str.__str__(EACH), "*", SHAPE):
        assert key != EACH
        assert {key: 1}.get(EACH) is None
    assert ("a", EACH) == ("a", EACH)
    assert repr(("a", EACH)) == "('a', EACH)"


@pytest.mark.parametrize("mark", [SHAPE, EACH])
def test_shape_and_each_stay_themselves_when_copied(mark: str) -> None:
    assert copy.copy(mark) is mark
    assert copy.deepcopy([mark])[0] is mark
    assert pickle.loads(pickle.dumps((mark,)))[0] is mark


# --- meeting -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "write", "meet"),
    [
        (("a",), ("a",), True),
        (("a",), ("a", 0, "b"), True),
        (("a", 0, "b"), ("a",), True),
        (("a",), ("b",), False),
        (("a", 0), ("a", 1), False),
        (("a", "1"), ("a", 1), False),
        (("a", SHAPE), ("a", SHAPE), True),
        (("a", SHAPE), ("a", 0), False),
        (("a", SHAPE), ("a",), True),
        (("a", SHAPE), (), True),
        (("a",), ("a", SHAPE), True),
        (("a", 0), ("a", SHAPE), False),
        ((), ("a", SHAPE), True),
        ((), (), True),
        (("a", SHAPE), ("a", "SHAPE"), False),
        (("a", EACH), ("a", 0), True),
        (("a", EACH), ("a", "k", "x"), True),
        (("a", EACH), ("a", SHAPE), False),
        (("a", EACH), ("a",), True),
        (("a", EACH), (), True),
        (("a", EACH), ("b", 0), False),
        (("a", EACH, "x"), ("a", 0, "x"), True),
        (("a", EACH, "x"), ("a", 0, "x", "y"), True),
        (("a", EACH, "x"), ("a", 0, "y"), False),
        (("a", EACH, "x"), ("a", 0), True),
        (("a", EACH, SHAPE), ("a", 0, SHAPE), True),
        (("a", EACH, SHAPE), ("a", 0, "x"), False),
        (("a", EACH, EACH), ("a", 0, SHAPE), False),
    ],
)
def test_a_read_meets_a_write_above_or_beneath_it(read: Path, write: Path, meet: bool) -> None:
    assert intersect([read], [write]) is meet
    assert intersect([("other",), read], [write, ("another",)]) is meet


def test_nothing_meets_nothing() -> None:
    assert not intersect([], [("a",)])
    assert not intersect([("a",)], [])


segments = st.one_of(st.sampled_from(["a", "b", "0", SHAPE]), st.integers(0, 2))
paths = st.lists(st.lists(segments, max_size=3).map(tuple), max_size=5)
read_paths = st.lists(st.lists(segments | st.just(EACH), max_size=4).map(tuple), max_size=6)


def leads_to(read: Path, path: Path) -> bool:
    """Whether a path that was read leads to the part at `path`, or above it."""
    return len(read) <= len(path) and all(
        one == other or (one is EACH and other is not SHAPE) for one, other in zip(read, path, strict=False)
    )


@settings(deadline=None)
@given(reads=read_paths, writes=paths)
def test_meeting_is_one_path_leading_to_the_other(reads: list[Path], writes: list[Path]) -> None:
    naive = any(leads_to(read[: len(write)], write[: len(read)]) for read in reads for write in writes)
    assert intersect(reads, writes) is naive


@settings(deadline=None)
@given(given_paths=read_paths, writes=paths)
def test_minimal_paths_cover_the_same_and_none_is_beneath_another(given_paths: list[Path], writes: list[Path]) -> None:
    kept = minimal(given_paths)
    assert len(set(kept)) == len(kept)
    assert not any(one != other and leads_to(other, one) for one in kept for other in kept)
    assert all(any(leads_to(top, path) for top in kept) for path in given_paths)
    assert set(kept) <= set(given_paths)
    assert intersect(kept, writes) is intersect(given_paths, writes)


@settings(deadline=None)
@given(given_paths=read_paths)
def test_paths_are_read_back_as_they_were_written(given_paths: list[Path]) -> None:
    back = decode(encode(given_paths))
    assert back == tuple(given_paths)
    assert [[type(segment) for segment in path] for path in back] == [
        [type(segment) for segment in path] for path in given_paths
    ]


def test_paths_are_written_as_json() -> None:
    assert encode([("a", 1, SHAPE), ("a", EACH, "1"), ()]) == b'[["a",1,null],["a",true,"1"],[]]'


@pytest.mark.parametrize("key", ["\ud800", "\udfff\ud800a", "\ud83d\ude00", "\\ud800", "\ud800\\n\n\0ä😀", "\\"])
def test_keys_that_are_no_valid_unicode_are_read_back(key: str) -> None:
    paths = (("a", key, SHAPE), (EACH, key), (key, 0), ("plain",))
    written = encode(paths)
    assert decode(written) == paths
    assert json.loads(written.decode("utf-8"))
    assert decode(json.dumps(json.loads(written)).encode()) == paths


# --- differences ---------------------------------------------------------------


class Model(BaseModel):
    x: object = None


class Twin(BaseModel):
    x: object = None


class Root(RootModel[list[int]]):
    pass


@dataclasses.dataclass
class Data:
    x: object = None


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        pytest.param({"a": [1]}, {"a": [1]}, (), id="S95-equal"),
        pytest.param({"a": 1}, {"a": "1"}, (("a",),), id="S95-kind-of-scalar"),
        pytest.param([float("nan")], [float("nan")], (), id="S95-nan"),
        pytest.param([0.0], [-0.0], ((0,),), id="S95-negative-zero"),
        pytest.param([], {}, ((),), id="S96-root"),
        pytest.param([[]], [{}], ((0,),), id="S96-in-a-list"),
        pytest.param({"a": []}, {"a": {}}, (("a",),), id="S96-under-a-key"),
        pytest.param({"a": []}, {"a": ()}, (("a",),), id="S96-tuple"),
        pytest.param({}, {"a": None}, (("a",), (SHAPE,)), id="S97-added"),
        pytest.param({"a": None}, {}, (("a",), (SHAPE,)), id="S97-removed"),
        pytest.param([True], [1], ((0,),), id="S98-bool"),
        pytest.param([1], [1.0], ((0,),), id="S98-float"),
        pytest.param([0], [False], ((0,),), id="S98-zero"),
        pytest.param({1}, {True}, ((),), id="S98-in-a-set"),
        pytest.param([1, 2, 3], [1, 5], ((1,), (2,), (SHAPE,)), id="shorter-list"),
        pytest.param([1], [1, 2], ((1,), (SHAPE,)), id="longer-list"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, ((SHAPE,),), id="order-of-keys"),
        pytest.param({1: 2}, {"1": 2}, (("1",), (SHAPE,)), id="number-and-text-as-keys"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, (("a", "c"),), id="nested"),
        pytest.param((1, 2), (1, 3), ((1,),), id="tuple"),
        pytest.param((1, 2), (1,), ((),), id="tuple-length"),
        pytest.param({1, 2}, {1, 3}, ((),), id="set"),
        pytest.param(Model(x=[1]), Model(x=[2]), (("x", 0),), id="model"),
        pytest.param(Model(x=1), Twin(x=1), ((),), id="class"),
        pytest.param(Data(x=1), Data(x=None), (("x",),), id="dataclass"),
        pytest.param(Root([1]), Root([2]), ((0,),), id="root-model"),
        pytest.param(Decimal("1.0"), Decimal("1.00"), ((),), id="decimal"),
    ],
)
def test_two_states_differ_where(before: object, after: object, changed: tuple[Path, ...]) -> None:
    assert diff(before, after) == changed


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(before=json_values, after=json_values)
def test_differences_are_minimal_and_the_same_both_ways(before: object, after: object) -> None:
    found = diff(before, after)
    assert set(minimal(found)) == set(found)
    assert set(diff(after, before)) == set(found)
    assert diff(before, copy.deepcopy(before)) == ()
