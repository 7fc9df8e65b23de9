"""What is known of a body once it has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, final

from ...core.command import CommandFailure
from ...core.effect import Effect
from ...core.evidence import Evidence
from ...core.model import RecordedError
from ...core.node import Tree
from ...core.step_sandbox import EvidenceLevel, LimitExceeded, WorkspaceError

__all__ = ["Ended", "Left"]


@final
@dataclass(frozen=True, slots=True)
class Left:
    """What a body left behind: its files, a reader of each, and what it looked at without leave."""

    tree: Tree
    open: Callable[[str], BinaryIO]
    undeclared: frozenset[str]


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """A body that has ended. `failed` is what it failed with, if it did, and `command` says more of a command then;
    `refused` is the value to answer with then, if its own workspace refused something and the body let that pass."""

    left: Left
    output: object
    level: EvidenceLevel
    evidence: Evidence
    effects: tuple[Effect, ...] = ()
    failed: RecordedError | None = None
    command: CommandFailure | None = None
    refused: WorkspaceError | LimitExceeded | None = None
