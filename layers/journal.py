"""The journal: over a ledger that keeps it, and its absence. `layers/journals/` has what it does, part by part."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Never, TypeVar, Unpack, final

from ..core.batch import Fenced
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
from ..core.outcome import Failure, Outcome
from ..services.artifacts import Artifacts
from ..services.clock import Clock
from ..services.journal import Journal, JournalError
from ..services.journal_rows import JournalRows
from ..services.ledger import Ledger
from .journals.journal import REDACTION, JournalOptions, LedgerJournal, Options
from .journals.policy import Compaction
from .layer import Layer, provides
from .recipe import Refused

__all__ = [
    "REDACTION",
    "Compaction",
    "JournalOptions",
    "LedgerJournal",
    "NoopJournal",
    "layer",
    "layer_noop",
    "layer_spilling",
    "layer_test",
]

_S = TypeVar("_S")

ABSENT: Final = Unavailable("there is no journal here: override it by layer() of stepwell.layers.journal", "no")

NOT_KEPT: Final = Unavailable(
    "this ledger keeps no journals: whoever implements it adds JournalRows of stepwell.services.journal_rows", "no"
)


@final
class NoopJournal:
    """No journal: every call fails with `why`, and nothing is kept. It is not joinable: the engine tells it nothing."""

    def __init__(self, why: Unavailable = ABSENT) -> None:
        self._why = why

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
        return Failure(self._why)

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[Page, Compacted | Unavailable]:
        return Failure(self._why)

    def follow(self, run_id: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        return _Failing(self._why)

    async def project(
        self, run_id: str, projection: Projection[_S], *, after: int | None = None
    ) -> Outcome[_S, Compacted | Unavailable]:
        return Failure(self._why)

    def states(self, run_id: str, projection: Projection[_S], *, after: int | None = None) -> AsyncIterator[_S]:
        return _Failing(self._why)

    async def runs(self) -> Outcome[tuple[str, ...], Unavailable]:
        return Failure(self._why)

    async def checkpoint(
        self, run_id: str, seq: int, state: object, *, owner: Owner | None = None
    ) -> Outcome[Checkpoint, InvalidCheckpoint | Fenced | Unavailable]:
        return Failure(self._why)

    async def latest_checkpoint(self, run_id: str) -> Outcome[Checkpoint | None, Unavailable]:
        return Failure(self._why)

    async def compact(
        self, run_id: str, upto: int | None = None, *, owner: Owner | None = None
    ) -> Outcome[int, InvalidCheckpoint | Fenced | Unavailable]:
        return Failure(self._why)

    async def rewind(self, run_id: str, to_seq: int) -> Outcome[int, Compacted | Unavailable]:
        return Failure(self._why)

    async def verify(self, run_id: str | None = None) -> Outcome[Verified, Tampered | Unavailable]:
        return Failure(self._why)


@final
class _Failing(AsyncIterator[Never]):
    """Gives nothing but the failure."""

    def __init__(self, why: Unavailable) -> None:
        self._why = why

    async def __anext__(self) -> Never:
        raise JournalError(self._why)


@asynccontextmanager
async def _opened(
    clock: Clock, ledger: Ledger, options: Options, artifacts: Artifacts | None
) -> AsyncGenerator[Journal]:
    invalid = options.invalid()
    if invalid is not None:
        raise Refused(invalid)
    if not isinstance(ledger, JournalRows):
        yield NoopJournal(NOT_KEPT)
        return
    journal = LedgerJournal(ledger, ledger, clock, options, artifacts)
    try:
        opened = await journal.open()
        if isinstance(opened, Failure):
            raise Refused(opened.failure())
        yield journal
    finally:
        await journal.close()


# --- layers -----------------------------------------------------------------


def layer(**options: Unpack[JournalOptions]) -> Layer[Journal, Clock | Ledger]:
    """The journal in the ledger that is given.

    Building fails with `InvalidEvent` for an option that makes no sense, and with `Tampered` where one of the newest
    entries is not as it was written.
    """
    chosen = Options(**options)

    @provides
    async def recipe(clock: Clock, ledger: Ledger) -> AsyncIterator[Journal]:
        async with _opened(clock, ledger, chosen, None) as journal:
            yield journal

    return recipe


def layer_spilling(**options: Unpack[JournalOptions]) -> Layer[Journal, Artifacts | Clock | Ledger]:
    """The same, where a payload that is longer than `payload_bytes` is put into the artifacts, and read from there."""
    chosen = Options(**options)

    @provides
    async def recipe(clock: Clock, ledger: Ledger, artifacts: Artifacts) -> AsyncIterator[Journal]:
        async with _opened(clock, ledger, chosen, artifacts) as journal:
            yield journal

    return recipe


def layer_test(**options: Unpack[JournalOptions]) -> Layer[Journal, Clock | Ledger]:
    """The same journal: it is as deterministic as the ledger and the clock beneath it."""
    return layer(**options)


def layer_noop() -> Layer[Journal, Journal]:
    """No journal: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[Journal]:
        yield NoopJournal()

    return recipe
