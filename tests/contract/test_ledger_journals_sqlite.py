"""Journals and the step cache in a SQLite file: other processes, opening anew, faults, queries, and damaged rows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from stepwell.core.batch import Batch
from stepwell.core.damage import Damaged
from stepwell.core.entry import NewEntry
from stepwell.core.journal import Appended
from stepwell.core.journal_writes import Append, CompactJournal, EvictHead, JournalAt, WriteCheckpoint
from stepwell.core.model import Unavailable
from stepwell.core.outcome import Failure, Outcome, Success
from stepwell.core.provenance import CACHE_JOURNAL
from stepwell.layers.sql import journal_statements as sql
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.dialect import SQLITE
from stepwell.layers.sql.opening import connect_reader, open_file
from stepwell.layers.sql.points import CommitPoint, OnPoint
from stepwell.layers.sql.schema import APPLICATION_ID, MIGRATIONS
from stepwell.layers.sql.sqlite import SqlLedger, open_sqlite
from stepwell.services.clock import ManualClock

from .ledger_batches import NOW_MS
from .ledger_journal_batches import (
    KEY,
    OTHER,
    RUN,
    all_entries,
    append,
    batch,
    check_chain,
    compact,
    done,
    entry,
    forget,
    journal_of,
    numbers,
    recorded,
    ref,
    rewind,
    sourced,
)


@asynccontextmanager
async def opened(path: Path, on_point: OnPoint | None = None) -> AsyncGenerator[SqlLedger]:
    ledger = await open_sqlite(path, ManualClock(NOW_MS), durability="normal", commit="inline", on_point=on_point)
    try:
        yield ledger
    finally:
        await ledger.close()


def spoil(path: Path, *statements: str) -> None:
    """Change rows behind the back of every ledger."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        _ = connection.execute(statement).fetchall()
    assert connection.execute("select changes()").fetchall() != [(0,)], "nothing was spoiled"
    connection.close()


def reason(answer: Outcome[object, object]) -> str:
    match answer:
        case Failure(Unavailable(reason=reason, applied="no")):
            return reason
        case _:
            raise AssertionError(f"{answer} is not unavailable")


# --- others on the same file --------------------------------------------------


async def test_j13_another_connection_reads_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as ledger:
        await done(ledger, append(1))
        reader = connect_reader(str(path))
        assert reader.rows("select seq, payload from entry") == [(0, b'{"n":1}')]
        reader.close()


async def test_j14_two_ledgers_number_the_entries_of_a_run_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as one, opened(path) as other:
        given = [(await done(ledger, sourced(n, n))).appended for n, ledger in enumerate([one, other, one, other])]
        assert given == [(Appended(n, False),) for n in range(4)]
        assert (await done(one, sourced(1, 1))).appended == (Appended(1, True),)
        await done(other, compact(2), rewind(2))
        assert await one.commit(batch(expects=[JournalAt(RUN, 0, None)])) == await other.commit(
            batch(expects=[JournalAt(RUN, 0, None)])
        )
        assert (await done(one, append(9))).appended == (Appended(4, False),)
        await check_chain(other)


