"""What a command cannot reach, and that nobody takes this on trust: the self-test, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.core.command import Command, CommandRefused
from stepwell.core.outcome import Failure, Success
from stepwell.core.workspace_limits import LIMITS
from stepwell.layers.workspace.command.launch.probes import ALLOWED, DECLARED
from stepwell.layers.workspace.command.policy import HOME, WORKSPACE, Policy
from stepwell.layers.workspace.command.proof import SCRIPT, Bait
from stepwell.layers.workspace.command.runner import CommandRunner, Proof

from .world import PYTHON, compiled, declared, files, must_be_root, needs_bwrap, result_of, sh, undeclared

pytestmark = needs_bwrap

LINKS = [name for name in ("bin", "lib", "lib64") if os.path.islink(f"/{name}")]
LINKED = [word for name in LINKS for word in ("--symlink", f"usr/{name}", f"/{name}")]
ROOT = ["--ro-bind", "/usr", "/usr", *LINKED, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
READ_ONLY = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]

WEAKER = {
    "another directory": [],
    "the whole host read-only": [*READ_ONLY, "--unshare-pid", "--unshare-net"],
    "the host's network and variables": [*ROOT, "--unshare-user", "--unshare-pid", "--unshare-ipc"],
}


async def test_b_01_nothing_gets_out_and_what_is_declared_works(runner: CommandRunner) -> None:
    assert isinstance(await runner.prove(), Success)
    with Bait() as bait:
        view = Policy().view(Command((PYTHON,)))
        result = await result_of(runner, bait.command(PYTHON, view), bait.seed(), declared((), ("out.txt",)))
        answers: dict[str, str] = json.loads(result.output.stdout)
        assert {name for name, answer in answers.items() if answer == ALLOWED} == set(DECLARED)
        assert not bait.was_reached()
        result.close()


@must_be_root
def test_b_01_each_probe_gets_out_of_a_weaker_sandbox(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "in.txt").write_text("i")
    (workspace / "probes.py").write_bytes(SCRIPT)
    reached: set[str] = set()
    probes: set[str] = set()
    with Bait() as bait:
        (workspace / "evil").symlink_to(bait.secret)
        told = bait.told(Policy().view(Command((PYTHON,))))
        inherited = os.open(bait.secret, os.O_RDONLY)
        for arguments in WEAKER.values():
            bound = ["--bind", str(workspace), str(workspace), "--chdir", str(workspace)]
            sandbox = ["bwrap", *arguments, *bound] if arguments else []
            command = [*sandbox, PYTHON, "-I", "-S", "probes.py", json.dumps(told)]
            done = subprocess.run(command, cwd=workspace, capture_output=True, check=False, pass_fds=[inherited])
            assert done.stdout, done.stderr
            answers: dict[str, str] = json.loads(done.stdout)
            probes |= answers.keys()
            reached |= {name for name, answer in answers.items() if answer == ALLOWED}
        os.close(inherited)
    assert probes - reached == set()


@pytest.mark.parametrize(
    ("leak", "probe"),
    [
        (("--ro-bind", "/etc/passwd", "/etc/passwd"), "the host's /etc/passwd"),
        (("--bind", "/tmp", "/tmp"), "read an undeclared file"),
        pytest.param(("--bind", "/usr", "/usr"), "write to the system", marks=must_be_root),
    ],
)
async def test_a_sandbox_that_leaks_is_refused_by_the_name_of_the_probe(leak: tuple[str, ...], probe: str) -> None:
    """Bubblewrap may start and isolate nothing: that it started proves nothing."""
    own = CommandRunner(python=PYTHON, policy=Policy(leaks=leak))
    outcome = await own.prove()
    assert isinstance(outcome, Failure)
    refused = outcome.failure()
    assert probe in refused.message
    assert "does not hold" in refused.message
    assert "install" in refused.message
    assert outcome == await own.run(files(), declared(), sh("true"), LIMITS)
    await own.close()


async def test_b_06_a_bubblewrap_that_only_fails_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for name, script in {"fails": "exit 1", "lies": 'test "$1" = --version && echo bubblewrap 0.8.0'}.items():
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        own = CommandRunner(bwrap=str(fake), python=PYTHON)
        outcome = await own.prove()
        assert isinstance(outcome, Failure)
        assert outcome.failure().probe == "bubblewrap"
        assert "install the package bubblewrap" in outcome.failure().message
        await own.close()


async def test_b_06_a_bubblewrap_that_does_not_isolate_is_refused(tmp_path: Path) -> None:
    """It executes what it is told to, and leaves out all that it is for."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        f"#!{PYTHON} -IS\n"
        "import json, os, sys\n"
        "words = sys.argv[1:]\n"
        "if words == ['--version']:\n"
        "    print('bubblewrap 9.9.9')\n"
        "    sys.exit()\n"
        "status = int(words[words.index('--json-status-fd') + 1])\n"
        f"os.chdir(words[words.index({WORKSPACE!r}) - 1])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    command = words[words.index('--') + 1:]\n"
        "    os.execv(command[0], command)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "os.write(status, json.dumps({'exit-code': code}).encode())\n"
    )
    fake.chmod(0o755)
    own = CommandRunner(bwrap=str(fake), python=PYTHON)
    outcome = await own.prove()
    assert isinstance(outcome, Failure)
    assert "does not hold" in outcome.failure().message
    await own.close()


