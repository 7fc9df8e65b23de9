"""A step as it is recorded, and what a durable call finds when it asks for its key.

Every durable call of a run has a key, unique in the run over all kinds. What the call does depends only on the row
that its key has and on how it may be repeated; `DECISIONS` is that table, and an unforeseen pair is a missing row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .model import Revision, StoreKey

__all__ = [
    "DECISIONS",
    "VALUE_BYTES",
    "Decision",
    "Mode",
    "Pin",
    "StepRow",
    "StepStatus",
    "decide_step",
    "drop_step",
    "erased",
    "lose_step",
    "mismatch",
    "renamed",
    "span_of",
    "to_wait",
]

VALUE_BYTES: Final = 2 * 1024 * 1024
"""The largest result of a run or a step, selected value or signal, as JSON."""

Mode: TypeAlias = Literal["at_least_once", "at_most_once"]
StepStatus: TypeAlias = Literal[
    "started", "retrying", "waiting", "settling", "done", "failed", "cancelled", "lost", "dropped"
]
Decision: TypeAlias = Literal["perform", "wait", "settle", "answer", "raise", "cancel", "lose", "unknown"]


@dataclass(frozen=True, slots=True)
class Pin:
    """The revision of a store that a row names, which retention must keep."""

    key: StoreKey
    revision: Revision


class StepRow(Struct, frozen=True, kw_only=True, gc=False):
    """One durable call of a run. Instants are milliseconds of the ledger's clock.

    `kind` is what was called, `target` on what: a function's name, a store, an instant. `attempt` counts the executions
    from 1. `position` numbers the completions of a run from 1, in the order in which their results were handed to the
    workflow; it is None until then, and for good in a call that was lost. `at_ms` is the deadline of a wait, or when
    the next attempt is due. `value` is the JSON of the result of a call that is done, or of the recorded error of one
    that failed or is to be tried again; of one that is settling it is what it still owes (`core/owed.py`).
    """

    run_id: str
    key: str
    kind: str
    target: str
    status: StepStatus
    attempt: int = 0
    position: int | None = None
    at_ms: int | None = None
    value: bytes | None = None
    pin: Pin | None = None
    recorded_at_ms: int


# What the row says, and how often the call may be executed -> what is to be done.
DECISIONS: Final = MappingProxyType[tuple[StepStatus | None, Mode], Decision](
    {
        (None, "at_least_once"): "perform",
        (None, "at_most_once"): "perform",
        ("started", "at_most_once"): "unknown",  # a crash hid whether it happened; it is never tried again
        ("started", "at_least_once"): "perform",  # its mode was changed since; the code decides now
        ("retrying", "at_least_once"): "perform",
        ("retrying", "at_most_once"): "perform",  # the attempt before ended and was recorded
        ("waiting", "at_least_once"): "wait",
        ("waiting", "at_most_once"): "wait",
        ("settling", "at_least_once"): "settle",  # it was executed, and its files may not be on the host yet
        ("settling", "at_most_once"): "settle",
        ("done", "at_least_once"): "answer",
        ("done", "at_most_once"): "answer",
        ("failed", "at_least_once"): "raise",
        ("failed", "at_most_once"): "raise",
        ("cancelled", "at_least_once"): "cancel",  # here the cancellation of the run reached the workflow
        ("cancelled", "at_most_once"): "cancel",
        ("lost", "at_least_once"): "lose",  # its branch stood here when another one of `run.race` came first
        ("lost", "at_most_once"): "lose",
        ("dropped", "at_least_once"): "perform",  # somebody set it aside, and answers for it
        ("dropped", "at_most_once"): "perform",
    }
)


def decide_step(row: StepRow | None, mode: Mode = "at_least_once") -> Decision:
    """What a durable call does, from the row that its key has."""
    return DECISIONS[None if row is None else row.status, mode]


def to_wait(row: StepRow, timeout_ms: int | None) -> StepRow:
    """The row of a call that waits from now on, and for so long at most; the instant at which that ends is recorded."""
    return replace(row, status="waiting", at_ms=None if timeout_ms is None else row.recorded_at_ms + timeout_ms)


def span_of(row: StepRow) -> int:
    """For how many milliseconds a call that waits was to wait, when that was recorded; 0 is without end."""
    return 0 if row.at_ms is None else row.at_ms - row.recorded_at_ms


def lose_step(row: StepRow, now_ms: int) -> StepRow:
    """The row of a call whose branch lost a race: it is never performed again, and never answered."""
    return replace(row, status="lost", position=None, at_ms=None, value=None, pin=None, recorded_at_ms=now_ms)


def drop_step(row: StepRow, now_ms: int) -> StepRow:
    """The row set aside: its call is made anew if the workflow asks for it. What it gave stays to be looked at."""
    return replace(row, status="dropped", position=None, at_ms=None, pin=None, recorded_at_ms=now_ms)


def mismatch(row: StepRow, kind: str, target: str) -> str | None:
    """None if the row was recorded by this call; otherwise both sides in words. Arguments are not compared."""
    if (row.kind, row.target) == (kind, target):
        return None
    return f"step {row.key!r} was recorded as {row.kind} {row.target}, and the code now asks for {kind} {target}"


def renamed(row: StepRow, key: str, kind: str, target: str) -> str:
    """Both sides in words, where the code asks for a new key and not for the recorded call that is like it."""
    recorded, asked = (f"{kind} {target}".rstrip() for kind, target in ((row.kind, row.target), (kind, target)))
    return f"step {row.key!r} ({recorded}) was recorded and is not asked for; the code asks for {key!r} ({asked})"


NAMED: Final = 5
"""How many of the calls that read an erased state are named."""


def erased(run_id: str, store: StoreKey, revision: Revision, keys: Sequence[str]) -> str:
    """What has become of a state that a replay needs, and the ways on; `keys` are the calls that pin such states."""
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return (
        f"revision {revision.version} of store {store}, which the run has read, is kept no more: its state was erased "
        f"by purge, so the run cannot be replayed as it was. Resume it without the calls that read the store, "
        f"`resume({run_id!r}, drop={list(keys[:NAMED])!r})`{more}, or cancel it"
    )
