"""The shared tier: rows of the step cache, and the bytes that they name, where several machines find them.

It is a help and never the truth: whatever it answers is verified, and whatever it does not answer is a miss. A row is
published after all the bytes that it names, so that whoever finds it finds them too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol, TypeAlias, runtime_checkable

from ..core.model import TooLarge, Unavailable
from ..core.outcome import Outcome
from ..core.shared_row import OtherKey, TierNonsense
from ..core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, InvalidEntry, RecordedRef
from .artifacts import ArtifactCorruption, ArtifactMissing, InvalidDigest

__all__ = [
    "OtherKey",
    "SharedTier",
    "SharingStepCache",
    "Stage",
    "TierFailure",
    "TierNonsense",
    "TierRefused",
    "TooLarge",
    "Unavailable",
    "Unpublished",
]


@dataclass(frozen=True, slots=True)
class TierRefused:
    """The tier is there and will not do it: the credentials are wrong, it is read-only, it sends us to another host.

    `status` is that of HTTP, where there is one. Asking again gives the same.
    """

    message: str
    status: int | None = None


TierFailure: TypeAlias = Unavailable | TierRefused | TierNonsense | TooLarge
"""What every call can meet. `Unavailable`: it is down, it answered too late, or it is left alone for a while.

`TooLarge` is what it announced, or was given; in either case not a byte was moved.
"""

Stage: TypeAlias = Literal["evidence", "blobs", "row"]


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A row is not in the shared tier, and how far it came. Nothing is lost: it is kept where it was recorded.

    "evidence": it may not be shared. "blobs": not all bytes that it names are there. "row": it was not taken itself;
    `conflict` is the row that the tier has instead, with another result.
    """

    stage: Stage
    message: str
    conflict: RecordedRef | None = None


class SharedTier(Protocol):
    """A key that no row can have is a ValueError, and nobody is asked."""

    async def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierFailure]:
        """The row of a key, verified, or None if the tier has none."""
        ...

    async def publish(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        """Give the tier a row. The first one stays; a damaged one is replaced.

        Two that are published at one moment may both be told that they are in, if the tier cannot tell them apart.
        After `Unavailable` with `applied="unknown"` it may be there all the same; giving it again does no harm.
        """
        ...

    async def withdraw(self, key: str) -> Outcome[bool, TierFailure]:
        """Take a row out of the tier, for everybody: whether there was one. The bytes that it names stay."""
        ...

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure]:
        """Hand the bytes of a digest to `sink` a piece at a time, and give their number.

        Only the answer tells that they were the right ones. `sink` may be called on another thread, and is not called
        any more when the call has ended, also by cancellation; what it raises passes through.
        """
        ...

    async def put(
        self, digest: str, source: BinaryIO
    ) -> Outcome[None, ArtifactCorruption | InvalidDigest | TierFailure]:
        """Give the tier the bytes that can be read, and read again, from where `source` stands to its end.

        If they are not those of the digest nothing is sent. `source` may be read on another thread, which has let go
        of it when the call ends; what reading it raises passes through.
        """
        ...

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | TierFailure]:
        """Whether the tier says that it has the bytes; they are not read."""
        ...


@runtime_checkable
class SharingStepCache(Protocol):
    """A step cache over a shared tier. Whoever records a row there by a batch publishes it afterwards."""

    @property
    def tier(self) -> SharedTier: ...
