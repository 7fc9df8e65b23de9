"""Journals over each ledger keep their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .journal_contract import (
    AppendContract,
    CheckpointContract,
    CompactionContract,
    FenceContract,
    JoinContract,
    ReadContract,
    RewindContract,
    SlotContract,
    SpillContract,
    VerifyContract,
)
from .journal_policy_contract import PolicyContract
from .journal_world import World, open_world
from .store_world import Host


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = request.param
    async with open_world(host, tmp_path) as opened:
        yield opened


class TestAppending(AppendContract):
    """Once, in order, or not at all."""


class TestFences(FenceContract):
    """Only whose run it is."""


class TestJoining(JoinContract):
    """In batches of others."""


class TestSlots(SlotContract):
    """What is said of a row is said once."""


class TestReading(ReadContract):
    """Pages, followers and projections."""


class TestCheckpoints(CheckpointContract):
    """States that stand for entries."""


class TestCompaction(CompactionContract):
    """What goes, and what is carried."""


class TestRewinds(RewindContract):
    """What goes, and is not numbered again."""


class TestVerifying(VerifyContract):
    """What is not as it was written."""


class TestSpilling(SpillContract):
    """What is too long."""


class TestPolicies(PolicyContract):
    """Compaction by itself."""
