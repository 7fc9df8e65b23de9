"""What journals prove of heads: the same as the fold, in any order; and what a gap takes away from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.cache_fold import EVENT_TYPE, PROJECTION, RETIRING, State, candidates
from stepwell.core.cache_rebuild import Gap, Proof, count_differences, difference
from stepwell.core.cache_verdict import Difference, Explanation
from stepwell.core.entry import EntryRow
from stepwell.core.journal import SAFE_INTEGER, Entry
from stepwell.core.provenance import Found, read_carried, write_carried
from stepwell.core.step_cache import RecordedRef

MEMBERS = ("action", "key_digest", "recorded_run_id", "recorded_event_seq", "reason")

ACTIONS = st.sampled_from(["admitted", "admitted", *RETIRING, "recorded", "hit", "ttl"])
REFS = st.builds(RecordedRef, st.sampled_from("kl"), st.sampled_from("ab"), st.integers(0, 2))
RUNS = st.sampled_from("abc")
SAID = st.lists(st.tuples(ACTIONS, REFS, RUNS), max_size=25)

NUMBERS = st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.sampled_from([1.0, -0.0, 0, 1, 2]) | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS.filter(lambda number: number - number == 0) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.sampled_from(["k", "l", "a", "", "admitted", "expired", "removed"])
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["admitted", *RETIRING, "hit"]) | JSON,
        "key_digest": TEXTS | JSON,
        "recorded_run_id": TEXTS | JSON,
        "recorded_event_seq": st.integers(0, 3) | st.booleans() | st.sampled_from([1.0, "1"]) | JSON,
        "reason": TEXTS | JSON,
        "more": JSON,
    },
)


def payload(action: str, ref: RecordedRef) -> dict[str, object]:
    return dict(zip(MEMBERS, (action, ref.key_digest, ref.recorded_run_id, ref.recorded_event_seq), strict=False))


def stored(payloads: Iterable[object], run_ids: Sequence[str] = ()) -> list[EntryRow]:
    """Entries as a ledger keeps them, in the order of their commits."""
    return [
        EntryRow(run_id, no, EVENT_TYPE, 0, None, msgspec.json.encode(said), None, spilled=False, chain=b"", no=no + 1)
        for no, (run_id, said) in enumerate(zip(run_ids or repeat("z"), payloads, strict=False))
    ]


def entries_of(said: Iterable[tuple[str, RecordedRef, str]]) -> list[EntryRow]:
    told = list(said)
    return stored([payload(action, ref) for action, ref, _ in told], [run for _, _, run in told])


def handed_out(entry: EntryRow) -> Entry:
    return Entry(entry.run_id, entry.seq, entry.event_type, msgspec.json.decode(entry.payload), None, 0, None)


def folded(entries: Iterable[EntryRow]) -> State:
    state = PROJECTION.initial()
    for entry in entries:
        state = PROJECTION.reduce(state, handed_out(entry))
    return state


def proof_of(entries: Iterable[EntryRow], gaps: Iterable[Gap] = ()) -> Proof:
    proof = Proof()
    _ = proof.add(entries)
    for gap in gaps:
        proof.add_gap(gap)
    return proof


def as_state(found: Found) -> State:
    return State((RecordedRef(*row) for row in found.admitted), (RecordedRef(*row) for row in found.retired))


def all_explained(proof: Proof, live: dict[str, RecordedRef] | None = None) -> list[Explanation]:
    """Of every key, all that is said of it; each row is recorded."""
    heads = live or {}
    return [proof.explain(key, heads.get(key), recorded=True) for key in sorted(proof.keys() | heads.keys())]


def in_full(explained: Iterable[Explanation]) -> list[tuple[object, ...]]:
    return [(each, each.action, each.reason, each.run_id, each.seq, each.rows) for each in explained]


# --- what is found ----------------------------------------------------------------


@given(st.lists(LIKELY | JSON, max_size=6))
def test_what_is_found_is_what_the_fold_finds_whatever_the_payloads(payloads: list[object]) -> None:
    entries = stored(payloads)
    assert as_state(Found.of(entries)) == folded(entries)


@pytest.mark.parametrize("reason", [None, "host", 5, [], {}, True])
def test_a_reason_of_any_kind_retires(reason: object) -> None:
    said = payload("expired", RecordedRef("k", "a", 1)) | {"reason": reason}
    (retirement,) = Found.of(stored([said])).retired.values()
    assert retirement.reason == (reason if isinstance(reason, str) else None)


@given(SAID)
def test_candidates_are_those_of_the_fold(said: list[tuple[str, RecordedRef, str]]) -> None:
    entries = entries_of(said)
    proof = proof_of(entries)
    assert tuple(sorted(proof.candidates({}), key=lambda ref: ref.key_digest)) == candidates(folded(entries))


@given(SAID, st.lists(st.tuples(RUNS, st.integers(0, 30)), max_size=1), st.lists(REFS, max_size=4))
def test_a_candidate_that_is_the_head_is_that_very_object(
    said: list[tuple[str, RecordedRef, str]], ends: list[tuple[str, int]], heads: list[RecordedRef]
) -> None:
    proof = proof_of(entries_of(said), [Gap(run, end) for run, end in ends])
    live = {ref.key_digest: ref for ref in heads}
    found = list(proof.candidates(live))
    assert found == list(proof.candidates({}))
    assert found == [ref for ref in map(proof.candidate, dict.fromkeys(ref.key_digest for ref in found)) if ref]
    assert all((live.get(ref.key_digest) == ref) == (live.get(ref.key_digest) is ref) for ref in found)


@given(st.data(), SAID, st.lists(st.tuples(RUNS, st.integers(0, 30)), max_size=2))
def test_any_order_of_entries_proves_the_same(
    data: st.DataObject, said: list[tuple[str, RecordedRef, str]], ends: list[tuple[str, int]]
) -> None:
    entries = entries_of(said)
    gaps = [Gap(run, end) for run, end in dict(ends).items()]
    live = data.draw(st.dictionaries(st.sampled_from("kl"), REFS, max_size=2))
    heads = {key: RecordedRef(key, ref.recorded_run_id, ref.recorded_event_seq) for key, ref in live.items()}
    reordered = proof_of(data.draw(st.permutations(entries)), gaps)
    assert in_full(all_explained(reordered, heads)) == in_full(all_explained(proof_of(entries, gaps), heads))


@given(st.data(), SAID)
def test_what_is_carried_proves_what_its_entries_did_however_often(
    data: st.DataObject, said: list[tuple[str, RecordedRef, str]]
) -> None:
    entries = entries_of(said)
    gone = data.draw(st.sets(st.sampled_from(range(len(entries))))) if entries else set[int]()
    carried = read_carried(write_carried(Found.of(entries[at] for at in sorted(gone)).carried()))
    assert carried is not None
    proof = Proof()
    left = [entry for at, entry in enumerate(entries) if at not in gone]
    for step in data.draw(st.permutations(["entries", "carried", "carried"])):
        _ = proof.add(left) if step == "entries" else proof.union(carried)
    assert in_full(all_explained(proof)) == in_full(all_explained(proof_of(entries)))


@given(SAID)
def test_the_keys_of_which_something_is_said_are_told(said: list[tuple[str, RecordedRef, str]]) -> None:
    proof = Proof()
    keys = proof.add(entries_of(said))
    assert set(keys) == proof.keys()
    assert proof.keys() == {ref.key_digest for action, ref, _ in said if action == "admitted" or action in RETIRING}


# --- gaps -------------------------------------------------------------------------


@given(st.data(), SAID)
def test_a_row_that_is_proven_in_spite_of_a_gap_is_what_it_is_without_one(
    data: st.DataObject, said: list[tuple[str, RecordedRef, str]]
) -> None:
    """Whatever the entries before its end were, of which some are lost: no other row becomes a candidate by that."""
    # A row is retired after it was admitted; where that does not hold, nothing can be said of what is lost.
    admitted: set[RecordedRef] = set()
    history: list[tuple[str, RecordedRef, str]] = []
    for action, ref, run_id in said:
        if action == "admitted":
            admitted.add(ref)
        if ref in admitted or action not in RETIRING:
            history.append((action, ref, run_id))
    entries = entries_of(history)
    run, end = data.draw(RUNS), data.draw(st.integers(0, len(entries)))
    left = [entry for entry in entries if entry.run_id != run or entry.no >= end]
    with_gap = set(proof_of(left, [Gap(run, end)]).candidates({}))
    in_force = {RecordedRef(*row) for row in folded(entries).in_force()}
    assert with_gap <= in_force


@given(SAID, RUNS)
def test_a_gap_whose_end_is_not_known_proves_nothing(said: list[tuple[str, RecordedRef, str]], run: str) -> None:
    proof = proof_of(entries_of(said), [Gap(run, None)])
    assert list(proof.candidates({})) == []
    assert not {each.verdict for each in all_explained(proof)} & {"restored", "ledger_missing", "ambiguous"}


def test_a_gap_ends_with_the_entry_that_was_kept() -> None:
    entries = stored([payload("admitted", RecordedRef(key, "b", 1)) for key in "klm"])
    proof = proof_of(entries, [Gap("a", 2)])
    told = {each.key_digest: (each.verdict, each.run_id) for each in all_explained(proof)}
    assert told == {"k": ("unproven", "a"), "l": ("restored", None), "m": ("restored", None)}


def test_of_several_gaps_the_first_that_may_hide_it_is_named() -> None:
    entries = stored([payload("admitted", RecordedRef("k", "b", 1))])
    proof = proof_of(entries, [Gap("c", 9), Gap("a", 1), Gap("b", None)])
    assert [each.run_id for each in all_explained(proof)] == ["b"]


def test_what_a_run_with_a_gap_recorded_may_have_been_admitted_in_it() -> None:
    proof = Proof()
    lost, other = RecordedRef("k", "a", 1), RecordedRef("l", "b", 1)
    proof.add_gap(Gap("a", 5), [lost])
    told = in_full(all_explained(proof, {"k": lost, "l": other}))
    assert told == in_full(
        [Explanation("k", "unproven", lost, run_id="a", rows=(lost,)), Explanation("l", "not_admitted", other)]
    )
    assert in_full(all_explained(proof)) == told[:1]


def test_a_row_of_a_run_with_a_gap_that_is_known_to_be_retired_is_retired() -> None:
    lost = RecordedRef("k", "a", 1)
    proof = proof_of(stored([payload("expired", lost)]))
    proof.add_gap(Gap("a", 5), [lost])
    assert [each.verdict for each in all_explained(proof)] == ["retired"]


# --- single keys ------------------------------------------------------------------


def test_two_rows_are_named_in_the_order_of_their_admissions() -> None:
    first, second = RecordedRef("k", "b", 1), RecordedRef("k", "a", 1)
    (explained,) = all_explained(proof_of(stored([payload("admitted", ref) for ref in (first, second)])))
    assert (explained.verdict, explained.ref, explained.rows) == ("ambiguous", None, (first, second))


def test_the_last_retirement_explains_a_key_and_the_first_one_a_row() -> None:
    first, second = RecordedRef("k", "a", 1), RecordedRef("k", "a", 2)
    said = [("removed", first), ("expired", second), ("stale_read_set", second), ("admitted", first)]
    (explained,) = all_explained(proof_of(stored([payload(*each) for each in said])))
    assert (explained.ref, explained.verdict, explained.action, explained.seq) == (second, "retired", "expired", 1)


@pytest.mark.parametrize("live", [1, 2, None])
def test_a_key_is_explained_by_its_last_retirement_also_while_a_retired_row_is_its_head(live: int | None) -> None:
    first, second = RecordedRef("k", "a", 1), RecordedRef("k", "a", 2)
    proof = proof_of(stored([payload("removed", first), payload("expired", second)]))
    explained = proof.explain("k", None if live is None else RecordedRef("k", "a", live), recorded=True)
    assert (explained.verdict, explained.ref, explained.action) == ("retired", second, "expired")


def test_a_key_of_which_nothing_is_known_was_not_admitted() -> None:
    assert Proof().explain("k", None, recorded=False) == Explanation("k", "not_admitted", None)


def test_a_candidate_that_is_not_recorded_is_missing() -> None:
    proof = proof_of(stored([payload("admitted", RecordedRef("k", "a", 1))]))
    assert proof.explain("k", None, recorded=False) == Explanation("k", "ledger_missing", RecordedRef("k", "a", 1))


@pytest.mark.parametrize(
    ("verdict", "due", "live", "told"),
    [
        ("restored", 1, 1, "matching"),
        ("restored", 1, None, "missing"),
        ("restored", 1, 2, "different"),
        ("retired", 1, 1, "extra"),
        ("retired", 1, None, None),
        ("ledger_missing", 1, None, None),
        ("ledger_missing", 1, 1, "extra"),
        ("not_admitted", 2, 2, "extra"),
        ("ambiguous", None, 2, "extra"),
    ],
)
def test_how_a_head_stands_to_what_is_said_of_its_key(
    verdict: str, due: int | None, live: int | None, told: str | None
) -> None:
    ref, head = (None if seq is None else RecordedRef("k", "a", seq) for seq in (due, live))
    assert difference(Explanation("k", verdict, ref), head) == told


def test_differences_are_counted() -> None:
    differs: tuple[Difference | None, ...] = ("matching", "matching", "missing", "extra", "different", None)
    keys = [Explanation(str(number), "restored", None, difference=each) for number, each in enumerate(differs)]
    counted = count_differences(keys)
    assert (counted.matching, counted.missing, counted.extra, counted.different) == (2, 1, 1, 1)
    assert counted.keys == tuple(keys)
