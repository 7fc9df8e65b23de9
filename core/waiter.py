"""Waiters: who is to be woken when what a selector read of a store has changed.

A waiter names the revision that its selector saw and the paths that it read there. The ledger makes it *due* in the
very commit that changes one of these paths, or deletes the store. A due waiter is owed a wake until it is acknowledged,
that is, removed, or registered again under a newer generation.

Waiters that name one `queue` of a store become due one at a time, in the order of their first registration; they ask
for the same thing, so a miss of one is a miss of all:

    met          the first one that waits becomes due, unless one has the turn; what the last look of any of them read
                 counts
    removed      the one that has the turn got what it wanted, or gave up: the next one has it
    registered   the one that has the turn looked and found nothing: it keeps its place, and the queue waits to be met
    passed       the one that has the turn did not act in time: it stays due, and the next one has the turn
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import DecodeError

from . import patch as patches
from .model import Paths, Revision, StepId, StoreKey
from .paths import intersect

__all__ = [
    "CHECKED_COMMITS",
    "Joining",
    "Registered",
    "Waiter",
    "WaiterRow",
    "Wake",
    "join",
    "lives",
    "may_have_met",
    "touched_by",
]

CHECKED_COMMITS: Final = 10_000
"""How many commits after its look a registration is checked against; after more it is due, since a look costs less."""


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


# --- rules --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joining:
    """What a registration means for those that wait together, a waiter without a queue being alone.

    `due`: the waiter is due at once, since what it saw is gone. `takes`: they wait by its look from now on. `checks`:
    nobody of them has the turn, and it is not known whether a commit since the look that counts has met what it read;
    if one has, the first of them that waits is due.
    """

    due: bool
    takes: bool
    checks: bool


def join(seen: Revision, tip: Revision | None, last_look: int | None, *, was_met: bool, is_held: bool) -> Joining:
    """How a waiter that saw `seen`, of a store that is at `tip`, joins those that wait together.

    Their last look was at version `last_look`, None where there is none. `was_met`: it was due itself until now, or one
    is whose turn was passed; otherwise no commit since the last look has met what it read, as long as nobody has the
    turn. `is_held`: one has. The later look counts.
    """
    if tip is None or not lives(seen, tip) or seen.version > tip.version:
        return Joining(due=True, takes=last_look is None, checks=False)
    takes = last_look is None or not last_look <= tip.version or last_look < seen.version
    return Joining(due=False, takes=takes, checks=not is_held and (takes or was_met))


def lives(seen: Revision, tip: Revision | None) -> bool:
    """Whether the instance that was looked at is the one that there is."""
    return tip is not None and tip.instance_id == seen.instance_id


def may_have_met(commits: Sequence[bytes], read_paths: Paths) -> bool:
    """Whether one of these commits, each an encoded patch, may have changed what was read."""
    return any(intersect(read_paths, touched_by(commit)) for commit in commits)


def touched_by(commit: bytes) -> Paths:
    """What an encoded patch may have changed; all of it, if the patch cannot be read."""
    try:
        return patches.touched(patches.decode(commit))
    except DecodeError:
        return ((),)
