"""What becomes of a cached step at each thing that is found on its way."""

from __future__ import annotations

from typing import cast, get_args

import pytest
from msgspec.json import decode

from stepwell.core.boundary import Boundary, DeclaredRead
from stepwell.core.cache_fold import EVENT_TYPE, RETIRING, initial, reduce
from stepwell.core.dispatch import REACTIONS, Decided, Finding, age_problem, reaction_entries, unrecorded_entry
from stepwell.core.entry import NewEntry
from stepwell.core.journal import Entry
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import FileNode, digest_of
from stepwell.core.reuse import read_set_matches
from stepwell.core.step_cache import RecordedRef

FINDINGS: tuple[Finding, ...] = get_args(Finding)
REF = RecordedRef("key1_a", "r1", 3)


def payload(entry: NewEntry) -> dict[str, object]:
    return cast("dict[str, object]", decode(entry.payload))


def test_the_table_is_complete() -> None:
    assert set(REACTIONS) == set(FINDINGS)
    assert {reaction.counts for reaction in REACTIONS.values()} == set(get_args(Decided))


@pytest.mark.parametrize("finding", FINDINGS)
def test_a_row_goes_only_with_an_entry_that_retires_it(finding: Finding) -> None:
    reaction = REACTIONS[finding]
    entries = reaction_entries(finding, REF, ttl_ms=10, age_ms=11)
    told = [payload(entry) for entry in entries]
    assert all(each["recorded_event_seq"] == 3 for each in told)
    if reaction.evicts:
        assert told[-1]["action"] in RETIRING
    state = initial()
    for seq, entry in enumerate(entries):
        state = reduce(state, Entry("r2", seq, EVENT_TYPE, payload(entry), entry.source, 0, None))
    assert (REF in state.retired) == (reaction.action in RETIRING)


def test_what_only_could_not_be_used_stays_and_what_is_wrong_goes() -> None:
    assert {finding for finding in FINDINGS if REACTIONS[finding].evicts} == {"expired", "stale", "corruption"}


@pytest.mark.parametrize("finding", FINDINGS)
def test_a_verdict_about_the_age_comes_first_where_the_age_was_looked_at(finding: Finding) -> None:
    told = [payload(entry) for entry in reaction_entries(finding, REF, ttl_ms=10, age_ms=11)]
    aged = finding not in ("nothing", "weak_evidence", "invalid_meta")
    assert (bool(told) and told[0]["action"] == "ttl") == aged
    assert all(payload(entry)["action"] != "ttl" for entry in reaction_entries(finding, REF))


def test_c18_a_row_of_exactly_that_age_is_served() -> None:
    assert [age_problem(1_000, 1_000 + age, 5_000) for age in (0, 5_000, 5_001)] == [None, None, 5_001]
    assert age_problem(0, 10**12, None) is None


def test_j_05_a_refusal_is_told_once_and_names_no_row() -> None:
    one, two = unrecorded_entry("key1_a", "r1", "not_hard"), unrecorded_entry("key1_a", "r1", "deviation")
    assert (one.source, one.identity) == (two.source, two.identity)
    state = reduce(initial(), Entry("r1", 0, EVENT_TYPE, payload(one), one.source, 0, None))
    assert state == initial()


def test_c34_what_was_measured_beyond_the_declaration_does_not_count() -> None:
    digest = digest_of(b"a")
    boundary = Boundary(reads=(DeclaredRead("a", digest),))
    measured = MeasuredReads((("a", FileNode(digest, 1)), ("b", FileNode(digest_of(b"b"), 1))))
    assert read_set_matches(boundary, measured)
    assert not read_set_matches(boundary, MeasuredReads((("a", FileNode(digest_of(b"b"), 1)),)))
