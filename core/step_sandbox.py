"""The values and failures of the step sandbox.

A step that kept to what it declared is `Accepted`; otherwise it is one of the failures, and no output, file or effect
of it can be reached; of a command that failed itself, the end of what it printed is told. Failures are frozen and hold
plain values, so that one that was recorded is recognised when it is read again. `cause`, `command` and the nodes of a
change add detail and do not count when two values are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from .command import CommandFailure
from .evidence import Evidence
from .model import RecordedError
from .node import Node

__all__ = [
    "Accepted",
    "BodyFailed",
    "EvidenceLevel",
    "ExecuteFailure",
    "FileChange",
    "LimitExceeded",
    "MaterializationConflict",
    "Materialized",
    "MissingOutput",
    "SurvivingRemoval",
    "UndeclaredRead",
    "UndeclaredWrite",
    "UnsupportedBoundary",
    "Violations",
    "WorkspaceError",
]

_R_co = TypeVar("_R_co", covariant=True)

EvidenceLevel: TypeAlias = Literal["enforced", "tripwire", "cooperative"]
"""How well it is known that a step read nothing else: it could not have; nobody saw it; nobody looked."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that a step changes. `data` are the bytes of a small file; those of a large one are an artifact."""

    path: str
    kind: Literal["create", "modify", "remove"]
    before: Node | None = field(default=None, compare=False)
    after: Node | None = field(default=None, compare=False)
    data: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Violations:
    """What a step touched without declaring it, sorted."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deviation:
    """In which ways a step with mode "expected" departed from what it declared. Such a result is not shared."""

    violations: Violations
    missing_outputs: tuple[str, ...] = ()
    surviving_removals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted(Generic[_R_co]):
    """What a step gave that kept to its boundary; nothing of it is on the host before it is materialized."""

    output: _R_co
    changes: tuple[FileChange, ...]
    evidence: EvidenceLevel
    violations: Violations
    diff_identity: str
    effects: tuple[object, ...]
    record: Evidence | None = field(default=None, compare=False, repr=False)
    deviation: Deviation | None = None


@dataclass(frozen=True, slots=True)
class Materialized:
    """What was written to the host; empty if it was there already."""

    changes: tuple[FileChange, ...]


# --- failures ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UndeclaredRead:
    """The body looked at files that the host has and the step did not declare. All of them are named.

    `cause` is what the body itself failed with, if it did, and `command` says more of that if it was a command.
    """

    code: Literal["undeclared_read"] = field(default="undeclared_read", kw_only=True)
    paths: tuple[str, ...]
    diff_identity: str
    cause: RecordedError | None = field(default=None, kw_only=True, compare=False)
    command: CommandFailure | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class UndeclaredWrite:
    """The body wrote or removed what the step did not declare."""

    code: Literal["undeclared_write"] = field(default="undeclared_write", kw_only=True)
    paths: tuple[str, ...]
    diff_identity: str


@dataclass(frozen=True, slots=True)
class MissingOutput:
    """The body did not write what the step declared."""

    code: Literal["missing_output"] = field(default="missing_output", kw_only=True)
    paths: tuple[str, ...]
    diff_identity: str


@dataclass(frozen=True, slots=True)
class SurvivingRemoval:
    """The body left what the step declared to be removed."""

    code: Literal["surviving_removal"] = field(default="surviving_removal", kw_only=True)
    paths: tuple[str, ...]
    diff_identity: str


@dataclass(frozen=True, slots=True)
class BodyFailed:
    """The body raised, or the command ended with an exit code that is not one of its `ok`; `command` says more then."""

    cause: RecordedError
    command: CommandFailure | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """`what` names the limit that was met: in files, nodes, bytes, milliseconds or processes. Nothing was changed."""

    what: str
    actual: int
    limit: int


@dataclass(frozen=True, slots=True)
class UnsupportedBoundary:
    """This host cannot do what is asked. The message says why, and what to do about it."""

    code: Literal["unsupported_boundary"] = field(default="unsupported_boundary", kw_only=True)
    message: str


@dataclass(frozen=True, slots=True)
class WorkspaceError:
    """A path, a file or the host stands in the way; `code` is for programs, `message` for people.

    "invalid_path", "path_escapes_workspace", "not_found", "already_exists", "is_directory", "not_a_directory",
    "directory_not_empty", "undeclared_read", "name_collision", "unsupported_file_type", "protected_path",
    "host_unavailable", "artifact_corruption", "commit_lock_timeout", "commit_lock_held", "not_decided",
    "recovery_required", "unknown_result", "unsupported_boundary", "closed"; of a result that cannot be recorded
    "unverified_read_set", and of a record that does not fit its boundary "undeclared_write", "missing_output",
    "surviving_removal".
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class MaterializationConflict:
    """Somebody else changed these meanwhile: targets, or what was read. Nothing of the step is on the host, and their
    bytes are kept."""

    paths: tuple[str, ...]


ExecuteFailure: TypeAlias = (
    UndeclaredRead | UndeclaredWrite | MissingOutput | SurvivingRemoval | BodyFailed | LimitExceeded | WorkspaceError
)
