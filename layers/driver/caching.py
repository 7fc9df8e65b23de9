"""What cached steps stand on beside the other services of an engine, and where a test may look on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ...core.batch import Write
from ...core.outcome import Failure
from ...core.step_cache import RecordedRef
from ...services.artifacts import Artifacts
from ...services.effect_dispatcher import EffectDispatcher
from ...services.inconsistency import Inconsistency
from ...services.shared_tier import SharedTier, SharingStepCache, Unpublished
from ...services.step_cache import JoinableStepCache, StepCache
from ...services.step_sandbox import StepSandbox
from ..cache_metrics import CacheMetrics
from .permits import Permits
from .surroundings import Surroundings

__all__ = ["CachePoint", "Caching"]


class CachePoint(Enum):
    """Where a cached step stands. A process that ends at any of them has, once the run goes on, done it once or not."""

    MEASURED = "the declared reads are measured"
    REPLAYED = "the outputs of a row are on the host, and that is not recorded"
    ATTEMPTED = "that an attempt begins is recorded"
    EXECUTED = "the body has ended, and is accepted"
    KEPT = "all that the result needs is in the artifact store"
    RECORDED = "the result is recorded, and what it owes"
    COPIED_BACK = "the files are on the host"
    SENT = "the effects are sent"


@dataclass(frozen=True)
class Caching:
    """The services of cached steps, and how they are used.

    Rows older than `max_age_ms` are not served. Without `effects` nothing is sent.
    """

    sandbox: StepSandbox
    artifacts: Artifacts
    cache: StepCache
    inconsistency: Inconsistency
    effects: EffectDispatcher | None
    surroundings: Surroundings
    max_age_ms: int | None
    metrics: CacheMetrics
    permits: Permits
    on_point: Callable[[CachePoint], None]

    @cached_property
    def joinable(self) -> JoinableStepCache | None:
        """The cache, if it can be changed in a batch of the caller's."""
        return self.cache if isinstance(self.cache, JoinableStepCache) else None

    @cached_property
    def tier(self) -> SharedTier | None:
        """The shared tier of the cache, if it has one."""
        return self.cache.tier if isinstance(self.cache, SharingStepCache) else None

    async def evict(self, ref: RecordedRef) -> tuple[Write, ...]:
        """What takes a row out of force, if it is; done at once by a cache that cannot join."""
        if self.joinable is not None:
            return self.joinable.evicting(ref).writes
        _ = await self.cache.evict(ref.key_digest, if_recorded_by=ref)
        return ()

    async def hydrate(self, digests: tuple[str, ...]) -> bool:
        """Fetch what is missing here from the shared tier: whether all of it is here then. It never fails."""
        if self.tier is None or not digests:
            return False
        from ..shared.publication import hydrate

        return await hydrate(self.tier, self.artifacts, digests)

    async def publish(self, ref: RecordedRef, needs: tuple[str, ...]) -> Unpublished | None:
        """Give the shared tier a row that was recorded, and before it the bytes that it needs; what came of it not."""
        if self.tier is None:
            return None
        from ..shared.publication import publish

        got = await self.cache.get(ref.key_digest, recorded_by=ref)
        if isinstance(got, Failure):
            return Unpublished("row", "the row cannot be read here")
        published = await publish(self.tier, self.artifacts, got.unwrap(), needs)
        return published.failure() if isinstance(published, Failure) else None
