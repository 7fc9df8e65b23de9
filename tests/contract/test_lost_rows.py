"""Numbers whose rows were lost: what else has them belongs to nobody, and a new store or journal does not take it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from stepwell import Failure, Ledger, StoreKey, Success, Unavailable, build, get
from stepwell.core.batch import Batch
from stepwell.core.entry import NewEntry
from stepwell.core.journal_writes import Append
from stepwell.layers import clock, ledger
from stepwell.services.ledger import Verdict

from .ledger_batches import create


def append(run_id: str, *payloads: bytes) -> Batch:
    return Batch(writes=(Append(run_id, tuple(NewEntry("noted", each) for each in payloads)),))


def lose(path: Path, row: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"delete from {row}")
    connection.close()


async def commit(path: Path, *batches: Batch) -> list[Verdict]:
    async with build(ledger.layer(path) | clock.layer()) as built:
        return [await get(built.unwrap(), Ledger).commit(each) for each in batches]


@pytest.mark.parametrize(
    ("first", "second", "row"),
    [
        (create(StoreKey("accounts", "alice")), create(StoreKey("accounts", "bob")), "store where id = 'alice'"),
        (append("alice", b"1", b"2"), append("bob", b"3"), "journal where run_id = 'alice'"),
    ],
    ids=["store", "journal"],
)
async def test_what_is_new_is_refused_the_remains_of_what_was_lost(
    tmp_path: Path, first: Batch, second: Batch, row: str
) -> None:
    path = tmp_path / "app.db"
    assert all(isinstance(each, Success) for each in await commit(path, first))
    lose(path, row)
    for _ in range(2):  # it stays refused, and is never half written
        (answer,) = await commit(path, second)
        assert isinstance(answer, Failure)
        failure = answer.failure()
        assert isinstance(failure, Unavailable)
        assert failure.applied == "no"
