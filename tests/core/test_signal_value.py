"""Values of signals: by the type that is known, otherwise by their own or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from stepwell.core.codec import codec_of
from stepwell.core.outcome import Failure, Success
from stepwell.core.signal_value import encode_signal


class Decision(BaseModel):
    approved: bool
    at: datetime | None = None


@dataclass(frozen=True)
class Vote:
    points: int


class Note(TypedDict):
    at: datetime


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Decision(approved=True), b'{"approved":true,"at":null}'),
        (Vote(3), b'{"points":3}'),
        (None, b"null"),
        ({"a": [1, "x"]}, b'{"a":[1,"x"]}'),
    ],
)
def test_without_a_type_a_value_is_written_by_its_own(value: object, written: bytes) -> None:
    assert encode_signal("n", value, ()) == Success(written)


@pytest.mark.parametrize("value", [(1,), {1}, NOON, object(), Vote, [Vote(1)]])
def test_without_a_type_what_is_no_json_is_misuse(value: object) -> None:
    with pytest.raises(TypeError, match="the value of the signal 'n'"):
        _ = encode_signal("n", value, ())


def test_a_value_of_the_known_type_or_its_json_is_let_through() -> None:
    known = (codec_of(Decision),)
    assert encode_signal("n", Decision(approved=True), known) == Success(b'{"approved":true,"at":null}')
    assert encode_signal("n", {"approved": True}, known) == Success(b'{"approved":true}')
    assert encode_signal("n", Note(at=NOON), (codec_of(Note),)) == Success(b'{"at":"2026-01-01T12:00:00Z"}')
    assert encode_signal("n", {1, 2}, (codec_of(set[int]),)) == Success(b"[1,2]")


@pytest.mark.parametrize("value", [{"approved": "perhaps"}, Vote(1), None, object(), 7])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    refused = encode_signal("n", value, (codec_of(Decision),))
    assert isinstance(refused, Failure)
    assert "the value of the signal 'n'" in refused.failure()


def test_of_several_types_one_is_enough() -> None:
    known = (codec_of(int), codec_of(Decision))
    assert encode_signal("n", 7, known) == Success(b"7")
    assert encode_signal("n", Decision(approved=False), known) == Success(b'{"approved":false,"at":null}')
    assert isinstance(encode_signal("n", [], known), Failure)
