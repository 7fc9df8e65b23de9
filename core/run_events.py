"""What the journal of a run is told of the run: derived from the very writes that change it, and from nothing else.

    InsertRun     run-started, by which it is claimed at once if its engine drives it
    ChangeRun     what became of the run: claimed, waiting, going on, released, ended, stuck, resumed, to be cancelled
    WriteStep     what became of one durable call
    SendSignal    signal-sent; ReadSignal is told by the call that reads, in place of its completion

So what is told cannot differ from what is written. It is facts and digests: names, kinds, instants, attempts, types of
errors, and SHA-256 of values; no argument, result, or text of an error, which may hold secrets. `RUN_EVENTS` is the
closed set of types, and `core/run_fold.py` folds them to the run again.
"""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.json import Encoder

from .batch import Batch, ChangeRun, InsertRun, ReadSignal, RunFence, SendSignal, WriteStep
from .codec import read_error
from .entry import NewEntry, identity_of
from .journal import Source
from .model import Revision, StoreKey
from .run import RunColumns, RunRow
from .signal import SignalRow
from .step import StepRow, StepStatus

__all__ = ["RUN_EVENTS", "Changed", "RunEventType", "RunFacts", "StepFacts", "is_written", "run_entries"]

RunEventType: TypeAlias = Literal[
    "stepwell.run-started",
    "stepwell.run-claimed",
    "stepwell.run-waiting",
    "stepwell.wake-scheduled",
    "stepwell.run-released",
    "stepwell.run-completed",
    "stepwell.run-failed",
    "stepwell.run-cancelled",
    "stepwell.run-stuck",
    "stepwell.run-resumed",
    "stepwell.run-cancel-requested",
    "stepwell.step-started",
    "stepwell.step-waiting",
    "stepwell.step-retrying",
    "stepwell.step-settling",
    "stepwell.step-completed",
    "stepwell.step-failed",
    "stepwell.step-cancelled",
    "stepwell.step-lost",
    "stepwell.step-dropped",
    "stepwell.store-changed",
    "stepwell.signal-sent",
    "stepwell.signal-read",
]

RUN_EVENTS: Final = MappingProxyType[RunEventType, str](
    {
        "stepwell.run-started": "A run was accepted; with an owner, it is executed from then on.",
        "stepwell.run-claimed": "An owner took the run, under a fence that is higher than any before.",
        "stepwell.run-waiting": "All branches of the run wait: for a wake, or until an instant.",
        "stepwell.wake-scheduled": "A run that waited goes on: a wake, or the instant, has come.",
        "stepwell.run-released": "Its owner gave the run back; whoever takes it up begins from what is recorded.",
        "stepwell.run-completed": "The run ended with a result, which is told by its digest.",
        "stepwell.run-failed": "The run ended with an error, which is told by its type.",
        "stepwell.run-cancelled": "The run ended because that was asked of it.",
        "stepwell.run-stuck": "The run cannot go on by itself; its row says why.",
        "stepwell.run-resumed": "A run that was stuck, or had failed, waits for an owner again.",
        "stepwell.run-cancel-requested": "The run was asked to end, and is to hear of it.",
        "stepwell.step-started": "An attempt begins of a step that is executed at most once, or in the sandbox.",
        "stepwell.step-waiting": "A durable call began to wait, until an instant or without end.",
        "stepwell.step-retrying": "An attempt failed; the next one is due at an instant.",
        "stepwell.step-settling": "A step was executed in the sandbox; its files and effects are owed to the outside.",
        "stepwell.step-completed": "A durable call gave a result, which is told by its digest.",
        "stepwell.step-failed": "A durable call failed for good, with an error of this type.",
        "stepwell.step-cancelled": "The cancellation of the run reached the workflow in this call.",
        "stepwell.step-lost": "The branch of this call lost a race; it is never performed.",
        "stepwell.step-dropped": "What the call had recorded was set aside when the run was resumed.",
        "stepwell.store-changed": "A durable call changed a store, in the same batch, and gave a result.",
        "stepwell.signal-sent": "A signal was sent to the run; its value is told by its digest.",
        "stepwell.signal-read": "A durable call read a signal, and gave it as its result.",
    }
)
"""What the journal is told of runs: the types, with a sentence each."""

