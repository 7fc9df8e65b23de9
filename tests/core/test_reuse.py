"""How far a result may be reused, and when all that a step reads was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwell.core.boundary import Boundary, DeclaredRead
from stepwell.core.evidence import Ambient, Completeness, Evidence
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import FileNode, LinkNode, Node, digest_of
from stepwell.core.reuse import NotRecorded, Reason, decide_reuse, read_set_matches
from stepwell.core.step_sandbox import Accepted, Deviation, EvidenceLevel, Violations

ONE = FileNode(digest_of(b"1"), 1)
BOUNDARY = Boundary(("in.txt",), ("out",))
MEASURED = MeasuredReads((("in.txt", ONE),), base_digest="base")


def evidence(completeness: Completeness = "complete", ambient: tuple[Ambient, ...] = ()) -> Evidence:
    return Evidence("python", "policy", None, completeness, "base", (), ambient)


def accepted(level: EvidenceLevel = "enforced", record: Evidence | None = None) -> Accepted[object]:
    return Accepted(None, (), level, Violations(), "diff1_", (), record or evidence())


@pytest.mark.parametrize(
    ("level", "completeness", "reach"),
    [
        ("enforced", "complete", "shared"),
        ("enforced", "unnamed", "shared"),
        ("tripwire", "complete", "local"),
        ("cooperative", "complete", "run"),
    ],
)
def test_the_evidence_decides_how_far_a_result_goes(
    level: EvidenceLevel, completeness: Completeness, reach: str
) -> None:
    assert decide_reuse(accepted(level, evidence(completeness)), BOUNDARY, MEASURED) == reach


def test_a_body_that_was_seen_to_do_something_else_is_served_to_its_run_only() -> None:
    seen = evidence(ambient=(Ambient("ambient_read", "/etc/hostname"),))
    assert decide_reuse(accepted("tripwire", seen), BOUNDARY, MEASURED) == "run"


@pytest.mark.parametrize("level", ["enforced", "tripwire", "cooperative"])
def test_what_is_not_known_is_not_recorded(level: EvidenceLevel) -> None:
    right = accepted(level)
    deviating = replace(right, deviation=Deviation(Violations()))
    expected = Boundary(("in.txt",), ("out",), mode="expected")
    other = replace(MEASURED, base_digest="other")
    declared = Boundary((DeclaredRead("in.txt", digest_of(b"2")),), ("out",))
    cases: list[tuple[Accepted[object], Boundary, MeasuredReads, Reason]] = [
        (right, expected, MEASURED, "not_hard"),
        (deviating, BOUNDARY, MEASURED, "deviation"),
        (replace(right, violations=Violations(writes=("x",))), BOUNDARY, MEASURED, "deviation"),
        (replace(right, record=None), BOUNDARY, MEASURED, "no_evidence"),
        (accepted(level, evidence("partial")), BOUNDARY, MEASURED, "partial_evidence"),
        (right, BOUNDARY, other, "unverified_read_set"),
        (right, declared, MEASURED, "unverified_read_set"),
    ]
    for result, boundary, measured, reason in cases:
        assert decide_reuse(result, boundary, measured) == NotRecorded(reason)


# --- the read set -----------------------------------------------------------------


def measured(files: dict[str, Node | None], **matches: tuple[str, ...]) -> MeasuredReads:
    return MeasuredReads(tuple(files.items()), tuple((f"{name}/*", found) for name, found in matches.items()))


def test_b15_one_read_too_many_a_glob_that_was_not_expanded_and_one_that_was() -> None:
    declared = DeclaredRead("in.txt", ONE.digest)
    assert read_set_matches(Boundary((declared,)), measured({"in.txt": ONE, "more": ONE}))
    assert not read_set_matches(Boundary((declared, "src/*")), measured({"in.txt": ONE, "src/a": ONE}))
    whole = measured({"in.txt": ONE, "src/a": ONE}, src=("src/a",))
    assert read_set_matches(Boundary((declared, "src/*")), whole)
    assert read_set_matches(Boundary(("src/*",)), measured({}, src=()))


@pytest.mark.parametrize("found", [None, LinkNode("1"), FileNode(digest_of(b"2"), 1)])
def test_b15_what_is_not_as_declared_does_not_match(found: Node | None) -> None:
    declared = Boundary((DeclaredRead("in.txt", ONE.digest),))
    assert not read_set_matches(declared, measured({"in.txt": found}))
    assert not read_set_matches(declared, measured({}))
    assert read_set_matches(Boundary((DeclaredRead("in.txt", "absent"),)), measured({"in.txt": None}))
    assert not read_set_matches(Boundary((DeclaredRead("in.txt", "absent"),)), measured({"in.txt": ONE}))
    assert read_set_matches(Boundary(("in.txt",)), measured({"in.txt": found}))


def test_b15_what_a_glob_matched_was_measured_one_by_one() -> None:
    boundary = Boundary(("src/*",))
    assert not read_set_matches(boundary, measured({"src/a": ONE}, src=("src/a", "src/b")))
    assert not read_set_matches(boundary, measured({"src/a": None}, src=("src/a",)))
