"""Backup, restore and fence: cases D1 to D8, and what goes on while a backup is made."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path

import pytest

from stepwell.core.backup import ARTIFACTS, DATABASE, MANIFEST, BackupError, Fencing, Manifest, Restored
from stepwell.core.batch import Batch, ChangeRun, Fenced, InsertRun, RenewLeases, RunFence
from stepwell.core.outcome import Failure, Outcome, Success
from stepwell.core.run import RunRow, RunState
from stepwell.layers import backup as backups
from stepwell.layers.artifacts import layer as artifacts_layer
from stepwell.layers.clock import layer_test as clock_layer
from stepwell.layers.layer import build, get
from stepwell.layers.sql.sqlite import SqlLedger, open_sqlite
from stepwell.services.artifacts import Artifacts
from stepwell.services.clock import ManualClock

from .ledger_batches import ORDER, create

CLOCK = ManualClock(1_000)


def row(run_id: str, state: RunState, owner: str | None) -> RunRow:
    return RunRow(
        id=run_id,
        workflow="w",
        state=state,
        created_at_ms=0,
        updated_at_ms=0,
        owner=owner,
        fence=3,
        lease_until_ms=10_000_000,
    )


async def opened(path: Path) -> SqlLedger:
    return await open_sqlite(path, CLOCK)


async def filled(path: Path, *rows: RunRow) -> None:
    ledger = await opened(path)
    _ = (await ledger.commit(Batch((), tuple(InsertRun(each) for each in rows)))).unwrap()
    _ = (await ledger.commit(create(ORDER))).unwrap()
    await ledger.close()


async def put(root: Path, *blobs: bytes) -> list[str]:
    async with build(artifacts_layer(root) | clock_layer(CLOCK)) as built:
        kept = get(built.unwrap(), Artifacts)
        return [(await kept.put(blob)).unwrap() for blob in blobs]


def failed(outcome: Outcome[Manifest, BackupError] | Outcome[Restored, BackupError]) -> str:
    assert isinstance(outcome, Failure), outcome
    return outcome.failure().code


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- making one ---------------------------------------------------------------


async def test_d1_a_backup_says_what_is_in_it(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    blobs = await put(tmp_path / "kept", b"one", b"two", b"three" * 100_000)
    made = await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / "kept")
    manifest = made.unwrap()
    assert (manifest.format_version, manifest.created_at_ms) == (1, CLOCK.now_ms())
    assert manifest.database.digest == digest(tmp_path / "copy" / DATABASE)
    assert manifest.database.size_bytes == (tmp_path / "copy" / DATABASE).stat().st_size
    assert [each.digest for each in manifest.artifacts] == sorted(blobs)
    assert json.loads((tmp_path / "copy" / MANIFEST).read_bytes())["database"]["digest"] == manifest.database.digest
    assert await backups.verify(tmp_path / "copy") == Success(manifest)


async def test_d2_an_empty_folder_and_no_artifacts_are_fine(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    (tmp_path / "copy").mkdir()
    made = await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK)
    assert made.unwrap().artifacts == ()
    (tmp_path / "nothing").mkdir()
    made = await backups.backup(tmp_path / "app.db", tmp_path / "other", CLOCK, artifacts=tmp_path / "nothing")
    assert made.unwrap().artifacts == ()


async def test_d3_a_folder_with_a_file_in_it_is_refused_and_left(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_text("x")
    assert failed(await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK)) == "not_empty"
    assert os.listdir(tmp_path / "copy") == ["mine"]


async def test_d4_a_damaged_artifact_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    (blob,) = await put(tmp_path / "kept", b"one")
    file = tmp_path / "kept" / "objects" / blob[:2] / blob
    file.chmod(0o644)
    file.write_bytes(b"onf")
    made = await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / "kept")
    assert failed(made) == "artifact_corruption"
    assert not (tmp_path / "copy").exists()


async def test_a_database_that_is_not_there_or_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    for name in ("missing", "text"):
        assert failed(await backups.backup(tmp_path / name, tmp_path / "copy", CLOCK)) in ("io", "database_damaged")
        assert not (tmp_path / "copy").exists()
        assert not (tmp_path / "missing").exists()


async def test_a_backup_is_of_one_moment_while_others_commit(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "app.db")
    going, count = True, 0

    async def commit_on() -> None:
        nonlocal count
        while going:
            pair = (InsertRun(row(f"a-{count:05}", "pending", None)), InsertRun(row(f"b-{count:05}", "pending", None)))
            _ = (await ledger.commit(Batch((), pair))).unwrap()
            count += 1

    task = asyncio.create_task(commit_on())
    for number in range(5):
        _ = (await backups.backup(tmp_path / "app.db", tmp_path / f"copy-{number}", CLOCK)).unwrap()
    going = False
    await task
    await ledger.close()
    seen = -1
    for number in range(5):
        _ = (await backups.restore(tmp_path / f"copy-{number}", tmp_path / f"{number}.db", CLOCK)).unwrap()
        copy = await opened(tmp_path / f"{number}.db")
        ids = {each.id for each in (await copy.runs(limit=100_000)).unwrap()}
        await copy.close()
        assert {name[2:] for name in ids if name[0] == "a"} == {name[2:] for name in ids if name[0] == "b"}
        assert len(ids) >= seen
        seen = len(ids)


# --- checking one -------------------------------------------------------------


async def made(tmp_path: Path) -> Path:
    await filled(tmp_path / "app.db", row("r", "running", "old"))
    _ = await put(tmp_path / "kept", b"one", b"two")
    folder = tmp_path / "copy"
    _ = (await backups.backup(tmp_path / "app.db", folder, CLOCK, artifacts=tmp_path / "kept")).unwrap()
    return folder


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


async def test_d5_what_is_missing_or_changed_is_named(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    manifest = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).unlink()
    assert failed(await backups.verify(folder)) == "missing_file"
    (folder / MANIFEST).write_bytes(b"{")
    assert failed(await backups.verify(folder)) == "invalid_manifest"
    (folder / MANIFEST).write_bytes(manifest)
    blob = next((folder / ARTIFACTS).iterdir())
    for file, flipped in ((folder / DATABASE, "digest_mismatch"), (blob, "digest_mismatch")):
        before = file.read_bytes()
        _flip(file)
        checked = await backups.verify(folder)
        assert failed(checked) == flipped
        assert isinstance(checked, Failure)
        assert str(file) in checked.failure().message
        assert failed(await backups.restore(folder, tmp_path / "new.db", CLOCK, artifacts=tmp_path / "n")) == flipped
        file.unlink()
        assert failed(await backups.verify(folder)) == "missing_file"
        file.write_bytes(before)
    assert isinstance(await backups.verify(folder), Success)
    assert not (tmp_path / "new.db").exists()
    assert not (tmp_path / "n").exists()


async def test_a_schema_that_is_not_the_one_that_is_said_is_refused(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    said = json.loads((folder / MANIFEST).read_bytes())
    for version in (said["schema_version"] - 1, said["schema_version"] + 1):
        (folder / MANIFEST).write_text(json.dumps({**said, "schema_version": version}))
        assert failed(await backups.verify(folder)) == "schema_mismatch"


# --- restoring one ------------------------------------------------------------


async def test_d6_a_backup_is_restored_with_a_marker_that_says_from_what(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    restored = await backups.restore(folder, tmp_path / "new.db", CLOCK, artifacts=tmp_path / "new")
    said = restored.unwrap()
    manifest = (await backups.verify(folder)).unwrap()
    assert (said.created_at_ms, said.database_digest) == (manifest.created_at_ms, manifest.database.digest)
    marker = json.loads((tmp_path / "new.db.restored.json").read_bytes())
    assert (marker["created_at_ms"], marker["database_digest"]) == (said.created_at_ms, said.database_digest)
    assert sorted(path.name for path in (tmp_path / "new").rglob("*") if path.is_file()) == [
        each.digest for each in manifest.artifacts
    ]
    async with build(artifacts_layer(tmp_path / "new") | clock_layer(CLOCK)) as built:
        kept = get(built.unwrap(), Artifacts)
        assert (await kept.get(hashlib.sha256(b"one").hexdigest())).unwrap() == b"one"
    ledger = await opened(tmp_path / "new.db")
    assert (await ledger.tip(ORDER)).unwrap() is not None
    await ledger.close()
    assert [name for name in os.listdir(tmp_path) if "restoring" in name] == []


async def test_d6_what_is_there_is_never_written_over(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    (tmp_path / "new.db").write_bytes(b"")
    assert failed(await backups.restore(folder, tmp_path / "new.db", CLOCK, artifacts=tmp_path / "n")) == "not_empty"
    assert (tmp_path / "new.db").read_bytes() == b""
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "mine").write_text("x")
    assert failed(await backups.restore(folder, tmp_path / "2.db", CLOCK, artifacts=tmp_path / "n")) == "not_empty"
    assert os.listdir(tmp_path / "n") == ["mine"]


async def test_artifacts_need_a_place(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    assert failed(await backups.restore(folder, tmp_path / "new.db", CLOCK)) == "invalid_options"
    assert not (tmp_path / "new.db").exists()


async def test_a_backup_may_be_restored_many_times_and_backed_up_again(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    for number in range(2):
        place = tmp_path / f"n{number}"
        _ = (await backups.restore(folder, tmp_path / f"{number}.db", CLOCK, artifacts=place)).unwrap()
    again = await backups.backup(tmp_path / "1.db", tmp_path / "again", CLOCK, artifacts=tmp_path / "n1")
    assert [each.digest for each in again.unwrap().artifacts] == [
        each.digest for each in (await backups.verify(folder)).unwrap().artifacts
    ]


# --- the fence ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "fencing"),
    [
        ((), Fencing(0, 0)),
        ((row("r", "running", "old"),), Fencing(0, 1)),
        ((row("r", "running", "old"), row("w", "waiting", "old"), row("free", "waiting", None)), Fencing(1, 1)),
        ((row("done", "completed", None),), Fencing(0, 0)),
    ],
)
async def test_d7_claims_are_cleared_and_runs_set_aside(
    tmp_path: Path, rows: tuple[RunRow, ...], fencing: Fencing
) -> None:
    await filled(tmp_path / "app.db", *rows)
    ledger = await opened(tmp_path / "app.db")
    assert await backups.fence(ledger, CLOCK) == Success(fencing)
    assert await backups.fence(ledger, CLOCK) == Success(Fencing(0, 0))
    for each in (await ledger.runs()).unwrap():
        assert each.owner is None
        assert each.state != "running"
    await ledger.close()


async def test_d8_the_old_owner_can_write_nothing_and_the_run_is_free_at_once(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db", row("r", "running", "old"))
    ledger = await opened(tmp_path / "app.db")
    heartbeat = Batch((), (RenewLeases("old", 99),))
    assert isinstance(await ledger.commit(heartbeat), Success)
    renewed = (await ledger.run("r")).unwrap()
    assert renewed is not None
    assert (renewed.owner, renewed.lease_until_ms) == ("old", 99)
    _ = (await backups.fence(ledger, CLOCK)).unwrap()
    assert isinstance(await ledger.commit(heartbeat), Success)
    after = (await ledger.run("r")).unwrap()
    assert after is not None
    assert (after.owner, after.state, after.lease_until_ms) == (None, "waiting", 0)
    transition = await ledger.commit(Batch((RunFence("r", 3),), (ChangeRun("r", {"state": "completed"}),)))
    assert transition == Failure(Fenced("r"))
    due = (await ledger.due(("w",), CLOCK.now_ms())).unwrap()
    assert [each.id for each in due.rows] == ["r"]
    await ledger.close()


async def test_more_runs_than_one_page_are_fenced(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db", *(row(f"r-{number:05}", "running", "old") for number in range(2_345)))
    ledger = await opened(tmp_path / "app.db")
    assert await backups.fence(ledger, CLOCK) == Success(Fencing(0, 2_345))
    await ledger.close()
