"""Blocking work beside the event loop, none of which is left behind by a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["in_thread", "to_its_end"]

_T = TypeVar("_T")


async def to_its_end(work: Awaitable[_T]) -> _T:
    """Await `work` whatever happens. A cancellation meanwhile is raised when it has ended, and its result is lost."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            _ = await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            _ = task.exception()  # it is told in place of the cancellation by nobody
        raise cancelled
    return task.result()


async def in_thread(work: Callable[[], _T], *, drop: Callable[[_T], object]) -> _T:
    """What `work` gives, computed on a thread. If the caller is cancelled meanwhile it is given to `drop`."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda ended: _drop(ended, drop))
        _ = await to_its_end(asyncio.wait((task,)))
        raise


def _drop(ended: asyncio.Future[_T], drop: Callable[[_T], object]) -> None:
    if not ended.cancelled() and ended.exception() is None:
        _ = drop(ended.result())