_STEP_EVENTS: Final = MappingProxyType[StepStatus, RunEventType](
    {
        "started": "stepwell.step-started",
        "waiting": "stepwell.step-waiting",
        "retrying": "stepwell.step-retrying",
        "settling": "stepwell.step-settling",
        "done": "stepwell.step-completed",
        "failed": "stepwell.step-failed",
        "cancelled": "stepwell.step-cancelled",
        "lost": "stepwell.step-lost",
        "dropped": "stepwell.step-dropped",
    }
)


class Changed(Struct, frozen=True, gc=False):
    """The change of a store that is committed with a call: to which revision, or None, which is its deletion."""

    key: StoreKey
    revision: Revision | None


class RunFacts(Struct, frozen=True, gc=False, omit_defaults=True):
    """The payload of an entry about the run itself. Instants are milliseconds of the ledger's clock."""

    workflow: str | None = None
    version: str | None = None
    arguments: str | None = None
    owner: str | None = None
    fence: int | None = None
    crashes: int | None = None
    at_ms: int | None = None
    result: str | None = None
    error: str | None = None
    failure: str | None = None


class StepFacts(Struct, frozen=True, gc=False, omit_defaults=True):
    """The payload of an entry about one durable call: what its row says, and what was changed or read with it."""

    key: str
    kind: str
    target: str = ""
    attempt: int = 0
    position: int | None = None
    at_ms: int | None = None
    result: str | None = None
    error: str | None = None
    failure: str | None = None
    store: str | None = None
    id: str | None = None
    instance_id: str | None = None
    version: int | None = None
    signal: int | None = None


class _Sent(Struct, frozen=True, gc=False):
    name: str
    value: str


_encode: Final = Encoder().encode

# --- from writes to entries ---------------------------------------------------


def run_entries(batch: Batch, changed: Changed | None = None) -> tuple[NewEntry, ...]:
    """What the journal of the run is told of a batch that changes this run and no other, in the order of its writes.

    That the run goes on comes first: what its wait has found follows. `changed` is what the call's own operation writes
    to a store in the same batch.
    """
    entries: list[NewEntry] = []
    for write in batch.writes:
        match write:
            case WriteStep():
                entries.append(_of_step(write.row, _read_by(write.row, batch), changed))
            case ChangeRun():
                if (entry := _of_run(write.columns, batch)) is not None:
                    entries.insert(0 if entry.event_type == "stepwell.wake-scheduled" else len(entries), entry)
            case InsertRun():
                entries.append(_of_start(write.row))
            case SendSignal():
                entries.append(_of_signal(write.row))
            case _:
                pass
    return tuple(entries)


def _entry(event_type: RunEventType, facts: RunFacts | StepFacts | _Sent, source: Source | None = None) -> NewEntry:
    """With a source, which names what is told, it is told once; the first that is told stays."""
    payload = _encode(facts)
    if source is None:
        return NewEntry(event_type, payload)
    return NewEntry(event_type, payload, source, identity_of(event_type, source.id.encode(), None))


def _digest(value: bytes | None) -> str | None:
    return None if value is None else sha256(value).hexdigest()


# --- the run ------------------------------------------------------------------


def _of_start(row: RunRow) -> NewEntry:
    facts = RunFacts(row.workflow, row.version, _digest(row.arguments), row.owner, row.fence)
    return _entry("stepwell.run-started", facts)


