"""Backup and restore where something is in the way: two at once, a host that refuses, hostile folders, odd names."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import chdir
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from stepwell.core.backup import ARTIFACTS, DATABASE, MANIFEST, BackupError, Manifest, Restored
from stepwell.core.batch import Batch, ChangeRun, Fenced, InsertRun, RunFence
from stepwell.core.outcome import Failure, Outcome, Success
from stepwell.core.run import WANTS_OWNER
from stepwell.layers import backup as backups
from stepwell.layers.artifacts import layer as artifacts_layer
from stepwell.layers.clock import layer_test as clock_layer
from stepwell.layers.layer import build, get
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.schema import SCHEMA_VERSION
from stepwell.services.artifacts import Artifacts
from stepwell.services.clock import ManualClock

from .test_backup import CLOCK, failed, filled, opened, put, row

HISTORIES = Path(__file__).parents[1] / "histories" / "databases"
OnCall = Callable[[str, str], None]
_T = TypeVar("_T")


def message(outcome: Outcome[Manifest, BackupError] | Outcome[Restored, BackupError]) -> str:
    assert isinstance(outcome, Failure), outcome
    return outcome.failure().message


def files(root: Path) -> dict[str, bytes | None]:
    """Everything beneath a folder: the bytes of files, None of what is none."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


async def made(tmp_path: Path) -> Path:
    """A backup with two artifacts, in a folder apart from where it is restored."""
    (tmp_path / "from").mkdir()
    await filled(tmp_path / "from" / "app.db", row("r", "running", "old"), row("w", "waiting", None))
    _ = await put(tmp_path / "from" / "kept", b"one", b"two")
    folder = tmp_path / "from" / "copy"
    backed = await backups.backup(tmp_path / "from" / "app.db", folder, CLOCK, artifacts=tmp_path / "from" / "kept")
    _ = backed.unwrap()
    (tmp_path / "to").mkdir()
    return folder


# --- two at once ----------------------------------------------------------------


