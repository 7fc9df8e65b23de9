"""One run under way: its workflow executed from the top to one of four ends.

It *ended*, and its outcome was recorded. It is *stuck*: recorded, with the problem. It was *set aside*: given back,
for whoever takes it up next. Or it is *lost*: another owner has it, and nothing more was written. In the last three,
durable calls raise `Suspended`, so nothing that the workflow does afterwards counts.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

from ...core.batch import ChangeRun
from ...core.codec import elements, error_json
from ...core.model import RecordedError
from ...core.run import RunColumns, RunRow
from ...core.step import StepRow
from ...services.clock import Clock
from ...services.ids import Ids
from ...services.ledger import Ledger
from ...services.run import DurableCall, NotReplaySafe, Run, StepCall, StepFailed, StoreCalls, Suspended
from ...services.store import Store
from ...services.workflow import AnyWorkflow
from .execution import Pool, recorded
from .record import NOBODY, RunRecord
from .steps import VALUE_BYTES, DrivenSteps, too_large
from .stores import DrivenStores

__all__ = ["RunDriver", "Tools"]


@dataclass(frozen=True, slots=True)
class Tools:
    """What all drivers of an engine share."""

    ledger: Ledger
    store: Store
    clock: Clock
    ids: Ids
    pool: Pool


Ending: TypeAlias = tuple[Literal["complete", "fail", "cancel"], bytes | None]
"""How a run ends, and its outcome as JSON: the result, or the recorded error."""


@final
class RunDriver:
    """Executes one run that this engine has claimed, once."""

    def __init__(self, tools: Tools, row: RunRow, workflow: AnyWorkflow, rows: tuple[StepRow, ...]) -> None:
        self._tools = tools
        self._workflow = workflow
        self._record = RunRecord(row, rows, tools.ledger, tools.clock)
        self._steps = DrivenSteps(self._record, tools.pool)
        self._stores = DrivenStores(self._record, tools.ledger, tools.store, tools.ids)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unawaited: set[DurableCall[Any]] = set()
        self._deferred: list[StepCall] = []

    # --- from outside ---------------------------------------------------------

    def set_aside(self) -> None:
        """Give the run back as soon as the step that is being executed has ended; waits end at once."""
        self._record.set_aside()

    def cancel(self) -> None:
        """Let cancellation reach the workflow."""
        self._record.cancel()

    async def drive(self) -> None:
        """Execute the run to one of its four ends. It raises only what must end the process."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            await self._to_the_end()
        except Suspended:
            await self._record.give_back()
        except asyncio.CancelledError:
            if not self._record.suspending:
                raise
            await self._record.give_back()
        finally:
            _ = self._close_unawaited()
            self._record.close()

    # --- from the top to the end ----------------------------------------------

    async def _to_the_end(self) -> None:
        ending = await self._execute()
        self._check(unasked_but="defer")
        forgotten = self._close_unawaited()
        if forgotten is not None and ending[0] == "complete":
            ending = ("fail", error_json(forgotten, "error"))
        notes = await self._clean_up()
        self._check()
        event, outcome = ("cancel", None) if self._record.cancelled else ending
        _ = self._record.going_on()  # a run that ends is not waiting, whatever its row said last
        columns: RunColumns = {**NOBODY, "outcome": outcome, "problem": "; ".join(notes) or None}
        await self._record.commit(ChangeRun(self.run_id, self._record.after(event, columns)))

    async def _execute(self) -> Ending:
        """What the workflow gives, or the error that it raises."""
        workflow = self._workflow
        what = f"the result of the workflow {workflow.name}"
        try:
            args = workflow.arguments.decode(elements(self._record.row.arguments))
        except TypeError as error:
            self._record.stop(f"the recorded arguments no longer fit the workflow {workflow.name}: {error}")
        try:
            result = workflow.result.encode(await workflow.function(Run(self), *args), what)
        except asyncio.CancelledError as error:
            if not self._record.cancelled and (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # the host ends
            return "fail", error_json(recorded(error), "error")
        except Exception as error:
            return "fail", error_json(recorded(error), "error")
        if len(result) > VALUE_BYTES:
            return "fail", error_json(too_large(what, len(result)), "too_large")
        return "complete", result

    async def _clean_up(self) -> list[str]:
        """Call what was deferred, the last one first; what went wrong with it."""
        notes: list[str] = []
        while self._deferred:
            call = self._deferred.pop()
            try:
                _ = await self._steps.perform(call, "defer")
            except (StepFailed, TypeError) as error:
                notes.append(f"deferred {error}")
            except asyncio.CancelledError:
                if not self._record.cancelled:
                    raise  # the host ends
                notes.append(f"deferred step {call.key!r} was not called: the run was cancelled there")
        return notes

    def _check(self, *, unasked_but: str | None = None) -> None:
        """Nothing counts once the run is set aside, and a recorded call that the code no longer makes stops the run."""
        record = self._record
        if record.suspending:
            raise Suspended
        unasked = () if record.cancelled else record.history.unasked(without=unasked_but)
        if not unasked:
            return
        recorded = _listed([f"{row.key!r} ({row.kind} {row.target})" for row in unasked])
        asked = _listed(list(record.history.new())) or "nothing new"
        record.stop(
            f"the run has recorded {recorded}, and the code now came to its end without asking for it; "
            f"it asked for {asked} instead"
        )

    # --- the calls of Run -----------------------------------------------------

    @property
    def run_id(self) -> str:
        return self._record.row.id

    @property
    def suspending(self) -> bool:
        return self._record.suspending

    @property
    def stores(self) -> StoreCalls:
        return self._stores

    async def step(self, call: StepCall) -> object:
        return await self._steps.perform(call, "step")

    async def sleep(self, key: str, delay_ms: int) -> None:
        await self._steps.sleep(key, "sleep", self._tools.clock.now_ms() + delay_ms)

    async def sleep_until(self, key: str, at_ms: int) -> None:
        await self._steps.sleep(key, "sleep_until", at_ms)

    def defer(self, call: StepCall) -> None:
        self._deferred.append(call)

    async def gather(self, awaitables: tuple[Awaitable[object], ...]) -> tuple[object, ...]:
        self.check_task("gather")
        if not awaitables:
            return ()
        loop = asyncio.get_running_loop()  # a plain Task: with an eager factory it would run before it is known here
        tasks = [asyncio.Task(_awaited(awaitable), loop=loop) for awaitable in awaitables]
        running = set(tasks)
        self._tasks.update(tasks)
        self._record.turn.fork(len(tasks))

        def ended(task: asyncio.Task[object]) -> None:
            running.discard(task)
            self._tasks.discard(task)
            self._record.turn.ended(last=not running)

        for task in tasks:
            task.add_done_callback(ended)
        try:
            _ = await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                _ = task.cancel()
            _ = await asyncio.wait(tasks)
            raise
        if self._record.suspending:
            raise Suspended
        return tuple([task.result() for task in tasks])

    # --- misuse ---------------------------------------------------------------

    def check_task(self, what: str) -> None:
        """Raise NotReplaySafe in any task but the run's own and the branches of `run.gather`."""
        if asyncio.current_task() not in self._tasks:
            raise NotReplaySafe(
                f"the durable call {what!r} was made in a task of the workflow's own making, so its place among the "
                "others would not be the same in a replay. Use `await run.gather(...)` for calls side by side"
            )

    def made(self, call: DurableCall[Any]) -> None:
        self._unawaited.add(call)

    def awaited(self, call: DurableCall[Any]) -> None:
        if call in self._unawaited:
            self._unawaited.discard(call)
            self.check_task(call.key)

    def _close_unawaited(self) -> RecordedError | None:
        """Close the calls that were made and never awaited; the error that names them."""
        keys = ", ".join(repr(call.key) for call in sorted(self._unawaited, key=lambda call: call.key))
        for call in self._unawaited:
            call.close()
        self._unawaited.clear()
        if not keys or self._record.suspending:
            return None
        message = f"run {self.run_id!r} made the durable calls {keys} and never awaited them: write `await` before each"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return RecordedError("NotAwaited", message, "")


LISTED = 5
"""How many of the calls that differ are named."""


def _listed(calls: list[str]) -> str:
    more = f" and {len(calls) - LISTED} more" if len(calls) > LISTED else ""
    return ", ".join(calls[:LISTED]) + more


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable
