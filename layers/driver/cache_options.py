"""How the cached steps of an engine use its services. A program without cached steps loads little else of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ...services.inconsistency import Inconsistency
from ...services.store import Store
from ..cache_metrics import CacheMetrics
from ..inconsistency import FixedInconsistency

if TYPE_CHECKING:
    from ...services.effect_dispatcher import Effect, EffectDispatcher
    from .caching import CachePoint, Surroundings

__all__ = ["CacheOptions", "OnCachePoint", "cache_options"]

OnCachePoint: TypeAlias = "Callable[[CachePoint], None]"


def _strict() -> Inconsistency:
    return FixedInconsistency("fail")


def _pass(_: CachePoint) -> None:
    """Nobody looks on."""


@dataclass(frozen=True)
class CacheOptions:
    """See `Caching`. Left out, the surroundings are those of this process."""

    inconsistency: Inconsistency = field(default_factory=_strict)
    effects: EffectDispatcher | None = None
    surroundings: Surroundings | None = None
    max_age_ms: int | None = None
    on_point: OnCachePoint = _pass
    metrics: CacheMetrics = field(default_factory=CacheMetrics)


def cache_options(
    store: Store,
    inconsistency: Inconsistency | None,
    effects: EffectDispatcher | Callable[[Effect], object] | None,
    max_age_ms: int | None,
    on_point: OnCachePoint | None,
    surroundings: Surroundings | None,
) -> CacheOptions:
    """The options that an engine over this store is given."""
    return CacheOptions(
        inconsistency=_strict() if inconsistency is None else inconsistency,
        effects=_dispatcher(store, effects),
        surroundings=surroundings,
        max_age_ms=max_age_ms,
        on_point=on_point or _pass,
    )


def _dispatcher(store: Store, effects: EffectDispatcher | Callable[[Effect], object] | None) -> EffectDispatcher | None:
    if effects is None or not callable(effects):
        return effects
    from ..effect_dispatcher import StoreEffectDispatcher

    return StoreEffectDispatcher(effects, store)