def _of_run(columns: RunColumns, batch: Batch) -> NewEntry | None:
    """What a change of the run's row says; None where that is nothing to be told, as of a lease.

    A new fence tells who takes or leaves the run from an owner that only shows what the run waits for.
    """
    match columns.get("state"):
        case None:
            return _of_request(batch) if columns.get("cancel_requested") else None
        case "running":
            if "fence" not in columns:
                return _entry("stepwell.wake-scheduled", RunFacts())
            taken = RunFacts(owner=columns.get("owner"), fence=columns["fence"], crashes=columns.get("crashes") or None)
            return _entry("stepwell.run-claimed", taken)
        case "waiting":
            until = RunFacts(at_ms=columns.get("wake_at_ms"))
            if "fence" not in columns:
                return _entry("stepwell.run-waiting", until)
            return _entry("stepwell.run-released" if "owner" in columns else "stepwell.run-resumed", until)
        case "stuck":
            return _entry("stepwell.run-stuck", RunFacts(crashes=columns.get("crashes") or None))
        case "completed":
            return _entry("stepwell.run-completed", RunFacts(result=_digest(columns.get("outcome"))))
        case "failed":
            error, failure = _error(columns.get("outcome"))
            return _entry("stepwell.run-failed", RunFacts(error=error, failure=failure))
        case "cancelled":
            return _entry("stepwell.run-cancelled", RunFacts())
        case "pending":
            return None


def _of_request(batch: Batch) -> NewEntry:
    """The run is to be cancelled: told once for each owner, however often it is asked."""
    fence = next((expected.fence for expected in batch.expects if isinstance(expected, RunFence)), 0)
    return _entry("stepwell.run-cancel-requested", RunFacts(), Source("stepwell:cancel-requested", fence))


def _error(recorded: bytes | None) -> tuple[str | None, str | None]:
    """The type of a recorded error, and the kind of its failure."""
    if recorded is None:
        return None, None
    error, kind = read_error(recorded)
    return error.type, kind


# --- its calls ----------------------------------------------------------------


def _read_by(row: StepRow, batch: Batch) -> int | None:
    """The number of the signal that a call reads in this batch."""
    if row.kind != "signal":
        return None
    return next((write.no for write in batch.writes if isinstance(write, ReadSignal) and write.key == row.key), None)


def _of_step(row: StepRow, signal: int | None, changed: Changed | None) -> NewEntry:
    status = row.status
    event_type = _STEP_EVENTS[status]
    if status == "done":
        if changed is not None:
            return _entry("stepwell.store-changed", _of_change(row, changed))
        if signal is not None:
            event_type = "stepwell.signal-read"
        result = _digest(row.value)
        facts = StepFacts(row.key, row.kind, row.target, row.attempt, row.position, result=result, signal=signal)
        return _entry(event_type, facts)
    error, failure = _error(row.value) if status in ("failed", "retrying") else (None, None)
    facts = StepFacts(row.key, row.kind, row.target, row.attempt, row.position, row.at_ms, None, error, failure)
    return _entry(event_type, facts)


def _of_change(row: StepRow, changed: Changed) -> StepFacts:
    revision = changed.revision
    return StepFacts(
        row.key,
        row.kind,
        row.target,
        row.attempt,
        row.position,
        result=_digest(row.value),
        store=changed.key.name,
        id=changed.key.id,
        instance_id=None if revision is None else revision.instance_id,
        version=None if revision is None else revision.version,
    )


# --- its signals ----------------------------------------------------------------


def _of_signal(row: SignalRow) -> NewEntry:
    """A signal that is sent twice under one `dedupe` is there once, and told once."""
    source: Source | None = None
    if row.dedupe is not None:
        named = f"{len(row.name)}:{row.name}:{row.dedupe}".encode()
        source = Source(f"stepwell:signal:{sha256(named).hexdigest()}", 0)
    return _entry("stepwell.signal-sent", _Sent(row.name, sha256(row.value).hexdigest()), source)


# --- after an unclear commit ----------------------------------------------------


def is_written(batch: Batch, run: RunRow | None, steps: tuple[StepRow, ...]) -> bool:
    """Whether a batch of the run's present owner, of which no verdict came, was committed: what is stored says it.

    The rows of its calls tell, which nobody else writes meanwhile; without any, the run's own row does.
    """
    written = [write.row for write in batch.writes if isinstance(write, WriteStep)]
    if written:
        stored = {row.key: row for row in steps}
        return all(stored.get(row.key) == row for row in written)
    changes = [write.columns for write in batch.writes if isinstance(write, ChangeRun)]
    return run is not None and all(
        getattr(run, name) == value for columns in changes for name, value in columns.items()
    )
