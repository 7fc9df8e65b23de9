"""Big lists and dicts: they do what plain ones do, a copy is a value for ever, and costs what is written."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from stepwell.core.change import decide_change
from stepwell.core.chunks import Chunked, differing, differing_back
from stepwell.core.draft import apply, track_reads
from stepwell.core.layered import Layered, step_between
from stepwell.core.patch import Order, Patch, Put, Remove, Splice, between, decode, replay, replay_json
from stepwell.core.paths import SHAPE, diff
from stepwell.core.record import record_type
from stepwell.core.schema import StateSchema
from stepwell.core.sharing import BIG, copy_dict, copy_list, flat
from stepwell.core.value import clone, same

from .programs import FAMILIES, Item, Step, run_on_both, steps
from .reading import FAMILIES as READ_FAMILIES
from .reading import Read, reads, run_reads

SOAK = bool(os.environ.get("STEPWELL_SOAK"))
MANY = settings(deadline=None, max_examples=10_000 if SOAK else 500)
SOME = settings(deadline=None, max_examples=2_000 if SOAK else 60)


def in_parts(value: Any, chunk: int) -> Any:
    """The same state with every list in chunks and every dict in layers."""
    if isinstance(value, list):
        return Chunked((in_parts(item, chunk) for item in value), chunk)
    if isinstance(value, dict):
        return Layered({key: in_parts(item, chunk) for key, item in value.items()}, chunk)
    if isinstance(value, tuple):
        members = [in_parts(item, chunk) for item in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return record_type(type(value)).clone(value, lambda part: in_parts(part, chunk))
    return value


def is_flat(value: Any) -> bool:
    """Whether plain containers alone are in a value, found by another way than `flat` goes."""
    if isinstance(value, Chunked | Layered):
        return False
    if isinstance(value, BaseModel):
        return all(map(is_flat, vars(value).values())) and is_flat(value.__pydantic_extra__ or {})
    if dataclasses.is_dataclass(value):
        return all(is_flat(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, dict):
        return all(map(is_flat, value.values()))
    return not isinstance(value, list | tuple) or all(map(is_flat, value))


# --- lists -------------------------------------------------------------------

list_programs = st.lists(
    st.tuples(
        st.sampled_from(["set", "append", "splice", "front", "copy"]),
        st.integers(0, 7),
        st.integers(0, 40),
        st.integers(0, 12),
        st.integers(0, 14),
    ),
    max_size=25,
)


def run_list(program: list[Any], length: int, chunk: int) -> list[tuple[Chunked, list[object]]]:
    """Pairs of a list in chunks and a plain one after the same operations, each begun as a copy of another."""
    fresh = itertools.count(1000)
    pairs: list[tuple[Chunked, list[object]]] = [(Chunked(range(length), chunk), list(range(length)))]
    for op, which, at, removed, added in program:
        one, plain = pairs[which % len(pairs)]
        values = list(itertools.islice(fresh, added))
        if op == "copy":
            pairs.append((one.copy(), plain.copy()))
        elif op == "append":
            one.append(at)
            plain.append(at)
        elif op == "set" and plain:
            one[at % len(plain)] = plain[at % len(plain)] = -at
        elif op == "front":
            one[0:1] = ()
            plain[0:1] = ()
        elif op == "splice":
            start = at % (len(plain) + 1)
            one[start : start + removed] = values
            plain[start : start + removed] = values
        assert one == plain
    return pairs


@MANY
@given(program=list_programs, length=st.integers(0, 40), chunk=st.integers(1, 9))
def test_a_list_in_chunks_does_what_a_list_does(program: list[Any], length: int, chunk: int) -> None:
    for one, plain in run_list(program, length, chunk):
        assert list(one) == plain
        assert len(one) == len(plain)
        assert list(reversed(one)) == plain[::-1]
        assert [one[at] for at in range(-len(plain), len(plain))] == [*plain, *plain]
        assert one[1:4] == plain[1:4]
        assert one[::-2] == plain[::-2]
        assert one[5:2] == []
        assert all(list(one.since(at)) == plain[at:] for at in range(len(plain) + 2))
        for at in (len(plain), -len(plain) - 1):
            with pytest.raises(IndexError):
                one[at]
            with pytest.raises(IndexError):
                one[at] = 1
        lengths = [*map(len, one.chunks())]
        assert all(0 < held <= 2 * chunk for held in lengths)
        assert one.starts() == [sum(lengths[:at]) for at in range(len(lengths))]


def held_values(patch: Patch) -> int:
    return sum(len(each.values) for each in patch.operations if isinstance(each, Splice))


@MANY
@given(program=list_programs, length=st.integers(0, 40), chunk=st.integers(1, 9), start=st.integers(0, 20))
def test_two_lists_differ_where_their_elements_are_not_the_same(
    program: list[Any], length: int, chunk: int, start: int
) -> None:
    pairs = run_list(program, length, chunk)
    (one, plain), (other, twin) = pairs[0], pairs[-1]
    other, twin = other.copy(), twin.copy()
    expected = [(at, a, b) for at, (a, b) in enumerate(zip(plain, twin, strict=False)) if a is not b]
    back = [(at, a, b) for at, (a, b) in enumerate(zip(plain[::-1], twin[::-1], strict=False)) if a is not b]
    for its_one, its_other in ((one, other), (plain, other), (one, twin), (plain, twin)):
        assert list(differing(its_one, its_other, start)) == [each for each in expected if each[0] >= start]
        assert list(differing_back(its_one, its_other)) == back
        assert same(its_one, its_other) is (plain == twin)
        assert diff(its_one, its_other) == diff(plain, twin)
        patch = between(its_one, its_other, [()])
        assert held_values(patch) <= held_values(between(plain, twin, [()]))
        assert same(replay(its_one, patch), twin)
        assert same(its_one, plain)


def test_a_list_in_chunks_stays_in_chunks_that_are_filled() -> None:
    one = Chunked(range(64), 8)
    for at in range(2000):
        one[at * 7 % len(one) : at * 7 % len(one)] = [at]
        one[at * 5 % len(one) : at * 5 % len(one) + 1] = ()
    assert len(one) == 64
    assert len(one.chunks()) <= 4 * 64 // 8
    for _ in range(62):
        one[0:1] = ()
    assert len(one.chunks()) == 1


# --- dicts -------------------------------------------------------------------

keys = st.sampled_from([*"abcdefgh", 1, True, 1.0, 0, False, 2, (1,)])
dict_programs = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "del", "again", "copy", "copy"]), st.integers(0, 7), keys, st.integers(0, 9)
    ),
    max_size=25,
)


def run_dict(program: list[Any], length: int, most: int | None) -> list[tuple[Any, dict[object, object]]]:
    base: dict[object, object] = dict(zip([*"abcd", 1, 2, *"wxyz"], range(length)))  # noqa: B905  # as many as asked for
    kept = base.copy()
    pairs: list[tuple[Any, dict[object, object]]] = [(Layered(base, most), base.copy())]
    for op, which, key, value in program:
        one, plain = pairs[which % len(pairs)]
        if op == "copy":
            pairs.append((one.copy(), plain.copy()))
        elif op == "set":
            one[key] = plain[key] = value
        elif op == "again" and key in plain:
            plain[key] = plain.pop(key)
            held = one[key]
            del one[key]
            one[key] = held
        elif op == "del" and key in plain:
            del plain[key]
            del one[key]
        elif op == "del":
            with pytest.raises(KeyError):
                del one[key]
        assert repr(one) == repr(plain)
    assert repr(base) == repr(kept), "the base was written"
    return pairs


@MANY
@given(program=dict_programs, length=st.integers(0, 10), most=st.none() | st.integers(0, 6))
def test_a_dict_in_layers_does_what_a_dict_does(program: list[Any], length: int, most: int | None) -> None:
    for one, plain in run_dict(program, length, most):
        assert repr(dict(one.items())) == repr(plain) == repr(one.flat())
        assert one == plain
        assert len(one) == len(plain)
        assert [*map(repr, one)] == [*map(repr, plain)] == [*map(repr, one.keys())]
        assert list(reversed(one)) == list(reversed(plain)) == list(reversed(one.keys()))
        assert list(one.values()) == list(plain.values())
        assert list(reversed(one.values())) == list(reversed(plain.values()))
        assert list(reversed(one.items())) == list(reversed(plain.items()))
        assert len(one.keys()) == len(one.values()) == len(one.items()) == len(plain)
        assert one.has_text_keys() is all(type(key) is str for key in plain)
        for key in [*"abcdefghwxyz", 0, 1, 2]:
            assert (key in one) is (key in plain) is (key in one.keys())  # noqa: SIM118  # the view is under test
            assert one.get(key, "none") == plain.get(key, "none")
        with pytest.raises(KeyError):
            one["absent"]


@MANY
@given(program=dict_programs, length=st.integers(0, 10), most=st.none() | st.integers(0, 6))
def test_two_dicts_differ_where_their_entries_are_not_the_same(
    program: list[Any], length: int, most: int | None
) -> None:
    pairs = run_dict(program, length, most)
    (one, plain), (other, twin) = pairs[0], pairs[-1]
    for its_one, its_other in ((one, other), (plain, other), (one, twin), (other, one)):
        mine, its = (twin, plain) if its_one is other else (plain, twin)
        assert same(its_one, its_other) is same(mine, its)
        found = diff(its_one, its_other)
        assert set(found) == set(diff(mine, its))
        for changed in (found, [()]):
            assert same(replay(its_one, between(its_one, its_other, changed)), its)
        assert same(its_one, mine)


# --- states in chunks and in layers ------------------------------------------


SORTED_IN_PART: list[list[Step]] = [
    [(0, 0, -1, 0, "a")] * 6 + [(0, 0, 3, 0, "a"), (1, 0, 0, 0, "a"), (6, 0, 0, 0, "a"), (6, 0, 0, 0, "a")],
    [(0, 0, 2, 0, "a")] * 5 + [(1, 0, 0, 0, "a")] * 3 + [(5, 0, 0, -1, "a"), (6, 31, -1, 1, "a")],
    [(0, 0, 2, 0, "a"), (38, 31, 0, 0, "a"), (17, 56, 0, 0, "a"), (29, 33, 0, 0, "a")],
]
"""A list that cannot be sorted: Python leaves it in some order of its own."""


@pytest.mark.parametrize("family", FAMILIES)
@MANY
@given(programs=st.lists(steps, min_size=1, max_size=3), chunk=st.integers(1, 5))
@example(programs=[[(0, 27, 3, 0, "a"), (17, 4, -1, -2, "a")], [(0, 3, 0, 0, "a")]], chunk=1)  # -1 and -2 hash alike
@example(programs=[[(0, 27, 3, 0, "a"), (17, 4, -1, -2, "a")], [(17, 3, 0, 0, "a")] * 5], chunk=1)
@example(programs=SORTED_IN_PART, chunk=1)
def test_a_draft_does_with_big_containers_what_the_plain_state_does(
    family: str, programs: list[list[Step]], chunk: int
) -> None:
    state = in_parts(FAMILIES[family](), chunk)
    states: list[tuple[object, object]] = []
    for program in programs:
        before = clone(state)
        plain: object = None

        def updater(draft: object, program: list[Step] = program, before: object = before) -> None:
            nonlocal plain
            plain = run_on_both(copy.deepcopy(before), draft, program)

        applied = apply(state, updater)
        states.append((state, before))
        assert same(applied.state, plain), "the result is not what plain mutation gives"
        assert same(replay(state, applied.patch), plain), "the patch does not lead to the result"
        assert same(replay(before, applied.patch), plain), "the patch does not lead to the result from a plain state"
        changed = set(applied.changed_paths)
        differs = diff(state, applied.state)
        assert set(differs) == set(diff(before, plain)), "two states differ elsewhere than plain ones"
        for path in differs:
            assert any(path[:end] in changed for end in range(len(path) + 1)), (path, changed)
        for path in changed:
            assert not any(path[:end] in changed for end in range(len(path))), (path, changed)
        assert same(replay(state, between(state, applied.state, differs)), plain)
        state = applied.state
        made = flat(state)
        assert is_flat(made)
        assert same(made, plain)
    for state, before in states:
        assert same(state, before), "a state that was left behind was changed"


@pytest.mark.parametrize("family", READ_FAMILIES)
@SOME
@given(selector=reads, chunk=st.integers(1, 5))
def test_a_selector_sees_of_big_containers_what_it_sees_of_plain_ones(
    family: str, selector: list[Read], chunk: int
) -> None:
    state = READ_FAMILIES[family]()
    expected, paths = track_reads(state, lambda view: run_reads(view, selector))
    found, read_paths = track_reads(in_parts(state, chunk), lambda view: run_reads(view, selector))
    assert found[0] == expected[0]
    assert is_flat(found[1])
    assert same(found[1], expected[1])
    assert read_paths == paths


class Big(BaseModel):
    n: int = 0
    items: list[Item] = []
    by: dict[str, Item] = {}
    numbers: list[int] = []


SIZE = BIG + 500
BIG_STATE = Big(
    items=[Item(id=at) for at in range(SIZE)],
    by={f"k{at}": Item(id=at) for at in range(SIZE)},
    numbers=list(range(SIZE)),
)
BIG_KEPT = copy.deepcopy(BIG_STATE)


@settings(deadline=None, max_examples=200 if SOAK else 6)
@given(programs=st.lists(steps.filter(bool), min_size=1, max_size=2))
def test_a_draft_of_a_big_state_does_what_the_plain_state_does(programs: list[list[Step]]) -> None:
    state, plain = BIG_STATE, clone(BIG_STATE)
    for program in programs:
        near = [(at % 2 * at, op, a, b, k) for at, op, a, b, k in program]  # the root, or any other container
        made: object = None
        before = plain

        def updater(draft: object, near: list[Step] = near, before: object = before) -> None:
            nonlocal made
            made = run_on_both(clone(before), draft, near)

        applied = apply(state, updater)
        assert same(applied.state, made)
        assert same(replay(state, applied.patch), made)
        changed = set(applied.changed_paths)
        for path in diff(state, applied.state):
            assert any(path[:end] in changed for end in range(len(path) + 1)), (path, changed)
        state, plain = applied.state, made
        assert is_flat(flat(state))
    assert same(BIG_STATE, BIG_KEPT)


# --- what it costs ------------------------------------------------------------


def unshared(one: Any, other: Any) -> int:
    """How many elements lie in chunks or layers that only one of two containers has."""
    if isinstance(one, Chunked):
        held = {*map(id, other.chunks())}
        return sum(len(chunk) for chunk in one.chunks() if id(chunk) not in held)
    assert one.layers()[0] is other.layers()[0]
    return sum(map(len, one.layers()[1:]))


def chunked_state() -> Big:
    def touch(draft: Any) -> None:
        draft.items[0].name = "other"
        draft.numbers[0] = -1
        draft.by["k0"].name = "other"

    return apply(BIG_STATE, touch).state


@pytest.mark.parametrize(
    ("change", "where", "most", "paths", "operations"),
    [
        pytest.param(lambda d: setattr(d.items[3], "id", 1_000_000), "items", 1024, 1, 1, id="element"),
        pytest.param(lambda d: d.items.append(Item(id=-1)), "items", 1024, 2, 1, id="append"),
        pytest.param(lambda d: d.items.pop(0), "items", 1024, 1, 1, id="pop-first"),
        pytest.param(lambda d: d.items.append(d.items.pop(0)), "items", 2048, 1, 2, id="to-the-end"),
        pytest.param(lambda d: d.items.pop(), "items", 1024, 2, 1, id="pop-last"),
        pytest.param(lambda d: d.items.insert(700, Item(id=-1)), "items", 1024, 1, 1, id="insert-in-the-middle"),
        pytest.param(lambda d: setattr(d.by["k3"], "id", -1), "by", 2, 1, 1, id="value"),
        pytest.param(lambda d: d.by.__delitem__("k3"), "by", 2, 2, 1, id="del"),
        pytest.param(lambda d: d.by.update(new=Item(id=-1)), "by", 2, 2, 1, id="new-key"),
    ],
)
def test_a_change_of_a_big_container_costs_no_more_than_a_part(
    change: Callable[[Any], None], where: str, most: int, paths: int, operations: int
) -> None:
    state = chunked_state()

    def updater(draft: Any) -> None:
        change(draft)

    applied = apply(state, updater)
    one, other = getattr(applied.state, where), getattr(state, where)
    assert type(one) is type(other) is (Chunked if where == "items" else Layered)
    assert unshared(one, other) <= most
    for name in {"items", "by", "numbers"} - {where}:
        assert getattr(applied.state, name) is getattr(state, name)
    assert len(applied.changed_paths) == paths
    assert len(applied.patch) == operations
    assert held_values(applied.patch) <= 1
    replayed = replay(state, applied.patch)
    assert unshared(getattr(replayed, where), other) <= most


@dataclasses.dataclass
class Told:
    """Counts how often it is looked at."""

    looks: list[int]

    def __getattribute__(self, name: str) -> object:
        if name == "looks":
            object.__getattribute__(self, "__dict__")["looks"].append(1)
        return object.__getattribute__(self, name)


def test_what_two_revisions_share_is_not_looked_at() -> None:
    looks: list[int] = []
    values = [Told(looks) for _ in range(5000)]
    before = Chunked(values)
    after = before.copy()
    after[2000] = 1
    assert list(differing(before, after)) == [(2000, values[2000], 1)]
    assert diff(before, after) == ((2000,),)
    assert not same(before, after)
    keyed = Layered({str(at): value for at, value in enumerate(values)})
    changed = keyed.copy()
    changed["7"] = 1
    assert diff(keyed, changed) == (("7",),)
    assert between(keyed, changed, [("7",)]).operations == (Put(("7",), 1),)
    assert not looks
    assert same(Chunked(values[:5]), Chunked([Told(looks) for _ in range(5)]))
    assert looks, "nothing is counted"


def test_many_writes_in_one_update_copy_each_chunk_once() -> None:
    state = chunked_state()

    def updater(draft: Any) -> None:
        for _ in range(3):
            for at in range(10):
                draft.numbers[at] = -at - 5

    assert unshared(apply(state, updater).state.numbers, state.numbers) <= 1024


def test_a_dict_that_changed_much_has_a_base_of_its_own() -> None:
    first = Layered({f"k{at}": at for at in range(2000)})
    first.has_text_keys()
    one = first
    bases: list[object] = []
    for at in range(1000):
        one = one.copy()
        one[f"k{at}"] = -at
        base = one.layers()[0]
        if not bases or bases[-1] is not base:
            bases.append(base)
        assert sum(len(layer) for layer in one.layers()[1:]) <= 64 + 45
    assert 5 <= len(bases) <= 20
    assert one.has_text_keys()
    assert list(one) == list(first)
    assert first.flat() == {f"k{at}": at for at in range(2000)}


# --- steps of dicts -----------------------------------------------------------


def test_a_key_that_moved_is_told_by_a_look_at_all() -> None:
    before = Layered({"a": 1, "b": 2, "c": 3})
    after = before.copy()
    del after["a"]
    after["a"] = 1
    assert step_between(before, after) is None
    assert diff(before, after) == ((SHAPE,),)
    assert not same(before, after)
    patch = between(before, after, [("a",), (SHAPE,)])
    assert patch.operations == (Remove(("a",)), Put(("a",), 1))
    assert list(replay(before, patch)) == ["b", "c", "a"]
    ordered = between(before, after, [(SHAPE,)])
    assert ordered.operations == (Order((), ("b", "c", "a")),)
    assert list(replay(before, ordered)) == ["b", "c", "a"]


# --- stores --------------------------------------------------------------------


def test_a_store_settles_changes_at_both_ends_of_a_big_list() -> None:
    schema = StateSchema(Big)
    state = schema.validate(chunked_state()).unwrap().state
    assert is_flat(state)
    for turn in range(3):

        def updater(draft: Any) -> None:
            draft.items.append(draft.items.pop(0))
            draft.items[3].name = "early"
            draft.numbers.append(17)
            del draft.by[next(iter(draft.by))]

        change = decide_change(schema, state, updater).unwrap()
        if turn:  # before that the list was plain
            assert len(change.patch_json) < 600
        document = replay_json(schema.encode(state), [change.patch_json])
        assert document == schema.encode(change.state)
        assert same(schema.decode(document).unwrap(), change.state)
        advanced = schema.advance(state, decode(change.patch_json)).unwrap()
        assert same(advanced, change.state)
        state = change.state
    assert state.numbers[-1] == 17
    assert [item.id for item in state.items][:2] == [3, 4]
    assert [item.id for item in state.items][-2:] == [1, 2]


# --- flat ------------------------------------------------------------------------


class Leaf(BaseModel):
    n: int
    word: str | None = None


class Tree(BaseModel):
    leaf: Leaf = Leaf(n=1)
    leaves: list[Leaf] = []
    more: object = None


def test_what_is_flat_is_given_back_itself() -> None:
    for value in (1, [], [Leaf(n=1)] * 3, {"a": [1, {"b": (1, [2])}]}, Tree(), {1, 2}, (1, [2]), Tree(more=[{}])):
        assert flat(value) is value


def test_flat_shares_what_holds_no_chunks_and_changes_nothing() -> None:
    leaf, plain = Leaf(n=2), [1, 2]
    tree = Tree(leaves=[], more=(Layered({"a": Chunked([leaf]), "b": plain}), 1))
    object.__setattr__(tree, "__dict__", {**tree.__dict__, "leaves": Chunked([leaf])})
    made: Any = flat(tree)
    assert isinstance(made, Tree)
    assert is_flat(made)
    assert not is_flat(tree)
    assert made.leaves == [leaf]
    assert made.leaves[0] is leaf
    assert made.leaf is tree.leaf
    assert made.more == ({"a": [leaf], "b": plain}, 1)
    assert isinstance(made.more, tuple)
    assert made.more[0]["b"] is plain
    assert same(made, clone(tree))


def test_a_small_container_is_copied_plain_and_a_big_one_is_not() -> None:
    assert type(copy_list([1] * BIG)) is list
    keyed: dict[object, object] = {at: None for at in range(BIG)}  # noqa: C420  # whose type would be another
    assert type(copy_dict(keyed)) is dict
    assert isinstance(copy_list([1] * (BIG + 1)), Chunked)
    keyed[BIG] = None
    assert isinstance(copy_dict(keyed), Layered)
    assert isinstance(copy_list(copy_list([1] * (BIG + 1))), Chunked)


def test_what_users_get_of_a_draft_is_plain() -> None:
    seen: list[Any] = []

    def updater(draft: Any) -> None:
        draft.numbers.append(1)
        draft.by["new"] = Item(id=1)
        seen.extend([draft.numbers.copy(), copy.deepcopy(draft), draft.model_dump(), draft.numbers[:]])
        assert type(draft.by.copy()) is dict
        assert type(draft.by | {}) is dict

    apply(BIG_STATE, updater)
    assert all(map(is_flat, seen))
    found, _ = track_reads(chunked_state(), lambda view: (view, view.numbers, {"by": view.by}, view.items[1:3]))
    assert is_flat(found)