PROVE = (
    "import asyncio\n"
    "from stepwell.layers.workspace.command.runner import CommandRunner\n"
    "async def main():\n"
    f"    runner = CommandRunner(python={PYTHON!r})\n"
    "    print(await runner.prove())\n"
    "    await runner.close()\n"
    "asyncio.run(main())\n"
)


@pytest.mark.parametrize(
    "variables",
    [{"HOME": "/"}, {"HOME": "/usr/sbin"}, {"PWD": "/"}, {"TMPDIR": "long"}],
    ids=["home is the root", "home is of the system", "only PWD", "long TMPDIR"],
)
def test_b_01_where_the_program_was_started_from_is_no_leak(tmp_path: Path, variables: dict[str, str]) -> None:
    """Containers and services have homes such as / and /usr/sbin."""
    if "TMPDIR" in variables:
        long = tmp_path / ("t" * 120)
        long.mkdir()
        variables = {"TMPDIR": str(long)}
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment = {**variables, **kept}
    done = subprocess.run([sys.executable, "-c", PROVE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<Success: Proof("), done.stdout + done.stderr


def test_b_06_where_nothing_can_be_laid_out_for_the_self_test_commands_are_refused(tmp_path: Path) -> None:
    """Without a folder for temporary files there is no bait."""
    code = f"import tempfile\ntempfile.tempdir = {str(tmp_path / 'none')!r}\n{PROVE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "<Failure: CommandRefused(probe='bait'" in done.stdout, done.stdout + done.stderr
    assert "TMPDIR" in done.stdout


@must_be_root
def test_b_01_a_machine_without_a_network_is_no_obstacle() -> None:
    command = ["unshare", "--net", sys.executable, "-c", PROVE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<Success: Proof("), done.stdout + done.stderr


@pytest.mark.parametrize("place", ["/no/such/tool", "no/such/tool", "/"])
async def test_a_toolchain_that_cannot_be_shown_is_refused_by_name(place: str) -> None:
    own = CommandRunner(python=PYTHON, policy=Policy(roots=(place,)))
    outcome = await own.prove()
    assert isinstance(outcome, Failure)
    refused = outcome.failure()
    assert refused.probe == "toolchain"
    assert f"({place} " in refused.message
    assert "name absolute folders" in refused.message
    await own.close()


async def test_without_bubblewrap_commands_are_refused(tmp_path: Path) -> None:
    own = CommandRunner(bwrap=str(tmp_path / "bwrap"), python=PYTHON)
    refused = CommandRefused(
        "bubblewrap", f"there is no {tmp_path}/bwrap: install the package bubblewrap (0.8 or later), or give its path"
    )
    assert await own.prove() == Failure(refused)
    await own.close()


@must_be_root
def test_b_06_without_user_namespaces_commands_are_refused_with_the_switch_to_turn() -> None:
    script = (
        "import asyncio, ctypes\n"
        "from stepwell.layers.workspace.command.runner import CommandRunner\n"
        "async def main():\n"
        f"    runner = CommandRunner(python={PYTHON!r})\n"
        "    print((await runner.prove()).failure())\n"
        "    await runner.close()\n"
        "asyncio.run(main())\n"
    )
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "probe='user_namespaces'" in done.stdout, done.stderr
    assert "sysctl -w user.max_user_namespaces=10000" in done.stdout


async def test_b_17_another_version_and_another_policy_are_proved_anew(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    bwrap = shutil.which("bwrap")

    def wrapped(version: str) -> None:
        replaced = tmp_path / "new"
        replaced.write_text(f'#!/bin/sh\ntest "$1" = --version && exec echo bubblewrap {version}\nexec {bwrap} "$@"\n')
        replaced.chmod(0o755)
        replaced.rename(program)

    wrapped("0.8.0")
    own = CommandRunner(bwrap=str(program), python=PYTHON)
    first = proved(await own.prove())
    assert proved(await own.prove()) is first
    wrapped("0.11.0")
    second = proved(await own.prove())
    assert (first.version, second.version) == ("0.8.0", "0.11.0")
    assert first.probe_digest != second.probe_digest
    other = CommandRunner(bwrap=str(program), python=PYTHON, policy=Policy(roots=("/etc/hostname",)))
    third = proved(await other.prove())
    assert third.policy_digest != second.policy_digest
    assert third.probe_digest != second.probe_digest
    for each in (own, other):
        await each.close()


def proved(outcome: Success[Proof] | Failure[CommandRefused]) -> Proof:
    assert isinstance(outcome, Success), outcome
    return outcome.unwrap()


async def test_b_02_the_host_cannot_be_reached_by_its_own_paths(runner: CommandRunner, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t\n")
    result = await result_of(runner, sh(f"cat {secret}; echo x > {secret}; echo x > {tmp_path}/new"))
    assert result.output.stdout == b""
    said = result.output.stderr.decode().lower()
    assert said.count("no such file") + said.count("nonexistent") == 3
    assert undeclared(result, os.path.lexists) == (str(secret),)
    assert (secret.read_text(), sorted(os.listdir(tmp_path))) == ("s3cr3t\n", ["secret"])
    result.close()


async def test_b_13_calls_by_the_numbers_of_another_machine_do_not_go_unseen(runner: CommandRunner) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the other numbers are those of x86_64")
    by_number = '#include <unistd.h>\nint main(void) {{ static char path[] = "in.txt"; long r; {call}; return r < 0; }}'
    i386 = 'asm volatile ("int $0x80" : "=a"(r) : "a"(5), "b"((int)(long)path), "c"(0), "d"(0))'
    x32 = "r = syscall(0x40000000 + 2, path, 0)"
    for call in (i386, x32):
        program = compiled(by_number.format(call=call), "-no-pie", "-static")
        result = await result_of(runner, Command(("./program",)), files({"program": program, "in.txt": "alpha"}))
        assert result.output.exit_code != 0
        assert not any(lookup.path == "in.txt" for lookup in result.lookups)
        result.close()


async def test_b_19_there_is_no_network(runner: CommandRunner, tmp_path: Path) -> None:
    code = (
        "import socket\n"
        "def attempt(what, go):\n"
        "    try: go()\n"
        "    except OSError as error: print(what, 'failed')\n"
        "    else: print(what, 'reached')\n"
        "attempt('tcp', lambda: socket.create_connection(('127.0.0.1', {tcp}), 1))\n"
        "attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)))\n"
        "attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r}))\n"
        "attempt('path', lambda: socket.socket(socket.AF_UNIX).connect({path!r}))\n"
        "attempt('name', lambda: socket.getaddrinfo('example.org', 80))\n"
    )
    name, path = f"stepwell-test-{os.getpid()}", str(tmp_path / "sock")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        with socket.socket(socket.AF_UNIX) as at_path:
            at_path.bind(path)
            at_path.listen()
            script = code.format(tcp=tcp.getsockname()[1], name=name, path=path)
            result = await result_of(runner, Command((PYTHON, "-I", "-c", script)))
            lines = result.output.stdout.decode().splitlines()
            assert lines == [f"{what} failed" for what in ("tcp", "udp", "abstract", "path", "name")]
            result.close()
            own = CommandRunner(python=PYTHON, policy=Policy(network=True))
            result = await result_of(own, Command((PYTHON, "-I", "-c", script)))
            assert result.output.stdout.decode().splitlines()[0] == "tcp reached"
            assert "path failed" in result.output.stdout.decode()
            result.close()
            await own.close()


async def test_b_20_no_descriptor_of_the_program_is_inherited(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t\n")
    held = os.open(secret, os.O_RDONLY)
    os.set_inheritable(held, True)
    own = CommandRunner(python=PYTHON)  # its launcher is started while that descriptor is open
    try:
        result = await result_of(own, Command((PYTHON, "-I", "-c", "import os; print(os.listdir('/proc/self/fd'))")))
        assert result.output.stdout == b"['0', '1', '2', '3']\n"
        result.close()
    finally:
        await own.close()
        os.close(held)


async def test_the_toolchain_cannot_be_changed(runner: CommandRunner, tmp_path: Path) -> None:
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "tool"
    program.write_text(f'#!/bin/sh\ntouch "$0" {tmp_path}/lib/x /usr/x {HOME}/../x 2>&1\n')
    program.chmod(0o755)
    result = await result_of(runner, Command((str(program),)))
    assert result.output.stdout.count(b"Read-only file system") == 4
    result.close()


async def test_nothing_can_be_written_but_what_belongs_to_the_command(runner: CommandRunner) -> None:
    """A command of root's own is no root, and yet the kernel lets it write whatever belongs to root: a settings file
    of /proc/sys is as good as the host itself."""
    code = (
        "import os\n"
        "def writable(path):\n"
        "    try: os.close(os.open(path, os.O_WRONLY))\n"
        "    except OSError: return False\n"
        "    return True\n"
        "for base, folders, names in os.walk('/'):\n"
        "    folders[:] = [it for it in folders if not (base == '/proc' and it.isdigit())]\n"
        "    if base.startswith('/usr/'): folders[:] = []\n"
        "    found = [os.path.join(base, it) for it in names if not os.path.islink(os.path.join(base, it))]\n"
        "    for path in found:\n"
        "        if os.access(path, os.W_OK) or (base.startswith('/proc') and writable(path)): print(path)\n"
        "    if os.access(base, os.W_OK): print(base)\n"
    )
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    devices = {f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero", "pts/ptmx")}
    places = {WORKSPACE, HOME, "/tmp", "/dev", "/dev/pts", "/dev/shm"}
    assert set(result.output.stdout.decode().split()) <= devices | places
    result.close()


async def test_b_02_the_folder_of_the_declared_files_is_hidden_also_within_what_is_shown(tmp_path: Path) -> None:
    """A project may lie in /usr/src, or in a folder that is shown as a whole; its environment may lie in it."""
    project = tmp_path / "src" / "app"
    for name in ("venv/bin", "venv/lib"):
        (project / name).mkdir(parents=True)
    for path, text in {"secret": "s3cr3t", "venv/lib/x": "tool's own", "../beside": "shown"}.items():
        (project / path).write_text(text)
    program = project / "venv" / "bin" / "tool"
    program.write_text(f"#!/bin/sh\ncd {project}; cat secret venv/lib/x ../beside; ls; touch new\n")
    program.chmod(0o755)
    own = CommandRunner(python=PYTHON, policy=Policy(roots=(str(tmp_path),), hidden=(str(project),)))
    result = await result_of(own, Command((str(program),)))
    assert result.output.stdout == b"tool's ownshownvenv\n"
    assert result.output.stderr.decode().count("Read-only file system") == 1
    assert undeclared(result, os.path.lexists) == (f"{project}/secret",)
    result.close()
    await own.close()


@pytest.mark.parametrize("root", ["", "lib/project"])
async def test_b_02_what_a_program_lies_beside_is_not_shown_if_it_is_declared_or_not(tmp_path: Path, root: str) -> None:
    """A project may have a bin and a lib of its own, or lie in the lib of an installation."""
    project = tmp_path / root
    (project / "lib").mkdir(parents=True)
    (project / "lib" / "secret").write_text("s3cr3t")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "tool"
    program.write_text('#!/bin/sh\ncat "$1"\n')
    program.chmod(0o755)
    own = CommandRunner(python=PYTHON, policy=Policy(hidden=(str(project),)))
    result = await result_of(own, Command((str(program), f"{project}/lib/secret")))
    assert result.output.stdout == b""
    assert undeclared(result, os.path.lexists) == (f"{project}/lib/secret",)
    result.close()
    await own.close()


@must_be_root
async def test_b_02_a_folder_below_usr_is_hidden_too(tmp_path: Path) -> None:
    project = Path("/usr/src")
    own = CommandRunner(python=PYTHON, policy=Policy(hidden=(str(project),)))
    result = await result_of(own, sh("ls -A /usr/src; cat /usr/src/secret"))
    assert result.output.stdout == b""
    assert undeclared(result, lambda path: path == "/usr/src/secret") == ("/usr/src/secret",)
    result.close()
    await own.close()
