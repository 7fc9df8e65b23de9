"""How well it is known what a Python body read: what is seen of what it does past its workspace."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stepwell import Failure
from stepwell.core.boundary import Boundary
from stepwell.core.evidence import Ambient
from stepwell.core.step_sandbox import Accepted, UndeclaredRead
from stepwell.services.step_sandbox import Workspace

from .sandbox_world import EMPTY, FolderWorld, World, open_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[FolderWorld]:
    async with open_world("folder", tmp_path / "root") as made:
        assert isinstance(made, FolderWorld)
        yield made


async def evidence(world: World, body: Callable[[Workspace], object]) -> tuple[str, tuple[Ambient, ...]]:
    accepted: Accepted[object] = (await world.run(body, reads=("in.txt", "src/**"), writes=("out/**",))).unwrap()
    assert accepted.record is not None
    return accepted.evidence, accepted.record.ambient


async def test_b_05_a_read_past_the_workspace_is_told(world: FolderWorld) -> None:
    level, ambient = await evidence(world, lambda _: Path("/etc/hostname").read_bytes())
    assert (level, ambient) == ("tripwire", (Ambient("ambient_read", "/etc/hostname"),))


async def test_the_workspace_itself_is_no_event(world: FolderWorld) -> None:
    def body(workspace: Workspace) -> None:
        for path in workspace.glob("**"):
            _ = workspace.read_bytes(path)
        with workspace.open_binary("out/large", "w") as handle:
            for _ in range(6):
                _ = handle.write(bytes(2**20))
        with workspace.open_text("out/text", "w") as text:
            _ = text.write("1")
        workspace.write_bytes("out/huge", bytes(70 * 2**20))
        workspace.rename("out/text", "out/moved")
        _ = workspace.exists("nope"), workspace.list_dir("."), workspace.is_dir("src")

    assert await evidence(world, body) == ("tripwire", ())


async def test_an_async_body_is_watched_too(world: FolderWorld) -> None:
    async def body(workspace: Workspace) -> bytes:
        return read_hostname()

    def read_hostname() -> bytes:
        with open("/etc/hostname", "rb") as file:
            return file.read()

    async with await world.open() as transaction:
        accepted = (await transaction.execute(Boundary(("in.txt",)), body)).unwrap()
    assert accepted.record is not None
    assert [it.kind for it in accepted.record.ambient] == ["ambient_read"]


async def test_b_10_an_import_changes_no_evidence(world: FolderWorld) -> None:
    _ = sys.modules.pop("stringprep", None)
    assert await evidence(world, lambda _: importlib.import_module("stringprep")) == ("tripwire", ())


@pytest.mark.parametrize("spelling", ["real", "as given", "through a link"])
async def test_a_read_of_the_hosts_own_file_is_an_undeclared_read(
    world: FolderWorld, tmp_path: Path, spelling: str
) -> None:
    os.symlink(world.root, tmp_path / "link")
    roots = {"real": str(world.real_root), "as given": str(world.root), "through a link": f"{tmp_path}/link"}
    refused = await world.run(lambda _: Path(f"{roots[spelling]}/secret").read_bytes(), writes=())
    assert refused == Failure(UndeclaredRead(("secret",), EMPTY))


async def test_a_read_of_what_is_declared_past_its_copy_is_told(world: FolderWorld) -> None:
    level, ambient = await evidence(world, lambda _: (world.root / "in.txt").read_bytes())
    assert (level, [it.kind for it in ambient]) == ("tripwire", ["ambient_read"])


async def test_a_thread_of_the_bodys_own_leaves_it_to_its_word(world: FolderWorld) -> None:
    def body(_workspace: Workspace) -> None:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()

    level, ambient = await evidence(world, body)
    assert (level, [it.kind for it in ambient]) == ("cooperative", ["thread_started"])


async def test_a_process_is_told(world: FolderWorld) -> None:
    _, ambient = await evidence(world, lambda _: subprocess.run(["true"], check=True))
    assert "ambient_process" in [it.kind for it in ambient]


async def test_bodies_at_once_have_each_their_own_evidence(world: FolderWorld) -> None:
    reads = evidence(world, lambda _: Path("/etc/hostname").read_bytes())
    clean = evidence(world, lambda workspace: workspace.read_bytes("in.txt"))
    (_, told), (level, nothing) = await asyncio.gather(reads, clean)
    assert (len(told), level, nothing) == (1, "tripwire", ())
