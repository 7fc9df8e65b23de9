"""What is about to be sent: measured first, on a thread, so that no wrong bytes are ever on their way."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, final

__all__ = ["PIECE", "Measured", "Theirs", "measure", "pieces"]

PIECE: Final = 1 << 20
"""How many bytes are moved at once."""


@final
class Theirs(Exception):
    """What a caller's own file or function raised, which is no refusal of the host, whatever its class."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """What a file has from `start` to its end."""

    start: int
    size_bytes: int
    digest: str


def measure(source: BinaryIO) -> Measured:
    """Read a file from where it stands to its end, and set it back."""
    try:
        start, size, hashed = source.tell(), 0, hashlib.sha256()
        for piece in pieces(source):
            size += len(piece)
            hashed.update(piece)
        _ = source.seek(start, io.SEEK_SET)
    except Theirs:
        raise
    except Exception as error:
        raise Theirs(error) from error
    return Measured(start, size, hashed.hexdigest())


def pieces(source: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, a piece at a time; what reading raises comes as `Theirs`."""

    def read() -> bytes:
        try:
            return source.read(PIECE)
        except Exception as error:
            raise Theirs(error) from error

    while piece := read():
        yield piece
