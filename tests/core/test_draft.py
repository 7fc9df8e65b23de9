"""Drafts: a draft does what the plain value does, and nothing but its result leaves it."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings

from stepwell.core.draft import apply
from stepwell.core.patch import replay
from stepwell.core.paths import diff
from stepwell.core.value import same

from .programs import FAMILIES, Step, run_on_both, steps

settings.register_profile("core", deadline=None, max_examples=300)


@pytest.mark.parametrize("family", FAMILIES)
@settings(deadline=None, max_examples=400)
@given(program=steps)
def test_a_draft_does_what_the_plain_state_does(family: str, program: list[Step]) -> None:
    state = FAMILIES[family]()
    before = copy.deepcopy(state)
    plain: object = None

    def updater(draft: object) -> None:
        nonlocal plain
        plain = run_on_both(copy.deepcopy(state), draft, program)

    applied = apply(state, updater)
    assert same(state, before), "the state that came in was changed"
    assert same(applied.state, plain), "the result is not what plain mutation gives"
    assert same(replay(before, applied.patch), plain), "the patch does not lead to the result"
    changed = set(applied.changed_paths)
    for path in diff(before, plain):
        assert any(path[:end] in changed for end in range(len(path) + 1)), (path, changed)
    for path in changed:
        assert not any(path[:end] in changed for end in range(len(path))), (path, changed)
