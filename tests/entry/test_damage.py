"""Damaged rows inside a sound file: a failure that names the store and says what to do, for stores and for runs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

import stepwell
from stepwell import Run, define_store, workflow
from stepwell.core.damage import Damaged
from stepwell.core.outcome import Failure, Success
from stepwell.services.store import StoreHandle

from ..contract.engine_world import until
from .shell import Shell

notes = define_store("notes", dict[str, int])


def put(state: dict[str, int]) -> None:
    state["n"] = state.get("n", 0) + 1


@workflow
async def reads(run: Run, key: str) -> int:
    note = await run.store(notes, "a").get("read")
    match note:
        case Success(snapshot):
            return snapshot.state["n"]
        case Failure():
            return -1


DAMAGES = {
    "a garbled patch": ("update log set patch = x'7b22' where version = 2", "version 3"),
    "a patch of something else": (
        """update log set patch = cast('[["=",["x","y"],1]]' as blob) where version = 2""",
        "version 3",
    ),
    "a patch that is bad UTF-8": (
        "update log set patch = x'5b5b223d222c5b226eff225d2c315d5d' where version = 2",
        "version 3",
    ),
    "a garbled base": ("update base set document = x'7b226e22'", "version 3"),
    "no base": ("delete from base", "no base"),
    "a missing row": ("update log set prev_seq = (select min(seq) from log) where version = 3", "missing"),
    "a version too high": ("update head set version = 9", "does not lead to version 9"),
    "a version too low": ("update head set version = 1", "does not lead to version 1"),
    "an instance that is bad text": ("update store set instance = cast(x'ff41' as text)", ""),
    "a patch that is text": ("update log set patch = 'text' where version = 2", ""),
}


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    file = tmp_path / "app.db"
    async with stepwell.open(file) as app:
        note = app.store(notes, "a")
        assert isinstance(await note.get_or_create({}), Success)
        for _ in range(3):
            assert isinstance(await note.update(put), Success)
        assert isinstance(await app.store(notes, "b").get_or_create({"n": 5}), Success)
    return file


def break_by(statement: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        joined = "and" if " where version" in statement else "where"
        _ = connection.execute(f"{statement} {joined} sid = (select sid from store where id = 'a')")
        connection.commit()


@asynccontextmanager
async def note_of(path: Path) -> AsyncGenerator[tuple[stepwell.App, StoreHandle[dict[str, int]]]]:
    async with stepwell.open(path, workflows=[reads]) as app:
        yield app, app.store(notes, "a")


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_is_a_failure_that_names_the_store(damage: str, path: Path) -> None:
    statement, says = DAMAGES[damage]
    break_by(statement, path)
    async with note_of(path) as (app, note):
        for outcome in (await note.get(), await note.update(put), await note.get_or_create({})):
            match outcome:
                case Failure(Damaged(reason=reason, applied="no")):
                    assert "notes/a is damaged" in reason
                    assert says in reason
                    assert "restore a backup; `stepwell doctor`" in reason
                case _:
                    pytest.fail(f"{outcome}")
        match await app.store(notes, "b").get():
            case Success(snapshot):
                assert snapshot.state == {"n": 5}
            case failed:
                pytest.fail(f"{failed}")


async def test_a_tail_that_is_damaged_is_a_failure_too(path: Path) -> None:
    async with note_of(path) as (_, note), note_of(path) as (_, other):
        assert isinstance(await note.get(), Success)
        assert isinstance(await other.update(put), Success)
        break_by("update log set patch = x'5b' where version = 4", path)
        match await note.get():
            case Failure(Damaged(reason=reason)):
                assert "notes/a is damaged at version 4" in reason
            case outcome:
                pytest.fail(f"{outcome}")


async def test_a_run_that_meets_damage_is_stuck(path: Path) -> None:
    break_by("update log set patch = x'5b' where version = 2", path)
    async with note_of(path) as (app, _):
        _ = (await app.start(reads, "a", id="r")).unwrap()

        async def is_stuck() -> bool:
            return (await app.status("r")).unwrap().state == "stuck"

        await until(is_stuck)
        assert "notes/a is damaged" in ((await app.status("r")).unwrap().problem or "")


async def test_the_command_store_reports_it(path: Path, shell: Shell) -> None:
    break_by("update log set patch = x'5b' where version = 2", path)
    said = await asyncio.to_thread(shell, "store", "notes", "a", "--json", "--db", str(path))
    assert (said.code, said.out) == (1, "")
    assert "notes/a is damaged" in json.loads(said.err)["error"]


@pytest.mark.parametrize("kept", [0.3, 0.8])
def test_a_truncated_file_is_called_damaged(kept: float, path: Path, shell: Shell) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    said = shell("store", "notes", "a", "--db", str(path))
    assert said.code == 1
    assert "damaged" in said.err
    assert "can be read and written" not in said.err
    assert "estore a backup" in said.err
