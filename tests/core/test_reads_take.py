"""Taking: a selector finds, a claim changes what was found, and what was found is handed back as it is then."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import gc
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import BaseModel, RootModel

from stepwell.core.draft import DraftEnded, apply, run, take, track_reads
from stepwell.core.paths import SHAPE
from stepwell.core.value import same

from .programs import poke
from .reading import FAMILIES, Read, reads, run_reads

T: dict[str, Any] = {"messages": [{"id": "msg-1"}, {"id": "msg-2"}], "n": 1}


class Job(BaseModel):
    id: int
    owner: str | None = None
    tags: list[str] = []


class Lines(RootModel[list[Job]]):
    pass


class Board(BaseModel):
    jobs: list[Job] = []
    by: dict[str, Job] = {}
    by_number: dict[int, Job] = {}
    lines: Lines = Lines([])
    pair: tuple[Job, int] = (Job(id=9), 1)
    numbers: set[int] = set()


def board() -> Board:
    return Board(
        jobs=[Job(id=at) for at in range(3)],
        by={"a": Job(id=7)},
        by_number={4: Job(id=4)},
        lines=Lines([Job(id=5)]),
    )


def first_free(state: Any) -> Any:
    return next((message for message in state["messages"] if "claimed_by" not in message), None)


def claim(draft: Any, message: Any) -> None:
    message["claimed_by"] = "worker"


def test_s39_what_was_taken_shows_what_the_claim_did() -> None:
    before = copy.deepcopy(T)
    took = take(T, first_free, claim)
    assert took.selected == {"id": "msg-1", "claimed_by": "worker"}
    assert took.drafted is not None
    assert took.drafted.state == {"messages": [took.selected, {"id": "msg-2"}], "n": 1}
    assert took.drafted.written == (("messages", 0, "claimed_by"), ("messages", 0, SHAPE))
    assert same(T, before)
    again = take(took.drafted.state, first_free, claim)
    assert again.selected == {"id": "msg-2", "claimed_by": "worker"}


def test_s64_what_was_taken_is_apart_from_the_state() -> None:
    took = take(T, first_free, claim)
    assert took.drafted is not None
    assert isinstance(took.selected, dict)
    took.selected["claimed_by"] = "mine"
    assert took.drafted.state["messages"][0]["claimed_by"] == "worker"


def test_s41_nothing_was_found_and_what_was_read_says_where_it_may_come() -> None:
    took: Any = take({"messages": []}, first_free, claim)
    assert (took.selected, took.read_paths, took.drafted) == (None, (("messages", SHAPE),), None)


@pytest.mark.parametrize("found", [0, "", [], {}, True, 0.0, ()])
def test_s43_all_but_none_and_false_match(found: object) -> None:
    took: Any = take(T, lambda _: found, lambda d, _: d.update(n=2))
    assert took.drafted is not None
    assert same(took.selected, found)
    assert took.drafted.state["n"] == 2


@pytest.mark.parametrize("found", [None, False])
def test_s43_none_and_false_miss(found: Any) -> None:
    def never(draft: Any, selected: Any) -> None:
        raise AssertionError("a claim ran, although nothing was found")

    took: Any = take(T, lambda _: found, never)
    assert (took.selected, took.read_paths, took.drafted) == (found, ((),), None)


@pytest.mark.parametrize(
    "remove",
    [
        lambda d, s: d["messages"].remove(s),
        lambda d, s: d["messages"].pop(0),
        lambda d, s: d["messages"].__delitem__(0),
        lambda d, s: d.update(messages=d["messages"][1:]),
    ],
)
def test_s44_what_the_claim_removes_is_still_handed_back(remove: Callable[[Any, Any], object]) -> None:
    took = take(T, first_free, remove)
    assert took.selected == {"id": "msg-1"}
    assert took.drafted is not None
    assert took.drafted.state["messages"] == [{"id": "msg-2"}]


@pytest.mark.parametrize(
    "selector",
    [
        lambda s: [m for m in s["messages"] if m["id"] > "msg-1"],
        lambda s: {m["id"]: m for m in s["messages"][1:]},
        lambda s: (m for m in [s["messages"][-1]]) and (s["messages"][-1],),
        lambda s: {"deep": [(1, [s["messages"][1]])]},
        lambda s: defaultdict(list, {"x": s["messages"][1:]}),
        lambda s: s["messages"][1],
    ],
)
def test_s45_what_was_found_holds_the_drafts_of_the_state(selector: Callable[[Any], Any]) -> None:
    def each(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return each(value[-1])
        return value if "id" in value else each([*value.values()][-1])

    def change(draft: Any, found: Any) -> None:
        assert each(found) is draft["messages"][1]
        each(found)["claimed_by"] = "worker"

    took = take(T, selector, change)
    assert took.drafted is not None
    assert took.drafted.state["messages"][1]["claimed_by"] == "worker"
    assert ("messages", 1, "claimed_by") in (took.drafted.written or ())
    assert each(took.selected) == {"id": "msg-2", "claimed_by": "worker"}


@pytest.mark.parametrize(
    ("selector", "at"),
    [
        (lambda s: s.jobs[1], lambda s: s.jobs[1]),
        (lambda s: next(j for j in s.jobs if j.id == 2), lambda s: s.jobs[2]),
        (lambda s: s.by["a"], lambda s: s.by["a"]),
        (lambda s: next(iter(s.by_number.values())), lambda s: s.by_number[4]),
        (lambda s: s.lines.root[0], lambda s: s.lines.root[0]),
        (lambda s: s.pair[0], lambda s: s.pair[0]),
        (lambda s: vars(s)["jobs"][0], lambda s: s.jobs[0]),
    ],
)  # fmt: skip
def test_s45_models_are_found_as_drafts_wherever_they_are(
    selector: Callable[[Any], Any], at: Callable[[Any], Any]
) -> None:
    state = board()
    before = copy.deepcopy(state)

    def change(draft: Any, job: Any) -> None:
        assert job is at(draft)
        assert isinstance(job, Job)
        job.owner = "w"
        job.tags.append("t")

    took = take(state, selector, change, frozenset({str, int}))
    assert took.drafted is not None
    assert at(took.drafted.state).owner == "w"
    assert same(took.selected, at(took.drafted.state))
    assert same(state, before)
    assert took.drafted.written == apply(before, lambda d: change(d, at(d))).changed_paths


def test_sets_and_whole_states_are_found_as_drafts() -> None:
    took = take(board(), lambda s: s.numbers, lambda d, numbers: numbers.add(3))
    assert took.selected == {3}
    assert took.drafted is not None
    assert took.drafted.written == (("numbers",),)
    whole: Any = take(T, lambda s: s, lambda d, s: s.update(n=s["n"] + d["n"]))
    assert whole.selected == {**T, "n": 2}


def test_an_element_found_in_a_long_scan_is_found_as_its_own_draft() -> None:
    state: Any = {"messages": [{"id": str(at)} for at in range(500)], "n": 1}
    took = take(state, lambda s: next(m for m in s["messages"] if m["id"] == "321"), claim)
    assert took.drafted is not None
    assert took.drafted.written == (("messages", 321, "claimed_by"), ("messages", 321, SHAPE))


def test_the_selector_runs_once_and_may_not_change_the_state() -> None:
    calls: list[object] = []

    def counted(state: Any) -> Any:
        calls.append(state["n"])
        return state["n"]

    def changing(state: Any) -> Any:
        state["n"] = 2

    take(T, counted, lambda d, n: d.update(n=n + 1))
    assert calls == [1]
    with pytest.raises(TypeError, match="selectors must not change state"):
        take(T, changing, claim)


async def _async(draft: Any, message: Any) -> None:
    message["claimed_by"] = "never"


def _generator(draft: Any, message: Any) -> Any:
    yield message


@pytest.mark.parametrize("wrong", [_async, _generator, lambda d, m: _async(d, m)])
def test_a_claim_is_an_ordinary_function(wrong: Any) -> None:
    before = copy.deepcopy(T)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match=r"the claim .* must be an ordinary function"):
            take(T, first_free, wrong)
        with pytest.raises(TypeError, match=r"the selector .* must be an ordinary function"):
            take(T, lambda s: _async(s, s), claim)
        gc.collect()
    assert same(T, before)


@pytest.mark.parametrize("value", [1, [2], "text", None])
def test_what_a_claim_returns_is_ignored(value: object) -> None:
    took = take(T, first_free, lambda d, m: (m.update(x=1), value)[1])
    assert took.selected == {"id": "msg-1", "x": 1}


def test_what_a_claim_raises_is_passed_on_and_leaves_nothing() -> None:
    before = copy.deepcopy(T)

    def wrong(draft: Any, message: Any) -> None:
        message["claimed_by"] = "x"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        take(T, first_free, wrong)
    assert same(T, before)


def test_s59_views_are_dead_in_the_claim_and_drafts_after_it() -> None:
    kept: list[Any] = []

    def select(state: Any) -> Any:
        kept.append(state["messages"])
        return first_free(state)

    def look(draft: Any, message: Any) -> None:
        with pytest.raises(DraftEnded):
            len(kept[0])
        kept.extend([draft, message])

    take(T, select, look)
    for draft in kept:
        with pytest.raises(DraftEnded):
            len(draft)


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None)
@given(selector=reads)
def test_a_claim_changes_the_state_through_whatever_was_found(family: str, selector: list[Read]) -> None:
    state = FAMILIES[family]()
    before = copy.deepcopy(state)

    def select(of: Any) -> Any:
        return run_reads(of, selector)[1]

    def change(draft: Any, found: Any) -> None:
        poke(found, 3)

    try:
        took: Any = take(state, select, change, frozenset({str, int}))
    except (AttributeError, TypeError):
        return  # nothing that can be changed so
    assert same(state, before)
    assert took.read_paths == track_reads(state, select)[1]
    expected = run(before, lambda draft: change(draft, select(draft)), frozenset({str, int}))
    if took.drafted is not None:
        assert set(took.drafted.written) == set(expected.written or ())
        assert same(took.drafted.state, expected.state)
