"""The operations of a copy-back on the host: each is made in one step and looked at after it, or taken back.

What comes out of the way is checked after it came out, since before that nobody could be kept from changing it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, assert_never, final

from ...core.copy_back import CopyBackEvent, LateWritePreserved, Op, PreimageKept
from ...core.copy_back_moves import Forward, decide_forward, decide_undo, holds_other, is_foreign
from ...core.special_node import Seen
from ...core.workspace_path import parent_of
from .calls import DIRECTORY
from .folder import TransactionFolder
from .pinned import look
from .points import CopyBackPoint
from .site import MISSING, Site

__all__ = ["Mover"]

_TAKEN: Final = (errno.EEXIST, errno.ENOTEMPTY)


@final
class Mover:
    """Applies the operations of one folder, and takes them back. `events` gathers what somebody may want to know."""

    def __init__(self, site: Site, folder: TransactionFolder, ops: tuple[Op, ...]) -> None:
        self._site = site
        self._calls = site.calls
        self._folder = folder
        self._ops = ops
        self.events: list[CopyBackEvent] = []

    # --- forward ------------------------------------------------------------

    def forward(self, *, again: bool = False) -> str | None:
        """Apply all operations; the path of the first that somebody else has changed, if there is one.

        With `again` some of them may have been applied before: each is looked at first.
        """
        for op in self._ops:
            if not self._apply(op, again):
                return op.path
            self._site.reach(CopyBackPoint.APPLIED)
        self._sync_parents()
        self._site.reach(CopyBackPoint.APPLIED_DURABLE)
        return None

    def _apply(self, op: Op, again: bool) -> bool:
        try:
            with self._site.root.parent(op.path) as (at, name):
                decided = self._decide(op, look(self._calls, at, name)) if again else "act"
                return self._move(op, at, name) if decided == "act" else decided == "skip"
        except OSError as error:
            if error.errno not in MISSING:
                raise
            # Nothing stands there, and nothing can be put there; what was removed may have gone with its directory.
            return again and self._decide(op, None) == "skip"

    def _decide(self, op: Op, target: Seen) -> Forward:
        return decide_forward(op, target, self._folder.look(op.slot))

    def _move(self, op: Op, at: int, name: str) -> bool:
        calls, slot, folder = self._calls, self._folder.slot(op.slot), self._folder.descriptor
        try:
            match op.kind:
                case "remove":
                    calls.move(at, name, folder, slot)
                    return self._came_out(op, lambda: calls.move(folder, slot, at, name))
                case "replace":
                    calls.exchange(folder, slot, at, name)
                    return self._came_out(op, lambda: calls.exchange(folder, slot, at, name))
                case "create":
                    calls.move(folder, slot, at, name)
                case "mkdir":
                    calls.make_directory(name, op.mode, at=at)
                case "rmdir" | "prune":
                    calls.remove_directory(name, at=at)
                case _:
                    assert_never(op.kind)
        except OSError as error:
            if error.errno in _TAKEN:
                return op.kind == "prune"
            raise
        self._site.reach(CopyBackPoint.MOVED)
        return True

    def _came_out(self, op: Op, put_back: Callable[[], None]) -> bool:
        """Whether what is in the slot now was expected; otherwise it goes back at once, unless its place is taken."""
        self._site.reach(CopyBackPoint.MOVED)
        if self._folder.look(op.slot) == op.before:
            return True
        with suppress(FileExistsError, FileNotFoundError):
            put_back()
        return False

    def keep_late_writes(self) -> None:
        """Keep what somebody wrote to a replaced or removed file through a handle that was open before."""
        for op in self._ops:
            if op.kind in ("remove", "replace") and is_foreign(op, self._folder.look(op.slot)):
                self.events.append(LateWritePreserved(op.path, self._folder.keep(op.slot)))
        self._site.reach(CopyBackPoint.PREIMAGES_CHECKED)

    # --- back ---------------------------------------------------------------

    def back(self) -> tuple[str, ...]:
        """Take back what was applied, the last first; the paths at which somebody else's bytes stand, which stay."""
        left: set[str] = set()
        for op in reversed(self._ops):
            if not self._take_back(op):
                left.add(op.path)
            self._site.reach(CopyBackPoint.UNDONE)
        self._sync_parents()
        self._site.reach(CopyBackPoint.UNDONE_DURABLE)
        return tuple(sorted(left))

    def _take_back(self, op: Op) -> bool:
        try:
            with self._site.root.parent(op.path) as (at, name):
                slot = self._folder.look(op.slot)
                match decide_undo(op, look(self._calls, at, name), slot):
                    case "keep":
                        if not is_foreign(op, slot):
                            return True
                    case "restore":
                        if self._restore(op, at, name):
                            return True
                    case "foreign":
                        pass
        except OSError as error:
            if error.errno not in MISSING:
                raise
            if op.kind in ("create", "mkdir"):
                return True
        if holds_other(op, self._folder.look(op.slot)):
            self.events.append(PreimageKept(op.path, self._folder.keep(op.slot)))
        return False

    def _restore(self, op: Op, at: int, name: str) -> bool:
        calls, slot, folder = self._calls, self._folder.slot(op.slot), self._folder.descriptor
        with suppress(FileExistsError, FileNotFoundError):
            match op.kind:
                case "remove":
                    calls.move(folder, slot, at, name)
                    self._site.reach(CopyBackPoint.UNMOVED)
                case "replace":
                    calls.exchange(folder, slot, at, name)
                    return self._went_back(op, lambda: calls.exchange(folder, slot, at, name))
                case "create":
                    calls.move(at, name, folder, slot)
                    return self._went_back(op, lambda: calls.move(folder, slot, at, name))
                case "mkdir":
                    return self.remove_empty(op.path)
                case "rmdir" | "prune":
                    self._make_again(op, at, name)
                case _:
                    assert_never(op.kind)
            return True
        return False

    def _went_back(self, op: Op, put_back: Callable[[], None]) -> bool:
        self._site.reach(CopyBackPoint.UNMOVED)
        if self._folder.look(op.slot) == op.after:
            return True
        put_back()
        return False

    def _make_again(self, op: Op, at: int, name: str) -> None:
        self._calls.make_directory(name, op.mode, at=at)
        descriptor = self._calls.open(name, os.O_RDONLY | DIRECTORY, at=at)
        try:
            self._calls.chmod(descriptor, op.mode)
        finally:
            self._calls.close(descriptor)
        self._site.reach(CopyBackPoint.UNMOVED)

    # --- directories --------------------------------------------------------

    def remove_made(self, made: tuple[str, ...]) -> None:
        """Remove the directories that were made before anything else, unless something is in them."""
        for path in reversed(made):
            _ = self.remove_empty(path)
        for path in {parent_of(path) for path in made}:
            self._site.sync_directory(path)

    def remove_empty(self, path: str) -> bool:
        """Whether a directory is gone; one with anything in it stays."""
        try:
            with self._site.root.parent(path) as (at, name):
                self._calls.remove_directory(name, at=at)
        except OSError as error:
            return error.errno in MISSING or _not_taken(error)
        self._site.reach(CopyBackPoint.DIRECTORY_REMOVED)
        return True

    def _sync_parents(self) -> None:
        for path in {parent_of(op.path) for op in self._ops}:
            self._site.sync_directory(path)


def _not_taken(error: OSError) -> bool:
    """False for a directory that something is in; any other error is one of the host."""
    if error.errno not in _TAKEN:
        raise error
    return False