@pytest.mark.parametrize("cut", [None, compact(1), rewind(1, carried=b"back"), forget()])
async def test_j21_j40_numbers_go_on_where_the_file_is_opened_again(cut: Batch | None, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as ledger:
        await done(ledger, sourced(0, 0), sourced(1, 1), batch(recorded(key="key-2", run_id=OTHER)))
        if cut is not None:
            await done(ledger, cut)
        before = (await ledger.journals()).unwrap(), (await ledger.heads()).unwrap(), await ledger.cache_changes()
        last = (await ledger.newest(1)).unwrap()[0].no
    async with opened(path) as ledger:
        after = (await ledger.journals()).unwrap(), (await ledger.heads()).unwrap(), await ledger.cache_changes()
        assert after == before
        assert (await done(ledger, sourced(2, 2))).appended == (Appended(2, False),)
        assert (await all_entries(ledger))[-1].no > last
        await check_chain(ledger)


APPENDING = """
import asyncio, sys
from stepwell.core.batch import Batch
from stepwell.core.damage import Damaged
from stepwell.core.entry import NewEntry
from stepwell.core.journal import Source
from stepwell.core.journal_writes import Append, RecordRow
from stepwell.core.recorded_row import RecordedRow
from stepwell.layers import clock, ledger
from stepwell.layers.layer import build, get
from stepwell.services.ledger import Ledger

async def main(path, name):
    async with build(ledger.layer(path) | clock.layer()) as built:
        log = get(built.unwrap(), Ledger)
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(30):
            entry = NewEntry("test.counted", b"%d" % n, Source(name, n), b"%d" % n)
            row = RecordedRow(f"key-{n}", f"recorder-{name}", None, name.encode(), b"{}", n)
            calls = [log.commit(Batch((), (Append("run-1", (entry,)),))) for _ in range(2)]
            calls.append(log.commit(Batch((), (RecordRow(row),))))
            for verdict in await asyncio.gather(*calls):
                verdict.unwrap()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_append_to_one_journal_and_fill_one_cache(tmp_path: Path) -> None:
    path, names = tmp_path / "app.db", ("0", "1", "2")
    command = [sys.executable, "-c", APPENDING, str(path)]
    started = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
        for name in names
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(timeout=60) for process in started] == [0] * 3
    for process in started:
        _ = process.communicate()
    async with opened(path) as ledger:
        assert await numbers(ledger) == list(range(90))
        for row in (await ledger.journals()).unwrap():
            await check_chain(ledger, row.run_id)
        by_source = {(row.source.id, row.source.seq): row.seq for row in (await ledger.sources(RUN)).unwrap()}
        assert sorted(by_source.values()) == list(range(90))
        for name in names:
            places = [by_source[name, n] for n in range(30)]
            assert places == sorted(places)
        heads = (await ledger.heads()).unwrap()
        assert [each.ref.key_digest for each in heads] == sorted(f"key-{n}" for n in range(30))
        admitted = [each for each in (await ledger.provenance()).unwrap() if b'"admitted"' in each.payload]
        assert len(admitted) == 30, "a key was put in force twice"
        assert sum([len((await ledger.recorded_of(f"recorder-{name}")).unwrap()) for name in names]) == 90


# --- faults -------------------------------------------------------------------

ALL = (
    sourced(1)
    + batch(recorded())
    + append(2, 3, run_id=OTHER)
    + rewind(0, OTHER)
    + batch(EvictHead("key-2", None, "sweep"))
)
"""Writes of every kind but a checkpoint, which is planned on entries that are there."""


@pytest.mark.parametrize(
    "point",
    [
        CommitPoint.AFTER_JUDGEMENT,
        CommitPoint.AFTER_JOURNALS,
        CommitPoint.AFTER_ENTRIES,
        CommitPoint.AFTER_SOURCES,
        CommitPoint.AFTER_CHECKPOINTS,
        CommitPoint.AFTER_RECORDED,
        CommitPoint.AFTER_HEADS,
        CommitPoint.BEFORE_COMMIT,
    ],
    ids=lambda point: point.name.lower(),
)
async def test_j18_of_a_commit_that_fails_nothing_is_left(point: CommitPoint, tmp_path: Path) -> None:
    broken = False

    def reach(reached: CommitPoint) -> None:
        if broken and reached is point:
            raise apsw.exception_for(apsw.SQLITE_FULL)

    async with opened(tmp_path / "app.db", reach) as ledger, opened(tmp_path / "app.db") as other:
        await done(ledger, batch(recorded(key="key-2")), forget())
        told: list[str] = []
        remove = ledger.subscribe(told.append)
        broken = True
        assert "Full" in reason(await ledger.commit(ALL))
        broken = False
        remove()
        assert told == []
        for each in (ledger, other):
            assert await numbers(each) == []
            assert await each.journal(OTHER) == Success(None)
            assert await each.head(KEY) == Success(None)
            assert (await each.head("key-2")).unwrap() is not None
        answer = await done(ledger, ALL)
        assert answer.appended == (Appended(2, False), Appended(0, False), Appended(1, False))
        assert answer.evicted == (ref(0, "key-2"),)
        for run_id in (RUN, OTHER, CACHE_JOURNAL):
            await check_chain(other, run_id)


async def test_a_bug_in_one_batch_of_a_group_leaves_the_others_as_if_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as ledger:
        wrong = append(9) + batch(WriteCheckpoint(RUN, 77, b"{}"))
        calls = [ledger.commit(each) for each in (append(1), wrong, append(2) + rewind(0), append(3))]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[1], ValueError)
        assert await numbers(ledger) == [0, 2]
        await check_chain(ledger)


# --- files of earlier versions ------------------------------------------------


async def test_a_database_of_version_3_gets_journals(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = Connection(str(path), create=True)
    connection.run("pragma journal_mode = wal")
    for migration in MIGRATIONS[:3]:
        for statement in migration(SQLITE):
            connection.run(statement)
    connection.run("update sequence set no = 7")
    connection.run(f"pragma application_id = {APPLICATION_ID}")
    connection.run("pragma user_version = 3")
    connection.close()
    async with opened(path) as ledger:
        assert await ledger.journals() == Success(())
        assert await ledger.cache_changes() == Success(0)
        assert (await done(ledger, append(1))).appended == (Appended(0, False),)
        reader = connect_reader(str(path))
        assert reader.rows("select no from sequence") == [(7,)]
        reader.close()


# --- queries ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (sql.HELD_JOURNAL, "run_id=?"),
        (sql.LAST_ENTRY, "entry_seq (jno=? AND seq>? AND seq<?)"),
        (sql.CUT_ABOVE, "entry_seq (jno=? AND seq>?)"),
        (sql.CUT_BELOW, "entry_seq (jno=? AND seq<?)"),
        (sql.ENTRIES, "entry_seq (jno=? AND seq>?)"),
        (sql.ENTRY_PLACES_OF_TYPE, "COVERING INDEX entry_type (jno=? AND type=? AND seq>? AND seq<?)"),
        (sql.PROVENANCE, "entry_provenance"),
        (sql.SOURCES, "(jno=? AND (source,source_seq)>(?,?))"),
        (sql.JOURNALS, "run_id>?"),
        (sql.HEADS, "(key>?)"),
        (sql.HEADS_BEFORE, "(key>?)"),
        (sql.FEW_HEADS_BEFORE, "cache_head_created"),
        (sql.RECORDED_OF, "(run_id=? AND (key,seq)>(?,?))"),
        (sql.DELETE_RECORDED, "(run_id=?)"),
        (sql.CHECKPOINTS, "(jno=?)"),
    ],
)
def test_a_query_is_answered_by_an_index(text: str, index: str, tmp_path: Path) -> None:
    connection = connect_reader(open_file(tmp_path / "app.db", create=True))
    plan = " ".join(str(row[3]) for row in connection.rows(f"explain query plan {text}", *[0] * text.count("?")))
    connection.close()
    assert index in plan
    assert "SCAN" not in plan or text == sql.PROVENANCE  # of an index that holds no others


async def test_few_and_many_old_heads_are_found_alike(tmp_path: Path) -> None:
    """Few are found by their age, many on the way through the keys."""
    async with opened(tmp_path / "app.db") as ledger:
        ages = {f"key-{n:02}": 7 * n % 20 for n in range(20)}
        await done(ledger, batch(*(recorded(key=key, created_at_ms=age) for key, age in ages.items())))
        for before in range(22):
            old = [key for key in sorted(ages) if ages[key] < before]
            for limit in (1, 2, 4, 100):
                for after in ("", "key-07"):
                    found = (await ledger.heads(after=after, created_before_ms=before, limit=limit)).unwrap()
                    assert [row.ref.key_digest for row in found] == [key for key in old if key > after][:limit]


async def test_an_append_does_not_write_what_is_carried_again(tmp_path: Path) -> None:
    """It may be long, and an append is to cost what it appends."""
    path = tmp_path / "app.db"
    async with opened(path) as ledger:
        await done(ledger, append(1, 2), rewind(1, carried=bytes(4_000_000)))
        connection = apsw.Connection(str(path))
        _ = connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()
        for n in range(10):
            await done(ledger, append(n))
        assert os.path.getsize(f"{path}-wal") < 1_000_000  # noqa: ASYNC240
        assert (await journal_of(ledger)).carried == bytes(4_000_000)


# --- damaged rows -------------------------------------------------------------


async def kept(path: Path) -> None:
    """A file with a row of every kind."""
    async with opened(path) as ledger:
        await done(ledger, append(0), sourced(1), append(2, 3, 4), rewind(3), compact(1), batch(recorded()))
        await done(ledger, batch(WriteCheckpoint(RUN, 3, b"{}")), append(1, run_id=OTHER))


@pytest.mark.parametrize(
    "change",
    [
        "journal set generation = 5",
        "journal set generation = 'x'",
        "journal set floor = null",
        "journal set floor_chain = zeroblob(32)",
        "journal set carried = x'00'",
        "journal set carried = 1.5",
        "journal set seal = x''",
        "journal_end set last_seq = last_seq + 1",
        "journal_end set last_seq = 'x'",
        "journal_end set chain = zeroblob(32)",
        "journal_end set chain = 7",
        "journal_end set seal = zeroblob(32)",
        "journal_end set jno = 99",
    ],
)
async def test_a_damaged_journal_is_told_as_one(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, f"update {change} where jno = 1")
    async with opened(path) as ledger:
        assert not (await journal_of(ledger)).sealed
        assert (await journal_of(ledger, OTHER)).sealed
        assert [(row.run_id, row.sealed) for row in (await ledger.journals()).unwrap()] == [(RUN, False), (OTHER, True)]


@pytest.mark.parametrize(
    "change", ["journal_end set last_seq = 'x'", "journal_end set chain = 7", "journal_end set jno = 9"]
)
async def test_nothing_is_appended_to_an_end_that_cannot_be_read(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, f"update {change} where jno = 1")
    async with opened(path) as ledger:
        refused, other = await asyncio.gather(ledger.commit(append(9)), ledger.commit(append(9, run_id=OTHER)))
        assert f"the journal of '{RUN}' is damaged" in reason(refused)
        assert isinstance(refused.failure(), Damaged)
        assert isinstance(other, Success)


async def test_an_append_to_a_changed_end_does_not_mend_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, "update journal_end set chain = zeroblob(32) where jno = 1")
    async with opened(path) as ledger:
        await done(ledger, append(9))
        with pytest.raises(AssertionError, match="another hash"):
            await check_chain(ledger)


@pytest.mark.parametrize(
    "change",
    [
        "payload = 5",
        "meta = 'text'",
        "type = x'00'",
        "type = cast(x'ff' as text)",
        "at_ms = 'x'",
        "source = 7",
        "source = cast(x'ff' as text)",
        "source_seq = 'x'",
        "spilled = 3",
        "chain = 'x'",
    ],
)
async def test_an_entry_that_cannot_be_read_names_run_and_number(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, f"update entry set {change} where jno = 1 and seq = 3")
    async with opened(path) as ledger:
        assert f"the entry 3 of the run '{RUN}'" in reason(await ledger.entries(RUN))
        assert [each.seq for each in (await ledger.entries(RUN, limit=1)).unwrap().entries] == [1]
        assert isinstance(await ledger.entries(RUN, after=3), Success)
        assert isinstance(await ledger.newest(3), Success)
        assert isinstance(await ledger.newest(100), Failure)
        assert isinstance(await ledger.entries(OTHER), Success)


async def test_j19_a_damaged_entry_among_the_newest_is_told(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, "update entry set payload = 5 where jno = 2")
    async with opened(path) as ledger:
        assert f"the entry 0 of the run '{OTHER}'" in reason(await ledger.newest(64))
        await done(ledger, append(9))
    spoil(path, "update entry set payload = x'00', jno = 88 where jno = 2")
    async with opened(path) as ledger:
        assert "the entry 0 of the run None" in reason(await ledger.newest(64))


@pytest.mark.parametrize(
    "change",
    ["state = x'00'", "state = 'x'", "at_ms = 5", "at_ms = 'x'", "compacted_at_ms = 5", "seal = x'00'", "seal = 1.5"],
)
async def test_j20_a_damaged_checkpoint_is_told_and_the_entries_are_still_read(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    before = await ledger_entries(path)
    spoil(path, f"update checkpoint set {change} where seq = 3")
    async with opened(path) as ledger:
        damaged, whole = (await ledger.checkpoints(RUN)).unwrap()
        assert (damaged.seq, damaged.state) == (3, None)
        assert (whole.seq, whole.state) == (1, b'{"upto":1}')
        assert await all_entries(ledger) == before
        await done(ledger, batch(CompactJournal(RUN, 3, b"")))
        (still,) = (await ledger.checkpoints(RUN)).unwrap()
        assert still.state is None


async def ledger_entries(path: Path) -> object:
    async with opened(path) as ledger:
        return await all_entries(ledger)


@pytest.mark.parametrize("change", ["seq = 2", "seq = 'x'", "identity = x'00'", "identity = 5", "seal = x'00'"])
async def test_a_damaged_source_is_told_as_one(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, f"update entry_source set {change} where source = 'source-1'")
    async with opened(path) as ledger:
        rows = (await ledger.sources(RUN)).unwrap()
        assert [row.source.id for row in rows if not row.sealed] == ["source-1"]
        assert len(rows) == 3


@pytest.mark.parametrize("change", ["from_seq = 3", "to_seq = 'x'", "at_ms = 1", "chain = zeroblob(32)", "seal = 1.5"])
async def test_a_damaged_rewind_is_told_as_one(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, f"update rewind set {change}")
    async with opened(path) as ledger:
        (row,) = (await ledger.rewinds(RUN)).unwrap()
        assert (row.generation, row.sealed) == (1, False)


@pytest.mark.parametrize(
    "change",
    [
        "result = x'32'",
        "result = 5",
        "meta = x'00'",
        "created_at_ms = 1",
        "result_digest = zeroblob(32)",
        "seal = x'00'",
    ],
)
async def test_a_damaged_row_is_told_and_stands_against_nobody(change: str, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    async with opened(path) as ledger:
        (row,) = (await ledger.recorded_of(RUN)).unwrap()
    spoil(path, f"update recorded set {change}")
    async with opened(path) as ledger:
        found = (await ledger.recorded(row)).unwrap()
        assert found is not None
        assert (found.ref, found.row) == (row, None)
        assert await ledger.in_force(KEY) == Success(found)
        assert (await ledger.are_recorded([row])).unwrap() == frozenset([row])
        answer = await done(ledger, batch(recorded(b"9", run_id=OTHER)))
        assert [each.standing for each in answer.recorded] == ["inserted"]
        head = (await ledger.head(KEY)).unwrap()
        assert head is not None
        assert head.ref.recorded_run_id == OTHER
        (removed,) = await all_entries(ledger, CACHE_JOURNAL)
        assert b'"reason":"decode_failed"' in removed.payload


async def test_a_head_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await kept(path)
    spoil(path, "update cache_head set seq = 'x'")
    async with opened(path) as ledger:
        assert "damaged" in reason(await ledger.head(KEY))
        assert "damaged" in reason(await ledger.heads())
        assert f"the head of {KEY} is damaged" in reason(await ledger.commit(batch(recorded(b"9", run_id=OTHER))))
        assert await ledger.head("key-9") == Success(None)


async def test_what_is_no_unicode_is_the_callers_error(tmp_path: Path) -> None:
    async with opened(tmp_path / "app.db") as ledger:
        for call in (ledger.journal("\ud800"), ledger.entries("\ud800"), ledger.head("\ud800")):
            with pytest.raises(ValueError, match="not valid Unicode"):
                await call
        with pytest.raises(ValueError, match="surrogates"):
            await ledger.commit(append(1, run_id="\ud800"))
        with pytest.raises(ValueError, match="surrogates"):
            await ledger.commit(batch(Append(RUN, (NewEntry("\ud800", b"1"),))))
        assert await ledger.journals() == Success(())
        assert (await done(ledger, batch(Append(RUN, (entry(1),))))).appended == (Appended(0, False),)
