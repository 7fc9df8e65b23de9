"""Races: which branches have lost, and how each of them is ended at the durable call where it stands.

    decided    the first branch of a `run.race` has ended; all others, and those that they await, have lost
    stood      each loser has come to stand: what it executed is cut off, a call that was being committed is let finish
    recorded   the calls that came to nothing are recorded as lost, all in one batch
    handed on  what they have read and will not see is for whoever asks next, in the order in which it was read
    let go     one by one, in the order of the branches, each is cancelled and may clean up

Nothing else is handed to any branch of the run in between, and who was first follows from the order in which results
are handed over; so a replay ends the same losers at the same places. It finds their calls recorded as lost, and lets
them stand there. Of two races that are decided at once, the losers of the first are let go first.

A branch that was cancelled already, by the run's cancellation or by another race, is awaited and not cancelled again.
One that awaits something other than a durable call is cancelled there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from ...core.step import StepRow
from ...services.step import Suspended
from .cancellation import Cancellation
from .turnstile import SETTLE_TURNS, Lost, Turnstile
from .wait import Waits

__all__ = ["Group", "Races"]

Branch: TypeAlias = asyncio.Task[Any]


@dataclass(eq=False, slots=True)
class Group:
    """The branches of one `run.gather` or `run.race`, in order, and the branch that awaits them.

    `winner` is the first of a race that has ended, and `losers` are those that then stood at durable calls, or were on
    their way to one; they are None when all of that is over.
    """

    forker: Branch | None
    branches: Sequence[Branch]
    is_race: bool
    winner: Branch | None = None
    losers: list[Branch] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether what the forker gets is certain."""
        return (any if self.is_race else all)(branch.done() for branch in self.branches)


@dataclass(eq=False, slots=True)
class _Call:
    """A durable call under way. `is_kept`: what it came to is recorded. `let_go`: it stands, until this is done."""

    row: StepRow
    is_kept: bool
    position: int | None = None
    let_go: asyncio.Future[None] | None = None


