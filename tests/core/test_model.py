"""Values: frozen, also where they are made with their type argument."""

# pyright: standard
# Each value goes through one test here, so that a checker cannot know its type.

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from stepwell.core.journal import Entry, Projection
from stepwell.core.model import Replace, Revision, Snapshot, Taken, Updated

AT = Revision("i", 1)


def count(state: int, entry: Entry) -> int:
    return state + 1


@pytest.mark.parametrize(
    ("with_argument", "without"),
    [
        pytest.param(lambda: Replace[int](1), Replace(1), id="Replace"),
        pytest.param(lambda: Snapshot[int](1, AT), Snapshot(1, AT), id="Snapshot"),
        pytest.param(lambda: Updated[int](1, 0, AT), Updated(1, 0, AT), id="Updated"),
        pytest.param(lambda: Taken[int](1, AT), Taken(1, AT), id="Taken"),
        pytest.param(lambda: Projection[int](int, count), Projection(int, count), id="Projection"),
    ],
)
def test_a_value_is_made_with_its_type_argument_or_without_and_is_frozen(
    with_argument: Callable[[], Any], without: Any
) -> None:
    made = with_argument()
    assert made == without
    for name in (dataclasses.fields(made)[0].name, "unknown"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(made, name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(made, name)
    assert made == without


# --- revisions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_id", "version", "error", "message"),
    [
        ("", 0, ValueError, "a revision needs the instance id"),
        ("i\ud800", 0, ValueError, "the instance id 'i.ud800' is not valid Unicode"),
        (5, 0, TypeError, "the instance id of a revision is text, not 5"),
        (None, 0, TypeError, "the instance id of a revision is text, not None"),
        ("i", "1", TypeError, "the version of a revision is a whole number, not '1'"),
        ("i", 1.0, TypeError, "the version of a revision is a whole number, not 1.0"),
        ("i", True, TypeError, "the version of a revision is a whole number, not True"),
    ],
    ids=repr,
)
def test_what_names_no_state_is_no_revision(
    instance_id: Any, version: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Revision(instance_id, version)


def test_a_revision_may_be_of_any_instance_and_number() -> None:
    assert Revision("é", 2**70).version == 2**70
