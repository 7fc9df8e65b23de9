"""Whoever closes may be cancelled in the middle: everybody is answered all the same, and all is closed after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TypeVar

import pytest

from stepwell import ManualClock, Run, workflow
from stepwell.core.model import StoreKey, Unavailable
from stepwell.core.outcome import Failure, Success
from stepwell.layers.ids import CountedIds
from stepwell.layers.ledger import MemoryLedger
from stepwell.layers.sql.committer import CommitMode, Committer
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.limits import Limits
from stepwell.layers.sql.opening import connect_reader, connect_writer, open_file
from stepwell.layers.sql.sqlite import SqlLedger
from stepwell.layers.sql.writer import Writer
from stepwell.layers.store import LedgerStore
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import Ledger, Verdict

from .engine_world import EngineWorld, success
from .ledger_batches import create
from .ledger_double import Gated
from .store_contract import made, messages
from .store_world import Chat, append, chats

modes = pytest.mark.parametrize("mode", ["thread", "inline", "auto"])

_A = TypeVar("_A")

PATIENCE_S = 5.0
"""How long, of real time, a test waits for an answer before it fails."""

ONE_BY_ONE = Limits(group_batches=1, busy_wait_s=30, busy_wait_closing_s=30)
CLOSED = Failure(Unavailable("the ledger was closed before this batch had its turn", "no"))


def open_ledger(path: Path, mode: CommitMode, limits: Limits = ONE_BY_ONE) -> SqlLedger:
    name = open_file(path, create=True)
    writer = Writer(lambda: connect_writer(name, "normal"))
    return SqlLedger(connect_reader(name), Committer(writer, lambda: 0, mode, limits))


@contextmanager
def locked(path: Path) -> Generator[Connection]:
    """Another process holds the lock of the file, until `rollback` or the end of the block."""
    other = Connection(str(path))
    other.run("begin immediate")
    try:
        yield other
    finally:
        other.close()


def start(ledger: SqlLedger, count: int, name: str = "orders") -> list[asyncio.Task[Verdict]]:
    return [asyncio.create_task(ledger.commit(create(StoreKey(name, str(n))))) for n in range(count)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def answers(calls: Sequence[asyncio.Task[_A]]) -> list[_A]:
    """What the calls were answered; one that is left without an answer fails the test."""
    _, silent = await asyncio.wait(calls, timeout=PATIENCE_S)
    assert not silent
    return [call.result() for call in calls]


async def is_cancelled(closing: asyncio.Task[object]) -> bool:
    _ = await asyncio.wait((closing,), timeout=PATIENCE_S)
    return closing.cancelled()


def stored(path: Path) -> int:
    """How many stores are in the file, as another process sees it."""
    connection = Connection(str(path))
    found = connection.rows("select count(*) from store")
    connection.close()
    return int(str(found[0][0]))


# --- the ledger -------------------------------------------------------------


@modes
@pytest.mark.parametrize("after_turns", range(6))
async def test_closing_that_is_cancelled_answers_everybody(mode: CommitMode, after_turns: int, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    ledger = open_ledger(path, mode)
    calls = start(ledger, 50)
    await turns(1)
    closing = asyncio.create_task(ledger.close())
    await turns(1 + after_turns)
    closing.cancel()
    _ = await is_cancelled(closing)
    committed = stored(path)
    verdicts = await answers(calls)
    assert [verdict for verdict in verdicts if isinstance(verdict, Failure)] == [CLOSED] * (50 - committed)
    assert stored(path) == committed


@modes
async def test_closing_that_is_cancelled_waits_for_the_group_in_flight_alone(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    ledger = open_ledger(path, mode)
    with locked(path) as other:
        in_flight = start(ledger, 1, "in flight")
        await turns()
        queued = start(ledger, 3, "queued")
        await turns()
        closing = asyncio.create_task(ledger.close())
        await turns()
        for _ in range(3):
            closing.cancel()
            await turns()
        assert await answers(queued) == [CLOSED] * 3
        assert not closing.done()
        assert not in_flight[0].done()
        other.run("rollback")
        assert await is_cancelled(closing)
    assert isinstance((await answers(in_flight))[0], Success)
    assert stored(path) == 1


@modes
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_second_closing_waits_until_all_is_closed(mode: CommitMode, cancelled: bool, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    ledger = open_ledger(path, mode)
    with locked(path) as other:
        calls = start(ledger, 1)
        await turns()
        first, second = (asyncio.create_task(ledger.close()) for _ in range(2))
        await turns()
        if cancelled:
            first.cancel()
        await turns()
        third = asyncio.create_task(ledger.close())
        await turns()
        assert not any(closing.done() for closing in (first, second, third))
        other.run("rollback")
        assert await is_cancelled(first) == cancelled
        assert not await is_cancelled(second)
        assert not await is_cancelled(third)
    assert isinstance((await answers(calls))[0], Success)
    assert os.listdir(tmp_path) == ["app.db"]


# --- stores -----------------------------------------------------------------

STORE_CLOSED = Failure(Unavailable("the store was closed while a call waited", "no"))


def open_store(ledger: Ledger) -> LedgerStore:
    return LedgerStore(ledger, ManualClock(), CountedIds(), MemoryWakeBus())


def add(store: LedgerStore, *names: str) -> list[asyncio.Task[object]]:
    return [asyncio.create_task(store.update(chats, "c", append(name))) for name in names]


def nothing(_: Chat) -> str | None:
    """A selector that finds nothing."""
    return None


async def test_who_waits_for_a_state_is_told_though_closing_the_store_is_cancelled() -> None:
    gate = Gated(MemoryLedger(ManualClock()), opened=True)
    store = open_store(gate)
    await made(store)
    waits: list[asyncio.Task[object]] = [asyncio.create_task(store.handle(chats, "c").when(nothing))]
    await turns(20)
    gate.shut()
    writes = add(store, "alone", "one", "two")
    await turns()
    gate.let_one()
    await turns()  # now the two others are with the ledger, in a task of the lane
    closing = asyncio.create_task(store.close())
    await turns(1)
    closing.cancel()
    assert await is_cancelled(closing)
    assert await answers(waits) == [STORE_CLOSED]
    assert [isinstance(outcome, Failure) for outcome in await answers(writes)] == [False, True, True]


async def test_who_queues_behind_a_lone_caller_is_told_when_the_store_is_closed() -> None:
    memory = MemoryLedger(ManualClock())
    reader = open_store(memory)
    await made(reader)
    gate = Gated(memory)
    store = open_store(gate)
    alone, *queued = add(store, "alone", "one", "two")
    await turns()
    await store.close()
    assert await answers(queued) == [STORE_CLOSED] * 2
    gate.open()
    assert isinstance((await answers([alone]))[0], Success)
    assert await answers(add(store, "late")) == [Failure(Unavailable("the store is closed", "no"))]
    await turns(20)
    assert await messages(reader) == (1, ["alone"])


async def test_a_closed_store_begins_nothing_beside_its_callers() -> None:
    memory = MemoryLedger(ManualClock())
    await made(open_store(memory))
    gate = Gated(memory)
    store = open_store(gate)
    (alone,) = add(store, "x" * 1_000_000)  # so much is written that a base is due
    await turns()
    await store.close()
    gate.open()
    assert isinstance((await answers([alone]))[0], Success)
    await turns(100)
    changes = success(await memory.revisions(chats.key("c")))
    assert [change.base_bytes > 0 for change in changes] == [False, True]


# --- engines ----------------------------------------------------------------


async def test_an_engine_of_which_closing_is_cancelled_gives_its_runs_back(tmp_path: Path) -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    @workflow
    async def hanging(run: Run) -> None:
        await run.step("endless", endless)

    world = EngineWorld("sqlite", tmp_path / "app.db")

    async def use() -> None:
        async with world.engine(hanging) as app:
            _ = success(await app.engine.start(hanging, id="r"))
            await began.wait()

    using = asyncio.create_task(use())
    await began.wait()
    await turns()
    assert not using.done()  # the step has time to end
    using.cancel()
    assert await is_cancelled(using)
    assert left.is_set()
    async with world.engine(drive=False) as app:
        assert (await app.row("r")).owner is None


async def test_a_run_is_given_back_whenever_closing_is_cancelled(tmp_path: Path) -> None:
    """The engine closes so many turns after it was opened, and is cancelled so many later."""

    @workflow
    async def sleeping(run: Run) -> None:
        await run.sleep("long", 3600)

    world = EngineWorld("sqlite", tmp_path / "app.db")

    async def use(closes_after: int) -> None:
        async with world.engine(sleeping):
            await turns(closes_after)

    async with world.engine(sleeping, drive=False) as app:
        for closes_after, cancelled_after in product(range(0, 40, 2), range(6)):
            id = f"r-{closes_after}-{cancelled_after}"
            _ = success(await app.engine.start(sleeping, id=id))
            using = asyncio.create_task(use(closes_after))
            await turns(1 + closes_after + cancelled_after)
            using.cancel()
            _ = await is_cancelled(using)
            assert (await app.row(id)).owner is None, id


async def test_a_run_that_is_started_while_closing_is_cancelled_is_given_back(tmp_path: Path) -> None:
    @workflow
    async def sleeping(run: Run) -> None:
        await run.sleep("long", 3600)

    world = EngineWorld("memory", tmp_path)
    starts: list[asyncio.Task[object]] = []

    async def use(id: str, closes_after: int) -> None:
        async with world.engine(sleeping) as app:
            starts.append(asyncio.create_task(app.engine.start(sleeping, id=id)))
            await turns(closes_after)

    async with world.engine(drive=False) as app:
        for closes_after, cancelled_after in product(range(10), range(10)):
            id = f"r-{closes_after}-{cancelled_after}"
            using = asyncio.create_task(use(id, closes_after))
            await turns(1 + closes_after + cancelled_after)
            using.cancel()
            _ = await is_cancelled(using)
            _ = await answers(starts)
            await turns(20)
            assert (await app.row(id)).owner is None, id


@pytest.mark.parametrize("drive", [False, True])
async def test_who_waits_for_a_result_is_told_when_the_engine_is_closed(drive: bool, tmp_path: Path) -> None:
    @workflow
    async def sleeping(run: Run) -> None:
        await run.sleep("long", 3600)

    world = EngineWorld("memory", tmp_path)
    async with world.engine(sleeping, drive=drive) as app:
        _ = success(await app.engine.start(sleeping, id="r"))
        result = asyncio.create_task(app.engine.result("r"))
        await turns(20)
    assert await answers([result]) == [Failure(Unavailable("the engine was closed while a call waited", "no"))]
