"""A shared tier in a folder, over HTTP, in memory, and its absence."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final, final

from ..core.breaker import BreakerRule
from ..core.cache_entry import check_key
from ..core.model import TooLarge, Unavailable
from ..core.node import digest_of
from ..core.outcome import Failure, Outcome, Success
from ..core.shared_row import ROW_BYTES, OtherKey, read_row, same_result, write_row
from ..core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, InvalidEntry
from ..services.artifacts import ArtifactCorruption, ArtifactMissing, InvalidDigest, find_invalid
from ..services.clock import Clock
from ..services.shared_tier import SharedTier, TierFailure
from .layer import Layer, provides

if TYPE_CHECKING:
    from .files.folder import Durability

__all__ = [
    "LIMIT_BYTES",
    "MemoryTier",
    "NoopTier",
    "layer",
    "layer_folder",
    "layer_http",
    "layer_noop",
    "layer_test",
]

LIMIT_BYTES: Final = 4 << 30
"""The largest artifact that is taken from a tier or given to it, in bytes, unless another limit is given."""

TIMEOUT_S: Final = 10.0
"""How long a server may take to answer, unless another time is given."""

CONNECTIONS: Final = 8

_PIECE: Final = 1 << 20
_IS_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


# --- in memory --------------------------------------------------------------


@final
@dataclass(slots=True)
class MemoryTier:
    """A shared tier in memory; several applications of one process may be given the same one.

    `rows` and `blobs` may be looked at and damaged; whatever is in them is verified as what a server sends would be.
    """

    limit_bytes: int = LIMIT_BYTES
    rows: dict[str, bytes] = field(default_factory=dict[str, bytes])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])

    async def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierFailure]:
        data = self.rows.get(check_key(key))
        if data is None:
            return Success(None)
        if len(data) > ROW_BYTES:
            return Failure(TooLarge("a shared row", len(data), ROW_BYTES))
        read = read_row(data, key)
        return Success(read) if isinstance(read, CacheEntry) else Failure(read)

    async def publish(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        data = write_row(entry)
        if isinstance(data, InvalidEntry):
            return Failure(data)
        found = await self.find(entry.ref.key_digest)
        if isinstance(found, Success) and (there := found.unwrap()) is not None:
            same = same_result(there, entry)
            return Success(ExistingSame(there.ref)) if same else Failure(CacheConflict(there.ref))
        self.rows[entry.ref.key_digest] = data
        return Success(Inserted(entry.ref))

    async def withdraw(self, key: str) -> Outcome[bool, TierFailure]:
        return Success(self.rows.pop(check_key(key), None) is not None)

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        data = self.blobs.get(digest)
        if data is None:
            return Failure(ArtifactMissing(digest))
        if len(data) > self.limit_bytes:
            return Failure(TooLarge("an artifact", len(data), self.limit_bytes))
        for at in range(0, len(data), _PIECE):
            _ = sink(data[at : at + _PIECE])
        measured = digest_of(data)
        return Success(len(data)) if measured == digest else Failure(ArtifactCorruption(digest, measured))

    async def put(
        self, digest: str, source: BinaryIO
    ) -> Outcome[None, ArtifactCorruption | InvalidDigest | TierFailure]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        data = source.read()
        measured = digest_of(data)
        if measured != digest:
            return Failure(ArtifactCorruption(digest, measured))
        if len(data) > self.limit_bytes:
            return Failure(TooLarge("an artifact", len(data), self.limit_bytes))
        self.blobs[digest] = data
        return Success(None)

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | TierFailure]:
        invalid = find_invalid([digest])
        return Success(digest in self.blobs) if invalid is None else Failure(invalid)


# --- absent -----------------------------------------------------------------


_ABSENT: Final = Failure(Unavailable("this application has no shared tier; give it shared_tier.layer(place)", "no"))


@final
class NoopTier:
    """No shared tier: nothing is found, and nothing is said to be missing."""

    async def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierFailure]:
        return _ABSENT

    async def publish(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        return _ABSENT

    async def withdraw(self, key: str) -> Outcome[bool, TierFailure]:
        return _ABSENT

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure]:
        return _ABSENT

    async def put(
        self, digest: str, source: BinaryIO
    ) -> Outcome[None, ArtifactCorruption | InvalidDigest | TierFailure]:
        return _ABSENT

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | TierFailure]:
        return _ABSENT


# --- layers -----------------------------------------------------------------


def layer(place: str | os.PathLike[str]) -> Layer[SharedTier, Clock]:
    """The tier at an address, `http://` or `https://`, as `layer_http` has it, or else in a folder."""
    if isinstance(place, str) and _IS_URL.match(place):
        return layer_http(place)
    return layer_folder(place)


def layer_folder(
    root: str | os.PathLike[str],
    *,
    durability: Durability = "best-effort",
    limit_bytes: int = LIMIT_BYTES,
    on_call: Callable[[str, str], None] | None = None,
) -> Layer[SharedTier, Clock]:
    """A tier in the folder `root`, which is made, for its owner alone, when the first row or artifact is given.

    With `durability` "required" what is published survives the power going off, or it is `Unavailable`. `on_call` is
    called before each system call with its name and the name that it is about, for tests.
    """
    path = os.path.abspath(root)

    @provides
    def recipe(clock: Clock) -> Iterator[SharedTier]:
        # Here, because most applications have no shared tier, and need not wait for these.
        from .files.artifacts import FileArtifacts
        from .files.blobs import Blobs
        from .files.folder import Folder
        from .shared.folder import FolderTier, Rows
        from .workspace.calls import SystemCalls

        calls = SystemCalls() if on_call is None else SystemCalls(on_call)
        blobs = Folder(os.path.join(path, "blobs"), calls, durability)
        rows = Folder(os.path.join(path, "rows"), calls, durability)
        kept = FileArtifacts(Blobs(blobs, clock, limit_bytes), blobs.root)
        yield FolderTier(kept, Rows(rows), path, blobs, limit_bytes)

    return recipe


def layer_http(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_S,
    limit_bytes: int = LIMIT_BYTES,
    connections: int = CONNECTIONS,
    pauses: BreakerRule | None = None,
    proxies: Mapping[str, str] | None = None,
) -> Layer[SharedTier, Clock]:
    """A tier on a server that speaks the HTTP cache protocol of Bazel: `/ac/<64 hex>` and `/cas/<sha256>` below `url`.

    `headers` go with every request; a name and password in `url` make an Authorization. Neither is ever sent to another
    host, nor told in a failure. `timeout` is in seconds, for a whole answer; an artifact may take longer by its size.
    `pauses` says after how many calls without an answer the server is left alone, and how long. `proxies` are by scheme
    as urllib has them; without, those of the environment. What is no such URL or header is a ValueError here.
    """
    from .shared.connection import Connections
    from .shared.endpoint import endpoint_of
    from .shared.http_tier import HttpTier

    endpoint = endpoint_of(url, headers or {}, proxies)
    timeout_ms = round(timeout * 1000)
    if timeout_ms <= 0 or connections <= 0:
        raise ValueError("`timeout` and `connections` of a shared tier are above 0")

    @provides
    async def recipe(clock: Clock) -> AsyncIterator[SharedTier]:
        opened = Connections(endpoint, clock, timeout_ms, connections, pauses or BreakerRule())
        try:
            yield HttpTier(opened, limit_bytes)
        finally:
            opened.close()

    return recipe


def layer_test(tier: MemoryTier | None = None) -> Layer[SharedTier, Clock]:
    """A tier in memory: `tier`, which others may be given too, or one of its own."""

    @provides
    def recipe(_: Clock) -> Iterator[SharedTier]:
        yield MemoryTier() if tier is None else tier

    return recipe


def layer_noop() -> Layer[SharedTier, SharedTier]:
    """No shared tier: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[SharedTier]:
        yield NoopTier()

    return recipe
