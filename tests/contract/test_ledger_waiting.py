"""How the ledger in a SQLite file keeps waiters and signals: by indices, over restarts, and for other processes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stepwell.core.batch import Batch, PatchStore
from stepwell.core.outcome import Success
from stepwell.core.paths import EACH, SHAPE
from stepwell.core.signal import SignalRow
from stepwell.layers.sql import statements
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.dialect import SQLITE
from stepwell.layers.sql.opening import connect_reader, open_file
from stepwell.layers.sql.rows import to_integer
from stepwell.layers.sql.schema import APPLICATION_ID, MIGRATIONS
from stepwell.layers.sql.sqlite import SqlLedger, open_sqlite
from stepwell.layers.sql.writer import CommitPoint, OnPoint
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import News

from .ledger_batches import NOW_MS, ORDER, RUN, at, create, delete, patch, start
from .ledger_waiters_contract import OTHER, change, owed, register, registered, remove, send, waiter


@asynccontextmanager
async def opened(path: Path, on_point: OnPoint | None = None) -> AsyncGenerator[SqlLedger]:
    ledger = await open_sqlite(path, ManualClock(NOW_MS), durability="normal", on_point=on_point)
    try:
        yield ledger
    finally:
        await ledger.close()


# --- what it costs ------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (statements.MET, ["SEARCH p USING PRIMARY KEY (sid=? AND mask=? AND path>? AND path<?)"]),
        (statements.MASKS, ["SEARCH line_path USING PRIMARY KEY", "SEARCH p USING PRIMARY KEY (sid=? AND mask>?)"]),
        (statements.FIRST_WAITING, ["USING COVERING INDEX waiter_line (lno=? AND passed=? AND due_no=?)"]),
        (statements.HOLDER, ["USING COVERING INDEX waiter_line (lno=? AND passed=? AND due_no>?)"]),
        (statements.ALL_WAITING, ["SEARCH l USING COVERING INDEX", "waiter_line (lno=? AND passed=? AND due_no=?)"]),
        (statements.LINES_WITH_PATHS, ["SEARCH l USING INDEX"]),
        (statements.HELD_WAITER, ["SEARCH w USING INDEX sqlite_autoindex_waiter_1 (run_id=? AND key=? AND sid=?)"]),
        (statements.WAITER, ["SEARCH w USING INDEX sqlite_autoindex_waiter_1 (run_id=? AND key=? AND sid=?)"]),
        (statements.QUEUE, ["(sid=? AND instance=? AND queue=?)"]),
        (statements.HELD_STORE_TO_WRITE, ["SEARCH line USING COVERING INDEX"]),
        (statements.DUE_WAITERS, ["INDEX waiter_due (due_no>?)"]),
        (statements.UNREAD_SIGNALS, ["INDEX signal_unread (no>?)"]),
        (statements.SIGNAL_ROWS, ["INDEX signal_of_run (run_no=?)"]),
        (statements.SIGNAL_USED, ["INDEX signal_dedupe (run_no=? AND name=? AND dedupe=?)"]),
        (statements.select_waiters(True, False), ["SEARCH l USING INDEX", "waiter_line (lno=?)"]),
        (statements.select_waiters(False, True), ["sqlite_autoindex_waiter_1 (run_id=?)"]),
        (statements.select_waiters(True, True), ["SEARCH"]),
    ],
)
def test_nobody_is_gone_through(sql: str, found: list[str], tmp_path: Path) -> None:
    connection = connect_reader(open_file(tmp_path / "app.db", create=True))
    rows = connection.rows(f"explain query plan {sql}", *[0] * sql.count("?"))
    connection.close()
    plan = [str(row[3]) for row in rows]
    scanned = {word for line in plan for word in re.findall(r"SCAN ([a-z]+)", line)}
    assert scanned <= {"m", "masks"}, plan  # what the statement itself has made
    for part in found:
        assert any(part in line for line in plan), plan


async def test_a_commit_where_nobody_waits_asks_for_no_waiters(tmp_path: Path) -> None:
    passed: Counter[CommitPoint] = Counter()
    async with opened(tmp_path / "app.db", lambda point: passed.update([point])) as ledger:
        await ledger.commit(create() + create(OTHER))
        await ledger.commit(patch(1))
        await registered(ledger, waiter(seen=1))
        assert passed[CommitPoint.AFTER_WAITERS] == 1
        await ledger.commit(change(1, ("messages",), key=OTHER))
        assert passed[CommitPoint.AFTER_WAITERS] == 1
        await ledger.commit(change(2, ("messages",)))
        assert passed[CommitPoint.AFTER_WAITERS] == 2
        await ledger.commit(remove("wait"))
        await ledger.commit(change(3, ("messages",)))
        assert passed[CommitPoint.AFTER_WAITERS] == 3


def count(path: Path, *tables: str) -> list[int]:
    """How many rows each of the tables has."""
    connection = Connection(str(path))
    counts = [to_integer(connection.rows(f"select count(*) from {table}")[0][0]) for table in tables]
    connection.close()
    return counts


async def test_what_is_removed_leaves_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as ledger:
        await ledger.commit(create())
        members = (waiter(name, queue="q") for name in "bc")
        await registered(ledger, waiter("a", (("x", EACH), ("x", SHAPE))), *members)
        await registered(ledger, waiter("a", (("y",),)))
        assert count(path, "line", "line_path", "waiter") == [2, 2, 3]
        await ledger.commit(delete(0))
        assert count(path, "line", "line_path", "waiter") == [2, 0, 3], "nobody can be met any more"
        await ledger.commit(create(revision=at(0, "instance-2")))
        await registered(ledger, waiter("a", seen=at(0, "instance-2")))
        await ledger.commit(remove("a") + remove("b") + remove("c"))
    assert count(path, "line", "line_path", "waiter") == [0, 0, 0]


# --- over restarts ------------------------------------------------------------


async def test_s61_s76_what_waits_and_what_is_owed_outlive_the_process(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as ledger:
        await ledger.commit(create() + start(RUN))
        await registered(ledger, waiter("a"), waiter("b", (("by id", "0"), ("messages", 0, "id"), (EACH, "x"))))
        await ledger.commit(change(1, ("messages", SHAPE)) + send(SignalRow("run-1", "x", b"1")))
        before = [await ledger.waiters(), await ledger.wakes(), await ledger.signals("run-1")]
    async with opened(tmp_path / "app.db") as ledger:
        assert [await ledger.waiters(), await ledger.wakes(), await ledger.signals("run-1")] == before
        assert await owed(ledger) == ["a", "run-1"]
        await ledger.commit(change(2, ("messages", 0)))
        assert await owed(ledger) == ["a", "run-1", "b"]


async def test_numbers_are_not_given_again_after_a_restart(tmp_path: Path) -> None:
    numbers: list[int] = []
    for _ in range(3):
        async with opened(tmp_path / "app.db") as ledger:
            await ledger.commit(create())
            (answer,) = await registered(ledger, waiter(seen=at(0, "gone")))
            numbers += [answer.waiter.generation, *(wake.no for wake in (await ledger.wakes()).unwrap())]
            await ledger.commit(remove("wait"))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 6


async def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = Connection(str(path), create=True)
    connection.run("pragma journal_mode = wal")
    for statement in MIGRATIONS[0](SQLITE):
        connection.run(statement)
    connection.run("insert into store values (1, 'orders', 'o-1', 'instance-1', 0, 1, 0)")
    connection.run("insert into log values (1, 1, 0, null, 'instance-1', 0, 0, null)")
    connection.run("insert into base values (1, 1, 0, cast('{}' as blob))")
    connection.run(f"pragma application_id = {APPLICATION_ID}")
    connection.run("pragma user_version = 1")
    connection.close()
    async with opened(path) as ledger:
        assert await ledger.tip(ORDER) == Success(at(0))
        await registered(ledger, waiter())
        await ledger.commit(change(1, ("messages",)))
        assert await owed(ledger) == ["wait"]


# --- other processes ----------------------------------------------------------


class Heard:
    """What a ledger tells of commits elsewhere."""

    def __init__(self) -> None:
        self.news: Counter[News] = Counter()
        self._elsewhere = asyncio.Event()

    def __call__(self, news: News) -> None:
        self.news[news] += 1
        if news == "elsewhere":
            self._elsewhere.set()

    async def elsewhere(self) -> None:
        await asyncio.wait_for(self._elsewhere.wait(), 30)
        self._elsewhere.clear()


async def test_another_ledger_on_the_file_is_heard(tmp_path: Path) -> None:
    path, heard = tmp_path / "app.db", Heard()
    async with opened(path) as one, opened(path) as other:
        stop = one.subscribe(heard)
        await other.commit(create() + register(waiter()))
        await heard.elsewhere()
        assert await owed(one) == []
        await other.commit(change(1, ("messages",)))
        await heard.elsewhere()
        assert await owed(one) == ["wait"]
        assert heard.news.keys() == {"elsewhere"}
        stop()


CHILD = """
import asyncio, sys
from tests.contract.ledger_waiters_contract import change
from stepwell.layers.sql.sqlite import open_sqlite
from stepwell.services.clock import ManualClock

