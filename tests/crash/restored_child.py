"""A process with an engine that is alive while its database is backed up, and lost: for `test_restored_engine.py`.

It says "held" when its run is in its second step, which ends when a line is read. It then says, line by line, what
became of everything that it tries to write, and ends with its next line.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import stepwell
from stepwell import Run, define_store, workflow

RUN = "r"
notes = define_store("restored.notes", list[str])


class Gate:
    """Where the second step waits, if anybody holds it."""

    go_on: asyncio.Event | None = None


GATE = Gate()


def note(log: str, line: str) -> str:
    with Path(log).open("a") as file:
        _ = file.write(f"{line}\n")
    return line


async def hold(log: str) -> str:
    _ = note(log, "second")
    if GATE.go_on is not None:
        print("held", flush=True)
        _ = await GATE.go_on.wait()
    return "second"


def add(lines: list[str]) -> None:
    lines.append("of the old process" if GATE.go_on is not None else "of the new process")


@workflow
async def three_steps(run: Run, log: str) -> list[str]:
    first = await run.step("first", note, log, "first")
    second = await run.step("second", hold, log)
    _ = await run.store(notes).get_or_create("notes", [])
    _ = await run.store(notes).update("note", add)
    return [first, second, await run.step("third", note, log, "third")]


async def main(database: str, log: str) -> None:
    GATE.go_on = asyncio.Event()
    async with stepwell.open(database, workflows=[three_steps]) as app:
        handle = (await app.start(three_steps, log, id=RUN)).unwrap()
        _ = await asyncio.to_thread(sys.stdin.readline)
        GATE.go_on.set()
        print(await handle.result(timeout=30), flush=True)
        print(await app.start(three_steps, log, id="another"), flush=True)
        print(await app.store(notes, "mine").get_or_create([]), flush=True)
        print(await app.signal(RUN, "hello", 1), flush=True)
        print(await app.cancel(RUN), flush=True)
        _ = await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
