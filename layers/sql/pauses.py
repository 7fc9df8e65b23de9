"""How a lock that another process holds is waited for: many short pauses, never in step with the other's.

SQLite's own busy timeout pauses longer and longer, so that a process that has waited loses against one that has not,
up to starving.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, final

__all__ = ["Pauses"]

BUSY_WAIT_S: Final = 30.0
"""How long a lock is waited for, in pauses."""

BUSY_WAIT_CLOSING_S: Final = 1.0
"""The same while the ledger is being closed."""

SHORTEST_S: Final = 0.0003
SPREAD_S: Final = 0.0004
"""A pause is between `SHORTEST_S` and `SHORTEST_S + SPREAD_S` seconds."""

GOLDEN: Final = 0.6180339887498949
"""Its multiples, taken without their whole part, fall as evenly as can be, and never repeat."""


@final
class Pauses:
    """The pauses of one ledger; two processes begin at different places."""

    def __init__(self) -> None:
        self._phase = os.getpid() * GOLDEN % 1.0
        self._limit_s = BUSY_WAIT_S

    def hurry(self) -> None:
        """From now on a lock is not waited for any longer than `BUSY_WAIT_CLOSING_S`."""
        self._limit_s = BUSY_WAIT_CLOSING_S

    def of_one_group(self) -> Iterator[float]:
        """Pauses in seconds, until their sum reaches the limit."""
        waited_s = 0.0
        while waited_s < self._limit_s:
            pause_s = self.next_s()
            waited_s += pause_s
            yield pause_s

    def next_s(self) -> float:
        self._phase = (self._phase + GOLDEN) % 1.0
        return SHORTEST_S + SPREAD_S * self._phase
