"""Validators of a whole record are called no more often than is needed, and may write."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from stepwell.core import patch
from stepwell.core.change import decide_change
from stepwell.core.model import Issue
from stepwell.core.outcome import Failure, Outcome
from stepwell.core.paths import SHAPE
from stepwell.core.schema import Settled, StateSchema

CALLS: list[str] = []
"""The names of the models whose validators were called, in their order."""


class Line(BaseModel):
    count: int = 1
    note: str = ""


class Looking(BaseModel):
    lines: list[Line] = []
    note: str = ""

    @model_validator(mode="after")
    def look(self) -> Looking:
        CALLS.append("Looking")
        if sum(line.count for line in self.lines) > 99:
            raise ValueError("too many")
        return self


class Writing(BaseModel):
    lines: list[Line] = []
    note: str = ""
    total: int = 0

    @model_validator(mode="after")
    def sum_up(self) -> Writing:
        CALLS.append("Writing")
        self.total = sum(line.count for line in self.lines)
        return self


class Copying(BaseModel):
    lines: list[Line] = []
    note: str = ""
    total: int = 0

    @model_validator(mode="after")
    def sum_up(self) -> Copying:
        CALLS.append("Copying")
        return self.model_copy(update={"total": sum(line.count for line in self.lines)})


class Outer(BaseModel):
    within: list[Writing] = []
    totals: int = 0

    @model_validator(mode="after")
    def sum_up(self) -> Outer:
        CALLS.append("Outer")
        self.totals = sum(each.total for each in self.within)
        return self


class Counting(StateSchema[Any]):
    """A schema that counts how often it had to look at the whole."""

    wholes = 0

    def _settle_whole(self, before: Any, after: Any, written: Any) -> Outcome[Settled[Any], Any]:
        self.wholes += 1
        return super()._settle_whole(before, after, written)


@contextmanager
def calls() -> Iterator[list[str]]:
    CALLS.clear()
    yield CALLS


def state_of(type_: Any, state: Any) -> tuple[Counting, Any]:
    schema = Counting(type_)
    return schema, schema.validate(state).unwrap().state


def add_line(draft: Any) -> None:
    draft.lines.append(Line(count=3))


def raise_count(draft: Any) -> None:
    draft.lines[1].count = 5


def several(draft: Any) -> None:
    raise_count(draft)
    add_line(draft)
    draft.note = "n"


THREE = [Line(), Line(), Line()]


@pytest.mark.parametrize("updater", [add_line, raise_count, several])
@pytest.mark.parametrize(
    ("type_", "count"), [(Looking, 1), (Writing, 2), (Copying, 2)], ids=["looks", "writes", "gives a copy"]
)
def test_a_validator_of_a_record_is_called_once_and_again_only_for_what_it_wrote(
    type_: Any, count: int, updater: Callable[[Any], None]
) -> None:
    schema, state = state_of(type_, type_.model_validate({"lines": THREE}))
    with calls() as called:
        change = decide_change(schema, state, updater).unwrap()
    assert len(called) == count
    assert not schema.wholes
    assert len(change.state.lines) == len(THREE) + (updater is not raise_count)


def test_a_validator_that_writes_is_called_once_where_it_has_nothing_to_write() -> None:
    schema, state = state_of(Writing, Writing(lines=THREE))
    with calls() as called:
        assert decide_change(schema, state, lambda d: setattr(d, "note", "n")).unwrap().changed_paths == (("note",),)
    assert called == ["Writing"]


def test_what_a_validator_refuses_is_looked_at_once_as_a_whole() -> None:
    schema, state = state_of(Looking, Looking(lines=THREE))
    with calls() as called:
        refused = decide_change(schema, state, lambda d: setattr(d.lines[0], "count", 99))
    assert refused == Failure((Issue((), "too many"),))
    assert called == ["Looking"] * 2


def test_what_validators_write_into_one_another_is_settled_by_the_parts_that_they_wrote() -> None:
    schema, state = state_of(Outer, Outer(within=[Writing(lines=THREE), Writing()]))
    with calls() as called:
        change = decide_change(schema, state, lambda d: setattr(d.within[0].lines[0], "count", 9)).unwrap()
    assert called == ["Writing", "Outer"] * 2
    assert change.state.totals == change.state.within[0].total == 11
    assert set(change.changed_paths) == {
        ("within", 0, "lines", 0, "count"),
        ("within", 0, "total"),
        ("totals",),
    }
    assert len(patch.decode(change.patch_json)) == 3
    assert not schema.wholes


class Last(BaseModel):
    """It keeps the last three lines."""

    lines: list[Line] = []

    @model_validator(mode="after")
    def trim(self) -> Last:
        del self.lines[:-3]
        return self


def test_a_validator_may_shift_the_elements_that_an_update_wrote() -> None:
    def write(draft: Last) -> None:
        draft.lines[2].note = "was last"
        draft.lines.append(Line(note="came"))

    schema, state = state_of(Last, Last(lines=[Line(note="a"), Line(note="b"), Line(note="c")]))
    change = decide_change(schema, state, write).unwrap()
    assert [line.note for line in change.state.lines] == ["b", "was last", "came"]
    assert ("lines", SHAPE) not in change.changed_paths  # there are three, as before
    assert not schema.wholes
