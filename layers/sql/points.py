"""The points that a commit passes, where a test may look on or end the process."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

__all__ = ["CommitPoint", "OnPoint"]


class CommitPoint(Enum):
    """Where a commit stands. A process that ends at any of them has written a group whole, or nothing of it."""

    BEFORE_BEGIN = "before begin"
    AFTER_BEGIN = "after begin"
    AFTER_JUDGEMENT = "after judgement"
    AFTER_STORES = "after the rows of stores"
    AFTER_LOG = "after the rows of the log"
    AFTER_BASES = "after the bases"
    AFTER_RECEIPTS = "after the receipts"
    AFTER_RUNS = "after the rows of runs"
    AFTER_STEPS = "after the rows of steps"
    AFTER_JOURNALS = "after the rows of journals"
    AFTER_ENTRIES = "after the entries"
    AFTER_SOURCES = "after the sources of entries"
    AFTER_CHECKPOINTS = "after the checkpoints"
    AFTER_RECORDED = "after the recorded rows"
    AFTER_HEADS = "after the heads of the step cache"
    AFTER_WAITERS = "after the rows of waiters"
    AFTER_SIGNALS = "after the rows of signals"
    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit, before the answer"


OnPoint: TypeAlias = Callable[[CommitPoint], None]
"""Called in passing, on the thread that commits. What it raises is treated as an error of the database there."""
