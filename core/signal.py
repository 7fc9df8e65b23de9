"""A signal: a value that is sent to a run under a name, and read by the run, once, in the order of commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["UNREAD_SIGNALS", "SignalRow"]

UNREAD_SIGNALS: Final = 10_000
"""How many signals of a run may be unread."""


@dataclass(frozen=True, slots=True)
class SignalRow:
    """A signal as it is stored. `value` is JSON; `dedupe` is unique among the signals of that run and name.

    `no` is given by the ledger, in the order of commits over all runs; 0 is not stored yet.
    """

    run_id: str
    name: str
    value: bytes
    dedupe: str | None = None
    no: int = 0
