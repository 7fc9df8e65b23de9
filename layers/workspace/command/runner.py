"""Commands under bubblewrap: what a transaction calls.

A runner proves its isolation before the first command, by probes that try to get out, and executes each command in a
workspace of its own in memory. Nothing of the host is changed; what came out is read from the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias, final

from ....core.boundary import Declaration
from ....core.command import Command, CommandOutput, CommandRefused
from ....core.lookup import Lookup
from ....core.node import Tree
from ....core.outcome import Failure, Outcome
from ....core.step_sandbox import LimitExceeded, WorkspaceError
from ....core.workspace_limits import WorkspaceLimits
from ..host import Seed

__all__ = ["CommandLost", "CommandResult", "CommandRunner", "Produced", "Proof", "RunFailure", "Unsupported"]


@final
@dataclass(frozen=True, slots=True)
class Proof:
    """That commands are isolated here: by what, under which policy, and what the probes answered."""

    backend: str
    version: str
    policy_digest: str
    probe_digest: str


@final
@dataclass(frozen=True, slots=True)
class CommandLost:
    """The command was executed, but its watch broke off, so there is no telling what it did. Nothing was changed."""

    reason: str


@final
@dataclass(frozen=True, slots=True)
class Unsupported:
    """What a command left that no workspace can hold, e.g. a "FIFO"."""

    path: str
    what: str


class Produced(Protocol):
    """The files of a workspace after a command, for as long as the result is open."""

    def open(self, path: str) -> BinaryIO:
        """A reader from the first byte on. KeyError: no file of that path is in the tree."""
        ...


@final
@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left when all of its processes were dead. It holds memory until it is closed.

    `tree` has every file and link, and every directory, of the workspace: set-id and sticky bits are dropped, and hard
    links are files of their own. `lookups` are what it looked up, in order; all of them, if `complete`. `shown` are the
    absolute places that the sandbox shows, for `stepwell.core.lookup.classify`.
    """

    output: CommandOutput
    tree: Tree
    contents: Produced
    unsupported: tuple[Unsupported, ...]
    lookups: tuple[Lookup, ...]
    complete: bool
    shown: tuple[str, ...]
    stdout_cut: bool
    stderr_cut: bool

    def close(self) -> None:
        """Free the workspace's memory; its contents cannot be read any more. A second call does nothing."""


RunFailure: TypeAlias = LimitExceeded | CommandRefused | CommandLost | WorkspaceError


class CommandRunner:
    """Executes commands, each in a workspace of its own; safe to be used by several tasks at once.

    `bwrap` is the path of bubblewrap, or None to look for it in `PATH`. `roots` are further places of the host that
    commands may read, as part of their environment. With `network` they reach what the host reaches.
    """

    def __init__(self, *, bwrap: str | None = None, roots: Sequence[str] = (), network: bool = False) -> None:
        self._bwrap = bwrap
        self._roots = tuple(roots)
        self._network = network

    async def prove(self) -> Outcome[Proof, CommandRefused]:
        """Try to get out of a sandbox in every way that is known. Done once per boot, version and policy."""
        return Failure(CommandRefused("bubblewrap", "commands are not executed yet"))

    async def run(
        self, seed: Seed, declaration: Declaration, command: Command, limits: WorkspaceLimits
    ) -> Outcome[CommandResult, RunFailure]:
        """Execute a command on the seed's files, and look at what it left. The result is the caller's to close.

        Any exit code is a result; whether it is one of `ok` is for the caller to say. If the caller is cancelled, every
        process of the command is dead before the cancellation goes on.
        """
        return Failure(CommandRefused("bubblewrap", "commands are not executed yet"))

    async def close(self) -> None:
        """End the processes of the runner. Commands that are being executed are lost."""
