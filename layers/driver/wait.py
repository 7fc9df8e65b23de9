"""What a run is waiting for, and how such a wait is cut short."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeAlias, final

from ...services.clock import Clock

__all__ = ["Interrupt", "Reason", "Waits"]

Interrupt: TypeAlias = Literal["cancel", "aside"]
Reason: TypeAlias = Literal["task", "time", "wake", "cancel", "aside"]


@final
class Waits:
    """The open waits of one run: those that are shown in its row, and those that are being awaited."""

    __slots__ = ("_awaited", "_clock", "_interrupts", "_shown", "_woken", "wakes")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[str, tuple[str, int | None]] = {}
        self._awaited: dict[asyncio.Future[Reason], tuple[bool, bool]] = {}
        self._woken: set[asyncio.Future[Reason]] = set()
        self._interrupts: set[Interrupt] = set()
        self.wakes = 0

    def begin(self, key: str, text: str, at_ms: int | None) -> None:
        """The durable call `key` waits until `at_ms`, or without end, as `text` says."""
        self._shown[key] = (text, at_ms)

    def done(self, key: str) -> None:
        """It waits no longer."""
        self._shown.pop(key, None)

    def __len__(self) -> int:
        """How many durable calls wait, for an instant or for a wake."""
        return len(self._shown)

    @property
    def text(self) -> str | None:
        """What the run waits for, in words."""
        return "; ".join(text for text, _ in self._shown.values()) or None

    @property
    def earliest_ms(self) -> int | None:
        """The first instant that the run waits for."""
        return min((at_ms for _, at_ms in self._shown.values() if at_ms is not None), default=None)

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

    async def first(
        self,
        task: asyncio.Future[Any] | None,
        until_ms: int | None,
        *,
        cancellable: bool,
        executing: bool | None = None,
        wakes: int | None = None,
    ) -> Reason:
        """Wait until the task has ended, the instant has come, or the wait is cut short; which of them it was.

        A task executes something of the user's, unless `executing` says that it does not. With `wakes`, the number
        that was read before looking at what is waited for, a wake since then ends it too.
        """
        executing = task is not None if executing is None else executing
        for reason in self._interrupts:
            if _ends(reason, cancellable, executing):
                return reason
        if wakes is not None and wakes != self.wakes:
            return "wake"
        future: asyncio.Future[Reason] = asyncio.get_running_loop().create_future()

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
        try:
            return await future
        finally:
            del self._awaited[future]
            self._woken.discard(future)
            if timer is not None:
                timer.cancel()


def _ends(reason: Interrupt, cancellable: bool, executing: bool) -> bool:
    return cancellable if reason == "cancel" else not executing
