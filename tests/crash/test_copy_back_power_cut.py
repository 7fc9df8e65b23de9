"""Copy-backs whose machine loses its power: what had reached the disk by then is recovered to all or nothing.

A file system lies on a loop device that passes each write straight to an image. A copy of the image, made at a point of
the copy-back, is what a power cut would have left; it is mounted elsewhere, and recovered.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell.core.copy_back import Recovered
from stepwell.core.outcome import Success
from stepwell.layers.workspace.points import CopyBackPoint
from stepwell.layers.workspace.site import Durability, HostOptions

from ..layers.workspace.folders import copy_back, opened, read_folder, unfinished, write_folder
from .copy_back_child import SCENARIOS
from .test_copy_back_crash import Case

SOAK = bool(os.environ.get("STEPWELL_SOAK"))

EVERY_POINT = 1 if SOAK else 6
"""Of so many points one is tried, and both sides of each that decides."""

DECIDING = (CopyBackPoint.DECISION_RECORDED, CopyBackPoint.DECISION_DURABLE, CopyBackPoint.APPLIED_DURABLE)

MAKERS = {"ext4": ("mkfs.ext4", "-q"), "xfs": ("mkfs.xfs", "-q")}
SIZES = {"ext4": 16 << 20, "xfs": 320 << 20}

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount"),
    pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="needs loop devices"),
]


def run(*words: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    return done.stdout.strip()


def is_xfs(device: str) -> bool:
    """Only xfs minds that a copy of what is mounted, or was a moment ago, is mounted too."""
    return run("blkid", "--probe", "--output", "value", "--match-tag", "TYPE", device) == "xfs"


@contextmanager
def mounted(image: Path, place: Path) -> Generator[Path]:
    """The file system of an image, mounted at a place. What has reached its disk is in the image."""
    place.mkdir(exist_ok=True)
    device = run("losetup", "--find", "--show", "--direct-io=on", str(image))
    try:
        _ = run("mount", *(("-o", "nouuid") if is_xfs(device) else ()), device, str(place))
        try:
            yield place
        finally:
            _ = run("umount", str(place))
    finally:
        _ = run("losetup", "--detach", device)


@pytest.fixture(params=list(MAKERS))
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind = str(request.param)
    maker = MAKERS[kind]
    if shutil.which(maker[0]) is None:
        pytest.skip(f"needs {maker[0]}")
    path = tmp_path / "image"
    with path.open("wb") as file:
        _ = file.truncate(SIZES[kind])
    _ = run(*maker, str(path))
    cut(
        path, tmp_path / "tried"
    )  # a copy, since a mount may outlast its end for a moment, and nothing is mounted twice
    try:
        with mounted(tmp_path / "tried", tmp_path / "probe"):
            pass
    except RuntimeError as error:
        pytest.skip(f"no loop device can be mounted here: {error}")
    return path


def cut(image: Path, snapshot: Path) -> None:
    """What the disk has at this moment."""
    _ = run("cp", "--sparse=always", str(image), str(snapshot))


def commit_with_cuts(image: Path, case: Case, durability: Durability) -> list[Path]:
    """Copy back; images of the disk at points on the way, and one after it returned."""
    cuts: list[Path] = []
    passed = 0

    def on_point(point: CopyBackPoint) -> None:
        nonlocal passed
        passed += 1
        if durability == "full" and (passed % EVERY_POINT == 0 or point in DECIDING):
            cuts.append(case.place / f"cut-{passed}")
            cut(image, cuts[-1])

    with mounted(image, case.place / "disk") as disk:
        root = disk / "root"
        write_folder(root, case.before)
        with opened(root, HostOptions(durability="full")):  # its own directories are there
            pass
        _ = run("sync", "--file-system", str(disk))
        with opened(root, HostOptions(durability=durability, on_point=on_point)) as host:
            assert isinstance(copy_back(host, case.before, case.after, trees=("tree",)), Success)
            assert case.told(root) == "after"
            cuts.append(case.place / "cut-end")
            cut(image, cuts[-1])
    return cuts


def told_after(snapshot: Path, case: Case) -> str:
    """What the next boot makes of it."""
    with mounted(snapshot, case.place / "mounted") as disk:
        root = disk / "root"
        with opened(root, HostOptions(boot=lambda: "the next")) as host:
            assert all(isinstance(event, Recovered) and event.conflicts == () for event in host.recovered)
        assert unfinished(root) == []
        return case.told(root)


@pytest.mark.parametrize("name", list(SCENARIOS) if SOAK else ["whole"])
def test_y_01_a_power_cut_at_any_point_leaves_all_or_nothing(image: Path, name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    told = [told_after(snapshot, case) for snapshot in commit_with_cuts(image, case, "full")]
    decided = told.index("after")
    assert told == ["before"] * decided + ["after"] * (len(told) - decided)
    assert decided > 0
    assert len(told) - decided > 2


def test_y_02_without_syncs_the_same_cut_loses_what_was_done(image: Path, tmp_path: Path) -> None:
    """The control: if this were "after", the cuts above would prove nothing."""
    case = Case("whole", tmp_path)
    (end,) = commit_with_cuts(image, case, "process")
    assert told_after(end, case) != "after"
    assert read_folder(tmp_path / "disk") == {}
