"""One runner for all tests of commands: its proof is made once, and every command has a workspace of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stepwell.layers.workspace.command.runner import CommandRunner

from .world import PYTHON


@pytest.fixture(scope="session")
def runner() -> Iterator[CommandRunner]:
    made = CommandRunner(python=PYTHON)
    yield made
    asyncio.run(made.close())
