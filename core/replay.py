"""Bringing recorded outputs back to a host: what may come of it, and which records are refused before any write.

A record is evidence, and evidence may be wrong: it is held to the rules that the step itself was held to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from .step_sandbox import LimitExceeded, MaterializationConflict, WorkspaceError

__all__ = ["BoundaryCorruption", "MissingArtifact", "ReplayFailure"]


@final
@dataclass(frozen=True, slots=True)
class MissingArtifact:
    """The bytes of a recorded output are not in the artifact store. The host is as it was."""

    code: Literal["missing_artifact"] = field(default="missing_artifact", kw_only=True)
    path: str
    digest: str


@final
@dataclass(frozen=True, slots=True)
class BoundaryCorruption:
    """What is kept of an output is not what was recorded. The host is as it was.

    `measured` is the digest of what was found, or why there is none: "invalid_base64", "invalid_record",
    "invalid_size", "unreadable". `path` is "" if it is the record as a whole.
    """

    code: Literal["boundary_corruption"] = field(default="boundary_corruption", kw_only=True)
    path: str
    recorded: str
    measured: str


ReplayFailure: TypeAlias = (
    MissingArtifact | BoundaryCorruption | MaterializationConflict | LimitExceeded | WorkspaceError
)
