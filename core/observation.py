"""What a body looked at in its workspace, in order, and how it was answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from .node import digest_of

__all__ = ["ABSENT", "UNDECLARED", "Look", "Observation", "Observations", "names_digest"]

Look: TypeAlias = Literal["read", "stat", "exists", "list", "readlink", "exec", "probe"]
"""The kind of a look. A `probe` is one of a path that the workspace does not have: nor does the host, or a command
only asked whether it is there."""

ABSENT: Final = "absent"
UNDECLARED: Final = "undeclared"


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a path. `outcome` is the digest of what was seen, "absent", or "undeclared": the host has it, and
    the step did not declare it. Of a list it is the digest of the names."""

    look: Look
    path: str
    outcome: str


@final
class Observations:
    """Each different observation once, in the order of first sight; beyond `limit` they are only counted."""

    __slots__ = ("_kept", "_limit", "_undeclared", "complete")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[Observation, None] = {}
        self._undeclared: set[str] = set()
        self.complete = True
        """False once something was seen that there was no room for: such evidence proves nothing."""

    def __iter__(self) -> Iterator[Observation]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def undeclared(self) -> frozenset[str]:
        """The paths that were looked at although the step did not declare them. None of them is ever dropped."""
        return frozenset(self._undeclared)

    def note(self, look: Look, path: str, outcome: str) -> None:
        if outcome == UNDECLARED:
            self._undeclared.add(path)
        observation = Observation(look, path, outcome)
        if observation in self._kept:
            return
        if len(self._kept) >= self._limit:
            self.complete = False
            return
        self._kept[observation] = None


def names_digest(names: Iterable[str]) -> str:
    """The digest of the names in a directory: another one as soon as a name comes or goes."""
    return digest_of("\0".join(names).encode())
