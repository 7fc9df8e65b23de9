"""The folder of one copy-back: its staged nodes, what it replaced, and its manifest under the marker of the moment.

Whoever works in it holds its lock, which the kernel takes away with the process: a folder whose lock is free was left.
"""

from __future__ import annotations

import errno
import os
from typing import Final, Self, final

from ...core.copy_back_manifest import Marker, find_marker
from ...core.special_node import Seen
from .calls import CLOSED, DIRECTORY
from .pinned import look, read_all
from .points import CopyBackPoint
from .site import MISSING, Site, make_directories

__all__ = ["TransactionFolder"]

_TRIES: Final = 10
_KEPT: Final = ".stepwell/sandbox/kept"

_POINTS: Final = {
    Marker.DECIDED: (CopyBackPoint.DECIDED, CopyBackPoint.DECISION_DURABLE),
    Marker.UNDO: (CopyBackPoint.UNDO_MARKED, CopyBackPoint.UNDO_DURABLE),
    Marker.DONE: (CopyBackPoint.DONE, CopyBackPoint.DONE_DURABLE),
}


@final
class TransactionFolder:
    """An open folder whose lock is held. `close` gives it up as it is; `remove` removes it first."""

    def __init__(self, site: Site, name: str, descriptor: int) -> None:
        self._site = site
        self.name = name
        self.descriptor = descriptor
        self._is_open = True

    @classmethod
    def make(cls, site: Site) -> Self:
        """A new one."""
        for _ in range(_TRIES):
            name = site.options.new_id()
            site.calls.make_directory(name, 0o700, at=site.transactions.descriptor)
            claimed = cls.claim(site, name)
            if claimed is not None:
                site.reach(CopyBackPoint.FOLDER_MADE)
                return claimed
        raise OSError(errno.EBUSY, "each new folder was taken for one that was left behind")

    @classmethod
    def claim(cls, site: Site, name: str) -> Self | None:
        """The folder of that name, unless somebody works in it or it is gone."""
        calls = site.calls
        try:
            descriptor = calls.open(name, os.O_RDONLY | DIRECTORY, at=site.transactions.descriptor)
        except FileNotFoundError:
            return None
        is_ours = False
        try:
            is_ours = calls.try_lock(descriptor) and calls.stat(descriptor).st_nlink > 0
        finally:
            if not is_ours:
                calls.close(descriptor)
        return cls(site, name, descriptor) if is_ours else None

    # --- the manifest -------------------------------------------------------

    def marker(self) -> Marker | None:
        return find_marker(frozenset(self._site.calls.names(self.descriptor)))

    def write_intent(self, manifest: bytes) -> None:
        """Write the manifest of what is intended, durably, and the folder with it."""
        site = self._site
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = site.calls.open(Marker.INTENT.value, flags, at=self.descriptor)
        try:
            site.calls.write(descriptor, manifest)
            site.reach(CopyBackPoint.INTENT_WRITTEN)
            site.sync(descriptor)
        finally:
            site.calls.close(descriptor)
        site.sync(self.descriptor)
        site.sync(site.transactions.descriptor)
        site.reach(CopyBackPoint.INTENT_DURABLE)

    def read_manifest(self, marker: Marker) -> bytes:
        calls = self._site.calls
        descriptor = calls.open(marker.value, os.O_RDONLY | os.O_NOFOLLOW, at=self.descriptor)
        pieces: list[bytes] = []
        try:
            _ = read_all(calls, descriptor, pieces.append)
        finally:
            calls.close(descriptor)
        return b"".join(pieces)

    def mark(self, old: Marker, new: Marker) -> None:
        """Put another marker in the place of the present one, durably."""
        site = self._site
        written, durable = _POINTS[new]
        site.calls.rename(old.value, new.value, at=self.descriptor)
        site.reach(written)
        site.sync(self.descriptor)
        site.reach(durable)

    # --- slots --------------------------------------------------------------

    @staticmethod
    def slot(number: int) -> str:
        """The name of a slot in the folder."""
        return f"n{number}"

    def look(self, number: int) -> Seen:
        """What is in a slot."""
        return look(self._site.calls, self.descriptor, self.slot(number))

    def keep(self, number: int) -> str:
        """Move what is in a slot to where it stays for people to find; its path there, beneath the root."""
        site, name = self._site, f"{self.name}.{self.slot(number)}"
        kept = make_directories(site.root, _KEPT, site.options.durability)
        try:
            site.calls.move(self.descriptor, self.slot(number), kept.descriptor, name)
            site.sync(kept.descriptor)
        finally:
            kept.close()
        site.reach(CopyBackPoint.KEPT)
        return f"{_KEPT}/{name}"

    # --- the end ------------------------------------------------------------

    def remove(self) -> None:
        """Remove all that is in it, the marker last, and the folder itself."""
        site = self._site
        markers = {marker.value for marker in Marker}
        names = site.calls.names(self.descriptor)
        for name in sorted(names, key=lambda name: (name in markers, name)):
            site.calls.unlink(name, at=self.descriptor)
            site.reach(CopyBackPoint.MARKER_REMOVED if name in markers else CopyBackPoint.SLOT_FREED)
        try:
            site.calls.remove_directory(self.name, at=site.transactions.descriptor)
        except OSError as error:
            if error.errno not in MISSING:
                raise
        site.sync(site.transactions.descriptor)
        site.reach(CopyBackPoint.CLEANED)

    def close(self) -> None:
        """Give it up; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            descriptor, self.descriptor = self.descriptor, CLOSED
            self._site.calls.unlock(descriptor)
            self._site.calls.close(descriptor)
