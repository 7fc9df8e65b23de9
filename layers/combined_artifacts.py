"""Artifacts that are kept here, and brought from a shared tier where they are not.

They are put here only. What is to be there for others is published by name (`publish`); what a result names is fetched
before it is needed (`hydrate`), or when it is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, final

from ..core.model import TooLarge, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..services.artifacts import GRACE_MS, ArtifactCorruption, ArtifactMissing, Artifacts, Collected, InvalidDigest
from ..services.clock import Clock
from ..services.shared_tier import SharedTier, Unpublished
from .artifacts import LIMIT_BYTES, MemoryArtifacts
from .layer import Layer, provides
from .shared.publication import Fetched, Turns, fetch, hydrate, share, told

if TYPE_CHECKING:
    from .files.folder import Durability

__all__ = ["CombinedArtifacts", "layer", "layer_test"]


@final
class CombinedArtifacts:
    """Artifacts here, with a shared tier behind them. `has`, `find_missing` and `collect` are about what is here."""

    def __init__(self, local: Artifacts, tier: SharedTier) -> None:
        self._local = local
        self._tier = tier
        self._fetching = Turns()
        self._sending = Turns()

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        return await self._local.put(data)

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        return await self._local.put_stream(data)

    async def get(
        self, digest: str
    ) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        got = await self._local.get(digest)
        if isinstance(got, Success) or not isinstance(why := got.failure(), ArtifactMissing | ArtifactCorruption):
            return got
        fetched = await self._fetch(digest)
        return Failure(_why(why, fetched.failure())) if isinstance(fetched, Failure) else await self._local.get(digest)

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        """As `Artifacts.copy`. What is damaged here is healed, and a failure once: `sink` has been given some of it."""
        copied = await self._local.copy(digest, sink)
        if isinstance(copied, Success) or not isinstance(why := copied.failure(), ArtifactMissing | ArtifactCorruption):
            return copied
        fetched = await self._fetch(digest)
        if isinstance(fetched, Failure):
            return Failure(_why(why, fetched.failure()))
        return copied if isinstance(why, ArtifactCorruption) else await self._local.copy(digest, sink)

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | Unavailable]:
        return await self._local.has(digest)

    async def find_missing(self, digests: Iterable[str]) -> Outcome[tuple[str, ...], InvalidDigest | Unavailable]:
        return await self._local.find_missing(digests)

    async def collect(
        self, roots: Iterable[str], *, grace_ms: int = GRACE_MS, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        return await self._local.collect(roots, grace_ms=grace_ms, dry_run=dry_run)

    # --- the shared tier ----------------------------------------------------

    async def publish(self, digests: Iterable[str]) -> Outcome[None, Unpublished]:
        """See to it that the shared tier has these. What it has is not sent; what it then still has not is a failure.

        A digest is sent once at a time: a second caller waits, and sends it only if the first one did not come through.
        """
        return await share(self._tier, self._local, digests, self._sending)

    async def hydrate(self, digests: Iterable[str]) -> bool:
        """See to it that these are here: whether they all are. What does not work is no failure."""
        return await hydrate(self._tier, self._local, digests)

    async def _fetch(self, digest: str) -> Outcome[None, Fetched]:
        """Bring it here, once for all who ask for it at a time."""
        turn = self._fetching.of(digest)
        is_second = turn.locked()
        async with turn:
            if is_second and await self._local.has(digest) == Success(True):
                return Success(None)
            return await fetch(self._tier, self._local, digest)


def _why(
    local: ArtifactMissing | ArtifactCorruption, fetched: Fetched
) -> ArtifactMissing | ArtifactCorruption | Unavailable:
    """What is told of bytes that are not right here, and did not come from the tier either."""
    if isinstance(local, ArtifactCorruption) or isinstance(fetched, ArtifactMissing):
        return local
    if isinstance(fetched, ArtifactCorruption | Unavailable):
        return fetched
    if isinstance(fetched, TooLarge):
        text = f"artifact {local.digest} is not here, and comes with {fetched.size_bytes} bytes"
        return Unavailable(f"{text}: at most {fetched.limit_bytes} are taken", "no")
    return Unavailable(f"artifact {local.digest} is not here, and did not come: {told(fetched)}", "no")


# --- layers -----------------------------------------------------------------


def layer(
    root: str | os.PathLike[str], *, durability: Durability = "required", limit_bytes: int = LIMIT_BYTES
) -> Layer[Artifacts, Clock | SharedTier]:
    """Artifacts in the folder `root`, as `artifacts.layer` has them, with the shared tier behind them."""
    path = os.path.abspath(root)

    @provides
    def recipe(clock: Clock, tier: SharedTier) -> Iterator[Artifacts]:
        from .files.artifacts import FileArtifacts
        from .files.blobs import Blobs
        from .files.folder import Folder
        from .workspace.calls import SystemCalls

        yield CombinedArtifacts(
            FileArtifacts(Blobs(Folder(path, SystemCalls(), durability), clock, limit_bytes), path), tier
        )

    return recipe


def layer_test(*, limit_bytes: int = LIMIT_BYTES) -> Layer[Artifacts, Clock | SharedTier]:
    """The same over artifacts in memory."""

    @provides
    def recipe(clock: Clock, tier: SharedTier) -> Iterator[Artifacts]:
        yield CombinedArtifacts(MemoryArtifacts(clock, limit_bytes), tier)

    return recipe
