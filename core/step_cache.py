"""The step cache: what was recorded under a cache key, and what becomes of one more row.

    recorded row    a result, kept for as long as the run that recorded it; never changed
    head            the row in force for a key, if there is one

The first writer wins: where a key has a head, a further row is recorded and never put in force. Whether its result is
the same is told; whether that matters is not decided here (`Inconsistency`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "KEY_CHARACTERS",
    "RESULT_BYTES",
    "CacheConflict",
    "CacheEntry",
    "CacheMiss",
    "ExistingSame",
    "HeldHead",
    "Inserted",
    "InvalidEntry",
    "Placement",
    "Recorded",
    "RecordedRef",
    "Standing",
    "place",
]

RESULT_BYTES: Final = 4 * 1024 * 1024
"""The largest result, and the largest meta, of a row, as JSON."""

KEY_CHARACTERS: Final = 256
"""The longest cache key; it consists of letters, digits, "-" and "_"."""


@dataclass(frozen=True, slots=True)
class RecordedRef:
    """One recorded row: the result kept under a cache key, by the entry of the run that recorded it.

    All three are needed: two runs may record one key under the same number, and one run may record it twice.
    """

    key_digest: str
    recorded_run_id: str
    recorded_event_seq: int


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A recorded row with what it holds: JSON values. `created_at_ms` is by the ledger's clock."""

    ref: RecordedRef
    result: object
    meta: Mapping[str, object]
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Inserted:
    """The row is recorded, and in force for its key."""

    ref: RecordedRef


@dataclass(frozen=True, slots=True)
class ExistingSame:
    """The key has this row in force, with the same result."""

    ref: RecordedRef


# --- failures ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """Nothing is in force for the key that may be served. `remote`: a shared tier did not answer, which may have it."""

    key_digest: str
    remote: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class CacheConflict:
    """The key has another result: that of this row, which stays."""

    existing: RecordedRef


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """What was given can be no row, and why. Nothing was changed."""

    message: str


# --- what becomes of one more row -------------------------------------------

Standing: TypeAlias = Literal["inserted", "existing_same", "conflict"]


class HeldHead(Struct, frozen=True, gc=False):
    """The head of a key as it is stored. `result_digest` is None if its row is gone or damaged."""

    ref: RecordedRef
    result_digest: bytes | None


class Recorded(Struct, frozen=True, gc=False):
    """What became of a row: `standing` says how it stands to the row that is in force now, `head`."""

    ref: RecordedRef
    standing: Standing
    head: RecordedRef


class Placement(Struct, frozen=True, gc=False):
    """What is to be written for a row: whether it itself is, whether it becomes the head, and which one goes for it."""

    recorded: Recorded
    writes_row: bool
    sets_head: bool
    removes: RecordedRef | None = None


def place(ref: RecordedRef, digest: bytes, sealed: bytes, known: bytes | None, head: HeldHead | None) -> Placement:
    """What becomes of a row with this result and seal; `known` is the seal of the row of that name, if there is one.

    A row that is there already is not written again; with other content it is a conflict, whatever the head is. A head
    whose own row cannot be read stands against nobody: it goes.
    """
    if known is not None and known != sealed:
        return Placement(Recorded(ref, "conflict", ref), writes_row=False, sets_head=False)
    new = known is None
    if head is None:
        return Placement(Recorded(ref, "inserted" if new else "existing_same", ref), writes_row=new, sets_head=True)
    if head.ref == ref:
        return Placement(Recorded(ref, "existing_same", ref), writes_row=new, sets_head=False)
    if head.result_digest is None:
        return Placement(Recorded(ref, "inserted", ref), writes_row=new, sets_head=True, removes=head.ref)
    same: Standing = "existing_same" if head.result_digest == digest else "conflict"
    return Placement(Recorded(ref, same, head.ref), writes_row=new, sets_head=False)