async def main() -> None:
    ledger = await open_sqlite(sys.argv[1], ManualClock())
    (await ledger.commit(change(1, ("messages",)))).unwrap()
    await ledger.close()

asyncio.run(main())
"""


async def test_another_process_is_heard(tmp_path: Path) -> None:
    path, heard = tmp_path / "app.db", Heard()
    async with opened(path) as ledger:
        await ledger.commit(create() + register(waiter()))
        ledger.subscribe(heard)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, str(path), cwd=Path(__file__).parents[2], stderr=subprocess.PIPE
        )
        while await owed(ledger) == []:
            await heard.elsewhere()
        _, said = await child.communicate()
        assert child.returncode == 0, said.decode()


async def test_a_waiter_that_another_ledger_registers_is_met(tmp_path: Path) -> None:
    """Though the first one has known that nobody waits there."""
    path = tmp_path / "app.db"
    async with opened(path) as one, opened(path) as other:
        await one.commit(create())
        await one.commit(change(1, ("messages",)))
        await registered(other, waiter(seen=1), waiter("each", ((EACH, 0),), seen=1))
        await one.commit(change(2, ("messages",)))
        assert await owed(other) == ["wait", "each"]
        await registered(other, waiter("deep", (("a", EACH),), seen=2))
        await one.commit(change(3, ("a", "b")))
        assert await owed(one) == ["wait", "each", "deep"]


async def test_nobody_listens_after_the_end(tmp_path: Path) -> None:
    path, heard = tmp_path / "app.db", Heard()
    async with opened(path) as ledger:
        ledger.subscribe(heard)
        await ledger.commit(create())
    stop = ledger.subscribe(heard)
    async with opened(path) as other:
        await other.commit(Batch(writes=(PatchStore(ORDER, at(1), b"[]"),)))
    stop()
    assert heard.news["commit"] == 1
