"""Artifacts: immutable bytes by their digest.

What is there is what it says: bytes are hashed when they are put and again whenever they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from ..core.model import TooLarge, Unavailable
from ..core.node import is_digest
from ..core.outcome import Outcome

__all__ = [
    "GRACE_MS",
    "ArtifactCorruption",
    "ArtifactMissing",
    "Artifacts",
    "Collected",
    "InvalidDigest",
    "admit_bytes",
    "find_invalid",
]

GRACE_MS: Final = 14 * 24 * 3_600_000
"""How long what was put stays, in milliseconds, though nothing refers to it: whoever put it may be about to."""


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


def find_invalid(digests: Iterable[str]) -> InvalidDigest | None:
    """The first that is no digest."""
    return next((InvalidDigest(digest) for digest in digests if not is_digest(digest)), None)


def admit_bytes(data: object) -> None:
    """A TypeError for what a caller without types may give in place of bytes."""
    if not isinstance(data, bytes):
        raise TypeError(f"an artifact is bytes, not a {type(data).__name__}; encode it first")


class Artifacts(Protocol):
    """Every call may answer `Unavailable`: the host refused, and its text says what and why."""

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        """Keep the bytes, and give their digest. Bytes that are there already are verified, and healed if they are bad.

        When it answers, they are durable as far as the layer promises.
        """
        ...

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        """The same for what is read from a file, a piece at a time, from where it stands to its end.

        It may be read on another thread, which has let go of it when the call ends, also by cancellation. What reading
        raises passes through. `size_bytes` of `TooLarge` is how much had been read.
        """
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
        self, roots: Iterable[str], *, grace_ms: int = GRACE_MS, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        """Remove what is not among `roots` and was neither put nor put again within the last `grace_ms` milliseconds.

        What is put meanwhile stays. If one root is no digest, or the place cannot be read whole, nothing is removed;
        if the host refuses later, some of it may be (`applied="unknown"`). A negative `grace_ms` is a ValueError.
        """
        ...
