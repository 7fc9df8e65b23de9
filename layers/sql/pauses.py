"""How a lock that another process holds is waited for: many short pauses, never in step with the other's.

SQLite's own busy timeout pauses longer and longer, so that a process that has waited loses against one that has not,
up to starving.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, final

__all__ = ["COURTESY_S", "Pauses"]

SHORTEST_S: Final = 0.0003
SPREAD_S: Final = 0.0004
"""A pause is between `SHORTEST_S` and `SHORTEST_S + SPREAD_S` seconds."""

COURTESY_S: Final = SHORTEST_S + SPREAD_S + 0.0001
"""How long a writer leaves the lock alone after a commit, where others want it too: longer than any of their pauses, so
that whoever waits tries at least once."""

GOLDEN: Final = 0.6180339887498949
"""Its multiples, taken without their whole part, fall as evenly as can be, and never repeat."""


@final
class Pauses:
    """The pauses of one ledger; two processes begin at different places."""

    def __init__(self) -> None:
        self._phase = os.getpid() * GOLDEN % 1.0

    def until(self, limit_s: float) -> Iterator[float]:
        """Pauses in seconds, until their sum reaches the limit."""
        waited_s = 0.0
        while waited_s < limit_s:
            self._phase = (self._phase + GOLDEN) % 1.0
            pause_s = SHORTEST_S + SPREAD_S * self._phase
            waited_s += pause_s
            yield pause_s
