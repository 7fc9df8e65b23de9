"""Executing the functions of steps: async ones on the event loop, others in a bounded pool of threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import traceback
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import cast, final

from ...core.model import RecordedError
from ...services.run import STEP, StepCall, StepContext

__all__ = ["Pool", "recorded"]

THREADS = min(32, (os.cpu_count() or 1) + 4)
"""How many functions that are not async may be executed at once."""

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
        return await _finished(await loop.run_in_executor(self._threads, within.copy().run, call.fn))

    def close(self) -> None:
        """Begin nothing more. What is being executed in a thread cannot be stopped, and is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _finished(value: object) -> object:
    """What a function gave, or, if that is to be awaited, what awaiting it gives."""
    return await cast(Awaitable[object], value) if inspect.isawaitable(value) else value


def recorded(error: BaseException) -> RecordedError:
    """An exception as it is recorded."""
    text = "".join(traceback.format_exception(error))
    return RecordedError(type(error).__name__, str(error), text[-TRACEBACK_CHARACTERS:])
