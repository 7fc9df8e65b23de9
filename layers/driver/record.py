"""The record of one run under way: what durable calls ask of it, and how their results are written and handed over.

Every durable call goes the same way. It *begins*: its key is looked up, its branch of the workflow is blocked, and what
it is to do is decided. It then *completes*: its row is committed under the next position, and its result reaches the
workflow in that turn; or, already recorded, its result is *handed over* in the turn that it had before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, final

from msgspec import structs

from ...core.batch import Batch, ChangeRun, Committed, Fenced, RunFence, Write, WriteStep
from ...core.history import Asked, History, Refused
from ...core.model import Contended, RecordedError, Revision, StepId, StoreKey, Unavailable
from ...core.outcome import Failure, Success
from ...core.run import RunColumns, RunEvent, RunRow, next_state
from ...core.step import Mode, StepRow, erased, renamed
from ...core.waiter import Registered
from ...services.step import DuplicateKey, NotReplaySafe, StepFailed, Suspended
from .cancellation import Cancellation
from .catch_up import PATIENCE_MS, CatchUp
from .doorbell import Doorbell, Moment
from .pause import Pauses
from .race import Races
from .telling import Told
from .tools import Tools
from .turnstile import Turnstile
from .wait import Reason, Waits

__all__ = ["RunRecord"]

_A = TypeVar("_A")


@final
class RunRecord:
    """One execution of a run's workflow, from the top, by the owner that has claimed it.

    Once `suspending`, durable calls raise `Suspended` and nothing more is recorded. Why is told by `lost` (another
    owner has the run), `problem` (it is stuck; `erased`: no code could help), `cancellation.expired` (its time to clean
    up is over), or none of them: it is set aside. `body` is the task that executes the workflow; `open_waiters` are the
    stores on which its calls may have a waiter, by key; `on_lost` is called for the row of a call that was recorded and
    whose branch has lost a race.
    """

    def __init__(self, row: RunRow, rows: tuple[StepRow, ...], tools: Tools) -> None:
        clock = tools.clock
        self.row = row
        self.fence = RunFence(row.id, row.fence)
        self.history = History(rows)
        self.turn = Turnstile()
        self.catch_up = CatchUp(self.history, self.turn)
        self.waits = Waits(clock, self.turn.losing)
        self.doorbell = Doorbell(row.id, tools, self.waits)
        self.cancellation = Cancellation(row.cancel_requested, clock, self._expire)
        self.races = Races(self.turn, self.waits, self.cancellation)
        self.clock = clock
        self.body: asyncio.Task[None] | None = None
        self.suspending = False
        self.lost = False
        self.open_waiters: dict[str, StoreKey] = {}
        self.on_lost: Callable[[StepRow], None] = _nothing
        self.problem: str | None = None
        self.erased = False
        self._tools = tools
        self.under_way: dict[asyncio.Task[Any] | None, str] = {}
        self.branches: set[asyncio.Task[Any]] = set()
        self._places: dict[str, int] = {}
        self.idle = False

    # --- from outside ---------------------------------------------------------

    def set_aside(self) -> None:
        """End the waits; a step that is being executed is awaited and recorded first."""
        if self.suspending:
            return
        self.suspending = True
        self.idle = self._only_waits
        self.waits.interrupt("aside")
        self.turn.open()

    def cancel(self) -> None:
        """Let cancellation reach each branch of the workflow that stands at a durable wait, or at its next one."""
        self.cancellation.request()
        self.waits.interrupt("cancel")

    def _expire(self) -> None:
        self.set_aside()
        if self.body is not None:
            self.body.cancel()

    def break_off(self, error: Exception) -> None:
        """A bug beneath the workflow: the run is stuck, and shows it."""
        self.problem = f"{type(error).__name__} beneath the workflow: {error}"
        self.set_aside()

    def stop(self, problem: str) -> NoReturn:
        """The run cannot go on: it is stuck, until somebody resumes it."""
        self._stop(f"{problem}; bring the code back or mend it, then resume the run")

    def stop_erased(self, key: StoreKey, revision: Revision) -> NoReturn:
        """A state that a replay needs was erased: the run is stuck, or ends cancelled if that was asked of it."""
        self.erased = True
        self._stop(erased(self.row.id, key, revision, self.history.pinning(key, revision.instance_id)))

    def _stop(self, problem: str) -> NoReturn:
        self.problem = problem
        self.set_aside()
        for branch in self.branches - self.under_way.keys() - {asyncio.current_task()}:
            _ = branch.cancel()  # it waits for something else, which may never come
        raise Suspended

    # --- durable calls --------------------------------------------------------

    async def begin(self, key: str, kind: str, target: str, mode: Mode = "at_least_once") -> Asked:
        """What a durable call is to do; its branch is blocked until `complete`, `hand_over` or `give_up`.

        What stands against the call is raised, and the call is then as if it had not been made; but cancellation that
        reaches the workflow in it is recorded.
        """
        return await self.begin_asked(self.ask(key, kind, target, mode), key, kind, target)

    def ask(self, key: str, kind: str, target: str, mode: Mode = "at_least_once") -> Asked:
        """Take the key for a call, whether it begins now or later."""
        branch = asyncio.current_task()
        if (cut := self.under_way.get(branch)) is not None and not self.suspending:
            if branch is not None and branch.cancelling():  # the host ends
                self.set_aside()
            else:
                raise NotReplaySafe(_cut_short(cut))
        if self.suspending:
            raise Suspended
        answer = self.history.ask(key, kind, target, mode)
        if isinstance(answer, Refused):
            self._refuse(answer, key)
        self.catch_up.asked(kind, target)
        return answer

    async def begin_asked(self, asked: Asked, key: str, kind: str, target: str) -> Asked:
        """`begin` for a key that was asked for before."""
        if self.suspending:
            raise Suspended
        branch = asyncio.current_task()
        self.under_way[branch] = key
        self.races.begin(branch, asked.row or structs.replace(self.new(key, kind, target), status="started"))
        if asked.decision in ("answer", "raise"):
            return asked  # its branch is blocked by `hand_over`
        if asked.decision == "cancel" and asked.row is not None:
            try:
                await self.hand_over(asked.row)
            finally:
                self.cancellation.reach()
            raise _cancellation(self.row.id)
        if asked.decision == "wait" and asked.row is not None and _is_past(asked.row.at_ms, self.clock.now_ms()):
            self._places[key] = self.turn.line_up(asked.row.at_ms or 0)
        self.turn.block()
        self.races.check()
        if asked.decision == "lose":
            await self._lose(key)
        if self.cancellation.requested and self.cancellation.may_reach:
            await self.complete_cancelled(key, kind, target)
        if asked.row is None:
            await self._admit(branch, key, kind, target)
        return asked

    async def _lose(self, key: str) -> NoReturn:
        """Stand here until the race has its winner: an earlier execution lost it at this call."""
        if not self.races.may_lose:
            self.stop(f"step {key!r} was recorded as lost in a `run.race`, and the code now makes it outside of one")
        _ = await self.waits.first(None, None, cancellable=False)
        raise Suspended

    async def _admit(self, branch: asyncio.Task[Any] | None, key: str, kind: str, target: str) -> None:
        """Hold a new call back as long as it may be a recorded one under another key; if it is, stop the run."""
        history, catch_up, patient = self.history, self.catch_up, True
        while history.has_like(kind, target) and not history.was_dropped(key):
            if catch_up.is_done or not patient:
                self.stop(renamed(history.like(kind, target), key, kind, target))
            cancellable, until_ms = self.cancellation.may_reach, self.clock.now_ms() + PATIENCE_MS
            held = catch_up.hold(kind, target)
            reason = await self.waits.first(held, until_ms, cancellable=cancellable, executing=False)
            if reason == "aside":
                raise Suspended
            if reason == "cancel":
                await self.complete_cancelled(key, kind, target)
            patient = reason != "time" or catch_up.has_new
        self.catch_up.began(branch)

    def _refuse(self, refused: Refused, key: str) -> NoReturn:
        match refused.reason:
            case "mismatch":
                self.stop(refused.problem)
            case "duplicate":
                raise DuplicateKey(refused.problem)
            case "full":
                raise StepFailed(RecordedError("TooLarge", refused.problem, ""), key=key, kind="too_large")

    def cut_short(self) -> str | None:
        """What is wrong if the branch that asks has left a durable call before it was done."""
        cut = self.under_way.get(asyncio.current_task())
        return None if cut is None else _cut_short(cut)

    def new(self, key: str, kind: str, target: str) -> StepRow:
        """A row for a call of this run that is done; it is not recorded yet."""
        now_ms = self.clock.now_ms()
        return StepRow(run_id=self.row.id, key=key, kind=kind, target=target, status="done", recorded_at_ms=now_ms)

    def number(self, row: StepRow) -> StepRow:
        """The row under the next position; no later result is handed over before it."""
        position = self.history.take_position()
        self.turn.assign(position)
        self.races.number(asyncio.current_task(), position)
        self.leave_line(row.key)
        return structs.replace(row, position=position, recorded_at_ms=self.clock.now_ms())

    async def complete(self, row: StepRow, *writes: Write) -> None:
        """Record the completion of a call, together with `writes`, and hand it over in its turn."""
        self.races.check()
        self.waits.done(row.key)
        numbered = self.number(row)
        _ = await self.commit(WriteStep(numbered), *writes, *self.waiter_removal(row.key), *self.going_on())
        await self.completed(numbered)

    def waiter_removal(self, key: str) -> tuple[Write, ...]:
        """What removes the waiter that the call `key` may have, to be written with what the call came to."""
        store, waiters = self.open_waiters.get(key), self._tools.joinable_waiters
        if store is None or waiters is None:
            return ()
        return waiters.removal(store, StepId(self.row.id, key)).writes

    async def completed(self, row: StepRow) -> None:
        """The completion is recorded: hand it over in its turn."""
        self.waits.done(row.key)
        self.history.record(row)
        await self.forget(row.key)
        await self._pass(self.turn.pass_(_position(row)))

    async def in_line(self, key: str) -> None:
        """A wait is over because its instant has come: if that was before the run was taken up, wait for its turn.

        It keeps this until it is given a position, waits for something else, or has no answer from a service.
        """
        if (place := self._places.get(key)) is not None:
            await self.turn.claim(place)
            if self.suspending:
                raise Suspended

    def leave_line(self, key: str | None) -> None:
        if key is not None and (place := self._places.pop(key, None)) is not None:
            self.turn.forget(place)

    async def forget(self, key: str) -> None:
        """The call is over: let waiters know that are not removed in its batch."""
        store = self.open_waiters.pop(key, None) if self.open_waiters else None
        if store is not None and self._tools.joinable_waiters is None:
            _ = await self._tools.waiters.cancel(store, StepId(self.row.id, key))

    async def hand_over(self, row: StepRow) -> None:
        """Wait for the turn in which a result that was recorded before reaches the workflow."""
        await self._pass(self.turn.block_and_pass(_position(row)))

    async def recall(self, row: StepRow, reading: Awaitable[_A]) -> _A:
        """`hand_over` for a result of which more has to be read than its row."""
        return await self._pass(self.turn.block_and_read(_position(row), reading))

    async def _pass(self, turn: Awaitable[_A]) -> _A:
        branch = asyncio.current_task()
        self.races.keep(branch)
        try:
            result = await turn
        finally:
            self.catch_up.ended(branch)
        if self.suspending:
            raise Suspended
        self.races.end(branch)
        del self.under_way[branch]
        return result

    async def complete_cancelled(self, key: str, kind: str, target: str) -> NoReturn:
        """Cancellation reaches the workflow in this call; that it was here is recorded."""
        self.races.check()
        self.cancellation.begin_timer()
        try:
            await self.complete(structs.replace(self.new(key, kind, target), status="cancelled"))
        finally:
            self.cancellation.reach()
        raise _cancellation(self.row.id)

    async def woken(self, moment: Moment, until_ms: int | None) -> Reason:
        """Wait for a wake of the run since `moment`, "wake", or for the instant, "time"; "cancel" comes first.

        Who waits has shown for what, by `waits.begin`. A wake is a hint: look again.
        """
        self.leave_line(self.under_way.get(asyncio.current_task()))
        reason = await self.doorbell.wait(moment, until_ms, cancellable=self.cancellation.may_reach)
        if reason == "aside":
            raise Suspended
        return reason

    async def reached(self, row: StepRow, at_ms: int, text: str, *writes: Write) -> bool:
        """Wait for an instant, shown in the run's row. False: cancellation came first. `writes` go with that row."""
        if at_ms <= self.clock.now_ms():
            await self.in_line(row.key)
            return True
        self.leave_line(row.key)
        self.waits.begin(row.key, text, at_ms, wakes=False)
        if shown := (*writes, *self.standing()):
            _ = await self.commit(*shown)
        reason = await self.waits.first(None, at_ms, cancellable=self.cancellation.may_reach)
        if reason == "aside":
            raise Suspended
        self.waits.done(row.key)
        return reason != "cancel"

    # --- commits --------------------------------------------------------------

    async def commit(self, *writes: Write) -> tuple[Registered, ...]:
        """Write as `written` does; the waiters that were registered."""
        return (await self.written(*writes)).registered

    async def written(self, *writes: Write) -> Committed:
        """Write under the run's fence, however often it takes.

        Raises Suspended once the run is lost, or set aside.
        """
        batch = Told(self._tools.ledger, self._tools.joinable_journal, self.row.id, Batch((self.fence,), writes))
        verdict = await batch.commit()
        if not isinstance(verdict, Success):
            pauses = Pauses()
            while isinstance(verdict, Failure):
                _ = await self.try_again(verdict.failure(), pauses, losable=False)
                verdict = await batch.commit()
        committed = verdict.unwrap()
        return committed if isinstance(committed, Committed) else Committed()

    async def try_again(
        self, refusal: object, pauses: Pauses, *, cancellable: bool = False, losable: bool = True
    ) -> Reason:
        """After a call was refused: pause, or raise Suspended if the run is lost or set aside."""
        match refusal:
            case Fenced():
                self.lost = True
                self.set_aside()
            case Contended() | Unavailable():
                pass
            case _:
                raise AssertionError(f"a write of run {self.row.id!r} was refused: {refusal!r}")
        if self.suspending:
            raise Suspended
        self.leave_line(self.under_way.get(asyncio.current_task()))
        again_ms = self.clock.now_ms() + pauses.next_ms()
        reason = await self.waits.first(None, again_ms, cancellable=cancellable, losable=losable)
        if reason == "aside":
            raise Suspended
        return reason

    def after(self, event: RunEvent, columns: RunColumns) -> RunColumns:
        """The columns of the run's row after an event, which is taken note of."""
        self.row = replace(self.row, state=next_state(self.row.state, event))
        return {"state": self.row.state, "updated_at_ms": self.clock.now_ms(), **columns}

    @property
    def _only_waits(self) -> bool:
        """Whether all branches wait for an instant."""
        return len(self.waits) == self.turn.branches

    def standing(self) -> tuple[ChangeRun, ...]:
        """The change of the run's row, if all its branches wait now: for what, and until when."""
        text, wake_at_ms = self.waits.text, self.waits.earliest_ms
        is_shown = self.row.state == "waiting" and (self.row.waiting_on, self.row.wake_at_ms) == (text, wake_at_ms)
        if not self._only_waits or is_shown:
            return ()
        self.row = replace(self.row, waiting_on=text, wake_at_ms=wake_at_ms)
        shown: RunColumns = {"waiting_on": text, "wake_at_ms": wake_at_ms}
        return (ChangeRun(self.row.id, self.after("wait", shown)),)

    def going_on(self) -> tuple[ChangeRun, ...]:
        """The change of the run's row, if that says that the run waits: it goes on."""
        if self.row.state != "waiting":
            return ()
        return (ChangeRun(self.row.id, self.after("claim", {"waiting_on": None, "wake_at_ms": None})),)


def _nothing(_: StepRow) -> None:
    """Nobody wants to know."""


def _position(row: StepRow) -> int:
    if row.position is None:
        raise AssertionError(f"the completed call {row.key!r} of run {row.run_id!r} has no position")
    return row.position


def _is_past(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and at_ms <= now_ms


def _cut_short(key: str) -> str:
    return (
        f"the durable call {key!r} was cut short from outside, as `asyncio.timeout` does, so a replay would not be the "
        "same. Give the call itself a `timeout`, or race it against `run.sleep`"
    )


def _cancellation(run_id: str) -> asyncio.CancelledError:
    return asyncio.CancelledError(f"run {run_id!r} was cancelled")
