"""The wake bus of one process, and one that never wakes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, final

from ..services.wake_bus import WakeBus, WakeToken
from .layer import Layer, provides

__all__ = ["REMEMBERED_WAKES", "MemoryWakeBus", "NoopWakeBus", "layer", "layer_noop", "layer_test"]

REMEMBERED_WAKES: Final = 4_096
"""For how many ids the bus remembers when they were last woken: about 1 MiB, however many are woken or waited for."""


@final
class MemoryWakeBus:
    """Wakes between the tasks of one event loop; from another loop, `wake` and `await_wake` are a RuntimeError.

    Besides who waits it holds the last wake of `REMEMBERED_WAKES` ids. A token that is older than what has been
    forgotten can not be judged: it returns at once, as if there had been a wake.
    """

    __slots__ = ("_forgotten", "_last", "_loop", "_moment", "_waiting")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._moment = 0  # how many wakes there were
        self._last: OrderedDict[str, int] = OrderedDict()  # from an id to the moment of its last wake, oldest first
        self._forgotten = 0  # the last moment that is remembered no more
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    @property
    def entries(self) -> int:
        """For how many ids somebody waits; for tests and diagnosis."""
        return len(self._waiting)

    @property
    def remembered(self) -> int:
        """Of how many ids the last wake is remembered; for tests and diagnosis."""
        return len(self._last)

    async def wake(self, run_id: str) -> None:
        _ = self._own_loop()
        self._moment += 1
        self._last[run_id] = self._moment
        self._last.move_to_end(run_id)
        if len(self._last) > REMEMBERED_WAKES:
            _, self._forgotten = self._last.popitem(last=False)
        for waiting in self._waiting.pop(run_id, ()):  # whoever comes while these are told joins another crowd
            if not waiting.done():
                waiting.set_result(None)

    async def await_wake(self, run_id: str, token: WakeToken | None = None) -> None:
        loop = self._own_loop()
        if token is not None and self._may_have_come_after(run_id, token.moment):
            return
        waiting: asyncio.Future[None] = loop.create_future()
        crowd = self._waiting.setdefault(run_id, {})
        crowd[waiting] = None
        try:
            await waiting
        finally:
            _ = crowd.pop(waiting, None)
            if not crowd and self._waiting.get(run_id) is crowd:
                del self._waiting[run_id]

    async def waiters(self, run_id: str) -> int:
        return len(self._waiting.get(run_id, ()))

    def token(self, run_id: str) -> WakeToken:
        return WakeToken(self._moment)

    def _may_have_come_after(self, run_id: str, moment: int) -> bool:
        """Never wrongly false. A moment that this bus has not reached is one of another bus."""
        last = self._last.get(run_id)
        if last is not None and last > moment:
            return True
        return (last is None and moment < self._forgotten) or moment > self._moment

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("this wake bus belongs to another event loop: compose and build one in each loop")
        return loop


# --- its absence ------------------------------------------------------------


async def _drop(_run_id: str) -> None:
    pass


async def _never(_run_id: str, _token: WakeToken | None) -> None:
    await asyncio.get_running_loop().create_future()


async def _nobody(_run_id: str) -> int:
    return 0


def _no_moment(_run_id: str) -> WakeToken:
    return WakeToken()


@final
class NoopWakeBus:
    """A bus that drops every wake, so that whoever waits is left to its poll; single operations can be replaced."""

    __slots__ = ("_await_wake", "_token", "_waiters", "_wake")

    def __init__(
        self,
        wake: Callable[[str], Awaitable[None]] = _drop,
        await_wake: Callable[[str, WakeToken | None], Awaitable[None]] = _never,
        waiters: Callable[[str], Awaitable[int]] = _nobody,
        token: Callable[[str], WakeToken] = _no_moment,
    ) -> None:
        self._wake = wake
        self._await_wake = await_wake
        self._waiters = waiters
        self._token = token

    async def wake(self, run_id: str) -> None:
        await self._wake(run_id)

    async def await_wake(self, run_id: str, token: WakeToken | None = None) -> None:
        await self._await_wake(run_id, token)

    async def waiters(self, run_id: str) -> int:
        return await self._waiters(run_id)

    def token(self, run_id: str) -> WakeToken:
        return self._token(run_id)


# --- layers -----------------------------------------------------------------


def layer() -> Layer[WakeBus, WakeBus]:
    """The bus of this process; across processes the news of the ledger lead to it."""

    @provides
    def recipe() -> Iterator[WakeBus]:
        yield MemoryWakeBus()

    return recipe


def layer_test() -> Layer[WakeBus, WakeBus]:
    """The same bus: nothing in it depends on time or chance."""
    return layer()


def layer_noop(
    *,
    wake: Callable[[str], Awaitable[None]] = _drop,
    await_wake: Callable[[str, WakeToken | None], Awaitable[None]] = _never,
    waiters: Callable[[str], Awaitable[int]] = _nobody,
    token: Callable[[str], WakeToken] = _no_moment,
) -> Layer[WakeBus, WakeBus]:
    """No bus: wakes are dropped, a wait never ends, nobody is counted. What is given replaces an operation."""

    @provides
    def recipe() -> Iterator[WakeBus]:
        yield NoopWakeBus(wake, await_wake, waiters, token)

    return recipe
