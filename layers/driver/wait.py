"""What a run is waiting for, and how such a wait is cut short."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeAlias, final

from ...services.clock import Clock

__all__ = ["Interrupt", "Reason", "Waits"]

Interrupt: TypeAlias = Literal["cancel", "aside"]
Reason: TypeAlias = Literal["task", "time", "cancel", "aside"]


@final
class Waits:
    """The open waits of one run: those that are shown in its row, and those that are being awaited."""

    __slots__ = ("_awaited", "_clock", "_interrupts", "_shown")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[str, tuple[str, int]] = {}
        self._awaited: dict[asyncio.Future[Reason], tuple[bool, bool]] = {}
        self._interrupts: set[Interrupt] = set()

    def begin(self, key: str, text: str, at_ms: int) -> None:
        """The durable call `key` waits until `at_ms`, as `text` says."""
        self._shown[key] = (text, at_ms)

    def done(self, key: str) -> None:
        """It waits no longer."""
        self._shown.pop(key, None)

    def __len__(self) -> int:
        """How many durable calls wait for an instant."""
        return len(self._shown)

    @property
    def text(self) -> str | None:
        """What the run waits for, in words."""
        return "; ".join(text for text, _ in self._shown.values()) or None

    @property
    def earliest_ms(self) -> int | None:
        """The first instant that the run waits for."""
        return min((at_ms for _, at_ms in self._shown.values()), default=None)

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
    ) -> Reason:
        """Wait until the task has ended, the instant has come, or the wait is cut short; which of them it was.

        A task executes something of the user's, unless `executing` says that it does not.
        """
        executing = task is not None if executing is None else executing
        for reason in self._interrupts:
            if _ends(reason, cancellable, executing):
                return reason
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
        try:
            return await future
        finally:
            del self._awaited[future]
            if timer is not None:
                timer.cancel()


def _ends(reason: Interrupt, cancellable: bool, executing: bool) -> bool:
    return cancellable if reason == "cancel" else not executing
