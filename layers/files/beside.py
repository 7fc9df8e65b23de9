"""Long work on a thread, beside the event loop, which ends soon after its caller is cancelled and never outlives it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from threading import Event
from typing import TypeAlias, TypeVar, final

__all__ = ["Check", "Stopped", "in_thread"]

_T = TypeVar("_T")

Check: TypeAlias = Callable[[], None]
"""Raises `Stopped` once nobody wants the result any more; called between pieces of work."""


@final
class Stopped(Exception):
    """Whoever asked for this work was cancelled."""


async def in_thread(work: Callable[[Check], _T]) -> _T:
    """What `work` gives. A cancellation meanwhile lets its next check raise, and is raised here when it has ended."""
    stop = Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    # A future of the executor, and no task: an event loop that shuts down cancels all tasks, and would let go of it.
    context = contextvars.copy_context()
    running = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(work, check))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            _ = await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set()
    if cancelled is not None:
        if not running.cancelled():
            _ = running.exception()  # nobody is told of it in place of the cancellation
        raise cancelled
    return running.result()
