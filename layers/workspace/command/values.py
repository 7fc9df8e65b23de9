"""What a runner of commands answers with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias, final

from ....core.command import CommandOutput, CommandRefused
from ....core.lookup import Lookup, Sightings, classify
from ....core.node import Tree
from ....core.step_sandbox import LimitExceeded, WorkspaceError

__all__ = ["CommandLost", "CommandResult", "Produced", "Proof", "RunFailure", "Unsupported"]


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

    def close(self) -> None:
        """Free the memory. A second call does nothing."""
        ...


@final
@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left when all of its processes were dead. It holds memory until it is closed.

    `tree` has every file, link and empty directory of the workspace, but not directories that were made for outputs and
    stayed empty. Set-id and sticky bits are dropped, and hard links are files of their own. `lookups` are what was
    looked up, in order; all of them, if `complete`. `shown` are the absolute places that the sandbox shows of the host,
    `private` those that are the command's own, and `hidden` those that are not shown although they lie in a shown one.
    """

    output: CommandOutput
    tree: Tree
    contents: Produced
    unsupported: tuple[Unsupported, ...]
    lookups: tuple[Lookup, ...]
    complete: bool
    shown: tuple[str, ...]
    private: tuple[str, ...]
    hidden: tuple[str, ...]
    stdout_cut: bool
    stderr_cut: bool

    def sightings(
        self,
        *,
        declared: Callable[[str], bool],
        seeded: Callable[[str], bool],
        host_has: Callable[[str], bool],
        strict_probes: bool = False,
    ) -> Sightings:
        """What the look-ups come to, by `stepwell.core.lookup.classify`. `host_has` is asked of absolute paths too."""
        return classify(
            self.lookups,
            declared=declared,
            seeded=seeded,
            host_has=host_has,
            shown=self.shown,
            private=self.private,
            hidden=self.hidden,
            strict_probes=strict_probes,
        )

    def close(self) -> None:
        """Free the workspace's memory; its contents cannot be read any more. A second call does nothing."""
        self.contents.close()


RunFailure: TypeAlias = LimitExceeded | CommandRefused | CommandLost | WorkspaceError
