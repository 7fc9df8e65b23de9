"""How long a program takes to start: the import, and python's start to the result of its first run."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

IMPORT_S: Final = 0.200
FIRST_RESULT_S: Final = 0.700

FLOORS: Final = 4
"""On a machine that is slow just now: so many times what the start of python with the libraries beneath takes."""

ROUNDS: Final = 7

PROGRAM: Final = """
import asyncio
import stepwell

@stepwell.workflow
async def hello(run: stepwell.Run, name: str) -> str:
    return await run.step("greet", "hello {}".format, name)

async def main() -> None:
    async with stepwell.open("first.db", workflows=[hello]) as app:
        handle = (await app.start(hello, "ann")).unwrap()
        print((await handle.result()).unwrap(), flush=True)

asyncio.run(main())
"""

FLOOR: Final = "import asyncio, pydantic, apsw, msgspec; type('M', (pydantic.BaseModel,), {})()"


def seconds(words: Sequence[str], folder: Path) -> float:
    """The time that a program takes from its start to its end.

    By the clock on the wall, as the budget means it; where more processes want to run than there are processors, that
    says more about the others, and the time on a processor is counted instead.
    """
    crowded = os.getloadavg()[0] > (os.cpu_count() or 1)
    begun, used = perf_counter(), processor_seconds()
    subprocess.run([sys.executable, *words], cwd=folder, check=True, capture_output=True)
    return processor_seconds() - used if crowded else perf_counter() - begun


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def import_seconds(folder: Path) -> float:
    """As python counts it, without its own start."""
    statement = "import time; begun = time.perf_counter(); import stepwell; print(time.perf_counter() - begun)"
    done = subprocess.run([sys.executable, "-c", statement], cwd=folder, check=True, capture_output=True, text=True)
    return float(done.stdout)


def test_the_import_is_quick(tmp_path: Path) -> None:
    assert median(import_seconds(tmp_path) for _ in range(ROUNDS)) <= IMPORT_S


def is_quick(words: Sequence[str], folder: Path) -> bool:
    """Whether the program ends in time, or in that many floors, measured in turn with it."""
    pairs = [(seconds(words, folder), seconds(["-c", FLOOR], folder)) for _ in range(ROUNDS)]
    bound_s = max(FIRST_RESULT_S, FLOORS * median(floor for _, floor in pairs))
    return median(taken for taken, _ in pairs) <= bound_s


def test_from_the_start_of_python_to_the_first_result_is_quick(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert is_quick(["program.py"], tmp_path)


def test_from_the_start_of_the_command_to_the_first_result_is_quick(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("asyncio.run(main())", ""))
    words = ["-m", "stepwell", "run", "program.py:hello", "ann"]
    assert is_quick(words, tmp_path)


LOADED: Final = """
import sys
print(*(name for name in sys.modules if name.startswith(("stepwell.layers.workspace.", "stepwell.core.boundary"))))
"""


def test_an_application_without_a_sandbox_loads_nothing_of_it(tmp_path: Path) -> None:
    """Its modules take as long to load as all others together. The system calls are those of the artifacts too."""
    for program in (PROGRAM, "import stepwell.layers.entry.cli"):
        command = [sys.executable, "-c", program + LOADED]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1].split() in ([], ["stepwell.layers.workspace.calls"])
