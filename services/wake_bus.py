"""The wake bus: hints that a run may go on.

A wake is a hint, never the truth: what a run waits for is in the ledger, and whoever is woken looks there. The bus is
edge-triggered: a wake that nobody waits for is dropped. What comes between the look and the wait is caught by a token.

    token = bus.token(run_id)                  # before the look
    ... look: not yet ...
    await bus.await_wake(run_id, token)        # returns at once if a wake came since
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

__all__ = ["WakeBus", "WakeToken"]


@final
@dataclass(frozen=True, slots=True)
class WakeToken:
    """A moment in the life of a bus, opaque and for any number of uses; it holds no resources."""

    moment: int = 0


class WakeBus(Protocol):
    """Wakes by the id of a run."""

    async def wake(self, run_id: str) -> None:
        """Release all who wait for `run_id` now; with nobody waiting it is dropped, but known to earlier tokens."""
        ...

    async def await_wake(self, run_id: str, token: WakeToken | None = None) -> None:
        """Return at the next wake of `run_id`, or at once if there was one after the token was taken.

        Cancelled or not, it leaves nothing behind. A wake may be spurious; one that came after the token is never lost.
        """
        ...

    async def waiters(self, run_id: str) -> int:
        """How many wait for `run_id` now; for tests and diagnosis."""
        ...

    def token(self, run_id: str) -> WakeToken:
        """The present moment, to be taken before looking at what is waited for."""
        ...
