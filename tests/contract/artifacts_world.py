"""Artifacts on each host, with a clock that stands still, and with hands that reach behind the service."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Literal, Protocol, TypeAlias

import pytest

from stepwell import Artifacts, Clock, Failure, ManualClock, Unavailable, build, get
from stepwell.core.node import digest_of
from stepwell.layers import artifacts, clock
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.layers.files.folder import Durability

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LIMIT = 4 << 20
WAIT_S = 60

Host: TypeAlias = Literal["memory", "files"]
HOSTS: tuple[Host, ...] = ("memory", "files")


class Behind(Protocol):
    """What is kept, seen and damaged without the service."""

    def kept(self) -> dict[str, bytes]: ...
    def damage(self, digest: str, data: bytes) -> None: ...


@dataclass
class BehindMemory:
    artifacts: MemoryArtifacts

    def kept(self) -> dict[str, bytes]:
        return {digest: blob.data for digest, blob in self.artifacts.blobs.items()}

    def damage(self, digest: str, data: bytes) -> None:
        self.artifacts.blobs[digest].data = data


@dataclass
class BehindFiles:
    root: Path

    def path(self, digest: str) -> Path:
        return self.root / "objects" / digest[:2] / digest

    def kept(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.root.glob("objects/??/*")}

    def damage(self, digest: str, data: bytes) -> None:
        """Other bytes, and the time at which the file was last changed as it was."""
        path = self.path(digest)
        before = path.stat()
        path.chmod(0o600)
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def half_written(self) -> list[str]:
        return sorted(path.name for path in self.root.glob("temp/*"))


@dataclass
class World:
    artifacts: Artifacts
    clock: ManualClock
    behind: Behind

    async def put(self, data: bytes) -> str:
        digest = (await self.artifacts.put(data)).unwrap()
        assert digest == digest_of(data)
        return digest


@dataclass
class Meddler:
    """Sees every system call, and answers those that `refused` names, or that are about a name in it, in its stead."""

    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    refused: dict[str, OSError] = field(default_factory=dict[str, OSError])

    def __call__(self, call: str, name: str) -> None:
        self.seen.append((call, name))
        for each in (call, name, f"{call} {len(self.named(call))}"):
            if each in self.refused:
                raise self.refused[each]

    def named(self, call: str) -> list[str]:
        return [name for each, name in self.seen if each == call]


class Gate(io.BytesIO):
    """A file whose bytes come when the gate is opened."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reached = Event()
        self._open = Event()
        self.closed_while_read = False

    def read(self, size: int | None = -1, /) -> bytes:
        self._reached.set()
        assert self._open.wait(WAIT_S), "the loop never came to open the gate"
        self.closed_while_read = self.closed
        return super().read(size)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, WAIT_S)

    def open(self) -> None:
        self._open.set()


def refused(outcome: object, applied: str = "no") -> str:
    match outcome:
        case Failure(Unavailable(reason, said)):
            assert said == applied
            return reason
        case other:
            pytest.fail(f"not refused: {other}")


@asynccontextmanager
async def opened(
    host: Host, root: Path, *, on_call: Callable[[str, str], None] | None = None, durability: Durability = "required"
) -> AsyncGenerator[World]:
    made = ManualClock(NOW_MS)
    if host == "memory":
        layer = artifacts.layer_test(limit_bytes=LIMIT)
    else:
        layer = artifacts.layer(root, limit_bytes=LIMIT, on_call=on_call, durability=durability)
    async with build(layer | clock.layer_test(made)) as built:
        service = get(built.unwrap(), Artifacts)
        assert get(built.unwrap(), Clock) is made
        yield World(service, made, BehindMemory(service) if isinstance(service, MemoryArtifacts) else BehindFiles(root))
