"""What bounds the work of a committer, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...core.batch import BATCH_BYTES

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`LIMITS` holds the ones in use; a test that cannot wait for them makes its own."""

    group_batches: int = 1000
    """The most batches in one transaction. More would gain nothing: the sync is shared by enough already."""

    group_bytes: int = BATCH_BYTES
    """The most bytes in one transaction, so that a small batch waits for no more than one huge one."""

    queue_batches: int = 100_000
    """The most batches that wait for their turn; beyond it, callers are told to come back."""

    cancel_wait_s: float = 5.0
    """How long a caller that was cancelled waits for the verdict on its batch."""

    busy_wait_s: float = 30.0
    """How long a lock that another process holds is waited for, in pauses."""

    busy_wait_closing_s: float = 1.0
    """The same while the ledger is being closed."""


LIMITS: Final = Limits()
