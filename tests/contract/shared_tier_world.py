"""A shared tier on each host, as two machines have it, with hands that reach behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import pytest

from stepwell import Clock, Failure, Layer, ManualClock, Outcome, RecordedRef, build, get
from stepwell.core.shared_row import OtherKey, row_name
from stepwell.core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, InvalidEntry
from stepwell.layers import clock, shared_tier
from stepwell.layers.shared_tier import MemoryTier
from stepwell.services.artifacts import ArtifactCorruption, ArtifactMissing, InvalidDigest
from stepwell.services.shared_tier import SharedTier, TierFailure

from .cache_server import NGINX, nginx, serving

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20
KEY = "key1_" + "0" * 64
ENFORCED = {"evidence": "enforced"}

Host: TypeAlias = Literal["memory", "folder", "http", "nginx"]
HOSTS: dict[str, Host] = {"memory": "memory", "folder": "folder", "http": "http", "nginx": "nginx"}


def entry(result: object = "ok", *, key: str = KEY, run: str = "run-1", seq: int = 3, **meta: object) -> CacheEntry:
    return CacheEntry(RecordedRef(key, run, seq), result, {**ENFORCED, **meta}, NOW_MS)


# --- hands ------------------------------------------------------------------


@dataclass
class Behind:
    """What is kept, seen and damaged without the tier."""

    rows: Callable[[], dict[str, bytes]]
    write: Callable[[Literal["ac", "cas"], str, bytes], None]

    def damage_row(self, key: str, data: bytes) -> None:
        self.write("ac", key, data)

    def damage_blob(self, digest: str, data: bytes) -> None:
        self.write("cas", digest, data)


def behind_memory(tier: MemoryTier) -> Behind:
    def write(kind: Literal["ac", "cas"], name: str, data: bytes) -> None:
        (tier.rows if kind == "ac" else tier.blobs)[name] = data

    return Behind(lambda: {row_name(key): data for key, data in tier.rows.items()}, write)


def behind_mapping(kept: dict[str, bytes]) -> Behind:
    def write(kind: Literal["ac", "cas"], name: str, data: bytes) -> None:
        kept[f"/{kind}/{row_name(name) if kind == 'ac' else name}"] = data

    return Behind(lambda: {path[4:]: data for path, data in kept.items() if path.startswith("/ac/")}, write)


def behind_folder(place: Callable[[Literal["ac", "cas"], str], Path], rows: Callable[[], Iterator[Path]]) -> Behind:
    def write(kind: Literal["ac", "cas"], name: str, data: bytes) -> None:
        path = place(kind, row_name(name) if kind == "ac" else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    return Behind(lambda: {path.name: path.read_bytes() for path in rows()}, write)


# --- worlds -----------------------------------------------------------------


@dataclass
class World:
    tier: SharedTier
    other: SharedTier
    clock: ManualClock
    behind: Behind


@asynccontextmanager
async def opened(layer: Layer[SharedTier, Clock], on: ManualClock) -> AsyncGenerator[SharedTier]:
    async with build(layer | clock.layer_test(on)) as built:
        yield get(built.unwrap(), SharedTier)


Place: TypeAlias = tuple[Behind, Callable[[], Layer[SharedTier, Clock]]]
"""A tier's place, and the layer of one more machine that uses it."""


def place_of(host: Host, root: Path, stack: AsyncExitStack) -> Place:
    match host:
        case "memory":
            memory = MemoryTier(LIMIT)
            return behind_memory(memory), lambda: shared_tier.layer_test(memory)
        case "folder":
            kinds = {"ac": "rows", "cas": "blobs"}
            behind = behind_folder(
                lambda kind, name: root / kinds[kind] / "objects" / name[:2] / name,
                lambda: root.glob("rows/objects/??/*"),
            )
            return behind, lambda: shared_tier.layer_folder(root, limit_bytes=LIMIT)
        case "http":
            server = stack.enter_context(serving())
            return behind_mapping(server.kept), lambda: _layer_http(server.url)
        case "nginx":
            if NGINX is None:
                pytest.skip("there is no nginx here")
            url = stack.enter_context(nginx(root))
            behind = behind_folder(lambda kind, name: root / "kept" / kind / name, lambda: root.glob("kept/ac/*"))
            return behind, lambda: _layer_http(url)


def _layer_http(url: str) -> Layer[SharedTier, Clock]:
    return shared_tier.layer_http(url, limit_bytes=LIMIT, proxies={})


@asynccontextmanager
async def world_of(host: Host, root: Path) -> AsyncGenerator[World]:
    manual = ManualClock(NOW_MS)
    async with AsyncExitStack() as stack:
        behind, layer = place_of(host, root, stack)
        tier = await stack.enter_async_context(opened(layer(), manual))
        yield World(tier, await stack.enter_async_context(opened(layer(), manual)), manual, behind)


# --- a tier that is watched ---------------------------------------------------


@dataclass
class WatchedTier:
    """A tier in memory that tells what it was asked, and that can be out of order.

    `down` is the answer to every call; to one alone if it is named in `only`. `meanwhile` happens within a `find`.
    """

    inner: MemoryTier = field(default_factory=MemoryTier)
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    down: TierFailure | None = None
    only: str | None = None
    loses: bool = False
    meanwhile: Callable[[], Awaitable[object]] | None = None

    def _asked(self, call: str, about: str) -> TierFailure | None:
        self.calls.append((call, about))
        return self.down if self.only in (None, call) else None

    def named(self, call: str) -> list[str]:
        return [about for each, about in self.calls if each == call]

    async def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierFailure]:
        down = self._asked("find", key)
        found = await self.inner.find(key)
        if self.meanwhile is not None:
            _ = await self.meanwhile()
        return found if down is None else Failure(down)

    async def publish(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        down = self._asked("publish", entry.ref.key_digest)
        return await self.inner.publish(entry) if down is None else Failure(down)

    async def withdraw(self, key: str) -> Outcome[bool, TierFailure]:
        down = self._asked("withdraw", key)
        return await self.inner.withdraw(key) if down is None else Failure(down)

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure]:
        down = self._asked("copy", digest)
        return await self.inner.copy(digest, sink) if down is None else Failure(down)

    async def put(
        self, digest: str, source: BinaryIO
    ) -> Outcome[None, ArtifactCorruption | InvalidDigest | TierFailure]:
        down = self._asked("put", digest)
        if down is not None:
            return Failure(down)
        put = await self.inner.put(digest, source)
        if self.loses:
            self.inner.blobs.clear()
        return put

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | TierFailure]:
        down = self._asked("has", digest)
        return await self.inner.has(digest) if down is None else Failure(down)
