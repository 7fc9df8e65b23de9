"""Ends the copy-backs that were left behind by processes that are gone: before anybody reads, and under the lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never, final

from ...core.copy_back import CopyBackDecision, CopyBackEvent, Recovered
from ...core.copy_back_manifest import (
    Manifest,
    ManifestProblem,
    Marker,
    Recovery,
    check_manifest,
    decide_recovery,
)
from ...core.step_sandbox import WorkspaceError
from .ending import discard, roll_forward, take_back
from .folder import TransactionFolder
from .site import STATE, Refused, Site

__all__ = ["recover"]


@final
@dataclass(frozen=True, slots=True)
class _Left:
    """One that was left: what there is to do, and its manifest where that is needed."""

    folder: TransactionFolder
    recovery: Recovery
    manifest: Manifest | None


def recover(site: Site) -> tuple[CopyBackEvent, ...]:
    """End each copy-back that nobody works on any more. A second call finds nothing.

    `Refused` with "recovery_required" if one of them cannot be understood: then nothing at all is touched.
    """
    folders: list[TransactionFolder] = []
    try:
        for name in sorted(site.calls.names(site.transactions.descriptor)):
            folder = TransactionFolder.claim(site, name)
            if folder is not None:
                folders.append(folder)
        return tuple(event for left in [_read(site, folder) for folder in folders] for event in _end(site, left))
    finally:
        for folder in folders:
            folder.close()


def _read(site: Site, folder: TransactionFolder) -> _Left:
    marker = folder.marker()
    if marker is None or marker is Marker.DONE:
        return _Left(folder, decide_recovery(marker), None)
    manifest = check_manifest(folder.read_manifest(marker), site.place)
    if isinstance(manifest, ManifestProblem):
        if marker is Marker.INTENT:  # its writing was cut short, so nothing was begun
            return _Left(folder, decide_recovery(marker), None)
        raise Refused(_required(folder, marker, manifest))
    decision = CopyBackDecision(manifest.transaction, manifest.bundle_identity)
    return _Left(folder, decide_recovery(marker, site.options.was_decided(decision)), manifest)


def _required(folder: TransactionFolder, marker: Marker, problem: ManifestProblem) -> WorkspaceError:
    where = f"{STATE}/tx/{folder.name}"
    message = (
        f"a copy-back was left unfinished in {where}, and its {marker.value} cannot be acted on: {problem.reason}. "
        "Nothing was touched. Compare the files with what is kept there, and move the folder away to go on"
    )
    return WorkspaceError("recovery_required", message)


def _end(site: Site, left: _Left) -> tuple[CopyBackEvent, ...]:
    folder, manifest = left.folder, left.manifest
    match left.recovery:
        case Recovery.CLEAN_UP:
            folder.remove()
            return (Recovered(folder.name, "cleaned up"),)
        case Recovery.DISCARD:
            discard(site, folder, manifest.made if manifest else ())
            return (Recovered(folder.name, "discarded"),)
        case Recovery.DECIDE:
            folder.mark(Marker.INTENT, Marker.DECIDED)
            ended = roll_forward(site, folder, _known(manifest), again=True)
        case Recovery.ROLL_FORWARD:
            ended = roll_forward(site, folder, _known(manifest), again=True)
        case Recovery.UNDO:
            ended = take_back(site, folder, _known(manifest))
        case _:
            assert_never(left.recovery)
    folder.remove()
    return (Recovered(folder.name, ended.how, ended.conflicts), *ended.events)


def _known(manifest: Manifest | None) -> Manifest:
    assert manifest is not None, "every marker that is acted on comes with its manifest"
    return manifest
