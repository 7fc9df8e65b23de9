"""The life of a run as a table: which events are legal, where they lead, and the diagram of it in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.run import ENDED, TRANSITIONS, RunEvent, RunRow, RunState, diagram, next_state

STATES: tuple[RunState, ...] = get_args(RunState)
EVENTS: tuple[RunEvent, ...] = get_args(RunEvent)
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_an_event_leads_where_the_table_says_or_is_illegal(state: RunState, event: RunEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) == TRANSITIONS[state, event]
    else:
        with pytest.raises(LookupError, match=f"a run that is {state} cannot {event}"):
            _ = next_state(state, event)


def test_the_table_knows_all_states_and_events_and_no_others() -> None:
    assert {state for state, _ in TRANSITIONS} == set(STATES) - {"completed", "cancelled"}
    assert {event for _, event in TRANSITIONS} == set(EVENTS)
    assert set(TRANSITIONS.values()) == set(STATES) - {"pending"}


@given(st.lists(st.sampled_from(EVENTS)))
def test_nothing_follows_an_end_but_reopening_and_nothing_leads_back_to_the_beginning(events: list[RunEvent]) -> None:
    state: RunState = "pending"
    for event in events:
        try:
            state = next_state(state, event)
        except LookupError:
            continue
        assert state != "pending"
    if state in ENDED:
        following = [event for event in EVENTS if (state, event) in TRANSITIONS]
        assert following == (["resume"] if state == "failed" else [])


def test_every_state_can_come_to_an_end() -> None:
    reaching: set[RunState] = set(ENDED)
    for _ in STATES:
        reaching |= {before for (before, _), after in TRANSITIONS.items() if after in reaching}
    assert reaching == set(STATES)
    assert all(("cancel" in {event for before, event in TRANSITIONS if before == state}) for state in reaching - ENDED)


@pytest.mark.parametrize("state", STATES)
def test_a_row_knows_whether_it_has_ended(state: RunState) -> None:
    row = RunRow(id="r", workflow="w", state=state, created_at_ms=0, updated_at_ms=0)
    assert row.ended is (state in ("completed", "failed", "cancelled"))


def test_the_docs_show_the_table_as_it_is() -> None:
    pages = [page.read_text("utf-8") for page in DOCS.glob("*.md")]
    assert any(f"```mermaid\n{diagram()}\n```" in page for page in pages)
