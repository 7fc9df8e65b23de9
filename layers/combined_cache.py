"""The step cache of this ledger, with a shared tier behind it: asked here first, there next, and written back.

Whatever the tier does, a lookup is answered: what it does not give is a miss, and what it gives is verified. The ledger
decides; a row that was found elsewhere comes into force only where no other one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, final

from ..core.batch import Batch
from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.shared_row import is_shareable
from ..core.step_cache import CacheConflict, CacheEntry, CacheMiss, ExistingSame, Inserted, InvalidEntry, RecordedRef
from ..services.clock import Clock
from ..services.ledger import Ledger
from ..services.shared_tier import SharedTier
from ..services.step_cache import JoinableStepCache, StepCache
from .layer import Layer, provides
from .shared.publication import told
from .step_cache import LedgerStepCache

__all__ = ["CombinedStepCache", "LocalStepCache", "Lookups", "Publication", "layer"]

Publication: TypeAlias = Literal["deferred", "inline"]
"""When a row that is put goes to the shared tier: when its caller says so (`publish`), or within the `put`."""


class LocalStepCache(StepCache, JoinableStepCache, Protocol):
    """The step cache of a ledger, which also takes rows that were recorded elsewhere."""

    async def write_back(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        """Record a row that no run here has recorded, and put it in force if its key has none."""
        ...


@final
@dataclass(slots=True)
class Lookups:
    """How many lookups came to what. Each is counted once; `remote_misses` are those that the tier did not answer."""

    local_hits: int = 0
    shared_hits: int = 0
    misses: int = 0
    remote_misses: int = 0


@final
class CombinedStepCache:
    """A step cache over the one here and a shared tier. What is evicted or swept goes here only."""

    def __init__(
        self,
        local: LocalStepCache,
        tier: SharedTier,
        clock: Clock,
        *,
        publication: Publication = "deferred",
        lookups: Lookups | None = None,
    ) -> None:
        self._local = local
        self._tier = tier
        self._clock = clock
        self._publication = publication
        self.lookups = Lookups() if lookups is None else lookups

    @property
    def tier(self) -> SharedTier:
        """For whoever records a row by a batch, and publishes it afterwards (`SharingStepCache`)."""
        return self._tier

    # --- looking up ---------------------------------------------------------

    async def get(
        self,
        key: str,
        *,
        recorded_by: RecordedRef | None = None,
        max_age_ms: int | None = None,
        fallback: Literal["head"] | None = None,
    ) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        now_ms = self._clock.now_ms()
        asked = _Asked(key, recorded_by, fallback, max_age_ms, now_ms)
        here = await self._get_here(asked)
        if isinstance(here, Success):
            self.lookups.local_hits += 1
            return here
        if isinstance(here.failure(), Unavailable):
            return here
        got = await self._get_there(asked)
        if isinstance(got, Success):
            self.lookups.shared_hits += 1
        elif isinstance(miss := got.failure(), CacheMiss):
            self.lookups.misses += not miss.remote
            self.lookups.remote_misses += miss.remote
        return got

    async def _get_here(self, asked: _Asked) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        return await self._local.get(
            asked.key, recorded_by=asked.recorded_by, max_age_ms=asked.max_age_ms, fallback=asked.fallback
        )

    async def _get_there(self, asked: _Asked) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        found = await self._tier.find(asked.key)
        if isinstance(found, Failure):
            return Failure(CacheMiss(asked.key, remote=True))
        entry = found.unwrap()
        if entry is None:
            return Failure(CacheMiss(asked.key))
        if not is_shareable(entry):  # somebody shared what nobody may
            return Failure(CacheMiss(asked.key, remote=True))
        return await self._write_back(entry, asked) if asked.is_met_by(entry) else Failure(CacheMiss(asked.key))

    async def _write_back(self, entry: CacheEntry, asked: _Asked) -> Outcome[CacheEntry, CacheMiss | Unavailable]:
        """Keep a row that was found, and serve it, unless another one came into force here meanwhile: then that one.

        Whatever is looked at again is so as it was asked for: another run's row is never served for a fenced one.
        """
        written = await self._local.write_back(entry)
        match written:
            case Success(Inserted(ref) | ExistingSame(ref)):
                if ref == entry.ref:
                    return Success(entry)
            case Failure(CacheConflict()):
                pass
            case Failure(InvalidEntry()):
                return Failure(CacheMiss(asked.key, remote=True))
            case Failure(failure):
                return Failure(failure) if isinstance(failure, Unavailable) else Failure(CacheMiss(asked.key))
        here = await self._get_here(asked)
        if isinstance(here, Failure) and isinstance(here.failure(), CacheMiss):
            return Success(entry)  # what was in its way has gone again
        return here

    # --- recording ----------------------------------------------------------

    async def put(
        self, entry: CacheEntry
    ) -> Outcome[Inserted | ExistingSame, CacheConflict | InvalidEntry | Unavailable]:
        """As `StepCache.put`. Published "inline", a row that the tier did not take is `Unavailable`, and recorded here.

        Then the same call may be made again. What the tier has instead is a conflict. A row that may not be shared is
        not published; neither are the bytes that a row names: they are published before (`CombinedArtifacts`).
        """
        here = await self._local.put(entry)
        if isinstance(here, Failure) or self._publication == "deferred" or not is_shareable(entry):
            return here
        published = await self._tier.publish(entry)
        if isinstance(published, Success):
            return here
        why = published.failure()
        if isinstance(why, CacheConflict):
            return Failure(why)
        return Failure(Unavailable(f"the row is recorded here, and not in the shared tier: {told(why)}", "unknown"))

    def recording(self, key: str, run_id: str, result: bytes, meta: object) -> Outcome[Batch, InvalidEntry]:
        return self._local.recording(key, run_id, result, meta)

    # --- here only ----------------------------------------------------------

    def evicting(self, ref: RecordedRef) -> Batch:
        return self._local.evicting(ref)

    async def evict(self, key: str, *, if_recorded_by: RecordedRef | None = None) -> Outcome[bool, Unavailable]:
        return await self._local.evict(key, if_recorded_by=if_recorded_by)

    async def sweep(self, older_than_ms: int) -> Outcome[int, Unavailable]:
        return await self._local.sweep(older_than_ms)

    async def rebuild_heads(self, refs: Iterable[RecordedRef]) -> Outcome[int, InvalidEntry | Unavailable]:
        return await self._local.rebuild_heads(refs)


@final
@dataclass(frozen=True, slots=True)
class _Asked:
    """One lookup, with the instant at which it was made."""

    key: str
    recorded_by: RecordedRef | None
    fallback: Literal["head"] | None
    max_age_ms: int | None
    now_ms: int

    def is_met_by(self, entry: CacheEntry) -> bool:
        """Whether a row of the tier may be served: it is the one asked for, and young enough."""
        if self.recorded_by is not None and self.fallback is None and entry.ref != self.recorded_by:
            return False
        return self.max_age_ms is None or entry.created_at_ms >= self.now_ms - self.max_age_ms


# --- layers -----------------------------------------------------------------


def layer(
    *, publication: Publication = "deferred", lookups: Lookups | None = None
) -> Layer[StepCache, Clock | Ledger | SharedTier]:
    """The step cache of the ledger with the shared tier behind it. `lookups` counts what lookups came to."""

    @provides
    def recipe(clock: Clock, ledger: Ledger, tier: SharedTier) -> Iterator[StepCache]:
        yield CombinedStepCache(LedgerStepCache(ledger, clock), tier, clock, publication=publication, lookups=lookups)

    return recipe
