"""When a wake is handed over again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.delivery import Deliveries, failure_pause_ms, pass_pause_ms, repeat_pause_ms
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.waiter import Waiter, Wake

KEY = StoreKey("orders", "o-1")


def wake(no: int, *, queue: str | None = None) -> Wake:
    """One that is owed to a waiter."""
    step = StepId(f"run-{no}", "wait")
    return Wake(no, step.run_id, Waiter(KEY, step, Revision("instance", 0), ((),), generation=no, queue=queue))


def signal(no: int) -> Wake:
    return Wake(no, f"run-{no}", None)


def to_wake(plan: Deliveries, now_ms: int, *, failed_to: int = 0) -> list[int]:
    return [each.no for each in plan.to_do(now_ms, failed_to=failed_to)[0]]


def test_the_pauses() -> None:
    assert [failure_pause_ms(count) for count in (1, 2, 3, 9, 10, 1_000)] == [
        100,
        200,
        400,
        25_600,
        30_000,
        30_000,
    ]
    assert [repeat_pause_ms(count) for count in (1, 2, 6, 7, 1_000)] == [5_000, 10_000, 160_000, 300_000, 300_000]
    assert [pass_pause_ms(count) for count in (1, 2, 3, 4, 1_000)] == [5_000, 10_000, 20_000, 30_000, 30_000]


def test_a_wake_that_was_delivered_is_repeated_until_it_is_gone() -> None:
    plan = Deliveries()
    plan.found(wake(1), 0)
    plan.delivered(1, 10)
    assert (plan.next_at_ms(), to_wake(plan, 5_009)) == (5_010, [])
    assert to_wake(plan, 5_010) == [1]
    assert plan.next_at_ms() is None  # until it is answered what became of it
    plan.delivered(1, 5_010)
    assert plan.next_at_ms() == 15_010
    plan.gone(1)
    assert (plan.next_at_ms(), len(plan)) == (None, 0)


def test_a_signal_that_was_delivered_is_gone() -> None:
    plan = Deliveries()
    plan.found(signal(1), 0)
    plan.failed(1, 0)
    assert to_wake(plan, 100) == [1]
    plan.delivered(1, 100)
    assert (plan.next_at_ms(), len(plan), plan.failing) == (None, 0, False)


def test_a_failure_is_tried_again_by_the_timer_and_at_a_commit() -> None:
    plan = Deliveries()
    plan.found(wake(1), 0)
    plan.failed(1, 0)
    assert (plan.failing, plan.next_at_ms()) == (True, 100)
    assert to_wake(plan, 50, failed_to=0) == []
    assert to_wake(plan, 50, failed_to=1) == [1]
    plan.failed(1, 50)
    assert plan.next_at_ms() == 100  # an attempt between changes nothing
    assert to_wake(plan, 100) == [1]
    plan.failed(1, 100)
    assert plan.next_at_ms() == 300
    assert to_wake(plan, 150, failed_to=1) == [1]
    plan.delivered(1, 150)
    assert (plan.failing, plan.next_at_ms()) == (False, 5_150)
    assert to_wake(plan, 5_149) == []


def test_a_failure_after_a_delivery_begins_with_the_short_pause() -> None:
    plan = Deliveries()
    plan.found(wake(1), 0)
    plan.delivered(1, 0)
    assert to_wake(plan, 5_000) == [1]
    plan.failed(1, 5_000)
    assert plan.next_at_ms() == 5_100
    assert to_wake(plan, 5_100) == [1]
    plan.delivered(1, 5_100)
    assert plan.next_at_ms() == 15_100


def test_the_turn_of_a_queue_passes_beside_the_wakes() -> None:
    plan = Deliveries()
    plan.found(wake(1, queue="takers"), 0)
    plan.found(wake(2), 0)
    plan.failed(1, 0)
    plan.delivered(2, 0)
    assert to_wake(plan, 100) == [1]
    plan.delivered(1, 100)
    asked: list[int] = []
    for now_ms in range(0, 100_000, 1_000):
        wakes, turns = plan.to_do(now_ms)
        for each in wakes:
            plan.delivered(each.no, now_ms)
        asked += [now_ms for each in turns if each.no == 1]
        for each in turns if len(asked) < 4 else ():
            plan.not_passed(each.no, now_ms)
        assert all(each.no == 1 for each in turns)
    assert asked == [5_000, 15_000, 35_000, 65_000]


def test_a_crowd_is_gathered_in_rounds() -> None:
    plan = Deliveries()
    for no in range(1, 101):
        plan.found(wake(no), no)
        plan.delivered(no, no)
    assert plan.next_at_ms() == 5_001  # the first ones were few, and are on time
    instants: list[int] = []
    while (at_ms := plan.next_at_ms()) is not None:
        instants += [at_ms] * len(to_wake(plan, at_ms))
    assert len(instants) == 100
    assert instants[64:] == [5_250] * 36


def test_those_that_a_look_did_not_find_are_gone() -> None:
    plan = Deliveries()
    for no in (1, 2, 3, 4):
        plan.found(wake(no), 0)
        plan.failed(no, 0)
    plan.gone_but({3}, after=1)
    assert to_wake(plan, 100) == [1, 3]


@pytest.mark.parametrize("answer", ["delivered", "failed"])
def test_what_is_said_of_a_wake_that_is_gone_is_passed_over(answer: str) -> None:
    plan = Deliveries()
    plan.found(wake(1), 0)
    plan.gone(1)
    plan.delivered(1, 5) if answer == "delivered" else plan.failed(1, 5)
    assert (plan.next_at_ms(), plan.failing, len(plan)) == (None, False, 0)


Event = tuple[str, int]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["found", "gone", "works", "fails", "commit", "wait"]), st.integers(1, 8)), max_size=60
)


@given(EVENTS)
def test_every_wake_that_is_kept_has_its_instant_and_none_is_named_that_is_gone(events: list[Event]) -> None:
    """Whatever happens in whatever order: nothing that is owed is forgotten, nothing that is gone comes up."""
    plan, kept, now_ms, works = Deliveries(), set[int](), 0, True
    for event, number in events:
        if event == "found" and number not in kept:
            plan.found(wake(number, queue="takers" if number % 2 else None), now_ms)
            kept.add(number)
            plan.delivered(number, now_ms) if works else plan.failed(number, now_ms)
        elif event == "gone":
            plan.gone(number)
            kept.discard(number)
        elif event in ("works", "fails"):
            works = event == "works"
        elif event in ("commit", "wait"):
            now_ms += 0 if event == "commit" else number * 700
            wakes, turns = plan.to_do(now_ms, failed_to=8 if event == "commit" else 0)
            assert {each.no for each in (*wakes, *turns)} <= kept
            for each in wakes:
                plan.delivered(each.no, now_ms) if works else plan.failed(each.no, now_ms)
        assert len(plan) == len(kept)
    named: set[int] = set()
    while len(named) < len(kept):
        at_ms = plan.next_at_ms()
        assert at_ms is not None, f"{kept - named} are never handed over again"
        assert at_ms <= now_ms + 300_000 + 30_000
        named |= {each.no for each in plan.to_do(at_ms)[0]}
    assert named == kept
