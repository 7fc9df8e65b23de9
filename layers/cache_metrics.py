"""How often the step cache was asked, and what came of it: counted in this process since it was opened."""

from __future__ import annotations

from collections import Counter
from typing import final

from ..core.dispatch import Decided

__all__ = ["CacheMetrics"]


@final
class CacheMetrics:
    """Each consultation that came to a decision counts once; one that ended in an error counts nowhere."""

    __slots__ = ("_counts", "_remote")

    def __init__(self) -> None:
        self._counts: Counter[Decided] = Counter()
        self._remote = 0

    def count(self, decided: Decided, *, remote: bool = False) -> None:
        """One more. `remote`: a shared tier did not answer, which may have had what was missed."""
        self._counts[decided] += 1
        self._remote += remote

    @property
    def counts(self) -> dict[Decided, int]:
        """What was decided, and how often; what never was is not in it."""
        return dict(self._counts)

    @property
    def remote_misses(self) -> int:
        """How many of the misses may be due to a shared tier that did not answer."""
        return self._remote

    def __repr__(self) -> str:
        return f"CacheMetrics({self.counts})"
