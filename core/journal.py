"""An entry of the journal, and what it takes to fold entries to a state; values only.

A projection is a pure pair: `initial()` makes the state before any entry, and `reduce(state, entry)` the state after
one more. A reducer changes no state that it was given and reads nothing but its two arguments, so the entries of a
run fold to the same state whoever folds them, live or years later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar, final

from msgspec import Struct

from .model import guarded

__all__ = [
    "PAYLOAD_BYTES",
    "SAFE_INTEGER",
    "Appended",
    "Checkpoint",
    "Compacted",
    "Entry",
    "IdempotencyConflict",
    "InvalidCheckpoint",
    "InvalidEvent",
    "Owner",
    "Page",
    "Projection",
    "Source",
    "Tampered",
    "Verified",
]

PAYLOAD_BYTES: Final = 256 * 1024
"""The largest payload that is kept in the journal itself, as JSON; one that is larger becomes an artifact."""

SAFE_INTEGER: Final = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exactly; no entry has a number that is not below it."""

_S = TypeVar("_S")


@dataclass(frozen=True, slots=True)
class Source:
    """Who produced an entry, and under which number of its own: the pair makes a repeated append a duplicate."""

    id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored row of a run's journal.

    `seq` orders the entries of `run_id`, `payload` is the JSON value that the event type calls for, and `at_ms` is
    the instant of the append in milliseconds of the ledger's clock. `source` is None where nobody named one.
    """

    run_id: str
    seq: int
    event_type: str
    payload: object
    source: Source | None
    at_ms: int
    meta: Mapping[str, object] | None


@guarded
@dataclass(frozen=True, slots=True)
class Projection(Generic[_S]):
    """How entries become a state: what there is before the first one, and what each of them does to it."""

    initial: Callable[[], _S]
    reduce: Callable[[_S, Entry], _S]


@final
@dataclass(frozen=True, slots=True)
class Owner:
    """Who drives a run, by name, with the fence of its claim: what it appends is refused once another has the run."""

    id: str
    fence: int


class Appended(Struct, frozen=True, gc=False):
    """An entry is in the journal, under this number; `duplicate`: it was there before, from the same source."""

    seq: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries of a run, in order, and whether there are more of those that were asked for."""

    entries: tuple[Entry, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state that stands for all entries up to `seq`. Once compacted, the entries before `seq` are gone."""

    run_id: str
    seq: int
    state: object
    compacted_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Verified:
    """So many runs, with so many entries: every hash is right."""

    runs: int
    entries: int


# --- failures ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdempotencyConflict:
    """The source has another entry under this number, with other content. Nothing was appended."""

    run_id: str
    source: Source


@dataclass(frozen=True, slots=True)
class InvalidEvent:
    """What was given is no event, and why. Nothing was appended."""

    message: str


@dataclass(frozen=True, slots=True)
class InvalidCheckpoint:
    """No checkpoint can be at `seq`, or nothing can be compacted to it: `message` says why, `floor` what is kept."""

    run_id: str
    seq: int
    code: Literal["checkpoint_invalid", "reader_behind"] = field(default="checkpoint_invalid", compare=False)
    message: str = field(default="", compare=False)
    floor: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The entries below `floor` are gone: go on from the checkpoint there."""

    run_id: str
    floor: int


@dataclass(frozen=True, slots=True)
class Tampered:
    """What is stored at this place is not what was written there; `message` says what is wrong with it."""

    run_id: str
    seq: int
    message: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """Where it is, in words: -1 is no entry, and what belongs to no journal has no run."""
        journal = f"the journal of {self.run_id!r}" if self.run_id else "its journals"
        return f"entry {self.seq} of {journal}" if self.run_id and self.seq >= 0 else journal
