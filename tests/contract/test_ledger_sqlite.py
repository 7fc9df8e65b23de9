"""What the ledger in a SQLite file promises beside the contract: groups, durability, other processes, its end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stepwell.core.batch import Batch, Committed, PatchStore, StoreAt
from stepwell.core.model import StoreKey, Unavailable
from stepwell.core.outcome import Failure, Success
from stepwell.layers.sql.committer import CommitMode, Committer
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.limits import LIMITS, Limits
from stepwell.layers.sql.opening import Durability, connect_reader, connect_writer, open_file
from stepwell.layers.sql.sqlite import SqlLedger, open_sqlite
from stepwell.layers.sql.transaction import LOCKED
from stepwell.layers.sql.writer import CommitPoint, OnPoint, Writer
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import Verdict

from ..crash.shim import Shim
from .ledger_batches import ORDER, at, committed, create, patch

modes = pytest.mark.parametrize("mode", ["thread", "inline", "auto"])


@asynccontextmanager
async def opened(
    path: Path,
    mode: CommitMode = "inline",
    *,
    durability: Durability = "full",
    limits: Limits = LIMITS,
    on_point: OnPoint | None = None,
    vfs: str | None = None,
) -> AsyncGenerator[SqlLedger]:
    name = open_file(path, create=True)
    writer = Writer(lambda: connect_writer(name, durability, vfs), on_point)
    ledger = SqlLedger(connect_reader(name), Committer(writer, lambda: 0, mode, limits))
    try:
        yield ledger
    finally:
        await ledger.close()


def keys(count: int) -> list[StoreKey]:
    return [StoreKey("orders", str(n)) for n in range(count)]


def reason(answer: object) -> str:
    match answer:
        case Failure(Unavailable(reason=reason, applied="no")):
            return reason
        case _:
            raise AssertionError(f"{answer} is not unavailable")


# --- groups -----------------------------------------------------------------


class Gate:
    """Holds the writer's thread where it is told to, and counts what passes."""

    def __init__(self, point: CommitPoint) -> None:
        self._point = point
        self._open = threading.Event()
        self._reached = threading.Event()
        self.passed: Counter[CommitPoint] = Counter()

    def __call__(self, point: CommitPoint) -> None:
        if point is self._point:
            self._reached.set()
            assert self._open.wait(timeout=30)
        self.passed[point] += 1

    def open(self) -> None:
        self._open.set()

    async def reached(self) -> None:
        """Returns when the writer's thread stands before the gate."""
        await asyncio.to_thread(self._reached.wait)


@modes
async def test_callers_of_one_turn_share_a_transaction(mode: CommitMode, tmp_path: Path) -> None:
    passed: Counter[CommitPoint] = Counter()
    async with opened(tmp_path / "app.db", mode, on_point=lambda point: passed.update([point])) as ledger:
        verdicts = await asyncio.gather(*(ledger.commit(create(key)) for key in keys(100)))
    assert [committed(verdict).seqs for verdict in verdicts] == [(n + 1,) for n in range(100)]
    assert passed[CommitPoint.AFTER_COMMIT] == 1


async def test_the_next_group_gathers_while_one_is_committed(tmp_path: Path) -> None:
    gate = Gate(CommitPoint.AFTER_BEGIN)
    async with opened(tmp_path / "app.db", "thread", on_point=gate) as ledger:
        calls = list[asyncio.Task[Verdict]]()
        for key in keys(10):
            calls.append(asyncio.create_task(ledger.commit(create(key))))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(*calls)
    assert gate.passed[CommitPoint.AFTER_COMMIT] == 2


@modes
async def test_a_group_has_its_limits(mode: CommitMode, tmp_path: Path) -> None:
    passed: Counter[CommitPoint] = Counter()
    limits = Limits(group_batches=40, group_bytes=1000)
    async with opened(
        tmp_path / "app.db", mode, limits=limits, on_point=lambda point: passed.update([point])
    ) as ledger:
        await asyncio.gather(*(ledger.commit(create(key)) for key in keys(100)))
        assert passed[CommitPoint.AFTER_COMMIT] == 3
        await asyncio.gather(*(ledger.commit(patch_of(key, 400)) for key in keys(4)))
        assert passed[CommitPoint.AFTER_COMMIT] == 3 + 2
        await asyncio.gather(
            *(ledger.commit(create(StoreKey("large", key.id), document=bytes(2000))) for key in keys(2))
        )
        assert passed[CommitPoint.AFTER_COMMIT] == 3 + 2 + 2


def patch_of(key: StoreKey, size_bytes: int) -> Batch:
    return Batch((StoreAt(key, at(0)),), (PatchStore(key, at(1), bytes(size_bytes)),))


