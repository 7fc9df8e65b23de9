"""The document of a row: it comes back as it was, and nothing else comes back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.canonical_json import canonical_json
from stepwell.core.shared_row import (
    ROW_BYTES,
    OtherKey,
    TierNonsense,
    is_shareable,
    read_row,
    row_name,
    same_result,
    write_row,
)
from stepwell.core.step_cache import RESULT_BYTES, CacheEntry, InvalidEntry, RecordedRef

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
refs = st.builds(
    RecordedRef,
    st.from_regex(r"[A-Za-z0-9_-]{1,70}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40),
    st.integers(0, 2**53 - 1),
)
entries = st.builds(CacheEntry, refs, values, st.dictionaries(text, values, max_size=3), st.integers(0, 2**53 - 1))


def document(entry: CacheEntry) -> bytes:
    written = write_row(entry)
    assert isinstance(written, bytes)
    return written


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@given(entries)
def test_a_row_comes_back(entry: CacheEntry) -> None:
    data = document(entry)
    read = read_row(data, entry.ref.key_digest)
    assert isinstance(read, CacheEntry)
    assert (read.ref, read.created_at_ms) == (entry.ref, entry.created_at_ms)
    assert canonical_json(read.result) == canonical_json(entry.result)
    assert canonical_json(dict(read.meta)) == canonical_json(dict(entry.meta))
    assert document(read) == data == canonical_json(json.loads(data, parse_int=float_if_large))
    assert same_result(read, entry)


def float_if_large(digits: str) -> int | float:
    return int(digits) if abs(int(digits)) < 2**53 else float(digits)


@given(entries, st.data())
def test_a_document_with_one_other_byte_is_no_row(entry: CacheEntry, data: st.DataObject) -> None:
    """Or still the same one: a byte may be written in another way, as `e` and `E` in a number."""
    written = bytearray(document(entry))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[at]))
    read = read_row(bytes(written), entry.ref.key_digest)
    if isinstance(read, CacheEntry):
        assert document(read) == document(entry)


@given(st.binary() | values.map(canonical_json))
def test_nothing_else_is_a_row(data: bytes) -> None:
    assert isinstance(read_row(data, "key"), TierNonsense)


@given(entries, entries)
def test_the_row_of_another_key_says_so(entry: CacheEntry, other: CacheEntry) -> None:
    if entry.ref.key_digest != other.ref.key_digest:
        asked, named = other.ref.key_digest, entry.ref.key_digest
        assert read_row(document(entry), asked) == OtherKey(asked, named)
        assert row_name(asked) != row_name(named)


ROW = CacheEntry(RecordedRef("key", "run", 1), None, {}, 0)


def test_the_largest_and_the_deepest_row_go_through() -> None:
    for row in (
        CacheEntry(ROW.ref, "x" * (RESULT_BYTES - 2), {"m": "y" * (RESULT_BYTES - 8)}, 0),
        CacheEntry(ROW.ref, nested(128), {"m": nested(127)}, 0),
        CacheEntry(ROW.ref, 1e20, {"m": -1e20}, 0),
    ):
        data = document(row)
        assert len(data) <= ROW_BYTES
        assert read_row(data, "key") == row


@pytest.mark.parametrize(
    "result", ["x" * (RESULT_BYTES - 1), nested(129), 2**53, "\ud800", float("inf"), b"", (1,), {1: 2}]
)
def test_what_no_row_can_hold_is_not_written(result: object) -> None:
    assert isinstance(write_row(CacheEntry(ROW.ref, result, {}, 0)), InvalidEntry)
    assert isinstance(write_row(CacheEntry(ROW.ref, None, {"m": result}, 0)), InvalidEntry)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("kind", "stepwell.other"),
        ("kind", None),
        ("v", 2),
        ("v", True),
        ("v", "1"),
        ("key", 1),
        ("run", ""),
        ("run", 1),
        ("run", "\ud800"),
        ("seq", 1.0),
        ("seq", True),
        ("seq", -1),
        ("seq", 2**53),
        ("created_at_ms", None),
        ("meta", []),
        ("meta", None),
        ("seal", None),
        ("seal", "0" * 64),
        ("result", 10**400),
        ("more", 1),
    ],
)
def test_a_member_that_none_can_have_is_noticed(member: str, value: object) -> None:
    changed: dict[str, object] = json.loads(document(ROW))
    changed[member] = value
    assert isinstance(read_row(json.dumps(changed).encode(), "key"), TierNonsense)
    changed = json.loads(document(ROW))
    _ = changed.pop(member, None)
    if member != "more":
        assert isinstance(read_row(json.dumps(changed).encode(), "key"), TierNonsense)


def test_only_what_was_proved_and_is_for_everybody_may_be_shared() -> None:
    def row(**meta: object) -> CacheEntry:
        return CacheEntry(ROW.ref, None, meta, 0)

    assert is_shareable(row(evidence="enforced"))
    assert is_shareable(row(evidence="enforced", reach="shared", scope=None))
    for meta in ({}, {"evidence": "tripwire"}, {"evidence": None}, {"evidence": ["enforced"]}, {"evidence": True}):
        assert not is_shareable(row(**meta))
    assert not is_shareable(row(evidence="enforced", reach="local"))
    assert not is_shareable(row(evidence="enforced", reach="run"))
    assert not is_shareable(row(evidence="enforced", scope="its code is not identified"))
