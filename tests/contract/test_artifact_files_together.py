"""Artifacts in a folder that others use too: tasks, threads and processes, and collections of it."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import BinaryIO

import pytest

from stepwell import Success
from stepwell.core.node import digest_of
from stepwell.services.artifacts import Collected

from .artifacts_world import HOUR_MS, WAIT_S, BehindFiles, Gate, Meddler, World, opened, refused

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


# --- at the same time ---------------------------------------------------------------


async def test_the_loop_goes_on_while_a_stream_is_read_and_a_sink_written(files: World) -> None:
    source = Gate(b"one")
    task = asyncio.create_task(files.artifacts.put_stream(source))
    await source.reached()
    assert not task.done()
    source.open()
    digest = (await task).unwrap()
    threads: set[int] = set()
    _ = await files.artifacts.copy(digest, lambda _: threads.add(get_ident()))
    assert get_ident() not in threads


async def test_a_cancelled_put_waits_for_its_thread_and_leaves_nothing_behind(
    files: World, behind: BehindFiles
) -> None:
    source = Gate(b"one")

    async def put(source: BinaryIO) -> None:
        with source:
            _ = await files.artifacts.put_stream(source)

    task = asyncio.create_task(put(source))
    await source.reached()
    for _ in range(3):
        assert task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    source.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not source.closed_while_read
    assert (behind.kept(), behind.half_written()) == ({}, [])


async def test_a_cancelled_copy_hands_nothing_more_over(files: World) -> None:
    digest = await files.put(bytes(3 << 20))
    reached, go_on = Event(), Event()
    pieces: list[bytes] = []

    def sink(piece: bytes) -> None:
        pieces.append(piece)
        reached.set()
        assert go_on.wait(WAIT_S)

    task = asyncio.create_task(files.artifacts.copy(digest, sink))
    assert await asyncio.to_thread(reached.wait, WAIT_S)
    assert task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        _ = await task
    assert len(pieces) == 1


async def test_tasks_may_put_the_same_at_the_same_time(files: World, behind: BehindFiles) -> None:
    data = bytes(range(256)) * 5_000
    put = [files.artifacts.put(data) for _ in range(10)]
    streamed = [files.artifacts.put_stream(io.BytesIO(data)) for _ in range(10)]
    assert set(await asyncio.gather(*put, *streamed)) == {Success(digest_of(data))}
    assert (behind.kept(), behind.half_written()) == ({digest_of(data): data}, [])


def test_threads_may_put_the_same_at_the_same_time(tmp_path: Path, behind: BehindFiles) -> None:
    kept: list[list[str]] = []

    async def put() -> list[str]:
        async with opened("files", tmp_path / "kept") as world:
            return [await world.put(b"%d" % number) for number in range(30)]

    threads = [Thread(target=lambda: kept.append(asyncio.run(put()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 4
    assert len(behind.kept()) == 30
    assert all(digest_of(data) == digest for digest, data in behind.kept().items())
    assert behind.half_written() == []


RIVAL = """
import asyncio, sys
from stepwell import Artifacts, build, get
from stepwell.layers import artifacts, clock

