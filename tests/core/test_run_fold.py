"""A run as its journal tells it: the fold says what the rows say, at any moment, and survives any entry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce as fold
from hashlib import sha256

from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.core.codec import read_error
from stepwell.core.journal import Entry
from stepwell.core.run_events import RUN_EVENTS
from stepwell.core.run_fold import PROJECTION, ToldRun, initial, reduce
from stepwell.core.step import StepRow

from .run_lives import LIVES, NOW_MS, Life

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def wrong(payload: Mapping[str, object]) -> object:
    """An object with members of the wrong types."""
    return {**payload, "key": 1, "at_ms": "now"}


NONSENSE = st.none() | st.integers() | st.text() | st.lists(JSON) | st.dictionaries(st.text(), JSON).map(wrong)


def folded(entries: list[Entry]) -> ToldRun:
    return fold(reduce, entries, initial())


def result_of(row: StepRow) -> str | None:
    return sha256(row.value).hexdigest() if row.status == "done" and row.value is not None else None


@given(LIVES)
def test_the_fold_says_what_the_rows_say(life: Life) -> None:
    run, row = folded(life.entries()), life.row
    assert (run.workflow, run.state, run.owner) == (row.workflow, row.state, row.owner)
    assert run.cancel_requested == row.cancel_requested
    assert {key: step.status for key, step in run.steps.items()} == {
        key: step.status for key, step in life.steps.items()
    }
    for key, step in life.steps.items():
        facts = run.steps[key].facts
        assert (facts.kind, facts.target, facts.attempt) == (step.kind, step.target, step.attempt)
        assert (facts.position, facts.at_ms, facts.result) == (step.position, step.at_ms, result_of(step))
    if row.state == "completed":
        assert run.result == sha256(row.outcome or b"").hexdigest()
    if row.state == "failed":
        assert run.error == read_error(row.outcome or b"")[0].type


@given(LIVES, st.data())
def test_a_state_is_not_changed_by_what_is_folded_on_from_it(life: Life, data: st.DataObject) -> None:
    entries = life.entries()
    upto = data.draw(st.integers(0, len(entries)))
    before = folded(entries[:upto])
    steps = before.steps
    after = fold(reduce, entries[upto:], before)
    assert before.steps == steps
    assert fold(reduce, entries[upto:], before) == after == folded(entries)


COUNTED = ("stepwell.run-cancel-requested", "stepwell.signal-sent")
"""Of these the type says all that the fold asks for."""


@given(LIVES, st.sampled_from([each for each in RUN_EVENTS if each not in COUNTED]), NONSENSE)
@example(Life(is_claimed=True), "stepwell.step-completed", {"key": "a"})
@example(Life(is_claimed=True), "stepwell.step-completed", {"key": "a", "kind": "step", "position": "1"})
@example(Life(is_claimed=True), "stepwell.run-claimed", {"fence": "1"})
@example(Life(is_claimed=True), "stepwell.run-started", {"owner": 1})
def test_an_entry_that_makes_no_sense_changes_nothing(life: Life, event_type: str, payload: object) -> None:
    run = folded(life.entries())
    assert reduce(run, Entry("r", 99, event_type, payload, None, NOW_MS, None)) is run


@given(LIVES, JSON)
def test_an_entry_of_another_type_changes_nothing(life: Life, payload: object) -> None:
    run = folded(life.entries())
    assert reduce(run, Entry("r", 99, "mine", payload, None, NOW_MS, None)) is run


def test_the_projection_is_the_fold() -> None:
    assert (PROJECTION.initial, PROJECTION.reduce) == (initial, reduce)
