"""A run as its journal tells it: the state it is in, and what became of each of its durable calls.

The fold of a run's whole journal says the same as the run's rows, at any moment: the entries are written with the rows.
Of a journal that was compacted it says what the entries that are left say. It holds no results, only their digests.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar, final

from msgspec import ValidationError, convert

from .growing_set import GrowingSet
from .journal import Entry, Projection
from .run import RunState
from .run_events import RunFacts, StepFacts
from .step import StepStatus

__all__ = ["PROJECTION", "ToldRun", "ToldStep", "initial", "reduce"]

_F = TypeVar("_F", RunFacts, StepFacts)


@final
@dataclass(frozen=True, slots=True)
class ToldStep:
    """What became of one durable call, last told by the entry `seq`."""

    seq: int
    status: StepStatus
    facts: StepFacts


@final
@dataclass(frozen=True, slots=True)
class ToldRun:
    """What the journal tells of a run. `state` is None where nothing of the run itself is told.

    `owner` is who has it now, `fence` that of the last claim. `result` is the digest of what a completed run gave,
    `error` the type of what a failed one raised; `sent` counts the signals that were sent to it, `going_on` how often a
    wait of the whole run came to its end.
    """

    workflow: str | None = None
    state: RunState | None = None
    owner: str | None = None
    fence: int | None = None
    cancel_requested: bool = False
    result: str | None = None
    error: str | None = None
    sent: int = 0
    going_on: int = 0
    told: GrowingSet[ToldStep] = field(default_factory=GrowingSet[ToldStep])

    @property
    def steps(self) -> dict[str, ToldStep]:
        """The durable calls by their keys, each as it was last told. Made anew: keep what you ask more than once."""
        return {step.facts.key: step for step in self.told}


_STATES: Final = MappingProxyType[str, RunState](
    {
        "stepwell.run-claimed": "running",
        "stepwell.run-waiting": "waiting",
        "stepwell.wake-scheduled": "running",
        "stepwell.run-released": "waiting",
        "stepwell.run-completed": "completed",
        "stepwell.run-failed": "failed",
        "stepwell.run-cancelled": "cancelled",
        "stepwell.run-stuck": "stuck",
        "stepwell.run-resumed": "waiting",
    }
)

_STATUSES: Final = MappingProxyType[str, StepStatus](
    {
        "stepwell.step-started": "started",
        "stepwell.step-waiting": "waiting",
        "stepwell.step-retrying": "retrying",
        "stepwell.step-settling": "settling",
        "stepwell.step-completed": "done",
        "stepwell.step-failed": "failed",
        "stepwell.step-cancelled": "cancelled",
        "stepwell.step-lost": "lost",
        "stepwell.step-dropped": "dropped",
        "stepwell.store-changed": "done",
        "stepwell.signal-read": "done",
    }
)


def initial() -> ToldRun:
    """Before any entry."""
    return ToldRun()


def reduce(run: ToldRun, entry: Entry) -> ToldRun:
    """The run after `entry`; the same object where it says nothing of the run, or makes no sense."""
    if (status := _STATUSES.get(entry.event_type)) is not None:
        facts = _read(entry.payload, StepFacts)
        return run if facts is None else replace(run, told=run.told.added(ToldStep(entry.seq, status, facts)))
    if (state := _STATES.get(entry.event_type)) is not None:
        told = _read(entry.payload, RunFacts)
        return run if told is None else _after(run, entry.event_type, state, told)
    match entry.event_type:
        case "stepwell.run-started":
            return _begun(run, _read(entry.payload, RunFacts))
        case "stepwell.run-cancel-requested":
            return replace(run, cancel_requested=True)
        case "stepwell.signal-sent":
            return replace(run, sent=run.sent + 1)
        case _:
            return run


PROJECTION: Final = Projection(initial, reduce)


def _read(payload: object, kind: type[_F]) -> _F | None:
    try:
        return convert(payload, kind)
    except ValidationError:
        return None


def _begun(run: ToldRun, facts: RunFacts | None) -> ToldRun:
    if facts is None:
        return run
    state: RunState = "pending" if facts.owner is None else "running"
    return replace(run, workflow=facts.workflow, state=state, owner=facts.owner, fence=facts.fence)


def _after(run: ToldRun, event_type: str, state: RunState, facts: RunFacts) -> ToldRun:
    """What the run is after an entry that says in which state it is."""
    match event_type:
        case "stepwell.run-waiting":
            return replace(run, state=state)
        case "stepwell.wake-scheduled":
            return replace(run, state=state, going_on=run.going_on + 1)
        case "stepwell.run-claimed":
            return replace(run, state=state, owner=facts.owner, fence=facts.fence)
        case "stepwell.run-resumed":  # one that had failed has had its answer to a cancellation
            asked = run.cancel_requested and run.state != "failed"
            return replace(run, state=state, cancel_requested=asked, error=None)
        case "stepwell.run-cancelled":
            return replace(run, state=state, owner=None, cancel_requested=True)
        case _:
            return replace(run, state=state, owner=None, result=facts.result, error=facts.error)
