"""The heads of a step cache made anew from the journals, while others use it, and compared with them.

What is read is not of one moment, so what differs is only a suspicion at first. It becomes a fact if nothing of the
step cache was changed since (`CacheAt`); otherwise the keys in question are read again, in an order in which nothing
is missed: the head, then the entries since, then what journals carry. An entry of a row is committed with its head, so
a head that was seen has its admission among what is read after it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final, final

from msgspec.structs import replace

from ..core.batch import Batch, Fenced
from ..core.cache_entry import check_key, read_entry
from ..core.cache_rebuild import count_differences, difference
from ..core.cache_verdict import Explanation, Rebuilt, Verification
from ..core.journal import Compacted
from ..core.journal_writes import CacheAt, EvictHead, SetHead
from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.step_cache import RecordedRef
from ..services.cache_fold import CacheFold
from ..services.journal import Journal
from ..services.journal_rows import CacheRows, JournalRows
from ..services.ledger import Ledger
from ..services.step_cache import StepCache
from .cache_reading import CacheReading, plain_verdict
from .collector import rarely_collected
from .layer import Layer, provides
from .stopped import Stopped, value_of

__all__ = ["LedgerCacheFold", "NoopCacheFold", "layer", "layer_noop", "layer_test"]

ROUNDS: Final = 50
"""How often the keys in question are read again because the step cache was changed meanwhile."""

HEADS_AT_ONCE: Final = 50_000
"""How many heads go in one batch; a rebuild that changes more is several, each of which leaves what is proven."""

KEEPS_NONE: Final = Unavailable("the ledger here keeps no journals and no step cache", "no")
BUSY: Final = Unavailable(f"the step cache was changed by others {ROUNDS} times meanwhile; ask again", "no")
ABSENT: Final = Unavailable("there is no cache fold here: it was composed with `cache_fold.layer_noop()`", "no")


@final
class LedgerCacheFold:
    """It holds nothing between its calls. What it reads of one takes some 500 bytes of memory for each row."""

    def __init__(self, ledger: Ledger, *, heads_at_once: int = HEADS_AT_ONCE) -> None:
        self._ledger = ledger
        self._at_once = heads_at_once

    async def rebuild(self) -> Outcome[Rebuilt, Compacted | Unavailable]:
        try:
            with self._reading() as reading:
                return await self._rebuild(reading)
        except Stopped as stopped:
            return Failure(stopped.failure)

    async def verify(self) -> Outcome[Verification, Unavailable]:
        try:
            with self._reading() as reading:
                differing: list[str] | None = None
                for _ in range(ROUNDS):
                    changes = value_of(await reading.rows.cache_changes())
                    await (reading.read() if differing is None else reading.read_again(differing))
                    differing = reading.differing()
                    if not differing or value_of(await reading.rows.cache_changes()) == changes:
                        return Success(await _compared(reading))
        except Stopped as stopped:
            return Failure(stopped.failure)
        return Failure(BUSY)

    async def explain(self, key_digest: str) -> Outcome[Explanation, Unavailable]:
        key = check_key(key_digest)
        try:
            with self._reading() as reading:
                await reading.read_of(key)
                return Success(reading.explain(key))
        except Stopped as stopped:
            return Failure(stopped.failure)

    # --- parts ----------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Generator[CacheReading]:
        ledger = self._ledger
        if not (isinstance(ledger, CacheRows) and isinstance(ledger, JournalRows)):
            raise Stopped(KEEPS_NONE)
        with rarely_collected():
            yield CacheReading(ledger, ledger)

    async def _rebuild(self, reading: CacheReading) -> Outcome[Rebuilt, Unavailable]:
        changes = value_of(await reading.rows.cache_changes())
        await reading.read()
        refusals = 0
        while differing := reading.differing():
            chunk = differing[: self._at_once]
            writes = tuple(SetHead(key, reading.due.get(key)) for key in chunk)
            verdict = await self._ledger.commit(Batch((CacheAt(changes),), writes))
            if isinstance(verdict, Success):
                reading.settled.update(chunk)
                changes += len(chunk)
            elif isinstance(failure := verdict.failure(), Fenced):
                refusals += 1
                if refusals > ROUNDS:
                    return Failure(BUSY)
                changes = value_of(await reading.rows.cache_changes())
                await reading.read_again(differing)
                changes += await self._evict_unproven(reading)
            else:
                raise Stopped(failure if isinstance(failure, Unavailable) else Unavailable(str(failure), "no"))
        return Success(await _rebuilt(reading))

    async def _evict_unproven(self, reading: CacheReading) -> int:
        """Take out of force what no journal proves, each by its own row: whatever others do, that one is not proven.

        So only heads that are missing need a moment in which nobody changes the step cache. How many heads went.
        """
        seen_first = set(reading.seen_first)
        extra = [key for key in reading.differing() if key in seen_first and key not in reading.due][: self._at_once]
        if not extra:
            return 0
        batch = Batch((), tuple(EvictHead(key, reading.live[key]) for key in extra))
        evicted = value_of(plain_verdict(await self._ledger.commit(batch))).evicted
        gone = [key for key, ref in zip(extra, evicted, strict=True) if ref is not None]
        reading.settled.update(gone)
        return len(gone)


async def _rebuilt(reading: CacheReading) -> Rebuilt:
    keys = tuple(await reading.explanations())
    found = reading.proof.found
    return Rebuilt(
        len(reading.runs),
        reading.compacted,
        reading.rewound,
        len(found.admitted),
        len(found.retired),
        len(reading.due),
        keys,
    )


async def _compared(reading: CacheReading) -> Verification:
    """How the heads stand to the journals. Of a row that is proven and cannot be read, that is the reason told."""
    keys: list[Explanation] = []
    for explained in await reading.explanations():
        differs = difference(explained, reading.live.get(explained.key_digest))
        damaged = explained.verdict == "restored" and await _is_damaged(reading.rows, explained.ref)
        keys.append(replace(explained, difference=differs, reason="damaged" if damaged else explained.reason))
    return count_differences(keys)


async def _is_damaged(rows: CacheRows, ref: RecordedRef | None) -> bool:
    stored = None if ref is None else value_of(await rows.recorded(ref))
    return stored is not None and (stored.row is None or read_entry(stored.ref, stored.row) is None)


@final
class NoopCacheFold:
    """No cache fold: every call fails with `Unavailable`."""

    async def rebuild(self) -> Outcome[Rebuilt, Compacted | Unavailable]:
        return Failure(ABSENT)

    async def verify(self) -> Outcome[Verification, Unavailable]:
        return Failure(ABSENT)

    async def explain(self, key_digest: str) -> Outcome[Explanation, Unavailable]:
        return Failure(ABSENT)


# --- layers -----------------------------------------------------------------


def layer() -> Layer[CacheFold, Journal | Ledger | StepCache]:
    """The fold of the journals and the step cache that the ledger keeps.

    It reads and writes them in the ledger; that they are needed says that both are there.
    """

    @provides
    def recipe(journal: Journal, ledger: Ledger, cache: StepCache) -> Iterator[CacheFold]:
        yield LedgerCacheFold(ledger)

    return recipe


def layer_test() -> Layer[CacheFold, Journal | Ledger | StepCache]:
    """The same."""
    return layer()


def layer_noop() -> Layer[CacheFold, CacheFold]:
    """No cache fold: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[CacheFold]:
        yield NoopCacheFold()

    return recipe
