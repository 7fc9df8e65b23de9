"""Which artifacts are missing that the rows in force of the step cache need to be served."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..core.cache_entry import read_entry
from ..core.cached_row import CachedRow, artifacts_of, read_meta
from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.outputs import Outputs, needed
from ..services.artifacts import Artifacts
from ..services.journal_rows import CacheRows
from ..services.ledger import Ledger
from .stopped import Stopped, value_of

__all__ = ["missing_artifacts"]


async def missing_artifacts(ledger: Ledger, artifacts: Artifacts) -> Outcome[tuple[str, ...], Unavailable]:
    """Those that are not there, of what the rows in force need to be served, in ascending order."""
    try:
        digests = {digest async for digest in _of_heads(ledger)}
    except Stopped as stopped:
        return Failure(stopped.failure)
    missing = await artifacts.find_missing(sorted(digests))
    if isinstance(missing, Success):
        return missing
    failure = missing.failure()
    return Failure(failure) if isinstance(failure, Unavailable) else Success(())


async def _of_heads(ledger: Ledger) -> AsyncIterator[str]:
    """What the rows in force say that their outputs are, and nothing that only looks like it."""
    after = ""
    while isinstance(ledger, CacheRows) and (heads := value_of(await ledger.heads(after=after))):
        for head in heads:
            stored = value_of(await ledger.recorded(head.ref))
            entry = None if stored is None or stored.row is None else read_entry(head.ref, stored.row)
            row = None if entry is None else read_meta(entry.meta)
            if isinstance(row, CachedRow):
                of_record = needed(row.kept) if isinstance(row.kept, Outputs) else frozenset[str]()
                for digest in artifacts_of(row.kept, of_record):
                    yield digest
        after = heads[-1].ref.key_digest
