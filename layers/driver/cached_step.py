"""One cached step under way: its call, its row, and what its dispatch and its settlement both do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar, final

from msgspec.structs import replace

from ...core.batch import Write
from ...core.codec import error_json
from ...core.entry import NewEntry
from ...core.model import RecordedError
from ...core.step import StepRow
from ...core.step_refusal import StepRefusal, recorded_refusal
from ...services.driver import CachedCall
from ...services.journal import JoinableJournal
from ...services.step import STEP, StepContext, Suspended
from .caching import Caching
from .record import RunRecord
from .steps import cut_off

__all__ = ["CachedStep", "Ended"]

_A = TypeVar("_A")


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """What the call of a step is completed with: its row, and what is written with it."""

    row: StepRow
    writes: tuple[Write, ...] = ()


@final
@dataclass(slots=True)
class CachedStep:
    """`row` is as it was last recorded, or will be; `rebases` counts how often somebody has changed its files."""

    call: CachedCall
    row: StepRow
    record: RunRecord
    caching: Caching
    journal: JoinableJournal | None
    rebases: int = 0

    @property
    def context(self) -> StepContext:
        """As which step its body is executed."""
        return StepContext(self.row.run_id, self.row.key, max(self.row.attempt, 1))

    @property
    def touches_files(self) -> bool:
        """Whether it may change any."""
        return bool(self.call.boundary.writes or self.call.boundary.removes)

    @property
    def has_files(self) -> bool:
        """Whether any are declared."""
        return self.touches_files or bool(self.call.boundary.reads)

    @property
    def is_near(self) -> bool:
        """Whether a row of the ledger is all that it may need, and nobody has asked its run to end or to rest."""
        caching, record = self.caching, self.record
        if self.has_files or caching.tier is not None or caching.joinable is None:
            return False
        return not record.suspending and not record.cancellation.requested

    def told(self, *entries: NewEntry) -> tuple[Write, ...]:
        """What tells the run's journal."""
        if self.journal is None or not entries:
            return ()
        return self.journal.appending(self.row.run_id, entries).writes

    def done(self, result: bytes, *writes: Write) -> Ended:
        """The step has this result, JSON."""
        return Ended(replace(self.row, status="done", value=result, at_ms=None), writes)

    def failed(self, error: RecordedError, kind: str, *writes: Write) -> Ended:
        """The step has failed for good."""
        return Ended(replace(self.row, status="failed", value=error_json(error, kind), at_ms=None), writes)

    def refused(self, failure: StepRefusal) -> Ended:
        """The sandbox has refused it, or its body has failed."""
        return self.failed(*recorded_refusal(failure))

    async def pause(self, pause_ms: int) -> None:
        """Let time pass on the ledger's clock."""
        clock = self.record.clock
        await clock.sleep_until_ms(clock.now_ms() + pause_ms)

    async def guarded(self, work: Coroutine[Any, Any, _A]) -> _A:
        """What the work gives, which knows the step as its own. It is cut off when the run is cancelled.

        The cancellation then reaches the workflow here, whatever the work had come to.
        """
        record = self.record
        if record.suspending:
            work.close()
            raise Suspended
        within = copy_context()
        _ = within.run(STEP.set, self.context)
        task = asyncio.get_running_loop().create_task(work, context=within)
        try:
            reason = await record.waits.first(task, None, cancellable=record.cancellation.may_reach)
        except asyncio.CancelledError:  # the host ends, or the branch has lost a race
            await cut_off(task, wait=True)
            raise
        if reason == "cancel":
            record.cancellation.begin_timer()  # a body that goes on all the same has the time to clean up, no more
            await cut_off(task, wait=True)
            await record.complete_cancelled(self.row.key, self.row.kind, self.row.target)
        return task.result()
