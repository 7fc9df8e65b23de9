"""Seeding from a folder: copies of what was declared, and of nothing else, whatever stands or changes there."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from stepwell.core.boundary import Boundary
from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.outcome import Failure, Success
from stepwell.core.step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError
from stepwell.core.workspace_limits import LIMITS, WorkspaceLimits
from stepwell.layers.workspace.calls import SystemCalls
from stepwell.layers.workspace.file_host import FileHost
from stepwell.layers.workspace.site import HostOptions

from .folders import (
    BASE,
    Folder,
    Text,
    copy_back,
    open_descriptors,
    opened,
    read_seed,
    seed_of,
    tree_of,
    write_folder,
)

SOAK = bool(os.environ.get("STEPWELL_SOAK"))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path / "root", BASE)
    return tmp_path / "root"


def refusal(
    host: FileHost, boundary: Boundary, limits: WorkspaceLimits = LIMITS, *, portable: bool = True
) -> LimitExceeded | WorkspaceError:
    """The refusal of a seed; nothing of it is kept."""
    descriptors = open_descriptors()
    match seed_of(host, boundary, limits, portable=portable):
        case Failure(error):
            assert open_descriptors() == descriptors
            return error
        case Success(seed):
            raise AssertionError(seed.tree)


def code_of(error: LimitExceeded | WorkspaceError) -> str:
    return error.what if isinstance(error, LimitExceeded) else error.code


def test_sb21_what_is_declared_is_copied_and_nothing_else(root: Path) -> None:
    boundary = Boundary(reads=("in.txt", "none", "src/**/*.py", "*.none"), writes=("run.sh", "out/r"), removes=("old",))
    descriptors = open_descriptors()
    with opened(root) as host:
        seed = seed_of(host, boundary).unwrap()
        _ = (root / "in.txt").write_text("later\n")
        wanted = {path: thing for path, thing in BASE.items() if path in ("in.txt", "old") or path.startswith("src/")}
        assert seed.tree == tree_of(wanted)
        assert seed.absent == {"none"}
        assert seed.matches == {"*.none": (), "src/**/*.py": ("src/.hid.py", "src/a.py", "src/d/b.py")}
        assert seed.baseline == tree_of({"run.sh": BASE["run.sh"]})
        texts = {path: thing.text for path, thing in wanted.items() if isinstance(thing, Text)}
        assert read_seed(seed) == texts
    assert open_descriptors() == descriptors


def test_d_01_d_02_sb16_globs_are_anchored_and_know_no_hidden_files(root: Path) -> None:
    write_folder(root, {"a.txt": Text(""), "d/a.txt": Text(""), ".env": Text("E=1"), "d/é": Text(""), "d/z": Text("")})
    with opened(root) as host:
        seed = seed_of(host, Boundary(reads=("*.txt", "**/*", "d/*"))).unwrap()
        seed.contents.close()
    assert seed.matches["*.txt"] == ("a.txt", "in.txt")
    assert seed.matches["d/*"] == ("d/a.txt", "d/z", "d/é")
    assert {".env", "src/.hid.py", "in.txt"} <= set(seed.matches["**/*"])


def test_what_belongs_to_stepwell_or_git_is_never_read_by_a_glob(root: Path) -> None:
    write_folder(root, {".git/config": Text("secret"), "sub/.git/x": Text("fine")})
    with opened(root) as host:
        seed = seed_of(host, Boundary(reads=("**", "**/config", ".*/**", ".git/config"))).unwrap()
        seed.contents.close()
    assert seed.matches["**/config"] == ()
    assert seed.matches[".*/**"] == ()
    assert set(seed.matches["**"]) == {*BASE, "sub/.git/x"}
    assert set(seed.tree) == {*BASE, "sub/.git/x", ".git/config"}


def test_sb15_a_glob_at_the_top_does_not_depend_on_the_current_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    with opened(Path()) as host:
        seed = seed_of(host, Boundary(reads=("*.txt",))).unwrap()
        seed.contents.close()
    assert seed.matches == {"*.txt": ("in.txt",)}


def test_the_baseline_has_all_that_stands_at_the_write_targets(root: Path) -> None:
    write_folder(root, {"out/f": Text("f"), "out/d/g": Text("g"), "out/e/e": DirNode(), "gen/x.o": Text("o")})
    (root / "out/ln").symlink_to("f")
    boundary = Boundary(writes=("out/**", "gen/*.o", "gen/none", "none/**"))
    with opened(root) as host:
        seed = seed_of(host, boundary).unwrap()
        seed.contents.close()
    assert seed.tree == {}
    top: Folder = {"out": DirNode(), "out/f": Text("f"), "out/d/g": Text("g"), "out/e/e": DirNode()}
    assert seed.baseline == tree_of({**top, "out/ln": LinkNode("f"), "gen/x.o": Text("o")})


# --- links and odd files ------------------------------------------------------


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside/f", "../" * 9 + "etc/passwd"])
def test_s_01_a_link_out_of_the_workspace_is_no_seed(root: Path, target: str) -> None:
    (root / "in.txt").unlink()
    (root / "in.txt").symlink_to(target)
    with opened(root) as host:
        for reads in ("in.txt", "*.txt"):
            error = refusal(host, Boundary(reads=(reads,)))
            assert code_of(error) == "path_escapes_workspace"


@pytest.mark.parametrize("reads", ["src/a.py", "src/*.py", "src/**"])
def test_s_02_what_lies_behind_a_linked_directory_is_refused(root: Path, reads: str) -> None:
    outside = root.parent / "outside"
    write_folder(outside, {"a.py": Text("OUTSIDE")})
    (root / "src").rename(root / "was")
    (root / "src").symlink_to("../outside")
    with opened(root) as host:
        assert code_of(refusal(host, Boundary(reads=(reads,)))) == "path_escapes_workspace"


def test_s_07_a_link_is_seeded_as_the_text_that_it_holds(root: Path) -> None:
    (root / "ln").symlink_to("secret")
    with opened(root) as host:
        seed = seed_of(host, Boundary(reads=("ln",))).unwrap()
        assert seed.tree == {"ln": LinkNode("secret")}
        with pytest.raises(KeyError):
            _ = seed.contents.open("ln")
        seed.contents.close()


def test_a_linked_directory_is_not_entered_by_a_glob(root: Path) -> None:
    (root / "ln").symlink_to("src")
    with opened(root) as host:
        seed = seed_of(host, Boundary(reads=("**/*.py", "l*"))).unwrap()
        seed.contents.close()
    assert seed.matches == {"**/*.py": ("src/.hid.py", "src/a.py", "src/d/b.py"), "l*": ("ln",)}


@pytest.mark.parametrize("reads", ["p", "p*"])
def test_s_13_a_pipe_is_refused_and_nobody_waits_for_its_other_end(root: Path, reads: str) -> None:
    os.mkfifo(root / "p")
    with opened(root) as host:
        began = time.monotonic()
        error = refusal(host, Boundary(reads=(reads,)))
        assert time.monotonic() - began < 1
        assert error == WorkspaceError(
            "unsupported_file_type", "'p' is a FIFO; a step reads and writes files, links and directories"
        )
        assert code_of(refusal(host, Boundary(writes=(reads,)))) == "unsupported_file_type"


def test_s_14_a_socket_is_refused(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, opened(root) as host:
        listener.bind(str(root / "s"))
        assert code_of(refusal(host, Boundary(reads=("s",)))) == "unsupported_file_type"


@needs_root
def test_s_14_a_device_is_refused_and_nothing_is_read(root: Path) -> None:
    os.mknod(root / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    calls: list[str] = []
    with opened(root, HostOptions(calls=SystemCalls(lambda call, _: calls.append(call)))) as host:
        calls.clear()
        assert code_of(refusal(host, Boundary(reads=("zero",)))) == "unsupported_file_type"
        assert "read" not in calls


def test_d_09_a_directory_is_no_read_and_the_message_says_what_is(root: Path) -> None:
    with opened(root) as host:
        error = refusal(host, Boundary(reads=("src",)))
        assert isinstance(error, WorkspaceError)
        assert error.code == "unsupported_file_type"
        assert "src/**" in error.message
        (root / "empty").mkdir()
        seed = seed_of(host, Boundary(removes=("empty",))).unwrap()
        seed.contents.close()
        assert seed.tree == {"empty": DirNode()}
        assert code_of(refusal(host, Boundary(removes=("src",)))) == "unsupported_file_type"


# --- names ----------------------------------------------------------------------


def test_u_02_a_name_that_is_not_nfc_is_refused_or_kept_as_it_is(root: Path) -> None:
    odd = "cafe\u0301"
    write_folder(root, {odd: Text("x")})
    with opened(root) as host:
        assert code_of(refusal(host, Boundary(reads=("caf*",)))) == "invalid_path"
    with opened(root, HostOptions(portable_names=False)) as host:
        seed = seed_of(host, Boundary(reads=("caf*",)), portable=False).unwrap()
        assert read_seed(seed) == {odd: "x"}


def test_a_name_that_is_no_utf8_is_refused_and_shown(root: Path) -> None:
    _ = Path(os.fsdecode(os.fsencode(root) + b"/bad\xff")).write_text("x")
    with opened(root) as host:
        error = refusal(host, Boundary(reads=("bad*",)))
        assert isinstance(error, WorkspaceError)
        assert error.code == "invalid_path"
        assert error.message.encode()  # it can be written anywhere


def test_names_that_another_system_takes_for_one_are_refused(root: Path) -> None:
    write_folder(root, {"d/Readme": Text("a"), "d/README": Text("b")})
    with opened(root) as host:
        assert code_of(refusal(host, Boundary(reads=("d/*",)))) == "name_collision"
    with opened(root, HostOptions(portable_names=False)) as host:
        seed = seed_of(host, Boundary(reads=("d/*",)), portable=False).unwrap()
        assert read_seed(seed) == {"d/Readme": "a", "d/README": "b"}


# --- limits ---------------------------------------------------------------------


def test_d_11_more_files_than_the_limit_are_refused_and_none_is_kept(root: Path) -> None:
    write_folder(root, {f"many/{number}": Text("") for number in range(101)})
    limits = replace(LIMITS, seeded_files=100)
    with opened(root) as host:
        assert refusal(host, Boundary(reads=("many/*",)), limits) == LimitExceeded("seeded_files", 101, 100)
        (root / "many/0").unlink()
        seed_of(host, Boundary(reads=("many/*",)), limits).unwrap().contents.close()


def test_s_21_a_sparse_file_is_refused_by_its_size_at_once(root: Path) -> None:
    with (root / "big").open("wb") as file:
        _ = file.truncate(1 << 40)
    calls: Counter[str] = Counter()
    with opened(root, HostOptions(calls=SystemCalls(lambda call, _: calls.update([call])))) as host:
        calls.clear()
        expected = LimitExceeded("file_bytes", 1 << 40, LIMITS.file_bytes)
        assert refusal(host, Boundary(reads=("big",))) == expected
        assert refusal(host, Boundary(writes=("big",))) == expected
        assert calls["read"] == 0


def test_all_bytes_together_are_limited(root: Path) -> None:
    limits = replace(LIMITS, seeded_bytes=10)
    with opened(root) as host:
        assert refusal(host, Boundary(reads=("in.txt", "secret")), limits) == LimitExceeded("seeded_bytes", 13, 10)
        seed_of(host, Boundary(reads=("in.txt",)), limits).unwrap().contents.close()


def test_targets_are_limited_in_number(root: Path) -> None:
    with opened(root) as host:
        error = refusal(host, Boundary(writes=("src/**",)), replace(LIMITS, nodes=2))
        assert error == LimitExceeded("nodes", 3, 2)


def test_a_file_that_grows_while_it_is_copied_is_limited_all_the_same(root: Path) -> None:
    """Its size when it was opened says nothing about how much there is to read."""

    def grow(call: str, name: str) -> None:
        if call == "read":
            with (root / "in.txt").open("ab") as file:
                _ = file.write(b"x" * 100)

    with opened(root, HostOptions(calls=SystemCalls(grow))) as host:
        error = refusal(host, Boundary(reads=("in.txt",)), replace(LIMITS, file_bytes=1_000))
        assert code_of(error) == "file_bytes"


# --- others at work -------------------------------------------------------------


def test_s_17_the_copy_is_what_its_digest_says_whoever_writes_meanwhile(root: Path) -> None:
    wrote = 0

    def write(call: str, name: str) -> None:
        nonlocal wrote
        if call == "read":
            wrote += 1
            with (root / "in.txt").open("r+b") as file:
                _ = file.truncate(wrote % 5)
                _ = file.seek(0, os.SEEK_END)
                _ = file.write(f"{wrote}".encode() * (wrote % 7))

    with opened(root, HostOptions(calls=SystemCalls(write))) as host:
        for _ in range(1_000):
            seed = seed_of(host, Boundary(reads=("in.txt",))).unwrap()
            node = seed.tree["in.txt"]
            assert isinstance(node, FileNode)
            with seed.contents.open("in.txt") as file:
                data = file.read()
            assert (digest_of(data), len(data)) == (node.digest, node.size)
            seed.contents.close()
    assert wrote >= 1_000


def swap_for_links(root: str, outside: str) -> None:
    """Replace `src` by a link to a directory outside and back, for ever."""
    while True:
        os.rename(f"{root}/src", f"{root}/real")
        os.symlink(outside, f"{root}/src")
        os.unlink(f"{root}/src")
        os.rename(f"{root}/real", f"{root}/src")


def swap_for_directories(root: str, _: str) -> None:
    """Replace `src/a.py` by a directory and back, for ever, whatever others put there for a moment."""
    while True:
        with suppress(OSError):
            os.rename(f"{root}/src/a.py", f"{root}/src/real")
        with suppress(OSError):
            os.mkdir(f"{root}/src/a.py")
        with suppress(OSError):
            os.rmdir(f"{root}/src/a.py")
        with suppress(OSError):
            os.rename(f"{root}/src/real", f"{root}/src/a.py")


@contextmanager
def beside(work: Callable[[str, str], None], root: Path, outside: Path) -> Generator[None]:
    process = get_context("spawn").Process(target=work, args=(str(root), str(outside)))
    process.start()
    try:
        yield
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
        process.close()


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_s_03_a_directory_that_is_swapped_for_a_link_leads_nowhere(root: Path, openat2: bool) -> None:
    outside = root.parent / "outside"
    write_folder(outside, {"a.py": Text("OUTSIDE")})
    seen: Counter[str] = Counter()
    options = HostOptions(durability="process", calls=SystemCalls(openat2=openat2))
    with opened(root, options) as host, beside(swap_for_links, root, outside):
        descriptors = open_descriptors()
        end = time.monotonic() + (10 if SOAK else 1.5)
        while time.monotonic() < end or len(seen) < 2:
            for reads in ("src/a.py", "src/*.py"):
                match seed_of(host, Boundary(reads=(reads,))):
                    case Success(seed):
                        texts = read_seed(seed)
                        seen[texts.get("src/a.py", "absent")] += 1
                    case Failure(error):
                        seen[code_of(error)] += 1
        assert open_descriptors() == descriptors
    assert set(seen) <= {"A=1\n", "absent", "path_escapes_workspace"}, seen
    assert seen["A=1\n"] > 0


def test_s_18_a_file_that_is_swapped_for_a_directory_is_a_typed_refusal(root: Path) -> None:
    boundary = Boundary(reads=("src/a.py",), writes=("src/a.py",))
    before: Folder = {"src/a.py": Text("A=1\n")}
    after: Folder = {"src/a.py": Text("A=2\n"), "z": Text("z")}
    seen: Counter[str] = Counter()
    with opened(root) as host, beside(swap_for_directories, root, root):
        descriptors = open_descriptors()
        end = time.monotonic() + (5 if SOAK else 1.5)
        while time.monotonic() < end or not {"unsupported_file_type", "committed", "moved"} <= set(seen):
            match seed_of(host, boundary):
                case Success(seed):
                    seen[read_seed(seed).get("src/a.py", "absent")] += 1
                case Failure(error):
                    seen[code_of(error)] += 1
            match copy_back(host, before, after):
                case Success():
                    before, after = after, before
                    seen["committed"] += 1
                case Failure(answer):
                    seen["moved" if answer == MaterializationConflict(("src/a.py",)) else str(answer)] += 1
        assert open_descriptors() == descriptors
    assert set(seen) <= {"A=1\n", "A=2\n", "absent", "unsupported_file_type", "committed", "moved"}, seen


# --- measuring ------------------------------------------------------------------


class Reads:
    """Counts how often a file is read, on a machine whose clock a test moves on."""

    def __init__(self, later_ms: int) -> None:
        self.count = 0
        self.later_ms = later_ms

    def options(self) -> HostOptions:
        return HostOptions(
            durability="process", calls=SystemCalls(self._note), now_ms=lambda: time.time_ns() // 10**6 + self.later_ms
        )

    def _note(self, call: str, _: str) -> None:
        self.count += call == "read"


def test_b12_a_file_that_did_not_change_lately_is_read_once(root: Path) -> None:
    reads = Reads(later_ms=10_000)
    with opened(root, reads.options()) as host:
        nodes = [host.measure("in.txt").unwrap() for _ in range(3)]
        assert nodes == [tree_of(BASE)["in.txt"]] * 3
        assert reads.count == 2  # its bytes, and its end


def test_b13_a_file_whose_status_changed_is_read_again(root: Path) -> None:
    reads = Reads(later_ms=10_000)
    with opened(root, reads.options()) as host:
        _ = host.measure("in.txt")
        status = (root / "in.txt").stat()
        _ = (root / "in.txt").write_text("gamma\n")
        os.utime(root / "in.txt", ns=(status.st_atime_ns, status.st_mtime_ns))  # the same size, and the same mtime
        reads.count = 0
        assert host.measure("in.txt").unwrap() == tree_of({"in.txt": Text("gamma\n")})["in.txt"]
        assert reads.count > 0


def test_b14_a_young_file_and_one_without_a_time_are_read_each_time(root: Path) -> None:
    reads = Reads(later_ms=0)
    with opened(root, reads.options()) as host:
        for _ in range(3):
            _ = host.measure("in.txt")
        assert reads.count == 6
    os.utime(root / "in.txt", ns=(0, 0))
    reads = Reads(later_ms=10_000)
    with opened(root, reads.options()) as host:
        for _ in range(3):
            _ = host.measure("in.txt")
        assert reads.count == 6


def test_has_follows_no_link(root: Path) -> None:
    (root / "ln").symlink_to("src")
    (root / "dangling").symlink_to("nowhere")
    with opened(root) as host:
        found = {path for path in ("", "in.txt", "src", "src/d/b.py", "ln", "dangling") if host.has(path)}
        assert found == {"", "in.txt", "src", "src/d/b.py", "ln", "dangling"}
        assert not [path for path in ("none", "none/x", "in.txt/x", "ln/a.py", "x" * 300) if host.has(path)]
