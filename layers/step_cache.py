"""The step cache over a ledger: each change is one batch, in which the journal says what became of the rows.

get          reads the head and its row, and checks the row's seal
put          records a row; the ledger finds out in the commit whether it is the first of its key
evict        takes a head out of force, and says so in the journal of the step cache
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, final

from msgspec import DecodeError
from msgspec.json import decode

from ..core.batch import Batch, Fenced
from ..core.cache_entry import admit_entry, admit_row, check_key, check_ref, read_entry
from ..core.journal_writes import CacheAt, EvictHead, RecordRow, SetHead
from ..core.model import Unavailable, check_whole
from ..core.outcome import Failure, Outcome, Success
from ..core.recorded_row import StoredRow
from ..core.step_cache import CacheConflict, CacheEntry, CacheMiss, ExistingSame, Inserted, InvalidEntry, RecordedRef
from ..services.clock import Clock
from ..services.journal_rows import CacheRows
from ..services.ledger import Ledger
from ..services.step_cache import StepCache
from .cache_reading import heads_of, plain_verdict, recorded_among
from .layer import Layer, provides
from .stopped import Stopped, value_of

__all__ = ["LedgerStepCache", "NoopStepCache", "layer", "layer_noop", "layer_test"]

SWEEP_ROWS: Final = 250
"""How many heads go in one batch: so few that nobody waits for it."""

REBUILD_ROUNDS: Final = 20
"""How often the heads are read again because they were changed meanwhile."""

KEEPS_NONE: Final = Unavailable("the ledger here keeps no step cache", "no")
ABSENT: Final = Unavailable("there is no step cache here: it was composed with `step_cache.layer_noop()`", "no")


@final
class LedgerStepCache:
    """Also a `JoinableStepCache`. It holds nothing: what a call tells is of the ledger at that moment."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._rows = ledger if isinstance(ledger, CacheRows) else None

    async def get(
        self,
        key: str,
        *,
        recorded_by: RecordedRef | None = None,
        max_age_ms: int | None = None,
        fallback: Literal["head"] | None = None,
    ) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        _ = check_key(key)
        if recorded_by is not None:
            _ = check_ref(recorded_by, key)
        if fallback not in (None, "head"):
            raise ValueError(f'what is asked for in place of a row is "head", or nothing, not {fallback!r}')
        since_ms = None if max_age_ms is None else self._clock.now_ms() - check_whole("max_age_ms", max_age_ms, 0)
        if self._rows is None:
            return Failure(KEEPS_NONE)
        if recorded_by is not None:
            found = await self._rows.recorded(recorded_by)
            if isinstance(found, Failure):
                return found
            if (stored := found.unwrap()) is not None:
                return await self._serve(recorded_by, stored, since_ms)
            if fallback is None:
                return Failure(CacheMiss(key))
        found = await self._rows.in_force(key)
        if isinstance(found, Failure):
            return found
        if (stored := found.unwrap()) is None:
            return Failure(CacheMiss(key))
        return await self._serve(stored.ref, stored, since_ms)

    async def put(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        return await self._record(entry, admits=True)

    async def write_back(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        """Keep a row that came from a shared tier, as `put` does, but that no journal here says a word of it.

        So a rebuild takes it out of force: nothing here proves it. Whoever looks for it in the tier finds it again.
        """
        return await self._record(entry, admits=False)

    async def evict(self, key: str, *, if_recorded_by: RecordedRef | None = None) -> Outcome[bool, Unavailable]:
        _ = check_key(key)
        if if_recorded_by is not None:
            _ = check_ref(if_recorded_by, key)
        evicted = await self._evict((EvictHead(key, if_recorded_by, "evict"),))
        return Success(evicted.unwrap() > 0) if isinstance(evicted, Success) else evicted

    async def sweep(self, older_than_ms: int) -> Outcome[int, Unavailable]:
        before_ms = self._clock.now_ms() - check_whole("older_than_ms", older_than_ms, 0)
        if self._rows is None:
            return Failure(KEEPS_NONE)
        swept, after = 0, ""
        while True:
            read = await self._rows.heads(after=after, created_before_ms=before_ms, limit=SWEEP_ROWS)
            if isinstance(read, Failure):
                return read
            if not (heads := read.unwrap()):
                return Success(swept)
            evicted = await self._evict(tuple(EvictHead(head.ref.key_digest, head.ref, "sweep") for head in heads))
            if isinstance(evicted, Failure):
                return evicted
            swept += evicted.unwrap()
            after = heads[-1].ref.key_digest

    async def rebuild_heads(self, refs: Iterable[RecordedRef]) -> Outcome[int, InvalidEntry | Unavailable]:
        wanted: dict[str, RecordedRef] = {}
        for ref in refs:
            try:
                key = check_ref(ref).key_digest
            except (TypeError, ValueError) as error:
                return Failure(InvalidEntry(str(error)))
            if wanted.setdefault(key, ref) != ref:
                return Failure(InvalidEntry(f"a key has one row in force at most; {key} is given two"))
        if self._rows is None:
            return Failure(KEEPS_NONE)
        try:
            for _ in range(REBUILD_ROUNDS):
                if (heads := await self._set_heads(self._rows, wanted)) is not None:
                    return Success(heads)
        except Stopped as stopped:
            return Failure(stopped.failure)
        return Failure(Unavailable(f"the step cache was changed by others {REBUILD_ROUNDS} times meanwhile", "no"))

    # --- in a batch of the caller's -------------------------------------------

    def recording(self, key: str, run_id: str, result: bytes, meta: object) -> Outcome[Batch, InvalidEntry]:
        try:
            value: object = decode(result)
        except (DecodeError, UnicodeDecodeError) as error:
            return Failure(InvalidEntry(f"the result is not JSON: {error}"))
        row = admit_row(key, run_id, None, value, meta, self._clock.now_ms())
        return Success(Batch((), (RecordRow(row.unwrap()),))) if isinstance(row, Success) else row

    def evicting(self, ref: RecordedRef) -> Batch:
        return Batch((), (EvictHead(check_ref(ref).key_digest, ref),))

    # --- parts ----------------------------------------------------------------

    async def _serve(
        self, ref: RecordedRef, stored: StoredRow, since_ms: int | None
    ) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        """What a row holds. One that is damaged, or gone, is in force no more."""
        entry = None if stored.row is None else read_entry(ref, stored.row)
        if entry is None:
            evicted = await self._evict((EvictHead(ref.key_digest, ref, "decode_failed"),))
            return evicted if isinstance(evicted, Failure) else Failure(CacheMiss(ref.key_digest))
        if since_ms is not None and entry.created_at_ms < since_ms:
            return Failure(CacheMiss(ref.key_digest))
        return Success(entry)

    async def _record(
        self, entry: CacheEntry, *, admits: bool
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        row = admit_entry(entry)
        if isinstance(row, Failure):
            return row
        committed = plain_verdict(await self._ledger.commit(Batch((), (RecordRow(row.unwrap(), admits),))))
        if isinstance(committed, Failure):
            return committed
        (recorded,) = committed.unwrap().recorded
        match recorded.standing:
            case "inserted":
                return Success(Inserted(recorded.ref))
            case "existing_same":
                return Success(ExistingSame(recorded.head))
            case "conflict":
                return Failure(CacheConflict(recorded.head))

    async def _evict(self, evictions: tuple[EvictHead, ...]) -> Outcome[int, Unavailable]:
        """How many of these heads went."""
        committed = plain_verdict(await self._ledger.commit(Batch((), evictions)))
        if isinstance(committed, Failure):
            return committed
        return Success(sum(ref is not None for ref in committed.unwrap().evicted))

    async def _set_heads(self, rows: CacheRows, wanted: dict[str, RecordedRef]) -> int | None:
        """Make the heads what they are to be, and tell how many there are; None if they were changed meanwhile."""
        changes = value_of(await rows.cache_changes())
        live = await heads_of(rows)
        recorded = await recorded_among(rows, wanted.values())
        due = {key: ref for key, ref in wanted.items() if ref in recorded}
        writes = tuple(SetHead(key, due.get(key)) for key in sorted(live.keys() | due) if live.get(key) != due.get(key))
        if not writes:
            return len(due) if value_of(await rows.cache_changes()) == changes else None
        verdict = await self._ledger.commit(Batch((CacheAt(changes),), writes))
        if isinstance(verdict, Success):
            return len(due)
        failure = verdict.failure()
        if isinstance(failure, Fenced):
            return None
        raise Stopped(failure if isinstance(failure, Unavailable) else Unavailable(f"too many heads: {failure}", "no"))


@final
class NoopStepCache:
    """No step cache: nothing is ever found, and nothing is kept; every result is computed."""

    async def get(
        self,
        key: str,
        *,
        recorded_by: RecordedRef | None = None,
        max_age_ms: int | None = None,
        fallback: Literal["head"] | None = None,
    ) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        return Failure(CacheMiss(key))

    async def put(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        return Failure(ABSENT)

    async def evict(self, key: str, *, if_recorded_by: RecordedRef | None = None) -> Outcome[bool, Unavailable]:
        return Success(False)

    async def sweep(self, older_than_ms: int) -> Outcome[int, Unavailable]:
        return Success(0)

    async def rebuild_heads(self, refs: Iterable[RecordedRef]) -> Outcome[int, InvalidEntry | Unavailable]:
        return Failure(ABSENT)


# --- layers -----------------------------------------------------------------


def layer() -> Layer[StepCache, Clock | Ledger]:
    """The step cache that the ledger keeps."""

    @provides
    def recipe(ledger: Ledger, clock: Clock) -> Iterator[StepCache]:
        yield LedgerStepCache(ledger, clock)

    return recipe


def layer_test() -> Layer[StepCache, Clock | Ledger]:
    """The same: over the ledger in memory it is one in memory."""
    return layer()


def layer_noop() -> Layer[StepCache, StepCache]:
    """No step cache: every `get` is a miss, and `put` fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[StepCache]:
        yield NoopStepCache()

    return recipe
