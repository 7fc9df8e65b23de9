"""Hosts that fail: each system call of a copy-back in turn, full and read-only disks, and what was left damaged."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.core.copy_back import CopyBackDecision, Recovered
from stepwell.core.copy_back_manifest import Manifest, decode_manifest, encode_manifest
from stepwell.core.node import DirNode, LinkNode, digest_of
from stepwell.core.outcome import Failure, Success
from stepwell.core.step_sandbox import WorkspaceError
from stepwell.core.workspace_path import ancestors
from stepwell.layers.workspace.calls import SystemCalls
from stepwell.layers.workspace.file_host import FileHost
from stepwell.layers.workspace.points import CopyBackPoint
from stepwell.layers.workspace.site import HostOptions

from .folders import (
    BASE,
    MEMORY,
    Copied,
    Folder,
    Text,
    Thing,
    changes_of,
    copy_back,
    open_descriptors,
    opened,
    read_folder,
    refused,
    unfinished,
    write_folder,
)
from .test_copy_back import WHOLE

SOAK = bool(os.environ.get("STEPWELL_SOAK"))

ERRORS = [errno.EIO, errno.EDQUOT, errno.EROFS, errno.EACCES]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path / "root", BASE)
    return tmp_path / "root"


def error_of(outcome: Copied) -> WorkspaceError:
    match outcome:
        case Failure(WorkspaceError() as error):
            return error
        case other:
            raise AssertionError(other)


class Faults:
    """Lets the system call of one number fail, once it is switched on."""

    def __init__(self, number: int, code: int) -> None:
        self.is_on = False
        self.left = number
        self.code = code
        self.failed = ""

    def __call__(self, call: str, name: str) -> None:
        if self.is_on:
            self.left -= 1
            if self.left == 0:
                self.failed = call
                raise OSError(self.code, os.strerror(self.code), name)


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: errno.errorcode[code])
def test_n_03_an_error_of_any_call_leaves_all_or_nothing(memory: Path, code: int) -> None:
    before, after = WHOLE
    every = 1 if SOAK or code == errno.EIO else 5
    emptied = {**after, "removed": DirNode()}
    descriptors = open_descriptors()
    failed: set[str] = set()
    for number in count(1 + code % every, every):
        root = memory / "root"
        write_folder(root, before)
        faults = Faults(number, code)
        with opened(root, HostOptions(calls=SystemCalls(faults))) as host:
            faults.is_on = True
            outcome = copy_back(host, before, after, trees=("tree",))
            faults.is_on = False
        failed.add(faults.failed)
        found = read_folder(root)
        with opened(root) as host:
            recovered = host.recovered
        if isinstance(outcome, Success):
            assert found == emptied
        elif read_folder(root) != before:  # the answer did not know, and the next opening did
            assert error_of(outcome).code == "unknown_result", (number, faults.failed, outcome)
            assert recovered
        assert unfinished(root) == []
        assert open_descriptors() == descriptors, (number, faults.failed)
        shutil.rmtree(root)
        if faults.left > 0:
            break
    if every > 1:
        return
    assert {"openat2", "open", "read", "write", "fsync", "EXCHANGE", "NOREPLACE", "renameat", "unlinkat"} <= failed
    assert {"mkdirat", "rmdir", "flock", "fstat", "fchmod", "getdents", "symlinkat", "ioctl"} <= failed


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
THINGS: st.SearchStrategy[Thing] = st.one_of(
    st.builds(Text, st.sampled_from(["1", "2"]), st.booleans()),
    st.builds(LinkNode, st.sampled_from(["x", "y"])),
    st.just(DirNode()),
)


def possible(folder: Folder) -> Folder:
    """The part of a folder that can be: nothing is below a file or link, and a directory is named if it is empty."""
    kept: dict[str, Thing] = {}
    for path, thing in sorted(folder.items()):
        if all(isinstance(kept.get(above, DirNode()), DirNode) for above in ancestors(path)):
            kept[path] = thing
    full = {above for path in kept for above in ancestors(path)}
    return {path: thing for path, thing in kept.items() if path not in full}


FOLDERS = st.dictionaries(NAMES, THINGS, max_size=6).map(possible)


@given(FOLDERS, FOLDERS, st.integers(0, 200))
@example({"a": Text("1")}, {"a/b": Text("1")}, 0)
@example({"a/b/c": Text("1")}, {"a": LinkNode("x")}, 60)
@example({"a": LinkNode("x")}, {"a/a": DirNode()}, 0)
@example({"a": LinkNode("x")}, {"a/a/a": Text("1")}, 40)
def test_any_folder_becomes_any_other_or_stays_whatever_fails(before: Folder, after: Folder, number: int) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        root = Path(place)
        write_folder(root, before)
        faults = Faults(number, errno.EIO)
        descriptors = open_descriptors()
        with opened(root, HostOptions(calls=SystemCalls(faults))) as host:
            faults.is_on = True
            outcome = copy_back(host, before, after, trees=("",))
            faults.is_on = False
        assert open_descriptors() == descriptors
        with opened(root):
            found = read_folder(root)
        assert unfinished(root) == []
        if isinstance(outcome, Success):
            assert found == after
        elif error_of(outcome).code == "unknown_result":
            assert found in (before, after)
        else:
            assert found == before
        assert number > 0 or isinstance(outcome, Success)


def test_n_03_an_error_while_a_folder_is_opened_is_its_answer(root: Path) -> None:
    descriptors = open_descriptors()
    answers: list[str] = []
    for number in count(1):
        faults = Faults(number, errno.EIO)
        faults.is_on = True
        match FileHost.open(root, HostOptions(calls=SystemCalls(faults))):
            case Success(host):
                host.close()
            case Failure(error):
                answers.append(error.code)
        assert open_descriptors() == descriptors, (number, faults.failed)
        if faults.left > 0:
            break
    assert len(answers) > 20
    assert set(answers) == {"host_unavailable"}
    assert read_folder(root) == BASE


def test_n_03_an_error_while_what_was_left_is_ended_is_made_good_by_the_next(memory: Path) -> None:
    before, after = WHOLE
    kinds: set[str] = set()
    for number in count(1):
        root = memory / "root"
        write_folder(root, before)
        leave(root, before, after, CopyBackPoint.APPLIED, 3)
        faults = Faults(number, errno.EIO)
        faults.is_on = True
        match FileHost.open(root, HostOptions(calls=SystemCalls(faults), durability="process")):
            case Success(host):
                host.close()
            case Failure(error):
                kinds.add(error.code)
        with opened(root):
            pass
        found = {path: thing for path, thing in read_folder(root).items() if path != "removed"}
        assert found in (before, after), (number, faults.failed)
        assert unfinished(root) == []
        shutil.rmtree(root)
        if faults.left > 0:
            break
    assert kinds <= {"host_unavailable", "unknown_result"}


def test_cb1_cb8_cb13_what_was_applied_is_taken_back_the_last_first(root: Path) -> None:
    """The host refuses the third operation of the plan, once."""
    before: Folder = {**BASE, "a/old": Text("old-a"), "a/kept": Text("kept")}
    after = {path: thing for path, thing in before.items() if path != "old"}
    after = {**after, "a/old": Text("new-a"), "in.txt": Text("new-in"), "q/new": Text("b"), "run.sh": Text("x")}
    write_folder(root / "a", {"old": Text("old-a"), "kept": Text("kept")})
    moves: list[tuple[str, str]] = []
    is_on, left = False, 3

    def note(call: str, name: str) -> None:
        nonlocal left
        if is_on and call in ("EXCHANGE", "NOREPLACE"):
            left -= 1
            if left == 0:
                raise OSError(errno.EIO, "the disk is ill", name)
            moves.append((call, name))

    descriptors = open_descriptors()
    with opened(root, HostOptions(calls=SystemCalls(note))) as host:
        is_on = True
        error = error_of(copy_back(host, before, after))
        is_on = False
    assert error.code == "host_unavailable"
    assert "the disk is ill" in error.message
    assert moves == [("NOREPLACE", "n0"), ("NOREPLACE", "new"), ("NOREPLACE", "n1"), ("NOREPLACE", "old")]
    assert read_folder(root) == before
    assert not (root / "q").exists()
    assert unfinished(root) == []
    assert open_descriptors() == descriptors


class Gone(Exception):
    """Stands for the end of the process."""


def leave(root: Path, before: Folder, after: Folder, at: CopyBackPoint, passing: int = 1) -> None:
    """Leave a copy-back as a process does that ends at that passing of a point."""
    passed = 0

    def on_point(point: CopyBackPoint) -> None:
        nonlocal passed
        passed += point is at
        if point is at and passed == passing:
            raise Gone

    with opened(root, HostOptions(durability="process", on_point=on_point)) as host, pytest.raises(Gone):
        _ = copy_back(host, before, after, trees=("tree",))


# --- what was left ----------------------------------------------------------

NEW: Folder = {**BASE, "old": Text("new"), "out/r": Text("beta\n")}


def damaged(raw: bytes, how: str) -> bytes:
    _, _, body = raw.partition(b"\n")
    manifest = decode_manifest(raw)
    assert isinstance(manifest, Manifest)
    match how:
        case "cut in half":
            return raw[: len(raw) // 2]
        case "one byte flipped":
            return raw[:-20] + bytes([raw[-20] ^ 1]) + raw[-19:]
        case "version 99":
            body = body.replace(b'"v":1', b'"v":99')
            return digest_of(body).encode() + b"\n" + body
        case "another inode":
            place = type(manifest.place)(manifest.place.device, manifest.place.inode + 1, manifest.place.boot)
        case _:
            place = type(manifest.place)(manifest.place.device + 1, manifest.place.inode, manifest.place.boot)
    it = manifest
    return encode_manifest(Manifest(it.transaction, it.bundle_identity, place, it.owner, it.made, it.ops))


@pytest.mark.parametrize("how", ["cut in half", "one byte flipped", "version 99", "another inode", "another device"])
@pytest.mark.parametrize("marker", ["manifest", "undo"])
def test_x_26_what_is_not_understood_is_refused_and_kept(root: Path, how: str, marker: str) -> None:
    leave(root, BASE, NEW, CopyBackPoint.APPLIED)
    (name,) = unfinished(root)
    folder = root / ".stepwell/sandbox/tx" / name
    raw = (folder / "manifest").read_bytes()
    (folder / "manifest").unlink()
    _ = (folder / marker).write_bytes(damaged(raw, how))
    kept, found = {path.name: path.read_bytes() for path in folder.iterdir()}, read_folder(root)
    descriptors = open_descriptors()
    for _ in range(2):
        error = refused(root, HostOptions(durability="process"))
        assert error.code == "recovery_required"
        assert name in error.message
    assert open_descriptors() == descriptors
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept
    assert read_folder(root) == found


def test_x_26_nothing_else_is_ended_where_one_is_not_understood(root: Path) -> None:
    leave(root, BASE, NEW, CopyBackPoint.APPLIED)
    state = root / ".stepwell/sandbox/tx"
    (first,) = unfinished(root)
    _ = shutil.copytree(state / first, state / "zzz")
    _ = (state / "zzz/manifest").write_bytes(b"nothing")
    found = read_folder(root)
    assert refused(root).code == "recovery_required"
    assert read_folder(root) == found
    assert unfinished(root) == [first, "zzz"]


def test_device_numbers_of_another_boot_say_nothing(root: Path) -> None:
    leave(root, BASE, NEW, CopyBackPoint.APPLIED)
    (name,) = unfinished(root)
    manifest = root / ".stepwell/sandbox/tx" / name / "manifest"
    _ = manifest.write_bytes(damaged(manifest.read_bytes(), "another device"))
    with opened(root, HostOptions(durability="process", boot=lambda: "the next")) as host:
        assert host.recovered == (Recovered(name, "rolled forward"),)
    assert read_folder(root) == NEW


@pytest.mark.parametrize(
    ("decided", "how", "end"), [(True, "rolled forward", NEW), (False, "discarded", BASE), (None, "discarded", BASE)]
)
def test_the_record_decides_where_the_marker_is_behind(root: Path, decided: bool | None, how: str, end: Folder) -> None:
    leave(root, BASE, NEW, CopyBackPoint.DECISION_RECORDED)
    (name,) = unfinished(root)
    asked: list[CopyBackDecision] = []

    def was_decided(decision: CopyBackDecision) -> bool | None:
        asked.append(decision)
        return decided

    with opened(root, HostOptions(durability="process", was_decided=was_decided)) as host:
        assert [(it.transaction, it.how) for it in host.recovered if isinstance(it, Recovered)] == [(name, how)]
    assert [it.transaction for it in asked] == [name]
    assert read_folder(root) == end


def test_w_14_what_a_live_copy_back_stages_is_left_alone(root: Path) -> None:
    leave(root, BASE, NEW, CopyBackPoint.LOCKED)
    (dead,) = unfinished(root)
    after = {**BASE, "out/r": Text("beta\n")}
    with opened(root) as host:
        assert host.recovered == (Recovered(dead, "discarded"),)
        live = host.copy_back(changes_of(BASE, after))
        writer = live.stage("out/r")
        writer.write(b"beta\n")
        leave(root, BASE, NEW, CopyBackPoint.LOCKED)
        assert len(unfinished(root)) == 2
        with opened(root) as second:
            assert len(second.recovered) == 1
            assert len(unfinished(root)) == 1
        writer.close()
        assert isinstance(live.commit(), Success)
    assert read_folder(root) == after


def test_f_05_an_opening_without_anything_left_makes_few_calls(root: Path) -> None:
    calls: list[str] = []
    with opened(root, HostOptions(calls=SystemCalls(lambda call, _: calls.append(call)))):
        assert len(calls) < 80


# --- folders that cannot be used ----------------------------------------------


@pytest.mark.parametrize(
    ("call", "probe"),
    [("EXCHANGE", "RENAME_EXCHANGE"), ("NOREPLACE", "RENAME_NOREPLACE"), ("symlinkat", "resolution")],
)
def test_b_06_c_sb9_a_folder_without_what_is_needed_is_refused_by_name(root: Path, call: str, probe: str) -> None:
    def refuse(made: str, name: str) -> None:
        if made == call:
            raise OSError(errno.EINVAL, "Invalid argument", name)

    descriptors = open_descriptors()
    error = refused(root, HostOptions(calls=SystemCalls(refuse)))
    assert error.code == "host_unavailable"
    assert probe in error.message
    assert "Invalid argument" in error.message
    assert open_descriptors() == descriptors
    with opened(root):  # and nothing is left that a later probe stumbles over
        pass


def test_b_06_c_a_folder_whose_directories_cannot_be_synced_is_refused(root: Path) -> None:
    with opened(root):
        pass

    def refuse(made: str, name: str) -> None:
        if made == "fsync":
            raise OSError(errno.EINVAL, "Invalid argument", name)

    assert "directory fsync" in refused(root, HostOptions(calls=SystemCalls(refuse))).message


def test_a_folder_that_is_not_there_or_none_is_refused(root: Path) -> None:
    assert refused(root / "none").code == "host_unavailable"
    assert refused(root / "in.txt").code == "host_unavailable"


def test_a_folder_that_was_replaced_is_refused(root: Path) -> None:
    with opened(root) as host:
        root.rename(root.parent / "moved")
        write_folder(root, BASE)
        error = error_of(copy_back(host, BASE, NEW))
        assert error.code == "host_unavailable"
        assert "open it again" in error.message
    assert read_folder(root) == BASE
    assert read_folder(root.parent / "moved") == BASE
    assert unfinished(root.parent / "moved") == []


def test_a_state_directory_that_is_a_link_is_refused(root: Path) -> None:
    (root.parent / "outside").mkdir()
    (root / ".stepwell").symlink_to("../outside")
    assert refused(root).code in ("host_unavailable", "path_escapes_workspace")
    assert read_folder(root.parent / "outside") == {}


def test_git_sees_nothing_of_the_state_directory(root: Path) -> None:
    with opened(root):
        assert (root / ".stepwell/.gitignore").read_text() == "*\n"
    (root / ".stepwell/.gitignore").write_text("mine\n")
    with opened(root):
        assert (root / ".stepwell/.gitignore").read_text() == "mine\n"


@pytest.mark.parametrize("call", ["open", "write"])
def test_a_folder_is_used_where_that_cannot_be_said_to_git(root: Path, call: str) -> None:
    asked: list[str] = []

    def fail(name: str, about: str) -> None:
        if about == ".gitignore":
            asked.append(about)
        if asked and name == call:
            asked.append(name)
            if asked.count(call) == 1:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with opened(root, HostOptions(durability="process", calls=SystemCalls(fail))):
        assert call in asked


# --- disks --------------------------------------------------------------------


@contextmanager
def mounted(place: Path, *words: str) -> Generator[Path]:
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *words, str(place)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    try:
        yield place
    finally:
        _ = subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    if request.param == "tmpfs":
        with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "tmpfs") as place:
            yield place
        return
    if shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("needs mkfs.ext4 and loop devices")
    image = tmp_path / "image"
    with image.open("wb") as file:
        _ = file.truncate(4 << 20)
    _ = subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True)
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as place:
        yield place


def free_bytes(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def test_n_01_a_full_disk_leaves_the_host_untouched_and_the_space_free(small_disk: Path) -> None:
    root = small_disk / "root"
    write_folder(root, BASE)
    after = {**BASE, **{f"out/{number}": Text(str(number) * 700_000) for number in range(6)}}
    descriptors = open_descriptors()
    with opened(root, HostOptions()) as host:
        before = free_bytes(small_disk)
        error = error_of(copy_back(host, BASE, after))
        assert error.code == "host_unavailable"
        assert "No space left" in error.message
        assert unfinished(root) == []
        assert free_bytes(small_disk) == before
        assert isinstance(copy_back(host, BASE, {**BASE, "out/0": Text("0" * 700_000)}), Success)
    assert open_descriptors() == descriptors
    assert read_folder(root) == {**BASE, "out/0": Text("0" * 700_000)}


@needs_root
def test_s_20_a_target_on_another_file_system_is_refused(root: Path) -> None:
    with mounted(root / "m", "-t", "tmpfs", "tmpfs") as place:
        _ = (place / "x").write_text("v1")
        with opened(root) as host:
            after = {"m/x": Text("v2"), "m/d/y": Text("y"), "z": Text("")}
            error = error_of(copy_back(host, {"m/x": Text("v1")}, after))
            assert error.code == "host_unavailable"
            assert "another file system" in error.message
        assert read_folder(root) == {**BASE, "m/x": Text("v1")}
        assert unfinished(root) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_n_06_a_read_only_directory_is_refused_before_anything_is_written(root: Path) -> None:
    (root / "src").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with opened(root) as host:
        error = error_of(copy_back(host, BASE, {**BASE, "src/a.py": Text("A=2\n"), "aaa": Text("x")}))
        assert error.code == "host_unavailable"
    assert read_folder(root) == BASE


@needs_root
def test_n_06_a_directory_that_is_mounted_read_only_is_refused_before_anything_is_written(root: Path) -> None:
    with mounted(root / "src", "--bind", str(root / "src")) as place:
        _ = subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        with opened(root) as host:
            error = error_of(copy_back(host, BASE, {**BASE, "src/a.py": Text("A=2\n"), "aaa": Text("x")}))
            assert error.code == "host_unavailable"
        assert unfinished(root) == []
        assert read_folder(root) == BASE


@contextmanager
def immutable(place: Path) -> Generator[None]:
    done = subprocess.run(["chattr", "+i", str(place)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"nothing can be made immutable here: {done.stderr}")
    try:
        yield
    finally:
        _ = subprocess.run(["chattr", "-i", str(place)], check=True)


@needs_root
@pytest.mark.parametrize("marked", ["src/a.py", "src"])
def test_n_06_what_is_immutable_is_refused_before_anything_is_written(root: Path, marked: str) -> None:
    calls: list[str] = []

    def note(call: str, _: str) -> None:
        calls.append(call)

    with opened(root, HostOptions(calls=SystemCalls(note))) as host, immutable(root / marked):
        calls.clear()
        error = error_of(copy_back(host, BASE, {**BASE, "src/a.py": Text("A=2\n"), "aaa": Text("x")}))
        assert error.code == "host_unavailable"
        assert "EXCHANGE" not in calls
        assert "NOREPLACE" not in calls
        assert unfinished(root) == []
    assert read_folder(root) == BASE


# --- figures ------------------------------------------------------------------


def test_f_03_a_thousand_files_are_committed_in_a_few_seconds(root: Path) -> None:
    """Generous, to notice what grows with the square: 3 s on a disk that has little else to do."""
    after = {**BASE, **{f"out/{number % 10}/{number}": Text(f"{number:04096}") for number in range(1_000)}}
    with opened(root, HostOptions()) as host:
        assert isinstance(copy_back(host, BASE, after), Success)
    assert read_folder(root) == after
