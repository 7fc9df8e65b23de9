"""What all drivers of an engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ...services.artifacts import Artifacts
from ...services.clock import Clock
from ...services.ids import Ids
from ...services.journal import JoinableJournal, Journal
from ...services.ledger import Ledger
from ...services.step_cache import StepCache
from ...services.step_sandbox import StepSandbox
from ...services.store import Joinable, Lookable, Store
from ...services.waiters import JoinableWaiters, Waiters
from ...services.wake_bus import WakeBus
from ..past import Past
from .cache_options import CacheOptions
from .execution import Pool
from .signal_types import SignalTypes

if TYPE_CHECKING:
    from .caching import Caching

__all__ = ["Services", "Tools"]


@dataclass(frozen=True)
class Services:
    """The services that an engine stands on."""

    ledger: Ledger
    store: Store
    waiters: Waiters
    wake_bus: WakeBus
    clock: Clock
    ids: Ids
    journal: Journal
    artifacts: Artifacts
    step_cache: StepCache
    step_sandbox: StepSandbox

    @cached_property
    def joinable_journal(self) -> JoinableJournal | None:
        """The journal, if it can be appended to in a batch of the caller's."""
        return self.journal if isinstance(self.journal, JoinableJournal) else None


@dataclass(frozen=True)
class Tools(Services):
    """The services, the threads for steps, `on_wait`, called when a run begins to wait for a wake, what is known of the
    types of signals, and how steps are cached.
    """

    pool: Pool = field(kw_only=True)
    on_wait: Callable[[], None] = field(kw_only=True)
    signal_types: SignalTypes = field(kw_only=True)
    cache_options: CacheOptions = field(kw_only=True)

    @classmethod
    def of(
        cls,
        given: Services,
        pool: Pool,
        on_wait: Callable[[], None],
        signal_types: SignalTypes,
        cache_options: CacheOptions,
    ) -> Tools:
        """Those over these services."""
        return cls(
            given.ledger,
            given.store,
            given.waiters,
            given.wake_bus,
            given.clock,
            given.ids,
            given.journal,
            given.artifacts,
            given.step_cache,
            given.step_sandbox,
            pool=pool,
            on_wait=on_wait,
            signal_types=signal_types,
            cache_options=cache_options,
        )

    @cached_property
    def caching(self) -> Caching:
        """What cached steps stand on."""
        from .caching import Caching
        from .permits import Permits
        from .surroundings import Surroundings

        options = self.cache_options
        return Caching(
            sandbox=self.step_sandbox,
            artifacts=self.artifacts,
            cache=self.step_cache,
            inconsistency=options.inconsistency,
            effects=options.effects,
            surroundings=Surroundings(options.environment, self.clock.now_ms),
            max_age_ms=options.max_age_ms,
            metrics=options.metrics,
            permits=Permits(),
            on_point=options.on_point,
        )

    @cached_property
    def joinable(self) -> Joinable | None:
        """The store, if it can commit more in the batch of an operation."""
        return self.store if isinstance(self.store, Joinable) else None

    @cached_property
    def past(self) -> Past:
        """Earlier revisions, as the ledger has them."""
        return Past(self.ledger)

    @cached_property
    def lookable(self) -> Lookable | None:
        """The store, if it can run a selector on the state that it holds."""
        return self.store if isinstance(self.store, Lookable) else None

    @cached_property
    def joinable_waiters(self) -> JoinableWaiters | None:
        """The waiters, if they can be changed in a batch of the caller's."""
        return self.waiters if isinstance(self.waiters, JoinableWaiters) else None
