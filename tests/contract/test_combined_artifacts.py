"""Artifacts with a shared tier behind them, and the publication of rows with the bytes that they name."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest

from stepwell import (
    ArtifactCorruption,
    ArtifactMissing,
    Artifacts,
    Failure,
    ManualClock,
    Outcome,
    Success,
    Unavailable,
    build,
    get,
    provides,
)
from stepwell.core.node import digest_of
from stepwell.core.shared_row import TierNonsense
from stepwell.core.step_cache import CacheEntry
from stepwell.layers import artifacts, clock, combined_artifacts
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.layers.combined_artifacts import CombinedArtifacts
from stepwell.layers.shared.publication import hydrate, publish
from stepwell.services.artifacts import InvalidDigest
from stepwell.services.shared_tier import SharedTier, TierFailure, TierRefused, Unpublished

from .shared_tier_world import KEY, NOW_MS, WatchedTier, entry

DATA = b"the bytes of an output" * 1_000
DIGEST = digest_of(DATA)
OTHER = digest_of(b"other")
DOWN = Unavailable("the cable was pulled out", "no")
LIMIT = 1 << 20


@dataclass
class World:
    """One machine: artifacts with the tier behind them, those artifacts without it, and the tier."""

    combined: CombinedArtifacts
    local: Artifacts
    tier: WatchedTier
    root: Path

    def damage(self, digest: str, data: bytes) -> None:
        if isinstance(self.local, MemoryArtifacts):
            self.local.blobs[digest].data = data
        else:
            path = self.root / "objects" / digest[:2] / digest
            path.chmod(0o600)
            path.write_bytes(data)

    def share(self, data: bytes) -> str:
        """As another machine does it."""
        self.tier.inner.blobs[digest_of(data)] = data
        return digest_of(data)


@pytest.fixture(params=["memory", "files"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    tier, root = WatchedTier(), tmp_path / "artifacts"
    tier.inner.limit_bytes = LIMIT
    below = artifacts.layer_test() if request.param == "memory" else artifacts.layer(root)
    async with build(below | clock.layer_test(ManualClock(NOW_MS))) as built:
        local = get(built.unwrap(), Artifacts)
        yield World(CombinedArtifacts(local, tier), local, tier, root)


async def test_the_layers_join_what_is_here_and_the_tier(tmp_path: Path) -> None:
    tier = WatchedTier()
    tier.inner.blobs[DIGEST] = DATA

    @provides
    def watched() -> Iterator[SharedTier]:
        yield tier

    for layer in (combined_artifacts.layer(tmp_path / "kept"), combined_artifacts.layer_test()):
        async with build(layer | watched | clock.layer_test()) as built:
            assert await get(built.unwrap(), Artifacts).get(DIGEST) == Success(DATA)


# --- reading --------------------------------------------------------------------


async def test_what_is_here_asks_nobody(world: World) -> None:
    assert await world.combined.put(DATA) == Success(DIGEST)
    assert await world.combined.put_stream(io.BytesIO(DATA)) == Success(DIGEST)
    assert await world.combined.get(DIGEST) == Success(DATA)
    assert await world.combined.copy(DIGEST, lambda _: None) == Success(len(DATA))
    assert await world.combined.has(DIGEST) == Success(True)
    assert await world.combined.find_missing([DIGEST, OTHER]) == Success((OTHER,))
    assert await world.combined.has("..") == Failure(InvalidDigest(".."))
    assert await world.combined.get("..") == Failure(InvalidDigest(".."))
    assert await world.combined.copy("..", lambda _: None) == Failure(InvalidDigest(".."))
    assert world.tier.calls == []


@pytest.mark.parametrize("copied", [False, True], ids=["got", "copied"])
async def test_what_is_elsewhere_is_brought_here_once(world: World, copied: bool) -> None:
    digest = world.share(DATA)
    pieces: list[bytes] = []
    for _ in range(2):
        if copied:
            pieces.clear()
            assert await world.combined.copy(digest, pieces.append) == Success(len(DATA))
            assert b"".join(pieces) == DATA
        else:
            assert await world.combined.get(digest) == Success(DATA)
    assert world.tier.calls == [("copy", digest)]
    assert await world.local.get(digest) == Success(DATA)


async def test_many_who_ask_for_one_at_a_time_bring_it_once(world: World) -> None:
    digest = world.share(DATA)
    assert await asyncio.gather(*(world.combined.get(digest) for _ in range(5))) == [Success(DATA)] * 5
    assert world.tier.calls == [("copy", digest)]


async def test_what_is_damaged_here_is_healed(world: World) -> None:
    digest = world.share(DATA)
    _ = await world.combined.put(DATA)
    world.damage(digest, b"damaged")
    assert await world.combined.get(digest) == Success(DATA)
    world.damage(digest, b"damaged")
    pieces: list[bytes] = []
    assert await world.combined.copy(digest, pieces.append) == Failure(
        ArtifactCorruption(digest, digest_of(b"damaged"))
    )
    assert await world.combined.copy(digest, lambda _: None) == Success(len(DATA))
    assert await world.local.get(digest) == Success(DATA)


@pytest.mark.parametrize("copied", [False, True], ids=["got", "copied"])
async def test_a8_wrong_bytes_are_corruption_and_are_not_kept(world: World, copied: bool) -> None:
    world.tier.inner.blobs[DIGEST] = b"wrong"
    wrong = Failure(ArtifactCorruption(DIGEST, digest_of(b"wrong")))
    got = await (world.combined.copy(DIGEST, lambda _: None) if copied else world.combined.get(DIGEST))
    assert got == wrong
    assert await world.local.find_missing([DIGEST, digest_of(b"wrong")]) == Success((DIGEST, digest_of(b"wrong")))


async def test_a8_too_many_bytes_are_refused_and_are_not_kept(world: World) -> None:
    """That not one of them is read is seen where there is a wire: `test_shared_tier_http.py`."""
    digest = world.share(bytes(LIMIT + 1))
    refused = (await world.combined.get(digest)).failure()
    assert isinstance(refused, Unavailable)
    assert str(LIMIT + 1) in refused.reason
    assert await world.local.has(digest) == Success(False)


async def test_what_nobody_has_is_missing(world: World) -> None:
    assert await world.combined.get(DIGEST) == Failure(ArtifactMissing(DIGEST))
    _ = await world.combined.put(DATA)
    world.damage(DIGEST, b"damaged")
    assert await world.combined.get(DIGEST) == Failure(ArtifactCorruption(DIGEST, digest_of(b"damaged")))


@pytest.mark.parametrize("down", [DOWN, TierRefused("status 403", 403), TierNonsense("no artifact")])
async def test_e30_what_the_tier_may_have_is_not_said_to_be_missing(world: World, down: TierFailure) -> None:
    world.tier.down = down
    assert isinstance((await world.combined.get(DIGEST)).failure(), Unavailable)
    assert await world.combined.hydrate([DIGEST]) is False
    _ = await world.combined.put(DATA)
    world.damage(DIGEST, b"damaged")
    assert isinstance((await world.combined.get(DIGEST)).failure(), ArtifactCorruption)


async def test_collecting_is_about_what_is_here(world: World) -> None:
    digest = world.share(DATA)
    _ = await world.combined.get(digest)
    collected = (await world.combined.collect([], grace_ms=0, dry_run=True)).unwrap()
    assert collected.kept + len(collected.removed) == 1
    assert world.tier.inner.blobs == {digest: DATA}


# --- A9 -------------------------------------------------------------------------


async def test_a9_a_publication_asks_sends_what_is_missing_and_asks_again(world: World) -> None:
    one, two = (await world.local.put(b"one")).unwrap(), (await world.local.put(b"two")).unwrap()
    there = world.share(b"there")
    assert await world.combined.publish([one, there, one, two]) == Success(None)
    assert world.tier.inner.blobs == {one: b"one", two: b"two", there: b"there"}
    assert sorted(world.tier.named("put")) == sorted([one, two])
    assert world.tier.named("has")[:3] == [one, there, two]
    assert sorted(world.tier.named("has")[3:]) == sorted([one, two])
    world.tier.calls.clear()
    assert await world.combined.publish([one, there, two]) == Success(None)
    assert world.tier.named("put") == []
    world.tier.calls.clear()
    assert await world.combined.publish([]) == Success(None)
    assert world.tier.calls == []


async def test_a9_what_is_then_still_missing_is_a_failure(world: World) -> None:
    digest = (await world.local.put(DATA)).unwrap()
    world.tier.loses = True
    failed = (await world.combined.publish([digest])).failure()
    assert failed.stage == "blobs"
    assert digest in failed.message


@pytest.mark.parametrize("only", ["has", "put"])
async def test_a9_a_tier_that_is_down_is_a_failure_of_the_publication(world: World, only: str) -> None:
    digest = (await world.local.put(DATA)).unwrap()
    world.tier.down, world.tier.only = DOWN, only
    failed = (await world.combined.publish([digest])).failure()
    assert failed.stage == "blobs"
    assert "the cable was pulled out" in failed.message
    assert await world.local.get(digest) == Success(DATA)


async def test_a9_what_is_not_here_cannot_be_published(world: World) -> None:
    assert (await world.combined.publish([DIGEST])).failure().stage == "blobs"
    _ = await world.local.put(DATA)
    world.damage(DIGEST, b"damaged")
    assert (await world.combined.publish([DIGEST])).failure().stage == "blobs"
    assert world.tier.inner.blobs == {}


async def test_a9_two_publications_send_a_digest_once_and_one_that_is_interrupted_is_taken_over(world: World) -> None:
    digest = (await world.local.put(DATA)).unwrap()
    assert await asyncio.gather(*(world.combined.publish([digest]) for _ in range(4))) == [Success(None)] * 4
    assert world.tier.named("put") == [digest]
    world.tier.inner.blobs.clear()
    world.tier.calls.clear()
    held = Holding(world.tier)
    combined = CombinedArtifacts(world.local, held)
    first = asyncio.ensure_future(combined.publish([digest]))
    _ = await held.reached.wait()
    second = asyncio.ensure_future(combined.publish([digest]))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        _ = await first
    held.opened.set()
    assert await second == Success(None)
    assert world.tier.inner.blobs == {digest: DATA}


class Holding:
    """A tier in which uploads wait until it is opened."""

    def __init__(self, inner: WatchedTier) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self.find, self.publish, self.withdraw = inner.find, inner.publish, inner.withdraw
        self.copy, self.has, self._put = inner.copy, inner.has, inner.put

    async def put(
        self, digest: str, source: BinaryIO
    ) -> Outcome[None, ArtifactCorruption | InvalidDigest | TierFailure]:
        self.reached.set()
        _ = await self.opened.wait()
        return await self._put(digest, source)


async def test_a9_hydrating_says_whether_all_are_here(world: World) -> None:
    one, two = world.share(b"one"), world.share(b"two")
    assert await world.combined.hydrate([one, two, one]) is True
    assert await world.local.find_missing([one, two]) == Success(())
    assert await world.combined.hydrate([one, two]) is True
    assert sorted(world.tier.named("copy")) == sorted([one, two])
    assert await world.combined.hydrate([]) is True
    assert await world.combined.hydrate([one, OTHER]) is False
    assert await world.combined.hydrate([".."]) is False
    world.tier.inner.blobs[OTHER] = b"wrong"
    assert await world.combined.hydrate([OTHER]) is False
    assert await world.local.has(OTHER) == Success(False)


# --- a row with its bytes -------------------------------------------------------


async def test_c48_a_row_is_published_after_its_bytes(world: World) -> None:
    digest = (await world.local.put(DATA)).unwrap()
    assert await publish(world.tier, world.local, entry(), [digest]) == Success(None)
    assert [call for call, _ in world.tier.calls] == ["has", "put", "has", "publish"]
    assert await world.tier.inner.find(KEY) == Success(entry())
    assert await publish(world.tier, world.combined, entry(), [digest]) == Success(None)


async def test_c48_a_tier_that_refuses_is_told_with_the_stage(world: World) -> None:
    digest = (await world.local.put(DATA)).unwrap()
    world.tier.down = TierRefused("the disk of the server is full", 507)
    for only, stage in (("has", "blobs"), ("put", "blobs"), ("publish", "row")):
        world.tier.only = only
        failed = (await publish(world.tier, world.local, entry(), [digest])).failure()
        assert (failed.stage, failed.conflict) == (stage, None)
        assert "the disk of the server is full" in failed.message
        assert await world.tier.inner.find(KEY) == Success(None)
    assert await world.local.get(digest) == Success(DATA)


async def test_c48_a_row_without_its_bytes_is_not_published(world: World) -> None:
    assert (await publish(world.tier, world.local, entry(), [DIGEST])).failure().stage == "blobs"
    world.tier.loses = True
    digest = (await world.local.put(DATA)).unwrap()
    assert (await publish(world.tier, world.local, entry(), [digest])).failure().stage == "blobs"
    assert await world.tier.inner.find(KEY) == Success(None)


async def test_what_the_tier_has_instead_is_told(world: World) -> None:
    there = entry("there", run="run-2", seq=9)
    _ = await world.tier.inner.publish(there)
    failed = (await publish(world.tier, world.local, entry("here"), [])).failure()
    assert (failed.stage, failed.conflict) == ("row", there.ref)


@pytest.mark.parametrize("meta", [{}, {"evidence": "tripwire"}, {"evidence": "enforced", "reach": "local"}])
async def test_only_enforced_evidence_is_published(world: World, meta: dict[str, object]) -> None:
    digest = (await world.local.put(DATA)).unwrap()
    row = CacheEntry(entry().ref, "ok", meta, NOW_MS)
    failed = (await publish(world.tier, world.local, row, [digest])).failure()
    assert isinstance(failed, Unpublished)
    assert failed.stage == "evidence"
    assert world.tier.calls == []


async def test_a_row_that_none_can_be_is_not_published(world: World) -> None:
    assert (await publish(world.tier, world.local, entry((1, 2)), [])).failure().stage == "row"


async def test_hydrating_without_the_combination(world: World) -> None:
    digest = world.share(DATA)
    assert await hydrate(world.tier, world.local, [digest]) is True
    assert await world.local.get(digest) == Success(DATA)
