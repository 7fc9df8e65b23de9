"""What a wait for a signal came to, as its row holds it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.codec import codec_of
from stepwell.core.model import TimedOut
from stepwell.core.signal_reading import SignalReading, read_signal, read_signal_reading

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.none() | st.text(), st.none() | st.text(min_size=1))
def test_a_reading_comes_back_as_it_was(value: object, invalid: str | None, again: str | None) -> None:
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    reading = SignalReading(written, invalid, again)
    assert read_signal_reading(reading.encode()) == reading
    assert reading.timed_out is None


@given(st.integers(0, 2**53))
def test_a_time_out_reads_nothing(after_ms: int) -> None:
    back = read_signal_reading(SignalReading(None, after_ms=after_ms).encode())
    assert back.value is None
    assert back.timed_out == TimedOut(after_ms)


def test_a_value_that_does_not_fit_says_why_and_is_kept() -> None:
    reading = read_signal(b'"x"', codec_of(int), "the signal 'n'", again="signal:n:1")
    assert reading.value == b'"x"'
    assert reading.again == "signal:n:1"
    assert "the signal 'n'" in (reading.invalid or "")
    assert read_signal(b"7", codec_of(int), "the signal 'n'").invalid is None


@pytest.mark.parametrize("stored", [b"[]", b"7"])
def test_what_is_no_reading_is_a_fault(stored: bytes) -> None:
    with pytest.raises(ValueError, match="no reading of a signal"):
        _ = read_signal_reading(stored)
