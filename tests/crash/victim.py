"""A process that commits, and kills itself on the way; the tests run this file as a script.

It reads one order a line, and for each forks a child, so that the imports are paid once. The child appends to its diary
what the ledger has answered, with O_APPEND and before it asks anything more, and says in its end how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from stepwell.core.batch import (
    Batch,
    ChangeRun,
    CreateStore,
    DeleteStore,
    InsertRun,
    NoReceipt,
    NoRun,
    PatchStore,
    Receipt,
    RegisterWaiter,
    RemoveWaiter,
    RunFence,
    SendSignal,
    StoreAbsent,
    StoreAt,
    Write,
    WriteReceipt,
    WriteStep,
)
from stepwell.core.entry import NewEntry
from stepwell.core.journal import Source
from stepwell.core.journal_writes import Append, CompactJournal, RecordRow, RewindJournal, WriteCheckpoint
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.outcome import Success
from stepwell.core.recorded_row import RecordedRow
from stepwell.core.run import RunRow
from stepwell.core.signal import SignalRow
from stepwell.core.step import Pin, StepRow
from stepwell.core.waiter import Waiter
from stepwell.layers import clock
from stepwell.layers import ledger as ledgers
from stepwell.layers.layer import build, get
from stepwell.layers.sql.writer import CommitPoint
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import Ledger

BOARD = StoreKey("boards", "shared")
FIRST = Revision("instance-1", 0)
TOGETHER = 3
"""How many operations are submitted at once: they are committed in one group."""

ENTRIES_A_GROUP = TOGETHER + 2
"""Two more than operations, since the row that is recorded is journalled too."""


@dataclass(frozen=True)
class Order:
    """Commit until the `passing`-th time that a commit reaches `point`, or `rounds` groups, whichever comes first."""

    path: str
    diary: str
    run: str
    mode: Literal["thread", "inline"]
    point: str | None
    passing: int
    rounds: int


def made(version: int) -> Revision:
    return Revision(FIRST.instance_id, version)


def aside_of(run: str) -> str:
    """The journal of which every second entry is taken back."""
    return f"{run} aside"


def waiter_of(run: str, group: int) -> StepId:
    """The waiter that a group registers with its first operation, and makes due with its second."""
    return StepId(run, f"wait-{group:06d}")


def operation(run: str, number: int, version: int) -> Batch:
    """The operation `number` of a run: a patch that makes `version` of the board, and a row of every other kind.

    The waiter of the group before is removed as that of this one is registered. A group appends five entries to the
    run's journal, two of them on the row that it records, and compacts that to the first of them; and two entries to
    another journal, the second of which it takes back.
    """
    step, revision = StepId(run, f"step-{number:06d}"), made(version)
    row = StepRow(
        run_id=run,
        key=step.key,
        kind="store.update",
        target=str(BOARD),
        status="done",
        position=number,
        pin=Pin(BOARD, revision),
        recorded_at_ms=0,
    )
    group, place = divmod(number - 1, TOGETHER)
    changed = (run if place == 1 else f"{run} aside",)
    writes: list[Write] = [
        PatchStore(BOARD, revision, json.dumps([run, number]).encode(), (changed,)),
        WriteReceipt(Receipt(BOARD, step, "update", revision)),
        ChangeRun(run, {"mark": number}),
        WriteStep(row),
    ]
    if place == 0:
        writes.append(RegisterWaiter(Waiter(BOARD, waiter_of(run, group), revision, ((run,),))))
        writes.append(RemoveWaiter(BOARD, waiter_of(run, group - 1)))
        writes.append(SendSignal(SignalRow(run, "group", b"%d" % group, f"group-{group}")))
    writes.append(Append(run, (NewEntry("victim", b"%d" % number, Source(run, number), b"%d" % number),)))
    if place == 0:
        writes.append(RecordRow(RecordedRow(f"{run}-{group:06d}", run, None, b"%d" % number, b"{}", number)))
        writes.append(Append(aside_of(run), (NewEntry("kept", b"%d" % group), NewEntry("taken back", b"%d" % group))))
    if place == 2:
        first = ENTRIES_A_GROUP * group
        writes += [WriteCheckpoint(run, first, b"%d" % group), CompactJournal(run, first, b"%d" % group)]
        writes.append(RewindJournal(aside_of(run), 2 * group, b"%d" % group))
    aside = StoreKey("notes", f"{run}-{number // TOGETHER}")
    if number % TOGETHER == 1:
        writes.append(CreateStore(aside, FIRST, b"{}"))
    if number % TOGETHER == 2:
        writes.append(DeleteStore(aside, FIRST))
    expects = (RunFence(run, 0), NoReceipt(BOARD, step, "update"), StoreAt(BOARD, made(version - 1)))
    return Batch(expects, tuple(writes))


async def prepare(ledger: Ledger, run: str) -> None:
    """The board and the run, made by whoever comes first."""
    await ledger.commit(Batch((StoreAbsent(BOARD, FIRST),), (CreateStore(BOARD, FIRST, b"[]"),)))
    row = RunRow(id=run, workflow="victim", created_at_ms=0, updated_at_ms=0)
    await ledger.commit(Batch((NoRun(run),), (InsertRun(row),)))


async def commit_round(ledger: Ledger, run: str, number: int) -> None:
    """The operations from `number` on, tried again until each is applied: a rival may commit first."""
    while True:
        tip = (await ledger.tip(BOARD)).unwrap()
        assert tip is not None
        calls = (ledger.commit(operation(run, number + ahead, tip.version + 1 + ahead)) for ahead in range(TOGETHER))
        verdicts = await asyncio.gather(*calls)
        if all(isinstance(verdict, Success) for verdict in verdicts):  # committed now, or found applied
            return


async def work(order: Order) -> None:
    diary = os.open(order.diary, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    done = os.read(diary, 1 << 20).count(b"\n")
    passed = 0
    armed = False

    def reach(point: CommitPoint) -> None:
        nonlocal passed
        if armed and point.name == order.point:
            passed += 1
            if passed == order.passing:
                os.kill(os.getpid(), signal.SIGKILL)

    layer = ledgers.layer(order.path, commit=order.mode, on_point=reach) | clock.layer_test(ManualClock())
    async with build(layer) as built:
        ledger = get(built.unwrap(), Ledger)
        await prepare(ledger, order.run)
        armed = True
        for _ in range(order.rounds):
            await commit_round(ledger, order.run, done + 1)
            answered = range(done + 1, done + 1 + TOGETHER)
            os.write(diary, b"".join(b"%d\n" % number for number in answered))
            done += TOGETHER


def orders() -> Iterator[Order]:
    for line in sys.stdin:
        yield Order(**json.loads(line))


def obey(order: Order) -> int:
    """How a child that carries out the order ended: its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work(order))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def as_line(order: Order) -> str:
    return json.dumps(asdict(order))


if __name__ == "__main__":
    for order in orders():
        print(obey(order), flush=True)
