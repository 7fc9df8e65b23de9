"""A run as it is stored, and the states that it goes through.

The table `TRANSITIONS` is the whole life of a run; an event that has no row in a state is illegal there and raises.
`docs/workflows.md` shows the diagram that `diagram()` draws from it.

    pending    accepted, nobody has begun it
    running    an owner is executing it
    waiting    it stands at a durable wait: a timer, the pause before a retry, or the want of an owner
    stuck      it cannot go on by itself; `problem` says why, `resume` tries again
    completed, failed, cancelled    ended: nothing of it runs again, unless somebody reopens a failed one
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, TypedDict

__all__ = [
    "ENDED",
    "TRANSITIONS",
    "WANTS_OWNER",
    "RunColumns",
    "RunEvent",
    "RunRow",
    "RunState",
    "diagram",
    "next_state",
]

RunState: TypeAlias = Literal["pending", "running", "waiting", "stuck", "completed", "failed", "cancelled"]
RunEvent: TypeAlias = Literal["claim", "wait", "release", "stop", "resume", "complete", "fail", "cancel"]

WANTS_OWNER: Final = "an engine that drives its workflow"
"""What a run waits for that nobody owns, in words."""

ENDED: Final[frozenset[RunState]] = frozenset({"completed", "failed", "cancelled"})

TRANSITIONS: Final = MappingProxyType[tuple[RunState, RunEvent], RunState](
    {
        ("pending", "claim"): "running",  # an owner takes it
        ("pending", "cancel"): "cancelled",  # it never starts
        ("running", "claim"): "running",  # another owner takes it, the lease of the last one having ended
        ("running", "wait"): "waiting",
        ("running", "release"): "waiting",  # set aside by an owner that closes; it waits for another
        ("running", "stop"): "stuck",
        ("running", "complete"): "completed",
        ("running", "fail"): "failed",
        ("running", "cancel"): "cancelled",
        ("waiting", "claim"): "running",  # what it waited for is there, or another owner takes it
        ("waiting", "wait"): "waiting",  # a branch waits for something else
        ("waiting", "release"): "waiting",
        ("waiting", "stop"): "stuck",
        ("waiting", "cancel"): "cancelled",
        ("stuck", "resume"): "waiting",  # for an owner
        ("stuck", "cancel"): "cancelled",
        ("failed", "resume"): "waiting",  # its outcome is taken back, its recorded steps stay
    }
)


def next_state(state: RunState, event: RunEvent) -> RunState:
    """The state after `event`; a LookupError names an event that is illegal in `state`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LookupError(f"a run that is {state} cannot {event}") from None


def diagram() -> str:
    """The table as a Mermaid state diagram, one line an arrow, in the order of the table."""
    arrows = [f"    {before} --> {after}: {event}" for (before, event), after in TRANSITIONS.items()]
    ends = [f"    {state} --> [*]" for state in ("completed", "failed", "cancelled")]
    return "\n".join(["stateDiagram-v2", "    [*] --> pending", *arrows, *ends])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run. Instants are milliseconds of the ledger's clock; `arguments` and `outcome` are JSON.

    `fence` grows with each owner that the run has had: a write that names an older fence changes nothing. `outcome` is
    the result of a completed run and the recorded error of a failed one. `crashes` counts the owners
    that were lost while the run executed, one after another, with no completion recorded after the one numbered `mark`.
    `wake_at_ms` tells when a run that nobody owns may go on; None is at once. `no` is the run's number in the order of
    start, which the ledger gives; no other run ever has it.
    """

    id: str
    workflow: str
    version: str | None = None
    arguments: bytes = b"[]"
    state: RunState = "pending"
    created_at_ms: int
    updated_at_ms: int
    owner: str | None = None
    fence: int = 0
    lease_until_ms: int = 0
    wake_at_ms: int | None = None
    waiting_on: str | None = None
    problem: str | None = None
    outcome: bytes | None = None
    cancel_requested: bool = False
    crashes: int = 0
    mark: int = 0
    no: int = field(default=0, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class RunColumns(TypedDict, total=False):
    """The columns of a run that a batch may change; what is left out keeps its value."""

    state: RunState
    updated_at_ms: int
    owner: str | None
    fence: int
    lease_until_ms: int
    wake_at_ms: int | None
    waiting_on: str | None
    problem: str | None
    outcome: bytes | None
    cancel_requested: bool
    crashes: int
    mark: int
