"""What an engine is told beside its services, and how its cached steps use these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from ...core.poll import PollPolicy
from ...services.clock import span_ms
from ...services.inconsistency import Inconsistency
from ...services.run_store import Timeout
from ...services.store import Store
from ..cache_metrics import CacheMetrics
from ..inconsistency import FixedInconsistency

if TYPE_CHECKING:  # a program without cached steps loads none of it
    from ...core.environment import Environment
    from ...services.effect_dispatcher import Effect, EffectDispatcher
    from .caching import CachePoint

__all__ = ["CacheOptions", "EngineOptions", "admit_options", "cache_options"]

OnCachePoint: TypeAlias = "Callable[[CachePoint], None]"

Deliver: TypeAlias = "EffectDispatcher | Callable[[Effect], object]"
"""A dispatcher; or a function that delivers an effect, of which the store remembers that it was."""


class EngineOptions(TypedDict, total=False):
    """What may be told an engine. All but `poll` is about cached steps.

    `poll` says how often it looks for wakes that no hint has told it of. `inconsistency` decides where the step cache
    contradicts itself; left out, the step fails. `effects` sends what steps ask for, once per key; left out, it is
    journalled, and nobody sends it. Rows that are older than `max_age` are not served. `environment` names what steps
    run in: left out, or "process", it is this process, of whose variables none counts; `read_environment` gives one
    with those that do. With None it is not known, and results are for their own run. `on_cache_point` is called in
    passing, for tests.
    """

    poll: PollPolicy
    inconsistency: Inconsistency
    effects: Deliver
    max_age: Timeout
    environment: Environment | Literal["process"] | None
    on_cache_point: OnCachePoint


def _strict() -> Inconsistency:
    return FixedInconsistency("fail")


def _pass(_: CachePoint) -> None:
    """Nobody looks on."""


@dataclass(frozen=True)
class CacheOptions:
    """See `Caching`."""

    inconsistency: Inconsistency = field(default_factory=_strict)
    effects: EffectDispatcher | None = None
    environment: Environment | Literal["process"] | None = "process"
    max_age_ms: int | None = None
    on_point: OnCachePoint = _pass
    metrics: CacheMetrics = field(default_factory=CacheMetrics)


def admit_options(options: EngineOptions) -> int | None:
    """How old a row may be that is served, in milliseconds; a ValueError for an age that is none.

    A TypeError names an option that there is not: a caller without types may have mistyped it.
    """
    unknown = sorted(options.keys() - EngineOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no option; there are {', '.join(EngineOptions.__annotations__)}")
    max_age = options.get("max_age")
    if max_age is None:
        return None
    max_age_ms = span_ms("max_age", max_age)
    if max_age_ms < 0:
        raise ValueError(f"max_age is at least nothing, not {max_age!r}")
    return max_age_ms


def cache_options(options: EngineOptions, store: Store, max_age_ms: int | None) -> CacheOptions:
    """How an engine over this store caches steps."""
    return CacheOptions(
        inconsistency=options.get("inconsistency") or _strict(),
        effects=_dispatcher(store, options.get("effects")),
        environment=options.get("environment", "process"),
        max_age_ms=max_age_ms,
        on_point=options.get("on_cache_point", _pass),
    )


def _dispatcher(store: Store, effects: Deliver | None) -> EffectDispatcher | None:
    if effects is None or not callable(effects):
        return effects
    from ..effect_dispatcher import StoreEffectDispatcher

    return StoreEffectDispatcher(effects, store)
