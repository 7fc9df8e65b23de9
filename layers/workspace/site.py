"""What the parts of a copy-back share: the folder, the place of its own files in it, and how careful it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from ...core.copy_back import CopyBackDecision, CopyBackEvent
from ...core.copy_back_manifest import Place
from ...core.step_sandbox import MaterializationConflict, WorkspaceError
from ...core.workspace_path import parent_of
from ..clock import SystemClock
from ..ids import TimeOrderedIds
from .calls import DIRECTORY, SystemCalls
from .lock import LOCK_WAIT_S
from .pinned import Pinned
from .points import CopyBackPoint, OnPoint

__all__ = [
    "MISSING",
    "STATE",
    "Decide",
    "Durability",
    "HostOptions",
    "Refused",
    "Site",
    "WasDecided",
    "hide",
    "make_directories",
    "refusal_of",
]

STATE: Final = ".stepwell/sandbox"
"""Where copy-backs keep their own files, beneath the root."""

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")

Durability: TypeAlias = Literal["full", "process"]
"""Whether a copy-back also survives the end of the machine, or of its process only."""

Decide: TypeAlias = Callable[[CopyBackDecision], bool]
"""Asked right before a copy-back is decided. False, or an exception: it is discarded, and the host untouched."""

WasDecided: TypeAlias = Callable[[CopyBackDecision], bool | None]
"""What the record of decisions says of one; None if there is no such record."""


class Refused(Exception):
    """Ends a copy-back with an answer."""

    def __init__(self, answer: MaterializationConflict | WorkspaceError) -> None:
        super().__init__(answer)
        self.answer = answer

    def error(self) -> WorkspaceError:
        """The answer where nothing is compared, so that there can be no conflict."""
        assert isinstance(self.answer, WorkspaceError), self.answer
        return self.answer


def _yes(_: CopyBackDecision) -> bool:
    return True


def _no_record(_: CopyBackDecision) -> None:
    return None


def _ignore(_: object) -> None:
    """Nobody looks on."""


@final
@dataclass(frozen=True, slots=True)
class HostOptions:
    """How a folder is copied back to, and what it rests on.

    With durability "process" a copy-back survives the end of its process, but not of the machine. `portable_names`
    refuses names that another system would take for others. `decide` is asked before a copy-back is decided, and
    `was_decided` by whoever finds one unfinished; by default the file system alone decides. `on_event` is told of what
    somebody may want to know. What is left stands for the machine, so that a test can put another in its place.
    """

    durability: Durability = "full"
    portable_names: bool = True
    lock_wait_s: float = LOCK_WAIT_S
    decide: Decide = _yes
    was_decided: WasDecided = _no_record
    on_event: Callable[[CopyBackEvent], None] = _ignore
    on_point: OnPoint = _ignore
    calls: SystemCalls = field(default_factory=SystemCalls)
    now_ms: Callable[[], int] = field(default_factory=lambda: SystemClock().now_ms)
    new_id: Callable[[], str] = field(default_factory=lambda: TimeOrderedIds().new)
    boot: Callable[[], str] = lambda: BOOT.read_text("ascii").strip()


@final
@dataclass(frozen=True, slots=True)
class Site:
    """One folder that is copied back to: its own files are in `state`, each copy-back's in one of `transactions`."""

    options: HostOptions
    root: Pinned
    state: Pinned
    transactions: Pinned
    place: Place

    @property
    def calls(self) -> SystemCalls:
        return self.options.calls

    def reach(self, point: CopyBackPoint) -> None:
        self.options.on_point(point)

    def sync(self, descriptor: int) -> None:
        """Make a file or a directory durable, if that is asked for."""
        if self.options.durability == "full":
            self.calls.sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; one that is gone has none."""
        if self.options.durability == "full":
            try:
                with self.root.directory(path, listed=True) as descriptor:
                    self.calls.sync(descriptor)
            except OSError as error:
                if error.errno not in MISSING:
                    raise


def hide(root: Pinned, state: str) -> None:
    """Let git see nothing of our own directory. A file that is there counts; where none can be made, git sees us."""
    above = parent_of(state)
    with suppress(OSError), root.directory(above) as at:
        descriptor = root.calls.open(".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, at=at)
        try:
            root.calls.write(descriptor, b"*\n")
        finally:
            root.calls.close(descriptor)


def make_directories(root: Pinned, path: str, durability: Durability) -> Pinned:
    """A directory of our own beneath the root, made durably if it is not there. The caller closes it."""
    calls, made = root.calls, ""
    for part in path.split("/"):
        made = f"{made}/{part}" if made else part
        with root.directory(parent_of(made), listed=True) as above:
            try:
                calls.make_directory(part, 0o700, at=above)
            except FileExistsError:
                continue
            if durability == "full":
                calls.sync(above)
    return Pinned(calls, root.open(path, os.O_RDONLY | DIRECTORY))


MISSING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""The answers that mean that a path, as it was known, is not there any more."""


def refusal_of(error: OSError, what: str) -> WorkspaceError:
    """An error of the host as a value. `what` says what could not be done, to what."""
    reason = error.strerror or str(error)
    if error.errno == errno.ELOOP:
        return WorkspaceError("path_escapes_workspace", f"{what}: a directory above it is a link, and none is followed")
    if error.errno == errno.EBADF:
        return WorkspaceError("closed", f"{what}: the sandbox over the folder has been closed meanwhile")
    if error.errno == errno.EXDEV:
        reason = "it lies on another file system than the folder itself, and nothing is moved across"
    return WorkspaceError("host_unavailable", f"{what}: {reason}")
