"""Artifacts as files, for worker threads: written beside their place, durable there, and read again before they count.

The time at which a file was last changed is the instant, by the `Clock`, at which its artifact was last put. A file is
published, stamped and removed under one lock, so that a collection never removes what a put has just found to be there.

Methods raise the host's OSErrors; `Unsettled` instead where something may have been changed already.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Final, final

from ...core.model import TooLarge
from ...core.node import digest_of, is_digest
from ...core.outcome import Failure, Outcome, Success
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, Collected
from ...services.clock import Clock
from ..workspace.calls import FOLLOW_NOTHING
from ..workspace.pinned import PIECE, Pinned, read_all
from .beside import Check
from .folder import OBJECTS, TEMP, Folder, Temporary

__all__ = ["ORPHAN_MS", "Blobs", "Unsettled", "pieces_of"]

ORPHAN_MS: Final = 60 * 60 * 1_000
"""How old a file is, in milliseconds, that somebody began to write and that nobody can be writing any more."""

_PREFIXES: Final = frozenset(f"{number:02x}" for number in range(256))


@final
class Unsettled(Exception):
    """The host refused after something may have been changed; `error` is what it said."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def pieces_of(data: bytes) -> Iterator[memoryview]:
    """The bytes, a piece at a time."""
    whole = memoryview(data)
    return (whole[at : at + PIECE] for at in range(0, len(whole), PIECE))


