"""The steps and timers of one run: performed, retried, timed out and recorded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NoReturn, cast, final

from msgspec.structs import replace

from ...core.batch import WriteStep
from ...core.codec import Codec, error_json, read_error
from ...core.history import Asked
from ...core.model import RecordedError, StepId
from ...core.outcome import Failure
from ...core.retry import pause_ms
from ...core.step import VALUE_BYTES, StepRow
from ...services.driver import StepCall
from ...services.step import StepContext, StepFailed, Suspended
from ..recorded import as_recorded, text_of
from .execution import Pool
from .record import RunRecord

__all__ = ["DrivenSteps", "cut_off", "raise_recorded", "recorded_result", "too_large"]


@dataclass(frozen=True, slots=True)
class _Failed:
    """An attempt that failed: why, the kind of the failure, and whether another one may be made."""

    error: RecordedError
    kind: str
    again: bool = False


@final
class DrivenSteps:
    """The durable calls of a run that execute functions or wait for an instant."""

    def __init__(self, record: RunRecord, pool: Pool) -> None:
        self._record = record
        self._pool = pool

    # --- timers ---------------------------------------------------------------

    async def sleep(self, key: str, kind: str, at_ms: int) -> None:
        """Wait for the instant that was recorded when this was first reached, or else for `at_ms`."""
        asked = await self._record.begin(key, kind, "")
        if asked.row is not None and asked.decision == "answer":
            await self._record.hand_over(asked.row)
            return
        new = replace(self._record.new(key, kind, ""), status="waiting", at_ms=at_ms)
        row = asked.row or new
        until_ms = at_ms if row.at_ms is None else row.at_ms
        writes = () if asked.row is not None else (WriteStep(row),)
        if not await self._record.reached(row, until_ms, f"{kind} {key!r}", *writes):
            await self._record.complete_cancelled(key, kind, "")
        await self._record.complete(replace(row, status="done"))

    # --- steps ----------------------------------------------------------------

    async def perform(self, call: StepCall, kind: str) -> object:
        """The result of a step, from its record or by executing it. Raises what the workflow is to see."""
        asked = self._record.ask(call.key, kind, call.target, call.mode)
        return await self.perform_asked(call, kind, asked)

    async def perform_asked(self, call: StepCall, kind: str, asked: Asked) -> object:
        """`perform` for a key that was asked for before."""
        asked = await self._record.begin_asked(asked, call.key, kind, call.target)
        row = asked.row or replace(self._record.new(call.key, kind, call.target), status="started")
        match asked.decision:
            case "answer" | "raise":
                await self._record.hand_over(row)
                return recorded_result(self._record, row, call.codec)
            case "unknown":
                return await self._fail(call, row, _Failed(_unknown(call.key), "unknown"))
            case _:
                return await self._execute(call, row)

    async def _execute(self, call: StepCall, row: StepRow) -> object:
        while True:
            if row.status == "retrying":
                await self._be_due(row)
            if not call.is_async:
                await self._take_thread(row)
            try:
                row = await self._begin_attempt(call, row)
            except BaseException:
                if not call.is_async:
                    self._pool.give_back()
                raise
            ending = await self._attempt(call, row)
            if isinstance(ending, bytes):
                done = replace(row, status="done", value=ending, at_ms=None)
                await self._record.complete(done)
                return _result(done, call.codec)
            if not ending.again or row.attempt >= call.retry.max_attempts:
                return await self._fail(call, row, ending)
            row = await self._note_failure(call, row, ending)

    async def _be_due(self, row: StepRow) -> None:
        """Wait until the next attempt is due."""
        if row.at_ms is not None:
            text = f"attempt {row.attempt + 1} of step {row.key!r}"
            if not await self._record.reached(row, row.at_ms, text):
                await self._record.complete_cancelled(row.key, row.kind, row.target)

    async def _take_thread(self, row: StepRow) -> None:
        """Take a thread for a function that is not async; the run may be cancelled or set aside while none is free."""
        if not self._pool.is_busy:
            await self._pool.take()
            return
        taking = asyncio.get_running_loop().create_task(self._pool.take())
        cancellable = self._record.cancellation.may_reach
        try:
            reason = await self._record.waits.first(taking, None, cancellable=cancellable, executing=False)
        except BaseException:
            self._leave(taking)
            raise
        if reason == "task":
            return
        self._leave(taking)
        if reason == "cancel":
            await self._record.complete_cancelled(row.key, row.kind, row.target)
        raise Suspended

    def _leave(self, taking: asyncio.Task[None]) -> None:
        """Wait for a thread no longer; one that was got at the same moment is given back."""
        if taking.done():
            self._pool.give_back()
        else:
            _ = taking.cancel()

    async def _begin_attempt(self, call: StepCall, row: StepRow) -> StepRow:
        """The row of the next attempt, which may begin now."""
        row = replace(row, attempt=row.attempt + 1)
        going_on = self._record.going_on()
        if call.mode == "at_most_once":  # that it may have begun must be known before it begins
            row = replace(row, status="started", at_ms=None, recorded_at_ms=self._record.clock.now_ms())
            _ = await self._record.commit(WriteStep(row), *going_on)
            return row  # and begins now, also if the run was set aside meanwhile: it is recorded as if it had
        if going_on and row.status == "retrying":
            _ = await self._record.commit(*going_on)
        if self._record.suspending:
            raise Suspended
        self._record.races.check()
        return row

    async def _attempt(self, call: StepCall, row: StepRow) -> bytes | _Failed:
        """One execution: its result as JSON, or how it failed."""
        record = self._record
        until_ms = None if call.timeout_ms is None else record.clock.now_ms() + call.timeout_ms
        task = self._pool.execute(call, StepContext(row.run_id, call.key, row.attempt))
        try:
            cancellable = call.is_async and record.cancellation.may_reach
            reason = await record.waits.first(task, until_ms, cancellable=cancellable)
        except asyncio.CancelledError:  # the host ends
            await cut_off(task, wait=call.is_async)
            raise
        if reason == "cancel":
            record.cancellation.begin_timer()  # a step that goes on all the same has the time to clean up, no more
            await cut_off(task, wait=True)
            await record.complete_cancelled(row.key, row.kind, row.target)
        if reason == "time":
            await cut_off(task, wait=call.is_async)
            late = TimeoutError(f"step {call.key!r} took longer than {call.timeout_ms} ms")
            return _failed(call, late, "timed_out")
        if task.cancelled():
            return _Failed(RecordedError("CancelledError", "the step cancelled itself", ""), "error")
        error = task.exception()
        if error is None:
            return _encoded(call, task.result(), last=row.attempt >= call.retry.max_attempts)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        return _failed(call, error, "error")

    async def _note_failure(self, call: StepCall, row: StepRow, failed: _Failed) -> StepRow:
        """Record an attempt that failed, and when the next one is due."""
        now_ms = self._record.clock.now_ms()
        noted = replace(
            row,
            status="retrying",
            at_ms=now_ms + pause_ms(call.retry, row.attempt, StepId(row.run_id, row.key)),
            value=error_json(failed.error, failed.kind),
            recorded_at_ms=now_ms,
        )
        _ = await self._record.commit(WriteStep(noted))
        self._record.history.record(noted)
        return noted

    async def _fail(self, call: StepCall, row: StepRow, failed: _Failed) -> object:
        """Record that the step has failed for good, and raise it."""
        row = replace(row, status="failed", value=error_json(failed.error, failed.kind), at_ms=None)
        await self._record.complete(row)
        return _result(row, call.codec)


def _encoded(call: StepCall, value: object, *, last: bool) -> bytes | _Failed:
    """What an attempt gave, as JSON, or how that is to be seen as a failure."""
    if not last and (failed := _returned(call, value)) is not None:
        return failed
    what = f"the result of step {call.key!r}"
    try:
        encoded = call.codec.encode(value, what)
    except TypeError as error:
        return _Failed(RecordedError("TypeError", str(error), ""), "type")
    except Exception as error:  # a validator's own
        return _Failed(as_recorded(error), "error")
    if len(encoded) > VALUE_BYTES:
        return _Failed(too_large(what, len(encoded)), "too_large")
    return encoded


def recorded_result(record: RunRecord, row: StepRow, codec: Codec) -> object:
    """What a recorded step gives, or raises. It fitted when it was recorded: if not now, the code was changed."""
    if row.status != "done":
        raise_recorded(row)
    try:
        return _result(row, codec)
    except Exception as error:  # a validator may raise anything
        record.stop(f"what was recorded no longer fits the code: {error}")


def _result(row: StepRow, codec: Codec) -> object:
    """What a recorded step gives, or raises."""
    if row.status == "done":
        return codec.decode(row.value or b"null", f"the result of step {row.key!r}")
    raise_recorded(row)


def raise_recorded(row: StepRow) -> NoReturn:
    """Raise what a row says that a call has failed with."""
    error, kind = read_error(row.value or b"")
    if kind == "type":
        raise TypeError(error.message)
    raise StepFailed(error, key=row.key, kind=kind)


def _failed(call: StepCall, error: BaseException, kind: str) -> _Failed:
    """How an attempt failed that raised. An error of `retry_if` itself is final, and shows both."""
    try:
        again = call.retry.retry_if is None or bool(call.retry.retry_if(error))
    except Exception as broken:
        broken.__context__ = error
        return _Failed(as_recorded(broken), "error")
    return _Failed(as_recorded(error), kind, again)


def _returned(call: StepCall, value: object) -> _Failed | None:
    """The returned Failure as a failed attempt, if it is to be tried again."""
    if not isinstance(value, Failure):
        return None
    failure = cast("Failure[object]", value)
    held = failure.failure()
    if not (_is_retried(call, held) or _is_retried(call, failure)):
        return None
    return _Failed(RecordedError(type(held).__name__, text_of(held), ""), "returned", again=True)


def _is_retried(call: StepCall, value: object) -> bool:
    """Whether `retry_if` says so of a returned failure. It may know exceptions only: then it does not."""
    try:
        return call.retry.retry_if is not None and bool(call.retry.retry_if(value))
    except Exception:
        return False


def _unknown(key: str) -> RecordedError:
    message = f"step {key!r} was cut off while it was executed at most once: nobody knows whether it happened"
    return RecordedError("Unknown", message, "")


def too_large(what: str, size: int) -> RecordedError:
    """The recorded error of a value that is over the limit."""
    return RecordedError("TooLarge", f"{what} is {size} bytes of JSON, and the limit is {VALUE_BYTES}", "")


async def cut_off(task: asyncio.Task[object], *, wait: bool) -> None:
    """Cancel what is being executed. One in a thread goes on there, not waited for, and its result is dropped."""
    task.cancel()
    if wait:
        await asyncio.wait([task])
    task.add_done_callback(_drop)


def _drop(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        _ = task.exception()
