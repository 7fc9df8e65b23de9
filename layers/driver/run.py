"""One run under way: its workflow executed from the top to one of four ends.

It *ended*, and its outcome was recorded. It is *stuck*: recorded, with the problem. It was *set aside*: given back,
for whoever takes it up next. Or it is *lost*: another owner has it, and nothing more was written. In the last three,
durable calls raise `Suspended`, so nothing that the workflow does afterwards counts.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, final

from ...core.codec import Codec, elements, error_json
from ...core.history import Asked
from ...core.model import RecordedError, TimedOut
from ...core.outcome import Outcome
from ...core.run import RunRow
from ...core.step import VALUE_BYTES, StepRow
from ...services.driver import CachedCall, DurableCall, StepCall, StoreCalls
from ...services.run import Run
from ...services.signal import InvalidSignal
from ...services.step import NotReplaySafe, StepFailed, Suspended
from ...services.workflow import AnyWorkflow
from ..recorded import as_recorded
from .branches import Branches
from .leaving import Leaving
from .race import Group
from .record import RunRecord
from .signals import DrivenSignals
from .steps import DrivenSteps, too_large
from .stores import DrivenStores
from .tools import Tools
from .turnstile import Lost

if TYPE_CHECKING:
    from .cached import DrivenCachedSteps

__all__ = ["RunDriver"]

_R = TypeVar("_R")

LOG: Final = logging.getLogger("stepwell")


Ending: TypeAlias = tuple[Literal["complete", "fail", "cancel"], bytes | None]
"""How a run ends, and its outcome as JSON: the result, or the recorded error."""


@final
class RunDriver:
    """Executes one run that this engine has claimed, once."""

    def __init__(self, tools: Tools, row: RunRow, workflow: AnyWorkflow, rows: tuple[StepRow, ...]) -> None:
        self._tools = tools
        self._workflow = workflow
        self._record = RunRecord(row, rows, tools)
        self._branches = Branches(self._record)
        self._leaving = Leaving(self._record, tools)
        self._steps = DrivenSteps(self._record, tools.pool)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unawaited: set[DurableCall[Any]] = set()
        self._deferred: list[tuple[StepCall, Asked]] = []

    # --- from outside ---------------------------------------------------------

    def set_aside(self) -> None:
        """Give the run back as soon as the step that is being executed has ended; waits end at once."""
        self._record.set_aside()

    def cancel(self) -> None:
        """Let cancellation reach the workflow."""
        self._record.cancel()

    def wake(self) -> None:
        """Let the run look again at what it waits for."""
        self._record.waits.wake()

    @property
    def ended(self) -> RunRow | None:
        """The run's row, once it has ended."""
        return self._record.row if self._record.row.ended else None

    async def drive(self) -> bool:
        """Execute the run to one of its four ends. False: the ledger did not take it back, so it may still be ours.

        It raises what must end the process, and bugs beneath the workflow; the run is stuck then.
        """
        record = self._record
        record.body = asyncio.current_task()
        if record.body is not None:
            self._tasks.add(record.body)
        try:
            try:
                await self._to_the_end()
            finally:
                record.cancellation.close()
            return True
        except Suspended:
            if record.problem is not None:
                LOG.warning("run %s is stuck: %s", self.run_id, record.problem)
            return await self._leaving.give_back()
        except asyncio.CancelledError:
            if not record.suspending:
                raise
            return await self._leaving.give_back()
        except Exception as error:
            record.break_off(error)
            _ = await self._leaving.give_back()
            raise
        finally:
            _ = self._close_unawaited()

    # --- from the top to the end ----------------------------------------------

    async def _to_the_end(self) -> None:
        record = self._record
        self._go_on()
        ending = await self._execute()
        self._go_on()
        self._check_asked()
        wrong = self._close_unawaited() or self._cut_short()
        if wrong is not None and ending[0] == "complete":
            ending = ("fail", error_json(wrong, "error"))
        record.cancellation.shield()
        notes = await self._clean_up()
        self._go_on()
        event, outcome = ("cancel", None) if record.cancellation.has_reached else ending
        await self._leaving.end(event, outcome, "; ".join(notes) or None)

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
            reached = self._record.cancellation.has_reached
            if not reached and (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # the host ends
            return "fail", error_json(self._cut_short() or as_recorded(error), "error")
        except TimeoutError as error:  # of `asyncio.timeout` around a durable call, it says nothing by itself
            return "fail", error_json(self._cut_short() or as_recorded(error), "error")
        except (Suspended, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # also a group: a TaskGroup puts Suspended into one, and that is seen to later
            return "fail", error_json(as_recorded(error), "error")
        if len(result) > VALUE_BYTES:
            return "fail", error_json(too_large(what, len(result)), "too_large")
        return "complete", result

    async def _clean_up(self) -> list[str]:
        """Call what was deferred, the last one first; what went wrong with it."""
        notes: list[str] = []
        while self._deferred:
            call, asked = self._deferred.pop()
            try:
                _ = await self._steps.perform_asked(call, "defer", asked)
            except (StepFailed, TypeError) as error:
                notes.append(f"deferred {error}")
        return notes

    def _go_on(self) -> None:
        """Nothing counts once the run is set aside."""
        if self._record.suspending:
            raise Suspended

    def _check_asked(self) -> None:
        """A recorded call that the code no longer makes stops the run."""
        record = self._record
        unasked = () if record.cancellation.has_reached else record.history.unasked()
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

    @cached_property
    def _stores(self) -> DrivenStores:  # like the signals made when it is used: thousands of runs may be under way
        return DrivenStores(self._record, self._tools)

    @cached_property
    def _signals(self) -> DrivenSignals:
        return DrivenSignals(self._record, self._tools, self._workflow.name)

    @cached_property
    def _cached_steps(self) -> DrivenCachedSteps:
        from .cached import DrivenCachedSteps  # most programs have none, and do not wait for its modules

        return DrivenCachedSteps(self._record, self._tools, self._tools.caching)

    async def step(self, call: StepCall) -> object:
        return await self._steps.perform(call, "step")

    async def cached_step(self, call: CachedCall) -> object:
        return await self._cached_steps.perform(call)

    async def sleep(self, key: str, delay_ms: int) -> None:
        await self._steps.sleep(key, "sleep", self._tools.clock.now_ms() + delay_ms)

    async def sleep_until(self, key: str, at_ms: int) -> None:
        await self._steps.sleep(key, "sleep_until", at_ms)

    async def signal(
        self, name: str, codec: Codec, timeout_ms: int | None
    ) -> Outcome[object, TimedOut | InvalidSignal]:
        return await self._signals.read(name, codec, timeout_ms)

    def defer(self, call: StepCall) -> None:
        self._deferred.append((call, self._record.ask(call.key, "defer", call.target)))

    async def gather(self, awaitables: tuple[Awaitable[object], ...]) -> tuple[object, ...]:
        self.check_task("gather")
        if not awaitables:
            return ()
        loop = asyncio.get_running_loop()  # a plain Task: with an eager factory it would run before it is known here
        tasks = [asyncio.Task(_awaited(awaitable), loop=loop) for awaitable in awaitables]
        _ = await self._branch_out(tasks, is_race=False)
        return tuple([task.result() for task in tasks])

    async def race(self, awaitables: tuple[Awaitable[object], ...]) -> object:
        self.check_task("race")
        loop = asyncio.get_running_loop()
        tasks = [asyncio.Task(_awaited(awaitable), loop=loop) for awaitable in awaitables]
        group = await self._branch_out(tasks, is_race=True)
        if group.winner is None:
            raise AssertionError("all branches of a race have ended, and none of them was the first")
        return group.winner.result()

    async def carried(self, call: Coroutine[Any, Any, _R]) -> _R:
        try:
            return await call
        except Lost:
            await self._branches.give_way()

    async def _branch_out(self, tasks: Sequence[asyncio.Task[object]], *, is_race: bool) -> Group:
        """Let the branches run until all have ended."""
        group = self._branches.fork(tasks, is_race=is_race)
        try:
            await self._ended(group)
        finally:
            self._branches.join(group)
        self._go_on()
        self._record.races.check_late()
        return group

    async def _ended(self, group: Group) -> None:
        """Return when all branches have ended; cancelled, cancel them first."""
        tasks = group.branches
        running = set(tasks)
        self._tasks.update(tasks)
        one_ended = asyncio.Event()

        def ended(task: asyncio.Task[object]) -> None:
            running.discard(task)
            self._tasks.discard(task)
            self._branches.ended(group, task, last=not running)
            one_ended.set()
            if not task.cancelled():
                _ = task.exception()  # seen: only the first is raised

        for task in tasks:
            task.add_done_callback(ended)
        try:
            while running:
                _ = await one_ended.wait()
                one_ended.clear()
                await self._branches.end_losers(group)
                await self._branches.show()
        except BaseException as error:
            for task in tuple(running) if isinstance(error, asyncio.CancelledError) else ():
                _ = task.cancel()
            if running:
                _ = await asyncio.wait(running)
            raise

    # --- misuse ---------------------------------------------------------------

    def check_task(self, what: str) -> None:
        """Raise NotReplaySafe in any task but the run's own and the branches of `run.gather` and `run.race`."""
        if asyncio.current_task() not in self._tasks:
            raise NotReplaySafe(
                f"the durable call {what!r} was made in a task of the workflow's own making, so its place among the "
                "others would not be the same in a replay. Use `await run.gather(...)` for calls side by side, or "
                "`await run.race(...)` for the first of them"
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

    def _cut_short(self) -> RecordedError | None:
        problem = self._record.cut_short()
        return None if problem is None else RecordedError(NotReplaySafe.__name__, problem, "")


LISTED = 5
"""How many of the calls that differ are named."""


def _listed(calls: list[str]) -> str:
    more = f" and {len(calls) - LISTED} more" if len(calls) > LISTED else ""
    return ", ".join(calls[:LISTED]) + more


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable
