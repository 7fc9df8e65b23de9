"""What an engine tells the journals of its runs, also over restarts, on the hosts of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from .engine_events_contract import EngineEventsContract
from .engine_restart_contract import EngineRestartContract
from .engine_world import EngineWorld, Host


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> EngineWorld:
    host: Host = "memory" if request.param == "memory" else "sqlite"
    return EngineWorld(host, tmp_path / "app.db")


class TestEngineEvents(EngineEventsContract):
    pass


class TestEngineRestarts(EngineRestartContract):
    pass
