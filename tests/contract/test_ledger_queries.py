"""How the ledger in a SQLite file reads: by an index, and no further back than it has to."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.core.batch import Batch, WriteBase
from stepwell.layers.sql import statements
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.opening import connect_reader, open_file
from stepwell.layers.sql.sqlite import open_sqlite
from stepwell.services.clock import ManualClock

from .ledger_batches import ORDER, at, create, patch


@pytest.mark.parametrize(
    ("sql", "indices"),
    [
        (statements.due_runs(2, 0), {"run_free"}),
        (statements.due_runs(2, 3), {"run_free", "run_owner"}),
        (statements.next_free(2, 0), {"run_free"}),
        (statements.OWNERS, {"run_owner"}),
        (statements.CANCEL_REQUESTS, {"run_owner"}),
        (statements.RENEW_LEASES, {"run_owner"}),
        (statements.select_runs(True, False, False, False), {"run_state"}),
        (statements.NEAREST_BASE, {"base_revision"}),
        (statements.INSTANCE_END, {"log_instance"}),
    ],
)
def test_a_query_is_answered_by_an_index(sql: str, indices: set[str], tmp_path: Path) -> None:
    connection = connect_reader(open_file(tmp_path / "app.db", create=True))
    plan = " ".join(str(row[3]) for row in connection.rows(f"explain query plan {sql}", *[0] * sql.count("?")))
    connection.close()
    assert "SCAN run" not in plan
    assert {index for index in indices if index in plan} == indices, plan


async def test_a_long_history_is_read_from_the_nearest_base(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "app.db", ManualClock(), durability="normal")
    await ledger.commit(create())
    await ledger.commit_all([patch(version) for version in range(1, 301)])
    for version in range(50, 300, 50):
        await ledger.commit(base_of(version))
    for version in (0, 49, 50, 51, 99, 120, 249, 250, 300):
        document = (await ledger.document(ORDER, at(version))).unwrap()
        assert document is not None
        base = min(version // 50 * 50, 250)
        assert document.base == (b'{"n":0}' if base == 0 else b"%d" % base)
        assert document.patches == tuple(b"[%d]" % made for made in range(base + 1, version + 1))
    await ledger.close()


def test_the_way_to_an_old_revision_begins_at_the_next_base(tmp_path: Path) -> None:
    connection = Connection(open_file(tmp_path / "app.db", create=True))
    for version in (0, 50, 100, 150):
        connection.run("insert into base values (?, 1, ?, x'00')", 1000 + version, version)
    for version, expected in ((60, 1100), (100, 1100), (101, 1150), (0, 1000)):
        assert connection.row(statements.NEAREST_BASE, 1, version, 1000, 1150) == (expected,)
    assert connection.row(statements.NEAREST_BASE, 1, 60, 1000, 1090) is None  # an instance ended before the next one
    connection.close()


def base_of(version: int) -> Batch:
    return Batch((), (WriteBase(version + 1, b"%d" % version),))
