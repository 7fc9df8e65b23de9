"""The effect dispatcher: sends what a step asked for outside, once per idempotency key.

A body queues effects while it runs; they are dispatched only when its files are on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..core.effect import Effect
from ..core.model import RecordedError, Unavailable
from ..core.outcome import Outcome

__all__ = ["Dispatched", "Effect", "EffectDispatcher", "EffectFailed", "EffectMismatch"]


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The effect was delivered: now, or before (`again`), in which case nothing was sent."""

    key: str
    again: bool


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """Delivering the effect raised; it counts as not delivered, and dispatching it again tries again."""

    key: str
    cause: RecordedError


@dataclass(frozen=True, slots=True)
class EffectMismatch:
    """Another effect was delivered under this key: one with another payload. This one was not sent; give it its own."""

    key: str


class EffectDispatcher(Protocol):
    async def dispatch(self, effect: Effect) -> Outcome[Dispatched, EffectFailed | EffectMismatch | Unavailable]:
        """Deliver the effect, unless one with its key was delivered; while that is under way it is waited for.

        A process that ends between delivery and its record delivers again: the receiver is given the key to tell. So
        does whoever dispatches again after `Unavailable` with `applied="unknown"`; with "no" nothing was sent.
        """
        ...
