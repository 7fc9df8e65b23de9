"""The pace of a disk: whether a commit may hold up the event loop, from how long the last ones took.

To hand a commit to a thread and to hear of it costs about as much as a quick disk takes for the sync, and beside a busy
loop a thread gets less done (`benchmarks/busy.py`). So a quick commit is made on the loop, and a slow one beside it.

One slow commit is enough to go to the thread; then it takes the more quick ones to come back, the slower it was. Beside
a busy loop every commit on the thread looks slow, whatever the disk is like, so now and then one is tried on the loop.
"""

from __future__ import annotations

from typing import Final, final

__all__ = ["QUICK_S", "Pace"]

QUICK_S: Final = 0.001
"""What one sync may hold up the event loop for, in seconds."""

MEMORY: Final = 8
"""A slow commit is forgotten by one part in so many with each that follows."""

TRIAL: Final = 32
"""After a slow commit on the loop the next one is tried there when groups on the thread have taken so many times as
long: a slow disk holds up the loop for one part in so many of what it takes to write."""


@final
class Pace:
    """It begins slow: a disk is quick when it has shown that it is, on the thread or, soon, in a trial."""

    __slots__ = ("_expected_s", "_until_trial_s")

    def __init__(self) -> None:
        self._expected_s = 2 * QUICK_S
        self._until_trial_s = QUICK_S

    @property
    def is_quick(self) -> bool:
        """Whether the next commit may be expected to take no longer than `QUICK_S`, or is to show whether it does."""
        return self._expected_s <= QUICK_S or self._until_trial_s <= 0

    def took(self, commit_s: float) -> None:
        """A commit on the loop took so many seconds: that much is true of the disk, whatever the thread has met."""
        if self._expected_s > QUICK_S:  # a trial
            self._expected_s = commit_s
        self._expect(commit_s)
        self._until_trial_s = TRIAL * commit_s

    def took_beside(self, commit_s: float, group_s: float) -> None:
        """A commit on the thread took so many seconds, and its whole group so many, with all that it waited for."""
        self._expect(commit_s)
        self._until_trial_s -= group_s

    def _expect(self, commit_s: float) -> None:
        self._expected_s = max(commit_s, self._expected_s + (commit_s - self._expected_s) / MEMORY)
