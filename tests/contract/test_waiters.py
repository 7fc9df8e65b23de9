"""Waiters over each ledger keep their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .store_world import Host
from .waiters_contract import DeliveryContract, HintContract, QueueContract, WaitersContract
from .waiters_world import World, open_world
from .waiters_writes_contract import WritesContract


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = request.param
    async with open_world(host, tmp_path) as opened:
        yield opened


class TestWaiters(WaitersContract):
    """Registration, generations, acknowledgement."""


class TestDelivery(DeliveryContract):
    """At least once, until it is acknowledged; never for what is owed no more."""


class TestQueues(QueueContract):
    """One at a time."""


class TestHints(HintContract):
    """What wakes, and how soon."""


class TestWrites(WritesContract):
    """Who is woken by what was written."""