@final
@dataclass(eq=False, slots=True)
class Races:
    """The branches of one execution of a run: who has forked whom, and the durable calls where they are."""

    turn: Turnstile
    waits: Waits
    cancellation: Cancellation
    _groups: dict[Branch | None, Group] = field(default_factory=dict[Branch | None, Group])
    _group_of: dict[Branch | None, Group] = field(default_factory=dict[Branch | None, Group])
    _calls: dict[Branch | None, _Call] = field(default_factory=dict[Branch | None, _Call])
    _late: set[Branch | None] = field(default_factory=set[Branch | None])
    _decided: list[Group] = field(default_factory=list[Group])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # --- durable calls --------------------------------------------------------

    def begin(self, branch: Branch | None, row: StepRow) -> None:
        """The branch makes a durable call, which this row has or would have."""
        self._calls[branch] = _Call(row, is_kept=row.status == "lost")
        if branch in self.turn.losing:
            self._change()

    def number(self, branch: Branch | None, position: int) -> None:
        """What its call comes to is about to be recorded at this position."""
        if (call := self._calls.get(branch)) is not None:
            call.position = position

    def keep(self, branch: Branch | None) -> None:
        """What its call came to is recorded."""
        if (call := self._calls.get(branch)) is not None:
            call.is_kept = True

    def end(self, branch: Branch | None) -> None:
        """Its call is over."""
        _ = self._calls.pop(branch, None)

    def check(self) -> None:
        """Raise Lost if the branch that calls has lost: it is to begin and to record nothing more."""
        if self.turn.losing and asyncio.current_task() in self.turn.losing:
            raise Lost

    @property
    def may_lose(self) -> bool:
        """Whether the branch that calls is in a race that is not decided, or has lost one."""
        if not (self._group_of or self.turn.losing):
            return False
        branch = asyncio.current_task()
        if branch in self.turn.losing:
            return True
        while (group := self._group_of.get(branch)) is not None:
            if group.is_race and group.winner is None:
                return True
            branch = group.forker
        return False

    # --- branches -------------------------------------------------------------

    def fork(self, branches: Sequence[Branch], *, is_race: bool) -> Group:
        """The branch that calls awaits these. If it has lost and does not know it yet, they have, in its place."""
        forker = asyncio.current_task()
        group = Group(forker, branches, is_race)
        self._groups[forker] = group
        self._group_of.update(dict.fromkeys(branches, group))
        if forker is not None and forker in self.turn.losing:
            self._inherit(forker, branches)
        return group

    def join(self, group: Group) -> None:
        """All of them have ended."""
        del self._groups[group.forker]
        for branch in group.branches:
            del self._group_of[branch]
            self.turn.losing.discard(branch)
            _ = self._calls.pop(branch, None)
        self._late.difference_update(group.branches)
        self._change()

    def check_late(self) -> None:
        """Cancel the branch that calls if it lost a race while it only awaited what was certain already."""
        if (branch := asyncio.current_task()) in self._late:
            self._late.discard(branch)
            raise asyncio.CancelledError("another branch of run.race came first")

    def ended(self, group: Group, branch: Branch, *, counts: bool) -> None:
        """A branch of the group has ended. The first one decides a race, if that still counts."""
        if counts and group.is_race and group.winner is None:
            group.winner = branch
            if not all(other.done() for other in group.branches):
                self._decide(group)
        self._change()

    def _inherit(self, forker: Branch, branches: Sequence[Branch]) -> None:
        self.turn.losing.discard(forker)
        for group in self._decided:
            if group.losers is not None and forker in group.losers:
                at = group.losers.index(forker)
                group.losers[at : at + 1] = branches
        for branch in branches:
            self.cancellation.lose(branch)
            self.turn.lose(branch)
        self._change()

    # --- the end of a race ------------------------------------------------------

    def _decide(self, group: Group) -> None:
        self.turn.hold()
        self._decided.append(group)
        group.losers = []
        for branch in group.branches:
            self._lose(branch, group.losers)

    def _lose(self, branch: Branch, losers: list[Branch]) -> None:
        """The branch has lost: it is to be cancelled at its durable call, or those that it awaits at theirs."""
        if branch.done() or self.cancellation.has_met(branch):
            return
        self.cancellation.lose(branch)
        awaited = self._groups.get(branch)
        if awaited is None:
            losers.append(branch)
            self.turn.lose(branch)
            self.waits.lose(branch)
        elif awaited.is_settled:
            self._late.add(branch)
        else:
            for inner in awaited.branches:
                self._lose(inner, losers)

    async def end_losers(
        self,
        group: Group,
        record: Callable[[Sequence[StepRow]], Awaitable[None]],
        hand_on: Callable[[Sequence[str]], None],
    ) -> None:
        """If the race is decided, let cancellation reach its losers.

        `record` records that calls are lost, and `hand_on` gets the keys of those that were recorded before.
        """
        if group.losers is None:
            return
        standing: list[_Call] = []
        try:
            standing = await self._stood(group.losers)
            while self._decided[0] is not group:
                _ = await self._changed.wait()
            if lost := [call.row for call in standing if not call.is_kept]:
                await record(lost)
            hand_on([call.row.key for call in standing if call.is_kept])
        finally:
            group.losers = None
            self._decided.remove(group)
            self.turn.let_go([call.let_go for call in standing if call.let_go is not None])
            self._change()

    async def _stood(self, losers: list[Branch]) -> list[_Call]:
        """The calls at which the losers stand, once all of them do, in order; some may end without one."""
        turns = 0
        while late := [branch for branch in losers if not (branch.done() or self._stands(branch))]:
            if all(branch in self._calls for branch in late):
                _ = await self._changed.wait()
            elif turns < SETTLE_TURNS:
                turns += 1
                await asyncio.sleep(0)
            else:
                self._cancel_elsewhere(losers, late)
        return [self._calls[branch] for branch in losers if not branch.done()]

    def _stands(self, branch: Branch) -> bool:
        call = self._calls.get(branch)
        return call is not None and call.let_go is not None

    def _cancel_elsewhere(self, losers: list[Branch], late: Sequence[Branch]) -> None:
        """Cancel those that await something other than a durable call, where that is."""
        for branch in late:
            if branch not in self._calls:
                losers.remove(branch)
                self.turn.losing.discard(branch)
                _ = branch.cancel()

    async def stand(self) -> None:
        """The branch that calls has lost, and what it executed has ended: return when it is let go."""
        branch = asyncio.current_task()
        call = self._calls[branch]
        if call.position is not None:
            self.turn.forget(call.position)
        call.let_go = asyncio.get_running_loop().create_future()
        self._change()
        reason = await self.waits.first(call.let_go, None, cancellable=False, executing=False, losable=False)
        if reason == "aside":
            raise Suspended
        if branch is not None:
            self.turn.losing.discard(branch)
        del self._calls[branch]

    def _change(self) -> None:
        """Let those look again who wait for the losers."""
        self._changed.set()
        self._changed = asyncio.Event()
