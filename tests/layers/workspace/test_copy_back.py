"""Copy-back to a folder: every kind of change comes to the host, or none does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepwell.core.copy_back import HardLinkReplaced
from stepwell.core.node import DirNode, LinkNode
from stepwell.core.outcome import Failure, Success
from stepwell.core.step_sandbox import MaterializationConflict, WorkspaceError
from stepwell.layers.workspace.calls import SystemCalls
from stepwell.layers.workspace.file_host import FileHost
from stepwell.layers.workspace.host import CopiedBack
from stepwell.layers.workspace.points import CopyBackPoint
from stepwell.layers.workspace.site import HostOptions

from .folders import (
    BASE,
    Folder,
    Text,
    changes_of,
    copy_back,
    open_descriptors,
    opened,
    read_folder,
    stage_all,
    unfinished,
    write_folder,
)

WHOLE: tuple[Folder, Folder] = (
    {
        "replaced": Text("old"),
        "removed/f": Text("gone"),
        "kept/f": Text("stays"),
        "kept/g": Text("goes"),
        "to-dir": Text("a file"),
        "to-file/x/y": Text("within"),
        "to-link": Text("a file"),
        "from-link": LinkNode("replaced"),
        "relinked": LinkNode("replaced"),
        "bit": Text("same"),
        "empty": DirNode(),
        "tree/deep/er/f": Text("goes"),
        "tree/top": Text("stays"),
    },
    {
        "replaced": Text("new"),
        "created": Text("new"),
        "new/dir/f": Text("new"),
        "new/run": Text("new", executable=True),
        "kept/f": Text("stays"),
        "to-dir/sub/f": Text("within"),
        "to-file": Text("a file"),
        "to-link": LinkNode("replaced"),
        "from-link": Text("a file"),
        "relinked": LinkNode("created"),
        "bit": Text("same", executable=True),
        "hollow/inner": DirNode(),
        "tree/top": Text("stays"),
    },
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path / "root", BASE)
    return tmp_path / "root"


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
@pytest.mark.parametrize("durability", ["full", "process"])
def test_every_kind_of_change_comes_to_the_host(tmp_path: Path, openat2: bool, durability: str) -> None:
    before, after = WHOLE
    write_folder(tmp_path, before)
    assert read_folder(tmp_path) == before
    options = HostOptions(durability="full" if durability == "full" else "process", calls=SystemCalls(openat2=openat2))
    descriptors = open_descriptors()
    with opened(tmp_path, options) as host:
        assert isinstance(copy_back(host, before, after, trees=("tree",)), Success)
        assert read_folder(tmp_path) == {**after, "removed": DirNode()}  # outside a tree an empty directory stays
        assert unfinished(tmp_path) == []
        back = {**after, "removed": DirNode()}
        assert isinstance(copy_back(host, back, before, trees=("tree", "new", "hollow", "to-dir")), Success)
        assert read_folder(tmp_path) == {**before, "new": DirNode(), "hollow": DirNode()}  # the top of a tree stays
    assert open_descriptors() == descriptors


def test_cb11_without_changes_the_host_is_not_called(root: Path) -> None:
    calls: list[str] = []
    with opened(root, HostOptions(calls=SystemCalls(lambda call, _: calls.append(call)))) as host:
        calls.clear()
        assert host.copy_back(()).commit() == Success(CopiedBack())
        assert calls == []


@pytest.mark.parametrize("path", [".stepwell/sandbox/lock", ".stepwell/x", ".git/config", ".STEPWELL/x", ".stepwell"])
def test_cb10_what_belongs_to_stepwell_or_git_is_never_written(root: Path, path: str) -> None:
    with opened(root) as host:
        match copy_back(host, {}, {path: Text("mine"), "out": Text("r")}):
            case Failure(WorkspaceError(code, message)):
                assert code == "protected_path"
                assert path in message
            case other:
                raise AssertionError(other)
        assert read_folder(root) == BASE
        assert unfinished(root) == []


def test_m_06_a_target_that_nobody_changed_is_replaced_and_keeps_its_permissions(root: Path) -> None:
    (root / "old").chmod(0o640)
    (root / "run.sh").chmod(0o750)
    after = {**BASE, "old": Text("new", executable=True), "run.sh": Text("new")}
    with opened(root) as host:
        assert isinstance(copy_back(host, BASE, after), Success)
    assert read_folder(root) == after
    assert (root / "old").stat().st_mode & 0o7777 == 0o750
    assert (root / "run.sh").stat().st_mode & 0o7777 == 0o640


def test_new_files_have_the_permissions_that_the_umask_leaves(root: Path) -> None:
    umask = os.umask(0o027)
    try:
        with opened(root) as host:
            after = {**BASE, "d/f": Text("x"), "d/x": Text("x", executable=True)}
            assert isinstance(copy_back(host, BASE, after), Success)
    finally:
        _ = os.umask(umask)
    modes = {name: (root / name).stat().st_mode & 0o7777 for name in ("d", "d/f", "d/x")}
    assert modes == {"d": 0o750, "d/f": 0o640, "d/x": 0o750}


@pytest.mark.parametrize("edit", ["in place", "replaced", "chmod", "directory", "link", "fifo", "gone"])
def test_m_03_cb12_a_target_that_moved_is_a_conflict_and_all_of_them_are_named(root: Path, edit: str) -> None:
    after = {**BASE, "old": Text("new"), "src/a.py": Text("A=2\n"), "out/r": Text("beta\n")}
    target = root / "old"
    with opened(root) as host:
        started = host.copy_back(changes_of(BASE, after))
        stage_all(started.stage, changes_of(BASE, after), after)
        if edit == "in place":
            _ = target.write_text("EDIT")
        elif edit == "chmod":
            target.chmod(0o755)
        else:
            target.unlink()
        if edit == "replaced":
            _ = target.write_text("EDIT")
        elif edit == "directory":
            target.mkdir()
        elif edit == "link":
            target.symlink_to("in.txt")
        elif edit == "fifo":
            os.mkfifo(target)
        (root / "out").mkdir()
        _ = (root / "out/r").write_text("theirs")
        assert started.commit() == Failure(MaterializationConflict(("old", "out/r")))
    assert (root / "src/a.py").read_text() == "A=1\n"
    assert (root / "out/r").read_text() == "theirs"
    assert unfinished(root) == []


def test_s_12_cb9_a_target_with_a_second_name_becomes_a_file_of_its_own(root: Path) -> None:
    os.link(root / "old", root / "keep")
    before = {**BASE, "keep": Text("old\n")}
    with opened(root) as host:
        done = copy_back(host, before, {**before, "old": Text("beta\n")})
        assert done == Success(CopiedBack((HardLinkReplaced("old"),)))
    assert (root / "keep").read_text() == "old\n"
    assert (root / "old").read_text() == "beta\n"
    assert (root / "keep").stat().st_nlink == 1


# --- links ------------------------------------------------------------------


@pytest.mark.parametrize("target", ["../outside/f", "../outside/none", "../" * 40 + "none", "in.txt", "none"])
def test_cb3_cb5_cb6_cb7_s_05_a_link_at_a_target_is_never_written_through(root: Path, target: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    _ = (outside / "f").write_text("OUTSIDE-ORIGINAL")
    (root / "out").mkdir()
    (root / "out/r").symlink_to(target)
    with opened(root) as host:
        unexpected = copy_back(host, BASE, {**BASE, "out/r": Text("beta\n")})
        assert unexpected == Failure(MaterializationConflict(("out/r",)))
        before = {**BASE, "out/r": LinkNode(target)}
        assert isinstance(copy_back(host, before, {**BASE, "out/r": Text("beta\n")}), Success)
    assert read_folder(root) == {**BASE, "out/r": Text("beta\n")}
    assert read_folder(outside) == {"f": Text("OUTSIDE-ORIGINAL")}


@pytest.mark.parametrize("target", ["../outside", "src"])
def test_cb4_cb7_a_directory_that_is_a_link_is_refused_as_parent(root: Path, target: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "ln").symlink_to(target)
    with opened(root) as host:
        for path in ("ln/new", "ln/sub/new", "ln/a.py"):
            match copy_back(host, {}, {path: Text("x"), "fine": Text("x")}):
                case Failure(WorkspaceError(code, message)):
                    assert code == "path_escapes_workspace"
                    assert "ln" in message
                case other:
                    raise AssertionError(other)
    assert read_folder(outside) == {}
    assert read_folder(root) == {**BASE, "ln": LinkNode(target)}
    assert unfinished(root) == []


def test_a_removed_directory_that_somebody_put_a_file_in_is_a_conflict(root: Path) -> None:
    before = {**BASE, "empty": DirNode()}
    write_folder(root, {"empty/theirs": Text("x")})
    with opened(root) as host:
        assert copy_back(host, before, BASE) == Failure(MaterializationConflict(("empty",)))
    assert read_folder(root) == {**BASE, "empty/theirs": Text("x")}


def test_a_directory_of_a_tree_that_somebody_put_a_file_in_stays(root: Path) -> None:
    write_folder(root, {"out/d/mine": Text("x"), "out/d/theirs": Text("y")})
    before = {**BASE, "out/d/mine": Text("x")}
    with opened(root) as host:
        assert isinstance(copy_back(host, before, {**BASE, "out": DirNode()}, trees=("out",)), Success)
    assert read_folder(root) == {**BASE, "out/d/theirs": Text("y")}


# --- staging ----------------------------------------------------------------


def test_bytes_that_are_not_those_of_the_digest_are_refused(root: Path) -> None:
    with opened(root) as host:
        started = host.copy_back(changes_of({}, {"out": Text("right")}))
        writer = started.stage("out")
        writer.write(b"wrong")
        writer.close()
        outcome = started.commit()
        assert isinstance(outcome, Failure)
        assert isinstance(outcome.failure(), WorkspaceError)
    assert read_folder(root) == BASE
    assert unfinished(root) == []


def test_a_discarded_copy_back_leaves_nothing(root: Path) -> None:
    descriptors = open_descriptors()
    with opened(root) as host:
        started = host.copy_back(changes_of({}, {"out": Text("x")}))
        started.stage("out").write(b"x")
        started.discard()
        started.discard()
        assert unfinished(root) == []
        ended = started.commit()
        assert isinstance(ended, Failure)
    assert open_descriptors() == descriptors
    assert read_folder(root) == BASE


def test_staging_out_of_turn_is_a_bug(root: Path) -> None:
    after = {"a": Text("x"), "b": Text("y")}
    with opened(root) as host:
        started = host.copy_back(changes_of({}, after))
        writer = started.stage("a")
        with pytest.raises(ValueError, match="still open"):
            _ = started.stage("b")
        writer.write(b"x")
        writer.close()
        with pytest.raises(ValueError, match="before every new file is staged: b"):
            _ = started.commit()
        with pytest.raises(ValueError, match="no file of this copy-back"):
            _ = started.stage("a")
        started.discard()
    assert unfinished(root) == []


@pytest.mark.parametrize("conflict", [False, True])
def test_discarding_what_has_ended_touches_nothing_that_was_opened_since(root: Path, conflict: bool) -> None:
    after = {**BASE, "out": Text("new")}
    with opened(root) as host:
        started = host.copy_back(changes_of(BASE, after))
        stage_all(started.stage, changes_of(BASE, after), after)
        if conflict:
            _ = (root / "out").write_text("of somebody else")
        assert isinstance(started.commit(), Failure if conflict else Success)
        held = [os.open(root / "src", os.O_RDONLY) for _ in range(8)]  # under the numbers that are free again
        started.discard()
        for descriptor in held:
            os.close(descriptor)
    assert read_folder(root) == {**BASE, "out": Text("of somebody else" if conflict else "new")}


@pytest.mark.parametrize("at", list(CopyBackPoint), ids=lambda point: point.name)
def test_a_host_that_is_closed_in_the_middle_answers_and_the_next_one_ends_it(root: Path, at: CopyBackPoint) -> None:
    after = {**BASE, "new/out": Text("new"), "old": Text("newer")}
    hosts: list[FileHost] = []

    def on_point(point: CopyBackPoint) -> None:
        if point is at and hosts:
            hosts[0].close()

    with opened(root, HostOptions(on_point=on_point)) as host:
        hosts.append(host)
        outcome = copy_back(host, BASE, after)
    with opened(root):
        assert read_folder(root) in (BASE, after)
        assert unfinished(root) == []
    if isinstance(outcome, Success):
        assert read_folder(root) == after


def test_a_host_that_was_closed_touches_nothing_that_was_opened_since(root: Path) -> None:
    after = {**BASE, "a.py": Text("new")}
    made = changes_of({**BASE, "a.py": Text("A=1\n")}, after)  # what it expects at the top stands in `src`
    with opened(root) as host:
        started = host.copy_back(made)
        stage_all(started.stage, made, after)
        host.close()
        held = [os.open(root / "src", os.O_RDONLY) for _ in range(8)]  # under the numbers that are free again
        refused = started.commit()
        started.discard()
        for descriptor in held:
            os.close(descriptor)
    assert isinstance(refused, Failure)
    error = refused.failure()
    assert isinstance(error, WorkspaceError)
    assert error.code == "closed"
    assert read_folder(root) == BASE
    with opened(root):
        assert unfinished(root) == []
