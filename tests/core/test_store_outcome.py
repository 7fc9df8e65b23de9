"""The recorded outcomes of store calls: each comes back as it was, and holds no state that can be read elsewhere."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import (
    Conflict,
    Failure,
    InvalidState,
    Issue,
    ReceiptMismatch,
    Revision,
    StepId,
    StoreKey,
    StoreNotFound,
    Success,
    TimedOut,
    TooLarge,
    Unmatched,
)
from stepwell.core.batch import Form
from stepwell.core.paths import EACH, SHAPE
from stepwell.core.store_outcome import Named, StoreFailure, read_outcome, write_outcome

KEY = StoreKey("orders", "o-1")
REVISION = Revision("instance", 3)
FAILURES: list[StoreFailure] = [
    StoreNotFound(KEY),
    StoreNotFound(KEY, expected=REVISION),
    Conflict(KEY, expected=REVISION, actual=Revision("instance", 4)),
    InvalidState(KEY, ()),
    InvalidState(KEY, (Issue(("lines", 0, "0"), "no"), Issue((), "nor this"))),
    ReceiptMismatch(StepId("r", "k"), recorded="update", requested="delete_from"),
    TooLarge("a state", 2, 1),
    TimedOut(5_000),
    Unmatched(REVISION, (("items", EACH, "by"), ("items", SHAPE), ("by key", "0"), ())),
]
KINDS = st.sampled_from(["snapshot", "updated", "deleted", "selected"])
REVISIONS = st.builds(Revision, st.text("abc-", min_size=1), st.integers(0, 10**6))
VALUES = st.sampled_from(
    [b"null", b"0", b'""', b"[]", b"{}", b"false", b'{"failure":1}', b'[{"kind":"x"}]', b'"\\u00e4"']
)


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_a_failure_comes_back_with_its_class_and_fields(failure: StoreFailure) -> None:
    back = read_outcome(write_outcome(Failure(failure)))
    assert isinstance(back, Failure)
    assert type(back.failure()) is type(failure)
    assert back == Failure(failure)


def test_every_kind_of_failure_is_tested() -> None:
    assert {type(failure) for failure in FAILURES} == set(get_args(StoreFailure))


@given(KINDS, st.none() | REVISIONS, st.none() | st.integers(0, 99), st.none() | VALUES)
def test_a_success_comes_back(kind: str, revision: Revision | None, previous: int | None, value: bytes | None) -> None:
    named = Named(kind, revision, previous, value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    back = read_outcome(write_outcome(Success(named)))
    assert isinstance(back, Success)
    found = back.unwrap()
    assert (found.kind, found.revision, found.previous_version) == (kind, revision, previous)
    if value is None:
        assert found.value is None
    else:
        assert found.value is not None
        assert json.loads(found.value) == json.loads(value)


def test_a_state_comes_back_with_its_form() -> None:
    named = Named("updated", REVISION, 2, b'{"n":1}', Form(2, "0123456789abcdef"))
    written = write_outcome(Success(named))
    assert json.loads(written)["form"] == [2, "0123456789abcdef"]
    back = read_outcome(written).unwrap()
    assert (back.form, back.revision, json.loads(back.value or b"")) == (named.form, REVISION, {"n": 1})
    before_forms = read_outcome(write_outcome(Success(Named("snapshot", REVISION, value=b"{}")))).unwrap()
    assert before_forms.form is None


def test_the_order_of_the_kinds_of_failure_is_kept() -> None:
    """Old records name a failure by its place among them."""
    first = (StoreNotFound, Conflict, InvalidState, ReceiptMismatch, TooLarge)
    assert get_args(StoreFailure) == (*first, TimedOut, Unmatched)
    recorded = b'{"failure":{"what":"a state","size_bytes":2,"limit_bytes":1},"of":4}'
    assert read_outcome(recorded) == Failure(TooLarge("a state", 2, 1))
