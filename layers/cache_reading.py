"""What has to be read of a step cache page by page; `Stopped` where the ledger does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ..core.batch import Committed
from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.step_cache import RecordedRef
from ..services.journal_rows import CacheRows
from ..services.ledger import Verdict
from .collection import value_of

__all__ = ["PAGE", "heads_of", "plain_verdict", "recorded_among"]

PAGE: Final = 1_000
"""How many rows are asked for at a time by their names."""


async def heads_of(rows: CacheRows) -> dict[str, RecordedRef]:
    """The row that each key has in force, in ascending order of the keys."""
    heads: dict[str, RecordedRef] = {}
    after = ""
    while page := value_of(await rows.heads(after=after)):
        for head in page:
            heads[head.ref.key_digest] = head.ref
        after = page[-1].ref.key_digest
    return heads


async def recorded_among(rows: CacheRows, refs: Iterable[RecordedRef]) -> set[RecordedRef]:
    """Those of the refs that have a row, damaged or not."""
    recorded: set[RecordedRef] = set()
    rest = iter(refs)
    while some := tuple(islice(rest, PAGE)):
        recorded |= value_of(await rows.are_recorded(some))
    return recorded


def plain_verdict(verdict: Verdict) -> Outcome[Committed, Unavailable]:
    """The verdict on a batch that expects nothing, and is not too large."""
    if isinstance(verdict, Failure):
        failure = verdict.failure()
        if isinstance(failure, Unavailable):
            return Failure(failure)
        raise RuntimeError(f"a batch that expects nothing was refused: {failure}")
    committed = verdict.unwrap()
    if isinstance(committed, Committed):
        return Success(committed)
    raise RuntimeError(f"a batch without a receipt was applied before: {committed}")
