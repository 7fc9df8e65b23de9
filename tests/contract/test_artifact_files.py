"""Artifacts in a folder: what is in it, what is written when, and what is left behind where something fails."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import chdir
from pathlib import Path

import pytest

from stepwell import ArtifactCorruption, Failure, Success
from stepwell.core.node import digest_of
from stepwell.services.artifacts import Collected

from .artifacts_contract import NOBODY
from .artifacts_world import HOUR_MS, NOW_MS, BehindFiles, Gate, Meddler, World, opened, refused

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))
DENIED = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.fixture
def meddler() -> Meddler:
    return Meddler()


@pytest.fixture
async def files(tmp_path: Path, meddler: Meddler) -> AsyncIterator[World]:
    async with opened("files", tmp_path / "kept", on_call=meddler) as made:
        yield made


@pytest.fixture
def behind(tmp_path: Path) -> BehindFiles:
    return BehindFiles(tmp_path / "kept")


# --- the folder ---------------------------------------------------------------


async def test_files_are_for_their_owner_alone_and_for_nobody_to_write(files: World, behind: BehindFiles) -> None:
    before = os.umask(0)
    try:
        digest = await files.put(b"one")
    finally:
        _ = os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (behind.root, *behind.root.rglob("*"))}
    assert modes == {
        behind.root: 0o700,
        behind.root / "objects": 0o700,
        behind.root / "objects" / digest[:2]: 0o700,
        behind.path(digest): 0o444,
        behind.root / "temp": 0o700,
        behind.root / "lock": 0o600,
    }
    assert behind.path(digest).stat().st_nlink == 1
    assert behind.path(digest).stat().st_mtime_ns == NOW_MS * 1_000_000


async def test_nothing_is_made_until_something_is_put(files: World, behind: BehindFiles) -> None:
    assert await files.artifacts.has(NOBODY) == Success(False)
    assert isinstance(await files.artifacts.get(NOBODY), Failure)
    assert await files.artifacts.collect([], grace_ms=0) == Success(Collected((), 0, 0))
    assert not behind.root.exists()


async def test_a_folder_far_down_is_made_and_a_link_to_one_is_followed(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    (tmp_path / "link").symlink_to(deep)
    async with opened("files", deep) as world:
        digest = await world.put(b"one")
    async with opened("files", tmp_path / "link") as world:
        assert await world.artifacts.get(digest) == Success(b"one")
        _ = await world.put(b"two")
    assert len(BehindFiles(deep).kept()) == 2


async def test_a_relative_folder_stays_where_it_was(tmp_path: Path) -> None:
    with chdir(tmp_path):
        async with opened("files", Path("kept")) as world:
            with chdir("/"):
                digest = await world.put(b"one")
    assert BehindFiles(tmp_path / "kept").kept() == {digest: b"one"}


async def test_a_file_in_place_of_the_folder_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"mine")
    async with opened("files", tmp_path / "kept") as world:
        assert "could not keep an artifact in" in refused(await world.artifacts.put(b"one"))
        assert f"could not read artifact {NOBODY}" in refused(await world.artifacts.get(NOBODY))
        _ = refused(await world.artifacts.has(NOBODY))
        _ = refused(await world.artifacts.collect([]))


# --- writing --------------------------------------------------------------------


async def test_a1_the_second_put_reads_and_does_not_write(files: World, meddler: Meddler) -> None:
    await files.put(b"one")
    assert meddler.named("write") == [""]
    meddler.seen.clear()
    await files.put(b"one")
    assert (meddler.named("write"), meddler.named("renameat")) == ([], [])
    assert meddler.named("read") != []


@pytest.mark.parametrize("call", ["read", "utimensat", "fsync"])
async def test_a2_what_cannot_be_read_stamped_or_synced_is_written_anew(
    files: World, behind: BehindFiles, meddler: Meddler, call: str
) -> None:
    digest = await files.put(b"one")
    before = behind.path(digest).stat().st_ino
    meddler.seen.clear()
    meddler.refused[f"{call} 1"] = BROKEN
    await files.put(b"one")
    assert behind.path(digest).stat().st_ino != before
    assert behind.kept() == {digest: b"one"}


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "socket"])
async def test_a2_what_is_no_file_is_never_followed_and_put_again(
    files: World, behind: BehindFiles, tmp_path: Path, kind: str
) -> None:
    digest = await files.put(b"one")
    path = behind.path(digest)
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(b"one")
    match kind:
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case "dangling":
            path.symlink_to(tmp_path / "nowhere")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            with socket.socket(socket.AF_UNIX) as made, chdir(path.parent):  # the path is too long for a socket
                made.bind(digest)
    await files.clock.advance(HOUR_MS)
    assert await files.artifacts.get(digest) == Failure(ArtifactCorruption(digest))
    assert await files.artifacts.has(digest) == Success(False)
    assert await files.artifacts.collect([], grace_ms=0) == Success(Collected((), 0, 0))
    await files.put(b"one")
    assert behind.kept() == {digest: b"one"}
    assert path.lstat().st_size == 3
    assert (tmp_path / "elsewhere").read_bytes() == b"one"
    assert not (tmp_path / "nowhere").exists()


async def test_a_folder_that_holds_something_is_left_alone(files: World, behind: BehindFiles) -> None:
    digest = digest_of(b"one")
    mine = behind.path(digest) / "mine"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    assert "Directory not empty" in refused(await files.artifacts.put(b"one"))
    assert mine.read_bytes() == b"mine"
    assert behind.half_written() == []


@pytest.mark.parametrize("name", ["objects", "prefix"])
async def test_a_link_on_the_way_is_never_followed(
    files: World, behind: BehindFiles, tmp_path: Path, name: str
) -> None:
    digest = await files.put(b"one")
    await files.clock.advance(1)
    way = behind.root / "objects" if name == "objects" else behind.path(digest).parent
    way.rename(tmp_path / "elsewhere")
    way.symlink_to(tmp_path / "elsewhere")
    _ = refused(await files.artifacts.get(digest))
    _ = refused(await files.artifacts.has(digest))
    _ = refused(await files.artifacts.put(b"one"))
    _ = refused(await files.artifacts.collect([], grace_ms=0))
    assert [path.read_bytes() for path in (tmp_path / "elsewhere").rglob("?" * 64)] == [b"one"]
    assert behind.half_written() == []


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a3_a_rename_that_fails_leaves_nothing_behind(
    files: World, behind: BehindFiles, meddler: Meddler, streamed: bool
) -> None:
    meddler.refused["renameat"] = FULL
    put = files.artifacts.put_stream(io.BytesIO(b"one")) if streamed else files.artifacts.put(b"one")
    assert "No space left on device" in refused(await put)
    assert (behind.kept(), behind.half_written()) == ({}, [])


@pytest.mark.parametrize("call", ["write", "fchmod", "mkdirat", "fsync 1", "flock 2", "utimensat", "open 4"])
async def test_a3_whatever_fails_leaves_nothing_behind(
    files: World, behind: BehindFiles, meddler: Meddler, call: str
) -> None:
    meddler.refused[call] = FULL
    _ = refused(await files.artifacts.put(b"one"))
    assert behind.kept() == {}
    assert not behind.root.exists() or behind.half_written() == []
    meddler.refused.clear()
    await files.put(b"one")
    assert behind.half_written() == []


async def test_a4_a_sync_that_fails_is_a_failure_where_durability_is_required(
    files: World, behind: BehindFiles, meddler: Meddler
) -> None:
    await files.put(b"zero")
    meddler.refused["fsync"] = BROKEN
    assert "Input/output error" in refused(await files.artifacts.put(b"one"))
    assert await files.artifacts.has(digest_of(b"one")) == Success(False)
    assert "Input/output error" in refused(await files.artifacts.put(b"zero"))
    assert behind.half_written() == []


async def test_a4_after_the_rename_it_is_open_whether_an_artifact_is_kept(files: World, meddler: Meddler) -> None:
    await files.put(b"zero")
    meddler.seen.clear()
    meddler.refused["fsync 3"] = BROKEN  # after the file, and the directory of its directory
    _ = refused(await files.artifacts.put(b"one"), "unknown")
    meddler.refused.clear()
    meddler.seen.clear()
    await files.put(b"one")
    assert len(meddler.named("fsync")) == 2  # the promise is kept by the next one, though it writes nothing


async def test_a4_all_that_leads_to_an_artifact_is_synced_before_a_put_answers(tmp_path: Path) -> None:
    for number in range(1, 9):  # three directories above, twice the root, the file, its directory's, its directory
        meddler = Meddler(refused={f"fsync {number}": BROKEN})
        async with opened("files", tmp_path / str(number) / "a" / "b", on_call=meddler) as world:
            _ = refused(await world.artifacts.put(b"one"), "unknown" if number == 8 else "no")
    meddler = Meddler()
    async with opened("files", tmp_path / "all" / "a" / "b", on_call=meddler) as world:
        _ = await world.put(b"one")
    assert len(meddler.named("fsync")) == 8


async def test_a4_what_another_process_made_and_may_not_have_synced_is_synced(files: World, tmp_path: Path) -> None:
    digest = await files.put(b"one")
    (tmp_path / "kept" / "objects" / digest[:2] / digest).unlink()
    meddler = Meddler()
    async with opened("files", tmp_path / "kept", on_call=meddler) as world:
        _ = await world.put(b"one")
        assert len(meddler.named("fsync")) == 5
        meddler.seen.clear()
        _ = await world.put(b"one")
        assert len(meddler.named("fsync")) == 2


async def test_a4_a_sync_that_fails_is_good_enough_for_best_effort(
    tmp_path: Path, meddler: Meddler, behind: BehindFiles
) -> None:
    meddler.refused["fsync"] = BROKEN
    async with opened("files", tmp_path / "kept", on_call=meddler, durability="best-effort") as world:
        digest = await world.put(b"one")
        await world.put(b"one")
        assert await world.artifacts.get(digest) == Success(b"one")
    assert len(meddler.named("renameat")) == 1
    assert behind.half_written() == []


async def test_a5_a_host_that_refuses_is_a_third_failure(files: World, meddler: Meddler) -> None:
    digest = await files.put(b"one")
    meddler.refused["read"] = BROKEN
    assert f"could not read artifact {digest}" in refused(await files.artifacts.get(digest))
    meddler.refused = {digest: DENIED}
    assert "Permission denied" in refused(await files.artifacts.get(digest))
    assert "Permission denied" in refused(await files.artifacts.has(digest))
    assert "Permission denied" in refused(await files.artifacts.find_missing([digest]))


async def test_a6_a7_without_a_digest_the_host_is_not_called(files: World, meddler: Meddler) -> None:
    for text in ("", ".", "..", "a/b", "a\\b"):
        assert isinstance(await files.artifacts.get(text), Failure)
        assert isinstance(await files.artifacts.find_missing([NOBODY, text]), Failure)
        assert isinstance(await files.artifacts.collect([text]), Failure)
    assert await files.artifacts.find_missing([]) == Success(())
    assert meddler.seen == []


# --- what is left behind ----------------------------------------------------------


async def test_orphans_are_swept_by_the_first_put_once(files: World, behind: BehindFiles, tmp_path: Path) -> None:
    await _orphans(behind, "old", "older", "young")
    (behind.root / "temp" / "link").symlink_to(tmp_path / "nowhere")
    (behind.root / "temp" / "folder").mkdir()
    await files.put(b"one")
    assert behind.half_written() == ["folder", "link", "young"]
    await _orphans(behind, "old")
    await files.put(b"two")
    assert behind.half_written() == ["folder", "link", "old", "young"]


async def _orphans(behind: BehindFiles, *names: str) -> None:
    (behind.root / "temp").mkdir(parents=True, exist_ok=True)
    for name in names:
        path = behind.root / "temp" / name
        path.write_bytes(b"half")
        at_s = NOW_MS // 1000 - (3600 if name == "young" else 3601)
        os.utime(path, (at_s, at_s))


async def test_who_still_writes_after_an_hour_is_left_in_peace(tmp_path: Path, behind: BehindFiles) -> None:
    source = Gate(b"slow")
    async with opened("files", tmp_path / "kept") as slow, opened("files", tmp_path / "kept") as other:
        task = asyncio.create_task(slow.artifacts.put_stream(source))
        await source.reached()
        (name,) = behind.half_written()
        os.utime(behind.root / "temp" / name, (0, 0))
        await other.put(b"one")
        assert behind.half_written() == [name]
        source.open()
        assert await task == Success(digest_of(b"slow"))
    assert behind.half_written() == []
