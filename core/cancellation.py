"""Asking a run to end: at once if it has not begun or cannot go on, otherwise by letting its owner know."""

from __future__ import annotations

from .run import RunColumns, RunRow, next_state

__all__ = ["ends_at_once", "request"]


def ends_at_once(row: RunRow) -> bool:
    """Whether nothing of the run is under way: no workflow has to hear of its end, or could."""
    return row.state in ("pending", "stuck")


def request(row: RunRow, now_ms: int) -> RunColumns:
    """The columns by which a run that has not ended is asked to; a LookupError for one that has."""
    if ends_at_once(row):
        return {
            "state": next_state(row.state, "cancel"),
            "updated_at_ms": now_ms,
            "fence": row.fence + 1,
            "cancel_requested": True,
            "waiting_on": None,
        }
    _ = next_state(row.state, "cancel")
    columns: RunColumns = {"updated_at_ms": now_ms, "cancel_requested": True}
    if row.owner is None:
        columns["wake_at_ms"] = None  # whoever takes it up lets the cancellation reach it, at once
    return columns
