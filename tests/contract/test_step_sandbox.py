"""The sandbox over each host, its limits, and its absence."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell import Failure, Success, build, get
from stepwell.core.boundary import Boundary
from stepwell.core.command import Command
from stepwell.core.step_sandbox import LimitExceeded, UnsupportedBoundary
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers import artifacts, step_sandbox
from stepwell.services.step_sandbox import StepSandbox, Workspace

from .sandbox_world import Host, World, open_world
from .step_sandbox_contract import StepSandboxContract, error_of

HOSTS: tuple[Host, ...] = ("memory", "folder")
MEMORY_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where a folder is in memory, if there is such a place."""


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("folder" if request.param == "folder" else "memory", tmp_path / "root") as made:
        yield made


class TestStepSandbox(StepSandboxContract):
    pass


# --- limits -----------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
async def test_d_11_no_more_files_are_seeded_than_the_limit(host: Host, tmp_path: Path) -> None:
    async with open_world(host, tmp_path / "root", limits=WorkspaceLimits(seeded_files=100)) as world:
        for number in range(101):
            world.write(f"many/{number}", "")
        refused = await world.run(lambda _: 1, reads=("many/*",))
        assert refused == Failure(LimitExceeded("seeded_files", 101, 100))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (WorkspaceLimits(nodes=3), "nodes"),
        (WorkspaceLimits(produced_bytes=3), "produced_bytes"),
        (WorkspaceLimits(file_bytes=6), "file_bytes"),
    ],
)
async def test_w_20_no_more_is_produced_than_the_limit(
    host: Host, tmp_path: Path, limits: WorkspaceLimits, what: str
) -> None:
    def body(workspace: Workspace) -> None:
        for number in range(5):
            try:
                workspace.write_text(f"out/{number}", "1" * (10 if what == "file_bytes" else 1))
            except Exception:
                return  # swallowed, and told all the same

    async with open_world(host, tmp_path / "root", limits=limits) as world:
        before = world.snapshot()
        refused = (await world.run(body, writes=("out/**",))).failure()
        assert isinstance(refused, LimitExceeded)
        assert refused.what == what
        assert world.snapshot() == before


async def test_a_body_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async def body(workspace: Workspace) -> None:
        await never.wait()

    never = asyncio.Event()
    async with open_world("memory", tmp_path, limits=WorkspaceLimits(wall=20)) as world:
        assert await world.run(body) == Failure(LimitExceeded("wall", 20, 20))


async def test_w_15_a_large_output_is_spooled(tmp_path: Path) -> None:
    size = 64 * 2**20 + 1

    def body(workspace: Workspace) -> None:
        with workspace.open_binary("out/r", "w") as writer:
            for _ in range(64):
                _ = writer.write(bytes(2**20))
            _ = writer.write(b"x")

    async with open_world("folder", tmp_path / "root") as world:
        _ = await world.settle(body)
        assert len(world.read("out/r") or b"") == size


@pytest.mark.parametrize("host", HOSTS)
async def test_sb36_and_cb2_an_artifact_that_is_gone_stops_all(host: Host, tmp_path: Path) -> None:
    def body(workspace: Workspace) -> None:
        workspace.write_text("out/small", "1")
        workspace.write_bytes("out/large", b"2" * 100)

    kept = artifacts.layer(tmp_path / "artifacts")
    opened = open_world(host, tmp_path / "root", limits=WorkspaceLimits(inline_bytes=10), kept=kept)
    async with opened as world, await world.open() as transaction:
        accepted = (await transaction.execute(Boundary((), ("out/**",)), body)).unwrap()
        before = world.snapshot()
        for blob in glob.glob(f"{tmp_path}/artifacts/objects/*/*"):
            os.unlink(blob)
        assert error_of(await transaction.materialize(accepted))[0] == "not_found"
        assert world.snapshot() == before


@pytest.mark.parametrize(("host", "count", "most_ms"), [("memory", 10, 5), ("folder", 1_000, 250)])
async def test_f_01_opening_and_closing_is_not_slow(host: Host, count: int, most_ms: int) -> None:
    """The best of some rounds, in a folder in memory: it is what the work costs, and not what else the machine does."""
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER) as folder:
        async with open_world(host, Path(folder) / "root") as world:
            for number in range(count):
                world.write(f"many/{number}", "x" * 100)

            async def round_ms() -> float:
                begun = time.perf_counter()
                assert isinstance(await world.run(lambda _: 1, reads=("many/*",), writes=()), Success)
                return (time.perf_counter() - begun) * 1_000

            assert min([await round_ms() for _ in range(10)]) < most_ms


