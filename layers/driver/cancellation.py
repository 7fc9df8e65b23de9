"""The cancellation of one run: whether it was asked for, which branches it has reached, and the time to clean up.

Each branch meets it once, at a durable call, and may clean up then. Branches that are forked later are a part of that
cleaning up, and where it reached a branch, whoever forked that branch knows of it too. Deferred clean-up is never met,
and neither is a branch that lost a race: it is cancelled already, and cleans up within the same time.
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

    __slots__ = (
        "_clock",
        "_expire",
        "_lost",
        "_met",
        "_reached",
        "_shielded",
        "_timer",
        "expired",
        "has_reached",
        "requested",
    )

    def __init__(self, requested: bool, clock: Clock, expire: Callable[[], None]) -> None:
        self.requested = requested
        self.has_reached = False
        self.expired = False
        self._clock = clock
        self._expire = expire
        self._reached: set[asyncio.Task[Any]] = set()  # it, or who forked it
        self._lost: set[asyncio.Task[Any]] = set()  # the same
        self._met: set[asyncio.Task[Any]] = set()  # itself, by either
        self._shielded = False
        self._timer: asyncio.Task[None] | None = None

    def request(self) -> None:
        """The run is to be cancelled."""
        self.requested = True
        if self._shielded or self._lost:
            self.begin_timer()

    @property
    def may_reach(self) -> bool:
        """Whether the branch that asks has not met it yet."""
        if not (self._reached or self._lost):
            return not self._shielded
        branch = asyncio.current_task()
        return not (self._shielded or branch in self._reached or branch in self._lost)

    def reach(self) -> None:
        """The branch that calls meets it now."""
        if (branch := asyncio.current_task()) is not None:
            self._reached.add(branch)
            self._met.add(branch)
        self.has_reached = True
        self.begin_timer()

    def lose(self, branch: asyncio.Task[Any]) -> None:
        """The branch has lost a race, and is cancelled by that."""
        self._lost.add(branch)
        self._met.add(branch)
        if self.requested:
            self.begin_timer()

    def has_met(self, branch: asyncio.Task[Any]) -> bool:
        """Whether the branch itself was cancelled since it was forked, by the run's cancellation or by a race."""
        return branch in self._met

    def shield(self) -> None:
        """The workflow's function has ended: deferred clean-up is called whatever comes, but not without end."""
        self._shielded = True
        if self.requested:
            self.begin_timer()

    def fork(self, branches: Iterable[asyncio.Task[Any]]) -> None:
        """The branch that calls has forked these."""
        forker = asyncio.current_task()
        for family in (self._reached, self._lost):
            if forker in family:
                family.update(branches)

    def join(self, branches: Iterable[asyncio.Task[Any]], heard: Iterable[asyncio.Task[Any]]) -> None:
        """These have ended, and the branch that calls goes on with what it has `heard` of some of them."""
        met = self._reached.intersection(heard)
        for family in (self._reached, self._lost, self._met):
            family.difference_update(branches)
        if met and (branch := asyncio.current_task()) is not None:
            self._reached.add(branch)
            self._met.add(branch)

    def close(self) -> None:
        """The execution has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def begin_timer(self) -> None:
        """The time to clean up runs from now on, if it does not yet."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().create_task(self._time())

    async def _time(self) -> None:
        await self._clock.sleep_until_ms(self._clock.now_ms() + CLEANUP_MS)
        self.expired = True
        while True:  # a `finally` may wait for something once more
            self._expire()
            await self._clock.sleep_until_ms(self._clock.now_ms() + AGAIN_MS)
