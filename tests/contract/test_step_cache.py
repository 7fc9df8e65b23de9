"""The step cache on each host, what raw damage does to it, and its absence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell import Failure, Ledger, ManualClock, Success, Unavailable, build, get
from stepwell.core.step_cache import CacheMiss, Inserted, RecordedRef
from stepwell.layers import clock, step_cache
from stepwell.layers import ledger as ledgers
from stepwell.layers.step_cache import LedgerStepCache
from stepwell.services.journal_rows import CacheRows
from stepwell.services.step_cache import StepCache

from .cache_world import HOSTS, Host, World, entry_of, good, opened, row
from .ledger_double import LedgerDouble
from .step_cache_contract import StepCacheContract


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = "sqlite" if request.param == "sqlite" else "memory"
    async with opened(host, tmp_path / "app.db") as made:
        yield made


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[World]:
    async with opened("sqlite", tmp_path / "app.db") as made:
        yield made


class TestStepCache(StepCacheContract):
    pass


@pytest.mark.parametrize(
    "damage",
    [
        "update recorded set result = x'7b'",
        "update recorded set result = x'226f746865722200'",
        "update recorded set result = 'text'",
        "update recorded set result = 5",
        "update recorded set meta = x'5b5d'",
        "update recorded set created_at_ms = created_at_ms + 1",
        "update recorded set created_at_ms = 'soon'",
        "update recorded set seal = x'00'",
        "update recorded set seq = 5",
        "delete from recorded",
    ],
)
async def test_c14_a_row_that_was_damaged_on_the_disk_is_a_miss(sqlite: World, damage: str) -> None:
    _ = await sqlite.put("k")
    sqlite.execute(damage)
    assert await sqlite.cache.get("k") == Failure(CacheMiss("k"))
    assert await sqlite.heads() == {}
    assert await sqlite.said() == [("removed", "k", "decode_failed")]
    again = row("k", "b", 2)
    assert await sqlite.cache.put(entry_of(again, "other")) == Success(Inserted(again))
    assert good(await sqlite.cache.get("k")).result == "other"


async def test_a_damaged_head_stands_against_nobody(sqlite: World) -> None:
    _ = await sqlite.put("k")
    sqlite.execute("update recorded set result = x'7b'")
    again = row("k", "b", 2)
    assert await sqlite.cache.put(entry_of(again, "other")) == Success(Inserted(again))
    assert await sqlite.said() == [("removed", "k", "decode_failed")]


@pytest.mark.parametrize("host", HOSTS)
async def test_the_layer_needs_a_ledger_and_a_clock(host: str, tmp_path: Path) -> None:
    kept = ledgers.layer_test() if host == "memory" else ledgers.layer(tmp_path / "app.db")
    for layer in (step_cache.layer(), step_cache.layer_test()):
        async with build(layer | kept | clock.layer_test(ManualClock())) as built:
            cache = get(built.unwrap(), StepCache)
            assert isinstance(cache, LedgerStepCache)
            assert isinstance(await cache.put(entry_of(row("k"))), Success)


async def test_no_step_cache_finds_nothing_and_pretends_to_keep_nothing() -> None:
    async with build(step_cache.layer_noop()) as built:
        cache = get(built.unwrap(), StepCache)
        assert await cache.get("k") == Failure(CacheMiss("k"))
        assert await cache.evict("k") == Success(False)
        assert await cache.sweep(0) == Success(0)
        for refused in (await cache.put(entry_of(row("k"))), await cache.rebuild_heads([row("k")])):
            assert isinstance(refused, Failure)
            assert isinstance(failure := refused.failure(), Unavailable)
            assert failure.applied == "no"
        assert await cache.get("k") == Failure(CacheMiss("k"))


async def test_a_ledger_that_keeps_no_step_cache_says_so() -> None:
    async with build(ledgers.layer_test() | clock.layer_test(ManualClock())) as built:
        bare = LedgerDouble(get(built.unwrap(), Ledger))
        assert not isinstance(bare, CacheRows)
        cache = LedgerStepCache(bare, ManualClock())
        refs: list[RecordedRef] = []
        for refused in (await cache.get("k"), await cache.sweep(0), await cache.rebuild_heads(refs)):
            assert isinstance(refused, Failure)
            assert isinstance(refused.failure(), Unavailable)
