"""The points that a copy-back passes, where a test may look on, meddle, or end the process."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

__all__ = ["CopyBackPoint", "OnPoint"]


class CopyBackPoint(Enum):
    """Where a copy-back stands. A process that ends at any of them has made, once recovered, every change or none."""

    FOLDER_MADE = "the folder of the transaction is there"
    STAGED = "a new node is staged"
    LOCKED = "the lock is held"
    PREFLIGHT_PASSED = "all targets are as they should be"
    STAGE_SYNCED = "what is staged is durable"
    INTENT_WRITTEN = "the manifest is written"
    INTENT_DURABLE = "the manifest is durable"
    DIRECTORY_MADE = "a directory above a target is made"
    DIRECTORIES_DURABLE = "the directories are durable"
    DECISION_RECORDED = "whoever decides has said yes"
    DECIDED = "the manifest is marked as decided"
    DECISION_DURABLE = "the decision is durable"
    MOVED = "an operation has moved something, unchecked"
    APPLIED = "an operation is applied"
    APPLIED_DURABLE = "all operations are durable"
    PREIMAGES_CHECKED = "late writes are kept"
    DONE = "the manifest is marked as done"
    DONE_DURABLE = "that it is done is durable"
    SLOT_FREED = "an old node is removed"
    MARKER_REMOVED = "the manifest is removed"
    CLEANED = "the folder of the transaction is gone"
    UNDO_MARKED = "the manifest is marked as taken back"
    UNDO_DURABLE = "that it is taken back is durable"
    UNMOVED = "an operation has been moved back, unchecked"
    UNDONE = "an operation is taken back"
    KEPT = "what somebody else wrote is kept"
    UNDONE_DURABLE = "all that was taken back is durable"
    DIRECTORY_REMOVED = "a directory made above a target is removed"


OnPoint: TypeAlias = Callable[[CopyBackPoint], None]
"""Called in passing, on the thread that copies back. What it raises ends the copy-back as the process's end would."""
