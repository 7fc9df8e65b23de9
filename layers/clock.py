"""The clock of the machine, a clock that stands still until a test moves it, and the absence of a clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final, final

from ..services.clock import Clock, ManualClock
from .layer import Layer, provides

__all__ = ["NoopClock", "SystemClock", "layer", "layer_noop", "layer_test"]

SLICE_MS: Final = 5_000
"""The longest sleep at a stretch: a clock that is set forward is noticed within it."""


@final
class SystemClock:
    """The machine's wall clock: stored instants mean the same in every process and after a restart."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until_ms(self, at_ms: int) -> None:
        while True:
            left_ms = at_ms - self.now_ms()
            if left_ms <= 0:
                return
            await asyncio.sleep(min(left_ms, SLICE_MS) / 1000)  # by the loop's clock, which knows nothing of jumps


@final
class NoopClock:
    """No clock: an instant cannot be answered as a failure, so asking is a RuntimeError."""

    def now_ms(self) -> int:
        raise _no_clock()

    async def sleep_until_ms(self, at_ms: int) -> None:
        raise _no_clock()


def _no_clock() -> RuntimeError:
    return RuntimeError("there is no clock here: override it by layer() or layer_test() of stepwell.layers.clock")


def layer() -> Layer[Clock, Clock]:
    """The machine's clock."""

    @provides
    def recipe() -> Iterator[Clock]:
        yield SystemClock()

    return recipe


def layer_test(clock: ManualClock | None = None) -> Layer[Clock, Clock]:
    """A clock that only its `advance` moves: `clock`, or one of its own that begins at 0."""

    @provides
    def recipe() -> Iterator[Clock]:
        yield ManualClock() if clock is None else clock

    return recipe


def layer_noop() -> Layer[Clock, Clock]:
    """No clock: whoever asks for the time gets a RuntimeError."""

    @provides
    def recipe() -> Iterator[Clock]:
        yield NoopClock()

    return recipe