@final
class Blobs:
    """The artifacts of one folder. Used by any number of threads at once."""

    def __init__(self, folder: Folder, clock: Clock, limit_bytes: int) -> None:
        self._folder = folder
        self._calls = folder.calls
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._swept = False

    # --- reading ------------------------------------------------------------

    def read(
        self, digest: str, take: Callable[[bytes], object], check: Check
    ) -> Outcome[int, ArtifactMissing | ArtifactCorruption]:
        """Hand the bytes of a file to `take`, and give their number if they were the right ones."""
        size = 0

        def taken(piece: bytes) -> None:
            nonlocal size
            check()
            size += len(piece)
            _ = take(piece)

        try:
            with (
                self._folder.opened() as root,
                root.directory(_place(digest)) as at,
                self._folder.artifact(at, digest) as found,
            ):
                measured = None if found is None else read_all(self._calls, found, taken)
        except FileNotFoundError:
            return Failure(ArtifactMissing(digest))
        return Success(size) if measured == digest else Failure(ArtifactCorruption(digest, measured))

    def find_missing(self, digests: Iterable[str], check: Check) -> tuple[str, ...]:
        return tuple(digest for digest in digests if not self._has(digest, check))

    def _has(self, digest: str, check: Check) -> bool:
        check()
        try:
            with self._folder.opened() as root, root.directory(_place(digest)) as at:
                return self._status(digest, at) is not None
        except FileNotFoundError:
            return False

    # --- writing ------------------------------------------------------------

    def put(self, data: bytes, check: Check) -> Outcome[str, TooLarge]:
        if len(data) > self._limit_bytes:
            return Failure(self._too_large(len(data)))
        digest = digest_of(data)
        with self._folder.made() as root:
            self._sweep_once(root)
            if not self._keep(root, digest, check):
                with self._temporary(root) as (temp, at):
                    for piece in pieces_of(data):
                        check()
                        self._calls.write(temp.descriptor, piece)
                    self._publish(root, temp, at, digest)
        return Success(digest)

    def put_stream(self, pieces: Iterable[bytes], check: Check) -> Outcome[str, TooLarge]:
        """Keep what the pieces make together. They are written before it is known whether they are there already."""
        size, hashed = 0, hashlib.sha256()
        with self._folder.made() as root:
            self._sweep_once(root)
            with self._temporary(root) as (temp, at):
                for piece in pieces:
                    check()
                    size += len(piece)
                    if size > self._limit_bytes:
                        return Failure(self._too_large(size))
                    hashed.update(piece)
                    self._calls.write(temp.descriptor, piece)
                digest = hashed.hexdigest()
                if not self._keep(root, digest, check):
                    self._publish(root, temp, at, digest)
        return Success(digest)

    def _too_large(self, size: int) -> TooLarge:
        return TooLarge("an artifact", size, self._limit_bytes)

    @contextmanager
    def _temporary(self, root: Pinned) -> Generator[tuple[Temporary, int]]:
        with root.directory(TEMP) as at, self._folder.temporary(at) as temp:
            yield temp, at

    def _keep(self, root: Pinned, digest: str, check: Check) -> bool:
        """Whether the file is there, sound and durable; then it is as if it had been put now. If not, write it."""
        try:
            with root.directory(_place(digest), listed=True) as at, self._folder.artifact(at, digest) as found:
                if found is None or read_all(self._calls, found, lambda _: check()) != digest:
                    return False
                self._folder.sync(found)
                with self._folder.locked(root):
                    if self._calls.stat_name(digest, at=at).st_ino != self._calls.stat(found).st_ino:
                        return False
                    self._stamp(found)
                self._folder.sync(at)
                return True
        except OSError:
            return False

    def _publish(self, root: Pinned, temp: Temporary, temp_at: int, digest: str) -> None:
        self._folder.sync(temp.descriptor)
        self._folder.prepare(root, digest)
        with root.directory(_place(digest), listed=True) as at:
            with self._folder.locked(root):
                self._stamp(temp.descriptor)
                self._folder.place(temp, temp_at, at, digest)
            with _unsettled():
                self._folder.sync(at)

    def _stamp(self, descriptor: int) -> None:
        self._calls.stamp(descriptor, self._clock.now_ms() * 1_000_000)

    # --- removing -----------------------------------------------------------

    def _sweep_once(self, root: Pinned) -> None:
        """Remove what processes have left behind that ended while they wrote; the first time only."""
        if self._swept:
            return
        self._swept = True
        before_ms = self._clock.now_ms() - ORPHAN_MS
        with root.directory(TEMP, listed=True) as at:
            for name in self._calls.names(at):
                with suppress(OSError):  # what cannot be removed is in nobody's way
                    self._sweep(name, at, before_ms)

    def _sweep(self, name: str, at: int, before_ms: int) -> None:
        descriptor = self._calls.open(name, FOLLOW_NOTHING, at=at)
        try:
            old = _stamped_ms(self._calls.stat(descriptor)) < before_ms
            if old and self._calls.try_lock(descriptor):
                self._calls.unlink(name, at=at)
        finally:
            self._calls.close(descriptor)

    def collect(self, roots: frozenset[str], grace_ms: int, dry_run: bool, check: Check) -> Collected:
        """Everything is looked at before anything is removed, and each file once more at the moment it goes."""
        before_ms = self._clock.now_ms() - grace_ms
        try:
            with self._folder.opened() as root:
                stamps = self._stamps(root, check)
                unused = sorted(digest for digest, at_ms in stamps.items() if digest not in roots and at_ms < before_ms)
                sizes = {digest: self._remove(root, digest, before_ms, dry_run, check) for digest in unused}
        except FileNotFoundError:
            return Collected((), 0, 0)
        removed = {digest: size for digest, size in sizes.items() if size is not None}
        return Collected(tuple(removed), sum(removed.values()), len(stamps) - len(removed))

    def _stamps(self, root: Pinned, check: Check) -> dict[str, int]:
        """When each artifact was last put."""
        stamps: dict[str, int] = {}
        with root.directory(OBJECTS, listed=True) as objects:
            prefixes = _PREFIXES.intersection(self._calls.names(objects))
        for prefix in prefixes:
            check()
            with root.directory(f"{OBJECTS}/{prefix}", listed=True) as at:
                for name in self._calls.names(at):
                    status = self._status(name, at) if is_digest(name) and name.startswith(prefix) else None
                    if status is not None:
                        stamps[name] = _stamped_ms(status)
        return stamps

    def _status(self, name: str, at: int) -> os.stat_result | None:
        """The status of a file; None of anything else, and of nothing."""
        try:
            status = self._calls.stat_name(name, at=at)
        except FileNotFoundError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def _remove(self, root: Pinned, digest: str, before_ms: int, dry_run: bool, check: Check) -> int | None:
        """Remove a file, and give its size; None if it is gone, or has been put since."""
        check()
        alone = nullcontext() if dry_run else self._folder.locked(root)
        with _unsettled(), root.directory(_place(digest)) as at, alone:
            status = self._status(digest, at)
            if status is None or _stamped_ms(status) >= before_ms:
                return None
            if not dry_run:
                self._calls.unlink(digest, at=at)
            return status.st_size


def _place(digest: str) -> str:
    """The directory of a file."""
    return f"{OBJECTS}/{digest[:2]}"


def _stamped_ms(status: os.stat_result) -> int:
    return status.st_mtime_ns // 1_000_000


@contextmanager
def _unsettled() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise Unsettled(error) from error