async def main(root: str, first: int, last: int) -> None:
    async with build(artifacts.layer(root) | clock.layer()) as built:
        service = get(built.unwrap(), Artifacts)
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(first, last):
            digest = (await service.put(b"%d" % number)).unwrap()
            (await service.collect([], grace_ms=3_600_000)).unwrap()
            assert (await service.get(digest)).unwrap() == b"%d" % number

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def rival_of(root: Path, first: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RIVAL, str(root), str(first), str(first + 20)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def test_processes_put_and_collect_at_the_same_time(tmp_path: Path, behind: BehindFiles) -> None:
    """All that is there is old, and every process goes over it; none takes what another has put again meanwhile."""
    async with opened("files", tmp_path / "kept") as world:
        for number in range(150):
            _ = await world.put(b"%d" % number)
    rivals = [rival_of(tmp_path / "kept", first) for first in (0, 20, 40)]
    for rival in rivals:
        assert rival.stdout is not None
        assert await asyncio.to_thread(rival.stdout.readline) == b"ready\n"
    ended = await asyncio.gather(*(asyncio.to_thread(rival.communicate, b"go\n") for rival in rivals))
    assert [rival.returncode for rival in rivals] == [0, 0, 0], ended
    assert behind.kept() == {digest_of(b"%d" % number): b"%d" % number for number in range(60)}
    assert behind.half_written() == []


# --- collecting ------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [False, True], ids=["healthy", "damaged"])
async def test_what_is_put_while_a_collection_goes_over_it_stays(tmp_path: Path, damaged: bool) -> None:
    """At the last moment, when the collection has seen all that is old and waits for the lock."""
    root, data = tmp_path / "kept", b"put again"
    async with opened("files", root) as world:
        digest, other = await world.put(data), await world.put(b"other")
        if damaged:
            world.behind.damage(digest, b"wrong")

    async def put_again() -> None:
        async with opened("files", root) as world:
            await world.clock.advance(HOUR_MS)
            await world.put(data)

    put: list[str] = []

    def on_call(call: str, name: str) -> None:
        if call == "flock" and not put:
            put.append(digest)
            asyncio.run(put_again())

    async with opened("files", root, on_call=on_call) as collecting:
        await collecting.clock.advance(HOUR_MS)
        assert await collecting.artifacts.collect([], grace_ms=0) == Success(Collected((other,), 5, 1))
        assert await collecting.artifacts.get(digest) == Success(data)
    assert put == [digest]


async def test_what_is_collected_while_it_is_put_again_is_written(tmp_path: Path) -> None:
    """After the put has found it to be sound, and before it has stamped it."""
    root = tmp_path / "kept"
    async with opened("files", root) as world:
        digest = await world.put(b"one")

    async def collect() -> None:
        async with opened("files", root) as world:
            await world.clock.advance(HOUR_MS)
            assert (await world.artifacts.collect([], grace_ms=0)).unwrap().removed == (digest,)

    collected: list[str] = []

    def on_call(call: str, name: str) -> None:
        if call == "flock" and not collected:
            collected.append(digest)
            asyncio.run(collect())

    async with opened("files", root, on_call=on_call) as world:
        await world.put(b"one")
        assert await world.artifacts.get(digest) == Success(b"one")
    assert collected == [digest]


@pytest.mark.parametrize("refusal", ["objects", "prefix", "status"])
async def test_a_place_that_cannot_be_read_whole_is_left_as_it_is(
    files: World, behind: BehindFiles, meddler: Meddler, refusal: str
) -> None:
    digests = [await files.put(b"%d" % number) for number in range(5)]
    await files.clock.advance(1)
    last = max(digests)
    meddler.refused = {{"objects": "objects", "prefix": f"objects/{last[:2]}", "status": last}[refusal]: DENIED}
    assert "could not collect artifacts" in refused(await files.artifacts.collect([], grace_ms=0))
    assert behind.kept().keys() == set(digests)


async def test_a_collection_that_is_refused_in_the_middle_says_so(
    files: World, behind: BehindFiles, meddler: Meddler
) -> None:
    digests = [await files.put(b"%d" % number) for number in range(5)]
    await files.clock.advance(1)
    meddler.seen.clear()
    meddler.refused["unlinkat 3"] = DENIED
    _ = refused(await files.artifacts.collect([], grace_ms=0), "unknown")
    assert sorted(behind.kept()) == sorted(digests)[2:]


async def test_what_is_no_artifact_is_left_alone(files: World, behind: BehindFiles) -> None:
    digest = await files.put(b"one")
    objects, prefix = behind.root / "objects", behind.path(digest).parent
    foreign = [objects / "README", objects / "zz", prefix / "mine.txt", prefix / digest_of(b"of another folder")]
    assert foreign[3].name[:2] != digest[:2]
    for path in foreign:
        path.write_bytes(b"mine")
    await files.clock.advance(1)
    assert await files.artifacts.collect([], grace_ms=0) == Success(Collected((digest,), 3, 0))
    assert all(path.read_bytes() == b"mine" for path in foreign)


async def test_a_dry_run_writes_nothing(files: World, meddler: Meddler) -> None:
    digest = await files.put(b"one")
    await files.clock.advance(1)
    meddler.seen.clear()
    collected = await files.artifacts.collect([], grace_ms=0, dry_run=True)
    assert collected == Success(Collected((digest,), 3, 0))
    assert {"openat2", "getdents"} <= {call for call, _ in meddler.seen} <= {"open", "openat2", "getdents", "fstatat"}
