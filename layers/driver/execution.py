"""Executing the functions of steps: async ones on the event loop, others in a bounded pool of threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import cast, final

from ...services.driver import StepCall
from ...services.step import STEP, StepContext
from ..recorded import left_by_exit

__all__ = ["Pool"]

THREADS = min(32, (os.cpu_count() or 1) + 4)
"""How many functions that are not async may be executed at once."""


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


def _in_bounds(fn: Callable[[], object]) -> object:
    """Call `fn`. What would end more than the step is a RuntimeError: a future cannot hold a StopIteration either."""
    try:
        return fn()
    except StopIteration as stop:
        raise RuntimeError("the step raised StopIteration") from stop
    except SystemExit as left:
        raise left_by_exit(left, "the step") from left


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back on the loop, from any thread, unless the loop has ended."""
    with suppress(RuntimeError):
        _ = loop.call_soon_threadsafe(callback)
