"""What a run is waiting for, and how such a wait is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any, Literal, TypeAlias, final

from ...services.clock import Clock
from .turnstile import Lost

__all__ = ["Interrupt", "Reason", "Waits"]

Interrupt: TypeAlias = Literal["cancel", "aside"]
Reason: TypeAlias = Literal["task", "time", "wake", "cancel", "aside"]


@final
class Waits:
    """The open waits of one run: those that are shown in its row, and those that are being awaited."""

    __slots__ = ("_awaited", "_clock", "_interrupts", "_losable", "_losing", "_shown", "_woken", "wakes")

    def __init__(self, clock: Clock, losing: Set[asyncio.Task[Any]]) -> None:
        self._clock = clock
        self._losing = losing
        self._losable: dict[asyncio.Task[Any] | None, asyncio.Future[Reason | None]] = {}
        self._shown: dict[str, tuple[str, int | None, bool]] = {}
        self._awaited: dict[asyncio.Future[Reason | None], tuple[bool, bool]] = {}
        self._woken: set[asyncio.Future[Reason | None]] = set()
        self._interrupts: set[Interrupt] = set()
        self.wakes = 0

    def begin(self, key: str, text: str, at_ms: int | None, *, wakes: bool = True) -> None:
        """The durable call `key` waits until `at_ms`, or without end, as `text` says; for a wake too, if `wakes`."""
        self._shown[key] = (text, at_ms, wakes)

    def done(self, key: str) -> None:
        """It waits no longer."""
        self._shown.pop(key, None)

    def __len__(self) -> int:
        """How many durable calls wait, for an instant or for a wake."""
        return len(self._shown)

    @property
    def text(self) -> str | None:
        """What the run waits for, in words."""
        return "; ".join(text for text, _, _ in self._shown.values()) or None

    @property
    def earliest_ms(self) -> int | None:
        """The first instant that the run waits for."""
        return min((at_ms for _, at_ms, _ in self._shown.values() if at_ms is not None), default=None)

    @property
    def free_ms(self) -> int | None:
        """When the run is to be taken up by whoever can, None for at once: a run that nobody has hears no wake."""
        return None if any(wakes for _, _, wakes in self._shown.values()) else self.earliest_ms

    def wake(self) -> None:
        """The run is owed a wake: end the waits for one. `wakes` counts them, for who is about to wait."""
        self.wakes += 1
        for future in tuple(self._woken):
            if not future.done():
                future.set_result("wake")

    def interrupt(self, reason: Interrupt) -> None:
        """End the waits that this may end, now and from now on.

        Cancellation ends those that say so; setting aside all but those for what is being executed.
        """
        self._interrupts.add(reason)
        for future, (cancellable, executing) in list(self._awaited.items()):
            if not future.done() and _ends(reason, cancellable, executing):
                future.set_result(reason)

    def lose(self, branch: asyncio.Task[Any]) -> None:
        """The branch is one of `losing` from now on: end the wait at which it may stand."""
        future = self._losable.get(branch)
        if future is not None and not future.done():
            future.set_result(None)

    async def first(
        self,
        task: asyncio.Future[Any] | None,
        until_ms: int | None,
        *,
        cancellable: bool,
        executing: bool | None = None,
        wakes: int | None = None,
        losable: bool = True,
    ) -> Reason:
        """Wait until the task has ended, the instant has come, or the wait is cut short; which of them it was.

        A task executes something of the user's, unless `executing` says that it does not. With `wakes`, the number
        that was read before looking at what is waited for, a wake since then ends it too. Raises Lost in a branch that
        has lost a race, unless this is not `losable`: what is waited for has an effect that must be known.
        """
        branch = asyncio.current_task()
        if losable and branch in self._losing:
            raise Lost
        executing = task is not None if executing is None else executing
        for reason in self._interrupts:
            if _ends(reason, cancellable, executing):
                return reason
        if wakes is not None and wakes != self.wakes:
            return "wake"
        future: asyncio.Future[Reason | None] = asyncio.get_running_loop().create_future()

        def end(reason: Reason) -> None:
            if not future.done():
                future.set_result(reason)

        timer: asyncio.Task[None] | None = None
        if task is not None:
            task.add_done_callback(lambda _: end("task"))
        if until_ms is not None:
            timer = asyncio.get_running_loop().create_task(self._clock.sleep_until_ms(until_ms))
            timer.add_done_callback(lambda timer: None if timer.cancelled() else end("time"))
        self._awaited[future] = (cancellable, executing)
        if wakes is not None:
            self._woken.add(future)
        if losable:
            self._losable[branch] = future
        try:
            ended = await future
        finally:
            del self._awaited[future]
            _ = self._losable.pop(branch, None)
            self._woken.discard(future)
            if timer is not None:
                timer.cancel()
        if ended is None:
            raise Lost
        return ended


def _ends(reason: Interrupt, cancellable: bool, executing: bool) -> bool:
    return cancellable if reason == "cancel" else not executing
