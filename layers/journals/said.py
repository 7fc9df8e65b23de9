"""What the journal of a run says of the step cache, read page by page."""

from __future__ import annotations

from typing import Final

from ...core.cache_fold import EVENT_TYPE
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.provenance import Found, read_carried
from ...services.journal_rows import JournalRow, JournalRows

__all__ = ["found_in"]

PAGE: Final = 1_000


async def found_in(
    rows: JournalRows, journal: JournalRow, after: int | None = None, below: int | None = None
) -> Outcome[Found, Unavailable]:
    """What the entries between the two numbers, both exclusive, say of it, with what the journal carries."""
    found = Found.of((), read_carried(journal.carried))
    while True:
        read = await rows.entries(journal.run_id, after=after, event_types=(EVENT_TYPE,), limit=PAGE)
        if isinstance(read, Failure):
            return read
        page = read.unwrap()
        for entry in page.entries:
            if below is not None and entry.seq >= below:
                return Success(found)
            found.add(entry)
        if not page.has_more:
            return Success(found)
        after = page.entries[-1].seq
