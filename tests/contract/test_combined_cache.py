"""The step cache of a ledger with a shared tier behind it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stepwell import (
    Clock,
    Failure,
    Ledger,
    ManualClock,
    RecordedRef,
    Success,
    TooLarge,
    Unavailable,
    build,
    get,
    provides,
)
from stepwell.core.shared_row import TierNonsense
from stepwell.core.step_cache import CacheConflict, CacheEntry, CacheMiss, ExistingSame, Inserted
from stepwell.layers import clock, combined_cache, ledger, step_cache
from stepwell.layers.combined_cache import CombinedStepCache, Lookups, Publication
from stepwell.layers.step_cache import LedgerStepCache
from stepwell.services.shared_tier import SharedTier, SharingStepCache, TierFailure, TierRefused
from stepwell.services.step_cache import JoinableStepCache, StepCache

from .shared_tier_world import KEY, NOW_MS, WatchedTier, entry

FIRST = RecordedRef(KEY, "run-1", 3)
SECOND = RecordedRef(KEY, "run-2", 9)
DOWN = Unavailable("the cable was pulled out", "no")


@dataclass
class World:
    """One machine: its cache, its ledger without the tier, and the tier."""

    cache: StepCache
    local: LedgerStepCache
    tier: WatchedTier
    clock: ManualClock
    lookups: Lookups

    async def share(self, row: CacheEntry) -> CacheEntry:
        """As another machine does it."""
        _ = (await self.tier.inner.publish(row)).unwrap()
        return row

    def counted(self) -> tuple[int, int, int, int]:
        counts = self.lookups
        return counts.local_hits, counts.shared_hits, counts.misses, counts.remote_misses


@asynccontextmanager
async def opened(host: str, root: Path, publication: Publication) -> AsyncGenerator[World]:
    tier, manual, lookups = WatchedTier(), ManualClock(NOW_MS), Lookups()

    @provides
    def watched() -> Iterator[SharedTier]:
        yield tier

    below = ledger.layer_test() if host == "memory" else ledger.layer(root / "cache.db")
    cached = combined_cache.layer(publication=publication, lookups=lookups)
    async with build(cached | below | watched | clock.layer_test(manual)) as built:
        env = built.unwrap()
        local = LedgerStepCache(get(env, Ledger), get(env, Clock))
        yield World(get(env, StepCache), local, tier, manual, lookups)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with opened(str(request.param), tmp_path, "deferred") as made:
        yield made


@pytest.fixture(params=["memory", "sqlite"])
async def inline(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with opened(str(request.param), tmp_path, "inline") as made:
        yield made


# --- looking up -----------------------------------------------------------------


async def test_c22_a_local_hit_asks_nobody_else(world: World) -> None:
    _ = (await world.cache.put(entry())).unwrap()
    assert await world.cache.get(KEY) == Success(entry())
    assert world.tier.calls == []
    assert world.counted() == (1, 0, 0, 0)


async def test_c23_a_row_of_the_tier_is_written_back_and_asked_for_once(world: World) -> None:
    row = await world.share(entry())
    assert await world.cache.get(KEY) == Success(row)
    assert await world.cache.get(KEY) == Success(row)
    assert await world.local.get(KEY) == Success(row)
    assert world.tier.calls == [("find", KEY)]
    assert world.counted() == (1, 1, 0, 0)


async def test_what_nobody_has_is_a_plain_miss(world: World) -> None:
    missed = (await world.cache.get(KEY)).failure()
    assert isinstance(missed, CacheMiss)
    assert not missed.remote
    assert world.counted() == (0, 0, 1, 0)


@pytest.mark.parametrize("result", ["of the tier", "of somebody here"], ids=["same", "other"])
async def test_c26_whoever_wins_here_meanwhile_is_served(world: World, result: str) -> None:
    _ = await world.share(entry("of the tier"))
    mine = entry(result, run="run-2", seq=9)
    world.tier.meanwhile = lambda: world.local.put(mine)
    assert await world.cache.get(KEY) == Success(mine)
    assert await world.local.get(KEY) == Success(mine)
    assert await world.local.get(KEY, recorded_by=FIRST) == Success(entry("of the tier"))


async def test_c26_the_outcomes_of_the_race_are_inserted_and_conflict(world: World) -> None:
    assert await world.local.put(entry("here", run="run-2", seq=9)) == Success(Inserted(SECOND))
    assert await world.local.write_back(entry("there")) == Failure(CacheConflict(SECOND))


async def test_the_row_of_the_tier_is_served_if_what_was_in_its_way_has_gone_again(world: World) -> None:
    """The local head is there when the row is written back, and is not when it is looked at."""
    row = await world.share(entry("of the tier"))
    _ = await world.local.put(entry("in its way", run="run-2", seq=9))
    losing = CombinedStepCache(Vanishing(world.local), world.tier, world.clock)
    _ = await world.local.evict(KEY)
    assert await losing.get(KEY) == Success(row)


@dataclass
class Vanishing:
    """A local cache in which another row wins the race of a write-back, and is evicted at once."""

    inner: LedgerStepCache

    def __post_init__(self) -> None:
        self.get, self.put, self.evict = self.inner.get, self.inner.put, self.inner.evict
        self.sweep, self.rebuild_heads = self.inner.sweep, self.inner.rebuild_heads
        self.recording, self.evicting = self.inner.recording, self.inner.evicting

    async def write_back(self, entry: CacheEntry) -> Failure[CacheConflict]:
        return Failure(CacheConflict(SECOND))


# --- fences and ages ------------------------------------------------------------


async def test_c31_a_fenced_lookup_never_gives_another_runs_row(world: World) -> None:
    first = await world.share(entry("first"))
    rival = entry("second", run="run-2", seq=9)
    world.tier.meanwhile = lambda: world.local.put(rival)
    assert await world.cache.get(KEY, recorded_by=FIRST) == Success(first)
    world.tier.meanwhile = None
    assert await world.cache.get(KEY) == Success(rival)
    assert await world.cache.get(KEY, recorded_by=FIRST) == Success(first)
    unknown = RecordedRef(KEY, "run-3", 1)
    assert await world.cache.get(KEY, recorded_by=unknown) == Failure(CacheMiss(KEY))
    assert await world.cache.get(KEY, recorded_by=unknown, fallback="head") == Success(rival)


async def test_c31_a_row_of_the_tier_that_another_run_recorded_is_not_even_written_back(world: World) -> None:
    _ = await world.share(entry("second", run="run-2", seq=9))
    assert await world.cache.get(KEY, recorded_by=FIRST) == Failure(CacheMiss(KEY))
    assert await world.local.get(KEY) == Failure(CacheMiss(KEY))
    assert isinstance(await world.cache.get(KEY, recorded_by=FIRST, fallback="head"), Success)


async def test_a_fence_that_no_row_can_have_asks_nobody(world: World) -> None:
    for fence in (RecordedRef(KEY, "", 1), RecordedRef(KEY, "run", -1)):
        with pytest.raises((ValueError, TypeError)):
            _ = await world.cache.get(KEY, recorded_by=fence)
    with pytest.raises(ValueError, match="key"):
        _ = await world.cache.get("")
    assert world.tier.calls == []


async def test_c18_a_row_of_the_tier_may_be_too_old(world: World) -> None:
    row = await world.share(entry())
    await world.clock.advance(5_001)
    assert await world.cache.get(KEY, max_age_ms=5_000) == Failure(CacheMiss(KEY))
    assert await world.local.get(KEY) == Failure(CacheMiss(KEY))
    assert await world.cache.get(KEY, max_age_ms=5_001) == Success(row)


async def test_an_old_row_here_does_not_hide_a_young_one_there(world: World) -> None:
    old = entry("old", run="run-2", seq=9)
    _ = await world.cache.put(old)
    await world.clock.advance(5_001)
    young = replace(entry("young"), created_at_ms=NOW_MS + 5_000)
    _ = await world.share(young)
    assert await world.cache.get(KEY, max_age_ms=5_000) == Success(young)
    assert await world.cache.get(KEY) == Success(old)


# --- a tier that does not help --------------------------------------------------


@pytest.mark.parametrize(
    "down",
    [DOWN, TierRefused("status 403", 403), TierNonsense("no JSON"), TooLarge("a shared row", 9, 8)],
    ids=["down", "refused", "nonsense", "too large"],
)
async def test_c30_e30_an_outage_is_a_miss_that_says_so(world: World, down: TierFailure) -> None:
    world.tier.down = down
    missed = (await world.cache.get(KEY)).failure()
    assert isinstance(missed, CacheMiss)
    assert missed.remote
    assert world.counted() == (0, 0, 0, 1)
    assert await world.cache.put(entry()) == Success(Inserted(FIRST))
    assert await world.cache.get(KEY) == Success(entry())
    assert world.counted() == (1, 0, 0, 1)


@pytest.mark.parametrize("data", [b"<html>", b"{}"])
async def test_c30_a_row_that_is_none_is_a_miss_that_says_so(world: World, data: bytes) -> None:
    world.tier.inner.rows[KEY] = data
    missed = (await world.cache.get(KEY)).failure()
    assert isinstance(missed, CacheMiss)
    assert missed.remote


async def test_c30_the_row_of_another_key_is_a_miss_that_says_so(world: World) -> None:
    _ = await world.share(entry(key="another"))
    world.tier.inner.rows[KEY] = world.tier.inner.rows["another"]
    missed = (await world.cache.get(KEY)).failure()
    assert isinstance(missed, CacheMiss)
    assert missed.remote
    assert await world.local.get("another") == Failure(CacheMiss("another"))


async def test_what_somebody_shared_that_nobody_may_is_not_served(world: World) -> None:
    _ = await world.share(replace(entry(), meta={"evidence": "tripwire"}))
    missed = (await world.cache.get(KEY)).failure()
    assert isinstance(missed, CacheMiss)
    assert missed.remote
    assert await world.local.get(KEY) == Failure(CacheMiss(KEY))


# --- recording ------------------------------------------------------------------


async def test_c24_a_local_conflict_is_not_published(inline: World) -> None:
    _ = await inline.local.put(entry("here", run="run-2", seq=9))
    assert await inline.cache.put(entry("other")) == Failure(CacheConflict(SECOND))
    assert inline.tier.calls == []


async def test_c25_deferred_publication_leaves_the_tier_untouched(world: World) -> None:
    assert await world.cache.put(entry()) == Success(Inserted(FIRST))
    assert await world.local.get(KEY) == Success(entry())
    assert world.tier.calls == []


async def test_c27_a_publication_that_fails_keeps_the_row_and_may_be_made_again(inline: World) -> None:
    inline.tier.down = DOWN
    failed = (await inline.cache.put(entry())).failure()
    assert isinstance(failed, Unavailable)
    assert "recorded here" in failed.reason
    assert await inline.local.get(KEY) == Success(entry())
    inline.tier.down = None
    assert await inline.cache.put(entry()) == Success(ExistingSame(FIRST))
    assert await inline.tier.inner.find(KEY) == Success(entry())


async def test_an_inline_publication_tells_what_the_tier_has_instead(inline: World) -> None:
    _ = await inline.share(entry("there", run="run-2", seq=9))
    assert await inline.cache.put(entry("here")) == Failure(CacheConflict(SECOND))
    assert await inline.local.get(KEY) == Success(entry("here"))


async def test_what_may_not_be_shared_is_recorded_here_only(inline: World) -> None:
    assert await inline.cache.put(replace(entry(), meta={"evidence": "tripwire"})) == Success(Inserted(FIRST))
    assert inline.tier.calls == []


async def test_c28_what_is_evicted_or_swept_goes_here_only(inline: World) -> None:
    _ = (await inline.cache.put(entry())).unwrap()
    assert await inline.cache.evict(KEY, if_recorded_by=SECOND) == Success(False)
    assert await inline.cache.evict(KEY) == Success(True)
    assert await inline.local.get(KEY) == Failure(CacheMiss(KEY))
    assert await inline.tier.inner.find(KEY) == Success(entry())
    assert await inline.cache.get(KEY) == Success(entry())
    await inline.clock.advance(10)
    assert await inline.cache.sweep(5) == Success(1)
    assert await inline.cache.rebuild_heads([FIRST]) == Success(1)
    assert await inline.local.get(KEY) == Success(entry())
    assert inline.tier.named("withdraw") == []


async def test_the_engine_finds_both_of_its_faces(world: World) -> None:
    assert isinstance(world.cache, JoinableStepCache)
    assert isinstance(world.cache, SharingStepCache)
    assert world.cache.tier is world.tier
    assert world.cache.evicting(FIRST) == world.local.evicting(FIRST)
    recording = world.cache.recording(KEY, "run-1", b'"ok"', {})
    assert recording == world.local.recording(KEY, "run-1", b'"ok"', {})
    assert isinstance(recording, Success)
    async with build(step_cache.layer() | ledger.layer_test() | clock.layer_test()) as built:
        assert not isinstance(get(built.unwrap(), StepCache), SharingStepCache)
