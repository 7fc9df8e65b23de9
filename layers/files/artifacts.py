"""Artifacts in a folder, beside the event loop: what is asked of a thread, and what the host's refusals become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar, final

from ...core.model import TooLarge, Unavailable, check_whole
from ...core.outcome import Failure, Outcome, Success
from ...services.artifacts import (
    GRACE_MS,
    ArtifactCorruption,
    ArtifactMissing,
    Collected,
    InvalidDigest,
    admit_bytes,
    find_invalid,
)
from ..workspace.pinned import PIECE
from .beside import Check, in_thread
from .blobs import Blobs, Unsettled

__all__ = ["FileArtifacts"]

_T = TypeVar("_T")
_E = TypeVar("_E")


@final
class _Theirs(Exception):
    """What a caller's own function raised, which is no refusal of the host, whatever its class."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    def read() -> bytes:
        try:
            return source.read(PIECE)
        except Exception as error:
            raise _Theirs(error) from error

    while piece := read():
        yield piece


@final
class FileArtifacts:
    """Artifacts in a folder, which may be shared with other processes. All work is done on threads.

    Cancelling a call waits until its thread has let go of what it was given, and leaves nothing half written behind.
    """

    def __init__(self, blobs: Blobs, root: str) -> None:
        self._blobs = blobs
        self._root = root

    async def put(self, data: bytes) -> Outcome[str, TooLarge | Unavailable]:
        admit_bytes(data)
        return await self._answer("keep an artifact", lambda check: self._blobs.put(data, check))

    async def put_stream(self, data: BinaryIO) -> Outcome[str, TooLarge | Unavailable]:
        return await self._answer("keep an artifact", lambda check: self._blobs.put_stream(_pieces(data), check))

    async def get(
        self, digest: str
    ) -> Outcome[bytes, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        pieces: list[bytes] = []
        copied = await self._read(digest, pieces.append)
        return Success(b"".join(pieces)) if isinstance(copied, Success) else copied

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        def take(piece: bytes) -> None:
            try:
                _ = sink(piece)
            except Exception as error:
                raise _Theirs(error) from error

        return await self._read(digest, take)

    async def _read(
        self, digest: str, take: Callable[[bytes], None]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | Unavailable]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        return await self._answer(f"read artifact {digest}", lambda check: self._blobs.read(digest, take, check))

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | Unavailable]:
        missing = await self.find_missing([digest])
        return missing if isinstance(missing, Failure) else Success(not missing.unwrap())

    async def find_missing(self, digests: Iterable[str]) -> Outcome[tuple[str, ...], InvalidDigest | Unavailable]:
        asked = tuple(dict.fromkeys(digests))
        if (invalid := find_invalid(asked)) is not None:
            return Failure(invalid)
        if not asked:
            return Success(())
        return await self._answer("look for artifacts", lambda check: Success(self._blobs.find_missing(asked, check)))

    async def collect(
        self, roots: Iterable[str], *, grace_ms: int = GRACE_MS, dry_run: bool = False
    ) -> Outcome[Collected, InvalidDigest | Unavailable]:
        kept, grace_ms = frozenset(roots), check_whole("grace_ms", grace_ms, 0)
        if (invalid := find_invalid(kept)) is not None:
            return Failure(invalid)
        return await self._answer(
            "collect artifacts", lambda check: Success(self._blobs.collect(kept, grace_ms, dry_run, check))
        )

    async def _answer(self, what: str, work: Callable[[Check], Outcome[_T, _E]]) -> Outcome[_T, _E | Unavailable]:
        try:
            return await in_thread(work)
        except _Theirs as raised:
            error = raised.error
        except Unsettled as unsettled:
            return Failure(Unavailable(f"could not {what} in {self._root}: {unsettled.error}", "unknown"))
        except OSError as refused:
            return Failure(Unavailable(f"could not {what} in {self._root}: {refused}", "no"))
        raise error
