"""The folder of artifacts: what is where in it, and how it is made, locked and synced.

    <root>/objects/ab/ab34...   the artifacts, each read-only and named by its digest
    <root>/temp/<pid>-<n>       what is being written, locked by who writes it
    <root>/lock                 held for the moment in which an artifact is published, stamped or removed

Everything is opened by descriptor: beneath the root, which may be a link itself, no link is followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from errno import ELOOP, ENODEV, ENXIO
from itertools import count
from typing import Final, Literal, TypeAlias, final

from ..workspace.calls import FOLLOW_NOTHING, SystemCalls
from ..workspace.pinned import Pinned

__all__ = ["OBJECTS", "TEMP", "Durability", "Folder", "Temporary"]

Durability: TypeAlias = Literal["required", "best-effort"]
"""What a sync that fails means: that nothing was kept, or nothing."""

OBJECTS: Final = "objects"
TEMP: Final = "temp"
_LOCK: Final = "lock"

_NO_FILE: Final = (ELOOP, ENXIO, ENODEV)
"""How opening something says that it is a link, or a socket or a device."""

_ROOT: Final = os.O_RDONLY | os.O_DIRECTORY
_PRIVATE: Final = 0o700
_PUBLISHED: Final = 0o444

_numbers = count()


@final
class Temporary:
    """A file that is being written; it goes with its block unless it has been given its place."""

    __slots__ = ("descriptor", "name", "placed")

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor
        self.placed = False


@final
class Folder:
    """The folder at an absolute path. Used by any number of threads and processes at once. OSErrors are the host's."""

    def __init__(self, root: str, calls: SystemCalls, durability: Durability) -> None:
        self.root = root
        self.calls = calls
        self._durable = durability == "required"
        self._settled: set[str] = set()

    # --- opening ------------------------------------------------------------

    @contextmanager
    def opened(self) -> Generator[Pinned]:
        """The root; FileNotFoundError if there is none."""
        root = Pinned(self.calls, self.calls.open_path(self.root, _ROOT))
        try:
            yield root
        finally:
            root.close()

    @contextmanager
    def made(self) -> Generator[Pinned]:
        """The root, made with what belongs in it if it is not there yet."""
        self._make_root(self.root)
        with self.opened() as root:
            self._make(OBJECTS, root.descriptor)
            self._make(TEMP, root.descriptor)
            yield root

    @contextmanager
    def artifact(self, at: int, digest: str) -> Generator[int | None]:
        """A descriptor of the file of this digest; None where something else stands, which is never followed."""
        descriptor: int | None = None
        try:
            descriptor = self.calls.open(digest, os.O_RDONLY | FOLLOW_NOTHING, at=at)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
        try:
            is_file = descriptor is not None and stat.S_ISREG(self.calls.stat(descriptor).st_mode)
            yield descriptor if is_file else None
        finally:
            if descriptor is not None:
                self.calls.close(descriptor)

    # --- making -------------------------------------------------------------

    def _make_root(self, path: str) -> None:
        """Make a directory that is not there; those above it too."""
        with suppress(FileNotFoundError):
            self.calls.close(self.calls.open_path(path, _ROOT))
            return
        self._make_root(os.path.dirname(path))
        above = self.calls.open_path(os.path.dirname(path), _ROOT)
        try:
            with suppress(FileExistsError):
                self.calls.make_directory(os.path.basename(path), _PRIVATE if path == self.root else 0o777, at=above)
            self.sync(above)
        finally:
            self.calls.close(above)

    def prepare(self, root: Pinned, digest: str) -> None:
        """Make the directory that an artifact of this digest goes into."""
        with root.directory(OBJECTS, listed=True) as objects:
            self._make(digest[:2], objects)

    def _make(self, name: str, at: int) -> None:
        """Make a directory; it is durable afterwards, whoever made it."""
        try:
            self.calls.make_directory(name, _PRIVATE, at=at)
        except FileExistsError:
            if name in self._settled:
                return
        self.sync(at)
        self._settled.add(name)

    @contextmanager
    def temporary(self, at: int) -> Generator[Temporary]:
        """A new file in the directory TEMP, open for writing and locked."""
        temp = self._new(at)
        try:
            _ = self.calls.try_lock(temp.descriptor)
            yield temp
        finally:
            if not temp.placed:
                with suppress(OSError):  # who cannot remove it leaves it to a later sweep
                    self.calls.unlink(temp.name, at=at)
            self.calls.close(temp.descriptor)

    def _new(self, at: int) -> Temporary:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        for number in _numbers:
            name = f"{os.getpid()}-{number}"
            with suppress(FileExistsError):  # of an earlier process with this number
                return Temporary(name, self.calls.open(name, flags, at=at))
        raise AssertionError("numbers do not end")

    def place(self, temp: Temporary, temp_at: int, at: int, digest: str) -> None:
        """Give a temporary file its name, in place of whatever has it; the lock is held."""
        self.calls.chmod(temp.descriptor, _PUBLISHED)
        try:
            self.calls.replace(temp_at, temp.name, at, digest)
        except IsADirectoryError:
            self.calls.remove_directory(digest, at=at)
            self.calls.replace(temp_at, temp.name, at, digest)
        temp.placed = True

    # --- order and durability -----------------------------------------------

    @contextmanager
    def locked(self, root: Pinned) -> Generator[None]:
        """Alone among all threads and processes for the length of the block, which is short: no bytes are moved."""
        descriptor = self.calls.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, at=root.descriptor)
        try:
            self.calls.lock(descriptor)
            yield
        finally:
            self.calls.unlock(descriptor)  # not by closing: a process that was just forked may hold it open too
            self.calls.close(descriptor)

    def sync(self, descriptor: int) -> None:
        """Make a file or a directory durable, if that is required."""
        try:
            self.calls.sync(descriptor)
        except OSError:
            if self._durable:
                raise
