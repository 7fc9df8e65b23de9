"""Whatever is changed in what a file keeps of journals, verifying finds it and names the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias, TypeGuard

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import Failure, Outcome, Success, Unavailable
from stepwell.core.journal import Compacted, Page, Source, Tampered, Verified
from stepwell.core.provenance import provenance_entry
from stepwell.core.step_cache import RecordedRef
from stepwell.layers.journal import LedgerJournal
from stepwell.services.journal import Journal

from .journal_world import World, open_world
from .store_world import success

Cell: TypeAlias = str | int | float | bytes | None

TABLES = ("journal", "journal_end", "entry", "entry_source", "checkpoint", "rewind")
RUNS = ("a", "b", "stepwell:step-cache")


@dataclass
class Kept:
    """A file, with the journal over it, and a connection that does what it likes."""

    world: World
    journal: LedgerJournal
    db: apsw.Connection

    def rows(self, table: str) -> list[dict[str, Cell]]:
        names = [str(name) for _, name, *_ in self.db.execute(f"pragma table_info({table})").fetchall()]
        rows = self.db.execute(f"select {', '.join(names)} from {table}").fetchall()
        return [dict(zip(names, row, strict=True)) for row in rows]


async def fill(journal: LedgerJournal, world: World) -> None:
    """Two runs in which there is everything that there can be, and the journal of the cache."""
    ledger = await world.ledger()
    ref = RecordedRef("k", "a", 1)
    for run_id in ("a", "b"):
        for number in range(4):
            _ = success(await journal.append(run_id, "t", {"n": number}, source=Source("s", number), meta={"m": 1}))
            _ = success(await journal.append("stepwell:step-cache", "t", None))
        _ = success(await ledger.commit(journal.appending(run_id, [provenance_entry("admitted", ref)])))
        _ = success(await journal.append(run_id, "t", "x" * 100))
        _ = success(await journal.rewind(run_id, 4))
        _ = success(await journal.append(run_id, "t", None))
        _ = success(await journal.append(run_id, "t", None))
        _ = success(await journal.checkpoint(run_id, 2, {"state": 1}))
        _ = success(await journal.checkpoint(run_id, 4, {"state": 2}))
    _ = success(await journal.compact("a", 2))
    _ = success(await journal.rewind("b", 6))


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with open_world("sqlite", tmp_path) as world:
        journal = await world.journal(spilling=True, payload_bytes=50)
        await fill(journal, world)
        db = apsw.Connection(str(world.path))
        _ = db.execute("pragma busy_timeout = 5000")
        yield Kept(world, journal, db)
        db.close()


def changes(value: Cell) -> Iterator[Cell]:
    """A value with some of its bytes changed in turn, and one of another kind in its place."""
    match value:
        case bytes():
            for at in {*range(0, len(value), 7), len(value) - 1}:
                yield value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
            yield value + b"\0"
            yield value[:-1]
            yield value.decode("latin-1")
        case str():
            for at, character in enumerate(value):
                yield value[:at] + chr(ord(character) ^ 1) + value[at + 1 :]
            yield value + "x"
            yield value.encode()
        case int():
            yield from (value ^ (1 << bit) for bit in (0, 1, 3, 8, 40))
            yield value + 0.5
            yield f"{value}?"
        case _:
            yield from (0, "x", b"x")


def where(row: dict[str, Cell]) -> tuple[str, list[Cell]]:
    return " and ".join(f"{name} is ?" for name in row), list(row.values())


def updates(row: dict[str, Cell]) -> Iterable[tuple[str, Cell]]:
    for column, value in row.items():
        for changed in changes(value):
            yield column, changed


@pytest.mark.parametrize("table", TABLES)
async def test_each_changed_cell_is_found_and_its_run_is_named(kept: Kept, table: str) -> None:
    assert success(await kept.journal.verify()) == Verified(2, 6 + 5 + 8)
    tried = 0
    for row in kept.rows(table):
        for column, changed in updates(row):
            if not _update(kept.db, table, row, column, changed):
                continue
            tried += 1
            found = await kept.journal.verify()
            spoilt = f"{table}.{column} of {row} is {changed!r}"
            assert isinstance(found, Failure), spoilt
            tampered = found.failure()
            assert isinstance(tampered, Tampered), (spoilt, tampered)
            # A run whose name was changed is named as it is now, if that is a name; and nobody can name the run of what
            # belongs to a journal that there is not.
            nameless = column == "jno" and "there is not" in tampered.message
            nameless = nameless or (column == "run_id" and repr(changed) in tampered.message)
            assert nameless or tampered.run_id in (*RUNS, changed), (spoilt, tampered)
            assert _update(kept.db, table, {**row, column: changed}, column, row[column])
    assert tried > 50
    assert isinstance(await kept.journal.verify(), Success)


@pytest.mark.parametrize("table", TABLES)
async def test_each_row_that_is_gone_is_found(kept: Kept, table: str) -> None:
    for row in kept.rows(table):
        condition, values = where(row)
        _changed(kept.db, f"delete from {table} where {condition}", values)
        found = await kept.journal.verify()
        compacted = table == "entry_source" and row["jno"] == 1 and row["seq"] in (0, 1)
        if compacted or (table == "checkpoint" and row["compacted_at_ms"] is None):
            continue  # nothing else says that there was one
        assert isinstance(found, Failure), (table, row)
        assert isinstance(found.failure(), Tampered), (table, row, found)
        columns, marks = ", ".join(row), ", ".join("?" for _ in row)
        _changed(kept.db, f"insert into {table} ({columns}) values ({marks})", tuple(row.values()))


# --- the file itself --------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, object]:
    """A whole file, and what is read of it."""
    folder = tmp_path_factory.mktemp("written")

    async def write() -> object:
        async with open_world("sqlite", folder) as world:
            journal = await world.journal()
            await fill(journal, world)
            read = await _read(journal)
        with closing(apsw.Connection(str(folder / "app.db"))) as db:
            _ = db.execute("pragma wal_checkpoint(truncate)").fetchall()
        return read

    read = asyncio.run(write())
    return (folder / "app.db").read_bytes(), read


@settings(max_examples=40)
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_of_the_file_is_found_or_means_nothing(written: tuple[bytes, object], at: float, bit: int) -> None:
    data, expected = bytearray(written[0]), written[1]
    data[int(at * len(data))] ^= 1 << bit

    async def look() -> None:
        with TemporaryDirectory() as folder:
            async with open_world("sqlite", Path(folder)) as world:
                world.path.write_bytes(data)
                try:
                    ledger = await world.ledger()
                except AssertionError:  # the file cannot be opened
                    return
                opened = await world.opened(ledger=ledger)
                if isinstance(opened, Failure):
                    assert isinstance(opened.failure(), Tampered | Unavailable)
                    return
                journal = opened.unwrap()
                if isinstance(await journal.verify(), Success):
                    assert await _read(journal) == expected

    asyncio.run(look())


async def _read(journal: Journal) -> object:
    """All that there is to read."""
    runs = success(await journal.runs())
    found: list[object] = [runs]
    for run_id in RUNS:
        floor = await journal.entries(run_id)
        after = floor.failure().floor - 1 if _is_compacted(floor) else None
        found += [await journal.entries(run_id, after=after), await journal.latest_checkpoint(run_id)]
    return found


def _is_compacted(outcome: Outcome[Page, Compacted | Unavailable]) -> TypeGuard[Failure[Compacted]]:
    return isinstance(outcome, Failure) and isinstance(outcome.failure(), Compacted)


def _update(db: apsw.Connection, table: str, row: dict[str, Cell], column: str, value: Cell) -> bool:
    """Whether the file takes the change."""
    condition, values = where(row)
    try:
        _changed(db, f"update {table} set {column} = ? where {condition}", (value, *values))
    except apsw.Error:
        return False
    return True


def _changed(db: apsw.Connection, statement: str, bindings: Sequence[Cell]) -> None:
    """Execute what changes one row."""
    _ = db.execute(statement, bindings)
    assert db.execute("select changes()").fetchall() == [(1,)], (statement, bindings)