# --- names as they are --------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("names", "code"),
    [(("cafe\u0301",), "invalid_path"), (("con",), "invalid_path"), (("A.txt", "a.txt"), "name_collision")],
    ids=["u_02 not NFC", "u_07 a device", "u_03 two cases"],
)
async def test_names_that_a_pattern_finds_have_to_be_portable(
    host: Host, tmp_path: Path, names: tuple[str, ...], code: str
) -> None:
    for portable in (True, False):
        async with open_world(host, tmp_path / f"root{portable}", portable_names=portable) as world:
            for name in names:
                world.write(f"odd/{name}", "1")
            seeded = await world.run(lambda it: it.glob("odd/*"), reads=("odd/*",), writes=())
            if portable:
                assert error_of(seeded)[0] == code
            else:
                assert seeded.unwrap().output == [f"odd/{name}" for name in names]


async def test_u_06_a_file_system_that_folds_case_gives_no_other_files_bytes(tmp_path: Path) -> None:
    with case_folding(tmp_path) as folder:
        async with open_world("folder", folder) as world:
            world.write("Readme", "of another name")
            outcome = await world.run(lambda it: it.read_text("README"), reads=("README",), writes=())
            assert isinstance(outcome, Failure)


@contextmanager
def case_folding(tmp_path: Path) -> Generator[Path]:
    """A folder of which names are the same in upper and lower case; the test is skipped where there can be none."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    make = ["mkfs.ext4", "-q", "-O", "casefold", "-E", "encoding=utf8", str(image)]
    steps = (["truncate", "-s", "16M", str(image)], make, ["mount", "-o", "loop", str(image), str(mounted)])
    for step in steps:
        if shutil.which(step[0]) is None or subprocess.run(step, capture_output=True, check=False).returncode:
            pytest.skip(f"no file system that folds case can be made here: {' '.join(step[:1])} fails")
    try:
        folder = mounted / "root"
        folder.mkdir()
        _ = subprocess.run(["chattr", "+F", str(folder)], check=True)
        yield folder
    finally:
        _ = subprocess.run(["umount", str(mounted)], check=True)


@pytest.mark.parametrize("host", HOSTS)
async def test_u_07_names_are_free_where_they_need_not_be_portable(host: Host, tmp_path: Path) -> None:
    names = ("con", "nul.txt", "x.", "a:b", "A", "a")

    def body(workspace: Workspace) -> None:
        for name in names:
            workspace.write_text(f"out/{name}", name)

    async with open_world(host, tmp_path / "root", portable_names=False) as world:
        _ = await world.settle(body, writes=("out/**",))
        assert [world.read(f"out/{name}") for name in names] == [name.encode() for name in names]


# --- its absence --------------------------------------------------------------


async def test_a_13_sb8_and_b9_the_absent_sandbox_opens_nothing(tmp_path: Path) -> None:
    async with build(step_sandbox.layer_noop()) as built:
        sandbox = get(built.unwrap(), StepSandbox)
        for _ in range(3):
            refused = (await sandbox.open()).failure()
            assert isinstance(refused, UnsupportedBoundary)
            assert refused.code == "unsupported_boundary"
    assert os.listdir(tmp_path) == []


async def test_a_command_is_refused_in_memory(tmp_path: Path) -> None:
    async with open_world("memory", tmp_path) as world, await world.open() as transaction:
        assert error_of(await transaction.execute(Boundary(), Command(("true",))))[0] == "unsupported_boundary"


def test_the_layers_module_lists_what_it_loads_later() -> None:
    assert set(step_sandbox.__all__) <= set(dir(step_sandbox))


ELSEWHERE = """
import asyncio, os, sys

class NotHere:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "termios", "pwd", "grp"):
            raise ImportError(name)

sys.meta_path.insert(0, NotHere())
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY"):
    delattr(os, name)

from stepwell import WorkspaceRefusal, build, open
from stepwell.layers import artifacts, clock, step_sandbox

async def main():
    async with build(step_sandbox.layer(".") | artifacts.layer_test() | clock.layer_test()) as built:
        cause = built.failure().cause
        assert isinstance(cause, WorkspaceRefusal), cause
        print(cause.code, cause)

asyncio.run(main())
"""


def test_where_there_is_no_posix_a_folder_is_refused_and_all_else_can_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("host_unavailable a sandbox over a folder needs Linux")
