"""Who drives a run, until when, and what the loss of an owner means.

An owner holds a run by a lease: until `lease_until_ms` nobody else claims it, and its writes name the fence under which
it claimed. Whoever claims the run raises the fence, so an owner that slept through its lease can write nothing.

A run whose owners are lost one after another while it executes, with nothing completed in between, kills its processes:
it is stopped (`stuck`) until somebody resumes it.
"""

from __future__ import annotations

from .run import RunColumns, RunEvent, RunRow, next_state

__all__ = ["CRASHES", "LEASE_MS", "RENEW_MS", "claim", "hold", "leave"]

LEASE_MS = 15_000
"""How long an owner is trusted without a sign of life."""

RENEW_MS = 5_000
"""How often an owner gives one: a third of the lease, so that two may be late or fail."""

CRASHES = 3
"""How many owners a run may lose without completing anything before it is stopped."""


def hold(now_ms: int) -> int:
    """Until when a lease that is given or renewed now lasts."""
    return now_ms + LEASE_MS


def claim(row: RunRow, owner: str, now_ms: int, position: int) -> RunColumns:
    """The columns by which `owner` takes a run that may be claimed, or stops it if it has lost too many owners.

    `position` is the number of the last completion that the run has recorded.
    """
    crashes = row.crashes
    if row.owner is not None and row.state == "running":
        crashes = crashes + 1 if position == row.mark else 1
    columns: RunColumns = {
        "fence": row.fence + 1,
        "updated_at_ms": now_ms,
        "crashes": crashes,
        "mark": position,
        "wake_at_ms": None,
        "waiting_on": None,
    }
    if crashes >= CRASHES:
        problem = (
            f"the process that executed it ended {crashes} times in a row without completing a step, "
            f"the last time as {row.owner}; mend the cause, then resume the run"
        )
        columns |= {"state": next_state("running", "stop"), "owner": None, "lease_until_ms": 0, "problem": problem}
        return columns
    state = next_state(row.state, "claim")
    columns |= {"state": state, "owner": owner, "lease_until_ms": hold(now_ms), "problem": None}
    return columns


def leave(row: RunRow, event: RunEvent, now_ms: int) -> RunColumns:
    """The columns by which an owner leaves a run by this event; a LookupError if it cannot."""
    return {
        "state": next_state(row.state, event),
        "updated_at_ms": now_ms,
        "fence": row.fence + 1,
        "owner": None,
        "lease_until_ms": 0,
        "waiting_on": None,
        "wake_at_ms": None,
    }
