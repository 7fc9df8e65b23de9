"""How a registration joins those that wait together, and what a commit may have met."""

from __future__ import annotations

import pytest

from stepwell.core.model import Revision
from stepwell.core.patch import Patch, Put, encode
from stepwell.core.paths import EACH, SHAPE
from stepwell.core.waiter import Joining, join, lives, may_have_met, touched_by

TIP = Revision("instance-1", 5)


def seen(version: int, instance: str = "instance-1") -> Revision:
    return Revision(instance, version)


@pytest.mark.parametrize(
    ("last_look", "version", "was_met", "is_held", "expected"),
    [
        (None, 3, False, False, Joining(due=False, takes=True, checks=True)),  # the first, or alone
        (4, 5, False, False, Joining(due=False, takes=True, checks=True)),  # it looked later than all
        (4, 4, False, False, Joining(due=False, takes=False, checks=False)),  # nothing has met that look since
        (4, 3, False, False, Joining(due=False, takes=False, checks=False)),
        (4, 3, True, False, Joining(due=False, takes=False, checks=True)),  # while it was due, nobody minded
        (4, 5, True, False, Joining(due=False, takes=True, checks=True)),
        (4, 5, False, True, Joining(due=False, takes=True, checks=False)),  # whoever is due will look
        (4, 3, True, True, Joining(due=False, takes=False, checks=False)),
        (9, 3, False, False, Joining(due=False, takes=True, checks=True)),  # a look at what has been lost
    ],
)
def test_the_later_look_counts_and_is_checked_unless_somebody_is_due(
    last_look: int | None, version: int, was_met: bool, is_held: bool, expected: Joining
) -> None:
    assert join(seen(version), TIP, last_look, was_met=was_met, is_held=is_held) == expected


@pytest.mark.parametrize(
    ("look", "tip"),
    [(seen(3), None), (seen(3, "instance-0"), TIP), (seen(6), TIP)],
    ids=["no store", "another instance", "a revision that was lost"],
)
def test_what_was_seen_of_something_gone_is_due_at_once(look: Revision, tip: Revision | None) -> None:
    assert join(look, tip, 4, was_met=False, is_held=True) == Joining(due=True, takes=False, checks=False)
    assert join(look, tip, None, was_met=False, is_held=False) == Joining(due=True, takes=True, checks=False)


def test_an_instance_lives_while_it_is_the_one_that_there_is() -> None:
    assert lives(seen(9), TIP)
    assert not lives(seen(5, "instance-0"), TIP)
    assert not lives(seen(5), None)


def test_one_commit_among_many_may_have_met_what_was_read() -> None:
    commits = [encode(Patch((Put(("items", n, "status"), "paid"),))) for n in range(3)]
    assert may_have_met(commits, (("items", EACH, "status"),))
    assert may_have_met(commits, (("elsewhere",), ("items", 2)))
    assert not may_have_met(commits, (("items", 3), ("items", EACH, "name")))
    assert not may_have_met([], ((),))


def test_a_commit_that_cannot_be_read_may_have_met_anything() -> None:
    for commit in (b"[1]", b"{", b"", b'[["?",["a"]]]'):
        assert touched_by(commit) == ((),)
        assert may_have_met([commit], (("a", SHAPE),))
    assert touched_by(b"[]") == ()
