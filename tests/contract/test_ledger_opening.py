"""Opening a file: which ones are refused and why, and many processes at once."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from stepwell.core.batch import Batch, Document, Form, PatchStore, StoreAt
from stepwell.core.outcome import Failure, Success
from stepwell.layers import clock
from stepwell.layers import ledger as ledgers
from stepwell.layers.layer import Failed, build, get
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.dialect import SQLITE
from stepwell.layers.sql.opening import open_file
from stepwell.layers.sql.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from stepwell.services.ledger import CannotOpen, Ledger

from .ledger_batches import ORDER, at, committed, create


def refusal(path: str | Path, *, create: bool = True) -> CannotOpen:
    """Why the file cannot be opened; what lies there is left as it was."""
    with pytest.raises(CannotOpen) as raised:
        open_file(path, create=create)
    error = raised.value
    assert str(error) == f"cannot open {error.path}: {error.reason}. {error.remedy}"
    assert error.reason
    assert error.remedy.endswith(".")
    return error


def sqlite_file(path: Path, *statements: str) -> Path:
    connection = Connection(str(path), create=True)
    for statement in statements:
        connection.run(statement)
    connection.close()
    return path


# --- what is refused --------------------------------------------------------


def test_a_missing_file_unless_it_is_to_be_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "app.db"
    assert refusal(path, create=False).reason == "there is no such file"
    assert os.listdir(tmp_path) == []
    open_file(path, create=True)
    open_file(path, create=False)


def test_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path).reason == "it is a folder"


def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    assert "folders above it" in refusal(tmp_path / "file" / "app.db").remedy


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_name_of_no_file(path: str) -> None:
    assert refusal(path).reason == "that names no file"


@pytest.mark.parametrize("path", ["sqlite:///app.db", "postgresql://localhost/app", "file://app.db"])
def test_an_address(path: str, tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert refusal(path).reason == "that is an address, not a path"
    assert os.listdir(tmp_path) == []


def test_a_home_that_is_not_expanded() -> None:
    assert "expanduser" in refusal("~/app.db").remedy
    assert not os.path.exists("~")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    path.write_bytes(b"these are notes, and not a database\n" * 100)
    assert refusal(path).reason == "it is not an SQLite database"
    assert path.read_bytes() == b"these are notes, and not a database\n" * 100


@pytest.mark.parametrize(
    "statements",
    [["create table t (a)"], ["pragma user_version = 1"], ["pragma application_id = 7", "create table t (a)"]],
    ids=["tables", "version", "application"],
)
def test_a_database_of_another_application(statements: list[str], tmp_path: Path) -> None:
    path = sqlite_file(tmp_path / "app.db", *statements)
    before = path.read_bytes()
    assert refusal(path).reason == "it belongs to another application"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["app.db"]


def test_a_newer_schema(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    open_file(path, create=True)
    sqlite_file(path, f"pragma user_version = {SCHEMA_VERSION + 1}")
    error = refusal(path)
    assert f"version {SCHEMA_VERSION + 1}" in error.reason
    assert error.remedy == "Upgrade stepwell."


READ_ONLY = """
import os, sys
from stepwell.layers.sql.opening import open_file
from stepwell.services.ledger import CannotOpen
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    open_file(sys.argv[1], create=True)
except CannotOpen as error:
    print(error.reason)
