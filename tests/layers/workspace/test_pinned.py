"""Resolution beneath a held directory, by openat2 and part by part: the same answers, and never a way out."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.special_node import SpecialNode
from stepwell.layers.workspace.calls import SystemCalls
from stepwell.layers.workspace.pinned import Pinned, look


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pinned]:
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "root/a/b/f").write_text("inside")
    (tmp_path / "outside/b").mkdir(parents=True)
    (tmp_path / "outside/b/f").write_text("OUTSIDE")
    calls = SystemCalls(openat2=request.param is True)
    if request.param is True and not calls.has_openat2:
        pytest.skip("this kernel has no openat2")
    before = open_descriptors()
    pinned = Pinned.of(calls, str(tmp_path / "root"))
    yield pinned
    pinned.close()
    assert open_descriptors() == before


def read(root: Pinned, path: str) -> str:
    descriptor = root.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 100).decode()
    finally:
        os.close(descriptor)


def refusal(root: Pinned, path: str) -> str | None:
    try:
        _ = read(root, path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return None


def test_what_lies_beneath_is_opened(root: Pinned) -> None:
    assert read(root, "a/b/f") == "inside"
    assert refusal(root, "a/b/none") == "ENOENT"
    assert refusal(root, "none/b/f") == "ENOENT"
    assert refusal(root, "a/b/f/g") == "ENOTDIR"


@pytest.mark.parametrize("target", ["/etc", "../outside", "a", "ln", "nowhere"])
def test_s_02_no_link_is_followed_wherever_it_stands(root: Pinned, tmp_path: Path, target: str) -> None:
    top = tmp_path / "root"
    (top / "ln").symlink_to(target)
    (top / "a/ln").symlink_to(target)
    for path in ("ln", "ln/b/f", "a/ln", "a/ln/b/f", "ln/ln"):
        assert refusal(root, path) == "ELOOP", path
    for path in ("ln", "a/ln"):
        with pytest.raises(OSError, match="symbolic links") as raised, root.directory(path):
            pass
        assert raised.value.errno == errno.ELOOP


@pytest.mark.parametrize("path", ["../outside/b/f", "a/../a/b/f", "a//b/f", "./a/b/f", "/etc/passwd", "a/b/f\0x", "a/"])
def test_odd_paths_reach_no_system_call(root: Pinned, path: str) -> None:
    with pytest.raises(ValueError, match=r"relative path|NUL"):
        root.open(path, os.O_RDONLY)
    with pytest.raises(ValueError, match=r"relative path|NUL"), root.parent(path):
        pass


def test_another_directory_in_its_place_leads_nowhere_else(root: Pinned, tmp_path: Path) -> None:
    (tmp_path / "root").rename(tmp_path / "moved")
    (tmp_path / "outside").rename(tmp_path / "root")
    assert read(root, "a/b/f") == "inside"


def test_what_stands_there_is_told_by_descriptor(root: Pinned, tmp_path: Path) -> None:
    top = tmp_path / "root"
    (top / "x").write_bytes(b"#!")
    (top / "x").chmod(0o755)
    (top / "ln").symlink_to("a/b/f")
    os.mkfifo(top / "p")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(top / "s"))
    seen = {name: look(root.calls, root.descriptor, name) for name in ("x", "a", "ln", "p", "s", "none")}
    assert seen == {
        "x": FileNode(digest_of(b"#!"), 2, executable=True),
        "a": DirNode(),
        "ln": LinkNode("a/b/f"),
        "p": SpecialNode("a FIFO"),
        "s": SpecialNode("a socket or a device"),
        "none": None,
    }


def test_a_link_whose_text_is_no_utf8_is_no_node(root: Pinned, tmp_path: Path) -> None:
    os.symlink(b"\xff", os.fsencode(tmp_path) + b"/root/odd")
    assert look(root.calls, root.descriptor, "odd") == SpecialNode("a link whose text is not UTF-8")


def test_a_path_longer_than_one_call_takes_is_refused_and_leaks_nothing(root: Pinned) -> None:
    assert refusal(root, "/".join(["dddddddd"] * 600)) in ("ENAMETOOLONG", "ENOENT")


def test_a_lookup_that_renames_disturb_is_made_again(tmp_path: Path) -> None:
    left = [errno.EAGAIN, errno.EINTR, errno.EAGAIN]

    def disturbed(call: str, name: str) -> None:
        if call == "openat2" and left:
            raise OSError(left.pop(), "disturbed", name)

    pinned = Pinned.of(SystemCalls(disturbed), str(tmp_path))
    if not pinned.calls.has_openat2:
        pytest.skip("this kernel has no openat2")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_text("x")
    assert read(pinned, "a/f") == "x"
    assert left == []
    pinned.close()
