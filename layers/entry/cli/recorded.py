"""A run as it is recorded, for people and for programs: its row, its steps, and what it ended with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ....core.codec import read_error
from ....core.outcome import Failure, Success
from ....core.run import RunRow
from ....core.signal import SignalRow
from ....core.step import StepRow
from ....services.engine import RunCancelled, RunFailed, RunStatus
from ....services.workflow import AnyWorkflow
from .output import Output, instant, json_text, shorten
from .problem import Problem, problem_of

__all__ = ["Recorded", "outcome_of", "print_run", "run_json", "status_json"]

# --- for programs -----------------------------------------------------------


def status_json(run: RunStatus | RunRow) -> dict[str, object]:
    """How a run stands, in few words."""
    return {
        "id": run.id,
        "workflow": run.workflow,
        "state": run.state,
        "waiting_on": run.waiting_on,
        "problem": run.problem,
        "created_at_ms": run.created_at_ms,
        "updated_at_ms": run.updated_at_ms,
    }


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that is recorded of a run, with the signals that it has not read; `owner_ended`: the owner's process has."""

    row: RunRow
    steps: Sequence[StepRow]
    unread: Sequence[SignalRow]
    owner_ended: bool


def run_json(recorded: Recorded) -> dict[str, object]:
    """All of it. `result` is there once it completed, `error` once it failed."""
    row = recorded.row
    return {
        **status_json(row),
        "version": row.version,
        "arguments": json.loads(row.arguments),
        "wake_at_ms": row.wake_at_ms,
        "cancel_requested": row.cancel_requested,
        "owner": row.owner,
        "owner_ended": recorded.owner_ended,
        **_outcome_json(row),
        "steps": [_step_json(step) for step in recorded.steps],
        "unread_signals": [_signal_json(signal) for signal in recorded.unread],
    }


def _signal_json(signal: SignalRow) -> dict[str, object]:
    return {"name": signal.name, "value": json.loads(signal.value), "dedupe": signal.dedupe}


def _outcome_json(row: RunRow) -> dict[str, object]:
    if row.outcome is None:
        return {}
    return {"error": _error_json(row.outcome)} if row.state == "failed" else {"result": json.loads(row.outcome)}


def _step_json(step: StepRow) -> dict[str, object]:
    shown: dict[str, object] = {
        "key": step.key,
        "kind": step.kind,
        "target": step.target,
        "status": step.status,
        "attempt": step.attempt,
        "position": step.position,
        "at_ms": step.at_ms,
        "recorded_at_ms": step.recorded_at_ms,
    }
    if step.value is not None:
        shown |= {"error": _error_json(step.value)} if _is_error(step) else {"value": json.loads(step.value)}
    if step.pin is not None:
        key, revision = step.pin.key, step.pin.revision
        shown["store"] = {
            "name": key.name,
            "id": key.id,
            "instance_id": revision.instance_id,
            "version": revision.version,
        }
    return shown


def _is_error(step: StepRow) -> bool:
    return step.status in ("failed", "retrying")


def _error_json(data: bytes) -> dict[str, object]:
    error, kind = read_error(data)
    return {"kind": kind, "type": error.type, "message": error.message, "traceback": error.traceback}


# --- for people -------------------------------------------------------------


def print_run(output: Output, recorded: Recorded) -> None:
    row, steps = recorded.row, recorded.steps
    ended = " (that process has ended; the next worker takes the run over)" if recorded.owner_ended else ""
    output.pairs(
        [
            ("run", row.id),
            ("workflow", row.workflow if row.version is None else f"{row.workflow} (version {row.version})"),
            ("state", row.state),
            ("waits for", row.waiting_on),
            ("problem", row.problem),
            ("cancel", "asked to end" if row.cancel_requested and not row.ended else None),
            ("arguments", shorten(row.arguments.decode())),
            ("started", instant(row.created_at_ms)),
            ("changed", instant(row.updated_at_ms)),
            ("goes on", instant(row.wake_at_ms)),
            ("driven by", None if row.owner is None else row.owner + ended),
        ]
    )
    if steps:
        output.text("")
        output.table(
            ["#", "step", "kind", "target", "status", "attempts", "recorded", "value"],
            [
                (s.position, s.key, s.kind, s.target, s.status, s.attempt or None, instant(s.recorded_at_ms), _value(s))
                for s in steps
            ],
            whole=("#", "status", "recorded"),
        )
    if recorded.unread:
        output.text("")
        unread = [(signal.name, shorten(signal.value.decode()), signal.dedupe) for signal in recorded.unread]
        output.table(["unread signal", "value", "dedupe"], unread)
    if row.outcome is not None:
        output.text("")
        _print_outcome(output, row.state == "failed", row.outcome)


def _value(step: StepRow) -> str | None:
    """What a step gave, in brief; of one that waits, until when."""
    if step.value is None:
        store = None if step.pin is None else f"{step.pin.key} at {step.pin.revision.version}"
        return store or (None if step.at_ms is None else f"until {instant(step.at_ms)}")
    if step.status == "settling":
        return "executed; its files and effects are owed"
    if not _is_error(step):
        return shorten(step.value.decode())
    error, _ = read_error(step.value)
    again = f", again at {instant(step.at_ms)}" if step.status == "retrying" and step.at_ms is not None else ""
    return f"{shorten(f'{error.type}: {error.message}')}{again}"


def _print_outcome(output: Output, failed: bool, outcome: bytes) -> None:
    if failed:
        error, _ = read_error(outcome)
        output.pairs([("error", f"{error.type}: {error.message}")])
        output.text(f"\n{error.traceback.rstrip()}")
    else:
        output.pairs([("result", json_text(json.loads(outcome), indent=2))])


# --- what a run ended with --------------------------------------------------


def outcome_of(row: RunRow, workflow: AnyWorkflow) -> object:
    """The JSON value that a run of this workflow ended with; otherwise the `Problem` to report.

    A workflow that gave an Outcome counts as its own: its success is the value, its failure is a problem.
    """
    if row.state == "cancelled":
        raise problem_of(RunCancelled(row.id))
    if row.outcome is None:
        raise LookupError(f"run {row.id!r} is {row.state} and has no outcome")
    if row.state == "failed":
        error, _ = read_error(row.outcome)
        raise problem_of(RunFailed(row.id, error))
    value = json.loads(row.outcome)
    decoded = workflow.result.decode(row.outcome, f"the result of run {row.id!r}")
    if isinstance(decoded, Success):
        return value["success"]
    if isinstance(decoded, Failure):
        text = f"run {row.id!r} completed with a failure: {decoded.failure()!r}"
        raise Problem("failure", text, details={"id": row.id, "failure": value["failure"]})
    return value
