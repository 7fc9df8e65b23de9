"""Artifacts in a folder, in memory, and their absence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal, final

from ..core.model import TooLarge, Unavailable, check_whole
from ..core.node import digest_of
from ..core.outcome import Failure, Outcome, Success
from ..services.artifacts import (
    GRACE_MS,
    ArtifactCorruption,
    ArtifactMissing,
    Artifacts,
    Collected,
    InvalidDigest,
    admit_bytes,
    find_invalid,
)
from ..services.clock import Clock
from .layer import Layer, provides

__all__ = [
    "LIMIT_BYTES",
    "MemoryArtifacts",
    "MemoryBlob",
    "NoopArtifacts",
    "layer",
    "layer_noop",
    "layer_test",
]

LIMIT_BYTES: Final = 4 << 30
"""The largest artifact, in bytes, unless another limit is given."""

PIECE: Final = 1 << 20
"""How many bytes are moved at once."""


# --- in memory --------------------------------------------------------------


@dataclass(slots=True)
class MemoryBlob:
    """One artifact: its bytes, and when they were last put."""

    data: bytes
    put_at_ms: int


@final
class MemoryArtifacts:
    """Artifacts in memory. `blobs` may be looked at and damaged; whatever is in it is verified as a file would be."""

    def __init__(self, clock: Clock, limit_bytes: int = LIMIT_BYTES) -> None:
        self.blobs: dict[str, MemoryBlob] = {}
        self._clock = clock
        self._limit_bytes = limit_bytes

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        admit_bytes(data)
        if len(data) > self._limit_bytes:
            return Failure(TooLarge("an artifact", len(data), self._limit_bytes))
        digest = digest_of(data)
        self.blobs[digest] = MemoryBlob(data, self._clock.now_ms())
        return Success(digest)

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        read = bytearray()
        while piece := data.read(PIECE):
            read += piece
            if len(read) > self._limit_bytes:
                return Failure(TooLarge("an artifact", len(read), self._limit_bytes))
        return await self.put(bytes(read))

    async def get(
        self, digest: str
    ) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        blob = self.blobs.get(digest)
        if blob is None:
            return Failure(ArtifactMissing(digest))
        measured = digest_of(blob.data)
        return Success(blob.data) if measured == digest else Failure(ArtifactCorruption(digest, measured))

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        got = await self.get(digest)
        if isinstance(got, Failure):
            return got
        data = got.unwrap()
        for at in range(0, len(data), PIECE):
            _ = sink(data[at : at + PIECE])
        return Success(len(data))

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | Unavailable]:
        invalid = find_invalid([digest])
        return Success(digest in self.blobs) if invalid is None else Failure(invalid)

    async def find_missing(self, digests: Iterable[str]) -> Outcome[tuple[str, ...], InvalidDigest | Unavailable]:
        asked = tuple(dict.fromkeys(digests))
        invalid = find_invalid(asked)
        if invalid is not None:
            return Failure(invalid)
        return Success(tuple(digest for digest in asked if digest not in self.blobs))

    async def collect(
        self, roots: Iterable[str], *, grace_ms: int = GRACE_MS, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        kept = frozenset(roots)
        before_ms = self._clock.now_ms() - check_whole("grace_ms", grace_ms, 0)
        invalid = find_invalid(kept)
        if invalid is not None:
            return Failure(invalid)
        unused = sorted(each for each, blob in self.blobs.items() if each not in kept and blob.put_at_ms < before_ms)
        collected = Collected(
            tuple(unused), sum(len(self.blobs[each].data) for each in unused), len(self.blobs) - len(unused)
        )
        if not dry_run:
            for digest in unused:
                del self.blobs[digest]
        return Success(collected)


# --- absent -----------------------------------------------------------------


_ABSENT: Final = Failure(Unavailable("this application keeps no artifacts; give it artifacts.layer(root)", "no"))


@final
class NoopArtifacts:
    """No artifacts: nothing is kept, and nothing is said to be there or to be missing."""

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        return _ABSENT

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        return _ABSENT

    async def get(
        self, digest: str
    ) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        return _ABSENT

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        return _ABSENT

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | Unavailable]:
        return _ABSENT

    async def find_missing(self, digests: Iterable[str]) -> Outcome[tuple[str, ...], InvalidDigest | Unavailable]:
        return _ABSENT

    async def collect(
        self, roots: Iterable[str], *, grace_ms: int = GRACE_MS, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        return _ABSENT


# --- layers -----------------------------------------------------------------


def layer(
    root: str | os.PathLike[str],
    *,
    durability: Literal["required", "best-effort"] = "required",
    limit_bytes: int = LIMIT_BYTES,
    on_call: Callable[[str, str], None] | None = None,
) -> Layer[Artifacts, Clock]:
    """Artifacts in the folder `root`, which is made, for its owner alone, when the first one is put.

    With `durability` "required" what is put survives the power going off, or it is `Unavailable`; with "best-effort" a
    disk that cannot promise that is good enough. `limit_bytes` is the size of the largest artifact. `on_call` is called
    before each system call with its name and the name that it is about, for tests; an OSError it raises is the answer.
    """
    path = os.path.abspath(root)

    @provides
    def recipe(clock: Clock) -> Iterator[Artifacts]:
        # Here, because most applications keep no artifacts, and need not wait for these.
        from .files.artifacts import FileArtifacts
        from .files.blobs import Blobs
        from .files.folder import Folder
        from .workspace.calls import SystemCalls

        folder = Folder(path, SystemCalls() if on_call is None else SystemCalls(on_call), durability)
        yield FileArtifacts(Blobs(folder, clock, limit_bytes), path)

    return recipe


def layer_test(*, limit_bytes: int = LIMIT_BYTES) -> Layer[Artifacts, Clock]:
    """Artifacts in memory, as `MemoryArtifacts`. What is read from and written to is so on the event loop."""

    @provides
    def recipe(clock: Clock) -> Iterator[Artifacts]:
        yield MemoryArtifacts(clock, limit_bytes)

    return recipe


def layer_noop() -> Layer[Artifacts, Artifacts]:
    """No artifacts: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[Artifacts]:
        yield NoopArtifacts()

    return recipe