"""


def opened_by_a_stranger(path: Path) -> str:
    """What a process learns that may not write here; root may, so it becomes somebody else."""
    ended = subprocess.run([sys.executable, "-c", READ_ONLY, path], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory(prefix="stepwell-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_file_that_may_only_be_read(shared: Path) -> None:
    path = shared / "app.db"
    open_file(path, create=True)
    path.chmod(0o444)
    shared.chmod(0o777)
    assert opened_by_a_stranger(path) == "it can only be read"
    assert os.listdir(shared) == ["app.db"]


def test_a_file_that_may_not_even_be_read(shared: Path) -> None:
    path = shared / "app.db"
    open_file(path, create=True)
    path.chmod(0o000)
    assert opened_by_a_stranger(path).startswith("CantOpen")


def test_a_folder_that_may_not_be_written(shared: Path) -> None:
    shared.chmod(0o555)
    assert opened_by_a_stranger(shared / "app.db") != ""
    assert opened_by_a_stranger(shared / "deep" / "app.db") == "Permission denied"


def test_a_file_in_a_folder_that_may_not_be_written(shared: Path) -> None:
    path = shared / "app.db"
    open_file(path, create=True)
    path.chmod(0o666)
    shared.chmod(0o555)
    assert opened_by_a_stranger(path).startswith("nothing can be written to its folder")


def test_a_socket(tmp_path: Path) -> None:
    with chdir(tmp_path), socket.socket(socket.AF_UNIX) as listening:  # the path of a socket has to be short
        listening.bind("app.db")
        assert refusal("app.db").path == str(tmp_path / "app.db")


async def test_building_the_layer_fails_with_the_reason(tmp_path: Path) -> None:
    async with build(ledgers.layer(tmp_path, create=False) | clock.layer_test()) as built:
        assert isinstance(built, Failure)
        failure = built.failure()
    assert isinstance(failure, Failed)
    assert isinstance(failure.cause, CannotOpen)
    assert failure.cause.reason == "it is a folder"


# --- what is opened ---------------------------------------------------------


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    path.touch()
    connection = Connection(open_file(path, create=False))
    assert connection.rows("pragma application_id") == [(APPLICATION_ID,)]
    assert connection.rows("pragma user_version") == [(SCHEMA_VERSION,)]
    assert connection.rows("pragma journal_mode") == [("wal",)]
    connection.close()


VERSION_2 = (
    "insert into store values (1, 'orders', 'o-1', 'instance-1', 2, 3, 5)",
    "insert into log values (1, 1, 0, null, 'instance-1', 0, 3, null)",
    "insert into log values (2, 1, 1, 1, null, 1, 4, x'5b315d')",
    "insert into log values (3, 1, 2, 2, null, 1, 5, x'5b325d')",
    "insert into base values (1, 1, 0, x'7b7d')",
    "insert into receipt values ('run-1', 'charge', 1, 'update', 'instance-1', 2, x'')",
    "update sequence set no = 7",
    f"pragma application_id = {APPLICATION_ID}",
    "pragma user_version = 2",
)
"""A store at its second change, as it was written before forms were kept."""


async def test_a_database_of_version_2_is_migrated_with_what_is_in_it(tmp_path: Path) -> None:
    statements = [statement for migration in MIGRATIONS[:2] for statement in migration(SQLITE)]
    path = sqlite_file(tmp_path / "app.db", "pragma journal_mode = wal", *statements, *VERSION_2)
    form = Form(1, "f")
    for opening in range(2):
        async with build(ledgers.layer(path) | clock.layer_test()) as built:
            ledger = get(built.unwrap(), Ledger)
            assert await ledger.document(ORDER, at(2)) == Success(Document(at(2), 3, b"{}", (b"[1]", b"[2]")))
            rows = (await ledger.revisions(ORDER)).unwrap()
            assert [(row.seq, row.at_ms, row.form) for row in rows[opening:]] == [
                (3, 5, None),
                (2, 4, None),
                (1, 3, None),
            ]
            if opening == 0:
                change = PatchStore(ORDER, at(3), b"[3]", form=form)
                assert committed(await ledger.commit(Batch((StoreAt(ORDER, at(2)),), (change,)))).seqs == (4,)
            found = (await ledger.document(ORDER)).unwrap()
            assert found == Document(at(3), 4, b"{}", (b"[1]", b"[2]", b"[3]"), form)


async def test_what_was_committed_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    for expected in (None, at(0)):
        async with build(ledgers.layer(tmp_path / "app.db") | clock.layer_test()) as built:
            ledger = get(built.unwrap(), Ledger)
            assert await ledger.tip(ORDER) == Success(expected)
            if expected is None:
                committed(await ledger.commit(create()))


OPENING = """
import asyncio, sys
from stepwell.core.batch import Batch, CreateStore, StoreAbsent
from stepwell.core.model import Revision, StoreKey
from stepwell.layers import clock, ledger
from stepwell.layers.layer import build, get
from stepwell.services.ledger import Ledger

async def main(path, name):
    print("ready", flush=True)
    sys.stdin.readline()
    async with build(ledger.layer(path) | clock.layer()) as built:
        log = get(built.unwrap(), Ledger)
        key, first = StoreKey("processes", name), Revision(name, 0)
        (await log.commit(Batch((StoreAbsent(key, first),), (CreateStore(key, first, b"{}"),)))).unwrap()

asyncio.run(main(*sys.argv[1:]))
"""


def test_ten_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPENING, path, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(10)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(timeout=60) for process in started] == [0] * 10
    for process in started:
        process.communicate()

    async def names() -> list[str]:
        async with build(ledgers.layer(path, create=False) | clock.layer_test()) as built:
            return [tip.key.id for tip in (await get(built.unwrap(), Ledger).stores("processes")).unwrap()]

    assert asyncio.run(names()) == [str(n) for n in range(10)]


def test_migrations_are_never_edited() -> None:
    """A released migration has run on somebody's file: what is to change goes into a new one."""
    digests = [hashlib.sha256("\0".join(migration(SQLITE)).encode()).hexdigest()[:16] for migration in MIGRATIONS]
    assert digests == ["6c50f866005038fc", "14acfd7dc52a0efe", "a710707ebad2c485", "ff0ac897f914bb4d"]
