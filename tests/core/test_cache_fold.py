"""The fold of the step cache: its cases, and what holds for any entries in any order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce as fold_left
from types import MappingProxyType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stepwell.core.cache_fold import EVENT_TYPE, PROJECTION, RETIRING, State, candidates, initial, reduce, ref_id
from stepwell.core.journal import Entry
from stepwell.core.step_cache import RecordedRef

ROW = RecordedRef("k", "run-a", 3)
OTHER_ACTIONS = ("recorded", "hit", "ttl", "conflict_first_writer", "unpublished", "unverified_read_set")


def entry(action: str, ref: RecordedRef = ROW, *, run_id: str = "run-z", seq: int = 0) -> Entry:
    return with_payload({"action": action, **members(ref)}, run_id=run_id, seq=seq)


def members(ref: RecordedRef) -> dict[str, object]:
    return {
        "key_digest": ref.key_digest,
        "recorded_run_id": ref.recorded_run_id,
        "recorded_event_seq": ref.recorded_event_seq,
    }


def with_payload(payload: object, *, event_type: str = EVENT_TYPE, run_id: str = "run-z", seq: int = 0) -> Entry:
    return Entry(run_id, seq, event_type, payload, None, 0, None)


def fold(entries: Iterable[Entry]) -> State:
    return fold_left(PROJECTION.reduce, entries, PROJECTION.initial())


# --- cases ------------------------------------------------------------------


def test_f10_a_row_is_retired_by_an_entry_before_its_admission() -> None:
    state = fold([entry("stale_read_set"), entry("admitted")])
    assert state.admitted == state.retired == {ROW}
    assert candidates(state) == ()


@pytest.mark.parametrize("reason", ["host", "corruption", "incompatible-age-history", None])
def test_f11_a_failed_replay_retires_for_any_reason(reason: str | None) -> None:
    failed = {"action": "replay_failed", **members(ROW)} | ({} if reason is None else {"reason": reason})
    assert candidates(fold([entry("admitted"), with_payload(failed)])) == ()


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param({"action": "ttl", "verdict": "expired"}, id="ttl-expired"),
        pytest.param({}, id="hit"),  # a hit has no member `action`
        pytest.param({"action": "hit"}, id="hit-by-name"),
        *({"action": action} for action in ("recorded", "conflict_first_writer", "unpublished", "unverified_read_set")),
    ],
)
def test_f12_an_action_that_tells_of_no_change_changes_nothing(payload: dict[str, object]) -> None:
    before = fold([entry("admitted")])
    assert reduce(before, with_payload({**payload, **members(ROW)})) is before


MALFORMED: Mapping[str, object] = {
    "seq-text": {"action": "admitted", **members(ROW), "recorded_event_seq": "1"},
    "seq-bool": {"action": "admitted", **members(ROW), "recorded_event_seq": True},
    "seq-whole-float": {"action": "admitted", **members(ROW), "recorded_event_seq": 1.0},
    "seq-fraction": {"action": "admitted", **members(ROW), "recorded_event_seq": 1.5},
    "seq-nan": {"action": "admitted", **members(ROW), "recorded_event_seq": float("nan")},
    "run-number": {"action": "admitted", **members(ROW), "recorded_run_id": 1},
    "key-null": {"action": "admitted", **members(ROW), "key_digest": None},
    "action-list": {"action": ["admitted"], **members(ROW)},
    "none": None,
    "list": [],
    "text": "admitted",
    **{
        f"without-{left_out}": {name: value for name, value in members(ROW).items() if name != left_out}
        | {"action": "admitted"}
        for left_out in members(ROW)
    },
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_f13_a_payload_that_makes_no_sense_changes_nothing(payload: object) -> None:
    before = fold([entry("admitted", RecordedRef("k", "run-b", 1))])
    assert reduce(before, with_payload(payload)) is before


def test_f13_an_entry_of_another_type_changes_nothing() -> None:
    before = initial()
    assert reduce(before, with_payload({"action": "admitted", **members(ROW)}, event_type="step-completed")) is before


def test_f14_rows_of_two_runs_under_one_key_and_number_are_two_rows() -> None:
    other = RecordedRef("k", "run-b", 3)
    state = fold([entry("admitted", ROW), entry("admitted", other), entry("expired", other)])
    assert candidates(state) == (ROW,)


def test_f15_a_row_admitted_twice_counts_once() -> None:
    state = fold([entry("admitted", seq=1), entry("admitted", seq=2)])
    assert state.admitted == {ROW}
    assert candidates(state) == (ROW,)


def test_f16_folding_with_the_projection_is_reducing_by_hand() -> None:
    later = RecordedRef("k", "run-a", 9)
    entries = [entry("admitted", seq=1), entry("hit", seq=2), entry("removed", seq=3), entry("admitted", later, seq=4)]
    by_hand = initial()
    for one in entries:
        by_hand = reduce(by_hand, one)
    assert fold(entries) == by_hand
    assert by_hand == State(admitted=[ROW, later], retired=[ROW])


# --- single rules -----------------------------------------------------------


@pytest.mark.parametrize("action", RETIRING)
def test_each_retiring_action_retires_also_from_another_run(action: str) -> None:
    state = fold([entry("admitted", run_id="run-a"), entry(action, run_id="run-b")])
    assert state == State(admitted=[ROW], retired=[ROW])


def test_two_rows_in_force_under_one_key_give_no_candidate_and_leave_other_keys_alone() -> None:
    first, second = RecordedRef("k", "run-a", 1), RecordedRef("k", "run-a", 2)
    state = fold(entry("admitted", ref) for ref in (first, second, RecordedRef("l", "run-a", 1)))
    assert candidates(state) == (RecordedRef("l", "run-a", 1),)
    assert first in candidates(reduce(state, entry("removed", second)))


def test_candidates_come_in_order_of_their_key() -> None:
    refs = [RecordedRef(key, "run-a", 1) for key in "cab"]
    assert [ref.key_digest for ref in candidates(fold(entry("admitted", ref) for ref in refs))] == ["a", "b", "c"]


def test_a_payload_may_be_any_mapping() -> None:
    frozen = MappingProxyType({"action": "admitted", **members(ROW)})
    assert candidates(reduce(initial(), with_payload(frozen))) == (ROW,)


@pytest.mark.parametrize("name", ["admitted", "retired", "anything"])
def test_a_state_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(initial(), name, frozenset())


def test_the_names_that_stand_in_journals_are_fixed() -> None:
    assert EVENT_TYPE == "stepwell.cache-provenance"
    assert RETIRING == ("expired", "stale_read_set", "replay_failed", "removed")


# --- properties -------------------------------------------------------------

REFS = st.builds(RecordedRef, st.sampled_from("kl"), st.sampled_from(["run-a", "run-b"]), st.integers(0, 2))
ENTRIES = st.builds(entry, st.sampled_from(["admitted", *RETIRING, *OTHER_ACTIONS]), REFS)
JOURNALS = st.lists(ENTRIES, max_size=30)

MEMBER_NAMES = ["action", *members(ROW)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(MEMBER_NAMES), inner),
    max_leaves=8,
)
TEXTS = st.text('",[]\\ a') | st.text(st.characters(exclude_categories=()))
ANY_REFS = st.builds(RecordedRef, TEXTS, TEXTS, st.integers(-2, 12))


@given(st.lists(st.tuples(st.sampled_from(["admitted", *RETIRING, *OTHER_ACTIONS]), REFS)))
def test_the_state_is_what_was_ever_admitted_and_what_was_ever_retired(told: list[tuple[str, RecordedRef]]) -> None:
    state = fold(entry(action, ref) for action, ref in told)
    assert state.admitted == {ref for action, ref in told if action == "admitted"}
    assert state.retired == {ref for action, ref in told if action in RETIRING}
    assert state == State(state.admitted, state.retired)


@given(JOURNALS)
def test_candidates_are_the_rows_in_force_that_are_alone_under_their_key(entries: list[Entry]) -> None:
    state = fold(entries)
    in_force = state.admitted - state.retired
    keys = [ref.key_digest for ref in in_force]
    assert set(candidates(state)) == {ref for ref in in_force if keys.count(ref.key_digest) == 1}
    assert list(candidates(state)) == sorted(candidates(state), key=lambda ref: ref.key_digest)


@given(st.data(), JOURNALS)
def test_any_order_and_so_any_interleaving_of_runs_gives_one_state(data: st.DataObject, entries: list[Entry]) -> None:
    reordered = fold(data.draw(st.permutations(entries)))
    assert reordered == fold(entries)
    assert hash(reordered) == hash(fold(entries))
    assert candidates(reordered) == candidates(fold(entries))


@given(JOURNALS)
def test_an_entry_that_was_folded_before_changes_nothing(entries: list[Entry]) -> None:
    state = fold(entries)
    assert all(reduce(state, again) is state for again in entries)


@given(JOURNALS, ENTRIES)
def test_rows_are_only_ever_added_and_an_equal_state_is_the_same_object(entries: list[Entry], one: Entry) -> None:
    before = fold(entries)
    after = reduce(before, one)
    assert before.admitted <= after.admitted
    assert before.retired <= after.retired
    assert (after == before) == (after is before)


@given(JOURNALS, JOURNALS, JOURNALS)
def test_a_state_stays_as_it_is_whatever_is_folded_onto_it(first: list[Entry], a: list[Entry], b: list[Entry]) -> None:
    base = fold(first)
    onto_a, onto_b = fold_left(reduce, a, base), fold_left(reduce, b, base)
    assert base == fold(first)
    assert onto_a == fold([*first, *a])
    assert onto_b == fold([*first, *b])


@given(JSON)
def test_no_json_at_all_makes_the_fold_fail(payload: object) -> None:
    state = reduce(initial(), with_payload(payload))
    assert state.admitted | state.retired == set() or isinstance(payload, dict)


@given(st.sampled_from(["admitted", *RETIRING]), REFS, st.sampled_from(MEMBER_NAMES), JSON)
def test_a_member_of_the_wrong_type_changes_nothing(action: str, ref: RecordedRef, member: str, value: object) -> None:
    assume(not isinstance(value, int if member == "recorded_event_seq" else str) or isinstance(value, bool))
    before = initial()
    assert reduce(before, with_payload({"action": action, **members(ref), member: value})) is before


@given(ANY_REFS, ANY_REFS)
def test_a_row_has_one_name_and_no_other_row_has_it(one: RecordedRef, other: RecordedRef) -> None:
    assert json.loads(ref_id(one)) == list(members(one).values())
    assert (ref_id(one) == ref_id(other)) == (one == other)


def test_the_name_of_a_row_is_a_compact_json_array() -> None:
    assert ref_id(RecordedRef('k"1', "läuf", 7)) == '["k\\"1","läuf",7]'
