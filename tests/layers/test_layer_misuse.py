"""What is no recipe and no layer: a TypeError in our words."""

# pyright: standard
# Values that no checker would let through are given here.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import build, provides
from stepwell.layers import clock as clocks


def test_what_is_no_recipe_and_no_layer_is_told() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"provides\(\) takes an annotated function, not 5"):
        _ = provides(wrong)
    nothing: Any = None
    with pytest.raises(TypeError, match=r"\| joins layers, not None"):
        _ = clocks.layer() | nothing
    function: Any = clocks.layer
    with pytest.raises(TypeError, match=r"override\(\) joins layers, not a function: is `@provides` missing\?"):
        _ = clocks.layer().override(function)


async def test_a_recipe_that_gives_what_is_neither_a_generator_nor_awaitable_is_told() -> None:
    def recipe() -> Iterator[int]:
        return [1]  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async with build(provides(recipe)) as built:
        assert "the recipe of int gave a list; it must be a generator that yields it" in str(built.failure())
