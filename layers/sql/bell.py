"""The bell: how a thread calls back on the event loop, as cheaply as the system allows.

Where there is an eventfd, the loop watches one: a ring is one system call on each side, and what was told meanwhile is
heard in one turn. Elsewhere it is `call_soon_threadsafe`, which does the same over a pair of sockets and costs more.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import final

__all__ = ["Bell"]


@final
class Bell:
    """Runs what threads tell it on the loop, in order. On a loop that has ended, nothing is heard."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: deque[Callable[[], None]] = deque()
        self._eventfd = _watched(loop, self._hear)

    def tell(self, what: Callable[[], None]) -> None:
        """Let the loop call `what`; from any thread."""
        self._told.append(what)
        if self._eventfd is not None:
            _ring(self._eventfd)
            return
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:
            return  # the loop has ended: nobody is left to hear

    def close(self) -> None:
        """Hear what was told, and no more; on the loop, when no thread rings any longer."""
        if self._eventfd is not None:
            self._loop.remove_reader(self._eventfd)
            os.close(self._eventfd)
        self._call_told()

    def _hear(self) -> None:
        if self._eventfd is not None:
            _silence(self._eventfd)
        self._call_told()

    def _call_told(self) -> None:
        while self._told:
            what = self._told.popleft()
            try:
                what()
            except Exception as error:  # the others are to be called all the same
                context = {"message": "what a thread told the event loop to do has failed", "exception": error}
                self._loop.call_exception_handler(context)


if sys.platform == "linux":

    def _watched(loop: asyncio.AbstractEventLoop, hear: Callable[[], None]) -> int | None:
        eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            loop.add_reader(eventfd, hear)
        except NotImplementedError:  # a loop that watches no files
            os.close(eventfd)
            return None
        return eventfd

    def _ring(eventfd: int) -> None:
        os.eventfd_write(eventfd, 1)

    def _silence(eventfd: int) -> None:
        os.eventfd_read(eventfd)

else:

    def _watched(loop: asyncio.AbstractEventLoop, hear: Callable[[], None]) -> int | None:
        return None

    def _ring(eventfd: int) -> None:
        raise AssertionError("there is no eventfd on this system")

    def _silence(eventfd: int) -> None:
        raise AssertionError("there is no eventfd on this system")
