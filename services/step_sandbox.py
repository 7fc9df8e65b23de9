"""The step sandbox: a transaction over files that proves what a step read and wrote.

    opened = await sandbox.open()                          # UnsupportedBoundary: this host cannot do it
    async with opened.unwrap() as transaction:
        accepted = await transaction.execute(Boundary(reads=("src/**",), writes=("out/app",)), build)
        ...                                                # the host is as it was
        await transaction.materialize(accepted.unwrap())   # all of it, or nothing

The body works on private copies of what was declared. What it did is judged before the first byte of the host changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from io import BufferedIOBase, TextIOWrapper
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, TypeVar, overload, runtime_checkable

from ..core.outcome import Outcome

if TYPE_CHECKING:
    from ..core.boundary import Boundary
    from ..core.command import Command, CommandOutput
    from ..core.evidence import Evidence
    from ..core.measured import MeasuredReads
    from ..core.outputs import Outputs
    from ..core.replay import BoundaryCorruption, MissingArtifact, ReplayFailure
    from ..core.step_sandbox import (
        Accepted,
        BodyFailed,
        EvidenceLevel,
        ExecuteFailure,
        FileChange,
        LimitExceeded,
        MaterializationConflict,
        Materialized,
        MissingOutput,
        SurvivingRemoval,
        UndeclaredRead,
        UndeclaredWrite,
        UnsupportedBoundary,
        Violations,
        WorkspaceError,
    )

__all__ = [
    "Accepted",
    "BodyFailed",
    "Boundary",
    "BoundaryCorruption",
    "CachingTransaction",
    "Command",
    "CommandOutput",
    "Evidence",
    "EvidenceLevel",
    "ExecuteFailure",
    "FileChange",
    "LimitExceeded",
    "MaterializationConflict",
    "Materialized",
    "MeasuredReads",
    "MissingArtifact",
    "MissingOutput",
    "OpenMode",
    "Outputs",
    "ReplayFailure",
    "StepSandbox",
    "SurvivingRemoval",
    "UndeclaredRead",
    "UndeclaredWrite",
    "UnsupportedBoundary",
    "Violations",
    "Workspace",
    "WorkspaceError",
    "WorkspaceFileNotFound",
    "WorkspaceRefusal",
    "WorkspaceTransaction",
]

_VALUES: Final = ("boundary", "command", "evidence", "step_sandbox", "measured", "outputs", "replay")
"""Where in the core the values are."""

if not TYPE_CHECKING:  # an application without a sandbox opens sooner if it does not make their classes

    def __getattr__(name):
        if name in __all__:
            for module in _VALUES:
                found = vars(import_module(f"..core.{module}", __package__))
                if name in found:
                    return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_R = TypeVar("_R")

OpenMode: TypeAlias = Literal["r", "r+", "w", "w+", "a", "a+", "x", "x+"]
"""How a file is opened; the same letters as those of the built-in `open`, where "b" and "t" may be left out."""


class WorkspaceRefusal(Exception):
    """Raised inside a body by a call of its workspace that is refused. `error` is the failure as a value.

    If the body lets it pass, `execute` answers with that value. What was refused changed nothing in the workspace.
    """

    def __init__(self, error: WorkspaceError | LimitExceeded) -> None:
        super().__init__(_text(error))
        self.error = error

    @property
    def code(self) -> str:
        """What kind of refusal it is, for programs."""
        from ..core.step_sandbox import LimitExceeded

        return "limit_exceeded" if isinstance(self.error, LimitExceeded) else self.error.code


class WorkspaceFileNotFound(WorkspaceRefusal, FileNotFoundError):
    """The workspace has nothing at the path: for a body, what its step did not declare is not there."""


def _text(error: WorkspaceError | LimitExceeded) -> str:
    from ..core.step_sandbox import WorkspaceError

    if isinstance(error, WorkspaceError):
        return error.message
    return f"the limit of {error.what} is {error.limit}, and this would make it {error.actual}"


class Workspace(Protocol):
    """The files of one step, as its body sees them: private copies of what it declared, and what it wrote since.

    Paths are relative and have "/" between their parts. Every call is synchronous, for async bodies too, and raises
    `WorkspaceRefusal` where it is refused. Bytes are copied in and out. Once the body has ended every call is refused
    with the code "closed". Links are followed within the workspace; what they lead to is declared on its own.
    """

    def read_bytes(self, path: str) -> bytes: ...
    def read_text(self, path: str) -> str:
        """The text of a file in UTF-8, its line ends as they are."""
        ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Make or replace a file; directories above it are made. The exec bit of a file that is there stays."""
        ...

    def write_text(self, path: str, text: str) -> None: ...
    def exists(self, path: str) -> bool:
        """Whether the workspace has something there. Never true of what was neither declared nor written."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The sorted names in a directory; "" and "." are the top."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory."""
        ...

    def make_dir(self, path: str) -> None:
        """Make a directory and those above it; nothing happens if it is there."""
        ...

    def queue_effect(self, effect: object) -> None:
        """Ask for an effect outside, such as a message: it is sent after the files are on the host, once per key.

        `effect` is JSON, or an `Effect` with a key of its own. Anything else is a TypeError.
        """
        ...

    def open_binary(self, path: str, mode: OpenMode = "r") -> BufferedIOBase:
        """A handle on a file, as the built-in `open` gives one.

        It has the bytes as they were when it was opened; what is written through it is there for others once it is
        flushed or closed, or the body has ended. It goes with its file when that is moved, and is for nobody when it is
        removed. To append to what the host has, the step declares to read it too.
        """
        ...

    def open_text(self, path: str, mode: OpenMode = "r") -> TextIOWrapper:
        """The same for text in UTF-8; line ends are written and read as they are."""
        ...

    def is_dir(self, path: str) -> bool: ...
    def is_executable(self, path: str) -> bool:
        """Whether the owner of the file may execute it."""
        ...

    def set_executable(self, path: str, executable: bool) -> None: ...
    def glob(self, pattern: str) -> list[str]:
        """The sorted paths of files and links that match, by the rules of a boundary's globs."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file, a link or a whole directory; a file or link at `new` is replaced."""
        ...

    def make_link(self, path: str, target: str) -> None:
        """Make a symbolic link that holds `target`."""
        ...

    def read_link(self, path: str) -> str: ...


