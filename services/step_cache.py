"""The step cache: results by cache key, so that a step that was executed anywhere need not be executed again.

Every row that was ever recorded stays as long as its run does; the head of a key is the row in force. The first writer
wins. Whatever becomes of a row is in a journal, in the same commit, so that the heads can be folded from it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol, runtime_checkable

from ..core.batch import Batch
from ..core.model import Unavailable
from ..core.outcome import Outcome
from ..core.step_cache import (
    CacheConflict,
    CacheEntry,
    CacheMiss,
    ExistingSame,
    Inserted,
    InvalidEntry,
    RecordedRef,
)

__all__ = [
    "CacheConflict",
    "CacheEntry",
    "CacheMiss",
    "ExistingSame",
    "Inserted",
    "InvalidEntry",
    "JoinableStepCache",
    "RecordedRef",
    "StepCache",
]


class StepCache(Protocol):
    """Every call may answer `Unavailable`. A key is 1 to 256 letters, digits, "-" and "_"; results and meta are JSON.

    A fence (`recorded_by`, `if_recorded_by`) that no row can have raises ValueError or TypeError, and asks nothing.
    """

    async def get(
        self,
        key: str,
        *,
        recorded_by: RecordedRef | None = None,
        max_age_ms: int | None = None,
        fallback: Literal["head"] | None = None,
    ) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        """The row in force, or that very row, in force or not; with `fallback="head"` the head where it is not there.

        Older than `max_age_ms` is a miss. A row that is damaged is one too, and is in force no more.
        """
        ...

    async def put(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        """Record a row, and put it in force if its key has none. The first result and meta stay.

        Results are compared, meta is not. A row of that name with other content is a conflict, and nothing is written.
        """
        ...

    async def evict(self, key: str, *, if_recorded_by: RecordedRef | None = None) -> Outcome[bool, Unavailable]:
        """Take the row out of force, or that one only if it is in force: whether one was. It stays recorded."""
        ...

    async def sweep(self, older_than_ms: int) -> Outcome[int, Unavailable]:
        """Take out of force all that was recorded longer ago than that: how many."""
        ...

    async def rebuild_heads(self, refs: Iterable[RecordedRef]) -> Outcome[int, InvalidEntry | Unavailable]:
        """Put exactly these rows in force, and no others: how many of them are recorded. All or nothing."""
        ...


@runtime_checkable
class JoinableStepCache(Protocol):
    """A step cache whose changes can be committed in a batch of the caller's, as the engine does it."""

    def recording(self, key: str, run_id: str, result: bytes, meta: object) -> Outcome[Batch, InvalidEntry]:
        """The batch that records a result, JSON, by the next entry of the run's journal.

        `Committed.recorded` tells what became of it.
        """
        ...

    def evicting(self, ref: RecordedRef) -> Batch:
        """The batch that takes a row out of force if it is the head. The caller appends why, in the same batch."""
        ...
