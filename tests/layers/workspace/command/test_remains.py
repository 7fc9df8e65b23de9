"""What a command leaves is read as it is, or refused by name; and nothing of it is in the way of the next one."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from stepwell.core.command import Command
from stepwell.core.node import DirNode, FileNode, digest_of
from stepwell.core.outcome import Success
from stepwell.core.step_sandbox import LimitExceeded, WorkspaceError
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.workspace.command.runner import CommandRunner, Unsupported

from .world import PYTHON, declared, failure_of, files, needs_bwrap, result_of, sh, text_of

pytestmark = needs_bwrap


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def test_w_08_of_modes_only_the_right_to_execute_is_kept(runner: CommandRunner) -> None:
    script = "cd out; for m in 4777 2755 000 1777; do echo $m > f$m; chmod $m f$m; done"
    with umask(0o027):
        result = await result_of(runner, sh(script), files(), declared((), ("out/**",)))
    assert result.output.stderr == b""
    expected = {"f4777": True, "f2755": True, "f000": False, "f1777": True}
    assert result.tree == {
        f"out/{name}": FileNode(digest_of(f"{name[1:]}\n".encode()), len(name), executable)
        for name, executable in expected.items()
    }
    assert text_of(result, "out/f000") == "000\n"
    result.close()


async def test_directories_that_nobody_may_enter_are_read(runner: CommandRunner) -> None:
    script = "mkdir -p a/b; echo x > a/b/f; chmod 000 a/b; chmod 400 a; chmod 000 ."
    result = await result_of(runner, sh(script))
    assert result.output.stderr == b""
    assert list(result.tree) == ["a/b/f"]
    assert text_of(result, "a/b/f") == "x\n"
    result.close()


async def test_a_workspace_cannot_be_moved_away(runner: CommandRunner) -> None:
    code = (
        "import os\n"
        "open('f', 'w').close()\n"
        "for attempt in (lambda: os.rename('/stepwell/ws', '/tmp/ws'), lambda: os.rmdir('/stepwell/ws')):\n"
        "    try: attempt()\n"
        "    except OSError: print('refused')\n"
    )
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert result.output.stdout.split() == [b"refused"] * 2
    assert list(result.tree) == ["f"]
    result.close()


async def test_w_19_attributes_beside_the_content_are_dropped(runner: CommandRunner) -> None:
    code = (
        "import os, subprocess\n"
        "open('out/r', 'w').write('beta\\n')\n"
        "for attempt in (lambda: os.setxattr('out/r', 'user.x', b'1'),\n"
        "                lambda: subprocess.run(['setfacl', '-m', 'u:0:r', 'out/r']),\n"
        "                lambda: subprocess.run(['chattr', '+i', 'out/r'])):\n"
        "    try: attempt()\n"
        "    except OSError: pass\n"
    )
    result = await result_of(runner, Command((PYTHON, "-c", code)), files(), declared((), ("out/r",)))
    assert result.tree == {"out/r": FileNode(digest_of(b"beta\n"), 5)}
    result.close()


async def test_w_21_a_tree_that_is_too_deep_is_refused_and_gone(runner: CommandRunner) -> None:
    code = (
        "import os\n"
        "at = os.open('.', os.O_RDONLY)\n"
        "for _ in range(600):\n"
        "    os.mkdir('dddddddd', dir_fd=at)\n"
        "    below = os.open('dddddddd', os.O_RDONLY, dir_fd=at)\n"
        "    os.close(at)\n"
        "    at = below\n"
    )
    failure = await failure_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert failure == LimitExceeded("path_depth", 65, 64)
    failure = await failure_of(
        runner, Command((PYTHON, "-I", "-S", "-c", code)), limits=WorkspaceLimits(path_depth=700)
    )
    assert isinstance(failure, LimitExceeded)
    assert failure.what == "path_bytes"


async def test_s_15_what_is_no_file_is_named(runner: CommandRunner) -> None:
    code = (
        "import errno, os, socket\n"
        "os.mkfifo('out/p')\n"
        "socket.socket(socket.AF_UNIX).bind('out/s')\n"
        "try: os.mknod('out/d', 0o60644, os.makedev(8, 0))\n"
        "except OSError as error: print(errno.errorcode[error.errno])\n"
    )
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)), files(), declared((), ("out/**",)))
    assert result.output.stdout == b"EPERM\n"
    assert result.unsupported == (Unsupported("out/p", "FIFO"), Unsupported("out/s", "socket"))
    result.close()


async def test_hard_links_are_files_of_their_own(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("echo x > a; ln a b; ln -s a c"))
    assert result.tree["a"] == result.tree["b"] == FileNode(digest_of(b"x\n"), 2)
    assert text_of(result, "b") == "x\n"
    result.close()


async def test_empty_directories_are_kept_if_the_command_made_them(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("mkdir -p made/inner; mkdir out/empty"), files(), declared((), ("out/r",)))
    assert result.tree == {"made/inner": DirNode(), "out/empty": DirNode()}
    result.close()


async def test_a_name_that_is_no_text_is_refused(runner: CommandRunner) -> None:
    for code in (r"open(b'\xff', 'w')", r"import os; os.symlink(b'\xff', 'link')"):
        failure = await failure_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
        assert isinstance(failure, WorkspaceError)
        assert failure.code == "invalid_path"
        assert r"\udcff" in failure.message


async def test_what_the_seed_says_is_compared_by_content(runner: CommandRunner) -> None:
    seed = files({"in.txt": "alpha\n"})
    script = "rm -f in.txt; printf 'alpha\\n' > in.txt; touch -d 2001-01-01 in.txt"
    result = await result_of(runner, sh(script), seed)
    assert result.tree == seed.tree
    result.close()


async def test_no_descriptor_is_left_behind(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("echo x > f"))
    result.close()
    before = len(os.listdir("/proc/self/fd"))
    for limits in (WorkspaceLimits(), WorkspaceLimits(nodes=0), WorkspaceLimits(wall=1)):
        outcome = await runner.run(files({"in": "x"}), declared(), sh("echo x > f"), limits)
        if isinstance(outcome, Success):
            outcome.unwrap().close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_nothing_is_mounted_on_the_host_meanwhile(runner: CommandRunner) -> None:
    def mounts() -> str:
        with open("/proc/self/mounts") as file:
            return file.read()

    before = mounts()
    result = await result_of(runner, sh("true"))
    assert mounts() == before
    result.close()
