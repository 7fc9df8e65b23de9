"""What is known of how a step was executed: by what it was held, what it looked at, what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from .observation import Observation

__all__ = ["Ambient", "AmbientKind", "Completeness", "Evidence"]

Completeness: TypeAlias = Literal["complete", "unnamed", "partial"]
"""Whether each look is named; undeclared ones failed but are not named; some were not seen."""

AmbientKind: TypeAlias = Literal[
    "ambient_read", "ambient_write", "ambient_process", "ambient_socket", "ambient_native", "thread_started"
]


@final
@dataclass(frozen=True, slots=True)
class Ambient:
    """Something that a Python body did outside its workspace, as far as the interpreter tells."""

    kind: AmbientKind
    detail: str


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """The record of one execution. `backend` is "python" or the tool that isolated the command, with its version.

    `policy_digest` names the rules that were in force, `probe_digest` the self-test that proved them. `base_digest` is
    that of what was seeded.
    """

    backend: str
    policy_digest: str
    probe_digest: str | None
    completeness: Completeness
    base_digest: str
    observed: tuple[Observation, ...]
    ambient: tuple[Ambient, ...] = ()
    notes: tuple[str, ...] = ()
