"""How a copy-back ends once it is decided: on the host as a whole, or taken back; and before that, by being dropped.

The same for the process that began it and for one that finds it: which step is next is read from the marker alone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, final

from ...core.copy_back import CopyBackEvent
from ...core.copy_back_manifest import Manifest, Marker
from ...core.step_sandbox import WorkspaceError
from .folder import TransactionFolder
from .moves import Mover
from .site import Refused, Site

__all__ = ["Ended", "clean_up", "discard", "roll_forward", "take_back"]


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. `conflicts` are the paths that somebody else changed; `error` is what the host refused."""

    how: Literal["rolled forward", "undone"]
    conflicts: tuple[str, ...] = ()
    error: OSError | None = None
    events: tuple[CopyBackEvent, ...] = ()


def roll_forward(site: Site, folder: TransactionFolder, manifest: Manifest, *, again: bool = False) -> Ended:
    """Apply what is decided; if that cannot be, take all of it back. `again`: some of it may have been applied before.

    `Refused`: the host failed on the way back too. What is left to do is done when the folder is next opened.
    """
    mover = Mover(site, folder, manifest.ops)
    try:
        moved = mover.forward(again=again)
        if moved is None:
            mover.keep_late_writes()
            folder.mark(Marker.DECIDED, Marker.DONE)
            return Ended("rolled forward", events=tuple(mover.events))
        ended = take_back(site, folder, manifest)
        return Ended("undone", tuple(sorted({moved, *ended.conflicts})), None, (*mover.events, *ended.events))
    except OSError as error:
        return _after_error(site, folder, manifest, error, mover)


def _after_error(site: Site, folder: TransactionFolder, manifest: Manifest, error: OSError, mover: Mover) -> Ended:
    try:
        if folder.marker() is Marker.DONE:
            return Ended("rolled forward", events=tuple(mover.events))
        ended = take_back(site, folder, manifest)
    except OSError as again:
        message = (
            f"it is not known which changes of copy-back {folder.name} are on the host: one of them failed "
            f"({error.strerror}), and so did taking it back ({again.strerror}); opening the workspace again ends it"
        )
        raise Refused(WorkspaceError("unknown_result", message)) from again
    return Ended("undone", ended.conflicts, error, (*mover.events, *ended.events))


def take_back(site: Site, folder: TransactionFolder, manifest: Manifest) -> Ended:
    """Take back what was applied. From the first moment on it can only be taken back, by whoever goes on with it."""
    if folder.marker() is Marker.DECIDED:
        folder.mark(Marker.DECIDED, Marker.UNDO)
    mover = Mover(site, folder, manifest.ops)
    left = mover.back()
    mover.remove_made(manifest.made)
    folder.mark(Marker.UNDO, Marker.DONE)
    return Ended("undone", left, None, tuple(mover.events))


def discard(site: Site, folder: TransactionFolder, made: tuple[str, ...] = ()) -> None:
    """Drop what was never decided, with the directories made for it. What the host refuses is left to recovery."""
    with suppress(OSError):
        Mover(site, folder, ()).remove_made(made)
        folder.remove()


def clean_up(folder: TransactionFolder) -> None:
    """Remove the folder of what is done. What the host refuses is left to recovery."""
    with suppress(OSError):
        folder.remove()
