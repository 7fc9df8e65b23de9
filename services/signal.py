"""What can be wrong with a signal to a run."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.run import RunState

__all__ = ["InvalidSignal", "RunEnded"]


@dataclass(frozen=True, slots=True)
class InvalidSignal:
    """The value of a signal is not of the type that the run reads under this name. It is not delivered again."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run has ended, as `state` says: it reads no more signals."""

    id: str
    state: RunState
