"""What a step still owes, and what a row of the step cache holds: there and back, and nothing that is damaged."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.boundary import Boundary
from stepwell.core.cached_row import (
    CachedRow,
    Spilled,
    artifacts_of,
    belongs_to,
    read_meta,
    result_of,
    row_meta,
)
from stepwell.core.canonical_json import canonical_json
from stepwell.core.effect import Effect
from stepwell.core.measured import MeasuredReads
from stepwell.core.node import FileNode, Node, digest_of
from stepwell.core.outputs import Output, Outputs
from stepwell.core.owed import Owed, decide_owed, in_place, owed_json, read_owed, reads_digest
from stepwell.core.replay import BoundaryCorruption

BEFORE, AFTER = FileNode(digest_of(b"before"), 6), FileNode(digest_of(b"after"), 5)
OUTPUTS = Outputs((Output("a", AFTER, b"after"),), ("old",))
BOUNDARY = Boundary(reads=("a", "b"), writes=("a",), removes=("old",))


def reads(a: Node | None, b: Node | None = BEFORE) -> MeasuredReads:
    return MeasuredReads((("a", a), ("b", b)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), json_values), max_size=3))
def test_what_is_owed_comes_back(result: object, effects: list[tuple[str, object]]) -> None:
    data = json.dumps(result).encode()
    owed = Owed(data, OUTPUTS, tuple(Effect(key, payload) for key, payload in effects), "d", ("a",))
    back = read_owed(owed_json(owed))
    assert back is not None
    assert (json.loads(back.result), back.kept, back.effects, back.reads, back.in_place) == (
        result,
        OUTPUTS,
        owed.effects,
        "d",
        ("a",),
    )


@given(st.integers(0, 2_000), st.integers(0, 255))
def test_what_is_owed_and_damaged_is_not_brought(at: int, byte: int) -> None:
    data = bytearray(owed_json(Owed(b"1", OUTPUTS, (), "d")))
    at %= len(data)
    was, data[at] = data[at], byte
    back = read_owed(bytes(data))
    assert back is None or byte == was or back.kept == OUTPUTS  # its record is sealed by its digest


@given(json_values)
def test_a_result_comes_back_from_a_row_as_it_was(result: object) -> None:
    data = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
    meta = row_meta(CachedRow("tripwire", "local", "diff1_", OUTPUTS), data)
    stored, kept = json.loads(canonical_json(json.loads(data))), json.loads(canonical_json(meta))
    assert json.dumps(json.loads(result_of(stored, kept)), sort_keys=True) == json.dumps(result, sort_keys=True)


def test_the_meta_of_a_row_comes_back_and_another_form_is_none() -> None:
    spilled = Spilled(digest_of(b"record"), (AFTER.digest,))
    effects = (Effect("k", {"n": 1.0}),)
    row = CachedRow("enforced", "shared", "diff1_x", spilled, effects, None)
    meta = row_meta(row, b"1")
    assert meta["evidence"] == "enforced"
    assert read_meta(json.loads(canonical_json(meta))) == row
    assert artifacts_of(spilled, frozenset()) == (spilled.digest, AFTER.digest)
    for member, value in (("v", 2), ("evidence", "good"), ("effects", [["", "1"]]), ("effects", [["k", "{"]])):
        assert read_meta({**meta, member: value}) is None
    assert isinstance(read_meta({**meta, "outputs": {}}), BoundaryCorruption)
    assert isinstance(read_meta({**meta, "outputs": {"artifact": "no", "needs": []}}), BoundaryCorruption)


def test_outputs_belong_to_a_boundary_only_if_it_declares_all_of_them() -> None:
    assert belongs_to(OUTPUTS, BOUNDARY)
    assert belongs_to(Outputs(), Boundary())
    assert not belongs_to(OUTPUTS, Boundary(writes=("a",)))
    assert not belongs_to(OUTPUTS, Boundary(removes=("old",)))
    assert belongs_to(Outputs((), ("tree/x",)), Boundary(writes=("tree/**",)))


def test_a_step_that_was_cut_off_is_brought_only_if_nothing_else_has_changed() -> None:
    owed = Owed(b"1", OUTPUTS, (), reads_digest(reads(BEFORE)), in_place(BOUNDARY, OUTPUTS, reads(BEFORE)))
    assert owed.in_place == ("a",)
    assert decide_owed(owed, OUTPUTS, reads(BEFORE)) == "bring"
    assert decide_owed(owed, OUTPUTS, reads(AFTER)) == "there"
    assert decide_owed(owed, OUTPUTS, reads(AFTER, AFTER)) == "there"  # who changed b did so afterwards
    assert decide_owed(owed, OUTPUTS, reads(BEFORE, AFTER)) == "changed"
    assert decide_owed(owed, OUTPUTS, reads(None)) == "changed"


def test_a_target_that_the_step_left_as_it_was_tells_nothing() -> None:
    assert in_place(BOUNDARY, OUTPUTS, reads(AFTER)) == ()
    assert in_place(Boundary(writes=("a",)), OUTPUTS, MeasuredReads()) == ()
