"""Cached steps over the hosts: a ledger and files in memory, and a database with a folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers import engine as engines
from stepwell.layers.engine import EngineOptions

from .cached_world import CachedWorld
from .engine_cached_contract import EngineCachedContract
from .engine_cached_keys_contract import EngineCachedKeysContract
from .engine_world import EngineWorld
from .sandbox_world import open_world

SMALL = WorkspaceLimits(inline_bytes=64, inline_total=256)
"""So that a file of a hundred bytes is an artifact."""


@pytest.fixture(params=["memory", "sqlite-folder"])
async def cached(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[CachedWorld]:
    in_memory = request.param == "memory"
    engines = EngineWorld("memory" if in_memory else "sqlite", tmp_path / "app.db")
    async with open_world("memory" if in_memory else "folder", tmp_path / "work", limits=SMALL) as files:
        yield CachedWorld(engines, files)


class TestCachedSteps(EngineCachedContract):
    pass


def test_an_option_that_there_is_not_is_refused() -> None:
    mistyped = cast(EngineOptions, {"effect": print})
    with pytest.raises(TypeError, match="'effect' is no option; there are poll, inconsistency, effects"):
        _ = engines.layer(**mistyped)
    with pytest.raises(ValueError, match="max_age"):
        _ = engines.layer(max_age=-1)


class TestCachedKeys(EngineCachedKeysContract):
    pass
