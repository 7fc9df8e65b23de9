"""Measuring in a folder: what is told of reads and targets was read just now, whatever is remembered of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.core.boundary import Boundary, Declaration, declare
from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.outcome import Failure
from stepwell.core.step_sandbox import LimitExceeded, WorkspaceError
from stepwell.core.workspace_limits import LIMITS, WorkspaceLimits

from .folders import BASE, open_descriptors, opened, write_folder
from .test_seed import Reads


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path / "root", BASE)
    return tmp_path / "root"


def declared(boundary: Boundary) -> Declaration:
    declaration = declare(boundary)
    assert isinstance(declaration, Declaration)
    return declaration


def test_a_file_whose_digest_is_remembered_is_read_whole_all_the_same(root: Path) -> None:
    reads = Reads(later_ms=10_000)
    boundary = declared(Boundary(("in.txt",), ("old",)))
    with opened(root, reads.options()) as host:
        for path in ("in.txt", "old"):
            _ = host.measure(path)
        for _ in range(3):
            reads.count = 0
            assert host.measure_reads(boundary, LIMITS).unwrap().files == (
                ("in.txt", FileNode(digest_of(b"alpha\n"), 6)),
            )
            assert reads.count > 0
            reads.count = 0
            assert host.standing(boundary, (), LIMITS).unwrap() == {"old": FileNode(digest_of(b"old\n"), 4)}
            assert reads.count > 0


def test_what_stands_at_targets_is_told_with_what_is_in_trees_and_in_the_way(root: Path) -> None:
    write_folder(
        root, {"out/d/empty": DirNode(), "out/l": LinkNode("d"), "out/.git": DirNode(), "file": LinkNode("src")}
    )
    boundary = declared(Boundary((), ("out/**", "src/a.py", "none")))
    with opened(root) as host:
        descriptors = open_descriptors()
        found = host.standing(boundary, ("src/d", "in.txt/x", "src/none"), LIMITS).unwrap()
        assert found == {
            "in.txt": FileNode(digest_of(b"alpha\n"), 6),
            "out": DirNode(),
            "out/.git": DirNode(),
            "out/d/empty": DirNode(),
            "out/l": LinkNode("d"),
            "src/a.py": FileNode(digest_of(b"A=1\n"), 4),
            "src/d": DirNode(),
        }
        assert host.standing(boundary, ("out/l/x",), LIMITS).unwrap().keys() == found.keys() - {"in.txt", "src/d"}
        refused = host.standing(boundary, ("file/a.py",), LIMITS).failure()
        assert isinstance(refused, WorkspaceError)
        assert refused.code == "path_escapes_workspace"
        assert open_descriptors() == descriptors


def test_limits_hold_for_what_is_measured(root: Path) -> None:
    boundary = declared(Boundary(("src/**", "in.txt"), ("src/**",)))
    with opened(root) as host:
        descriptors = open_descriptors()
        for limits, answer in (
            (WorkspaceLimits(file_bytes=5), LimitExceeded("file_bytes", 6, 5)),
            (WorkspaceLimits(seeded_bytes=8), LimitExceeded("seeded_bytes", 10, 8)),
            (WorkspaceLimits(seeded_files=3), LimitExceeded("seeded_files", 4, 3)),
        ):
            assert host.measure_reads(boundary, limits) == Failure(answer)
        assert host.standing(boundary, (), WorkspaceLimits(nodes=3)) == Failure(LimitExceeded("nodes", 4, 3))
        assert host.standing(boundary, (), WorkspaceLimits(file_bytes=3)) == Failure(LimitExceeded("file_bytes", 4, 3))
        assert open_descriptors() == descriptors
