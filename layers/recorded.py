"""What is recorded of an error that a caller's function raised."""

from __future__ import annotations

import traceback
from typing import Final, cast

from returns.primitives.exceptions import UnwrapFailedError

from ..core.model import RecordedError

__all__ = ["as_recorded", "is_misuse", "left_by_exit", "text_of"]

MESSAGE_CHARACTERS: Final = 32_000
"""How much of an error's text is recorded: its beginning."""

TRACEBACK_CHARACTERS: Final = 32_000
"""How much of an error's traceback is recorded: its end, which is nearest to the fault."""


def as_recorded(error: BaseException) -> RecordedError:
    """An exception as it is recorded."""
    text = "".join(traceback.format_exception(error))
    return RecordedError(type(error).__name__, text_of(error), text[-TRACEBACK_CHARACTERS:])


def text_of(value: object) -> str:
    """The text of an error as it is recorded, also where its class has none to give. A group names what it holds."""
    if isinstance(value, UnwrapFailedError):  # its own text is empty
        return f"unwrap of {value.halted_container}"[:MESSAGE_CHARACTERS]  # pyright: ignore[reportUnknownMemberType]
    try:
        return (str(value) + _held(value))[:MESSAGE_CHARACTERS]
    except Exception as broken:
        return f"<no text: {type(broken).__name__} in {type(value).__name__}.__str__>"


def is_misuse(error: BaseException) -> bool:
    """Whether this library raised it as a TypeError, of what a caller's function is or did; not the function itself."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, TypeError) and raised_in.startswith(f"{__name__.partition('.')[0]}.")


def left_by_exit(left: SystemExit, what: str) -> RuntimeError:
    """What is recorded of a function that would have ended the process."""
    return RuntimeError(f"{what} called sys.exit({left.code!r}); a function ends by returning or raising")


def _held(value: object) -> str:
    """The errors that a group of them holds."""
    if not isinstance(value, BaseExceptionGroup):
        return ""
    group = cast("BaseExceptionGroup[BaseException]", value)
    return ": " + "; ".join(f"{type(error).__name__}: {text_of(error)}" for error in group.exceptions)
