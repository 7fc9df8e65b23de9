"""What a command looks up is seen, by name, however it does it; and what of it was an undeclared read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stepwell.core.command import Command
from stepwell.core.lookup import Lookup
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.workspace.command.launch.looks import Look
from stepwell.layers.workspace.command.launch.tally import Tally
from stepwell.layers.workspace.command.runner import CommandResult, CommandRunner

from .world import PYTHON, compiled, declared, files, must_be_root, needs_bwrap, result_of, sh, undeclared

pytestmark = needs_bwrap

READER = (
    "#include <fcntl.h>\n#include <unistd.h>\n"
    'int main(void) { char b[64]; int f = open("secret", O_RDONLY); return f < 0 || read(f, b, 64) < 0; }'
)


def on_host(*paths: str) -> set[str]:
    return set(paths)


def looks(result: CommandResult) -> set[tuple[str, str, bool]]:
    return {(lookup.kind, lookup.path, lookup.present) for lookup in result.lookups}


@pytest.mark.parametrize("argv", [("cat", "secret"), (PYTHON, "-I", "-c", "open('secret')")], ids=["cat", "python"])
async def test_b_03_an_undeclared_read_is_named(runner: CommandRunner, argv: tuple[str, ...]) -> None:
    result = await result_of(runner, Command(argv))
    assert result.output.exit_code != 0
    assert undeclared(result, on_host("secret").__contains__) == ("secret",)
    assert undeclared(result, on_host().__contains__) == ()
    result.close()


async def test_b_03_an_undeclared_read_of_a_static_program_is_named(runner: CommandRunner) -> None:
    seed = files({"program": compiled(READER, "-static")})
    result = await result_of(runner, Command(("./program",)), seed)
    assert result.output.exit_code != 0
    assert undeclared(result, on_host("secret").__contains__, seed=seed) == ("secret",)
    result.close()


async def test_b_04_what_is_nowhere_is_one_probe_however_often_it_is_looked_for(runner: CommandRunner) -> None:
    code = "import os\nfor _ in range(500):\n try: open('inc/missing.h')\n except OSError: pass"
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert Lookup("read", "inc/missing.h", False, 500) in result.lookups
    sightings = result.sightings(
        declared=lambda path: False, seeded=lambda path: False, host_has=lambda path: False, strict_probes=False
    )
    assert sightings.undeclared == ()
    assert [path for path in sightings.probes if not path.startswith("/")] == ["inc/missing.h"]
    assert undeclared(result, lambda path: False, strict_probes=True) == ("inc/missing.h",)
    result.close()


async def test_b_14_paths_are_read_after_an_execution_as_before(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("exec cat in.txt"), files({"in.txt": "alpha\n"}))
    assert result.output.stdout == b"alpha\n"
    assert ("read", "in.txt", True) in looks(result)
    assert all(lookup.path or lookup.in_workspace for lookup in result.lookups)
    result.close()


async def test_b_15_every_look_of_every_thread_is_counted(runner: CommandRunner, tmp_path: Path) -> None:
    code = (
        "import os, threading\n"
        "def work(n):\n"
        "    for i in range(200): os.close(os.open(f't{n}/f{i}', os.O_RDONLY))\n"
        "for n in range(50):\n"
        "    os.mkdir(f't{n}')\n"
        "    for i in range(200): os.close(os.open(f't{n}/f{i}', os.O_WRONLY | os.O_CREAT))\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
    )
    argv = (PYTHON, "-I", "-S", "-c", code)
    result = await result_of(runner, Command(argv))
    assert (result.output.exit_code, result.output.stderr) == (0, b"")
    seen = [lookup for lookup in result.lookups if lookup.path.startswith("t") and lookup.kind == "read"]
    assert len(seen) == 10_000
    assert sum(lookup.count for lookup in seen) == 10_000 == counted_by_strace(argv, tmp_path)
    assert result.complete
    result.close()


def counted_by_strace(argv: tuple[str, ...], folder: Path) -> int:
    """How often files were opened for reading, by another tool; what is expected where that is not there."""
    if shutil.which("strace") is None:
        return 10_000
    work, trace = folder / "work", folder / "trace"
    work.mkdir()
    watched = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=openat", "-o", str(trace), *argv]
    subprocess.run(watched, cwd=work, check=True)
    lines = trace.read_text().splitlines()
    return sum('openat(AT_FDCWD, "t' in line and "O_RDONLY" in line for line in lines)


async def test_what_the_command_made_itself_is_no_undeclared_read(runner: CommandRunner) -> None:
    script = "echo x > own; cat own; rm own; cat own; mkdir d; ls d; cat never"
    result = await result_of(runner, sh(script))
    assert undeclared(result, lambda path: True) == ("never",)
    result.close()


async def test_what_was_seeded_is_none_either_also_when_it_was_removed(runner: CommandRunner) -> None:
    seed = files({"in.txt": "alpha\n"})
    result = await result_of(runner, sh("cat in.txt; rm -f in.txt; cat in.txt"), seed)
    assert undeclared(result, lambda path: path == "in.txt", seed=seed) == ()
    result.close()


async def test_s_07_a_link_is_followed_to_what_it_leads_to(runner: CommandRunner) -> None:
    seed = files({"d/f": "x"}, links={"ln": "in2.txt", "dir": "d", "out": "/no/such/thing"})
    result = await result_of(runner, sh("cat ln; cat dir/f dir/../d/./f; cat out; readlink ln"), seed)
    assert {
        ("readlink", "ln", True),
        ("read", "in2.txt", False),
        ("readlink", "dir", True),
        ("read", "d/f", True),
        ("readlink", "out", True),
        ("read", "/no/such/thing", False),
    } <= looks(result)
    assert undeclared(result, on_host("in2.txt", "/no/such/thing").__contains__, seed=seed) == (
        "/no/such/thing",
        "in2.txt",
    )
    result.close()


async def test_the_same_path_is_named_however_it_is_spelt(runner: CommandRunner) -> None:
    spellings = [
        "secret",
        "./secret",
        ".//secret",
        "d/../secret",
        "../ws/secret",
        "/stepwell/ws/secret",
        "/proc/self/cwd/secret",
        "/proc/self/root/stepwell/ws/secret",
        "//proc/self/cwd/secret",
        "/proc/./self/cwd/secret",
        "/proc/thread-self/cwd/secret",
        "/tmp/link/secret",
        "/dev/fd/9/secret",
    ]
    opened = " ".join(f"cat {spelling};" for spelling in spellings)
    result = await result_of(runner, sh(f"mkdir d; ln -s /stepwell/ws /tmp/link; exec 9<.; {opened}"))
    (found,) = [lookup for lookup in result.lookups if lookup.path == "secret"]
    assert (found.kind, found.present, found.count) == ("read", False, len(spellings))
    result.close()


async def test_what_a_descriptor_that_is_not_open_leads_to_is_nothing(runner: CommandRunner) -> None:
    code = "import os\ntry: os.open('etc/hostname', os.O_RDONLY, dir_fd=999)\nexcept OSError: pass"
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert undeclared(result, lambda path: path.endswith("etc/hostname")) == ()
    result.close()


async def test_a_directory_may_be_called_as_if_it_were_deleted(runner: CommandRunner) -> None:
    script = "mkdir 'd (deleted)' gone; cd 'd (deleted)'; cat one; cd ../gone; rmdir ../gone; cat two"
    result = await result_of(runner, sh(script))
    assert {("read", "d (deleted)/one", False), ("read", "gone/two", False)} <= looks(result)
    result.close()


@pytest.mark.parametrize("line", ["#!tools/run", "#! /stepwell/ws/tools/run -x", "#!tools/run\targument"])
async def test_the_interpreter_of_a_script_is_executed_too(runner: CommandRunner, line: str) -> None:
    """It is the kernel that opens it, by no call that could be told of."""
    seed = files({"script": f"{line}\n", "tools/twice": "#!script\n"})
    result = await result_of(runner, sh("./script; cd tools; ln -s ../script; ./twice"), seed)
    assert ("exec", "tools/run", False) in looks(result)
    assert undeclared(result, on_host("tools/run").__contains__, seed=seed) == ("tools/run",)
    result.close()


@must_be_root
def test_a_watch_that_may_not_look_into_a_program_says_so() -> None:
    """A program that its user may execute and not read keeps its memory to itself."""
    code = (
        "import asyncio, concurrent.futures.thread, encodings.idna, os, sys\n"
        "from stepwell.core.boundary import Boundary, declare\n"
        "from stepwell.core.command import Command\n"
        "from stepwell.core.workspace_limits import LIMITS\n"
        "from stepwell.layers.workspace.command.runner import CommandRunner\n"
        "from stepwell.layers.workspace.host import Seed\n"
        "class Nothing:\n"
        "    def close(self): pass\n"
        "async def main():\n"
        f"    runner = CommandRunner(python={PYTHON!r})\n"
        "    command = Command((sys.argv[1],))\n"
        "    outcome = await runner.run(Seed({}, Nothing()), declare(Boundary()), command, LIMITS)\n"
        "    print('complete', outcome.unwrap().complete)\n"
        "    outcome.unwrap().close()\n"
        "    await runner.close()\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "asyncio.run(main())\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = Path(folder, "program")
        program.write_bytes(compiled(READER, "-static"))
        program.chmod(0o711)
        done = subprocess.run([sys.executable, "-c", code, str(program)], capture_output=True, text=True, check=False)
    assert done.stdout == "complete False\n", done.stderr


async def test_all_ways_to_look_something_up_are_told_apart(runner: CommandRunner) -> None:
    code = (
        "import os\n"
        "def attempt(go):\n"
        "    try: go()\n"
        "    except OSError: pass\n"
        "attempt(lambda: os.stat('stat'))\n"
        "attempt(lambda: os.access('access', os.R_OK))\n"
        "attempt(lambda: os.readlink('readlink'))\n"
        "attempt(lambda: os.listdir('list'))\n"
        "attempt(lambda: os.execv('exec', ['exec']))\n"
        "attempt(lambda: os.open('create', os.O_WRONLY | os.O_CREAT | os.O_TRUNC))\n"
        "attempt(lambda: os.open('new', os.O_WRONLY | os.O_CREAT | os.O_EXCL))\n"
        "attempt(lambda: os.open('append', os.O_WRONLY | os.O_CREAT))\n"
        "attempt(lambda: os.open('update', os.O_RDWR | os.O_CREAT))\n"
        "attempt(lambda: os.open('handle', os.O_PATH))\n"
        "attempt(lambda: os.rename('rename', 'x'))\n"
        "attempt(lambda: os.link('link', 'x'))\n"
        "os.mkdir('at'); at = os.open('at', os.O_RDONLY)\n"
        "attempt(lambda: os.open('read', os.O_RDONLY, dir_fd=at))\n"
        "attempt(lambda: os.stat('stat', dir_fd=at))\n"
    )
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert result.output.stderr == b""
    expected = {
        "stat": "stat",
        "access": "stat",
        "readlink": "readlink",
        "list": "list",
        "exec": "exec",
        "create": "create",
        "new": "create",
        "append": "append",
        "update": "update",
        "handle": "stat",
        "rename": "read",
        "link": "read",
        "at/read": "read",
        "at/stat": "stat",
    }
    assert {path: kind for kind, path, present in looks(result) if path in expected and not present} == expected
    result.close()


async def test_names_that_are_no_text_and_long_paths_are_seen(runner: CommandRunner) -> None:
    long = "/".join(["d" * 200] * 10)
    code = f"import os\nfor path in (b'\\xff\\xfe', {long!r}):\n try: open(path)\n except OSError: pass"
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert {("read", "\udcff\udcfe", False), ("read", long, False)} <= looks(result)
    result.close()


async def test_beyond_its_limit_a_trace_is_not_complete(runner: CommandRunner) -> None:
    code = "import os\nfor i in range(100): os.path.exists(str(i))"
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)), limits=WorkspaceLimits(trace=50))
    assert (len(result.lookups), result.complete) == (50, False)
    result.close()


async def test_programs_of_the_system_are_no_reads(runner: CommandRunner) -> None:
    result = await result_of(runner, Command((PYTHON, "-c", "import json, ssl, sqlite3, decimal")), None, declared())
    assert result.output.stderr == b""
    assert undeclared(result, os.path.lexists) == ()
    result.close()


@pytest.mark.parametrize(
    "code",
    [
        "import readline",
        "import socket\ntry: socket.getaddrinfo('example.org', 80)\nexcept OSError: pass",
        "import os, time\ndel os.environ['TZ']\ntime.tzset()\nassert time.tzname[0] == 'UTC', time.tzname",
        "import platform\nassert platform.freedesktop_os_release()",
        "import mimetypes, os\nfor path in mimetypes.knownfiles: os.path.exists(path) and open(path).close()",
    ],
    ids=["readline", "names of hosts", "time zone", "name of the system", "kinds of files"],
)
async def test_what_programs_look_up_in_etc_is_made_up_or_of_the_system(runner: CommandRunner, code: str) -> None:
    result = await result_of(runner, Command((PYTHON, "-I", "-c", code)))
    assert (result.output.exit_code, result.output.stderr) == (0, b"")
    assert undeclared(result, os.path.lexists) == ()
    result.close()


@pytest.mark.parametrize(
    "argv",
    [("bash", "-lc", "true"), ("perl", "-e", "my @it = getpwnam('root'); die if !@it"), ("file", "/usr/bin/env"),
     ("keytool", "-genseckey", "-keyalg", "AES", "-keysize", "128", "-keystore", "k", "-storepass", "secret"),
     ("fc-list",), ("curl", "-s", "-o", "/tmp/x", "file:///etc/hosts")],
    ids=lambda argv: argv[0],
)  # fmt: skip
async def test_usual_programs_read_nothing_that_would_have_to_be_declared(
    runner: CommandRunner, argv: tuple[str, ...]
) -> None:
    if shutil.which(argv[0]) is None:
        pytest.skip(f"there is no {argv[0]}")
    result = await result_of(runner, Command(argv))
    assert result.output.exit_code == 0, result.output.stderr
    assert undeclared(result, os.path.lexists) == ()
    result.close()


async def test_f_04_a_look_costs_little_more_than_being_told_of_it(runner: CommandRunner) -> None:
    """Generous, for machines that are busy: it is to notice a cost that grows, not a slow day."""
    code = (
        "import os, time\n"
        "def cost(count):\n"
        "    began = time.perf_counter()\n"
        "    for i in range(count): os.path.lexists(f'f{i}')\n"
        "    return (time.perf_counter() - began) / count\n"
        "print(min(cost(100) for _ in range(5)), min(cost(2000) for _ in range(3)))\n"
    )
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    few, many = map(float, result.output.stdout.split())
    assert many < 3 * few
    assert min(few, many) < 300e-6
    result.close()


def test_a_trace_of_long_paths_ends_before_it_is_too_large() -> None:
    tally = Tally((), (), limit=1_000_000)
    long = "/" + "x" * 4_000
    for number in range(20_000):
        tally.note([Look("stat", f"{long}{number}", False)])
    assert not tally.complete
    with os.fdopen(tally.written()) as lines:
        assert 60 << 20 < sum(len(line) for line in lines) < 66 << 20
