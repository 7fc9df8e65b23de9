"""What names a recorded row of the step cache."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RecordedRef"]


@dataclass(frozen=True, slots=True)
class RecordedRef:
    """One recorded row: the result kept under a cache key, by the entry of the run that recorded it.

    All three are needed: two runs may record one key under the same number, and one run may record it twice.
    """

    key_digest: str
    recorded_run_id: str
    recorded_event_seq: int
