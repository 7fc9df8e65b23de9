"""Measuring, recording and replaying over each host, and what only one of them can show."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, final

import pytest

from stepwell import Clock, Failure, Layer, Outcome, Success, provides
from stepwell.core.boundary import Boundary
from stepwell.core.command import Command
from stepwell.core.model import TooLarge, Unavailable
from stepwell.core.node import FileNode, digest_of
from stepwell.core.reuse import decide_reuse
from stepwell.core.step_sandbox import MaterializationConflict
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.services.artifacts import (
    GRACE_MS,
    ArtifactCorruption,
    ArtifactMissing,
    Artifacts,
    Collected,
    InvalidDigest,
)
from stepwell.services.step_sandbox import Workspace

from ..layers.workspace.command.world import needs_bwrap
from .replay_world import LARGE, TREE, measured, recorded, replayed, write_tree
from .sandbox_records_contract import SandboxRecordsContract
from .sandbox_replay_contract import SandboxReplayContract
from .sandbox_world import Host, World, open_world

HOSTS: tuple[Host, ...] = ("memory", "folder")
LIMITS = WorkspaceLimits(inline_bytes=10, nodes=20, file_bytes=100)


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = "folder" if request.param == "folder" else "memory"
    async with open_world(host, tmp_path / "root", limits=LIMITS) as made:
        yield made


class TestSandboxReplay(SandboxReplayContract):
    pass


class TestSandboxRecords(SandboxRecordsContract):
    pass


async def test_r_09_a_restored_file_has_one_name_and_may_be_changed_in_place(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with open_world("folder", root, limits=LIMITS) as world:
        outputs = await recorded(world, TREE, write_tree)
        (root / "out/d/run").unlink()
        _ = (await replayed(world, TREE, outputs)).unwrap()
        assert (root / "out/d/run").stat().st_nlink == 1
        with (root / "out/d/run").open("ab") as handle:
            _ = handle.write(b"more")
        (root / "out/d/run").chmod(0o600)
        (root / "out/d/run").unlink()
        _ = (await replayed(world, TREE, outputs)).unwrap()
        assert (root / "out/d/run").read_bytes() == LARGE.encode()
        assert (await world.artifacts.get(digest_of(LARGE.encode()))).unwrap() == LARGE.encode()


async def test_k_01_bytes_and_exec_bit_are_measured_of_one_and_the_same_file(tmp_path: Path) -> None:
    """A writer swaps two files of one size for as long as the test measures: a plain one, and one to be executed."""
    root = tmp_path / "root"
    forms = [
        FileNode(digest_of(data), 200_000, executable) for data, executable in ((_data(0), False), (_data(1), True))
    ]
    done = threading.Event()

    def swap() -> None:
        number = 0
        while not done.is_set():
            number = 1 - number
            beside = tmp_path / "beside"
            _ = beside.write_bytes(_data(number))
            beside.chmod(0o755 if number else 0o644)
            os.replace(beside, root / "in.txt")

    async with open_world("folder", root) as world:
        world.write("in.txt", _data(0))
        writer = threading.Thread(target=swap)
        writer.start()
        try:
            for _ in range(200):
                (path, node) = (await measured(world, Boundary(("in.txt",)))).files[0]
                assert path == "in.txt"
                assert node in forms
        finally:
            done.set()
            writer.join()


async def test_k_01_a_file_that_is_written_in_place_is_measured_as_what_a_body_was_given(tmp_path: Path) -> None:
    """What the body read hashes to what the record says was seeded, whatever a writer does to the file meanwhile."""
    root = tmp_path / "root"
    done = threading.Event()

    def rewrite() -> None:
        number = 0
        with (root / "in.txt").open("r+b") as handle:
            while not done.is_set():
                number = 1 - number
                _ = handle.seek(0)
                _ = handle.write(_data(number))
                handle.flush()

    def read_input(workspace: Workspace) -> bytes:
        workspace.write_text("out/r", "")
        return workspace.read_bytes("in.txt")

    async with open_world("folder", root) as world:
        world.write("in.txt", _data(0))
        boundary = Boundary(("in.txt",), ("out/r",))
        writer = threading.Thread(target=rewrite)
        writer.start()
        seen: list[tuple[bytes, str]] = []
        try:
            for _ in range(50):
                accepted = (await world.run(read_input)).unwrap()
                assert accepted.record is not None
                seen.append((accepted.output, accepted.record.base_digest))
        finally:
            done.set()
            writer.join()
        for data, base in {digest: (data, digest) for data, digest in seen}.values():
            world.write("in.txt", data)
            assert (await measured(world, boundary)).base_digest == base


def _data(number: int) -> bytes:
    return bytes([65 + number]) * 200_000


async def test_what_is_no_file_in_a_tree_is_refused_and_left(tmp_path: Path) -> None:
    root = tmp_path / "root"
    async with open_world("folder", root) as world:
        outputs = await recorded(world, TREE, write_tree)
        os.mkfifo(root / "out/pipe")
        (root / "out/a").unlink()
        refused = await replayed(world, TREE, outputs)
        assert "unsupported_file_type" in repr(refused.failure())
        assert not (root / "out/a").exists()


@pytest.mark.parametrize("host", HOSTS)
async def test_k_07_another_folder_is_measured_alike_and_takes_the_record(host: Host, tmp_path: Path) -> None:
    async with open_world(host, tmp_path / "one", limits=LIMITS) as one:
        outputs = await recorded(one, TREE, write_tree)
        reads = await measured(one, TREE)
        after = one.nodes()
    async with open_world(host, tmp_path / "two" / "deeper", limits=LIMITS) as two:
        _ = (await two.artifacts.put(LARGE.encode())).unwrap()
        assert await measured(two, TREE) == reads
        _ = (await replayed(two, TREE, outputs, reads)).unwrap()
        assert two.nodes() == after


# --- what others do meanwhile ---------------------------------------------------


@final
class TellingArtifacts:
    """Artifacts that call `before_copy` whenever bytes are asked for: a moment in the middle of a replay."""

    def __init__(self, kept: Artifacts) -> None:
        self._kept = kept
        self.before_copy: Callable[[], object] = list

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        return await self._kept.put(data)

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        return await self._kept.put_stream(data)

    async def get(
        self, digest: str
    ) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        return await self._kept.get(digest)

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        _ = self.before_copy()
        await asyncio.sleep(0)  # a cancellation comes to whoever waits
        return await self._kept.copy(digest, sink)

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | Unavailable]:
        return await self._kept.has(digest)

    async def find_missing(self, digests: Iterable[str]) -> Outcome[tuple[str, ...], InvalidDigest | Unavailable]:
        return await self._kept.find_missing(digests)

    async def collect(
        self, roots: Iterable[str], *, grace_ms: int = GRACE_MS, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        return await self._kept.collect(roots, grace_ms=grace_ms, dry_run=dry_run)


def telling() -> Layer[Artifacts, Clock]:
    @provides
    def recipe(clock: Clock) -> Iterator[Artifacts]:
        yield TellingArtifacts(MemoryArtifacts(clock))

    return recipe


def told_by(world: World) -> TellingArtifacts:
    assert isinstance(world.artifacts, TellingArtifacts)
    return world.artifacts


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["out/a", "out/d/run", "in.txt"])
async def test_what_somebody_changes_during_a_replay_is_a_conflict_and_kept(
    host: Host, tmp_path: Path, path: str
) -> None:
    async with open_world(host, tmp_path / "root", limits=LIMITS, kept=telling()) as world:
        outputs = await recorded(world, TREE, write_tree)
        for each in ("out/a", "out/d/run"):
            world.write(each, "old")
        told_by(world).before_copy = lambda: world.write(path, "theirs")
        expected = {**world.nodes(), path: FileNode(digest_of(b"theirs"), 6)}
        refused = await replayed(world, TREE, outputs)
        assert refused == Failure(MaterializationConflict((path,)))
        assert world.nodes() == expected


@pytest.mark.parametrize("host", HOSTS)
async def test_a_replay_that_is_cancelled_before_it_is_decided_changes_nothing(host: Host, tmp_path: Path) -> None:
    async with open_world(host, tmp_path / "root", limits=LIMITS, kept=telling()) as world:
        outputs = await recorded(world, TREE, write_tree)
        for each in ("out/a", "out/d/run"):
            world.remove(each)
        before = world.snapshot()
        replay = asyncio.ensure_future(replayed(world, TREE, outputs))
        told_by(world).before_copy = replay.cancel
        with pytest.raises(asyncio.CancelledError):
            _ = await replay
        assert world.snapshot() == before
        told_by(world).before_copy = list
        assert isinstance(await replayed(world, TREE, outputs), Success)


# --- commands -------------------------------------------------------------------


@needs_bwrap
async def test_a_command_is_recorded_with_what_it_wrote_anew_and_replayed(tmp_path: Path) -> None:
    script = f"mkdir -p out/empty; cat in.txt > out/a; printf '{LARGE}' > out/large; chmod +x out/large; ln -s a out/l"
    async with open_world("folder", tmp_path / "root", limits=LIMITS) as world:
        world.write("out/large", LARGE, executable=True)
        async with await world.open_caching() as transaction:
            reads = (await transaction.measure(TREE)).unwrap()
            accepted = (await transaction.execute(TREE, Command(("sh", "-c", script)))).unwrap()
            assert "out/large" not in [change.path for change in accepted.changes]
            _ = (await transaction.materialize(accepted)).unwrap()
            outputs = (await transaction.record(accepted)).unwrap()
            assert decide_reuse(accepted, TREE, reads) == "shared"
            after = world.nodes()
            for path in ("out/a", "out/large", "out/l"):
                world.remove(path)
            restored = (await transaction.replay(TREE, outputs, reads)).unwrap()
        assert [change.path for change in restored.changes] == ["out/a", "out/l", "out/large"]
        assert world.nodes() == after
