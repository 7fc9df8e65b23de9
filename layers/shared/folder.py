"""A shared tier in a folder that several machines have mounted.

    <root>/blobs/...   the bytes, as a folder of artifacts has them
    <root>/rows/...    the documents of rows, in the same form, each named by its key

Both are written beside their place, synced and renamed into it, so that nobody sees half of one. Whether a name is free
is decided under the folder's lock; where a file system does not lock between machines the last of two writers wins, and
either row is a right one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Final, Literal, TypeAlias, TypeVar, final

from ...core.cache_entry import check_key
from ...core.model import TooLarge, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.shared_row import ROW_BYTES, OtherKey, TierNonsense, read_row, row_name, same_result, write_row
from ...core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, InvalidEntry
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, InvalidDigest, find_invalid
from ...services.shared_tier import TierFailure
from ..files.artifacts import FileArtifacts
from ..files.beside import in_thread
from ..files.folder import OBJECTS, TEMP, Folder
from ..workspace.pinned import Pinned
from .measure import Theirs, measure

__all__ = ["FolderTier", "Rows"]

_T = TypeVar("_T")
_E = TypeVar("_E")

Applied: TypeAlias = Literal["no", "unknown"]

_TRIES: Final = 10
"""How often a row is looked at again that somebody replaces meanwhile."""

_Stamp: TypeAlias = tuple[int, int] | None
"""By what it is known whether a name still stands for what was read: inode and time; None is nothing."""


@final
class Rows:
    """The documents of rows in one folder, for worker threads. Methods raise the host's OSErrors."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._calls = folder.calls

    def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierNonsense | TooLarge]:
        try:
            with self._folder.opened() as root:
                return self._look(root, key)[1]
        except FileNotFoundError:
            return Success(None)

    def publish(self, entry: CacheEntry, data: bytes) -> Outcome[Inserted | ExistingSame, CacheConflict]:
        key, name = entry.ref.key_digest, row_name(entry.ref.key_digest)
        with self._folder.made() as root:
            self._folder.prepare(root, name)
            with root.directory(TEMP) as temp_at, self._folder.temporary(temp_at) as temp:
                for attempt in range(_TRIES):
                    stamp, found = self._look(root, key)
                    if isinstance(found, Success) and (there := found.unwrap()) is not None:
                        same = same_result(there, entry)
                        return Success(ExistingSame(there.ref)) if same else Failure(CacheConflict(there.ref))
                    if attempt == 0:
                        self._calls.write(temp.descriptor, data)
                        self._folder.sync(temp.descriptor)
                    with root.directory(_place(name), listed=True) as at:
                        with self._folder.locked(root):
                            if self._stamp(name, at) != stamp:
                                continue
                            self._folder.place(temp, temp_at, at, name)
                        self._folder.sync(at)
                    return Success(Inserted(entry.ref))
        raise OSError(f"the row of {key} is replaced again and again")

    def withdraw(self, key: str) -> bool:
        name = row_name(key)
        try:
            with self._folder.opened() as root, root.directory(_place(name), listed=True) as at:
                with self._folder.locked(root):
                    self._calls.unlink(name, at=at)
                self._folder.sync(at)
        except FileNotFoundError:
            return False
        return True

    def _look(
        self, root: Pinned, key: str
    ) -> tuple[_Stamp, Outcome[CacheEntry | None, OtherKey | TierNonsense | TooLarge]]:
        """What stands under the name of a key, and by what to know whether it still does."""
        name = row_name(key)
        try:
            with root.directory(_place(name)) as at, self._folder.artifact(at, name) as descriptor:
                if descriptor is None:
                    return self._stamp(name, at), Failure(TierNonsense("there is something else than a file"))
                status = self._calls.stat(descriptor)
                stamp = (status.st_ino, status.st_mtime_ns)
                if status.st_size > ROW_BYTES:
                    return stamp, Failure(TooLarge("a shared row", status.st_size, ROW_BYTES))
                read = read_row(self._read(descriptor), key)
        except FileNotFoundError:
            return None, Success(None)
        return stamp, Success(read) if isinstance(read, CacheEntry) else Failure(read)

    def _read(self, descriptor: int) -> bytes:
        """At most one byte more than a row can have: a file may grow while it is read."""
        read = bytearray()
        while len(read) <= ROW_BYTES and (piece := self._calls.read(descriptor, ROW_BYTES + 1 - len(read))):
            read += piece
        return bytes(read)

    def _stamp(self, name: str, at: int) -> _Stamp:
        try:
            status = self._calls.stat_name(name, at=at)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


def _place(name: str) -> str:
    return f"{OBJECTS}/{name[:2]}"


@final
class FolderTier:
    """A shared tier in a folder. All work is done on threads; one that the file system lets hang, hangs."""

    def __init__(self, blobs: FileArtifacts, rows: Rows, root: str, folder: Folder, limit_bytes: int) -> None:
        self._blobs = blobs
        self._folder = folder
        self._rows = rows
        self._root = root
        self._limit_bytes = limit_bytes

    async def find(self, key: str) -> Outcome[CacheEntry | None, OtherKey | TierFailure]:
        key = check_key(key)
        return await self._answer("look for a row", lambda: self._rows.find(key))

    async def publish(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | TierFailure]:
        data = write_row(entry)
        if isinstance(data, InvalidEntry):
            return Failure(data)
        return await self._answer("publish a row", lambda: self._rows.publish(entry, data), "unknown")

    async def withdraw(self, key: str) -> Outcome[bool, TierFailure]:
        key = check_key(key)
        return await self._answer("withdraw a row", lambda: Success(self._rows.withdraw(key)), "unknown")

    async def copy(
        self, digest: str, sink: Callable[[bytes], object]
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure]:
        if (invalid := find_invalid([digest])) is not None:
            return Failure(invalid)
        size = await self._answer("look for an artifact", lambda: Success(self._size_bytes(digest)))
        if isinstance(size, Failure):
            return size
        if (announced := size.unwrap()) > self._limit_bytes:
            return Failure(TooLarge("an artifact", announced, self._limit_bytes))
        return await self._blobs.copy(digest, sink)

    def _size_bytes(self, digest: str) -> int:
        """How large a file is; 0 where there is none."""
        try:
            with (
                self._folder.opened() as root,
                root.directory(_place(digest)) as at,
                self._folder.artifact(at, digest) as found,
            ):
                return 0 if found is None else self._folder.calls.stat(found).st_size
        except FileNotFoundError:
            return 0

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
        kept = await self._blobs.put_stream(source)
        return kept if isinstance(kept, Failure) else Success(None)

    async def has(self, digest: str) -> Outcome[bool, InvalidDigest | TierFailure]:
        return await self._blobs.has(digest)

    async def _answer(
        self, what: str, work: Callable[[], Outcome[_T, _E]], applied: Applied = "no"
    ) -> Outcome[_T, _E | Unavailable]:
        try:
            return await in_thread(lambda _: work())
        except OSError as refused:
            return Failure(Unavailable(f"could not {what} in {self._root}: {refused}", applied))
