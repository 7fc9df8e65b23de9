"""What differs between two documents: every place, with what each of them has there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core import patch as patches
from stepwell.core.difference import ABSENT, Difference, changed_by, differences
from stepwell.core.model import Path
from stepwell.core.parts import NO_PART, part_of


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [Difference(("a",), 1, 2)]),
        ({"a": None}, {}, [Difference(("a",), None, ABSENT)]),
        ({}, {"a": None}, [Difference(("a",), ABSENT, None)]),
        ([1, 2], [1], [Difference((1,), 2, ABSENT)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, [Difference(("a",), {"b": 1, "c": 2}, {"c": 2, "b": 1})]),
        ({"a": 1}, {"a": 1.0}, [Difference(("a",), 1, 1.0)]),
        (1, {"a": 1}, [Difference((), 1, {"a": 1})]),
    ],
    ids=["alike", "changed", "gone", "new", "shorter", "order", "kind", "whole"],
)
def test_each_side_is_told(before: object, after: object, expected: list[Difference]) -> None:
    assert list(differences(json.dumps(before).encode(), json.dumps(after).encode())) == expected


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def look(value: object, path: Path) -> object:
    for segment in path:
        value = part_of(value, segment)
        if value is NO_PART:
            return ABSENT
    return value


@given(documents, documents)
def test_documents_differ_where_they_are_said_to(before: object, after: object) -> None:
    found = differences(json.dumps(before).encode(), json.dumps(after).encode())
    assert bool(found) == (json.dumps(before) != json.dumps(after))
    for each in found:
        assert (each.before, each.after) == (look(before, each.path), look(after, each.path))
        assert text(each.before) != text(each.after)


def text(value: object) -> str:
    return "absent" if value is ABSENT else json.dumps(value)


def test_a_patch_names_what_it_changes() -> None:
    changed = patches.Patch((patches.Put(("a", 0), 1), patches.Remove(("b",)), patches.Put(("a", 0), 2)))
    assert changed_by(patches.encode(changed)) == (("a", 0), ("b",))
    with pytest.raises(ValueError, match="truncated"):
        changed_by(b"[")
