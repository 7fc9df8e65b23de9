"""What a command reports instead of a result: a sentence for people, a word for programs, an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ....core.model import (
    Conflict,
    Contended,
    InvalidState,
    ReceiptMismatch,
    StoreNotFound,
    TimedOut,
    TooLarge,
    Unavailable,
)
from ....services.engine import RunCancelled, RunFailed, RunMismatch, RunNotFound
from ....services.ledger import CannotOpen
from ....services.signal import InvalidSignal, RunEnded
from .paths import path_text

__all__ = ["FAILED", "INTERRUPTED", "WRONG_USAGE", "ExitCode", "Problem", "cannot_open", "problem_of"]

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 and the number of SIGINT, as shells count."""

ExitCode: TypeAlias = Literal[1, 2, 130]

Met: TypeAlias = (
    Conflict
    | Contended
    | InvalidState
    | ReceiptMismatch
    | InvalidSignal
    | RunCancelled
    | RunEnded
    | RunFailed
    | RunMismatch
    | RunNotFound
    | StoreNotFound
    | TimedOut
    | TooLarge
    | Unavailable
)


class Problem(Exception):
    """An expected failure of a command. `code` is a stable word, `details` are further members of the JSON error."""

    def __init__(
        self, code: str, message: str, *, details: Mapping[str, object] | None = None, exit_code: ExitCode = FAILED
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.exit_code: ExitCode = exit_code

    def as_json(self) -> dict[str, object]:
        return {"error": self.message, "code": self.code, **self.details}


def cannot_open(error: CannotOpen) -> Problem:
    return Problem("cannot_open", str(error), details={"path": error.path})


def problem_of(failure: Met) -> Problem:
    """A failure of a service, for people: what happened, to what, what to do."""
    match failure:
        case RunNotFound(id):
            return Problem("run_not_found", f"there is no run {id!r}; `stepwell runs` lists those that there are")
        case RunMismatch(id, recorded, requested):
            both = {"id": id, "recorded": recorded, "requested": requested}
            text = f"the id {id!r} belongs to another run\n  recorded:  {recorded}\n  requested: {requested}\n"
            return Problem(
                "run_mismatch", f"{text}leave the arguments out to resume it, or take another id", details=both
            )
        case RunFailed(id, error):
            recorded_error = {"type": error.type, "message": error.message, "traceback": error.traceback}
            text = f"run {id!r} failed: {error.type}: {error.message}".rstrip(": ")
            return Problem("run_failed", text, details={"id": id, **recorded_error})
        case RunCancelled(id):
            return Problem("run_cancelled", f"run {id!r} was cancelled", details={"id": id})
        case RunEnded(id, state):
            text = f"run {id!r} has ended, it is {state}: it reads no more signals"
            return Problem("run_ended", text, details={"id": id, "state": state})
        case InvalidSignal(name, message):
            return Problem("invalid_signal", f"signal {name!r} was not sent: {message}", details={"name": name})
        case StoreNotFound(key, reason=str(reason)):
            return Problem("store_not_found", f"there is no store {key}: {reason}")
        case StoreNotFound(key):
            return Problem("store_not_found", f"there is no store {key}; `stepwell stores` lists those that there are")
        case InvalidState(key, issues):
            listed = [{"path": list(issue.path), "message": issue.message} for issue in issues]
            lines = "".join(f"\n  {path_text(issue.path)}: {issue.message}" for issue in issues)
            return Problem(
                "invalid_state", f"the state of {key} does not fit its type:{lines}", details={"issues": listed}
            )
        case Conflict(key) | Contended(key):
            return Problem("contended", f"others keep changing {key}; nothing was changed here, try again")
        case TooLarge(what, size, limit):
            return Problem("too_large", f"{what} has {size} bytes, and the limit is {limit}; nothing was changed")
        case ReceiptMismatch(step, recorded, requested):
            return Problem("receipt_mismatch", f"step {step.key!r} did {recorded} before, and {requested} is asked for")
        case TimedOut(after_ms):
            return Problem("timed_out", f"nothing came within {after_ms} ms")
        case Unavailable(reason, applied):
            hint = (
                "nothing was changed"
                if applied == "no"
                else "whether it was applied is not known: look before you retry"
            )
            return Problem("unavailable", f"the database cannot answer: {reason}; {hint}", details={"applied": applied})
