"""The shared tier on each host, and what is special to a folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell import Failure, ManualClock, Success, Unavailable
from stepwell.core.step_cache import CacheConflict, ExistingSame, Inserted
from stepwell.layers import shared_tier

from .shared_tier_contract import SharedTierContract
from .shared_tier_world import HOSTS, KEY, NOW_MS, World, entry, opened, world_of


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(HOSTS[str(request.param)], tmp_path / "shared") as made:
        yield made


class TestSharedTier(SharedTierContract):
    pass


# --- a folder -----------------------------------------------------------------


async def test_of_two_that_publish_at_one_moment_in_a_folder_one_is_first(tmp_path: Path) -> None:
    async with world_of("folder", tmp_path / "shared") as world:
        rows = [entry(number, run=f"run-{number}") for number in range(8)]
        tiers = [world.tier, world.other] * 4
        published = await asyncio.gather(*(tier.publish(row) for tier, row in zip(tiers, rows, strict=True)))
        (first,) = [one.unwrap().ref for one in published if isinstance(one, Success)]
        assert sum(one == Failure(CacheConflict(first)) for one in published) == 7
        found = (await world.tier.find(KEY)).unwrap()
        assert found is not None
        assert found.ref == first


async def test_half_of_a_row_is_never_seen_in_a_folder(tmp_path: Path) -> None:
    """Whichever call of the system is refused: nothing is there, or all of it, and no file is left behind."""
    seen: list[str] = []
    refuse_at = -1

    def on_call(call: str, name: str) -> None:
        seen.append(call)
        if len(seen) - 1 == refuse_at:
            raise OSError(28, "no space left on device")

    layer = shared_tier.layer_folder(tmp_path / "shared", durability="required", on_call=on_call)
    async with opened(layer, ManualClock(NOW_MS)) as tier:
        assert await tier.publish(entry()) == Success(Inserted(entry().ref))
        assert await tier.withdraw(KEY) == Success(True)
        seen.clear()
        assert await tier.publish(entry()) == Success(Inserted(entry().ref))
        calls = len(seen)
        assert calls > 10
        for refuse_at in range(calls):
            _ = await tier.withdraw(KEY)
            seen.clear()
            published = await tier.publish(entry())
            at, refuse_at = refuse_at, -1
            assert isinstance(published, Success) or isinstance(published.failure(), Unavailable), at
            found = (await tier.find(KEY)).unwrap()
            assert found in (None, entry()), at
            assert not (isinstance(published, Success) and found is None), at
            leftover = {path.name for path in (tmp_path / "shared" / "rows" / "temp").iterdir()}
            for name in leftover:
                (tmp_path / "shared" / "rows" / "temp" / name).unlink()


async def test_a_folder_that_refuses_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    async with opened(shared_tier.layer_folder(tmp_path / "file"), ManualClock(NOW_MS)) as tier:
        for asked in (await tier.find(KEY), await tier.publish(entry()), await tier.has("0" * 64)):
            assert isinstance(asked.failure(), Unavailable)


async def test_a_place_is_an_address_or_a_folder(tmp_path: Path) -> None:
    async with opened(shared_tier.layer(tmp_path / "shared"), ManualClock(NOW_MS)) as tier:
        assert await tier.publish(entry()) == Success(Inserted(entry().ref))
        assert await tier.publish(entry()) == Success(ExistingSame(entry().ref))
    assert (tmp_path / "shared" / "rows").is_dir()
    with pytest.raises(ValueError, match="the address of a shared tier"):
        _ = shared_tier.layer("ftp://127.0.0.1/cache")
