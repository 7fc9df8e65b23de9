"""Permits for dispatching: one key at a time in an engine, and in a run what would write the same files."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import final

from ...core.boundary import Boundary, Touched

__all__ = ["Permit", "Permits", "Places"]


@final
class Permits:
    """At most one holder of each key; those that wait get it in turn. What nobody holds takes no room."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        """How many keys are held."""
        return len(self._waiting)

    async def take(self, key: str) -> bool:
        """Hold the key, as soon as nobody else does: whether that had to be waited for."""
        if (waiting := self._waiting.get(key)) is None:
            self._waiting[key] = deque()
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(key)  # it was given at the same moment
            raise
        return True

    def is_free(self, key: str) -> bool:
        """Whether `take` would not have to wait."""
        return key not in self._waiting

    def give_back(self, key: str) -> None:
        """Hold it no longer: the next one that still waits does."""
        waiting = self._waiting[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[key]


@final
class Permit:
    """What one dispatch holds: one key at most. Exit gives it back."""

    __slots__ = ("_key", "_permits")

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self._key: str | None = None

    async def take(self, key: str) -> bool:
        """Hold this key, and no other any more: whether that had to be waited for."""
        if key == self._key:
            return False
        self.give_back()
        waited = await self._permits.take(key)
        self._key = key
        return waited

    def may_wait(self, key: str) -> bool:
        """Whether `take` may have to wait."""
        return key != self._key and not self._permits.is_free(key)

    def give_back(self) -> None:
        if (key := self._key) is not None:
            self._key = None
            self._permits.give_back(key)

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


@final
class Places:
    """The boundaries of the steps of one run that are under way, or wait to be: each waits for those before it.

    So a step that reads what another one writes finds what that has written, or has not, as their calls were made.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[tuple[Touched, asyncio.Event]] = []

    @asynccontextmanager
    async def hold(self, boundary: Boundary) -> AsyncGenerator[None]:
        """For the time of the block no step of the run changes what this one touches, or reads what it changes."""
        touched = Touched.by(boundary)
        before = [left for other, left in self._held if touched.meets(other)]
        held = (touched, asyncio.Event())
        self._held.append(held)
        try:
            for left in before:
                _ = await left.wait()
            yield
        finally:
            self._held.remove(held)
            held[1].set()
