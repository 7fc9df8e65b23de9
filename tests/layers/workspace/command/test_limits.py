"""The limits of a command: each ends it, is named, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest

from stepwell.core.command import Command
from stepwell.core.step_sandbox import LimitExceeded
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.workspace.command.runner import CommandRunner

from .world import PYTHON, declared, failure_of, files, needs_bwrap, processes_with, result_of, sh

pytestmark = needs_bwrap

MIB = 1 << 20


def python(code: str, *arguments: str) -> Command:
    return Command((PYTHON, "-I", "-S", "-c", code, *arguments))


async def test_t_02_when_its_time_is_over_all_processes_are_dead(runner: CommandRunner) -> None:
    marked = f"stepwell-test-{os.getpid()}-wall"
    code = "import os, sys, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(300)\ntime.sleep(300)\n"
    failure = await failure_of(runner, python(code, marked), limits=WorkspaceLimits(wall=1_000))
    assert failure == LimitExceeded("wall", 1_000, 1_000)
    assert processes_with(marked) == []


async def test_t_03_a_fork_bomb_is_bounded_and_leaves_room_for_others(runner: CommandRunner) -> None:
    marked = f"stepwell-test-{os.getpid()}-bomb"
    code = (
        "import os, time\n"
        "for _ in range(5000):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(300)\n"
        "    except OSError: time.sleep(300)\n"
        "time.sleep(300)\n"
    )
    failing = asyncio.create_task(failure_of(runner, python(code, marked)))
    most = 0
    while not failing.done():
        other = await result_of(runner, sh("true"))
        other.close()
        most = max(most, len(processes_with(marked)))
    assert await failing == LimitExceeded("processes", 513, 512)
    assert most <= 2 * 512  # they are counted from time to time
    assert processes_with(marked) == []


async def test_t_03_threads_are_bounded_like_processes(runner: CommandRunner) -> None:
    code = (
        "import threading, time\n"
        "for _ in range(100): threading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n"
    )
    failure = await failure_of(runner, python(code), limits=WorkspaceLimits(processes=40))
    assert failure == LimitExceeded("processes", 41, 40)


async def test_a_shell_forks_while_its_children_end(runner: CommandRunner) -> None:
    """A signal does not interrupt it, as it would if new tasks were told of."""
    script = "i=0; while [ $i -lt 400 ]; do true | true | true || exit 7; i=$((i+1)); done"
    result = await result_of(runner, sh(script))
    assert (result.output.exit_code, result.output.stderr) == (0, b"")
    result.close()


async def test_processes_that_have_ended_do_not_count(runner: CommandRunner) -> None:
    result = await result_of(
        runner, sh("i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done"), limits=WorkspaceLimits(processes=8)
    )
    assert result.output.exit_code == 0
    result.close()


async def test_t_07_output_is_cut_off_at_its_limit_and_marked(runner: CommandRunner) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\npiece = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, piece) == len(piece) or os._exit(1)"
    result = await result_of(runner, python(code))
    assert result.output.exit_code == 0
    assert result.output.stdout[: 16 * MIB] == b"x" * (16 * MIB)
    assert result.output.stdout[16 * MIB :] == f"\n[{1008 * MIB} more bytes were cut off]\n".encode()
    assert (result.stdout_cut, result.stderr_cut) == (True, False)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 64 * MIB
    result.close()


async def test_output_at_its_limit_is_not_cut_off(runner: CommandRunner) -> None:
    result = await result_of(runner, sh("printf 12345678; printf 12345678 >&2"), limits=WorkspaceLimits(output_bytes=8))
    assert (result.output.stdout, result.output.stderr) == (b"12345678", b"12345678")
    assert not result.stdout_cut
    assert not result.stderr_cut
    result.close()


async def test_t_08_memory_beyond_its_limit_ends_a_command(runner: CommandRunner) -> None:
    code = "held = []\nfor _ in range(64): held.append(bytearray(32 << 20))\nimport time; time.sleep(300)"
    failure = await failure_of(runner, python(code), limits=WorkspaceLimits(memory=512 * MIB))
    assert isinstance(failure, LimitExceeded)
    assert (failure.what, failure.limit) == ("memory", 512 * MIB)
    assert failure.actual > 512 * MIB


async def test_t_08_memory_is_that_of_all_processes_together(runner: CommandRunner) -> None:
    code = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        held = bytearray(40 << 20)\n"
        "        time.sleep(300)\n"
        "time.sleep(300)\n"
    )
    failure = await failure_of(runner, python(code), limits=WorkspaceLimits(memory=128 * MIB))
    assert isinstance(failure, LimitExceeded)
    assert failure.what == "memory"


SHARED = (
    "import mmap, os, time\n"
    "def held(): return mmap.mmap(-1, 40 << 20)\n"
    "def fill(it):\n"
    "    for at in range(0, len(it), 4096): it[at] = 1\n"
    "ready, tell = os.pipe()\n"
    "first = held()\n"
    "for _ in range(4):\n"
    "    if os.fork() == 0:\n"
    "        kept = {which}\n"
    "        fill(kept)\n"
    "        os.write(tell, b'+')\n"
    "        time.sleep({seconds})\n"
    "        os._exit(0)\n"
    "for _ in range(4): os.read(ready, 1)\n"
    "for _ in range(4): os.wait()\n"
)


async def test_t_08_memory_that_processes_could_share_counts_for_each_that_does_not(runner: CommandRunner) -> None:
    code = SHARED.format(which="held()", seconds=20)
    failure = await failure_of(runner, python(code), limits=WorkspaceLimits(memory=128 * MIB))
    assert isinstance(failure, LimitExceeded)
    assert failure.what == "memory"
    assert failure.actual < 256 * MIB


async def test_memory_that_processes_share_counts_once(runner: CommandRunner) -> None:
    code = SHARED.format(which="first", seconds=0.2)
    result = await result_of(runner, python(code), limits=WorkspaceLimits(memory=128 * MIB))
    assert (result.output.exit_code, result.output.stderr) == (0, b"")
    result.close()


async def test_n_04_a_workspace_that_is_full_is_a_limit_also_if_the_command_does_not_care(
    runner: CommandRunner,
) -> None:
    script = "dd if=/dev/zero of=out/r bs=1M count=32 2>out/said; grep -q 'No space left' out/said; true"
    failure = await failure_of(
        runner, sh(script), files(), declared((), ("out/r",)), WorkspaceLimits(produced_bytes=16 * MIB)
    )
    assert failure == LimitExceeded("produced_bytes", 16 * MIB + 1, 16 * MIB)


async def test_what_is_produced_up_to_the_limit_is_accepted(runner: CommandRunner) -> None:
    limits = WorkspaceLimits(produced_bytes=16 * MIB)
    seed = files({"in.txt": b"i" * MIB})
    result = await result_of(runner, sh("head -c 16777216 /dev/zero > r"), seed, limits=limits)
    assert result.output.exit_code == 0
    result.close()
    failure = await failure_of(runner, sh("head -c 16777217 /dev/zero > r"), seed, limits=limits)
    assert failure == LimitExceeded("produced_bytes", 16 * MIB + 1, 16 * MIB)


async def test_w_20_too_many_files_are_a_limit(runner: CommandRunner) -> None:
    code = (
        "import os\n"
        "try:\n"
        "    for i in range(100_000): os.close(os.open(f'f{i}', os.O_WRONLY | os.O_CREAT))\n"
        "except OSError: pass\n"
    )
    failure = await failure_of(runner, python(code), limits=WorkspaceLimits(nodes=5_000))
    assert failure == LimitExceeded("nodes", 5_001, 5_000)


async def test_w_20_a_file_that_is_too_large_is_a_limit(runner: CommandRunner) -> None:
    limit = 32 * MIB
    script = "head -c 5368709120 /dev/zero > big; true"
    failure = await failure_of(runner, sh(script), limits=WorkspaceLimits(file_bytes=limit))
    assert failure == LimitExceeded("file_bytes", limit + 1, limit)


async def test_a_file_with_holes_counts_by_its_size(runner: CommandRunner) -> None:
    failure = await failure_of(
        runner, sh("truncate -s 3G big"), limits=WorkspaceLimits(file_bytes=4 << 30, produced_bytes=MIB)
    )
    assert failure == LimitExceeded("produced_bytes", 3 << 30, MIB)


@pytest.mark.parametrize("limits", [WorkspaceLimits(file_bytes=8 * MIB), WorkspaceLimits(nodes=100)])
async def test_at_its_limits_a_workspace_is_accepted(runner: CommandRunner, limits: WorkspaceLimits) -> None:
    code = "import os\nfor i in range(99): os.close(os.open(f'f{i}', os.O_WRONLY | os.O_CREAT))\n" + (
        "with open('big', 'wb') as file: file.truncate(8 << 20)"
    )
    result = await result_of(runner, python(code), limits=limits)
    assert (result.output.exit_code, len(result.tree)) == (0, 100)
    result.close()
