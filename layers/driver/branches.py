"""The branches of a run: forked by `run.gather` and `run.race`, joined when all have ended, let go where they lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn, final

from ...core.batch import WriteStep
from ...core.step import StepRow, lose_step
from .race import Group
from .record import RunRecord

__all__ = ["Branches"]


@final
class Branches:
    """What becomes of the branches of one execution, as its record is to know it."""

    __slots__ = ("_record",)

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def fork(self, branches: Sequence[asyncio.Task[Any]], *, is_race: bool) -> Group:
        """The branch that calls waits for these."""
        self._record.turn.fork(len(branches))
        self._record.branches.difference_update(_current())
        self._record.branches.update(branches)
        self._record.cancellation.fork(branches)
        return self._record.races.fork(branches, is_race=is_race)

    def ended(self, group: Group, branch: asyncio.Task[Any], *, last: bool) -> None:
        """One of the branches of a group has ended, or the last of them."""
        self._record.leave_line(self._record.under_way.get(branch))
        self._record.races.ended(group, branch, counts=not self._record.suspending)
        self._record.turn.ended(last=last)

    async def end_losers(self, group: Group) -> None:
        """If a race is decided, let cancellation reach its losers where they stand, once that is recorded."""
        await self._record.races.end_losers(group, self._record_losses, self._hand_on)

    def _hand_on(self, keys: Sequence[str]) -> None:
        """What these calls came to is recorded, and their branches will not see it."""
        for row in map(self._record.history.row, keys):
            if row is not None:
                self._record.on_lost(row)

    async def _record_losses(self, rows: Sequence[StepRow]) -> None:
        """Record, for all losers of a race at once, that their calls are never to be performed."""
        now_ms = self._record.clock.now_ms()
        lost = [lose_step(self._record.history.row(row.key) or row, now_ms) for row in rows]
        removals = [write for row in lost for write in self._record.waiter_removal(row.key)]
        _ = await self._record.commit(*map(WriteStep, lost), *removals, *self._record.going_on())
        for row in lost:
            self._record.history.record(row)
            await self._record.forget(row.key)

    async def give_way(self) -> NoReturn:
        """The branch that calls has lost a race in a durable call: it goes on in its turn, by being cancelled."""
        branch = asyncio.current_task()
        key = self._record.under_way.get(branch, "")
        self._record.waits.done(key)
        self._record.leave_line(key)
        await self._record.races.stand()
        self._record.catch_up.ended(branch)
        _ = self._record.under_way.pop(branch, None)
        raise asyncio.CancelledError(f"another branch of run.race came first, and {key!r} was lost") from None

    async def show(self) -> None:
        """One of the branches that were forked has ended: if the others only wait, the run waits."""
        if self._record.row.state == "running" and not self._record.suspending and (shown := self._record.standing()):
            _ = await self._record.commit(*shown)

    def join(self, group: Group) -> None:
        """All of its branches have ended, and the branch that calls goes on."""
        branches = group.branches
        self._record.cancellation.join(branches, branches if group.winner is None else (group.winner,))
        self._record.races.join(group)
        self._record.branches.difference_update(branches)
        self._record.branches.update(_current())
        for branch in branches:
            if (cut := self._record.under_way.pop(branch, None)) is not None:
                self._record.under_way[asyncio.current_task()] = cut


def _current() -> tuple[asyncio.Task[Any], ...]:
    branch = asyncio.current_task()
    return () if branch is None else (branch,)
