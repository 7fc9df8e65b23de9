"""Executing a command: what it is given, what it leaves, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.core.command import Command, CommandRefused
from stepwell.core.node import DirNode, FileNode, LinkNode, digest_of
from stepwell.core.outcome import Success
from stepwell.core.step_sandbox import LimitExceeded
from stepwell.core.workspace_limits import LIMITS
from stepwell.layers.workspace.command.runner import CommandLost, CommandRunner

from .world import (
    PYTHON,
    command_of,
    declared,
    failure_of,
    files,
    is_alive,
    needs_bwrap,
    parent_of,
    processes_with,
    result_of,
    sh,
    text_of,
    until,
)

pytestmark = needs_bwrap

OUT = declared((), ("out/r",))


async def test_a_command_reads_its_seed_and_leaves_its_outputs(runner: CommandRunner) -> None:
    seed = files({"in.txt": "alpha\n"})
    result = await result_of(
        runner, sh("cat in.txt; echo beta > out/r; echo oops >&2; exit 3"), seed, declared(("in.txt",), ("out/r",))
    )
    assert (result.output.exit_code, result.output.stdout, result.output.stderr) == (3, b"alpha\n", b"oops\n")
    assert result.tree == {**seed.tree, "out/r": FileNode(digest_of(b"beta\n"), 5)}
    assert text_of(result, "out/r") == "beta\n"
    result.close()


async def test_contents_can_be_read_until_the_result_is_closed(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("echo x > f"))
    with pytest.raises(KeyError):
        result.contents.open("g")
    reader = result.contents.open("f")
    result.close()
    result.close()
    with pytest.raises(KeyError):
        result.contents.open("f")
    reader.close()


async def test_files_can_be_written_where_that_is_declared_and_only_there(runner: CommandRunner) -> None:
    seed = files({"a": "a", "b": "b", "run.sh": "#!/bin/sh\nexit 0\n"})
    script = "stat -c '%n %a %Y' a b run.sh; ./run.sh"
    result = await result_of(runner, sh(script), seed, declared(("a", "run.sh"), ("b",)))
    assert result.output.exit_code == 0
    assert result.output.stdout.decode().splitlines() == ["a 444 315532800", "b 644 315532800", "run.sh 555 315532800"]
    result.close()


async def test_links_are_links_and_folders_for_outputs_are_there(runner: CommandRunner) -> None:
    declaration = declared((), ("out/deep/r", "tree/**", "objects/a/*.o"))
    script = "readlink ln; test -d out/deep && test -d tree && test -d objects/a && mkdir made; ln -s ../x tree/up"
    result = await result_of(runner, sh(script), files(links={"ln": "target"}), declaration)
    assert (result.output.exit_code, result.output.stdout) == (0, b"target\n")
    assert result.tree == {"ln": LinkNode("target"), "made": DirNode(), "tree/up": LinkNode("../x")}
    result.close()


async def test_a_command_sees_its_own_variables_and_a_few_fixed_ones(runner: CommandRunner) -> None:
    result = await result_of(runner, Command(("env",), env={"MINE": "1", "TZ": "Mars"}))
    seen = dict(line.split("=", 1) for line in result.output.stdout.decode().splitlines())
    assert seen == {
        "HOME": "/stepwell/home",
        "LC_ALL": "C.UTF-8",
        "MINE": "1",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PWD": "/stepwell/ws",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "315532800",
        "TMPDIR": "/tmp",
        "TZ": "Mars",
        "USER": "stepwell",
    }
    result.close()


async def test_a_command_is_one_user_on_a_machine_without_a_name(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("id -u; id -g; id -un; uname -n; pwd; touch /x /usr/x /etc/x 2>/dev/null"))
    assert result.output.stdout.decode().split() == ["1000", "1000", "stepwell", "sandbox", "/stepwell/ws"]
    assert result.output.exit_code == 1
    result.close()


async def test_scratch_places_can_be_written_and_are_no_outputs(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("touch /tmp/a ~/b /dev/shm/c && echo x > /dev/null && ls /tmp ~ /dev/shm"))
    assert (result.output.exit_code, result.tree) == (0, {})
    result.close()
    result = await result_of(runner, sh("ls -A /tmp ~ /dev/shm"))
    assert not {"a", "b", "c"} & set(result.output.stdout.decode().split())
    result.close()


async def test_stdin_is_given_whole(runner: CommandRunner) -> None:
    data = os.urandom(3 << 20)
    result = await result_of(runner, Command(("cat",), stdin=data))
    assert result.output.stdout == data
    result.close()
    result = await result_of(runner, Command(("cat",)))
    assert result.output.stdout == b""
    result.close()


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("./in.txt", 126), ("./gone", 127)])
async def test_a_program_that_cannot_be_executed_ends_as_in_a_shell(
    runner: CommandRunner, program: str, code: int
) -> None:
    result = await result_of(runner, Command((program,)), files({"in.txt": "x"}))
    assert result.output.exit_code == code
    assert program.removeprefix("./") in result.output.stderr.decode()
    result.close()


async def test_arguments_that_are_too_long_are_refused_with_what_to_do(runner: CommandRunner) -> None:
    failure = await failure_of(runner, Command(("echo", "x" * 200_000)))
    assert isinstance(failure, CommandRefused)
    assert failure.probe == "arguments"
    assert "stdin" in failure.message
    result = await result_of(runner, Command(("echo", *("x" * 100_000 for _ in range(10)))))
    assert result.output.exit_code == 0
    result.close()


async def test_a_signal_ends_a_command_with_128_and_its_number(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("kill -SEGV $$"))
    assert result.output.exit_code == 128 + signal.SIGSEGV
    result.close()


async def test_a_pipe_that_is_closed_ends_who_writes_to_it(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("yes | head -n 1"), limits=LIMITS)
    assert (result.output.exit_code, result.output.stdout) == (0, b"y\n")
    result.close()


async def test_the_installation_of_a_program_is_shown_and_what_lies_beside_it_is_not(
    runner: CommandRunner, tmp_path: Path
) -> None:
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "tool"
    program.write_text('#!/bin/sh\ncat "${0%/*}/../lib/data"; cat "${0%/*}/../secret"\n')
    program.chmod(0o755)
    (tmp_path / "lib" / "data").write_text("data")
    (tmp_path / "secret").write_text("secret")
    result = await result_of(runner, Command((str(program),)))
    assert result.output.stdout == b"data"
    assert "No such file" in result.output.stderr.decode()
    result.close()


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the interpreter is in no virtual environment")
async def test_the_python_of_a_virtual_environment_finds_its_packages(runner: CommandRunner) -> None:
    code = "import sys, pytest; print(sys.prefix != sys.base_prefix)"
    result = await result_of(runner, Command((sys.executable, "-c", code)))
    assert (result.output.stdout, result.output.stderr) == (b"True\n", b"")
    result.close()


async def test_commands_are_executed_at_the_same_time_each_in_its_own_workspace(runner: CommandRunner) -> None:
    results = await asyncio.gather(*(result_of(runner, sh(f"echo {n} > n; cat n")) for n in range(8)))
    assert [result.output.stdout.decode().strip() for result in results] == [str(n) for n in range(8)]
    for result in results:
        result.close()


async def test_a_timeout_shortens_the_limit_on_time(runner: CommandRunner) -> None:
    failure = await failure_of(runner, sh("sleep 300", timeout=0.2))
    assert failure == LimitExceeded("wall", 200, 200)


async def test_who_is_cancelled_waits_until_everything_is_dead(runner: CommandRunner) -> None:
    marked = f"stepwell-test-{os.getpid()}-cancelled"
    running = asyncio.create_task(
        runner.run(files(), declared(), Command((PYTHON, "-c", "import time; time.sleep(300)", marked)), LIMITS)
    )
    await until(lambda: processes_with(marked))
    loop = asyncio.get_running_loop()
    began = loop.time()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with(marked) == []
    assert loop.time() - began < 1


async def test_a_command_is_lost_when_its_watch_is_killed_and_the_next_one_is_not(runner: CommandRunner) -> None:
    marked = f"stepwell-test-{os.getpid()}-lost"
    running = asyncio.create_task(failure_of(runner, Command((PYTHON, "-c", "import time; time.sleep(300)", marked))))
    await until(lambda: processes_with(marked))
    keeper = processes_with(marked)[0]
    while b"bwrap" in (parent := command_of(keeper)) or marked.encode() in parent:
        keeper = parent_of(keeper)
    os.kill(keeper, signal.SIGKILL)
    assert isinstance(await running, CommandLost)
    await until(lambda: not processes_with(marked))
    result = await result_of(runner, sh("echo again"))
    assert result.output.stdout == b"again\n"
    result.close()


SCARCE = (
    "import asyncio, os, resource\n"
    "from stepwell.core.boundary import Boundary, declare\n"
    "from stepwell.core.command import Command\n"
    "from stepwell.core.outcome import Success\n"
    "from stepwell.core.workspace_limits import LIMITS\n"
    "from stepwell.layers.workspace.command.runner import CommandRunner\n"
    "from stepwell.layers.workspace.host import Seed\n"
    "class Nothing:\n"
    "    def close(self): pass\n"
    "async def run(runner):\n"
    "    command = Command(('/bin/sh', '-c', 'mkdir -p d/e; echo x > d/e/f'))\n"
    "    outcome = await runner.run(Seed({}, Nothing()), declare(Boundary((), ('d/**',))), command, LIMITS)\n"
    "    if isinstance(outcome, Success): outcome.unwrap().close()\n"
    "    return isinstance(outcome, Success)\n"
    "async def main():\n"
    f"    runner = CommandRunner(python={PYTHON!r})\n"
    "    await asyncio.to_thread(int)\n"
    "    assert {prepared} or await run(runner)\n"
    "    held = len(os.listdir('/proc/self/fd'))\n"
    "    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
    "    answers = []\n"
    "    for free in range(12):\n"
    "        resource.setrlimit(resource.RLIMIT_NOFILE, (held - 1 + free, most))\n"
    "        answers.append(await run(runner))\n"
    "    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
    "    print(answers[0], await run(runner))\n"
    "    await runner.close()\n"
    "    print(len(os.listdir('/proc/self/fd')) <= held)\n"
    "asyncio.run(main())\n"
)


@pytest.mark.parametrize("proved", [True, False], ids=["proved", "not proved"])
def test_where_descriptors_are_scarce_it_is_a_failure_and_none_is_lost(proved: bool) -> None:
    code = SCARCE.replace("{prepared}", str(not proved))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    answers, kept = done.stdout.splitlines()
    assert (answers, done.stderr) == ("False True", "")
    assert kept == "True" or not proved  # some Pythons lose the pipes to bubblewrap if they cannot make all of them


async def test_a_launcher_that_is_just_being_killed_is_replaced() -> None:
    """It may end between being asked and asking back, when nothing has been executed yet."""
    own = CommandRunner(python=PYTHON)
    before = set(processes_with("launch.launcher"))
    for _ in range(10):
        (await result_of(own, sh("true"))).close()
        for launcher in set(processes_with("launch.launcher")) - before:
            if parent_of(launcher) == os.getpid():
                os.kill(launcher, signal.SIGKILL)
    (await result_of(own, sh("true"))).close()
    await own.close()


async def test_a_launcher_that_was_killed_is_started_again() -> None:
    own = CommandRunner(python=PYTHON)
    result = await result_of(own, sh("true"))
    result.close()
    launchers = [process for process in processes_with("launch.launcher") if parent_of(process) == os.getpid()]
    newest = max(launchers)
    os.kill(newest, signal.SIGKILL)
    await until(lambda: not is_alive(newest))
    result = await result_of(own, sh("echo again"))
    assert result.output.stdout == b"again\n"
    result.close()
    await own.close()


async def test_what_a_command_sees_does_not_depend_on_our_umask(runner: CommandRunner) -> None:
    seed = files({"d/in.txt": "x"})
    modes: list[bytes] = []
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            own = CommandRunner(python=PYTHON)
            result = await result_of(
                own, sh("umask; stat -c '%n %a' / /etc /etc/passwd /tmp . d d/in.txt out"), seed, OUT
            )
            modes.append(result.output.stdout)
            result.close()
            await own.close()
        finally:
            os.umask(before)
    assert modes[0] == modes[1]


async def test_f_02_a_thousand_files_cost_little_more_than_ten(runner: CommandRunner) -> None:
    """Generous, for machines that are busy: a mount for each file would cost more than a second."""
    loop = asyncio.get_running_loop()

    async def cost(count: int) -> float:
        seed = files({f"d/f{number}": "x" * 4096 for number in range(count)})
        began = loop.time()
        result = await result_of(runner, sh("true"), seed)
        took = loop.time() - began
        result.close()
        return took

    few, many = [min([await cost(count) for _ in range(3)]) for count in (10, 1_000)]
    assert many - few < 0.5


async def test_a_runner_that_is_closed_executes_nothing_and_loses_what_it_executes() -> None:
    own = CommandRunner(python=PYTHON)
    running = asyncio.create_task(failure_of(own, sh("echo begun; sleep 300")))
    assert isinstance(await own.prove(), Success)
    await until(lambda: own.executing)
    await own.close()
    assert isinstance(await running, CommandLost)
    assert isinstance(await failure_of(own, sh("true")), CommandLost)
