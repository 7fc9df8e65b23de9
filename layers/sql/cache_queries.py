"""Reading the step cache: one function for each question that a ledger answers, over a connection."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.recorded_row import HeadRow, StoredRow
from ...core.step_cache import RecordedRef
from . import journal_statements as sql
from .connection import Connection
from .journal_rows import read_head, read_recorded
from .rows import MOST, Row, bounded, to_integer, to_text

__all__ = ["are_recorded", "cache_changes", "head", "heads", "in_force", "recorded", "recorded_of"]

FEW = 4
"""Up to how many pages of heads are sorted anew for each page of them."""


def cache_changes(connection: Connection) -> int:
    ((changes,),) = connection.rows(sql.CACHE_CHANGES)
    return to_integer(changes)


def head(connection: Connection, key_digest: str) -> HeadRow | None:
    row = connection.row(sql.HEAD, key_digest)
    return None if row is None else read_head(row)


def heads(connection: Connection, after: str, created_before_ms: int | None, limit: int) -> tuple[HeadRow, ...]:
    if created_before_ms is None:
        rows = connection.rows(sql.HEADS, after, bounded(limit))
    else:
        before = bounded(created_before_ms)
        if connection.row(sql.MANY_HEADS_BEFORE, before, bounded(FEW * limit)) is not None:
            rows = connection.rows(sql.HEADS_BEFORE, after, before, bounded(limit))
        else:
            rows = connection.rows(sql.FEW_HEADS_BEFORE, before, after, bounded(limit))
    return tuple(map(read_head, rows))


def recorded(connection: Connection, ref: RecordedRef) -> StoredRow | None:
    place = _place(ref)
    row = None if place is None else connection.row(sql.RECORDED, *place)
    return None if row is None else read_recorded(ref, row)


def in_force(connection: Connection, key_digest: str) -> StoredRow | None:
    row = connection.row(sql.IN_FORCE, key_digest)
    if row is None:
        return None
    run_id, seq, *found = row
    return read_recorded(RecordedRef(key_digest, to_text(run_id), to_integer(seq)), tuple(found))


def recorded_of(connection: Connection, run_id: str, after: RecordedRef | None, limit: int) -> tuple[RecordedRef, ...]:
    key, seq = ("", -MOST) if after is None else (after.key_digest, bounded(after.recorded_event_seq))
    rows = connection.rows(sql.RECORDED_OF, run_id, key, seq, bounded(limit))
    return tuple(RecordedRef(to_text(key), run_id, to_integer(seq)) for key, seq in rows)


def are_recorded(connection: Connection, refs: Sequence[RecordedRef]) -> frozenset[RecordedRef]:
    places = [place for place in map(_place, refs) if place is not None]
    rows = connection.rows_of_many(sql.IS_RECORDED, places)
    return frozenset(RecordedRef(to_text(key), to_text(run_id), to_integer(seq)) for key, run_id, seq in rows)


def _place(ref: RecordedRef) -> Row | None:
    """None where no row can be."""
    seq = ref.recorded_event_seq
    return (ref.recorded_run_id, ref.key_digest, seq) if seq == bounded(seq) else None
