"""The fold of the step cache on each host, and its absence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell import Failure, Ledger, ManualClock, Unavailable, build, get
from stepwell.layers import cache_fold, clock
from stepwell.layers import ledger as ledgers
from stepwell.layers.cache_fold import LedgerCacheFold
from stepwell.services.cache_fold import CacheFold

from .cache_fold_contract import CacheFoldContract
from .cache_world import HOSTS, Host, World, good, opened
from .ledger_double import LedgerDouble


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = "sqlite" if request.param == "sqlite" else "memory"
    async with opened(host, tmp_path / "app.db") as made:
        yield made


class TestCacheFold(CacheFoldContract):
    pass


async def absent(fold: CacheFold) -> None:
    for refused in (await fold.rebuild(), await fold.verify(), await fold.explain("k")):
        assert isinstance(refused, Failure)
        failure = refused.failure()
        assert isinstance(failure, Unavailable)
        assert failure.applied == "no"


async def test_no_cache_fold_says_so_whatever_it_is_asked() -> None:
    async with build(cache_fold.layer_noop()) as built:
        await absent(get(built.unwrap(), CacheFold))


async def test_a_ledger_that_keeps_no_journals_says_so() -> None:
    async with build(ledgers.layer_test() | clock.layer_test(ManualClock())) as built:
        await absent(LedgerCacheFold(LedgerDouble(get(built.unwrap(), Ledger))))


async def test_f38_heads_that_were_changed_by_raw_sql_are_told(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        refs = {key: await world.put(key, "a", 1) for key in ("deleted", "altered", "same")}
        other = await world.put("altered", "b", 2, "another")
        world.execute("delete from cache_head where key = 'deleted'")
        world.execute("update cache_head set run_id = 'b', seq = 2 where key = 'altered'")
        world.execute("insert into cache_head (key, run_id, seq, created_at_ms) values ('inserted', 'c', 0, 0)")
        assert (await world.heads())["altered"] == other
        verification = good(await world.fold.verify())
        assert {each.key_digest: each.difference for each in verification.keys} == {
            "altered": "different",
            "deleted": "missing",
            "inserted": "extra",
            "same": "matching",
        }
        _ = await world.rebuilt()
        assert await world.heads() == refs


@pytest.mark.parametrize("damage", ["update journal set carried = null", "update journal set carried = x'00'"])
async def test_f35_a_carried_part_that_was_damaged_proves_nothing(tmp_path: Path, damage: str) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        _ = await world.put("k", "a")
        await world.tell("a", {}, "another")
        await world.compact("a", 2)
        world.execute(damage)
        assert await world.verdicts() == {"k": "unproven"}
        assert await world.heads() == {}


async def test_a_row_that_was_damaged_on_the_disk_is_told_by_a_comparison(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        _ = await world.put("k")
        world.execute("update recorded set result = x'7b'")
        (told,) = good(await world.fold.verify()).keys
        assert (told.verdict, told.difference, told.reason) == ("restored", "matching", "damaged")
