"""What is given to be appended becomes an entry, or is refused for a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.cache_fold import EVENT_TYPE
from stepwell.core.entry import NewEntry, identity_of
from stepwell.core.event import META_BYTES, Event, new_entry, positive, redacted, spilled_entry, too_large
from stepwell.core.events import EVENTS, VERBATIM
from stepwell.core.journal import SAFE_INTEGER, InvalidEvent, Source
from stepwell.core.outcome import Failure, Success
from stepwell.core.provenance import provenance_entry
from stepwell.core.redaction import DEPTH, REDACTED, Redaction, redact
from stepwell.core.run_events import RUN_EVENTS
from stepwell.core.step_cache import RecordedRef

REDACTION = Redaction()

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=12,
)


def made(payload: object, meta: Mapping[str, object] | None = None, event_type: str = "t") -> NewEntry:
    outcome = new_entry(Event("run", event_type, payload, Source("s", 0), meta), REDACTION)
    assert isinstance(outcome, Success)
    return outcome.unwrap()


def refused(event: Event) -> str:
    outcome = new_entry(event, REDACTION)
    assert isinstance(outcome, Failure)
    return outcome.failure().message


@given(values)
def test_a_value_comes_back_as_it_was_redacted(value: object) -> None:
    entry = made(value, {"m": value})
    expected = redact(value)
    for read in (msgspec.json.decode, json.loads):
        assert _same(read(entry.payload), expected)
    assert entry.meta is not None
    assert _same(msgspec.json.decode(entry.meta), {"m": expected})


@given(st.dictionaries(texts, values), st.data())
def test_what_is_the_same_has_the_same_bytes(value: dict[str, object], data: st.DataObject) -> None:
    members = data.draw(st.permutations(list(value.items())))
    one, other = made(value, value), made(dict(members), dict(members))
    assert one == other
    assert one.identity == identity_of("t", one.payload, one.meta)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Event("", "t", None), "a run's id"),
        (Event("a" * 513, "t", None), "a run's id"),
        (Event("r", "", None), "an event type"),
        (Event("r", "t\0", None), "an event type"),
        (Event("r", "t", None, Source("", 0)), "a source's id"),
        (Event("r", "t", None, Source("s", -1)), "a source's number"),
        (Event("r", "t", None, Source("s", SAFE_INTEGER)), "a source's number"),
        (Event("r", "t", None, Source("s", True)), "a source's number"),
        (Event("r", "t", (1, 2)), "a tuple"),
        (Event("r", "t", [{"a": {1}}]), "a set"),
        (Event("r", "t", b"bytes"), "bytes"),
        (Event("r", "t", float("inf")), "inf"),
        (Event("r", "t", [float("nan")]), "nan"),
        (Event("r", "t", {1: 2}), "names are text"),
        (Event("r", "t", "\ud800"), "cannot be written"),
        (Event("r", "t", {"\ud800": 1}), "cannot be written"),
        (Event("r", "t", 10**5000), "cannot be written"),
        (Event("r", "t", None, None, {"m": object()}), "the meta holds"),
        (Event("r", "t", None, None, {"m": "x" * META_BYTES}), "the meta is"),
    ],
)
def test_j17_what_is_no_event(event: Event, why: str) -> None:
    assert why in refused(event)


@pytest.mark.parametrize("pieces", [1, 2])
def test_j17_what_contains_itself_is_no_event(pieces: int) -> None:
    looped: list[object] = []
    looped += [looped] * pieces
    assert "holds itself" in refused(Event("r", "t", looped))
    mapping: dict[str, object] = {}
    mapping["a"] = [mapping] * pieces
    assert "holds itself" in refused(Event("r", "t", mapping))


def test_r11_the_deepest_value() -> None:
    value: object = 1
    for _ in range(DEPTH):
        value = [value]
    assert made(value).payload == b"[" * DEPTH + b"1" + b"]" * DEPTH
    assert "256 levels" in refused(Event("r", "t", [value]))


def test_r11_why_a_redactor_raised_is_not_told() -> None:
    def broken(value: object) -> object:
        raise ValueError(f"cannot read {value}")

    outcome = new_entry(Event("r", "t", "s3cret"), broken)
    assert outcome == Failure(InvalidEvent("the payload could not be redacted, so it is not stored"))


@pytest.mark.parametrize("left", [object(), (1,), float("nan"), "\ud800"])
def test_what_a_redactor_gives_is_json_too(left: object) -> None:
    assert isinstance(new_entry(Event("r", "t", "s"), lambda _: left), Failure)


def test_r7_payload_and_meta_are_redacted() -> None:
    entry = made({"token": "a"}, {"password": "b", "text": "secret=c"})
    assert (entry.payload, entry.meta) == (
        b'{"token":"[REDACTED]"}',
        b'{"password":"[REDACTED]","text":"secret=[REDACTED]"}',
    )


@pytest.mark.parametrize("event_type", sorted(VERBATIM))
def test_r8_our_own_events_are_verbatim(event_type: str) -> None:
    value = {"token": "a", "text": "secret=c"}
    entry = made(value, value, event_type)
    assert (msgspec.json.decode(entry.payload), msgspec.json.decode(entry.meta or b"")) == (value, value)
    assert redacted(entry, REDACTION) is entry


def test_r9_the_verbatim_types_are_a_closed_list() -> None:
    assert frozenset(EVENTS) == VERBATIM
    assert {EVENT_TYPE, *RUN_EVENTS} <= VERBATIM
    assert all(event_type.startswith("stepwell.") for event_type in VERBATIM)
    assert not hasattr(VERBATIM, "add")
    with pytest.raises(TypeError):
        EVENTS["mine"] = "m"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]  # that it cannot be is the test
    for event_type in ("stepwell.", "stepwell.run-started ", "STEPWELL.run-started", "stepwell.run-started.x"):
        assert made({"token": "a"}, event_type=event_type).payload == b'{"token":"[REDACTED]"}'


def test_an_entry_of_others_is_redacted_and_is_the_same_in_its_slot() -> None:
    payload = b'{"token":"a"}'
    of_content = NewEntry("t", payload, Source("s", 0), identity_of("t", payload, None))
    left = redacted(of_content, REDACTION)
    assert left == made({"token": "b"})
    in_a_slot = NewEntry("t", payload, Source("s", 0), b"slot")
    assert redacted(in_a_slot, REDACTION) == NewEntry("t", b'{"token":"[REDACTED]"}', Source("s", 0), b"slot")
    assert redacted(of_content, None) is of_content
    assert redacted(NewEntry("t", b"{ no json"), REDACTION).payload == f'"{REDACTED}"'.encode()
    row = provenance_entry("admitted", RecordedRef("k", "token=abc", 1))
    assert redacted(row, REDACTION) is row


def test_a_payload_that_is_too_long() -> None:
    entry = made("x" * 8)
    assert too_large(entry, 10) is None
    invalid = too_large(entry, 9)
    assert invalid is not None
    assert "10 bytes of JSON" in invalid.message
    spilled = spilled_entry(entry, "d" * 64)
    assert (spilled.spilled, spilled.identity, spilled.source) == (True, entry.identity, entry.source)
    assert msgspec.json.decode(spilled.payload) == {"artifact": "d" * 64, "size_bytes": 10}


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None, "1"])
def test_j1_an_option_that_makes_no_sense(number: object) -> None:
    invalid = positive("page_size", number)
    assert invalid is not None
    assert "page_size" in invalid.message
    assert positive("page_size", 1) is None


def _same(one: object, other: object) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def test_the_documentation_has_the_closed_set_of_events() -> None:
    page = (Path(__file__).parents[2] / "docs" / "journal.md").read_text("utf-8")
    _, _, table = page.partition("| type | says |\n|---|---|\n")
    rows = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    assert {event_type.strip("`"): says for event_type, says in rows} == dict(EVENTS)