async def test_too_many_waiting_batches_are_turned_away(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db", limits=Limits(queue_batches=5)) as ledger:
        verdicts = await asyncio.gather(*(ledger.commit(create(key)) for key in keys(7)))
        assert [isinstance(verdict, Success) for verdict in verdicts] == [True] * 5 + [False] * 2
        assert "wait for their turn" in reason(verdicts[6])
        assert isinstance(await ledger.commit(create(keys(7)[6])), Success)


@modes
async def test_a_value_that_cannot_be_bound_raises_in_its_caller_only(mode: CommitMode, tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db", mode) as ledger:
        await ledger.commit(create())
        too_long = at(1 << 70)
        wrong = Batch((), (PatchStore(ORDER, at(2), b"[2]"),)) + create(StoreKey("orders", "o-2"), too_long)
        answers = await asyncio.gather(
            ledger.commit(patch(1)), ledger.commit(wrong), ledger.commit(patch(2)), return_exceptions=True
        )
        assert isinstance(answers[1], OverflowError)
        assert (answers[0], answers[2]) == (Success(Committed(at(1), (2,))), Success(Committed(at(2), (3,))))
        assert len((await ledger.stores()).unwrap()) == 1


# --- durability -------------------------------------------------------------


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_the_writer_is_as_durable_as_it_was_asked_to_be(durability: Durability, level: int, tmp_path: Path) -> None:
    connection = connect_writer(open_file(tmp_path / "app.db", create=True), durability)
    assert connection.rows("pragma synchronous") == [(level,)]
    assert connection.rows("pragma journal_mode") == [("wal",)]
    connection.close()


@modes
@pytest.mark.parametrize(("durability", "syncs"), [("full", 10), ("normal", 0)])
async def test_each_committed_group_is_synced(
    durability: Durability, syncs: int, mode: CommitMode, tmp_path: Path
) -> None:
    shim = Shim(f"counting-{mode}-{durability}")
    async with opened(tmp_path / "app.db", mode, durability=durability, vfs=shim.name) as ledger:
        await ledger.commit(create())
        shim.syncs.clear()
        for version in range(1, 11):
            await ledger.commit(patch(version))
        assert shim.syncs["db-wal"] == syncs
        shim.syncs.clear()
        verdicts = await asyncio.gather(*(ledger.commit(patch(version)) for version in range(11, 111)))
        assert all(isinstance(verdict, Success) for verdict in verdicts)
        assert shim.syncs["db-wal"] == min(syncs, 1)
        shim.syncs.clear()
        await ledger.commit(patch(1))  # refused
        assert shim.syncs["db-wal"] == 0


async def test_a_read_sees_nothing_that_is_not_committed(tmp_path: Path) -> None:
    gate = Gate(CommitPoint.BEFORE_COMMIT)
    async with opened(tmp_path / "app.db", "thread", on_point=gate) as ledger:
        call = asyncio.create_task(ledger.commit(create()))
        await gate.reached()
        assert await ledger.tip(ORDER) == Success(None)
        gate.open()
        await call
        assert await ledger.tip(ORDER) == Success(at(0))


# --- others on the same file ------------------------------------------------


async def test_a_read_sees_what_anybody_committed(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as ledger, opened(path, "thread") as other:
        before = await other.changes()
        await ledger.commit(create())
        assert await other.tip(ORDER) == Success(at(0))
        assert await other.changes() != before
        assert committed(await other.commit(patch(1))).seqs == (2,)
        assert await ledger.tip(ORDER) == Success(at(1))


@modes
async def test_a_lock_is_waited_for_and_the_loop_goes_on(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path, mode) as ledger:
        other = Connection(str(path))
        other.run("begin immediate")
        call = asyncio.create_task(ledger.commit(create()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        other.run("rollback")
        assert committed(await call).revision == at(0)
        other.close()


@modes
async def test_a_lock_that_stays_is_reported(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path, mode, limits=Limits(busy_wait_s=0.01)) as ledger:
        other = Connection(str(path))
        other.run("begin immediate")
        verdicts = await asyncio.gather(*(ledger.commit(create(key)) for key in keys(3)))
        assert [reason(verdict) for verdict in verdicts] == [LOCKED] * 3
        other.run("rollback")
        assert isinstance(await ledger.commit(create()), Success)
        other.close()


# --- cancelled callers ------------------------------------------------------


async def test_a_cancelled_caller_waits_for_the_verdict(tmp_path: Path) -> None:
    gate = Gate(CommitPoint.BEFORE_COMMIT)
    async with opened(tmp_path / "app.db", "thread", on_point=gate) as ledger:
        caller, neighbour = (asyncio.create_task(ledger.commit(create(key))) for key in keys(2))
        await gate.reached()
        for _ in range(10):
            caller.cancel()
            await asyncio.sleep(0)
        assert not caller.done()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert isinstance(await neighbour, Success)
        assert await ledger.tip(keys(1)[0]) == Success(at(0))


async def test_a_cancelled_caller_waits_no_longer_than_the_limit(tmp_path: Path) -> None:
    gate = Gate(CommitPoint.BEFORE_COMMIT)
    limits = Limits(cancel_wait_s=0.01)
    async with opened(tmp_path / "app.db", "thread", limits=limits, on_point=gate) as ledger:
        caller = asyncio.create_task(ledger.commit(create()))
        await gate.reached()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        gate.open()
        assert isinstance(await ledger.commit(patch(1)), Success)  # what the caller did not wait for was committed


# --- the end ----------------------------------------------------------------


@modes
async def test_closing_answers_everybody_and_leaves_one_file(mode: CommitMode, tmp_path: Path) -> None:
    threads = threading.active_count()
    async with opened(tmp_path / "app.db", mode, limits=Limits(group_batches=20)) as ledger:
        calls = [asyncio.create_task(ledger.commit(create(key))) for key in keys(50)]
        await asyncio.sleep(0)
    assert all(isinstance(verdict, Success) for verdict in await asyncio.gather(*calls))
    assert threading.active_count() == threads
    assert os.listdir(tmp_path) == ["app.db"]


@modes
async def test_a_closed_ledger_says_so(mode: CommitMode, tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db", mode) as ledger:
        pass
    assert reason(await ledger.commit(create())) == "the ledger is closed"
    assert [reason(verdict) for verdict in await ledger.commit_all([create(), patch(1)])] == [
        "the ledger is closed"
    ] * 2
    assert reason(await ledger.tip(ORDER)) == "the ledger is closed"
    await ledger.close()


@modes
async def test_closing_does_not_wait_long_for_a_lock(mode: CommitMode, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    other: Connection
    async with opened(path, mode, limits=Limits(busy_wait_closing_s=0.01)) as ledger:
        other = Connection(str(path))
        other.run("begin immediate")
        call = asyncio.create_task(ledger.commit(create()))
        await asyncio.sleep(0)
    assert reason(await call) == LOCKED
    other.close()


def in_child(call: Coroutine[None, None, object]) -> object:
    """What an async call gives that waits for nothing, without the event loop, which a child does not have."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited for something")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the child does nothing that could lock
async def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as ledger:
        await ledger.commit(create())
        child = os.fork()
        if child == 0:
            answers = [in_child(call) for call in (ledger.tip(ORDER), ledger.commit(patch(1)))]
            in_child(ledger.close())
            os._exit(0 if all("forked" in reason(answer) for answer in answers) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222  # it has ended, or will at once
        assert isinstance(await ledger.commit(patch(1)), Success)


async def test_another_event_loop_is_a_bug(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as ledger:

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(ledger.tip(ORDER))

        await asyncio.to_thread(elsewhere)


@modes
@pytest.mark.parametrize("happened", ["deleted", "replaced by another"])
async def test_a_file_that_was_taken_away_is_written_and_read_no_more(
    happened: str, mode: CommitMode, tmp_path: Path
) -> None:
    path = tmp_path / "app.db"
    key, other = keys(2)
    async with opened(path, mode) as ledger:
        _ = committed(await ledger.commit(create(key)))
        path.rename(tmp_path / "aside.db")
        if happened != "deleted":
            path.write_bytes(b"")
        for answer in (await ledger.commit(create(other)), await ledger.changes(), await ledger.tip(key)):
            assert f"app.db was {happened} while it was open" in reason(answer)
        path.unlink(missing_ok=True)
        (tmp_path / "aside.db").rename(path)
        assert committed(await ledger.commit(create(other)))


async def test_open_sqlite_gives_a_ledger_that_commits(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "app.db", ManualClock(7))
    await ledger.commit(create())
    assert [tip.updated_at_ms for tip in (await ledger.stores()).unwrap()] == [7]
    await ledger.close()


# --- what nobody can have stored ----------------------------------------------


async def test_an_id_that_is_no_text_is_bad_input_and_no_damage(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as ledger:
        for call in (ledger.run("r\ud800"), ledger.runs(after="r\ud800"), ledger.signals("r\ud800")):
            with pytest.raises(ValueError, match=r"'r.ud800' is not valid Unicode: surrogates not allowed"):
                await call
        assert await ledger.run("r") == Success(None)
