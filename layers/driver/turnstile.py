"""The turnstile: results of durable calls reach the branches of a run one by one, in the order of their positions.

A branch is the run's own task or one of `run.gather` or `run.race`. It is *blocked* from the moment in which it makes a
durable call until it is let through with the result. The next result is handed over when every branch is blocked, so
that what a branch does in between has happened before the next one goes on, in the first run as in every replay.

Code that waits for something other than a durable call keeps its branch from being blocked. Results are then handed
over all the same after the event loop has turned `SETTLE_TURNS` times without a change: such code has no order to keep.

Waits that are overdue when the run is taken up, since their deadlines passed while nobody was there, end one by one, in
the order of these: each has a *place* behind all positions, which it claims before it is given a position.

When a race is decided, nothing is handed over until its losers have been let go, one by one as well: they come before
every result that was not handed over when the race was decided, so they need no position of their own.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, final

__all__ = ["Lost", "Turnstile"]

_A = TypeVar("_A")

SETTLE_TURNS = 20

BEHIND = 1 << 64
"""Behind all positions."""

SHARERS = 1 << 20
"""How many waits may have one deadline."""


@final
class Lost(asyncio.CancelledError):
    """The branch lost a race: the durable call where it stands comes to nothing. The workflow sees a plain one."""


@final
class Turnstile:
    """Begins with one branch, running. `branches` counts those that have not ended and do not await others.

    `losing` are branches that have lost a race and do not know of it yet: no result is handed to them any more.
    `on_quiet` is called whenever it has become quiet.
    """

    __slots__ = (
        "_assigned",
        "_changes",
        "_claims",
        "_held",
        "_leaving",
        "_open",
        "_overdue",
        "_passing",
        "_running",
        "_ticking",
        "_waiting",
        "branches",
        "losing",
        "on_quiet",
    )

    def __init__(self) -> None:
        self.branches = 1
        self.losing: set[asyncio.Task[Any]] = set()
        self.on_quiet: Callable[[], None] = _nothing
        self._running = 1
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []
        self._passing: dict[asyncio.Task[Any] | None, tuple[int, asyncio.Future[bool]]] = {}
        self._held = 0
        self._leaving: deque[asyncio.Future[None]] = deque()
        self._assigned: list[int] = []
        self._claims: set[int] = set()
        self._changes = 0
        self._ticking = False
        self._open = False
        self._overdue = 0

    @property
    def is_quiet(self) -> bool:
        """Whether all branches are blocked, no result waits for its turn or is being recorded, and no loser stands."""
        return self._running == 0 and not (self._waiting or self._assigned or self._held or self._leaving)

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
        self._let_through()

    def open(self) -> None:
        """The run is set aside: whoever waits goes on at once, and nobody waits from now on."""
        self._open = True
        waiting, self._waiting = self._waiting, []
        for _, turn in waiting:
            if not turn.done():
                turn.set_result(True)

    async def block_and_pass(self, position: int) -> None:
        """A branch makes a durable call whose result is recorded at `position`: wait for its turn.

        In one motion: a branch that is blocked and has not said for what would let a later result pass before it.
        """
        self._running -= 1
        await self.pass_(position)

    async def block_and_read(self, position: int, reading: Awaitable[_A]) -> _A:
        """The same for a result that has to be read first, however long that takes.

        It is read before its turn: after it, whatever takes time would let the next result reach another branch.
        """
        self.assign(position)
        self.block()
        try:
            found = await reading
        except BaseException as error:
            self.forget(position)
            if not isinstance(error, Lost):
                self.unblock()
            raise
        await self.pass_(position)
        return found

    async def pass_(self, position: int) -> None:
        """Wait for the turn of the result at `position`. The branch runs when this returns, or is cancelled.

        Raises Lost, the branch still being blocked, if that has lost a race before its turn came.
        """
        if self._open:
            return
        branch = None
        if self.losing and (branch := asyncio.current_task()) in self.losing:
            self.forget(position)
            raise Lost
        if self._running == 0 and not self._waiting and self._may_pass(position):
            self._let(position)
            return
        branch = branch or asyncio.current_task()
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (position, turn))
        self._passing[branch] = (position, turn)
        self._let_through()
        try:
            is_let = await turn
        except asyncio.CancelledError:
            if turn.cancelled() or position in self._claims:  # otherwise it was let through just before
                self.forget(position)
                self.unblock()
            raise
        finally:
            del self._passing[branch]
        if not is_let:
            raise Lost

    async def claim(self, position: int) -> None:
        """Wait until all earlier results have reached their branches, and these stand again.

        From then on until something is recorded under `position`, or it is abandoned, no other result reaches a branch:
        if that is a result, nobody comes before it. Raises Lost if the branch has lost a race before.
        """
        self._claims.add(position)
        try:
            await self.pass_(position)
        finally:
            self._claims.discard(position)

    def line_up(self, at_ms: int) -> int:
        """The place of a wait that was to end at this instant; it is to be claimed, and given up by `forget`."""
        self._overdue += 1
        place = BEHIND + at_ms * SHARERS + self._overdue
        self.assign(place)
        return place

    # --- losers ---------------------------------------------------------------

    def hold(self) -> None:
        """A race is decided: hand nothing over until `let_go`."""
        self._held += 1

    def lose(self, branch: asyncio.Task[Any]) -> None:
        """The branch has lost: what may wait for its turn to reach it is dropped."""
        self.losing.add(branch)
        position, turn = self._passing.get(branch, (0, None))
        if turn is not None and not turn.done():
            self.forget(position)
            turn.set_result(False)

    def let_go(self, losers: Iterable[asyncio.Future[None]]) -> None:
        """Let the losers of one race run, one by one, before any result is handed over; they are blocked until then."""
        self._held -= 1
        self._leaving.extend(losers)
        self._let_through()

    def _may_pass(self, position: int) -> bool:
        is_next = not self._assigned or self._assigned[0] >= position
        return is_next and not self._held and not self._leaving

    @property
    def _has_next(self) -> bool:
        """Whether somebody may run as soon as nobody does."""
        return bool(self._leaving) or (bool(self._waiting) and self._may_pass(self._waiting[0][0]))

    def _let(self, position: int) -> None:
        if position in self._claims:  # its branch stays blocked, and nobody goes before it
            self._changes += 1
            return
        if self._assigned and self._assigned[0] == position:
            heapq.heappop(self._assigned)
        self.unblock()

    def _let_through(self) -> None:
        self._changes += 1
        if self.is_quiet:
            self.on_quiet()
        if not self._has_next:
            return
        if self._running == 0:
            self._release()
        elif not self._ticking:
            self._ticking = True
            self._tick(self._changes, 0)

    def _release(self) -> None:
        if self._leaving:
            loser = self._leaving.popleft()
            if loser.done():  # its branch is about to leave
                self._let_through()
                return
            self.unblock()
            loser.set_result(None)
            return
        position, turn = heapq.heappop(self._waiting)
        if turn.cancelled():  # its branch is about to leave
            self._let_through()
            return
        self._let(position)
        turn.set_result(True)

    def _tick(self, changes: int, turns: int) -> None:
        """Watch whether the branches that run come to a durable call by themselves."""
        if not self._has_next:
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

    def forget(self, position: int) -> None:
        """Nobody waits for the turn of `position`, and nothing is to be recorded under it."""
        self._waiting = [entry for entry in self._waiting if entry[0] != position]
        heapq.heapify(self._waiting)
        if position in self._assigned:
            self.abandon(position)


def _nothing() -> None:
    """Nobody wants to know."""
