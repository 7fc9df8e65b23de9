"""What a command prints, kept in memory up to a limit and counted beyond."""

from __future__ import annotations

import os
from typing import Final, final

__all__ = ["Output"]

PIECE: Final = 1 << 16


@final
class Output:
    """A pipe that a command writes to, and the file in memory where it ends."""

    def __init__(self, name: str, limit: int) -> None:
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.writing, True)
        self.kept = os.memfd_create(name, os.MFD_CLOEXEC)
        self.is_open = True
        self.dropped = 0
        self._room = limit

    def pump(self) -> bool:
        """Take what is there now. False once nobody can write any more."""
        while True:
            try:
                piece = os.read(self.reading, PIECE)
            except BlockingIOError:
                return True
            if not piece:
                return False
            fitting = piece[: self._room]
            self._room -= len(fitting)
            self.dropped += len(piece) - len(fitting)
            _write_whole(self.kept, fitting)
            if len(piece) < PIECE:
                return True

    def finished(self) -> int:
        """The file, from its beginning."""
        os.lseek(self.kept, 0, os.SEEK_SET)
        return self.kept


def _write_whole(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
