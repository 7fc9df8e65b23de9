"""A shared tier on a server that speaks the HTTP cache protocol of Bazel.

    GET HEAD PUT DELETE <url>/ac/<64 hex>     the document of a row, named by the SHA-256 of its key
    GET HEAD PUT        <url>/cas/<64 hex>    bytes, named by their SHA-256

Any server will do that keeps what is PUT and gives it back. The protocol has no first writer: a row is looked for
before it is put, and put with `If-None-Match: *`, which a server may honour. Redirects are followed on the same server
only.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO, Final, final

from ...core.cache_entry import check_key
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.shared_row import ROW_BYTES, OtherKey, TierNonsense, read_row, row_name, same_result, write_row
from ...core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, InvalidEntry
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, InvalidDigest, find_invalid
from ...services.shared_tier import TierFailure, TierRefused
from ..files.beside import in_thread
from .connection import Answer, Connections, Request
from .measure import Theirs, measure

__all__ = ["HttpTier"]

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_MOST_REDIRECTS: Final = 3
_NOT_FOUND: Final = (404, 410)
_TAKEN: Final = (409, 412)


@final
class HttpTier:
    """A shared tier over the connections to one server."""

    def __init__(self, connections: Connections, limit_bytes: int) -> None:
        self._connections = connections
        self._prefix = connections.endpoint.prefix
        self._limit_bytes = limit_bytes

    # --- rows ---------------------------------------------------------------

    async def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierFailure]:
        path, data = self._row(check_key(key)), bytearray()
        asked = await self._ask(Request("GET", path, "read a shared row", sink=data.extend, limit_bytes=ROW_BYTES))
        if isinstance(asked, Failure):
            return asked
        status = asked.unwrap().status
        if status in _NOT_FOUND:
            return Success(None)
        if status != 200:
            return Failure(_unexpected(status, "look for a row"))
        read = read_row(bytes(data), key)
        return Success(read) if isinstance(read, CacheEntry) else Failure(read)

    async def publish(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        data = write_row(entry)
        if isinstance(data, InvalidEntry):
            return Failure(data)
        found = await self.find(entry.ref.key_digest)
        if isinstance(found, Success) and (there := found.unwrap()) is not None:
            return _beside(there, entry)
        if isinstance(found, Failure):
            why = found.failure()
            if not isinstance(why, TierNonsense | OtherKey | TooLarge):  # of these the row heals the tier
                return Failure(why)
        headers = {"Content-Type": "application/json"}
        if isinstance(found, Success):
            headers["If-None-Match"] = "*"
        asked = await self._ask(
            Request(
                "PUT",
                self._row(entry.ref.key_digest),
                "publish a row",
                io.BytesIO(data),
                size_bytes=len(data),
                headers=headers,
            )
        )
        return asked if isinstance(asked, Failure) else await self._settled(entry, asked.unwrap().status)

    async def _settled(
        self, entry: CacheEntry, status: int
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        """What became of a row that was put, as the status says; where somebody was faster, as the row there says."""
        if status == 201:
            return Success(Inserted(entry.ref))
        if 200 <= status < 300:
            return Success(ExistingSame(entry.ref))
        if status in _TAKEN:
            found = await self.find(entry.ref.key_digest)
            if isinstance(found, Success) and (there := found.unwrap()) is not None:
                return _beside(there, entry)
        return Failure(_unexpected(status, "publish a row"))

    async def withdraw(self, key: str) -> Outcome[bool, TierFailure]:
        asked = await self._ask(Request("DELETE", self._row(check_key(key)), "withdraw a row"))
        if isinstance(asked, Failure):
            return asked
        status = asked.unwrap().status
        if 200 <= status < 300 or status in _NOT_FOUND:
            return Success(status not in _NOT_FOUND)
        return Failure(_unexpected(status, "withdraw a row"))

    def _row(self, key: str) -> str:
        return f"{self._prefix}/ac/{row_name(key)}"

    # --- bytes --------------------------------------------------------------

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        size, hashed = 0, hashlib.sha256()

        def take(piece: bytes) -> None:
            nonlocal size
            size += len(piece)
            hashed.update(piece)
            _ = sink(piece)

        asked = await self._ask(
            Request("GET", self._blob(digest), "read a shared artifact", sink=take, limit_bytes=self._limit_bytes)
        )
        if isinstance(asked, Failure):
            return asked
        answer = asked.unwrap()
        if answer.status in _NOT_FOUND:
            return Failure(ArtifactMissing(digest))
        if answer.status != 200:
            return Failure(_unexpected(answer.status, "read an artifact"))
        measured = hashed.hexdigest()
        if measured == digest:
            return Success(size)
        if not answer.is_whole:  # nothing is said of what the server has
            return Failure(Unavailable(f"artifact {digest} came in part", "no"))
        return Failure(ArtifactCorruption(digest, measured))

    async def put(
        self, digest: str, source: BinaryIO
    ) -> Outcome[None, ArtifactCorruption | InvalidDigest | TierFailure]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        try:
            measured = await in_thread(lambda _: measure(source))
        except Theirs as raised:
            raise raised.error from None
        if measured.digest != digest:
            return Failure(ArtifactCorruption(digest, measured.digest))
        if measured.size_bytes > self._limit_bytes:
            return Failure(TooLarge("an artifact", measured.size_bytes, self._limit_bytes))
        headers = {"Content-Type": "application/octet-stream"}
        asked = await self._ask(
            Request(
                "PUT",
                self._blob(digest),
                "share an artifact",
                source,
                measured.start,
                measured.size_bytes,
                None,
                0,
                headers,
            )
        )
        if isinstance(asked, Failure):
            return asked
        status = asked.unwrap().status
        return Success(None) if 200 <= status < 300 else Failure(_unexpected(status, "share an artifact"))

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | TierFailure]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        asked = await self._ask(Request("HEAD", self._blob(digest), "look for an artifact"))
        if isinstance(asked, Failure):
            return asked
        status = asked.unwrap().status
        if 200 <= status < 300 or status in _NOT_FOUND:
            return Success(status not in _NOT_FOUND)
        return Failure(_unexpected(status, "look for an artifact"))

    def _blob(self, digest: str) -> str:
        return f"{self._prefix}/cas/{digest}"

    # --- asking -------------------------------------------------------------

    async def _ask(self, request: Request) -> Outcome[Answer, TierFailure]:
        """The answer behind redirects, of which none leads to another server, and none is followed by a change."""
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                asked = await self._connections.ask(request)
            except Theirs as raised:
                raise raised.error from None
            if isinstance(asked, Failure) or asked.unwrap().status not in _REDIRECTS:
                return asked
            answer = asked.unwrap()
            path = None
            if answer.location and request.method in ("GET", "HEAD"):
                path = self._connections.endpoint.followed(request.path, answer.location)
            if path is None:
                text = f"could not {request.what}: the server sends us elsewhere, where nobody follows it"
                return Failure(TierRefused(text, answer.status))
            request = replace(request, path=path)
        return Failure(TierRefused(f"could not {request.what}: the server sends us round and round"))


def _beside(there: CacheEntry, entry: CacheEntry) -> Outcome[ExistingSame, CacheConflict]:
    return Success(ExistingSame(there.ref)) if same_result(there, entry) else Failure(CacheConflict(there.ref))


def _unexpected(status: int, what: str) -> TierRefused | TierNonsense:
    if status >= 400:
        return TierRefused(f"could not {what}: the server answered with status {status}", status)
    return TierNonsense(f"could not {what}: the server answered with status {status}, which is no answer to that")
