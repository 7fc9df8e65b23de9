"""The pace of a disk: whether a commit may hold up the event loop, from how long the last ones took.

To hand a commit to a thread and to hear of it costs more than a quick disk takes for the sync, and beside a busy loop
the thread waits for the interpreter again and again. So a quick commit is made on the loop, and a slow one beside it.

One slow commit is enough to go to the thread; then it takes the more quick ones to come back, the slower it was.
"""

from __future__ import annotations

from typing import Final, final

__all__ = ["QUICK_S", "Pace"]

QUICK_S: Final = 0.001
"""What one sync may hold up the event loop for, in seconds."""

MEMORY: Final = 8
"""A slow commit is forgotten by one part in so many with each that follows."""


@final
class Pace:
    """It begins slow: a disk is quick when it has shown that it is."""

    __slots__ = ("_expected_s",)

    def __init__(self) -> None:
        self._expected_s = 2 * QUICK_S

    @property
    def is_quick(self) -> bool:
        """Whether the next commit may be expected to take no longer than `QUICK_S`."""
        return self._expected_s <= QUICK_S

    def took(self, commit_s: float) -> None:
        """A commit took so many seconds."""
        self._expected_s = max(commit_s, self._expected_s + (commit_s - self._expected_s) / MEMORY)
