"""The turnstile: results of durable calls reach the branches of a run one by one, in the order of their positions.

A branch is the run's own task or one of `run.gather`. It is *blocked* from the moment in which it makes a durable call
until it is let through with the result. The next result is handed over when every branch is blocked, so that what a
branch does in between has happened before the next one goes on, in the first run as in every replay.

Code that waits for something other than a durable call keeps its branch from being blocked. Results are then handed
over all the same after the event loop has turned `SETTLE_TURNS` times without a change: such code has no order to keep.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import final

__all__ = ["Turnstile"]

SETTLE_TURNS = 20


@final
class Turnstile:
    """Begins with one branch, running. `branches` counts those that have not ended and do not await others.

    `on_quiet` is called whenever it has become quiet.
    """

    __slots__ = ("_assigned", "_changes", "_open", "_running", "_ticking", "_waiting", "branches", "on_quiet")

    def __init__(self) -> None:
        self.branches = 1
        self.on_quiet: Callable[[], None] = _nothing
        self._running = 1
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._assigned: list[int] = []
        self._changes = 0
        self._ticking = False
        self._open = False

    @property
    def is_quiet(self) -> bool:
        """Whether all branches are blocked, and no result waits for its turn or is being recorded."""
        return self._running == 0 and not self._waiting and not self._assigned

    def fork(self, branches: int) -> None:
        """The running branch waits for so many new ones."""
        self.branches += branches - 1
        self._running += branches - 1

    def ended(self, *, last: bool) -> None:
        """One of them has ended; with the last, the branch that forked them goes on."""
        if not last:
            self.branches -= 1
            self._running -= 1
        self._let_through()

    def block(self) -> None:
        """A branch makes a durable call whose result is not recorded yet."""
        self._running -= 1
        self._let_through()

    def unblock(self) -> None:
        """The call came to nothing that has a position; its branch goes on at once."""
        self._running += 1
        self._changes += 1

    def assign(self, position: int) -> None:
        """A result is being recorded under `position`; no later one is handed over before it."""
        heapq.heappush(self._assigned, position)

    def abandon(self, position: int) -> None:
        """Nothing is recorded under `position` after all."""
        self._assigned.remove(position)
        heapq.heapify(self._assigned)

    def open(self) -> None:
        """The run is set aside: whoever waits goes on at once, and nobody waits from now on."""
        self._open = True
        waiting, self._waiting = self._waiting, []
        for _, turn in waiting:
            if not turn.done():
                turn.set_result(None)

    async def block_and_pass(self, position: int) -> None:
        """A branch makes a durable call whose result is recorded at `position`: wait for its turn.

        In one motion: a branch that is blocked and has not said for what would let a later result pass before it.
        """
        self._running -= 1
        await self.pass_(position)

    async def pass_(self, position: int) -> None:
        """Wait for the turn of the result at `position`. The branch runs when this returns, or is cancelled."""
        if self._open:
            return
        if self._running == 0 and not self._waiting and self._is_next(position):
            self._let(position)
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (position, turn))
        self._let_through()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():  # otherwise it was let through just before
                self._forget(position)
                self.unblock()
            raise

    def _is_next(self, position: int) -> bool:
        return not self._assigned or self._assigned[0] >= position

    def _let(self, position: int) -> None:
        if self._assigned and self._assigned[0] == position:
            heapq.heappop(self._assigned)
        self.unblock()

    def _let_through(self) -> None:
        self._changes += 1
        if self.is_quiet:
            self.on_quiet()
        if not self._waiting or not self._is_next(self._waiting[0][0]):
            return
        if self._running == 0:
            self._release()
        elif not self._ticking:
            self._ticking = True
            self._tick(self._changes, 0)

    def _release(self) -> None:
        position, turn = heapq.heappop(self._waiting)
        if turn.cancelled():  # its branch is about to leave
            self._let_through()
            return
        self._let(position)
        turn.set_result(None)

    def _tick(self, changes: int, turns: int) -> None:
        """Watch whether the branches that run come to a durable call by themselves."""
        if not self._waiting or not self._is_next(self._waiting[0][0]):
            self._ticking = False
        elif changes != self._changes:
            self._again(self._changes, 0)
        elif turns < SETTLE_TURNS:
            self._again(changes, turns + 1)
        else:
            self._release()
            self._again(self._changes, 0)

    def _again(self, changes: int, turns: int) -> None:
        asyncio.get_running_loop().call_soon(self._tick, changes, turns)

    def _forget(self, position: int) -> None:
        self._waiting = [entry for entry in self._waiting if entry[0] != position]
        heapq.heapify(self._waiting)
        if position in self._assigned:
            self.abandon(position)


def _nothing() -> None:
    """Nobody wants to know."""
