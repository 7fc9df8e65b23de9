"""Many rows at once: all are there in their order, and none where the transaction of one that fails is undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.layers.sql.connection import ROWS_AT_ONCE, Connection, DatabaseError
from stepwell.layers.sql.rows import Row

INSERT = """
insert into word (no, text) values (?, ?)"""


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


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE + 2])
def test_every_row_is_inserted(connection: Connection, count: int) -> None:
    connection.insert_many(INSERT, [cell for row in words(count) for cell in row])
    assert stored(connection) == words(count)


@pytest.mark.parametrize("damaged", [0, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE])
@pytest.mark.parametrize("bad", [(1_000, "twice"), (7_000, None)])
def test_a_row_that_cannot_be_written_is_an_error_and_all_can_be_undone(
    connection: Connection, damaged: int, bad: Row
) -> None:
    connection.run(INSERT, 1_000, "first")
    rows = words(2 * ROWS_AT_ONCE + 1)
    rows[damaged] = bad
    connection.run("begin immediate")
    with pytest.raises(DatabaseError):
        connection.insert_many(INSERT, [cell for row in rows for cell in row])
    assert connection.in_transaction
    connection.run("rollback")
    assert stored(connection) == [(1_000, "first")]
