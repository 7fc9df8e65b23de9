"""Waiters: durable registrations of steps that wait for a change of what they read in a store.

A commit that changes what a waiter read makes it due in the same batch, in whichever process. Each due waiter is owed
one `WakeBus.wake` of its run. If that call raises, it is made again after a growing pause, and after the next commit;
once it went through it is repeated only by a timer and at start, until the consumer acknowledges. A due waiter is not
woken by further commits. Delivery is at least once, and the consumer looks again each time.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..core.batch import Batch
from ..core.model import StepId, StoreKey, TooLarge, Unavailable
from ..core.outcome import Outcome
from ..core.waiter import Registered, Waiter

__all__ = ["JoinableWaiters", "Registered", "Waiter", "Waiters"]


class Waiters(Protocol):
    """Every call may answer `Unavailable`."""

    async def register(self, waiter: Waiter) -> Outcome[Registered, TooLarge | Unavailable]:
        """Register the waiter under its store and step, with a new generation, in place of an earlier one.

        It is due at once if a commit after `seen` met its read paths, if the instance is gone, or if that cannot be
        known any more.
        """
        ...

    async def waiting(self, key: StoreKey) -> Outcome[tuple[Waiter, ...], Unavailable]:
        """The waiters on a store that are not due, in the order of their registration."""
        ...

    async def due(self, run_id: str) -> Outcome[tuple[Waiter, ...], Unavailable]:
        """The waiters of a run that are due, in the order in which they became so."""
        ...

    async def acknowledge(self, waiter: Waiter) -> Outcome[bool, Unavailable]:
        """Remove the waiter. False: another generation stands under its key, or none, and nothing is removed."""
        ...

    async def cancel(self, key: StoreKey, step: StepId) -> Outcome[None, Unavailable]:
        """Remove the waiter of a step on a store, whichever generation it has; nothing happens if there is none."""
        ...


@runtime_checkable
class JoinableWaiters(Protocol):
    """Waiters whose changes can be committed in a batch of the caller's; the engine records its waits in that way.

    Waiters that are not joinable are honoured in runs all the same, by calls of their own.
    """

    def registration(self, waiter: Waiter) -> Batch:
        """The batch that registers the waiter; `Committed.registered` has the answer."""
        ...

    def removal(self, key: StoreKey, step: StepId) -> Batch:
        """The batch that removes the waiter of a step."""
        ...
