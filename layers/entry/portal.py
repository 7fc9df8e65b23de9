"""The one thin portal for code without an event loop: a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, final

if TYPE_CHECKING:
    from .open import App

__all__ = ["BlockingApp", "Portal"]

_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")


@final
class BlockingApp:
    """The portal: `call(fn, *args)` runs `await fn(*args)` on its loop and gives what it gives.

    It may be used from several threads at once.
    """

    __slots__ = ("_answers", "_app", "_calls", "_ended", "_ending", "_lock", "_loop", "_process", "_thread")

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
        self._process = os.getpid()
        self._answers: set[Future[Any]] = set()
        self._calls: set[asyncio.Task[object] | None] = set()
        self._ending = asyncio.Event()
        self._ended = False
        self._lock = threading.Lock()

    @property
    def app(self) -> App:
        """The application; its calls are awaited inside `call`."""
        return self._app

    def call(self, fn: Callable[[*_Ts], Awaitable[_R]], *args: *_Ts) -> _R:
        """What `await fn(*args)` gives, or raises. A KeyboardInterrupt in the caller cancels it.

        A RuntimeError if the `with` block has ended, also while this waits, in a process that was forked since, which
        has no such loop, and on the portal's own loop, where it would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "call() would wait for itself on the portal's own loop: await the function there instead"
            )
        if os.getpid() != self._process:
            raise RuntimeError("this portal lives in the process that this one was forked from: open another one here")
        with self._lock:
            if self._ended:
                raise _ended()
            answer = asyncio.run_coroutine_threadsafe(self._run(fn, args), self._loop)
            self._answers.add(answer)
        try:
            return answer.result()
        except CancelledError:
            if self._ended:
                raise _ended() from None
            raise
        finally:
            self._answers.discard(answer)
            if not self._ended:
                answer.cancel()  # nothing, unless it was the wait that was interrupted

    async def _run(self, fn: Callable[[*_Ts], Awaitable[_R]], args: tuple[*_Ts]) -> _R:
        task = asyncio.current_task()
        self._calls.add(task)
        try:
            return await fn(*args)
        finally:
            self._calls.discard(task)

    async def serve(self) -> None:
        """Answer calls until `end` is called, then cancel those that are still waited for. For `Portal`."""
        try:
            await self._ending.wait()
        finally:
            with self._lock:
                self._ended = True
            calls = [task for task in self._calls if task is not None]
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def abandon(self) -> None:
        """The loop is no more: whoever still waits for an answer gets none. For `Portal`."""
        with self._lock:
            self._ended = True
            answers = list(self._answers)
        for answer in answers:
            if not answer.done():
                answer.set_exception(_ended())

    def end(self) -> None:
        """Take no call any more. From any thread; for `Portal`."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._loop.call_soon_threadsafe(self._ending.set)


def _ended() -> RuntimeError:
    return RuntimeError("this portal is closed: call() works inside the `with open_blocking(...)` block only")


@final
class Portal(AbstractContextManager[BlockingApp, None]):
    """Opens an application on a loop in a thread of its own, and closes it there; once."""

    __slots__ = ("_error", "_opening", "_portal", "_thread")

    def __init__(self, opening: AbstractAsyncContextManager[App, None]) -> None:
        self._opening = opening
        self._error: BaseException | None = None
        self._portal: BlockingApp | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BlockingApp:
        if self._thread is not None:
            raise RuntimeError("this portal was entered before; call open_blocking() again")
        ready: Future[BlockingApp] = Future()
        # A daemon, so that a program which is interrupted while it closes can still end: what was committed stays.
        self._thread = threading.Thread(target=self._live, args=(ready,), name="stepwell-portal", daemon=True)
        self._thread.start()
        try:
            return ready.result()
        finally:
            ready.cancel()  # nothing, unless the wait was interrupted: then the thread closes what it has opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._portal is not None:
            self._portal.end()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _live(self, ready: Future[BlockingApp]) -> None:
        try:
            asyncio.run(self._open(ready))
        except BaseException as error:  # handed to the thread that waits for it
            if ready.running() or not ready.done():
                ready.set_exception(error)
            else:
                self._error = error
        finally:
            if self._portal is not None:
                self._portal.abandon()

    async def _open(self, ready: Future[BlockingApp]) -> None:
        async with self._opening as app:
            self._portal = portal = BlockingApp(app)
            if ready.set_running_or_notify_cancel():
                ready.set_result(portal)
                await portal.serve()
