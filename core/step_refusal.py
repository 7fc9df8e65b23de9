"""Why a cached step has failed, as it is recorded: the error, and the kind by which a workflow tells failures apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from .model import RecordedError
from .step_sandbox import (
    BodyFailed,
    ExecuteFailure,
    LimitExceeded,
    MaterializationConflict,
    MissingOutput,
    SurvivingRemoval,
    UndeclaredRead,
    UndeclaredWrite,
    UnsupportedBoundary,
    WorkspaceError,
)

__all__ = ["StepRefusal", "recorded_refusal"]

StepRefusal: TypeAlias = ExecuteFailure | UnsupportedBoundary | MaterializationConflict

NAMED: Final = 5
"""How many paths are named."""


def recorded_refusal(failure: StepRefusal) -> tuple[RecordedError, str]:
    """The error of a failure of the sandbox, and its kind: "error" if the body failed itself, or else the code."""
    match failure:
        case BodyFailed(cause):
            return cause, "error"
        case UndeclaredRead():
            message = f"the step reads what it does not declare: {_named(failure.paths)}"
            if failure.cause is None:
                return RecordedError("UndeclaredRead", message, ""), failure.code
            of = f"{failure.cause.type}: {failure.cause.message}"
            return RecordedError("UndeclaredRead", f"{message} ({of})", failure.cause.traceback), failure.code
        case UndeclaredWrite():
            message = f"the step writes or removes what it does not declare: {_named(failure.paths)}"
            return RecordedError("UndeclaredWrite", message, ""), failure.code
        case MissingOutput():
            message = f"the step did not write what it declares: {_named(failure.paths)}"
            return RecordedError("MissingOutput", message, ""), failure.code
        case SurvivingRemoval():
            message = f"the step did not remove what it declares to: {_named(failure.paths)}"
            return RecordedError("SurvivingRemoval", message, ""), failure.code
        case LimitExceeded(what, actual, limit):
            message = f"the limit of {what} is {limit}, and this would make it {actual}"
            return RecordedError("LimitExceeded", message, ""), "limit_exceeded"
        case WorkspaceError(code, message):
            return RecordedError("WorkspaceError", message, ""), code
        case UnsupportedBoundary():
            return RecordedError("UnsupportedBoundary", failure.message, ""), failure.code
        case MaterializationConflict(paths):
            message = (
                "its files could not be put in their places, each time that it was executed: somebody else changed "
                f"them meanwhile, or something else stands there, as a folder where a file is to be: {_named(paths)}"
            )
            return RecordedError("MaterializationConflict", message, ""), "conflict"


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more
