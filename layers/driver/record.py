"""The record of one run under way: what durable calls ask of it, and how their results are written and handed over.

Every durable call goes the same way. It *begins*: its key is looked up, its branch of the workflow is blocked, and what
it is to do is decided. It then *completes*: its row is committed under the next position, and its result reaches the
workflow in that turn; or, already recorded, its result is *handed over* in the turn that it had before.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NoReturn, final

from ...core.batch import Batch, ChangeRun, Fenced, RunFence, Write, WriteStep
from ...core.history import Asked, History, Refused
from ...core.model import RecordedError
from ...core.outcome import Failure
from ...core.run import RunColumns, RunEvent, RunRow, next_state
from ...core.step import Mode, StepRow
from ...services.clock import Clock
from ...services.ledger import Ledger
from ...services.run import DuplicateKey, StepFailed, Suspended
from .pause import Pauses
from .turnstile import Turnstile
from .wait import Waits

__all__ = ["RunRecord"]

CLEANUP_MS = 30_000
"""How long a cancelled run may go on to clean up."""

NOBODY: RunColumns = {"owner": None, "lease_until_ms": 0, "waiting_on": None, "wake_at_ms": None}
"""What becomes of the columns about the owner when a run is given back or ends."""


@final
class RunRecord:
    """One execution of a run's workflow, from the top, by the owner that has claimed it.

    Once `suspending`, durable calls raise `Suspended` and nothing more is recorded. Why is told by `lost` (another
    owner has the run), `problem` (it is stuck), `expired` (its time to clean up is over), or none of them: it is set aside.
    """

    def __init__(self, row: RunRow, rows: tuple[StepRow, ...], ledger: Ledger, clock: Clock) -> None:
        self.row = row
        self.history = History(rows)
        self.turn = Turnstile()
        self.waits = Waits(clock)
        self.clock = clock
        self.suspending = False
        self.lost = False
        self.problem: str | None = None
        self.cancelled = False
        self.expired = False
        self._cancel_requested = row.cancel_requested
        self._ledger = ledger
        self._cleanup: asyncio.Task[None] | None = None

    # --- from outside ---------------------------------------------------------

    def set_aside(self) -> None:
        """End the waits; a step that is being executed is awaited and recorded first."""
        self.suspending = True
        self.waits.interrupt("aside")

    def cancel(self) -> None:
        """Let cancellation reach the workflow where it stands at a durable wait, or at its next durable call."""
        self._cancel_requested = True
        if not self.cancelled:
            self.waits.interrupt("cancel")

    def close(self) -> None:
        """The execution has ended."""
        if self._cleanup is not None:
            self._cleanup.cancel()

    def stop(self, problem: str) -> NoReturn:
        """The run cannot go on: it is stuck, until somebody resumes it."""
        self.problem = f"{problem}; bring the code back or mend it, then resume the run"
        self.set_aside()
        raise Suspended

    # --- durable calls --------------------------------------------------------

    async def begin(self, key: str, kind: str, target: str, mode: Mode = "at_least_once") -> Asked:
        """What a durable call is to do; its branch is blocked until `complete`, `hand_over` or `give_up`.

        What stands against the call is raised, and the call is then as if it had not been made; but cancellation that
        reaches the workflow in it is recorded.
        """
        if self.suspending:
            raise Suspended
        answer = self.history.ask(key, kind, target, mode)
        if isinstance(answer, Refused):
            self._refuse(answer, key)
        self.turn.block()
        if answer.decision == "cancel" and answer.row is not None:
            self._begin_cleanup()
            await self.hand_over(answer.row)
            raise _cancellation(self.row.id)
        if answer.decision not in ("answer", "raise") and self._cancel_requested and not self.cancelled:
            await self.complete_cancelled(key, kind, target)
        return answer

    def _refuse(self, refused: Refused, key: str) -> NoReturn:
        match refused.reason:
            case "mismatch":
                self.stop(refused.problem)
            case "duplicate":
                raise DuplicateKey(refused.problem)
            case "full":
                raise StepFailed(RecordedError("TooLarge", refused.problem, ""), key=key, kind="too_large")

    def give_up(self, numbered: StepRow | None = None) -> None:
        """The call came to nothing that is recorded; `numbered` is its row, if that has a position already."""
        if numbered is not None and numbered.position is not None:
            self.turn.abandon(numbered.position)
        self.turn.unblock()

    def new(self, key: str, kind: str, target: str) -> StepRow:
        """A row for a call of this run that is done; it is not recorded yet."""
        now_ms = self.clock.now_ms()
        return StepRow(run_id=self.row.id, key=key, kind=kind, target=target, status="done", recorded_at_ms=now_ms)

    def number(self, row: StepRow) -> StepRow:
        """The row under the next position; no later result is handed over before it."""
        position = self.history.take_position()
        self.turn.assign(position)
        return replace(row, position=position, recorded_at_ms=self.clock.now_ms())

    async def complete(self, row: StepRow) -> None:
        """Record the completion of a call, and hand it over in its turn."""
        self.waits.done(row.key)
        numbered = self.number(row)
        await self.commit(WriteStep(numbered), *self.going_on())
        await self.completed(numbered)

    async def completed(self, row: StepRow) -> None:
        """The completion is recorded: hand it over in its turn."""
        self.history.record(row)
        await self.hand_over(row)

    async def hand_over(self, row: StepRow) -> None:
        """Wait for the turn in which a recorded result reaches the workflow."""
        if row.position is None:
            raise AssertionError(f"the completed call {row.key!r} of run {row.run_id!r} has no position")
        await self.turn.pass_(row.position)

    async def complete_cancelled(self, key: str, kind: str, target: str) -> NoReturn:
        """Cancellation reaches the workflow in this call; that it was here is recorded."""
        self._begin_cleanup()
        await self.complete(replace(self.new(key, kind, target), status="cancelled"))
        raise _cancellation(self.row.id)

    async def reached(self, row: StepRow, at_ms: int, text: str, *writes: Write) -> bool:
        """Wait for an instant, shown in the run's row. False: cancellation came first. `writes` go with that row."""
        if at_ms <= self.clock.now_ms():
            return True
        self.waits.begin(row.key, text, at_ms)
        shown: RunColumns = {"waiting_on": self.waits.text, "wake_at_ms": self.waits.earliest_ms}
        await self.commit(*writes, ChangeRun(self.row.id, self.after("wait", shown)))
        reason = await self.waits.first(None, at_ms, cancellable=not self.cancelled)
        if reason == "aside":
            raise Suspended
        self.waits.done(row.key)
        return reason != "cancel"

    # --- cancellation ---------------------------------------------------------

    def _begin_cleanup(self) -> None:
        self.cancelled = True
        if self._cleanup is None:
            owner = asyncio.current_task()
            self._cleanup = asyncio.get_running_loop().create_task(self._expire(owner))

    async def _expire(self, task: asyncio.Task[object] | None) -> None:
        await self.clock.sleep_until_ms(self.clock.now_ms() + CLEANUP_MS)
        self.expired = True
        self.set_aside()
        if task is not None:
            task.cancel()

    # --- commits --------------------------------------------------------------

    @property
    def fence(self) -> RunFence:
        return RunFence(self.row.id, self.row.fence)

    async def commit(self, *writes: Write) -> None:
        """Write under the run's fence, however often it takes. Raises Suspended once the run is lost, or set aside."""
        pauses = Pauses(self.clock)
        batch = Batch((self.fence,), writes)
        while isinstance(verdict := await self._ledger.commit(batch), Failure):
            await self.try_again(verdict.failure(), pauses)

    async def try_again(self, refusal: object, pauses: Pauses) -> None:
        """After a commit was refused: pause, or raise Suspended if the run is lost or set aside."""
        if isinstance(refusal, Fenced):
            self.lost = True
            self.set_aside()
        if self.suspending:
            raise Suspended
        await pauses.next()

    def after(self, event: RunEvent, columns: RunColumns) -> RunColumns:
        """The columns of the run's row after an event, which is taken note of."""
        self.row = replace(self.row, state=next_state(self.row.state, event))
        return {"state": self.row.state, "updated_at_ms": self.clock.now_ms(), **columns}

    def going_on(self) -> tuple[ChangeRun, ...]:
        """The change of the run's row, if that says that the run waits: it goes on."""
        if self.row.state != "waiting":
            return ()
        return (ChangeRun(self.row.id, self.after("claim", {"waiting_on": None, "wake_at_ms": None})),)

    async def give_back(self) -> None:
        """The execution is over and the run is not: whoever takes it up next begins from what is recorded."""
        if self.lost:
            return
        columns: RunColumns
        if self.expired:
            columns = self.after("cancel", NOBODY)
        elif self.problem is not None:
            columns = self.after("stop", {**NOBODY, "problem": self.problem})
        else:
            wake_at_ms = self.waits.earliest_ms if self.waits.all_waiting else None
            waiting_on = self.waits.text or "an engine that drives its workflow"
            columns = self.after("release", {**NOBODY, "wake_at_ms": wake_at_ms, "waiting_on": waiting_on})
        batch = Batch((self.fence,), (ChangeRun(self.row.id, columns),))
        pauses = Pauses(self.clock)
        for _ in range(GIVE_BACK_TRIES):
            verdict = await self._ledger.commit(batch)
            if not isinstance(verdict, Failure) or isinstance(verdict.failure(), Fenced):
                return
            await pauses.next()


GIVE_BACK_TRIES = 2
"""How often a run is given back to a ledger that does not answer; after that its lease runs out by itself."""


def _cancellation(run_id: str) -> asyncio.CancelledError:
    return asyncio.CancelledError(f"run {run_id!r} was cancelled")
