"""Backup and restore: a database with its artifacts, copied while it is used, checked byte for byte, and fenced.

A restored database belongs to nobody: whoever owned its runs can write nothing there, and they can be claimed at once.
The functions block on files, so each works on a thread; a failure, or a cancellation, leaves nothing of what was begun.
`on_call` is called before each system call with its name and the path that it is about; tests end the process there.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ..core.backup import BackupError, Manifest, Restored
from ..core.outcome import Failure, Outcome
from ..services.clock import Clock
from .backups.checking import check_backup
from .backups.fencing import fence, fence_file
from .backups.files import Files, absolute, nothing
from .backups.making import Making
from .backups.refused import Refused, answered
from .backups.restoring import Restoring
from .workspace.calls import OnCall

__all__ = ["backup", "fence", "restore", "verify"]


async def backup(
    db: str | PathLike[str],
    into: str | PathLike[str],
    clock: Clock,
    *,
    artifacts: str | PathLike[str] | None = None,
    on_call: OnCall = nothing,
) -> Outcome[Manifest, BackupError]:
    """Copy a database, and the artifacts of a folder, to a folder that is new or empty; others may go on using both.

    Whatever the database names is among the artifacts. Each is checked against its digest. Cancelled, it leaves
    nothing, unless the backup was whole already.
    """
    try:
        path, folder, kept = absolute(db), absolute(into), _absolute_if(artifacts)
    except Refused as refused:
        return Failure(refused.error)
    return await answered(lambda check: Making(Files(on_call, check), path, folder, kept).make(clock.now_ms))


async def verify(folder: str | PathLike[str]) -> Outcome[Manifest, BackupError]:
    """Check that a backup is whole: every file is there, and is what the manifest says."""
    try:
        path = absolute(folder)
    except Refused as refused:
        return Failure(refused.error)
    return await answered(lambda check: check_backup(Files(nothing, check), path))


async def restore(
    folder: str | PathLike[str],
    db: str | PathLike[str],
    clock: Clock,
    *,
    artifacts: str | PathLike[str] | None = None,
    on_call: OnCall = nothing,
) -> Outcome[Restored, BackupError]:
    """Make a database, and a folder of artifacts, from a backup that is whole; neither may be there before.

    Its runs belong to nobody then. The database appears last and complete, with a file beside it that says where it
    is from. Cancelled, it leaves nothing, unless the database was there already. An `io` after that moment says so.
    """
    try:
        restoring = Restoring(absolute(folder), absolute(db), _absolute_if(artifacts))
    except Refused as refused:
        return Failure(refused.error)
    try:
        begun = await answered(lambda check: restoring.begin(Files(on_call, check)))
        if isinstance(begun, Failure):
            return begun
        fenced = await fence_file(restoring.file, clock)
        if isinstance(fenced, Failure):
            return fenced
        return await answered(lambda check: restoring.end(Files(on_call, check), fenced.unwrap()))
    finally:
        _ = await answered(lambda check: restoring.drop(Files(nothing, check)))


def _absolute_if(path: str | PathLike[str] | None) -> Path | None:
    return None if path is None else absolute(path)
