"""Entries read in pages, and folded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TypeVar, final

from ...core.journal import Compacted, Entry, Page, Projection
from ...core.model import Unavailable, check_name, check_whole
from ...core.outcome import Failure, Outcome, Success
from ...services.journal_rows import JournalRows
from .payloads import Payloads

__all__ = ["PAGE", "Reading", "check_cursor", "check_run"]

_S = TypeVar("_S")

PAGE = 512
"""How many entries are read at once, unless another number is given."""

MOST = 10_000
"""The most entries of one page, whoever asks for more."""


def check_run(run_id: object) -> str:
    """A TypeError or ValueError for what can be no run's id."""
    return check_name("a run's id", run_id)


def check_cursor(after: object) -> int:
    """The number after which to read; None is before the first one. A TypeError or ValueError for what is none."""
    return -1 if after is None else check_whole("after", after, -1)


@final
class Reading:
    """Reads entries of a ledger; `page_size` is how many at once where nobody says."""

    def __init__(self, rows: JournalRows, payloads: Payloads, page_size: int) -> None:
        self.rows = rows
        self.payloads = payloads
        self.page_size = page_size

    async def page(
        self, run_id: str, after: int, event_types: Collection[str] | None, limit: int
    ) -> Outcome[Page, Compacted | Unavailable]:
        """The entries after a number, up to `limit`. Which of them are gone is of the same moment as the page."""
        read = await self.rows.entries(run_id, after=after, event_types=event_types, limit=min(limit, MOST))
        if isinstance(read, Failure):
            return read
        found = read.unwrap()
        if found.floor is not None and after < found.floor - 1:
            return Failure(Compacted(run_id, found.floor))
        entries: list[Entry] = []
        for row in found.entries:
            entry = await self.payloads.entry(row)
            if isinstance(entry, Failure):
                return entry
            entries.append(entry.unwrap())
        return Success(Page(tuple(entries), found.has_more))

    async def fold(self, run_id: str, projection: Projection[_S], after: int) -> Outcome[_S, Compacted | Unavailable]:
        """The state that the entries after a number come to; others have their turn between the pages."""
        state = projection.initial()
        while True:
            read = await self.page(run_id, after, None, self.page_size)
            if isinstance(read, Failure):
                return read
            page = read.unwrap()
            for entry in page.entries:
                state = projection.reduce(state, entry)
            if not page.has_more:
                return Success(state)
            after = page.entries[-1].seq
            await asyncio.sleep(0)
