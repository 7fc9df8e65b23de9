"""A handle on a file of a workspace."""

from __future__ import annotations

import io
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, TypeAlias, final

from typing_extensions import Buffer

from .tripwire import unwatched

__all__ = ["Bytes", "Handle", "draft_of"]

Bytes: TypeAlias = BinaryIO | SpooledTemporaryFile[bytes]

DRAFT_BYTES: Final = 4 * 2**20
"""Up to this size the bytes of a handle that writes are kept in memory."""


def draft_of(source: BinaryIO | None) -> Bytes:
    """What a handle writes to: a nameless file that begins with the bytes of `source`."""
    draft = SpooledTemporaryFile[bytes](DRAFT_BYTES)
    if source is not None:
        with source:
            while piece := source.read(2**20):
                draft.write(piece)
    draft.seek(0)
    return draft


@final
class Handle(io.BufferedIOBase):
    """Reads and writes bytes of its own: those of the file when it was opened.

    `check` raises when the workspace is gone, and is asked before everything. `publish`, which raises then too, is
    given what was written, whenever the handle is flushed or closed with something to tell.
    """

    def __init__(
        self,
        name: str,
        held: Bytes,
        check: Callable[[], None],
        publish: Callable[[Bytes], None] | None = None,
        *,
        reads: bool = True,
        appends: bool = False,
        told: bool = True,
    ) -> None:
        self._name = name
        self._bytes = held
        self._check = check
        self._publish = publish
        self._reads = reads
        self._appends = appends
        self._told = told  # whether all that was written has been published

    @property
    def name(self) -> str:
        """The path in the workspace."""
        return self._name

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._publish is not None

    def seekable(self) -> bool:
        return True

    @unwatched()
    def read(self, size: int | None = -1, /) -> bytes:
        self._may(self._reads, "read")
        return self._bytes.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    @unwatched()
    def readline(self, size: int | None = -1, /) -> bytes:
        self._may(self._reads, "read")
        return self._bytes.readline(-1 if size is None else size)

    @unwatched()
    def write(self, data: Buffer, /) -> int:
        self._may(self._publish is not None, "write")
        if self._appends:
            _ = self._bytes.seek(0, io.SEEK_END)
        self._told = False
        return self._bytes.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._may(True, "seek")
        return self._bytes.seek(offset, whence)

    def tell(self) -> int:
        self._may(True, "tell")
        return self._bytes.tell()

    @unwatched()
    def truncate(self, size: int | None = None, /) -> int:
        self._may(self._publish is not None, "truncate")
        size = self._bytes.tell() if size is None else size
        _ = self._bytes.truncate(size)
        self._told = False
        return size

    def flush(self) -> None:
        if not self.closed:
            self._tell()

    @unwatched()
    def close(self) -> None:
        if self.closed:
            return
        try:
            self._tell()
        finally:
            self._bytes.close()
            super().close()

    def abandon(self) -> None:
        """The workspace is gone: what was not published is dropped, and every call is refused."""
        self._told = True
        self._bytes.close()

    @unwatched()
    def _tell(self) -> None:
        if self._told or self._publish is None:
            return
        at = self._bytes.tell()
        _ = self._bytes.seek(0)
        try:
            self._publish(self._bytes)
        finally:
            _ = self._bytes.seek(at)
        self._told = True

    def _may(self, allowed: bool, what: str) -> None:
        self._check()
        if self.closed:
            raise ValueError(f"{what} of a closed file")
        if not allowed:
            raise io.UnsupportedOperation(f"the file is not open to {what}")
