"""Where the contents of one workspace are: in memory while they are few, in a nameless file beyond that."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Set
from threading import Lock
from typing import BinaryIO, Final, Protocol, final
from weakref import finalize

from typing_extensions import Buffer

from ...core.node import digest_of

__all__ = ["PIECE", "Spool"]

PIECE: Final = 2**20
"""How many bytes are read or written at once."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


@final
class Spool:
    """Bytes by their digest. Its file has no name, so that it is gone with the process. Any thread may call."""

    __slots__ = ("_file", "_filled", "_held", "_left", "_lock", "_stored")

    def __init__(self, memory_bytes: int) -> None:
        self._lock = Lock()
        self._left = memory_bytes
        self._held: dict[str, bytes] = {}
        self._stored: dict[str, tuple[int, int]] = {}  # offset and size in the file
        self._filled = 0
        self._file: _File | None = None

    @property
    def stored_bytes(self) -> int:
        """What the file has taken so far, with all that nobody asks for any more."""
        return self._filled

    def keep_only(self, digests: Set[str]) -> None:
        """Let everything else go, and give its room back; after an OSError all is as it was.

        A reader that is open keeps what it reads.
        """
        with self._lock:
            room = Spool(0)
            for digest in self._stored.keys() & digests:
                with self.open(digest) as source:
                    _ = room.put_file(source)
            self._file, self._stored, self._filled = room._file, room._stored, room._filled
            self._left += sum(len(self._held.pop(digest)) for digest in self._held.keys() - digests)

    def put(self, data: bytes) -> str:
        """Keep a copy of the bytes, and give their digest."""
        digest = digest_of(data)
        with self._lock:
            if digest in self._held or digest in self._stored:
                return digest
            if len(data) <= self._left:
                self._left -= len(data)
                self._held[digest] = bytes(data)
            else:
                self._stored[digest] = (self._append(data), len(data))
        return digest

    def put_file(self, source: _Source) -> tuple[str, int]:
        """Keep what is left to read of `source`, a piece at a time; its digest and its size."""
        first = source.read(PIECE)
        if len(first) < PIECE:
            return self.put(first), len(first)
        with self._lock:
            start, hashed = self._filled, hashlib.sha256()
            piece = first
            while piece:
                _ = self._append(piece)
                hashed.update(piece)
                piece = source.read(PIECE)
            digest, size = hashed.hexdigest(), self._filled - start
            if digest in self._held or digest in self._stored:
                self._filled = start  # the next one may have the room
            else:
                self._stored[digest] = (start, size)
        return digest, size

    def open(self, digest: str) -> BinaryIO:
        """A reader of the bytes, at their start. A digest that was never put is a KeyError."""
        held = self._held.get(digest)
        if held is not None:
            return io.BytesIO(held)
        start, size = self._stored[digest]
        assert self._file is not None
        return io.BufferedReader(_Stretch(self._file, start, size), PIECE)

    def close(self) -> None:
        """Let all of it go. Readers that are still open fail from now on."""
        with self._lock:
            self._held.clear()
            self._stored.clear()
            if self._file is not None:
                self._file.raw.close()

    def _append(self, data: bytes) -> int:
        if self._file is None:
            self._file = _File()
        start, view = self._filled, memoryview(data)
        while view:
            written = os.pwrite(self._file.raw.fileno(), view, self._filled)
            self._filled += written
            view = view[written:]
        return start


@final
class _File:
    """A nameless file; it is closed when nobody holds it any more."""

    __slots__ = ("__weakref__", "raw")

    def __init__(self) -> None:
        self.raw = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it is open as long as this is
        _ = finalize(self, self.raw.close)


class _Stretch(io.RawIOBase):
    """A part of a file, read without moving a position that others share."""

    def __init__(self, file: _File, start: int, size: int) -> None:
        self._file: _File | None = file
        self._start = start
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._file = None

    def readinto(self, buffer: Buffer, /) -> int:
        if self._file is None:
            raise ValueError("read of a closed file")
        view = memoryview(buffer)
        left = min(len(view), self._size - self._at)
        read = os.preadv(self._file.raw.fileno(), [view[:left]], self._start + self._at)
        self._at += read
        return read
