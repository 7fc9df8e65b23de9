"""Operations are pure plans: what is held -> what to answer, what to commit, and what is held then."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from stepwell.core.batch import (
    Batch,
    CreateStore,
    DeleteStore,
    NoReceipt,
    PatchStore,
    Receipt,
    StoreAbsent,
    StoreAt,
    WriteReceipt,
)
from stepwell.core.held import LOG_BYTES, LOG_ROW_BYTES, Held, read_snapshot, wants_base
from stepwell.core.model import (
    Conflict,
    Deleted,
    InvalidState,
    Replace,
    Revision,
    StepId,
    StoreKey,
    StoreNotFound,
    Taken,
    TooLarge,
    Unmatched,
)
from stepwell.core.operation import Create, Delete, DeleteFrom, Take, Update, UpdateFrom, admit_size
from stepwell.core.outcome import Failure, Success
from stepwell.core.patch import replay_json
from stepwell.core.paths import SHAPE
from stepwell.core.schema import StateSchema
from stepwell.core.step import VALUE_BYTES

KEY = StoreKey("counters", "c")
STEP = StepId("run", "key")
SCHEMA = StateSchema(dict[str, int])
TIP = Revision("i-1", 3)
NEXT = Revision("i-1", 4)
TEXT: Any = {"n": "text"}
"""No state of this schema."""


def held_at(document: bytes, log_rows: int = 0, log_bytes: int = 0) -> Held:
    return Held(TIP, len(document), log_rows, log_bytes, document)


HELD = held_at(b'{"n":3}', log_rows=3, log_bytes=30)


def increment(state: dict[str, int]) -> None:
    state["n"] += 1


def never(state: dict[str, int]) -> None:
    raise AssertionError("this updater must not run")


# --- creation --------------------------------------------------------------------


def test_creating_writes_the_first_revision() -> None:
    first = Revision("i-9", 0)
    planned = Create(KEY, SCHEMA, {"n": 1}, "i-9").plan(None)
    assert planned.batch == Batch((StoreAbsent(KEY, first),), (CreateStore(KEY, first, b'{"n":1}', SCHEMA.form),))
    snapshot = planned.outcome.unwrap()
    assert (snapshot.revision, snapshot.state) == (first, {"n": 1})
    assert planned.held is not None
    assert (planned.held.revision, planned.held.document(), planned.held.log_rows) == (first, b'{"n":1}', 0)


def test_creating_what_exists_reads_it() -> None:
    planned = Create(KEY, SCHEMA, {"n": 1}, "i-9").plan(HELD)
    assert planned.batch == Batch()
    assert planned.held is HELD
    snapshot = planned.outcome.unwrap()
    assert (snapshot.revision, snapshot.state) == (TIP, {"n": 3})


def test_an_invalid_initial_state_counts_only_where_there_is_no_store() -> None:
    create = Create(KEY, SCHEMA, TEXT, "i-9")
    planned = create.plan(None)
    assert isinstance(planned.outcome.failure(), InvalidState)
    assert (planned.batch, planned.held) == (Batch(), None)
    assert isinstance(create.plan(HELD).outcome, Success)


# --- updates ---------------------------------------------------------------------


def test_an_update_writes_a_patch_on_the_tip() -> None:
    planned = Update(KEY, SCHEMA, increment).plan(HELD)
    (write,) = planned.batch.writes
    assert isinstance(write, PatchStore)
    assert (write.key, write.revision) == (KEY, NEXT)
    assert replay_json(HELD.document(), [write.patch]) == b'{"n":4}'
    assert planned.batch.expects == (StoreAt(KEY, TIP),)
    updated = planned.outcome.unwrap()
    assert (updated.previous_version, updated.revision, updated.state) == (3, NEXT, {"n": 4})
    held = planned.held
    assert held is not None
    assert (held.revision, held.document()) == (NEXT, b'{"n":4}')
    assert (held.log_rows, held.log_bytes) == (4, 30 + len(write.patch))
    assert HELD.read(SCHEMA) == Success({"n": 3})


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (Update(KEY, SCHEMA, increment, STEP), "update"),
        (UpdateFrom(KEY, SCHEMA, TIP, increment, STEP), "update_from"),
    ],
)
def test_with_a_step_an_update_writes_its_receipt(
    operation: Update[dict[str, int]] | UpdateFrom[dict[str, int]], kind: str
) -> None:
    planned = operation.plan(HELD)
    receipt = Receipt(KEY, STEP, kind, NEXT)
    assert operation.kind == kind
    assert set(planned.batch.expects) == {StoreAt(KEY, TIP), NoReceipt(KEY, STEP, kind)}
    assert planned.batch.writes[1:] == (WriteReceipt(receipt),)
    again = operation.answer(receipt, planned.held)
    assert again == planned.outcome
    assert again.unwrap().state == {"n": 4}
    with pytest.raises(LookupError, match="needs the state"):
        operation.answer(receipt, None)


def test_plans_stand_on_one_another() -> None:
    """Each on what the one before leaves, as a lane plans them; replaying their patches gives the last state."""
    held: Held | None = HELD
    patches: list[bytes] = []
    for number in range(5):
        assert held is not None
        planned = Update(KEY, SCHEMA, increment, StepId("run", str(number))).plan(held)
        assert planned.batch.expects[0] == StoreAt(KEY, held.revision)
        write = planned.batch.writes[0]
        assert isinstance(write, PatchStore)
        patches.append(write.patch)
        held = planned.held
    assert held is not None
    assert (held.revision, held.document()) == (Revision("i-1", 8), b'{"n":8}')
    assert replay_json(HELD.document(), patches) == held.document()


def test_an_update_without_a_store_runs_nothing() -> None:
    assert Update(KEY, SCHEMA, never).plan(None).outcome == Failure(StoreNotFound(KEY))
    missing = UpdateFrom(KEY, SCHEMA, TIP, never).plan(None)
    assert missing.outcome == Failure(StoreNotFound(KEY, expected=TIP))
    assert (missing.batch, missing.held) == (Batch(), None)


@pytest.mark.parametrize("expected", [Revision("i-1", 2), Revision("i-1", 4), Revision("i-0", 3)])
def test_an_update_from_another_revision_runs_nothing(expected: Revision) -> None:
    planned = UpdateFrom(KEY, SCHEMA, expected, never, STEP).plan(HELD)
    assert planned.outcome == Failure(Conflict(KEY, expected, TIP))
    assert (planned.batch, planned.held) == (Batch(), HELD)


def test_an_invalid_change_leaves_what_is_held() -> None:
    def text(state: dict[str, int]) -> Replace[dict[str, int]]:
        return Replace(TEXT)

    planned = Update(KEY, SCHEMA, text, STEP).plan(HELD)
    failure = planned.outcome.failure()
    assert isinstance(failure, InvalidState)
    assert [issue.path for issue in failure.issues] == [("n",)]
    assert (planned.batch, planned.held) == (Batch(), HELD)


def test_what_the_updater_raises_is_passed_on() -> None:
    with pytest.raises(AssertionError, match="must not run"):
        Update(KEY, SCHEMA, never).plan(HELD)


def test_what_fits_no_more_is_invalid_but_can_be_deleted() -> None:
    held = held_at(b'{"n":"text"}')
    for outcome in (
        Update(KEY, SCHEMA, never).plan(held).outcome,
        UpdateFrom(KEY, SCHEMA, TIP, never).plan(held).outcome,
        Update(KEY, SCHEMA, never, STEP).answer(Receipt(KEY, STEP, "update", TIP), held),
        read_snapshot(KEY, SCHEMA, held),
    ):
        assert isinstance(outcome.failure(), InvalidState)
    assert isinstance(DeleteFrom(KEY, TIP).plan(held).outcome, Success)


def test_the_changed_paths_go_with_the_patch() -> None:
    for operation in (Update(KEY, SCHEMA, increment), UpdateFrom(KEY, SCHEMA, TIP, increment)):
        (write,) = operation.plan(HELD).batch.writes
        assert isinstance(write, PatchStore)
        assert write.changed == (("n",),)


def test_s57_an_update_that_changes_nothing_changed_no_path() -> None:
    planned = Update(KEY, SCHEMA, lambda _: None).plan(HELD)
    assert planned.batch.writes == (PatchStore(KEY, NEXT, b"[]", ()),)
    assert planned.outcome.unwrap().revision == NEXT


# --- taking ----------------------------------------------------------------------


def the_n(state: dict[str, int]) -> int | None:
    return state.get("n")


def drop_n(state: dict[str, int], _: int) -> None:
    del state["n"]


def never_claimed(state: object, selected: object) -> None:
    raise AssertionError("this claim must not run")


def test_a_take_writes_one_change_with_its_paths() -> None:
    planned = Take(KEY, SCHEMA, the_n, drop_n).plan(HELD)
    (write,) = planned.batch.writes
    assert isinstance(write, PatchStore)
    assert (write.revision, replay_json(HELD.document(), [write.patch])) == (NEXT, b"{}")
    assert set(write.changed or ()) == {("n",), (SHAPE,)}
    assert planned.batch.expects == (StoreAt(KEY, TIP),)
    assert planned.outcome == Success(Taken(3, NEXT))
    assert planned.held is not None
    assert (planned.held.revision, planned.held.document(), planned.held.log_rows) == (NEXT, b"{}", 4)


def test_with_a_step_a_take_keeps_what_it_selected() -> None:
    take = Take(KEY, SCHEMA, the_n, drop_n, STEP)
    planned = take.plan(HELD)
    receipt = Receipt(KEY, STEP, "take", NEXT, b"3")
    assert set(planned.batch.expects) == {StoreAt(KEY, TIP), NoReceipt(KEY, STEP, "take")}
    assert planned.batch.writes[1:] == (WriteReceipt(receipt),)
    assert not take.answers_state
    again = Take(KEY, SCHEMA, the_n, never_claimed, STEP)
    assert again.answer(receipt, None) == planned.outcome == Success(Taken(3, NEXT))


def test_a_take_that_finds_nothing_writes_nothing() -> None:
    held = held_at(b'{"m":1}')
    planned = Take(KEY, SCHEMA, the_n, never_claimed, STEP).plan(held)
    assert planned.outcome == Failure(Unmatched(TIP, (("n",),)))
    assert (planned.batch, planned.held) == (Batch(), held)
    assert Take(KEY, SCHEMA, the_n, never_claimed).plan(None).outcome == Failure(StoreNotFound(KEY))


def test_a_claim_that_leaves_no_state_is_invalid() -> None:
    planned = Take(KEY, SCHEMA, the_n, lambda state, _: state.update(TEXT), STEP).plan(HELD)
    failure = planned.outcome.failure()
    assert isinstance(failure, InvalidState)
    assert [issue.path for issue in failure.issues] == [("n",)]
    assert (planned.batch, planned.held) == (Batch(), HELD)
    loop: Any = []
    loop.append(loop)
    cyclic = Take(KEY, SCHEMA, the_n, lambda state, _: state.update(n=loop)).plan(HELD).outcome.failure()
    assert isinstance(cyclic, InvalidState)
    held = held_at(b'{"n":"text"}')
    assert isinstance(Take(KEY, SCHEMA, the_n, never_claimed).plan(held).outcome.failure(), InvalidState)


def test_what_a_take_with_a_step_cannot_keep_is_a_bug_or_too_large() -> None:
    with pytest.raises(TypeError, match=r"the value that step 'key' selected is a tuple"):
        Take(KEY, SCHEMA, lambda state: (state["n"], 1), lambda state, _: state.clear(), STEP).plan(HELD)
    unkept = Take(KEY, SCHEMA, lambda state: (state["n"], 1), lambda state, _: state.clear()).plan(HELD)
    assert unkept.outcome == Success(Taken((3, 1), NEXT))

    def long(_: dict[str, int]) -> str:
        return "x" * VALUE_BYTES

    planned = Take(KEY, SCHEMA, long, lambda state, _: state.clear(), STEP).plan(HELD)
    assert planned.outcome == Failure(TooLarge("the value that step 'key' selected", VALUE_BYTES + 2, VALUE_BYTES))
    assert (planned.batch, planned.held) == (Batch(), HELD)


# --- deletion ----------------------------------------------------------------------


def test_deleting_ends_the_instance() -> None:
    planned = Delete(KEY).plan(HELD)
    assert planned.batch == Batch((StoreAt(KEY, TIP),), (DeleteStore(KEY, TIP),))
    assert (planned.outcome, planned.held) == (Success(None), None)
    assert Delete(KEY).plan(None).batch == Batch()
    assert Delete(KEY).plan(None).outcome == Success(None)


def test_deleting_from_a_revision() -> None:
    planned = DeleteFrom(KEY, TIP, STEP).plan(HELD)
    receipt = Receipt(KEY, STEP, "delete_from", TIP)
    assert set(planned.batch.expects) == {StoreAt(KEY, TIP), NoReceipt(KEY, STEP, "delete_from")}
    assert planned.batch.writes == (DeleteStore(KEY, TIP), WriteReceipt(receipt))
    assert (planned.outcome, planned.held) == (Success(Deleted()), None)
    assert DeleteFrom(KEY, TIP, STEP).answer(receipt, None) == Success(Deleted())
    assert DeleteFrom(KEY, NEXT).plan(HELD).outcome == Failure(Conflict(KEY, NEXT, TIP))
    assert DeleteFrom(KEY, TIP).plan(None).outcome == Failure(StoreNotFound(KEY, expected=TIP))


def test_creation_and_plain_deletion_leave_no_receipt() -> None:
    receipt = Receipt(KEY, STEP, "create", TIP)
    for operation in (Create(KEY, SCHEMA, {}, "i"), Delete(KEY)):
        assert operation.step is None
        with pytest.raises(LookupError, match="leaves no receipt"):
            operation.answer(receipt, HELD)


# --- what is held --------------------------------------------------------------------


def test_a_state_is_read_once_by_each_schema() -> None:
    held = held_at(b'{"n":3}')
    first = held.read(SCHEMA).unwrap()
    assert held.read(SCHEMA).unwrap() is first
    floats = StateSchema(dict[str, float])
    assert held.read(floats).unwrap() == {"n": 3.0}
    assert type(held.read(floats).unwrap()["n"]) is float
    assert type(held.read(SCHEMA).unwrap()["n"]) is int


def test_what_is_handed_out_is_a_copy() -> None:
    held = held_at(b'{"n":3}')
    one, other = read_snapshot(KEY, SCHEMA, held).unwrap(), read_snapshot(KEY, SCHEMA, held).unwrap()
    one.state["n"] = 99
    assert other.state == {"n": 3}
    assert held.read(SCHEMA).unwrap() == {"n": 3}


def test_a_state_over_the_limit_is_too_large() -> None:
    planned = Update(KEY, SCHEMA, increment).plan(HELD)
    size = len(b'{"n":4}')
    admitted = admit_size(planned, KEY, size)
    assert (admitted.outcome, admitted.batch) == (planned.outcome, planned.batch)
    assert admitted.held is not None
    assert admitted.held.size_bytes == size
    refused = admit_size(planned, KEY, size - 1)
    assert refused.outcome == Failure(TooLarge("the state of store counters/c", size, size - 1))
    assert refused.batch == Batch()
    reading = Create(KEY, SCHEMA, {}, "i").plan(HELD)
    assert admit_size(reading, KEY, 1) is reading  # what is only read is not refused
    deleting = Delete(KEY).plan(HELD)
    assert admit_size(deleting, KEY, 1) is deleting


@given(st.integers(0, 2_000), st.integers(0, 100_000), st.integers(2, 100_000))
def test_a_base_is_due_when_the_log_costs_more_than_half_the_state(rows: int, size: int, state: int) -> None:
    held = Held(TIP, state, rows, size)
    cost = rows * LOG_ROW_BYTES + size
    assert wants_base(held) == (cost > LOG_BYTES and cost > state // 2)
    assert not wants_base(held.based())


def test_a_small_state_gets_a_base_after_about_a_hundred_patches() -> None:
    rows = next(rows for rows in range(1_000) if wants_base(Held(TIP, 2, rows, 10 * rows)))
    assert 80 <= rows <= 110


# --- two ways to validate -----------------------------------------------------------------------


class Fickle(BaseModel):
    """Its validator has another answer when it is asked again."""

    n: int = 0

    @field_validator("n")
    @classmethod
    def count(cls, value: int) -> int:
        if value:
            ANSWERS.append(value)
        return value if len(ANSWERS) < 2 else value + value % 2


ANSWERS: list[int] = []


def count_up(state: Fickle) -> None:
    state.n = 3


def test_validation_both_ways_names_the_store_where_they_disagree() -> None:
    fickle = StateSchema(Fickle, "both")
    held = held_at(b'{"n":0}')
    for operation in (
        Update(KEY, fickle, count_up),
        Take(KEY, fickle, lambda state: state, lambda state, _: count_up(state)),
    ):
        ANSWERS.clear()
        with pytest.raises(AssertionError, match=r"store counters/c: incremental and full validation of .*Fickle"):
            operation.plan(held)
