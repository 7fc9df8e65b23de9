"""Cached steps of machines that share a tier: what was proved is published, and brought where it is missing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stepwell import Workspace
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.layers.shared_tier import MemoryTier, NoopTier
from stepwell.services.shared_tier import SharedTier

from .cached_world import CachedWorld, flow_of
from .engine_world import EngineWorld
from .sandbox_world import open_world

SMALL = WorkspaceLimits(inline_bytes=64, inline_total=256)
TEXT = "x" * 100


@asynccontextmanager
async def machine(path: Path, tier: SharedTier) -> AsyncGenerator[CachedWorld]:
    async with open_world("memory", path, limits=SMALL) as files:
        world = CachedWorld(EngineWorld("memory", path), files)
        world.tier = tier
        world.meddlings.evidence = "enforced"
        yield world


def write(workspace: Workspace) -> str:
    workspace.write_text("out/r", TEXT)
    return "made"


async def test_a_row_with_its_bytes_is_published_and_serves_another_machine(tmp_path: Path) -> None:
    tier, flow = MemoryTier(), flow_of(write)
    async with machine(tmp_path / "one", tier) as one, one.engine(flow) as app:
        assert await app.run(flow, "r1") == "made"
        assert await app.told("r1") == ["recorded", "admitted"]
        assert len(tier.rows) == 1
        assert len(tier.blobs) == 1
    async with machine(tmp_path / "two", tier) as two, two.engine(flow) as app:
        assert await app.run(flow, "r2") == "made"
        assert two.files.read("out/r") == TEXT.encode()
        assert app.metrics.counts == {"verified_hit": 1}


async def test_r_04_bytes_that_are_missing_here_are_fetched_once(tmp_path: Path) -> None:
    tier, flow = MemoryTier(), flow_of(write)
    async with machine(tmp_path, tier) as one, one.engine(flow) as app:
        assert await app.run(flow, "r1") == "made"
        assert isinstance(one.files.artifacts, MemoryArtifacts)
        one.files.artifacts.blobs.clear()
        one.files.remove("out/r")
        assert await app.run(flow, "r2") == "made"
        assert app.metrics.counts == {"miss": 1, "verified_hit": 1}
        one.files.artifacts.blobs.clear()
        tier.blobs.clear()
        one.files.remove("out/r")
        assert await app.run(flow, "r3") == "made"  # nobody has them: it is executed
        assert await app.told("r3") == ["replay_failed(host)", "recorded"]


async def test_c48_c30_a_tier_that_is_down_fails_no_run(tmp_path: Path) -> None:
    flow = flow_of(write)
    async with machine(tmp_path, NoopTier()) as one, one.engine(flow) as app:
        assert await app.run(flow, "r1") == "made"
        assert await app.told("r1") == ["recorded", "admitted", "unpublished(blobs)"]
        assert len(await app.heads()) == 1
        assert app.metrics.counts == {"miss": 1}
        assert app.metrics.remote_misses == 1


@pytest.mark.parametrize("evidence", ["tripwire", "cooperative"])
async def test_what_was_not_proved_is_not_published(tmp_path: Path, evidence: str) -> None:
    tier, flow = MemoryTier(), flow_of(write)
    async with machine(tmp_path, tier) as one, one.engine(flow) as app:
        one.meddlings.evidence = "tripwire" if evidence == "tripwire" else "cooperative"
        assert await app.run(flow, "r1") == "made"
        assert await app.told("r1") == ["recorded", "admitted"]
        assert tier.rows == {}
