"""Properties of replay: each key is asked for once, and gets what its row says, whatever order it is asked in."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell.core.history import STEPS, Asked, History, Refused
from stepwell.core.step import Mode, StepRow, StepStatus, decide_step

KEYS = st.sampled_from([f"k{n}" for n in range(8)])
STATUSES: tuple[StepStatus, ...] = get_args(StepStatus)
MODES: tuple[Mode, ...] = get_args(Mode)


@st.composite
def rows(draw: st.DrawFn) -> list[StepRow]:
    keys = draw(st.lists(KEYS, unique=True))
    made: list[StepRow] = []
    for at, key in enumerate(keys):
        status = draw(st.sampled_from(STATUSES))
        position = at + 1 if status in ("done", "failed", "cancelled") else None
        target = draw(st.sampled_from(["f", "g"]))
        made.append(
            StepRow(run_id="r", key=key, kind="step", target=target, status=status, position=position, recorded_at_ms=0)
        )
    return made


@given(rows(), st.lists(st.tuples(KEYS, st.sampled_from(["f", "g"]), st.sampled_from(MODES))))
def test_a_key_gets_what_its_row_says_once(recorded: list[StepRow], calls: list[tuple[str, str, Mode]]) -> None:
    history = History(recorded)
    by_key = {row.key: row for row in recorded}
    asked: set[str] = set()
    for key, target, mode in calls:
        answer = history.ask(key, "step", target, mode)
        row = by_key.get(key)
        asks_anew = row is not None and row.status == "dropped"
        if key in asked:
            assert isinstance(answer, Refused)
            assert answer.reason == "duplicate"
            assert repr(key) in answer.problem
        elif row is not None and row.target != target and not asks_anew:
            assert isinstance(answer, Refused)
            assert answer.reason == "mismatch"
        else:
            assert answer == Asked(decide_step(row, mode), None if asks_anew else row)
            asked.add(key)
    recorded_keys = {row.key for row in recorded if row.status != "dropped"}
    lost = {row.key for row in recorded if row.status == "lost"}
    assert {row.key for row in history.unasked()} == recorded_keys - asked - lost
    assert len(history.new()) == len(asked - recorded_keys)
    for target in ("f", "g"):
        like = [row for row in history.unasked() if row.target == target]
        assert history.has_like("step", target) == bool(like)
        assert not like or history.like("step", target) == like[0]
    assert {key for key in by_key if history.was_dropped(key)} == set(by_key) - recorded_keys


@given(rows())
def test_positions_go_on_after_the_last_one(recorded: list[StepRow]) -> None:
    history = History(recorded)
    last = max((row.position or 0 for row in recorded), default=0)
    assert history.position == last
    assert [history.take_position() for _ in range(3)] == [last + 1, last + 2, last + 3]
    assert history.position == last + 3


@given(rows())
def test_what_was_not_asked_for_comes_by_position_and_what_is_open_last(recorded: list[StepRow]) -> None:
    unasked = History(reversed(recorded)).unasked()
    positions = [row.position for row in unasked]
    completed = [position for position in positions if position is not None]
    assert completed == sorted(completed)
    assert positions == completed + [None] * (len(positions) - len(completed))


def test_a_row_that_was_recorded_is_held() -> None:
    history = History()
    row = StepRow(run_id="r", key="k", kind="step", target="f", status="retrying", recorded_at_ms=0)
    history.record(row)
    assert history.ask("k", "step", "f") == Asked("perform", row)
    history.record(replace(row, status="done", position=1))
    assert history.unasked() == ()


def test_a_duplicate_names_the_key_and_both_kinds() -> None:
    history = History()
    assert isinstance(history.ask("k", "step", "f"), Asked)
    answer = history.ask("k", "sleep", "")
    assert isinstance(answer, Refused)
    assert all(word in answer.problem for word in ("'k'", "step f", "sleep"))


def test_a_run_records_so_many_calls_and_no_more() -> None:
    row = StepRow(run_id="r", key="k", kind="step", target="f", status="done", position=1, recorded_at_ms=0)
    full = History(replace(row, key=f"k{n}", position=n + 1) for n in range(STEPS))
    answer = full.ask("one more", "step", "f")
    assert isinstance(answer, Refused)
    assert answer.reason == "full"
    assert str(STEPS) in answer.problem
    assert "'one more'" in answer.problem
    assert isinstance(full.ask("k0", "step", "f"), Asked)
    assert isinstance(History(replace(row, key=f"k{n}") for n in range(STEPS - 1)).ask("last", "step", "f"), Asked)


def test_a_read_that_was_recorded_is_no_reason_to_hold_another_back() -> None:
    row = StepRow(
        run_id="r", key="look", kind="store.get", target="orders/o", status="done", recorded_at_ms=0, position=1
    )
    assert not History([row]).has_like("store.get", "orders/o")
    change = replace(row, kind="store.update")
    assert History([change]).has_like("store.update", "orders/o")
