"""Artifacts on each host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .artifacts_contract import ArtifactsContract
from .artifacts_world import HOSTS, Host, World, opened


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = "files" if request.param == "files" else "memory"
    async with opened(host, tmp_path / "kept") as made:
        yield made


class TestArtifacts(ArtifactsContract):
    pass
