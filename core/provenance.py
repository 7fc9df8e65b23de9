"""What the journals say of the rows of the step cache: the entries, and all that was found in them.

`core/cache_fold.py` tells which rows are in force. This module keeps beside each row where that was said, so that it
can be explained, and carries it forward where entries go: what was admitted stays admitted, and what was retired stays
retired, in a compacted part, a rewound one, or a run that is forgotten. Carrying is a union, so it may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Literal, TypeAlias, final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder as JsonDecoder
from msgspec.json import encode as encode_json
from msgspec.msgpack import Decoder, Encoder

from .cache_fold import EVENT_TYPE, RETIRING, ref_id
from .entry import EntryRow, NewEntry
from .journal import Source
from .step_cache import RecordedRef

__all__ = [
    "CACHE_JOURNAL",
    "Action",
    "Admission",
    "Carried",
    "Found",
    "Retirement",
    "Row",
    "provenance_entry",
    "read_carried",
    "slot",
    "write_carried",
]

CACHE_JOURNAL: Final = "stepwell:step-cache"
"""The journal of the step cache itself: it outlives every run, and has what is said of rows outside of runs."""

Action: TypeAlias = Literal[
    "recorded",
    "admitted",
    "hit",
    "ttl",
    "expired",
    "stale_read_set",
    "replay_failed",
    "removed",
    "unpublished",
    "conflict_first_writer",
    "unverified_read_set",
]

_encode: Final = Encoder().encode


def provenance_entry(action: Action, ref: RecordedRef, reason: str | None = None, **more: str | int | None) -> NewEntry:
    """The entry that says what became of a row. It has a slot of its own, in which the first reason stays."""
    payload: dict[str, str | int] = {
        "action": action,
        "key_digest": ref.key_digest,
        "recorded_run_id": ref.recorded_run_id,
        "recorded_event_seq": ref.recorded_event_seq,
    }
    if reason is not None:
        payload["reason"] = reason
    payload.update({name: value for name, value in more.items() if value is not None})
    source, identity = slot(action, ref)
    return NewEntry(EVENT_TYPE, encode_json(payload), source, identity)


def slot(action: str, ref: RecordedRef) -> tuple[Source, bytes]:
    """The source of the one entry that says this of a row, and what another one must have to be taken for it."""
    named = ref_id(ref)
    return Source(f"cache:{action}:{named}", 0), sha256(_encode((EVENT_TYPE, action, named))).digest()


# --- what was found ---------------------------------------------------------

Row: TypeAlias = tuple[str, str, int]
"""The members of a `RecordedRef`."""


class Admission(Struct, frozen=True, array_like=True, gc=False):
    """Where it is said that a row was admitted: in which journal, under which number, and the how manyth commit."""

    run_id: str
    seq: int
    no: int


class Retirement(Struct, frozen=True, array_like=True, gc=False):
    """Where it is said that a row was retired, and why."""

    run_id: str
    seq: int
    no: int
    action: str
    reason: str | None


class Carried(Struct, frozen=True, array_like=True):
    """What entries that are gone said of rows."""

    admitted: tuple[tuple[Row, Admission], ...] = ()
    retired: tuple[tuple[Row, Retirement], ...] = ()


class _Payload(Struct, frozen=True, gc=False):
    """What every entry of the type has, and what few have."""

    action: str
    key_digest: str
    recorded_run_id: str
    recorded_event_seq: int
    reason: object = None


_read: Final = JsonDecoder(_Payload).decode


@final
class Found:
    """Rows that were admitted and rows that were retired, each with the first place that says so.

    It is filled entry by entry, in any order, and comes to the same: the place with the smallest number stays.
    """

    __slots__ = ("admitted", "retired")

    def __init__(self) -> None:
        self.admitted: dict[Row, Admission] = {}
        self.retired: dict[Row, Retirement] = {}

    def add(self, entry: EntryRow) -> None:
        """Take note of an entry. One of another type, or that makes no sense, says nothing."""
        if entry.event_type == EVENT_TYPE:
            _ = self.add_all((entry,))

    def add_all(self, entries: Iterable[EntryRow]) -> list[Row]:
        """The same for many entries of the type: the rows of which they say something."""
        admitted = self.admitted
        rows: list[Row] = []
        for entry in entries:
            try:
                said = _read(entry.payload)
            except DecodeError:  # also what has other members, or of other types
                continue
            action = said.action
            if action == "admitted":
                row = (said.key_digest, said.recorded_run_id, said.recorded_event_seq)
                if row not in admitted or entry.no < admitted[row].no:
                    admitted[row] = Admission(entry.run_id, entry.seq, entry.no)
            elif action in RETIRING:
                row = (said.key_digest, said.recorded_run_id, said.recorded_event_seq)
                reason = said.reason if isinstance(said.reason, str) else None
                self._retire(row, Retirement(entry.run_id, entry.seq, entry.no, action, reason))
            else:
                continue
            rows.append(row)
        return rows

    def _retire(self, row: Row, retirement: Retirement) -> None:
        known = self.retired.get(row)
        if known is None or retirement.no < known.no:
            self.retired[row] = retirement

    def union(self, carried: Carried) -> None:
        """Take note of what was carried."""
        for row, admission in carried.admitted:
            known = self.admitted.get(row)
            if known is None or admission.no < known.no:
                self.admitted[row] = admission
        for row, retirement in carried.retired:
            self._retire(row, retirement)

    def carried(self) -> Carried:
        """All of it, to be kept."""
        return Carried(
            tuple(sorted(self.admitted.items(), key=_row_of)), tuple(sorted(self.retired.items(), key=_row_of))
        )

    @classmethod
    def of(cls, entries: Iterable[EntryRow], carried: Carried | None = None) -> Found:
        """What these entries say, with what was carried before."""
        found = cls()
        if carried is not None:
            found.union(carried)
        for entry in entries:
            found.add(entry)
        return found


def _row_of(item: tuple[Row, object]) -> Row:
    return item[0]


# --- as it is kept ----------------------------------------------------------

_SEAL_BYTES: Final = 32
_carried: Final = Decoder(Carried).decode


def write_carried(carried: Carried) -> bytes:
    """As bytes, sealed."""
    body = _encode(carried)
    return sha256(body).digest() + body


def read_carried(data: bytes | None) -> Carried | None:
    """What was carried; None if that cannot be read, or was not kept."""
    if data is None or sha256(data[_SEAL_BYTES:]).digest() != data[:_SEAL_BYTES]:
        return None
    try:
        return _carried(data[_SEAL_BYTES:])
    except DecodeError:
        return None
