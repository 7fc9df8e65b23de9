"""Steps as the user's code meets them: what a workflow catches, and what a step's function can ask about itself."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass
from typing import final

from ..core.model import RecordedError

__all__ = [
    "STEP",
    "DuplicateKey",
    "NotReplaySafe",
    "StepContext",
    "StepFailed",
    "Suspended",
    "current_step",
]

# --- what can go wrong in a workflow ----------------------------------------


class StepFailed(Exception):
    """A step has failed for good: its recorded error, in the first run and in every replay.

    `kind` is "error" if the function raised, "timed_out" if it took too long, "too_large" if its result is over the
    limit, and "unknown" if an at-most-once step was cut off by a crash, so that nobody knows whether it happened.
    """

    def __init__(self, error: RecordedError, *, key: str = "", kind: str = "error") -> None:
        super().__init__(f"step {key!r} failed: {error.type}: {error.message}")
        self.error = error
        self.key = key
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepFailed):
            return NotImplemented
        return (self.error, self.key, self.kind) == (other.error, other.key, other.kind)

    def __hash__(self) -> int:
        return hash((self.error, self.key, self.kind))


class NotReplaySafe(Exception):
    """A durable call that could not be replayed in the same order: it is refused, and nothing was done."""


class DuplicateKey(Exception):
    """A key that the run has used already; it is refused, and nothing was done."""


class Suspended(BaseException):
    """The run is set aside: nothing more of it is recorded here. Let it pass; `except Exception` does."""


# --- inside a step ----------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class StepContext:
    """Which step a function is being executed as. `attempt` counts from 1."""

    run_id: str
    key: str
    attempt: int

    @property
    def idempotency_key(self) -> str:
        """The same 32 hexadecimal digits at every attempt of this step, in every process, and of no other step."""
        return hashlib.sha256(f"{self.run_id}\0{self.key}".encode()).hexdigest()[:32]


STEP: ContextVar[StepContext | None] = ContextVar("stepwell_step", default=None)


def current_step() -> StepContext:
    """The step as which the calling function is being executed; a RuntimeError outside of one."""
    context = STEP.get()
    if context is None:
        raise RuntimeError("current_step() tells about the step that is being executed, and this is none")
    return context
