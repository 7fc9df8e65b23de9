"""The record of a step's outputs: what it needs, its identity, and that a damaged one is told and never used."""

from __future__ import annotations

import copy
import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.outputs import Output, Outputs, needed, outputs_digest, outputs_json, read_outputs
from stepwell.core.replay import BoundaryCorruption
from stepwell.core.tree import path_order


def output(path: str, data: bytes, *, inline: bool = True, executable: bool = False) -> Output:
    return Output(path, FileNode(digest_of(data), len(data), executable), data if inline else None)


def unkept(path: str, data: bytes) -> Output:
    return output(path, data, inline=False)


def path_of(entry: Output) -> str:
    return entry.path


def in_order(entries: list[Output], removed: list[str]) -> Outputs:
    by_path = {entry.path: entry for entry in entries}
    ordered = tuple(by_path[path] for path in sorted(by_path, key=path_order))
    return Outputs(ordered, tuple(sorted(removed, key=path_order)))


RECORD = Outputs(
    (
        output("out/a", b"a\n"),
        Output("out/empty", DirNode()),
        output("out/large", b"large", inline=False, executable=True),
        Output("out/link", LinkNode("a")),
        output("out/\U00010000", b"\x00\xff"),
    ),
    ("old", "older"),
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
FILES = st.builds(output, NAMES, st.binary()) | st.builds(unkept, NAMES, st.binary())
ENTRIES = FILES | st.builds(Output, NAMES, st.builds(LinkNode, NAMES) | st.just(DirNode()))
RECORDS = st.builds(in_order, st.lists(ENTRIES, unique_by=path_of), st.lists(NAMES, unique=True))


@given(RECORDS)
def test_what_is_written_as_json_is_read_again(outputs: Outputs) -> None:
    read = read_outputs(json.loads(json.dumps(outputs_json(outputs))))
    assert isinstance(read, Outputs)
    assert (read, [entry.data for entry in read.entries]) == (outputs, [entry.data for entry in outputs.entries])
    assert outputs_digest(read) == outputs_digest(outputs)


def test_the_form_is_fixed() -> None:
    a, large = digest_of(b"a\n"), digest_of(b"large")
    assert outputs_json(RECORD) == {
        "v": 1,
        "digest": outputs_digest(RECORD),
        "entries": [
            ["f", "out/a", a, False, 2, "YQo="],
            ["d", "out/empty"],
            ["f", "out/large", large, True, 5, None],
            ["l", "out/link", "a"],
            ["f", "out/\U00010000", digest_of(b"\x00\xff"), False, 2, "AP8="],
        ],
        "removed": ["old", "older"],
    }
    assert needed(RECORD) == {large}
    assert outputs_digest(Outputs()) == ("outputs1_" + digest_of(b'{"entries":[],"kind":"workspace-outputs","v":1}'))


def test_the_identity_is_that_of_what_stands_there_and_not_of_how_it_is_kept() -> None:
    kept = Outputs((output("a", b"1"),), ("b",))
    assert outputs_digest(kept) == outputs_digest(Outputs((output("a", b"1", inline=False),), ("b",)))
    others = [
        Outputs((output("a", b"2"),), ("b",)),
        Outputs((output("a", b"1", executable=True),), ("b",)),
        Outputs((output("b", b"1"),), ("a",)),
        Outputs((output("a", b"1"),)),
        Outputs((Output("a", LinkNode("1")),), ("b",)),
        Outputs((Output("a", DirNode()),), ("b",)),
    ]
    assert len({outputs_digest(each) for each in [kept, *others]}) == 7


# --- damage ---------------------------------------------------------------------


def entry_with(at: int, value: object) -> object:
    """The record with one part of its first entry replaced."""
    form = json.loads(json.dumps(outputs_json(RECORD)))
    form["entries"][0][at] = value
    return form


@pytest.mark.parametrize("text", ["YQo", "YQo=!", "\u00e9", "YQ o=", "=", "Y"])
def test_b23_content_that_is_no_base64_is_corruption(text: str) -> None:
    assert read_outputs(entry_with(5, text)) == BoundaryCorruption("out/a", digest_of(b"a\n"), "invalid_base64")


def test_b22_content_that_is_another_is_corruption_with_both_digests() -> None:
    other = b64encode(b"b\n").decode()
    assert read_outputs(entry_with(5, other)) == BoundaryCorruption("out/a", digest_of(b"a\n"), digest_of(b"b\n"))
    assert read_outputs(entry_with(4, 3)) == BoundaryCorruption("out/a", digest_of(b"a\n"), "invalid_size")


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, "x"), (0, None), (1, 1), (1, "\udc80"), (2, ""), (2, "A" * 64), (2, None), (3, 1), (4, -1), (4, 1.5), (5, 1)],
)
def test_a_part_of_another_kind_is_corruption(at: int, value: object) -> None:
    read = read_outputs(entry_with(at, value))
    assert isinstance(read, BoundaryCorruption)
    assert read.measured == "invalid_record"


def test_the_record_as_a_whole_is_verified() -> None:
    renamed = read_outputs(entry_with(1, "out/b"))
    assert isinstance(renamed, BoundaryCorruption)
    assert (renamed.path, renamed.recorded) == ("", outputs_digest(RECORD))
    for part, value in (
        ("v", 2),
        ("more", 1),
        ("removed", ["older", "old"]),
        ("removed", ["old", "old"]),
        ("entries", None),
    ):
        form = {**outputs_json(RECORD), part: value}
        assert isinstance(read_outputs(form), BoundaryCorruption), part
    for missing in ("v", "digest", "entries", "removed"):
        form = outputs_json(RECORD)
        del form[missing]
        assert isinstance(read_outputs(form), BoundaryCorruption)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["f", "l", "d"]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.integers(0, 4), st.integers(0, 5))
def test_no_json_is_a_bug(value: object, entry: int, at: int) -> None:
    """What is not understood is told. Whatever is read as a record has the identity that it says it has."""
    assert isinstance(read_outputs(value), BoundaryCorruption)
    form = copy.deepcopy(json.loads(json.dumps(outputs_json(RECORD))))
    form["entries"][entry][at % len(form["entries"][entry])] = value
    read = read_outputs(form)
    assert isinstance(read, BoundaryCorruption) or outputs_digest(read) == form["digest"]
