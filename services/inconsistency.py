"""What is to be done where a cache is found to contradict itself: a second result for one key, or damaged outputs.

Neither can be put right by whoever finds it. Both mean that a step is not what it was taken for, or that a disk is not.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from ..core.step_cache import RecordedRef

__all__ = ["Inconsistency", "RecordedRef", "Tolerance"]

Tolerance: TypeAlias = Literal["fail", "tolerate"]
"""The step fails; or it goes on: with its own result, or by being executed again."""


class Inconsistency(Protocol):
    """Is told, and decides. The row that is damaged is taken out of force whatever it says, and the first one stays."""

    async def note_conflict(self, existing: RecordedRef, offered: RecordedRef) -> Tolerance:
        """The key has the result of `existing` in force, and another one was recorded as `offered`."""
        ...

    async def note_corruption(
        self, ref: RecordedRef | None, path: str, recorded: str, measured: str | None
    ) -> Tolerance:
        """What is kept for the output `path` of a row has the digest `measured`, not the one that was recorded.

        `measured` is None where nothing could be measured, `ref` where it is an output of the run's own step.
        """
        ...
