"""Waiters: who is to be woken when what a selector read of a store has changed.

A waiter names the revision that its selector saw and the paths that it read there. The ledger makes it *due* in the
very commit that changes one of these paths, or deletes the store. A due waiter is owed a wake until it is acknowledged,
that is, removed, or registered again under a newer generation.

Waiters that name one `queue` of a store become due one at a time, in the order of their first registration; they ask
for the same thing, so a miss of one is a miss of all:

    met          the first one becomes due, unless one is due already; what the last look of any of them read counts
    removed      the due one has got what it wanted, or gave up: the next one becomes due
    registered   the due one looked and found nothing: it keeps its place, and the queue waits to be met
    passed       the due one did not act in time: the next one becomes due beside it
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Paths, Revision, StepId, StoreKey

__all__ = ["Registered", "Waiter", "WaiterRow", "Wake"]


@dataclass(frozen=True, slots=True)
class Waiter:
    """A step of a run that waits for a change of what it read in a store.

    `generation` numbers the registrations: each is greater than all before it in the ledger. 0 is not registered yet.
    """

    key: StoreKey
    step: StepId
    seen: Revision
    read_paths: Paths
    generation: int = 0
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The waiter with its generation, and whether a wake is owed to it already."""

    waiter: Waiter
    due: bool


@dataclass(frozen=True, slots=True)
class WaiterRow:
    """A waiter as the ledger holds it. `due_no` is the number of the wake that is owed to it, None while it waits."""

    waiter: Waiter
    due_no: int | None
    registered_at_ms: int


@dataclass(frozen=True, slots=True)
class Wake:
    """A wake that is owed to a run, for a waiter that is due, or, where there is none, for a signal it has not read.

    Wakes are numbered in the order in which they came to be owed, in all processes.
    """

    no: int
    run_id: str
    waiter: Waiter | None
