"""Processes that end by SIGKILL while they put an artifact, and disks that are full."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

from stepwell import ArtifactMissing, Artifacts, Failure, ManualClock, Success, build, get
from stepwell.core.node import digest_of
from stepwell.layers import artifacts, clock

from ..contract.artifacts_world import BehindFiles
from .artifacts_child import DATA

EVERY = 1 if os.environ.get("STEPWELL_SOAK") else 4
"""Of so many system calls of a put one is the last of its process."""

FAR_MS = 4_000_000_000_000
"""When everything that was left behind is old."""

State = Literal["absent", "healthy", "damaged"]


async def prepare(root: Path, before: State) -> None:
    if before == "absent":
        return
    async with build(artifacts.layer(root) | clock.layer()) as built:
        digest = (await get(built.unwrap(), Artifacts).put(DATA)).unwrap()
    if before == "damaged":
        BehindFiles(root).damage(digest, DATA[:-1])


def put(root: Path, how: str, last: int) -> tuple[int, str]:
    script = Path(__file__).with_name("artifacts_child.py")
    words = [sys.executable, str(script), str(root), how, str(last)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    return ended.returncode, ended.stdout.strip()


async def recovered(root: Path, before: State) -> None:
    """What is there is what it says, or was damaged before; it can be put; and what was left behind goes."""
    digest, behind = digest_of(DATA), BehindFiles(root)
    async with build(artifacts.layer(root) | clock.layer_test(ManualClock(FAR_MS))) as built:
        service = get(built.unwrap(), Artifacts)
        found = await service.get(digest)
        if isinstance(found, Failure):
            assert before == "damaged" or found == Failure(ArtifactMissing(digest))
            assert before != "healthy"
        assert await service.put(DATA) == Success(digest)
        assert await service.get(digest) == Success(DATA)
    assert behind.half_written() == []


@pytest.mark.parametrize("before", ["absent", "healthy", "damaged"])
@pytest.mark.parametrize("how", ["whole", "streamed"])
async def test_a_process_killed_while_it_puts(how: str, before: State, tmp_path: Path) -> None:
    code = -signal.SIGKILL
    for number in count():
        root = tmp_path / str(number)
        await prepare(root, before)
        code, said = put(root, how, 1 + number * EVERY)
        if code == 0:
            assert said == digest_of(DATA)
            assert number > 3
            break
        assert (code, said) == (-signal.SIGKILL, "")
        await recovered(root, before)


FULL_DISK = """
import asyncio, io, sys
from pathlib import Path
from stepwell import Failure, Unavailable
from tests.contract.artifacts_world import BehindFiles, opened

async def main(root: Path) -> None:
    async with opened("files", root) as world:
        digest = await world.put(b"before")
        for put in (world.artifacts.put(bytes(2 << 20)), world.artifacts.put_stream(io.BytesIO(bytes(2 << 20)))):
            match await put:
                case Failure(Unavailable(reason, "no")):
                    assert "No space left on device" in reason, reason
                case other:
                    raise AssertionError(other)
        assert BehindFiles(root).half_written() == []
        assert BehindFiles(root).kept() == {digest: b"before"}
        _ = await world.put(bytes(1 << 19))
    print("went on")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_full_file_system(tmp_path: Path) -> None:
    """A small one, mounted where only the child sees it."""
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*alone, mount], capture_output=True).returncode:
        pytest.skip("nobody may mount on this host; the contract lets the same calls fail")
    ended = subprocess.run(
        [*alone, f'{mount} && exec "$0" -c "$1" {tmp_path}/kept', sys.executable, FULL_DISK],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, "went on\n"), ended.stderr
