"""Taking a run up again that does not go on by itself, and setting recorded calls of it aside.

A stuck run goes on when somebody says so, and so does a failed one if its outcome is to be taken back. What was
recorded stays and is not done again, except for the calls that are dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from .batch import BATCH_BYTES
from .run import WANTS_OWNER, RunColumns, RunRow, next_state
from .step import StepRow, drop_step

__all__ = ["drop", "may_resume", "resume"]

LISTED = 20
"""How many keys a run is said to have, by name."""

KEPT_BYTES = BATCH_BYTES // 2
"""How much of what dropped calls gave is kept, since they are all dropped in one batch."""


def may_resume(row: RunRow, *, reopen: bool) -> bool:
    """Whether the run is one that resuming takes up again; with `reopen` a failed one is too."""
    return row.state == "stuck" or (reopen and row.state == "failed")


def resume(row: RunRow, now_ms: int) -> RunColumns:
    """The columns by which a run that may be resumed waits for an owner, as if nothing had gone wrong.

    A cancellation that was asked for before a run failed has had its answer in that: it does not reach it now.
    """
    return {
        "state": next_state(row.state, "resume"),
        "updated_at_ms": now_ms,
        "fence": row.fence + 1,
        "problem": None,
        "outcome": None,
        "waiting_on": WANTS_OWNER,
        "cancel_requested": row.cancel_requested and row.state != "failed",
        "crashes": 0,
    }


def drop(run_id: str, rows: Iterable[StepRow], keys: Collection[str], now_ms: int) -> tuple[StepRow, ...]:
    """The rows of these keys, set aside. A ValueError names a key that is none of the run's, and those that are."""
    by_key = {row.key: row for row in rows}
    if unknown := [key for key in keys if key not in by_key]:
        listed = ", ".join(repr(key) for key in list(by_key)[:LISTED]) or "nothing"
        more = f" and {len(by_key) - LISTED} more" if len(by_key) > LISTED else ""
        raise ValueError(
            f"run {run_id!r} has recorded nothing under {', '.join(map(repr, unknown))}, so there is nothing to drop; "
            f"it has recorded {listed}{more}"
        )
    dropped = [drop_step(by_key[key], now_ms) for key in dict.fromkeys(keys)]
    if sum(len(row.value or b"") for row in dropped) > KEPT_BYTES:
        return tuple(replace(row, value=None) for row in dropped)
    return tuple(dropped)
