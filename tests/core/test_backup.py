"""The manifest of a backup: what is written is read back, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.backup import BackupFile, Manifest, read_manifest, write_manifest
from stepwell.core.outcome import Failure, Success

files = st.builds(
    BackupFile, digest=st.text("0123456789abcdef", min_size=64, max_size=64), size_bytes=st.integers(0, 2**60)
)


@given(
    files,
    st.lists(files, unique_by=lambda file: file.digest).map(lambda each: sorted(each, key=lambda file: file.digest)),
    st.integers(0, 2**50),
)
def test_what_is_written_is_read_back(database: BackupFile, artifacts: list[BackupFile], at_ms: int) -> None:
    manifest = Manifest(1, at_ms, 4, database, tuple(artifacts))
    assert read_manifest(write_manifest(manifest)) == Success(manifest)


GOOD = {
    "format_version": 1,
    "created_at_ms": 5,
    "schema_version": 4,
    "database": {"digest": "a" * 64, "size_bytes": 1},
    "artifacts": [{"digest": "b" * 64, "size_bytes": 1}],
}


def test_what_is_whole_is_read() -> None:
    assert isinstance(read_manifest(json.dumps(GOOD).encode()), Success)


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 2},
        {"format_version": "1"},
        {"created_at_ms": None},
        {"database": {"digest": "a" * 63, "size_bytes": 1}},
        {"database": {"digest": "../" + "a" * 61, "size_bytes": 1}},
        {"database": {"digest": "a" * 64, "size_bytes": -1}},
        {"artifacts": [{"digest": "b" * 64, "size_bytes": 1}] * 2},
        {"artifacts": [{"digest": "c" * 64, "size_bytes": 1}, {"digest": "b" * 64, "size_bytes": 1}]},
        {"artifacts": [{"digest": "/" * 64, "size_bytes": 1}]},
        {"more": 1},
    ],
)
def test_what_is_not_is_refused(change: dict[str, object]) -> None:
    read = read_manifest(json.dumps({**GOOD, **change}).encode())
    assert isinstance(read, Failure)
    assert read.failure().code == "invalid_manifest"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    read = read_manifest(data)
    assert isinstance(read, Failure)
    assert read.failure().code == "invalid_manifest"