class WorkspaceTransaction(Protocol):
    """A sandbox that is open; an async context manager. Leaving it drops all that was not materialized."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    @overload
    async def execute(self, boundary: Boundary, body: Command) -> Outcome[Accepted[CommandOutput], ExecuteFailure]: ...
    @overload
    async def execute(
        self, boundary: Boundary, body: Callable[[Workspace], Awaitable[_R]]
    ) -> Outcome[Accepted[_R], ExecuteFailure]: ...
    @overload
    async def execute(
        self, boundary: Boundary, body: Callable[[Workspace], _R]
    ) -> Outcome[Accepted[_R], ExecuteFailure]:
        """Seed a workspace with copies of what `boundary` declares, run the body in it, and judge what it did.

        The host is not touched. A synchronous body runs on a thread. A cancelled body stays cancelled.
        """
        ...

    async def materialize(
        self, accepted: Accepted[object]
    ) -> Outcome[Materialized, MaterializationConflict | WorkspaceError]:
        """Write an accepted result of this transaction to the host: all of it, or nothing, also after a crash.

        A target, or a declared read, that is not as it was when the step began is a conflict. A second call writes
        nothing.
        """
        ...


@runtime_checkable
class CachingTransaction(WorkspaceTransaction, Protocol):
    """A transaction whose results can be kept and brought back. Of one that is none of these nothing is cached."""

    def policy(self, body: Command | Callable[..., object]) -> str:
        """The digest of the rules by which a body is executed here, such as limits, and whether it has a network."""
        ...

    async def measure(self, boundary: Boundary) -> Outcome[MeasuredReads, LimitExceeded | WorkspaceError]:
        """What the declared reads are now, read whole; what `execute` would refuse to read is refused alike.

        Nothing is copied, and nothing is executed. A file that is written meanwhile is measured as what was read of it.
        """
        ...

    async def record(self, accepted: Accepted[object]) -> Outcome[Outputs, LimitExceeded | WorkspaceError]:
        """What stands at the declared targets after an accepted result of this transaction, materialized or not.

        When it answers, the bytes of all that is not in the record itself are in the artifact store. A result that
        departed from its boundary, or could not be replayed, is refused. The host is neither asked nor changed.
        """
        ...

    async def replay(
        self, boundary: Boundary, outputs: Outputs, reads: MeasuredReads
    ) -> Outcome[Materialized, ReplayFailure]:
        """Make the declared targets on the host what a record says: all of it, or nothing, also after a crash.

        What stands there right already is not written. In a declared tree what the record does not have goes, also
        what the step never saw. A declared read that is not as measured, or a target that somebody changes meanwhile,
        is a conflict; a record that names what the boundary does not declare is refused before any write.
        """
        ...


class StepSandbox(Protocol):
    async def open(self) -> Outcome[WorkspaceTransaction, UnsupportedBoundary]:
        """A transaction, or why this host cannot give one."""
        ...
