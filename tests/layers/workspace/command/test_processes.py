"""Nothing of a command is alive when it has ended, whoever ends first."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

from stepwell.core.command import Command
from stepwell.core.node import FileNode, digest_of
from stepwell.core.outcome import Success
from stepwell.core.workspace_limits import LIMITS
from stepwell.layers.workspace.command.runner import CommandRunner

from .world import (
    PYTHON,
    command_of,
    declared,
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

DEADLINE_S = 1


async def test_t_01_who_leaves_its_session_is_dead_before_the_workspace_is_read(runner: CommandRunner) -> None:
    marked = f"stepwell-test-{os.getpid()}-daemon"
    code = (
        "import os, time\n"
        "ready, tell = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        while True:\n"
        "            with open('out/r', 'a') as file: file.write('x')\n"
        "            os.write(tell, b'+')\n"
        "    os._exit(0)\n"
        "os.read(ready, 1)\n"
    )
    result = await result_of(
        runner, Command((PYTHON, "-I", "-S", "-c", code, marked)), files(), declared((), ("out/r",))
    )
    assert processes_with(marked) == []
    kept = text_of(result, "out/r")
    assert result.tree["out/r"] == FileNode(digest_of(kept.encode()), len(kept))
    result.close()


async def test_who_keeps_a_pipe_open_does_not_keep_the_command_open(runner: CommandRunner) -> None:
    result = await result_of(runner, Command(("/bin/sh", "-c", "sleep 300 & echo done")))
    assert (result.output.exit_code, result.output.stdout) == (0, b"done\n")
    result.close()


async def test_t_09_children_that_nobody_waited_for_are_reaped(runner: CommandRunner) -> None:
    code = "import os\nfor _ in range(50):\n    if os.fork() == 0: os._exit(0)\nprint('done')\n"
    result = await result_of(runner, Command((PYTHON, "-I", "-S", "-c", code)))
    assert (result.output.exit_code, result.output.stdout) == (0, b"done\n")
    result.close()


async def test_t_06_when_the_program_is_killed_nothing_of_its_commands_is_left() -> None:
    marked = f"stepwell-test-{os.getpid()}-killed"
    program = (
        "import asyncio\n"
        "from stepwell.core.boundary import Boundary, declare\n"
        "from stepwell.core.command import Command\n"
        "from stepwell.core.workspace_limits import LIMITS\n"
        "from stepwell.layers.workspace.command.runner import CommandRunner\n"
        "from stepwell.layers.workspace.host import Seed\n"
        "class Nothing:\n"
        "    def open(self, path): raise KeyError(path)\n"
        "    def close(self): pass\n"
        "async def main():\n"
        f"    runner = CommandRunner(python={PYTHON!r})\n"
        f"    code = 'import os, time; [os.fork() for _ in range(3)]; time.sleep(300)'\n"
        f"    command = Command(({PYTHON!r}, '-I', '-S', '-c', code, {marked!r}))\n"
        "    await runner.run(Seed({}, Nothing()), declare(Boundary()), command, LIMITS)\n"
        "asyncio.run(main())\n"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await until(lambda: len(inside(marked)) == 8)
    launchers = [process for process in children_of(child.pid) if b"launcher" in command_of(process)]
    assert launchers
    keepers = [keeper for launcher in launchers for keeper in children_of(launcher)]
    child.send_signal(signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: not [it for it in (*launchers, *keepers) if is_alive(it)] and not inside(marked))
    await child.wait()


def inside(marked: str) -> list[int]:
    """The processes of the command itself."""
    return [process for process in processes_with(marked) if b"-I\0-S\0-c\0import os" in command_of(process)]


def children_of(process: int) -> list[int]:
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [each for each in found if is_alive(each) and parent_of(each) == process]


async def test_who_is_cancelled_when_the_command_has_just_ended_keeps_none_of_its_memory(runner: CommandRunner) -> None:
    """What it left is then being looked through, or was already, by a thread of ours."""
    result = await result_of(runner, sh("true"))
    result.close()
    before = len(os.listdir("/proc/self/fd"))
    loop = asyncio.get_running_loop()
    for turn in range(30):
        running = loop.create_task(runner.run(files({"in": "x"}), declared(), sh("echo x > f"), LIMITS))
        await until(lambda: running.done() or keepers_of(os.getpid()))  # noqa: B023 - it is awaited at once
        await until(lambda: not keepers_of(os.getpid()))
        for _ in range(turn % 10):
            await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            outcome = await running
            assert isinstance(outcome, Success)
            outcome.unwrap().close()
    assert len(os.listdir("/proc/self/fd")) == before


def keepers_of(process: int) -> list[int]:
    launchers = [it for it in processes_with("launch.launcher") if parent_of(it) == process]
    return [it for launcher in launchers for it in children_of(launcher)]
