"""The cancellation of one run: whether it was asked for, which branches it has reached, and the time to clean up.

Each branch meets it once, at a durable call, and may clean up then. Branches that are forked later are a part of that
cleaning up, and where it reached a branch, whoever forked that branch knows of it too. Deferred clean-up is never met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from ...services.clock import Clock

__all__ = ["CLEANUP_MS", "Cancellation"]

CLEANUP_MS: Final = 30_000
"""How long a cancelled run may go on to clean up."""

AGAIN_MS: Final = 1_000
"""How often a run that goes on after that is cut off."""


@final
class Cancellation:
    """`expire` is called when the time to clean up is over, and again until `close`; `expired` is true from then on."""

    __slots__ = ("_clock", "_expire", "_reached", "_shielded", "_timer", "expired", "has_reached", "requested")

    def __init__(self, requested: bool, clock: Clock, expire: Callable[[], None]) -> None:
        self.requested = requested
        self.has_reached = False
        self.expired = False
        self._clock = clock
        self._expire = expire
        self._reached: set[asyncio.Task[Any]] = set()
        self._shielded = False
        self._timer: asyncio.Task[None] | None = None

    def request(self) -> None:
        """The run is to be cancelled."""
        self.requested = True
        if self._shielded:
            self._begin_timer()

    @property
    def may_reach(self) -> bool:
        """Whether the branch that asks has not met it yet."""
        return not self._shielded and asyncio.current_task() not in self._reached

    def reach(self) -> None:
        """The branch that calls meets it now."""
        if (branch := asyncio.current_task()) is not None:
            self._reached.add(branch)
        self.has_reached = True
        self._begin_timer()

    def shield(self) -> None:
        """The workflow's function has ended: deferred clean-up is called whatever comes, but not without end."""
        self._shielded = True
        if self.requested:
            self._begin_timer()

    def fork(self, branches: Iterable[asyncio.Task[Any]]) -> None:
        """The branch that calls has forked these."""
        if asyncio.current_task() in self._reached:
            self._reached.update(branches)

    def join(self, branches: Iterable[asyncio.Task[Any]]) -> None:
        """These have ended, and the branch that calls goes on."""
        met = self._reached.intersection(branches)
        self._reached -= met
        if met and (branch := asyncio.current_task()) is not None:
            self._reached.add(branch)

    def close(self) -> None:
        """The execution has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().create_task(self._time())

    async def _time(self) -> None:
        await self._clock.sleep_until_ms(self._clock.now_ms() + CLEANUP_MS)
        self.expired = True
        while True:  # a `finally` may wait for something once more
            self._expire()
            await self._clock.sleep_until_ms(self._clock.now_ms() + AGAIN_MS)
