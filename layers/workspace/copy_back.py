"""Copies the changes of a step back to a folder: all of them or none, also if the process or the machine ends.

    stage the new nodes, look at every target, write the manifest, make missing directories   nothing is decided yet
    mark the manifest as decided                                                              from here on all, or undo
    swap each target with its new node, and look at what came out                             see `moves`
    mark it as done, clean up

What a reader sees is atomic for each path, not across paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, final

from ...core.copy_back import CopyBackDecision, CopyBackEvent, Op, is_beneath, plan
from ...core.copy_back_manifest import Manifest, Marker, encode_manifest
from ...core.node import FileNode, LinkNode
from ...core.outcome import Failure, Outcome, Success
from ...core.step_sandbox import MaterializationConflict, WorkspaceError
from ...core.tree import NodeChange, bundle_identity, path_order
from ...core.workspace_path import parent_of, shown
from .ending import Ended, clean_up, discard, roll_forward, take_back
from .folder import TransactionFolder
from .host import CopiedBack, Writer
from .lock import CommitLock
from .pinned import Hasher
from .points import CopyBackPoint
from .preflight import Passed, check_paths, preflight
from .recovery import recover
from .site import Refused, Site, refusal_of
from .staged_file import StagedFile

__all__ = ["FileCopyBack"]

SYNC_THREADS: Final = 4
"""How many files are made durable at once: a disk joins what comes together."""

NEW_DIRECTORY: Final = 0o777
"""The permissions of new directories, less what the umask of the process takes away."""

_Answer: TypeAlias = Outcome[CopiedBack, MaterializationConflict | WorkspaceError]


@final
class FileCopyBack:
    """One copy-back to a folder. Staging needs no lock, so several may stage at once; `commit` takes it."""

    def __init__(
        self,
        site: Site,
        lock: CommitLock,
        hasher: Hasher,
        check_root: Callable[[], None],
        changes: tuple[NodeChange, ...],
        trees: tuple[str, ...],
        moved_reads: Callable[[], set[str]] = set,
    ) -> None:
        self._site = site
        self._lock = lock
        self._hasher = hasher
        self._check_root = check_root
        self._changes = changes
        self._moved_reads = moved_reads
        self._ops = plan(changes, trees)
        self._problem: WorkspaceError | None = check_paths(changes)
        self._folder: TransactionFolder | None = None
        self._writer: StagedFile | None = None
        self._unstaged = {op.path: op for op in self._ops if _is_new_file(op)}
        self._has_ended = False
        self._made: list[str] = []

    # --- staging ------------------------------------------------------------

    def stage(self, path: str) -> Writer:
        """Where the bytes of a new file go; each file once, one after the other."""
        if self._has_ended or (self._writer is not None and self._writer.is_open):
            raise ValueError(f"{path} cannot be staged: the copy-back has ended, or another file is still open")
        op = self._unstaged.pop(path, None)
        if op is None:
            raise ValueError(f"{path} is no file of this copy-back, or was staged before")
        self._writer = StagedFile(self._site, op, self._begun(), self._fail)
        return self._writer

    def _begun(self) -> TransactionFolder | None:
        """The folder, made at first need; None once something has gone wrong, for there is no use in going on."""
        if self._folder is None and self._problem is None:
            try:
                self._folder = TransactionFolder.make(self._site)
            except OSError as error:
                self._fail(refusal_of(error, "the copy-back cannot begin"))
        return None if self._problem else self._folder

    def _fail(self, problem: WorkspaceError) -> None:
        self._problem = self._problem or problem

    def discard(self) -> None:
        """Give it up; the host is as it was."""
        folder, self._folder = self._folder, None
        self._end_staging()
        if folder is not None:
            discard(self._site, folder)
            folder.close()

    def _end_staging(self) -> None:
        self._has_ended = True
        if self._writer is not None:
            self._writer.drop()

    # --- committing ---------------------------------------------------------

    def commit(self) -> _Answer:
        """Make every change, or none."""
        if self._has_ended:
            return Failure(WorkspaceError("closed", "this copy-back has ended"))
        if self._unstaged or (self._writer is not None and self._writer.is_open):
            left = ", ".join(sorted(self._unstaged)) or "the file that is open"
            raise ValueError(f"nothing is committed before every new file is staged: {left}")
        self._end_staging()
        try:
            return self._commit() if self._changes else self._look_only()
        except Refused as refused:
            return Failure(refused.answer)
        except OSError as error:
            return Failure(refusal_of(error, "the changes cannot be copied back; nothing was written"))
        finally:
            folder, self._folder = self._folder, None  # its descriptor may be that of something else from now on
            if folder is not None:
                folder.close()

    def _look_only(self) -> _Answer:
        """There is nothing to write; what was read has to be as it was all the same."""
        if moved := self._moved_reads():
            return Failure(MaterializationConflict(tuple(sorted(moved, key=path_order))))
        return Success(CopiedBack())

    def _commit(self) -> _Answer:
        folder = self._begun()
        if folder is None or self._problem is not None:
            self.discard()
            raise Refused(self._problem or WorkspaceError("closed", "this copy-back has ended"))
        try:
            self._stage_links(folder)
            late = self._lock.acquire()
            if late is not None:
                raise Refused(late)
        except (Refused, OSError):
            self.discard()
            raise
        try:
            return self._commit_locked(folder)
        finally:
            self._lock.release()

    def _commit_locked(self, folder: TransactionFolder) -> _Answer:
        site = self._site
        site.reach(CopyBackPoint.LOCKED)
        manifest: Manifest | None = None
        try:
            self._check_root()
            told = recover(site)
            passed = preflight(site, self._changes, self._ops, self._hasher, self._moved_reads)
            site.reach(CopyBackPoint.PREFLIGHT_PASSED)
            self._sync_stage(folder, passed)
            manifest = self._manifest(folder, passed)
            folder.write_intent(encode_manifest(manifest))
            self._make_directories(manifest.made)
            self._decide(folder, manifest)
        except (Refused, OSError):
            self._drop(folder, manifest)
            raise
        ended = roll_forward(site, folder, manifest)
        clean_up(folder)
        return self._answer(ended, (*told, *passed.events))

    def _answer(self, ended: Ended, told: tuple[CopyBackEvent, ...]) -> _Answer:
        events = (*told, *ended.events)
        for event in events:
            self._site.options.on_event(event)
        if ended.error is not None:
            return Failure(refusal_of(ended.error, "the changes were taken back, since one of them cannot be made"))
        if ended.how == "undone":
            return Failure(MaterializationConflict(ended.conflicts))
        return Success(CopiedBack(events))

    # --- before the decision ------------------------------------------------

    def _stage_links(self, folder: TransactionFolder) -> None:
        for op in self._ops:
            if op.kind in ("create", "replace") and isinstance(op.after, LinkNode):
                self._site.calls.make_link(op.after.target, folder.slot(op.slot), at=folder.descriptor)
                self._site.reach(CopyBackPoint.STAGED)

    def _sync_stage(self, folder: TransactionFolder, passed: Passed) -> None:
        """Give the staged files their permissions, and make all of them durable."""
        slots = [op.slot for op in self._ops if _is_new_file(op)]

        def finish(slot: int) -> None:
            calls = self._site.calls
            descriptor = calls.open(folder.slot(slot), os.O_RDONLY | os.O_NOFOLLOW, at=folder.descriptor)
            try:
                if slot in passed.modes:
                    calls.chmod(descriptor, passed.modes[slot])
                self._site.sync(descriptor)
            finally:
                calls.close(descriptor)

        if len(slots) > 1 and self._site.options.durability == "full":
            with ThreadPoolExecutor(SYNC_THREADS, "stepwell-sync") as pool:
                for _ in pool.map(finish, slots):
                    pass
        else:
            for slot in slots:
                finish(slot)
        self._site.reach(CopyBackPoint.STAGE_SYNCED)

    def _manifest(self, folder: TransactionFolder, passed: Passed) -> Manifest:
        identity = bundle_identity(self._changes)
        return Manifest(folder.name, identity, self._site.place, os.getpid(), passed.missing, passed.ops)

    def _make_directories(self, made: tuple[str, ...]) -> None:
        """Before the decision, since it is here that a disk may be full."""
        for path in made:
            self._make_directory(path)
            self._site.reach(CopyBackPoint.DIRECTORY_MADE)
        for path in {parent_of(path) for path in made}:
            self._site.sync_directory(path)
        self._site.reach(CopyBackPoint.DIRECTORIES_DURABLE)

    def _make_directory(self, path: str) -> None:
        try:
            with self._site.root.parent(path) as (at, name):
                self._site.calls.make_directory(name, NEW_DIRECTORY, at=at)
        except FileExistsError:
            within = (it.path for it in self._changes if it.path == path or is_beneath(it.path, path))
            raise Refused(MaterializationConflict(tuple(within))) from None
        except OSError as error:
            raise Refused(
                refusal_of(error, f"the directory {shown(path)} cannot be made; nothing was written")
            ) from error
        self._made.append(path)

    def _decide(self, folder: TransactionFolder, manifest: Manifest) -> None:
        decision = _decision_of(manifest)
        try:
            decided = self._site.options.decide(decision)
        except Exception as error:
            # Whatever went wrong there, the record may have it all the same, and then it is right.
            if not self._site.options.was_decided(decision):
                raise Refused(_not_decided(f"the decision could not be recorded ({error})")) from error
            decided = True
        if not decided:
            raise Refused(_not_decided("the decision was refused, as by a run that has another owner now"))
        self._site.reach(CopyBackPoint.DECISION_RECORDED)
        folder.mark(Marker.INTENT, Marker.DECIDED)

    def _drop(self, folder: TransactionFolder, manifest: Manifest | None) -> None:
        """After a refusal: nothing of it stays, unless the decision is on record, which the next opening follows."""
        if manifest is not None and folder.marker() is Marker.DECIDED:
            _ = take_back(self._site, folder, manifest)
            clean_up(folder)
        elif manifest is not None and self._site.options.was_decided(_decision_of(manifest)):
            message = f"copy-back {folder.name} is decided, but not yet made; it is when the workspace is next opened"
            raise Refused(WorkspaceError("unknown_result", message))
        else:
            discard(self._site, folder, tuple(self._made))


def _decision_of(manifest: Manifest) -> CopyBackDecision:
    return CopyBackDecision(manifest.transaction, manifest.bundle_identity)


def _not_decided(reason: str) -> WorkspaceError:
    return WorkspaceError("not_decided", f"{reason}; nothing was written")


def _is_new_file(op: Op) -> bool:
    return op.kind in ("create", "replace") and isinstance(op.after, FileNode)
