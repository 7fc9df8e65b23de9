"""Growing pauses between tries of what a service could not answer."""

from __future__ import annotations

from typing import final

__all__ = ["Pauses"]

FIRST_MS = 50
CAP_MS = 5_000


@final
class Pauses:
    """None before the second try, then 50 ms, doubling up to 5 s."""

    __slots__ = ("_next_ms",)

    def __init__(self) -> None:
        self._next_ms = 0

    def next_ms(self) -> int:
        """How long the next pause is."""
        pause_ms = self._next_ms
        self._next_ms = min(pause_ms * 2 or FIRST_MS, CAP_MS)
        return pause_ms
