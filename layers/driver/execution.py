"""Executing the functions of steps: async ones on the event loop, others in a bounded pool of threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import cast, final

from returns.primitives.exceptions import UnwrapFailedError

from ...core.model import RecordedError
from ...services.driver import StepCall
from ...services.step import STEP, StepContext

__all__ = ["Pool", "as_recorded", "is_misuse", "left_by_exit", "text_of"]

THREADS = min(32, (os.cpu_count() or 1) + 4)
"""How many functions that are not async may be executed at once."""

MESSAGE_CHARACTERS = 32_000
"""How much of an error's text is recorded: its beginning."""

TRACEBACK_CHARACTERS = 32_000
"""How much of an error's traceback is recorded: its end, which is nearest to the fault."""


@final
class Pool:
    """Threads for functions that are not async. They are started when they are needed.

    A step takes a thread before its attempt begins, so that neither its time nor the record that it began runs while it
    waits for one. `execute` gives the thread back when the function has ended, also where nobody waits for it any more.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="stepwell-step")
        self._free = asyncio.Semaphore(THREADS)

    @property
    def is_busy(self) -> bool:
        """Whether `take` would have to wait."""
        return self._free.locked()

    async def take(self) -> None:
        """Take a thread, when one is free; those that wait get one in turn."""
        _ = await self._free.acquire()

    def give_back(self) -> None:
        """A thread that was taken is not needed."""
        self._free.release()

    def execute(self, call: StepCall, context: StepContext) -> asyncio.Task[object]:
        """One attempt of a step, under way: a task that gives what the function gives, or raises what it raises.

        For a function that is not async the caller has taken a thread.
        """
        within = contextvars.copy_context()
        within.run(STEP.set, context)
        body = self._on_loop(call) if call.is_async else self._in_thread(call, within)
        return asyncio.get_running_loop().create_task(body, context=within)

    async def _on_loop(self, call: StepCall) -> object:
        try:
            return await _finished(call.fn())
        except SystemExit as left:
            raise left_by_exit(left, "the step") from left

    async def _in_thread(self, call: StepCall, within: contextvars.Context) -> object:
        loop = asyncio.get_running_loop()
        running = self._threads.submit(within.copy().run, partial(_in_bounds, call.fn))
        running.add_done_callback(lambda _: _tell(loop, self.give_back))
        return await _finished(await asyncio.wrap_future(running))

    def close(self) -> None:
        """Begin nothing more. What is being executed in a thread cannot be stopped, and is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _finished(value: object) -> object:
    """What a function gave, or, if that is to be awaited, what awaiting it gives."""
    return await cast(Awaitable[object], value) if inspect.isawaitable(value) else value


def as_recorded(error: BaseException) -> RecordedError:
    """An exception as it is recorded."""
    text = "".join(traceback.format_exception(error))
    return RecordedError(type(error).__name__, text_of(error), text[-TRACEBACK_CHARACTERS:])


def text_of(value: object) -> str:
    """The text of an error as it is recorded, also where its class has none to give. A group names what it holds."""
    if isinstance(value, UnwrapFailedError):  # its own text is empty
        return f"unwrap of {value.halted_container}"[:MESSAGE_CHARACTERS]  # pyright: ignore[reportUnknownMemberType]
    try:
        return (str(value) + _held(value))[:MESSAGE_CHARACTERS]
    except Exception as broken:
        return f"<no text: {type(broken).__name__} in {type(value).__name__}.__str__>"


def is_misuse(error: BaseException) -> bool:
    """Whether this library raised it as a TypeError, of what a caller's function is or did; not the function itself."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, TypeError) and raised_in.startswith(f"{__name__.partition('.')[0]}.")


def _held(value: object) -> str:
    """The errors that a group of them holds."""
    if not isinstance(value, BaseExceptionGroup):
        return ""
    group = cast("BaseExceptionGroup[BaseException]", value)
    return ": " + "; ".join(f"{type(error).__name__}: {text_of(error)}" for error in group.exceptions)


def _in_bounds(fn: Callable[[], object]) -> object:
    """Call `fn`. What would end more than the step is a RuntimeError: a future cannot hold a StopIteration either."""
    try:
        return fn()
    except StopIteration as stop:
        raise RuntimeError("the step raised StopIteration") from stop
    except SystemExit as left:
        raise left_by_exit(left, "the step") from left


def left_by_exit(left: SystemExit, what: str) -> RuntimeError:
    """What is recorded of a function that would have ended the process."""
    return RuntimeError(f"{what} called sys.exit({left.code!r}); a function ends by returning or raising")


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back on the loop, from any thread, unless the loop has ended."""
    with suppress(RuntimeError):
        _ = loop.call_soon_threadsafe(callback)
