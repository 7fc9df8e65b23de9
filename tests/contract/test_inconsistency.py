"""Who decides about a cache that contradicts itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepwell import Layer, build, get
from stepwell.core.step_cache import RecordedRef
from stepwell.layers import inconsistency
from stepwell.layers.inconsistency import NotedConflict, NotedCorruption
from stepwell.services.inconsistency import Inconsistency, Tolerance

FIRST, SECOND = RecordedRef("k", "a", 1), RecordedRef("k", "b", 2)


async def asked(layer: Layer[Inconsistency, Inconsistency]) -> list[Tolerance]:
    async with build(layer) as built:
        decides = get(built.unwrap(), Inconsistency)
        return [
            await decides.note_conflict(FIRST, SECOND),
            await decides.note_corruption(FIRST, "out/app", "recorded", "measured"),
            await decides.note_corruption(None, "out/app", "recorded", None),
        ]


@pytest.mark.parametrize(
    ("layer", "verdict"),
    [
        (inconsistency.layer, "fail"),
        (inconsistency.layer_tolerant, "tolerate"),
        (inconsistency.layer_test, "fail"),
        (inconsistency.layer_noop, "fail"),
    ],
)
async def test_each_layer_decides_alike(
    layer: Callable[[], Layer[Inconsistency, Inconsistency]], verdict: Tolerance
) -> None:
    assert await asked(layer()) == [verdict] * 3


async def test_what_is_noted_can_be_looked_at() -> None:
    noted: list[NotedConflict | NotedCorruption] = []
    assert await asked(inconsistency.layer_test(noted, verdict="tolerate")) == ["tolerate"] * 3
    assert noted == [
        NotedConflict(FIRST, SECOND),
        NotedCorruption(FIRST, "out/app", "recorded", "measured"),
        NotedCorruption(None, "out/app", "recorded", None),
    ]
