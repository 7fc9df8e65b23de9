"""Others who write to the folder while a copy-back goes on: their bytes are kept, and none of ours stay among them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell.core.copy_back import CopyBackDecision, CopyBackEvent, LateWritePreserved, PreimageKept
from stepwell.core.node import DirNode, LinkNode
from stepwell.core.outcome import Failure, Success
from stepwell.core.step_sandbox import MaterializationConflict, WorkspaceError
from stepwell.layers.workspace.calls import SystemCalls
from stepwell.layers.workspace.host import CopiedBack
from stepwell.layers.workspace.points import CopyBackPoint
from stepwell.layers.workspace.site import HostOptions

from .folders import (
    BASE,
    Copied,
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

BEFORE: Folder = {**BASE, "out/r": Text("v1"), "z": Text("z1")}
AFTER: Folder = {
    **{path: thing for path, thing in BEFORE.items() if path != "old"},
    "out/r": Text("beta\n"),
    "out/new/s": Text("new"),
    "src/a.py": Text("A=2\n"),
    "z": Text("z2"),
}
"""Five outputs: two that are replaced before `out/r` or after it, one that is made, one that is removed."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path / "root", BEFORE)
    return tmp_path / "root"


def meddling(root: Path, at: CopyBackPoint, meddle: Callable[[], None], passing: int = 1) -> Copied:
    """Copy back, and do something else when a point is passed for that time."""
    passed = 0

    def on_point(point: CopyBackPoint) -> None:
        nonlocal passed
        passed += point is at
        if point is at and passed == passing:
            meddle()

    with opened(root, HostOptions(durability="process", on_point=on_point)) as host:
        outcome = copy_back(host, BEFORE, AFTER)
        assert passed >= passing
        assert unfinished(root) == []
    with opened(root) as host:
        assert host.recovered == ()
    return outcome


