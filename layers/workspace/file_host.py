"""Files in a folder of this machine, as the host of transactions.

The folder is held by descriptor from the moment it is opened. It is refused if the calls that keep a copy-back whole do
not work there; what a process that is gone has left unfinished is ended before anything else.
"""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from os import PathLike
from typing import Self, TypeVar, final

from ...core.boundary import Declaration
from ...core.copy_back import CopyBackEvent
from ...core.copy_back_manifest import Place
from ...core.measured import MeasuredReads
from ...core.node import Node, Tree
from ...core.outcome import Failure, Outcome, Success
from ...core.special_node import Seen, SpecialNode
from ...core.step_sandbox import LimitExceeded, WorkspaceError
from ...core.tree import NodeChange
from ...core.workspace_limits import WorkspaceLimits
from .copy_back import FileCopyBack
from .host import CopyBack, Reads, Seed
from .lock import CommitLock
from .memo import DigestMemo
from .pinned import Pinned, look
from .probes import prove
from .recovery import recover
from .seed import Seeder, SeedRefused
from .site import MISSING, STATE, HostOptions, Refused, Site, hide, make_directories, refusal_of

__all__ = ["FileHost", "HostOptions"]

_T = TypeVar("_T")


@final
class FileHost:
    """A folder that is open; `FileHost.open` gives one. Safe to be used by several threads."""

    def __init__(self, site: Site, path: str) -> None:
        place = site.place
        self._site = site
        self._path = path
        self._lock = CommitLock(site.state, (place.device, place.inode), site.options.lock_wait_s)
        self._memo = DigestMemo(site.calls, site.options.now_ms)
        self._held = ExitStack()
        self.recovered: tuple[CopyBackEvent, ...] = ()
        """How copy-backs were ended that had been left behind when the folder was opened."""

    @classmethod
    def open(cls, root: str | PathLike[str], options: HostOptions | None = None) -> Outcome[Self, WorkspaceError]:
        """Open a folder that exists; the caller closes it.

        "host_unavailable" names what does not work in the folder. "recovery_required": something was left there that
        is not understood; nothing was touched, and nothing is copied back before somebody has looked.
        """
        if platform.system() != "Linux":
            message = f"copying back needs calls that Linux has, and {platform.system()} has not in this form"
            return Failure(WorkspaceError("host_unavailable", message))
        path = os.path.realpath(root)
        with ExitStack() as held:
            try:
                host = cls(_open_site(held, path, options or HostOptions()), path)
                host._begin()
            except Refused as refused:
                return Failure(refused.error())
            except OSError as error:
                return Failure(refusal_of(error, f"the folder {path} cannot be used"))
            host._held = held.pop_all()
            return Success(host)

    def _begin(self) -> None:
        """Prove that the folder can be used, and end what was left there."""
        late = self._lock.acquire()
        if late is not None:
            raise Refused(late)
        try:
            refused = prove(self._site.calls, self._site.state, self._path)
            if refused is not None:
                raise Refused(refused)
            self.recovered = recover(self._site)
        finally:
            self._lock.release()
        for event in self.recovered:
            self._site.options.on_event(event)

    def close(self) -> None:
        """Give the folder's descriptors back; nothing may be asked of the host any more."""
        self._held.close()

    # --- reading ------------------------------------------------------------

    def seed(self, declaration: Declaration, limits: WorkspaceLimits) -> Outcome[Seed, LimitExceeded | WorkspaceError]:
        """Copy what is declared, and look at what stands at the write targets."""
        seeder = self._seeder(declaration, limits)
        return self._looked(seeder.run, "the files that the step reads cannot be copied")

    def measure_reads(
        self, declaration: Declaration, limits: WorkspaceLimits
    ) -> Outcome[MeasuredReads, LimitExceeded | WorkspaceError]:
        """What `seed` would copy now; each file is read."""
        seeder = self._seeder(declaration, limits)
        return self._looked(seeder.measure, "the files that the step reads cannot be measured")

    def standing(
        self, declaration: Declaration, paths: Iterable[str], limits: WorkspaceLimits
    ) -> Outcome[Tree, LimitExceeded | WorkspaceError]:
        """What stands at declared outputs, in declared trees and at `paths`; each file is read."""
        seeder = self._seeder(declaration, limits)
        return self._looked(lambda: seeder.standing(paths), "what stands at the targets of the step cannot be read")

    def _seeder(self, declaration: Declaration, limits: WorkspaceLimits) -> Seeder:
        portable = self._site.options.portable_names
        return Seeder(self._site.root, declaration, limits, self._memo.digest, portable=portable)

    def _looked(self, look_: Callable[[], _T], what: str) -> Outcome[_T, LimitExceeded | WorkspaceError]:
        try:
            self._check_root()
            return Success(look_())
        except SeedRefused as refused:
            return Failure(refused.answer)
        except Refused as refused:
            return Failure(refused.error())
        except OSError as error:
            return Failure(refusal_of(error, what))

    def has(self, path: str) -> bool:
        """Whether the host has anything at the path, without following links. What cannot be looked at is there."""
        if not path:
            return True
        try:
            with self._site.root.parent(path) as (at, name):
                _ = self._site.calls.stat_name(name, at=at)
        except OSError as error:
            return error.errno not in (*MISSING, errno.ENAMETOOLONG)
        return True

    def measure(self, path: str) -> Outcome[Node | None, WorkspaceError]:
        """What stands at a path. A file that did not change for two seconds is read once only: this is no evidence."""
        seen: Seen = None
        try:
            with self._site.root.parent(path) as (at, name):
                seen = look(self._site.calls, at, name, self._memo.digest)
        except OSError as error:
            if error.errno not in MISSING:
                return Failure(refusal_of(error, f"{path} cannot be read"))
        if isinstance(seen, SpecialNode):
            return Failure(WorkspaceError("unsupported_file_type", f"{path} is {seen.kind}"))
        return Success(seen)

    # --- writing ------------------------------------------------------------

    def copy_back(
        self, changes: tuple[NodeChange, ...], *, trees: tuple[str, ...] = (), reads: Reads | None = None
    ) -> CopyBack:
        """Begin to write changes to the folder; nothing is done before something is staged or committed."""

        def moved_reads() -> set[str]:
            return set() if reads is None else self._moved(reads)

        return FileCopyBack(self._site, self._lock, self._memo.digest, self._check_root, changes, trees, moved_reads)

    def _moved(self, reads: Reads) -> set[str]:
        try:
            return self._seeder(reads.declaration, reads.limits).moved(reads.tree)
        except SeedRefused as refused:
            if isinstance(refused.answer, WorkspaceError):
                raise Refused(refused.answer) from None
            raise

    def _check_root(self) -> None:
        """Refused if the folder was replaced: what is held is not what people see at its path any more."""
        place = self._site.place
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (place.device, place.inode):
            message = f"{self._path} is not the folder any more that was opened there; open it again"
            raise Refused(WorkspaceError("host_unavailable", message))


def _open_site(held: ExitStack, path: str, options: HostOptions) -> Site:
    """The folder with its own directories; what is opened is given back by `held`."""
    calls = options.calls
    root = Pinned.of(calls, path)
    _ = held.callback(root.close)
    status = calls.stat(root.descriptor)
    state = make_directories(root, STATE, options.durability)
    _ = held.callback(state.close)
    hide(root, STATE)
    transactions = make_directories(root, f"{STATE}/tx", options.durability)
    _ = held.callback(transactions.close)
    if calls.stat(transactions.descriptor).st_dev != status.st_dev:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), STATE)
    return Site(options, root, state, transactions, Place(status.st_dev, status.st_ino, options.boot()))