async def test_of_two_backups_to_one_folder_one_wins(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    _ = await put(tmp_path / "kept", *(b"%d" % number for number in range(20)))
    for number in range(5):
        folder = tmp_path / f"copy-{number}"
        if number % 2:
            folder.mkdir()
        answers = await asyncio.gather(
            *(backups.backup(tmp_path / "app.db", folder, CLOCK, artifacts=tmp_path / "kept") for _ in range(4))
        )
        won = [answer for answer in answers if isinstance(answer, Success)]
        assert len(won) == 1
        assert {failed(answer) for answer in answers if isinstance(answer, Failure)} == {"not_empty"}
        assert await backups.verify(folder) == won[0]


async def test_of_two_restores_to_one_place_one_wins(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    for number in range(5):
        place = tmp_path / "to" / str(number)
        answers = await asyncio.gather(
            *(backups.restore(folder, place / "new.db", CLOCK, artifacts=place / "kept") for _ in range(4))
        )
        assert [isinstance(answer, Success) for answer in answers].count(True) == 1
        assert {failed(answer) for answer in answers if isinstance(answer, Failure)} == {"not_empty"}
        assert sorted(os.listdir(place)) == ["kept", "new.db", "new.db.restored.json"]
        assert os.listdir(place / "kept") == ["objects"]


async def test_who_loses_leaves_the_marker_and_the_artifacts_of_who_won(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"
    other = tmp_path / "other"
    await filled(tmp_path / "empty.db")
    _ = (await backups.backup(tmp_path / "empty.db", other, ManualClock(2_000))).unwrap()
    answers = await asyncio.gather(
        backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "one"),
        backups.restore(other, to / "new.db", CLOCK, artifacts=to / "two"),
    )
    (won,) = (answer.unwrap() for answer in answers if isinstance(answer, Success))
    assert json.loads((to / "new.db.restored.json").read_bytes())["database_digest"] == won.database_digest
    kept = [name for name in ("one", "two") if (to / name).exists()]
    assert kept == (["one"] if won.artifacts else ["two"])


# --- what is there already --------------------------------------------------------


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
async def test_what_sqlite_would_take_for_its_own_is_in_the_way(tmp_path: Path, beside: str) -> None:
    folder = await made(tmp_path)
    (tmp_path / "to" / f"new.db{beside}").write_bytes(b"of another database")
    restored = await backups.restore(folder, tmp_path / "to" / "new.db", CLOCK, artifacts=tmp_path / "to" / "kept")
    assert failed(restored) == "not_empty"
    assert beside in message(restored)
    assert os.listdir(tmp_path / "to") == [f"new.db{beside}"]


async def test_d6_a_link_in_the_place_of_the_database_is_not_followed(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"
    (to / "new.db").symlink_to(to / "nowhere")
    before = files(to)
    assert failed(await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept")) == "not_empty"
    assert files(to) == before


async def test_a_link_to_an_empty_folder_is_where_the_artifacts_go(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"
    (to / "disk").mkdir()
    (to / "kept").symlink_to(to / "disk")
    _ = (await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept")).unwrap()
    assert (to / "kept").is_symlink()
    assert os.listdir(to / "disk") == ["objects"]


async def test_a_link_to_nothing_in_the_place_of_the_artifacts_is_refused(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"
    (to / "kept").symlink_to(to / "nowhere")
    assert failed(await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept")) == "not_empty"
    assert os.listdir(to) == ["kept"]


async def test_a_database_in_the_folder_of_its_artifacts(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"
    _ = (await backups.restore(folder, to / "new.db", CLOCK, artifacts=to)).unwrap()
    assert sorted(os.listdir(to)) == ["new.db", "new.db.restored.json", "objects"]


@pytest.mark.parametrize("inside", ["new.db", "new.db/kept"])
async def test_artifacts_in_the_place_of_the_database_are_refused(tmp_path: Path, inside: str) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"
    assert failed(await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / inside)) == "invalid_options"
    assert os.listdir(to) == []


async def test_artifacts_that_are_not_where_they_are_said_to_be_are_not_left_out(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    _ = await put(tmp_path / "work" / "kept", b"one")
    for wrong in ("missing", "work", "app.db"):
        backed = await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / wrong)
        assert failed(backed) == "invalid_options"
        assert not (tmp_path / "copy").exists()


# --- who may read it ----------------------------------------------------------------


async def test_what_only_its_owner_may_read_is_not_shown_to_others(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    (tmp_path / "app.db").chmod(0o600)
    _ = await put(tmp_path / "kept", b"one")
    _ = (await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / "kept")).unwrap()
    before = os.umask(0o077)
    try:
        restored = await backups.restore(tmp_path / "copy", tmp_path / "new.db", CLOCK, artifacts=tmp_path / "new")
    finally:
        _ = os.umask(before)
    _ = restored.unwrap()
    shown = ("copy", "new.db", "new.db.restored.json", "new")
    assert {name: oct((tmp_path / name).stat().st_mode & 0o077) for name in shown} == dict.fromkeys(shown, "0o0")


# --- the host --------------------------------------------------------------------


async def test_without_renaming_and_links_nothing_is_made(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"

    def refuse(*calls: str) -> OnCall:
        def on_call(call: str, name: str) -> None:
            if call in calls and name.endswith("new.db"):
                raise OSError(errno.EPERM if call == "linkat" else errno.EINVAL, "not on this file system", name)

        return on_call

    nowhere = await backups.restore(
        folder, to / "new.db", CLOCK, artifacts=to / "kept", on_call=refuse("NOREPLACE", "linkat")
    )
    assert failed(nowhere) == "io"
    assert "new.db" in message(nowhere)
    assert os.listdir(to) == []
    linked = await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept", on_call=refuse("NOREPLACE"))
    _ = linked.unwrap()
    assert sorted(os.listdir(to)) == ["kept", "new.db", "new.db.restored.json"]


@pytest.mark.parametrize("by_link", [False, True])
async def test_d6_what_comes_to_be_at_the_last_moment_stays(tmp_path: Path, by_link: bool) -> None:
    folder = await made(tmp_path)
    to = tmp_path / "to"

    def on_call(call: str, name: str) -> None:
        if call == "NOREPLACE" and name.endswith("new.db"):
            if by_link:
                raise OSError(errno.EINVAL, "not on this file system", name)
            (to / "new.db").write_bytes(b"mine")
        if call == "linkat":
            (to / "new.db").write_bytes(b"mine")

    restored = await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept", on_call=on_call)
    assert failed(restored) == "not_empty"
    assert files(to) == {"new.db": b"mine"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
async def test_an_error_at_any_call_of_a_backup_leaves_nothing(tmp_path: Path, number: int) -> None:
    await filled(tmp_path / "app.db")
    _ = await put(tmp_path / "kept", b"one", b"two")
    before = files(tmp_path)
    for at in count(1):
        backed = await backups.backup(
            tmp_path / "app.db",
            tmp_path / "in" / "copy",
            CLOCK,
            artifacts=tmp_path / "kept",
            on_call=failing(at, number),
        )
        if isinstance(backed, Success):
            assert at > 15
            break
        assert failed(backed) == "io"
        assert files(tmp_path) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
async def test_an_error_at_any_call_of_a_restore_leaves_nothing_or_all(tmp_path: Path, number: int) -> None:
    folder = await made(tmp_path)
    before, ends = files(tmp_path), list[bool]()
    for at in count(1):
        to = tmp_path / "to"
        restored = await backups.restore(
            folder, to / "in" / "new.db", CLOCK, artifacts=to / "kept", on_call=failing(at, number)
        )
        if isinstance(restored, Success):
            assert at > 20
            break
        assert failed(restored) == "io"
        there = (to / "in" / "new.db").exists()
        ends.append(there)
        if there:  # only that it lasts is not certain, and that is said
            assert "is there" in message(restored)
            for name in ("in/new.db", "in/new.db.restored.json"):
                (to / name).unlink()
            (to / "in").rmdir()
            for path in sorted((to / "kept").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (to / "kept").rmdir()
        assert files(tmp_path) == before
    assert ends == sorted(ends)
    assert ends.count(True) == 2  # opening the folder that the database is in, and syncing it


def failing(at: int, number: int) -> OnCall:
    """The call of that number is answered with an error; the calls that clean up are made."""
    made = 0

    def on_call(call: str, name: str) -> None:
        nonlocal made
        made += 1
        if made == at:
            raise OSError(number, os.strerror(number), name)

    return on_call


# --- cancellation ----------------------------------------------------------------


async def test_a_backup_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    _ = await put(tmp_path / "kept", b"one", b"two")
    before = files(tmp_path)
    for at in count(1):
        task = cancelled_at(
            at,
            lambda on_call: backups.backup(
                tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / "kept", on_call=on_call
            ),
        )
        try:
            _ = (await task).unwrap()
        except asyncio.CancelledError:
            if not (tmp_path / "copy" / MANIFEST).exists():
                assert files(tmp_path) == before
                continue
        assert at > 15
        _ = (await backups.verify(tmp_path / "copy")).unwrap()
        return


async def test_a_restore_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    folder = await made(tmp_path)
    to, before = tmp_path / "to", files(tmp_path)
    for at in count(1):
        task = cancelled_at(
            at, lambda on_call: backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept", on_call=on_call)
        )
        try:
            _ = (await task).unwrap()
        except asyncio.CancelledError:
            if not (to / "new.db").exists():
                assert files(tmp_path) == before
                continue
        assert at > 20
        assert sorted(os.listdir(to)) == ["kept", "new.db", "new.db.restored.json"]
        return


def cancelled_at(
    at: int, call: Callable[[OnCall], Awaitable[Outcome[_T, BackupError]]]
) -> asyncio.Task[Outcome[_T, BackupError]]:
    """A task that is cancelled as the call of that number is made on its thread."""
    loop, made = asyncio.get_running_loop(), 0

    def on_call(_call: str, _name: str) -> None:
        nonlocal made
        made += 1
        if made == at:
            asyncio.run_coroutine_threadsafe(cancel(), loop).result()

    async def cancel() -> None:
        _ = task.cancel()
        await asyncio.sleep(0)

    async def work() -> Outcome[_T, BackupError]:
        return await call(on_call)

    task = asyncio.create_task(work())
    return task


# --- while others go on ------------------------------------------------------------


async def test_what_is_collected_while_a_backup_is_made_and_was_named_by_the_database_is_in_it(tmp_path: Path) -> None:
    """Between the copy of the database and that of its artifacts nothing may go that it names."""
    await filled(tmp_path / "app.db")
    (digest,) = await put(tmp_path / "kept", b"named by the database")
    later = ManualClock(10**12)
    async with build(artifacts_layer(tmp_path / "kept") | clock_layer(later)) as opened_layer:
        kept, loop = get(opened_layer.unwrap(), Artifacts), asyncio.get_running_loop()
        copied = False

        def on_call(call: str, name: str) -> None:
            nonlocal copied
            if not copied and (tmp_path / "copy" / DATABASE).exists() and name.endswith(DATABASE):
                copied = True
                _ = asyncio.run_coroutine_threadsafe(kept.collect(()), loop).result().unwrap()

        backed = await backups.backup(
            tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / "kept", on_call=on_call
        )
        assert copied
        assert await kept.find_missing((digest,)) == Success((digest,))
    assert [each.digest for each in backed.unwrap().artifacts] == [digest]


async def test_what_is_put_until_the_database_is_copied_is_in_the_backup(tmp_path: Path) -> None:
    await filled(tmp_path / "app.db")
    (first,) = await put(tmp_path / "kept", b"first")
    async with build(artifacts_layer(tmp_path / "kept") | clock_layer(CLOCK)) as opened_layer:
        kept, loop = get(opened_layer.unwrap(), Artifacts), asyncio.get_running_loop()
        second = ""

        def on_call(call: str, name: str) -> None:
            nonlocal second
            if not second and (tmp_path / "copy" / ARTIFACTS / first).exists():
                second = asyncio.run_coroutine_threadsafe(kept.put(b"second"), loop).result().unwrap()

        backed = await backups.backup(
            tmp_path / "app.db", tmp_path / "copy", CLOCK, artifacts=tmp_path / "kept", on_call=on_call
        )
    assert [each.digest for each in backed.unwrap().artifacts] == sorted((first, second))


async def test_commits_that_are_only_in_the_log_are_in_the_backup(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "app.db")
    _ = (await ledger.commit(Batch((), tuple(InsertRun(row(f"r-{n}", "pending", None)) for n in range(50))))).unwrap()
    assert (tmp_path / "app.db-wal").stat().st_size > 0
    (tmp_path / "link.db").symlink_to(tmp_path / "app.db")
    for name in ("app.db", "link.db"):
        _ = (await backups.backup(tmp_path / name, tmp_path / f"of-{name}", CLOCK)).unwrap()
        _ = (await backups.restore(tmp_path / f"of-{name}", tmp_path / f"new-{name}", CLOCK)).unwrap()
        copy = await opened(tmp_path / f"new-{name}")
        assert len((await copy.runs(limit=100)).unwrap()) == 50
        await copy.close()
    await ledger.close()


# --- older schemas ----------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_database_of_an_older_schema(tmp_path: Path, version: int) -> None:
    """It is copied as it is; what is restored from it is of today."""
    path = tmp_path / "app.db"
    of_version(path, version).close()
    before = path.read_bytes()
    backed = (await backups.backup(path, tmp_path / "copy", CLOCK)).unwrap()
    assert backed.schema_version == version
    assert path.read_bytes() == before
    _ = (await backups.restore(tmp_path / "copy", tmp_path / "new.db", CLOCK)).unwrap()
    assert (await backups.verify(tmp_path / "copy")).unwrap() == backed
    connection = Connection(str(tmp_path / "new.db"))
    assert connection.rows("pragma user_version") == [(SCHEMA_VERSION,)]
    connection.close()


def of_version(path: Path, version: int) -> Connection:
    connection = Connection(str(path), create=True)
    for statement in (HISTORIES / f"version_{version}.sql").read_text("utf-8").split(";\n"):
        connection.run(statement)
    return connection


async def test_a_backup_while_a_migration_is_under_way(tmp_path: Path) -> None:
    """What is committed counts, and the manifest says the version of the copy."""
    path = tmp_path / "app.db"
    migrating = of_version(path, 2)
    migrating.run("pragma journal_mode = wal")
    migrating.run("begin immediate")
    migrating.run("pragma user_version = 3")

    def on_call(call: str, name: str) -> None:  # between the first look at the database and its copy
        if call == "open" and name.endswith(f"other/{DATABASE}") and migrating.in_transaction:
            migrating.run("commit")

    before = (await backups.backup(path, tmp_path / "copy", CLOCK)).unwrap()
    after = (await backups.backup(path, tmp_path / "other", CLOCK, on_call=on_call)).unwrap()
    migrating.close()
    assert (before.schema_version, after.schema_version) == (2, 3)
    for name in ("copy", "other"):
        assert isinstance(await backups.verify(tmp_path / name), Success)


# --- names ------------------------------------------------------------------------


ODD = ("with space", "größe-日本", "new\nline", "per%20cent?x=1#y", "-rf", "file:it", "'q\"")


@pytest.mark.parametrize("name", ODD)
async def test_odd_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with chdir(tmp_path / name):
        await filled(tmp_path / name / f"{name}.db")
        _ = await put(tmp_path / name / "kept", b"one")
        _ = (await backups.backup(f"./{name}.db", name, CLOCK, artifacts="kept")).unwrap()
        assert os.listdir(tmp_path) == [name]
        _ = (await backups.verify(name)).unwrap()
        _ = (await backups.restore(name, f"{name}2.db", CLOCK, artifacts=f"{name}2")).unwrap()
        assert sorted(os.listdir()) == sorted(
            (name, f"{name}.db", "kept", f"{name}2", f"{name}2.db", f"{name}2.db.restored.json")
        )


async def test_a_folder_that_is_left_meanwhile(tmp_path: Path) -> None:
    """A relative path is meant from where the call was made."""
    folder = await made(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with chdir(tmp_path / "from"):
        backed = asyncio.ensure_future(backups.backup("app.db", "second", CLOCK, artifacts="kept"))
        restored = asyncio.ensure_future(backups.restore(folder.name, "new.db", CLOCK, artifacts="new"))
        await asyncio.sleep(0)
        os.chdir(tmp_path / "elsewhere")
        _ = (await backed).unwrap()
        _ = (await restored).unwrap()
    assert os.listdir(tmp_path / "elsewhere") == []
    assert {"second", "new.db", "new"} <= set(os.listdir(tmp_path / "from"))


@pytest.mark.parametrize("name", ["a\0b", "a\udc80b", "~/new.db", "postgresql://localhost/app", ":memory:", ""])
async def test_a_name_that_nothing_can_have(tmp_path: Path, name: str) -> None:
    folder = await made(tmp_path)
    with chdir(tmp_path / "to"):
        assert failed(await backups.restore(folder, name, CLOCK, artifacts="kept")) in ("invalid_options", "not_empty")
        assert os.listdir() == []


# --- hostile backups ----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"created_at_ms": 10**400}, {"created_at_ms": 2**63}, {"created_at_ms": -1}, {"schema_version": 10**30}],
)
async def test_a_manifest_with_numbers_that_nobody_wrote(tmp_path: Path, change: dict[str, object]) -> None:
    folder = await made(tmp_path)
    said = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({**said, **change}))
    to = tmp_path / "to"
    restored = await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept")
    assert failed(restored) in ("invalid_manifest", "schema_mismatch")
    assert os.listdir(to) == []


@pytest.mark.parametrize("name", [MANIFEST, DATABASE, ARTIFACTS])
@pytest.mark.parametrize("kind", ["pipe", "folder", "empty", "dangling"])
async def test_something_else_in_the_place_of_a_file(tmp_path: Path, name: str, kind: str) -> None:
    """A pipe would be waited for, for ever."""
    folder = await made(tmp_path)
    path = folder / name
    path = next(path.iterdir()) if name == ARTIFACTS else path
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "dangling":
            path.symlink_to(folder / "nowhere")
        case _:
            path.touch()
    async with asyncio.timeout(10):
        checked = await backups.verify(folder)
    assert failed(checked) in ("missing_file", "invalid_manifest", "digest_mismatch")
    to = tmp_path / "to"
    assert isinstance(await backups.restore(folder, to / "new.db", CLOCK, artifacts=to / "kept"), Failure)
    assert os.listdir(to) == []


async def test_an_empty_file_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "app.db").touch()
    backed = await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK)
    assert isinstance(backed, Failure)
    assert os.listdir(tmp_path) == ["app.db"]


async def test_a_run_that_makes_no_sense_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    """SQLite finds nothing wrong with it, and it cannot be fenced."""
    await filled(tmp_path / "app.db", row("r", "running", "old"))
    connection = Connection(str(tmp_path / "app.db"))
    connection.run("update run set fence = 'three'")
    connection.close()
    _ = (await backups.backup(tmp_path / "app.db", tmp_path / "copy", CLOCK)).unwrap()
    before = files(tmp_path)
    restored = await backups.restore(tmp_path / "copy", tmp_path / "in" / "new.db", CLOCK)
    assert failed(restored) == "database_damaged"
    assert files(tmp_path) == before


# --- the fence --------------------------------------------------------------------


async def test_d8_a_fence_that_an_owner_got_after_the_backup_is_worth_nothing(tmp_path: Path) -> None:
    """Owners on both sides raise the fence by one each: what they have must not meet."""
    await filled(tmp_path / "app.db", row("w", "waiting", None), row("r", "running", "old"), row("f", "failed", None))
    ledger = await opened(tmp_path / "app.db")
    _ = (await backups.fence(ledger, CLOCK)).unwrap()
    for each in (await ledger.runs()).unwrap():
        for ahead in range(1, 500):
            assert not each.fence - 100 <= 3 + ahead <= each.fence + 100
        stale = await ledger.commit(Batch((RunFence(each.id, 5),), (ChangeRun(each.id, {"updated_at_ms": 1}),)))
        assert stale == Failure(Fenced(each.id))
    await ledger.close()


async def test_d7_the_journals_tell_of_the_fence(tmp_path: Path) -> None:
    rows = (row("r", "running", "old"), row("w", "waiting", "old"))
    ledger = await opened(tmp_path / "app.db")
    for each in rows:
        _ = (await ledger.commit(Batch((), (InsertRun(each),)))).unwrap()
    _ = (await backups.fence(ledger, CLOCK)).unwrap()
    for each in rows:
        page = (await ledger.entries(each.id)).unwrap()
        assert [entry.event_type for entry in page.entries] == ["stepwell.run-released"]
        now = (await ledger.run(each.id)).unwrap()
        assert now is not None
        assert (now.owner, now.state, now.waiting_on) == (None, "waiting", WANTS_OWNER if each.id == "r" else None)
    await ledger.close()


async def test_d7_a_great_many_runs(tmp_path: Path) -> None:
    many = 100_000 if os.environ.get("STEPWELL_SOAK") else 10_000
    ledger = await opened(tmp_path / "app.db")
    _ = await ledger.commit_all([Batch((), (InsertRun(row(f"r-{n}", "running", "old")),)) for n in range(many)])
    assert (await backups.fence(ledger, CLOCK)).unwrap().suspended_runs == many
    assert await ledger.owners() == Success(())
    await ledger.close()
