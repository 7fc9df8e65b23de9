"""The store over each ledger keeps its contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .store_apply_contract import StoreApplyContract
from .store_contract import StoreContract
from .store_state_contract import StoreStateContract
from .store_world import Host, World, open_world


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = request.param
    async with open_world(host, tmp_path) as opened:
        yield opened


class TestStore(StoreContract):
    """Identity, updates, receipts, conditional changes."""


class TestStoreStates(StoreStateContract):
    """What updaters may do, and what states may be."""


class TestStoreApply(StoreApplyContract):
    """What the engine joins."""
