"""Executing the functions of steps: async ones on the event loop, others in a bounded pool of threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast, final

from ...core.model import RecordedError
from ...services.run import STEP, StepCall, StepContext

__all__ = ["Pool", "as_recorded", "text_of"]

THREADS = min(32, (os.cpu_count() or 1) + 4)
"""How many functions that are not async may be executed at once."""

MESSAGE_CHARACTERS = 32_000
"""How much of an error's text is recorded: its beginning."""

TRACEBACK_CHARACTERS = 32_000
"""How much of an error's traceback is recorded: its end, which is nearest to the fault."""


@final
class Pool:
    """Threads for functions that are not async. They are started when they are needed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="stepwell-step")

    def execute(self, call: StepCall, context: StepContext) -> asyncio.Task[object]:
        """One attempt of a step, under way: a task that gives what the function gives, or raises what it raises."""
        within = contextvars.copy_context()
        within.run(STEP.set, context)
        body = self._on_loop(call) if call.is_async else self._in_thread(call, within)
        return asyncio.get_running_loop().create_task(body, context=within)

    async def _on_loop(self, call: StepCall) -> object:
        return await _finished(call.fn())

    async def _in_thread(self, call: StepCall, within: contextvars.Context) -> object:
        loop = asyncio.get_running_loop()
        called = partial(_without_stop, call.fn)
        return await _finished(await loop.run_in_executor(self._threads, within.copy().run, called))

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
    """The text of an error as it is recorded, also where its class has none to give."""
    try:
        return str(value)[:MESSAGE_CHARACTERS]
    except Exception as broken:
        return f"<no text: {type(broken).__name__} in {type(value).__name__}.__str__>"


def _without_stop(fn: Callable[[], object]) -> object:
    """Call `fn`. A future cannot hold a StopIteration, so it becomes what it is in a coroutine: a RuntimeError."""
    try:
        return fn()
    except StopIteration as stop:
        raise RuntimeError("the step raised StopIteration") from stop