MOMENTS = {
    "m_01_a_during_the_body": (CopyBackPoint.STAGED, 1),
    "m_01_b_before_preflight": (CopyBackPoint.LOCKED, 1),
    "between_preflight_and_decision": (CopyBackPoint.PREFLIGHT_PASSED, 1),
    "m_01_c_after_the_decision": (CopyBackPoint.DECISION_DURABLE, 1),
    "m_01_d_between_two_operations": (CopyBackPoint.APPLIED, 1),
    "later_between_two_operations": (CopyBackPoint.APPLIED, 2),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("edit", ["in place", "replaced", "chmod", "directory", "link", "fifo", "gone"])
def test_m_01_an_edit_at_any_moment_is_a_conflict_and_is_kept(root: Path, moment: str, edit: str) -> None:
    target = root / "out/r"

    def meddle() -> None:
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
            target.symlink_to("../in.txt")
        elif edit == "fifo":
            os.mkfifo(target)

    point, passing = MOMENTS[moment]
    assert meddling(root, point, meddle, passing) == Failure(MaterializationConflict(("out/r",)))
    if edit == "fifo":
        target.unlink()  # it is there, and nobody reads it
    left: dict[str, Folder] = {
        "in place": {"out/r": Text("EDIT")},
        "replaced": {"out/r": Text("EDIT")},
        "chmod": {"out/r": Text("v1", executable=True)},
        "directory": {"out/r": DirNode()},
        "link": {"out/r": LinkNode("../in.txt")},
        "fifo": {"out": DirNode()},
        "gone": {"out": DirNode()},
    }
    others = {path: thing for path, thing in BEFORE.items() if path != "out/r"}
    assert read_folder(root) == {**others, **left[edit]}


@pytest.mark.parametrize("point", [CopyBackPoint.DECISION_DURABLE, CopyBackPoint.APPLIED])
def test_a_file_that_appears_where_one_is_made_stays(root: Path, point: CopyBackPoint) -> None:
    def meddle() -> None:
        write_folder(root, {"out/new/s": Text("theirs")})

    assert meddling(root, point, meddle) == Failure(MaterializationConflict(("out/new/s",)))
    assert read_folder(root) == {**BEFORE, "out/new/s": Text("theirs")}


def test_an_edit_of_a_file_that_is_to_be_removed_stays(root: Path) -> None:
    def meddle() -> None:
        _ = (root / "old").write_text("EDIT")

    done = meddling(root, CopyBackPoint.DECISION_DURABLE, meddle)
    assert done == Failure(MaterializationConflict(("old",)))
    assert read_folder(root) == {**BEFORE, "old": Text("EDIT")}


@pytest.mark.parametrize("kind", ["link", "gone"])
def test_s_18_a_parent_that_is_replaced_meanwhile_leads_nowhere_else(root: Path, kind: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    _ = (outside / "r").write_text("v1")

    def meddle() -> None:
        (root / "out").rename(root / "moved")
        if kind == "link":
            (root / "out").symlink_to("../outside")

    assert isinstance(meddling(root, CopyBackPoint.DECISION_DURABLE, meddle), Failure)
    assert read_folder(outside) == {"r": Text("v1")}
    found = read_folder(root)
    assert found["moved/r"] == Text("v1")
    assert found["src/a.py"] == Text("A=1\n")
    assert found["old"] == Text("old\n")


def test_m_07_a_late_write_through_an_old_handle_is_kept(root: Path) -> None:
    handle = (root / "out/r").open("r+")

    def meddle() -> None:
        _ = handle.write("LATE")
        handle.close()

    outcome = meddling(root, CopyBackPoint.APPLIED_DURABLE, meddle)
    assert isinstance(outcome, Success)
    (event,) = outcome.unwrap().events
    assert isinstance(event, LateWritePreserved)
    assert event.path == "out/r"
    assert (root / event.kept).read_text() == "LATE"
    assert read_folder(root) == AFTER


def test_both_versions_are_kept_where_our_bytes_were_edited_before_they_were_taken_back(root: Path) -> None:
    """Their edit of the new file stays at the target, and what was there before can be found."""
    told: list[CopyBackEvent] = []
    applied = 0

    def on_point(point: CopyBackPoint) -> None:
        nonlocal applied
        applied += point is CopyBackPoint.APPLIED
        if point is CopyBackPoint.APPLIED and (root / "out/r").read_text() == "beta\n":
            _ = (root / "out/r").write_text("EDIT of ours")
            _ = (root / "z").write_text("EDIT")

    with opened(root, HostOptions(durability="process", on_point=on_point, on_event=told.append)) as host:
        conflict = copy_back(host, BEFORE, AFTER)
    assert conflict == Failure(MaterializationConflict(("out/r", "z")))
    (event,) = told
    assert isinstance(event, PreimageKept)
    assert event.path == "out/r"
    assert (root / event.kept).read_text() == "v1"
    assert read_folder(root) == {**BEFORE, "out/r": Text("EDIT of ours"), "z": Text("EDIT")}


# --- deciding ---------------------------------------------------------------


def test_x_28_a_decision_that_is_refused_leaves_the_host_untouched(root: Path) -> None:
    asked: list[CopyBackDecision] = []

    def refuse(decision: CopyBackDecision) -> bool:
        asked.append(decision)
        return False

    with opened(root, HostOptions(durability="process", decide=refuse)) as host:
        refused_with = copy_back(host, BEFORE, AFTER)
    assert [it.bundle_identity[:8] for it in asked] == ["bundle1_"]
    assert isinstance(refused_with, Failure)
    error = refused_with.failure()
    assert isinstance(error, WorkspaceError)
    assert error.code == "not_decided"
    assert read_folder(root) == BEFORE
    assert unfinished(root) == []


def test_n_05_a_decision_that_fails_leaves_the_host_untouched(root: Path) -> None:
    def fail(_: CopyBackDecision) -> bool:
        raise RuntimeError("database or disk is full")

    descriptors = open_descriptors()
    with opened(root, HostOptions(durability="process", decide=fail)) as host:
        outcome = copy_back(host, BEFORE, AFTER)
    assert isinstance(outcome, Failure)
    error = outcome.failure()
    assert isinstance(error, WorkspaceError)
    assert "disk is full" in error.message
    assert read_folder(root) == BEFORE
    assert unfinished(root) == []
    assert open_descriptors() == descriptors


def test_what_the_record_says_decides_also_if_asking_it_failed(root: Path) -> None:
    def fail(_: CopyBackDecision) -> bool:
        raise RuntimeError("the connection was lost")

    with opened(root, HostOptions(durability="process", decide=fail, was_decided=lambda _: True)) as host:
        assert copy_back(host, BEFORE, AFTER) == Success(CopiedBack())
    assert read_folder(root) == AFTER


# --- the lock ---------------------------------------------------------------

COUNTING = """
import sys
from pathlib import Path
from stepwell.core.outcome import Success
from stepwell.layers.workspace.site import HostOptions
from tests.layers.workspace.folders import Text, copy_back, opened

root = Path(sys.argv[1])
with opened(root, HostOptions(durability="process")) as host:
    left = int(sys.argv[2])
    while left:
        text = (root / "counter").read_text()
        before, after = {"counter": Text(text)}, {"counter": Text(str(int(text) + 1))}
        left -= isinstance(copy_back(host, before, after), Success)
"""


def test_m_08_two_processes_that_count_lose_nothing(root: Path) -> None:
    times = 100
    _ = (root / "counter").write_text("0")
    words = [sys.executable, "-c", COUNTING, str(root), str(times)]
    place = Path(__file__).parents[3]
    counting = [subprocess.Popen(words, cwd=place) for _ in range(2)]
    assert [process.wait() for process in counting] == [0, 0]
    assert (root / "counter").read_text() == str(2 * times)
    assert unfinished(root) == []


def test_m_09_a_copy_back_within_another_is_refused_at_once(root: Path) -> None:
    inner: list[Copied] = []

    def on_point(point: CopyBackPoint) -> None:
        if point is CopyBackPoint.PREFLIGHT_PASSED:
            inner.append(copy_back(second, BEFORE, {**BEFORE, "z": Text("mine")}))

    with opened(root) as second, opened(root, HostOptions(durability="process", on_point=on_point)) as first:
        assert copy_back(first, BEFORE, AFTER) == Success(CopiedBack())
        (refusal,) = inner
        assert isinstance(refusal, Failure)
        error = refusal.failure()
        assert isinstance(error, WorkspaceError)
        assert error.code == "commit_lock_held"
        assert copy_back(second, AFTER, BEFORE) == Success(CopiedBack())
    assert {path: thing for path, thing in read_folder(root).items() if path != "out/new"} == BEFORE


@pytest.mark.parametrize("other", ["thread", "descriptor"])
def test_waiting_for_the_lock_is_bounded(root: Path, other: str) -> None:
    """Held by a thread of this process, or by an open file as another process would."""
    late: list[Copied] = []

    def commit_beside() -> None:
        late.append(copy_back(second, BEFORE, {**BEFORE, "z": Text("mine")}))

    def on_point(point: CopyBackPoint) -> None:
        if point is CopyBackPoint.PREFLIGHT_PASSED:
            thread = threading.Thread(target=commit_beside)
            thread.start()
            thread.join()

    options = HostOptions(durability="process", lock_wait_s=0.05)
    with opened(root, options) as second:
        if other == "thread":
            with opened(root, HostOptions(durability="process", on_point=on_point)) as first:
                assert copy_back(first, BEFORE, AFTER) == Success(CopiedBack())
        else:
            held = os.open(root / ".stepwell/sandbox/lock", os.O_RDWR)
            assert SystemCalls().try_lock(held)
            commit_beside()
            os.close(held)
            assert read_folder(root) == BEFORE
    (outcome,) = late
    assert isinstance(outcome, Failure)
    error = outcome.failure()
    assert isinstance(error, WorkspaceError)
    assert error.code == "commit_lock_timeout"
    assert unfinished(root) == []


def test_a_19_several_may_stage_at_once(root: Path) -> None:
    one, two = {**BEFORE, "out/a": Text("a\n")}, {**BEFORE, "out/b": Text("b\n")}
    with opened(root) as host:
        first, second = host.copy_back(changes_of(BEFORE, one)), host.copy_back(changes_of(BEFORE, two))
        stage_all(second.stage, changes_of(BEFORE, two), two)
        stage_all(first.stage, changes_of(BEFORE, one), one)
        assert len(unfinished(root)) == 2
        assert isinstance(first.commit(), Success)
        assert isinstance(second.commit(), Success)
        assert unfinished(root) == []
    assert read_folder(root) == {**one, **two}


def test_a_directory_that_somebody_makes_at_the_same_time_is_a_conflict(root: Path) -> None:
    outcome = meddling(root, CopyBackPoint.PREFLIGHT_PASSED, (root / "out/new").mkdir)
    assert outcome == Failure(MaterializationConflict(("out/new/s",)))
    assert read_folder(root) == {**BEFORE, "out/new": DirNode()}
