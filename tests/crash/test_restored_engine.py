"""Engines on both sides of a restore: the one that drove the runs as the backup was made, and the one that goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import stepwell
from stepwell import Ledger, Success, get
from stepwell.core.backup import Fencing
from stepwell.layers import backup as backups
from stepwell.layers.clock import SystemClock
from stepwell.layers.sql.connection import Connection

from ..contract.told_runs import check_journals
from . import restored_child
from .restored_child import RUN, notes, three_steps

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()


@dataclass(frozen=True)
class Old:
    """The process that is alive all the time."""

    process: subprocess.Popen[str]

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        _ = self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def started(database: Path, log: Path) -> Generator[Old]:
    command = [sys.executable, "-m", restored_child.__name__, str(database), str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Old(process)
        finally:
            process.kill()


async def finish(database: Path) -> object:
    """What the run comes to on the restored database, long before a lease ends; its journal tells what its rows do."""
    async with stepwell.open(database, workflows=[three_steps]) as app:
        ended = await app.result(RUN, timeout=30)
        await check_journals(get(app.env, Ledger))
        return ended


async def noted(database: Path) -> tuple[list[str], list[str]]:
    """The runs, and what their store has."""
    async with stepwell.open(database, drive=False) as app:
        runs = (await app.runs()).unwrap()
        kept = (await app.store(notes, RUN).get()).unwrap()
        return [run.id for run in runs], kept.state


def whole(database: Path) -> bool:
    connection = Connection(str(database))
    try:
        return connection.rows("pragma integrity_check") == [("ok",)]
    finally:
        connection.close()


def lose(database: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


@pytest.mark.parametrize("takes_up", ["before", "after"])
async def test_d8_an_engine_that_is_alive_on_the_restored_database_can_write_nothing(
    tmp_path: Path, takes_up: str
) -> None:
    """E31 on the way: what was recorded is replayed, what was in flight is executed once more."""
    database, log = tmp_path / "app.db", tmp_path / "log"
    with started(database, log) as old:
        assert await old.line() == "held"
        _ = (await backups.backup(database, tmp_path / "copy", CLOCK)).unwrap()
        lose(database)
        restored = (await backups.restore(tmp_path / "copy", database, CLOCK)).unwrap()
        assert restored.fencing == Fencing(0, 1)
        if takes_up == "before":
            assert await finish(database) == Success(["first", "second", "third"])
        old.go_on()
        said = [await old.line() for _ in range(5)]
        assert all(each.startswith("<Failure: ") for each in said), said
        assert any("replaced by another" in each for each in said), said
        if takes_up == "after":
            assert await finish(database) == Success(["first", "second", "third"])
        old.go_on()
        _ = await asyncio.to_thread(old.process.wait, 30)
    assert log.read_text().split() == ["first", "second", "second", "third"]
    assert await noted(database) == ([RUN], ["of the new process"])
    assert whole(database)


async def test_e31_restored_elsewhere_while_the_old_engine_goes_on_with_its_own(tmp_path: Path) -> None:
    """Both come to their end, each in its database; nothing of one is in the other."""
    database, log, new = tmp_path / "app.db", tmp_path / "log", tmp_path / "elsewhere" / "new.db"
    with started(database, log) as old:
        assert await old.line() == "held"
        _ = (await backups.backup(database, tmp_path / "copy", CLOCK)).unwrap()
        _ = (await backups.restore(tmp_path / "copy", new, CLOCK)).unwrap()
        assert await finish(new) == Success(["first", "second", "third"])
        old.go_on()
        said = [await old.line() for _ in range(5)]
        assert said[0] == str(Success(["first", "second", "third"]))
        old.go_on()
        _ = await asyncio.to_thread(old.process.wait, 30)
        assert old.process.returncode == 0
    assert log.read_text().split()[:5] == ["first", "second", "second", "third", "third"]
    assert await noted(new) == ([RUN], ["of the new process"])
    runs, kept = await noted(database)
    assert (sorted(runs), kept) == (sorted([RUN, "another"]), ["of the old process"])
