"""What a run's wait for a signal came to, as the JSON that its row holds.

`{"signal": value}` is a signal that was read, with `"invalid"` beside it if the value is not of the type that was asked
for, and with `"again"`, the key of the call that read it first and lost a race. `{"timed_out": ms}` read none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .codec import Codec
from .kind import is_dict
from .model import TimedOut

__all__ = ["SignalReading", "read_signal", "read_signal_reading"]


@dataclass(frozen=True, slots=True)
class SignalReading:
    """A signal's value as JSON, None if none came within `after_ms`; `invalid` says why it does not fit its type."""

    value: bytes | None
    invalid: str | None = None
    again: str | None = None
    after_ms: int = 0

    @property
    def timed_out(self) -> TimedOut | None:
        return TimedOut(self.after_ms) if self.value is None else None

    def encode(self) -> bytes:
        """The value of the row."""
        if self.value is None:
            return b'{"timed_out":%d}' % self.after_ms
        notes = {"invalid": self.invalid, "again": self.again}
        rest = json.dumps({name: text for name, text in notes.items() if text is not None})[1:-1]
        return b'{"signal":' + self.value + (b"," + rest.encode() if rest else b"") + b"}"


def read_signal(value: bytes, codec: Codec, what: str, again: str | None = None) -> SignalReading:
    """The reading of a signal by a call that asks for the type of `codec`."""
    try:
        _ = codec.decode(value, what)
    except Exception as error:  # a validator may raise anything
        return SignalReading(value, str(error) or type(error).__name__, again)
    return SignalReading(value, None, again)


def read_signal_reading(data: bytes) -> SignalReading:
    """What `encode` gave."""
    raw: object = json.loads(data)
    if not is_dict(raw):
        raise ValueError(f"{data!r} is no reading of a signal")
    if "signal" not in raw:
        return SignalReading(None, after_ms=int(str(raw["timed_out"])))
    value = json.dumps(raw["signal"], ensure_ascii=False, separators=(",", ":")).encode()
    invalid, again = raw.get("invalid"), raw.get("again")
    return SignalReading(
        value, invalid if isinstance(invalid, str) else None, again if isinstance(again, str) else None
    )
