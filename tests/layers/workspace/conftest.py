"""Where tests put folders that are made many times over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .folders import MEMORY


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as found:
        yield Path(found)
