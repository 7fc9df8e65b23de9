"""Many rows at once: all are there in their order, and none where the transaction of one that fails is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from stepwell import StepId, Store, Success, build, define_store, get
from stepwell.layers import app as apps
from stepwell.layers.sql.connection import ROWS_AT_ONCE, Connection, DatabaseError
from stepwell.layers.sql.rows import Row

INSERT = """
insert into word (no, text) values (?, ?)"""
UPSERT = f"{INSERT} on conflict (no) do update set text = excluded.text"
MOST, SOME, FEW = ROWS_AT_ONCE
COUNTS = [0, 1, FEW - 1, FEW, SOME - 1, SOME, MOST - 1, MOST, MOST + 1, 3 * MOST + 2 * SOME + FEW + 1]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    connection = Connection(str(tmp_path / "words.db"), create=True)
    connection.run("create table word (no integer primary key, text text not null)")
    yield connection
    connection.close()


def words(count: int) -> list[Row]:
    return [(no, f"word {no}") for no in range(count)]


def stored(connection: Connection) -> list[Row]:
    return connection.rows("select no, text from word order by no")


@pytest.mark.parametrize("count", COUNTS)
def test_every_row_is_inserted(connection: Connection, count: int) -> None:
    connection.insert_rows(INSERT, words(count))
    assert stored(connection) == words(count)


@pytest.mark.parametrize("count", COUNTS)
def test_the_cells_of_all_rows_are_the_rows(connection: Connection, count: int) -> None:
    connection.insert_cells(INSERT, [cell for row in words(count) for cell in row])
    assert stored(connection) == words(count)


@pytest.mark.parametrize("count", COUNTS)
def test_rows_that_are_there_are_replaced_where_the_statement_says_so(connection: Connection, count: int) -> None:
    connection.insert_rows(INSERT, [(no, "before") for no in range(0, count, 2)])
    connection.insert_rows(UPSERT, words(count))
    assert stored(connection) == words(count)


@pytest.mark.parametrize("damaged", [0, SOME, MOST - 1, MOST, MOST + SOME])
@pytest.mark.parametrize("bad", [(1_000, "twice"), (7_000, None)])
def test_a_row_that_cannot_be_written_is_an_error_and_all_can_be_undone(
    connection: Connection, damaged: int, bad: Row
) -> None:
    connection.run(INSERT, 1_000, "first")
    rows = words(MOST + SOME + FEW)
    rows[damaged] = bad
    connection.run("begin immediate")
    with pytest.raises(DatabaseError):
        connection.insert_rows(INSERT, rows)
    assert connection.in_transaction
    connection.run("rollback")
    assert stored(connection) == [(1_000, "first")]


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that connections run which are opened from now on."""
    run: list[str] = []

    def listen(connection: apsw.Connection) -> None:
        connection.set_profile(lambda sql, _: run.append(sql))

    apsw.connection_hooks.append(listen)
    yield run
    apsw.connection_hooks.remove(listen)


async def test_a_group_takes_few_statements_however_many_changes_it_has(tmp_path: Path, statements: list[str]) -> None:
    """After each one the thread may wait for a busy event loop; a hundred waits in one commit were half a second."""
    counters = define_store("counters-of-one-group", dict[str, int])
    async with build(apps.layer(tmp_path / "app.db", workflows=())) as built:
        stores = get(built.unwrap(), Store)
        ids = [str(no) for no in range(MOST)]
        await asyncio.gather(*(stores.get_or_create(counters, id, {"n": 0}) for id in ids))
        statements.clear()
        changed = await asyncio.gather(*(stores.update(counters, id, one_more, step=StepId("r", id)) for id in ids))
        assert all(isinstance(each, Success) for each in changed)
        writes = [sql for sql in statements if sql.strip().startswith(("insert", "update", "delete"))]
        assert len(writes) <= 3 * statements.count("commit"), writes


def one_more(counter: dict[str, int]) -> None:
    counter["n"] += 1
