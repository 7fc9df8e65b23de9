"""The heads of the step cache as a fold of the journal: made anew, compared, explained."""

from __future__ import annotations

from typing import Protocol

from ..core.cache_verdict import Explanation, KeyVerdict, Rebuilt, Verification
from ..core.journal import Compacted
from ..core.model import Unavailable
from ..core.outcome import Outcome
from ..core.step_cache import RecordedRef

__all__ = ["CacheFold", "Compacted", "Explanation", "KeyVerdict", "Rebuilt", "RecordedRef", "Verification"]


class CacheFold(Protocol):
    """Every call may answer `Unavailable`, and has changed nothing then."""

    async def rebuild(self) -> Outcome[Rebuilt, Compacted | Unavailable]:
        """Put in force what the journals prove, and nothing else; what is committed meanwhile is honoured."""
        ...

    async def verify(self) -> Outcome[Verification, Unavailable]:
        """Compare the heads with what `rebuild` would make of them. Writes nothing."""
        ...

    async def explain(self, key_digest: str) -> Outcome[Explanation, Unavailable]:
        """What the journals say of one key."""
        ...
