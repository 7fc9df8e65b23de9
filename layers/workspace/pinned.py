"""A directory that is held by descriptor, and what stands beneath it: no link is followed on the way, ever.

Paths are relative, with "/" between their parts; "" is the directory itself. A part that is `..`, `.` or empty is a
ValueError: path rules come before system calls. Where a path leads through a link the call fails with ELOOP, where it
leads through a file with ENOTDIR. Whoever puts another directory in its place does not lead us elsewhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Self, TypeAlias, final

from ...core.node import DirNode, FileNode, LinkNode
from ...core.special_node import Seen, SpecialNode
from .calls import CLOSED, DIRECTORY, FOLLOW_NOTHING, SystemCalls

__all__ = ["PIECE", "UNREADABLE", "Hasher", "Pinned", "look", "look_at", "read_all"]

PIECE: Final = 1 << 20
"""How many bytes are read at once."""

_TRIES: Final = 100
"""How often a name is looked at again that is a link now, and none a moment later."""

_KINDS: Final = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)

UNREADABLE: Final = SpecialNode("something that may not be read")

Hasher: TypeAlias = Callable[[int, os.stat_result], str]
"""The digest of an open file, of which its status is known."""


@final
class Pinned:
    """A directory, and resolution beneath it: by openat2 where the kernel has it, otherwise part by part."""

    def __init__(self, calls: SystemCalls, descriptor: int) -> None:
        """Takes the descriptor over."""
        self.calls = calls
        self.descriptor = descriptor
        self._is_open = True

    @classmethod
    def of(cls, calls: SystemCalls, path: str) -> Self:
        """The directory at a path of the host; the last part of the path is no link."""
        return cls(calls, calls.open_path(path, os.O_PATH | DIRECTORY))

    def open(self, path: str, flags: int) -> int:
        """A descriptor of what stands at a path; the caller closes it."""
        if not path:
            return self.calls.open(".", flags | os.O_NOFOLLOW, at=self.descriptor)
        parts = _parts(path)
        if len(parts) > 1 and self.calls.has_openat2:
            return self.calls.open_beneath(path, flags | os.O_NOFOLLOW, at=self.descriptor)
        return self._walk(parts, flags | os.O_NOFOLLOW)

    def _walk(self, parts: list[str], flags: int) -> int:
        held: list[int] = []
        at = self.descriptor
        try:
            for part in parts[:-1]:
                held.append(self._step(part, at))
                at = held[-1]
            return self.calls.open(parts[-1], flags, at=at)
        finally:
            for descriptor in held:
                self.calls.close(descriptor)

    def _step(self, part: str, at: int) -> int:
        try:
            return self.calls.open(part, os.O_PATH | DIRECTORY, at=at)
        except NotADirectoryError:
            # The answer for a link too, and only there is it to be ELOOP.
            if stat.S_ISLNK(self.calls.stat_name(part, at=at).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
            raise

    @contextmanager
    def directory(self, path: str, *, listed: bool = False) -> Generator[int]:
        """A descriptor of a directory for the length of the block; `listed` also to list and to sync it."""
        flags = DIRECTORY if listed else DIRECTORY | os.O_PATH
        try:
            descriptor = self.open(path, flags)
        except NotADirectoryError:
            self._refuse_link(path)
            raise
        try:
            yield descriptor
        finally:
            self.calls.close(descriptor)

    def _refuse_link(self, path: str) -> None:
        """ELOOP if the last part of the path is a link, as for every other part."""
        above, _, name = path.rpartition("/")
        with self.directory(above) as at:
            if stat.S_ISLNK(self.calls.stat_name(name, at=at).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    @contextmanager
    def parent(self, path: str) -> Generator[tuple[int, str]]:
        """A descriptor of the directory that holds a path, for the length of the block, and the name in it."""
        above, _, name = path.rpartition("/")
        _ = _parts(name)
        with self.directory(above) as descriptor:
            yield descriptor, name

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            descriptor, self.descriptor = self.descriptor, CLOSED
            self.calls.close(descriptor)


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{path!r} is no plain relative path")
    if "\0" in path:
        raise ValueError(f"{path!r} holds a NUL character")
    return parts


# --- what stands there ------------------------------------------------------


def look(calls: SystemCalls, at: int, name: str, hasher: Hasher | None = None) -> Seen:
    """What stands under a name of a directory, told from its descriptor: what it was a moment before does not count.

    `hasher` gives the digest of a file; by default all of it is read. What may not be read is `UNREADABLE`.
    """
    for _ in range(_TRIES):
        try:
            descriptor = calls.open(name, os.O_RDONLY | FOLLOW_NOTHING, at=at)
        except FileNotFoundError:
            return None
        except PermissionError:
            return UNREADABLE
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket; a device without a driver
                return SpecialNode("a socket or a device")
            if error.errno != errno.ELOOP:
                raise
            try:
                return _link(calls.read_link(name, at=at))
            except FileNotFoundError:
                return None
            except OSError as other:
                if other.errno != errno.EINVAL:  # it is no link any more: look again
                    raise
            continue
        try:
            return look_at(calls, descriptor, hasher)
        finally:
            calls.close(descriptor)
    raise OSError(errno.EAGAIN, "it is replaced again and again", name)


def look_at(calls: SystemCalls, descriptor: int, hasher: Hasher | None = None) -> DirNode | FileNode | SpecialNode:
    """What an open descriptor is."""
    status = calls.stat(descriptor)
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        return DirNode()
    if stat.S_ISREG(mode):
        digest = read_all(calls, descriptor) if hasher is None else hasher(descriptor, status)
        return FileNode(digest, status.st_size, bool(mode & stat.S_IXUSR))
    return SpecialNode(next((kind for test, kind in _KINDS if test(mode)), "no file"))


def read_all(calls: SystemCalls, descriptor: int, take: Callable[[bytes], None] | None = None) -> str:
    """Read an open file to its end, handing each piece to `take`, and give the digest of what was read."""
    hashed = hashlib.sha256()
    while piece := calls.read(descriptor, PIECE):
        hashed.update(piece)
        if take is not None:
            take(piece)
    return hashed.hexdigest()


def _link(target: str) -> LinkNode | SpecialNode:
    try:
        _ = target.encode()
    except UnicodeEncodeError:
        return SpecialNode("a link whose text is not UTF-8")
    return LinkNode(target)
