"""Nothing of a command is alive when it has ended, whoever ends first."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from stepwell.core.command import Command
from stepwell.core.node import FileNode, digest_of
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
