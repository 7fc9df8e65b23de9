"""Artifacts: immutable bytes by their digest.

What is there is what it says: bytes are hashed when they are put and again whenever they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from ..core.model import TooLarge, Unavailable
from ..core.outcome import Outcome

__all__ = ["ArtifactCorruption", "ArtifactMissing", "Artifacts", "Collected", "InvalidDigest"]


@dataclass(frozen=True, slots=True)
class ArtifactMissing:
    """There are no such bytes."""

    digest: str


@dataclass(frozen=True, slots=True)
class ArtifactCorruption:
    """The bytes under this digest have another one: the disk, or somebody, changed them. Putting them again heals."""

    digest: str
    measured: str | None = None


@dataclass(frozen=True, slots=True)
class InvalidDigest:
    """What was asked for is no digest: 64 lower-case hex digits of SHA-256. Nothing was looked for."""

    digest: str


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed, or with `dry_run` would remove, and what it left."""

    removed: tuple[str, ...]
    removed_bytes: int
    kept: int


class Artifacts(Protocol):
    """Every call may answer `Unavailable`: the host refused, and its text says what and why."""

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        """Keep the bytes, and give their digest. Bytes that are there already are verified, and healed if they are bad.

        When it answers, they are durable as far as the layer promises.
        """
        ...

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        """The same for what is read from a file, a piece at a time, from where it stands to its end."""
        ...

    async def get(
        self, digest: str
    ) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        """The bytes, verified."""
        ...

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        """Hand the bytes to `sink` a piece at a time, and give their number.

        Only the answer tells that they were the right ones: on a failure, throw away what `sink` was given. It may be
        called on another thread; what it raises passes through.
        """
        ...

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | Unavailable]:
        """Whether there are such bytes; they are not read."""
        ...

    async def find_missing(self, digests: Iterable[str]) -> Outcome[tuple[str, ...], InvalidDigest | Unavailable]:
        """Those of which there are no bytes, each once, in the order of first mention. None asked, nobody is asked."""
        ...

    async def collect(
        self, roots: Iterable[str], *, grace_ms: int = 14 * 24 * 3_600_000, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        """Remove what is not among `roots` and was neither put nor put again within the last `grace_ms` milliseconds.

        What is put meanwhile stays. If one root is no digest, or the place cannot be read whole, nothing is removed.
        """
        ...
