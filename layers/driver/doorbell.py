"""The doorbell of one run: what the wake bus and the poll say to whoever waits for a wake of it.

A moment is taken before a look, and the wait after it names that moment: so no wake in between is missed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import final

from ...services.wake_bus import WakeToken
from .tools import Tools
from .wait import Reason, Waits

__all__ = ["Doorbell", "Moment"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment before a look at what a run waits for; no wake that comes after it is missed."""

    token: WakeToken
    wakes: int


@final
class Doorbell:
    """Hints that the run may go on."""

    __slots__ = ("_run_id", "_tools", "_waits")

    def __init__(self, run_id: str, tools: Tools, waits: Waits) -> None:
        self._run_id = run_id
        self._tools = tools
        self._waits = waits

    def moment(self) -> Moment:
        """The present moment."""
        return Moment(self._tools.wake_bus.token(self._run_id), self._waits.wakes)

    async def wait(self, moment: Moment, until_ms: int | None, *, cancellable: bool) -> Reason:
        """Wait for a wake since the moment, for the instant, or until the wait is cut short; which of them it was."""
        self._tools.on_wait()
        hint = asyncio.get_running_loop().create_task(self._hint(moment.token))
        try:
            reason = await self._waits.first(
                hint, until_ms, cancellable=cancellable, executing=False, wakes=moment.wakes
            )
        finally:
            _ = hint.cancel()
        return "wake" if reason == "task" else reason

    async def _hint(self, token: WakeToken) -> None:
        """Return at the hint of the bus; of one that is broken there comes none, and the worker's poll must do."""
        try:
            await self._tools.wake_bus.await_wake(self._run_id, token)
        except Exception as error:
            message = f"the wake bus failed, so run {self._run_id!r} is woken by polling"
            asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
            _ = await asyncio.get_running_loop().create_future()
