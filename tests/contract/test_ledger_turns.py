"""Two writers on one file take turns: step by step, without threads or time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.core.batch import Batch, Committed
from stepwell.core.model import Conflict
from stepwell.core.outcome import Failure, Success
from stepwell.layers.sql.opening import connect_writer, open_file
from stepwell.layers.sql.pauses import COURTESY_S, Pauses
from stepwell.layers.sql.transaction import Transaction
from stepwell.layers.sql.writer import COURTESY, Answer, Writer

from .ledger_batches import ORDER, at, create, patch


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[tuple[Writer, Writer]]:
    path = open_file(tmp_path / "app.db", create=True)
    one, other = (Writer(lambda: connect_writer(path, "normal")) for _ in range(2))
    one.keeps_turn = other.keeps_turn = True
    yield one, other
    one.close()
    other.close()


def commit(writer: Writer, batch: Batch) -> Answer:
    assert writer.begin()
    (answer,) = writer.write([(batch, 0, set())], 0)
    return answer


def test_a_lone_writer_gives_way_to_nobody(writers: tuple[Writer, Writer]) -> None:
    one, _ = writers
    commit(one, create())
    assert not one.gives_way
    transaction = Transaction(one, [(patch(1), 0, set())], 0, iter([]))
    assert list(transaction.run()) == []
    assert isinstance(transaction.answers[0], Success)


def test_a_writer_that_saw_another_gives_way_for_a_while(writers: tuple[Writer, Writer]) -> None:
    one, other = writers
    commit(one, create())
    commit(other, patch(1))
    for version in range(2, COURTESY + 2):
        commit(one, patch(version))
        assert one.gives_way
        if version == 2:
            transaction = Transaction(one, [(patch(1), 0, set())], 0, iter([]))  # it will be refused
            assert list(transaction.run()) == [COURTESY_S]
            one.give_up_turn()
            assert not one.gives_way
    commit(one, patch(COURTESY + 2))
    assert not one.gives_way


def test_a_courteous_pause_is_longer_than_any_other() -> None:
    assert max(Pauses().until(1.0)) < COURTESY_S


def test_who_came_too_late_keeps_the_lock_for_the_next_try(writers: tuple[Writer, Writer]) -> None:
    one, other = writers
    commit(one, create())
    commit(other, patch(1))
    assert commit(one, patch(1)) == Failure(Conflict(ORDER, expected=at(0), actual=at(1)))
    assert one.has_turn
    assert not other.begin()
    assert commit(one, patch(2)) == Success(Committed(at(2), (3,)))
    assert not one.has_turn
    assert commit(other, patch(3)) == Success(Committed(at(3), (4,)))


def test_a_turn_that_nobody_takes_is_given_up(writers: tuple[Writer, Writer]) -> None:
    one, other = writers
    commit(one, create())
    commit(other, patch(1))
    commit(one, patch(1))
    one.give_up_turn()
    assert commit(other, patch(2)) == Success(Committed(at(2), (3,)))


def test_a_conflict_among_ones_own_keeps_no_lock(writers: tuple[Writer, Writer]) -> None:
    one, other = writers
    commit(one, create())
    for version in range(1, COURTESY + 2):
        commit(one, patch(version))
    commit(one, patch(1))
    assert not one.has_turn
    assert other.begin()


def test_a_turn_ends_with_its_writer(writers: tuple[Writer, Writer]) -> None:
    one, other = writers
    commit(one, create())
    commit(other, patch(1))
    commit(one, patch(1))
    assert one.has_turn
    one.close()
    assert commit(other, patch(2)) == Success(Committed(at(2), (3,)))
