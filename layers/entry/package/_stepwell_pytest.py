"""Fixtures for users' own tests; pytest loads this module through the `pytest11` entry point.

It lies outside the package and imports nothing of it before a fixture runs: pytest loads it in every project of an
environment that has stepwell, before coverage starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stepwell import Layer, ManualClock, Services


@pytest.fixture
def stepwell_clock() -> ManualClock:
    """A clock that stands at 0 until the test advances it."""
    from stepwell import ManualClock

    return ManualClock()


@pytest.fixture
def stepwell_layer(stepwell_clock: ManualClock) -> Layer[Services, Services]:
    """A whole application in memory on `stepwell_clock`: override what the test swaps, then `build` it."""
    from stepwell.layers import app, clock

    return app.layer_test().override(clock.layer_test(stepwell_clock))
