"""The journal: for each run an append-only record of what happened, in order, with facts and digests.

Entries are numbered from 0 without gaps, but for one after each rewind, whose numbers are not given again. What is
appended is durable when the call returns, and hashed into a chain that `verify` checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from ..core.batch import Batch, Fenced
from ..core.entry import NewEntry
from ..core.journal import (
    Appended,
    Checkpoint,
    Compacted,
    Entry,
    IdempotencyConflict,
    InvalidCheckpoint,
    InvalidEvent,
    Owner,
    Page,
    Projection,
    Source,
    Tampered,
    Verified,
)
from ..core.model import Unavailable
from ..core.outcome import Outcome

__all__ = [
    "Appended",
    "Checkpoint",
    "Compacted",
    "Entry",
    "Fenced",
    "IdempotencyConflict",
    "InvalidCheckpoint",
    "InvalidEvent",
    "JoinableJournal",
    "Journal",
    "JournalError",
    "Owner",
    "Page",
    "Projection",
    "Source",
    "Tampered",
    "Verified",
]

_S = TypeVar("_S")


class JournalError(Exception):
    """Raised where a journal is followed and cannot be: `failure` is what `entries` answered."""

    def __init__(self, failure: Compacted | Unavailable) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Journal(Protocol):
    """Every call may answer `Unavailable`. A run id is 1 to 512 bytes of UTF-8; there need be no such run."""

    async def append(
        self,
        run_id: str,
        event_type: str,
        payload: object,
        *,
        source: Source | None = None,
        owner: Owner | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> Outcome[Appended, IdempotencyConflict | Fenced | InvalidEvent | Unavailable]:
        """Append one entry; payload and meta are JSON, from which secrets are taken out before they are stored.

        With a `source` it is appended once: the same entry again is a duplicate, under the number that it has. With an
        `owner` it is refused once another has the run, also if it was there already.
        """
        ...

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[Page, Compacted | Unavailable]:
        """The entries after a number, in order, of these types or of all; `Compacted` if some of them are gone."""
        ...

    def follow(self, run_id: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        """All entries after a number, and then each one soon after it was committed, in whichever process.

        It never ends by itself. What `entries` would fail with is raised as a `JournalError`, which holds it.
        """
        ...

    async def project(
        self, run_id: str, projection: Projection[_S], *, after: int | None = None
    ) -> Outcome[_S, Compacted | Unavailable]:
        """The state that the entries after a number fold to. What a reducer raises is raised."""
        ...

    def states(self, run_id: str, projection: Projection[_S], *, after: int | None = None) -> AsyncIterator[_S]:
        """The initial state, and then one after each entry, as `follow` gives them."""
        ...

    async def runs(self) -> Outcome[tuple[str, ...], Unavailable]:
        """The runs that have entries, in ascending order."""
        ...

    async def checkpoint(
        self, run_id: str, seq: int, state: object, *, owner: Owner | None = None
    ) -> Outcome[Checkpoint, InvalidCheckpoint | Fenced | Unavailable]:
        """Keep a state, JSON, that stands for the entries up to `seq`; it replaces one at the same entry.

        The entry is there, and above the one that was compacted to. The state is stored as it is.
        """
        ...

    async def latest_checkpoint(self, run_id: str) -> Outcome[Checkpoint | None, Unavailable]: ...

    async def compact(
        self, run_id: str, upto: int | None = None, *, owner: Owner | None = None
    ) -> Outcome[int, InvalidCheckpoint | Fenced | Unavailable]:
        """Remove the entries below the latest checkpoint, or the latest up to `upto`: how many there were.

        What they said of the step cache is carried forward. A reader that is behind stands against it.
        """
        ...

    async def rewind(self, run_id: str, to_seq: int) -> Outcome[int, Compacted | Unavailable]:
        """Remove the entries after `to_seq`; -1 is all: how many there were. Their numbers are not given again."""
        ...

    async def verify(self, run_id: str | None = None) -> Outcome[Verified, Tampered | Unavailable]:
        """Check every hash of a run's journal, or of all; the first place that is not as it was written is told."""
        ...


@runtime_checkable
class JoinableJournal(Protocol):
    """A journal whose entries can be committed in a batch of the caller's; the engine appends what it does in that way.

    A journal that is not joinable has no entries of the engine.
    """

    def appending(self, run_id: str, entries: Iterable[NewEntry]) -> Batch:
        """The batch that appends these; `Committed.appended` has their numbers."""
        ...
