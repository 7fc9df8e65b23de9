"""Rows of journals and of the step cache as values of ours, and the seals by which a damaged one is known.

An entry needs no seal: its hash is a link of a chain that whoever verifies a journal follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from msgspec.msgpack import Encoder

from ...core.entry import EntryRow, RewindRow
from ...core.journal import Source
from ...core.recorded_row import HeadRow, RecordedRow, StoredRow, result_digest, seal
from ...core.step_cache import RecordedRef
from ...services.journal_rows import CheckpointRow, JournalRow, SourceRow
from .rows import Row, Value, optional_blob, to_blob, to_integer, to_text

__all__ = [
    "DamagedRow",
    "entry_cells",
    "read_checkpoint",
    "read_entry",
    "read_head",
    "read_journal",
    "read_recorded",
    "read_rewind",
    "read_source",
    "seal_of",
]

_encode: Final = Encoder().encode


class DamagedRow(ValueError):
    """What is stored cannot be what was written, and what stands there cannot be gone on from."""


def seal_of(*content: str | int | bytes | None) -> bytes:
    """The hash of all that a row holds; it names the run, not the number that stands for it."""
    return sha256(_encode(content)).digest()


# --- entries ----------------------------------------------------------------


def entry_cells(entries: Iterable[EntryRow], numbers: Mapping[str, int]) -> list[Value]:
    """One after another, in the order of the columns of `INSERT_ENTRY`; `numbers` are those of the journals."""
    cells: list[Value] = []
    for e in entries:
        jno, source = numbers[e.run_id], e.source
        name, number = (None, None) if source is None else (source.id, source.seq)
        cells += (e.no, jno, e.seq, e.event_type, e.at_ms, name, number, e.spilled, e.chain, e.meta, e.payload)
    return cells


def read_entry(run_id: Value, row: Row) -> EntryRow:
    """In the order of `ENTRY_COLUMNS`. Raises `DamagedRow`, naming the run and the number."""
    no, seq, event_type, at_ms, source, source_seq, spilled, chain, meta, payload = row
    try:
        return EntryRow(
            to_text(run_id),
            to_integer(seq),
            to_text(event_type),
            to_integer(at_ms),
            None if source is None and source_seq is None else Source(to_text(source), to_integer(source_seq)),
            to_blob(payload),
            optional_blob(meta),
            _to_truth(spilled),
            to_blob(chain),
            to_integer(no),
        )
    except TypeError as error:
        raise DamagedRow(f"the entry {seq!r} of the run {run_id!r} cannot be read: {error}") from None


def _to_truth(value: Value) -> bool:
    if value not in (0, 1):
        raise TypeError(f"the database holds {value!r} where a truth value belongs")
    return bool(value)


# --- journals ---------------------------------------------------------------


def read_journal(row: Row) -> JournalRow:
    """In the order of the columns of `JOURNALS`. What cannot be read stands as nothing, and it is not sealed."""
    run_id, generation, floor, floor_chain, sealed, last_seq, chain, end_sealed, carried = row
    name = to_text(run_id)
    as_written = (
        sealed == _seal_or_none(name, generation, floor, floor_chain, carried)
        and end_sealed == _seal_or_none(name, last_seq, chain)
        and isinstance(last_seq, int)
        and isinstance(chain, bytes)
        and isinstance(generation, int)
    )
    return JournalRow(
        name,
        last_seq if isinstance(last_seq, int) else -1,
        chain if isinstance(chain, bytes) else b"",
        generation if isinstance(generation, int) else 0,
        floor if isinstance(floor, int) else None,
        floor_chain if isinstance(floor_chain, bytes) else None,
        carried if isinstance(carried, bytes) else None,
        as_written,
    )


def read_source(run_id: str, row: Row) -> SourceRow:
    """In the order of the columns of `SOURCES`; whether it is what was written is told."""
    source, source_seq, seq, identity, sealed = row
    as_written = sealed == _seal_or_none(run_id, source, source_seq, seq, identity)
    return SourceRow(
        Source(to_text(source), to_integer(source_seq)),
        seq if isinstance(seq, int) else -1,
        identity if isinstance(identity, bytes) else b"",
        as_written,
    )


def read_checkpoint(run_id: str, row: Row) -> CheckpointRow:
    """In the order of the columns of `CHECKPOINTS`; a damaged one has no state."""
    seq, at_ms, compacted_at_ms, sealed, state = row
    as_written = sealed == _seal_or_none(run_id, seq, at_ms, compacted_at_ms, state)
    return CheckpointRow(
        run_id,
        to_integer(seq),
        state if as_written and isinstance(state, bytes) else None,
        at_ms if isinstance(at_ms, int) else 0,
        compacted_at_ms if isinstance(compacted_at_ms, int) else None,
    )


def read_rewind(run_id: str, row: Row) -> RewindRow:
    """In the order of the columns of `REWINDS`; whether it is what was written is told."""
    generation, from_seq, to_seq, at_ms, chain, sealed = row
    as_written = sealed == _seal_or_none(run_id, generation, from_seq, to_seq, at_ms, chain)
    return RewindRow(
        run_id,
        to_integer(generation),
        from_seq if isinstance(from_seq, int) else -1,
        to_seq if isinstance(to_seq, int) else -1,
        at_ms if isinstance(at_ms, int) else 0,
        chain if isinstance(chain, bytes) else b"",
        as_written,
    )


def _seal_or_none(*content: Value) -> bytes | None:
    """The seal of what is stored; None where a cell holds what no such row has."""
    written = [cell for cell in content if not isinstance(cell, float)]
    return seal_of(*written) if len(written) == len(content) else None


# --- the step cache ---------------------------------------------------------


def read_recorded(ref: RecordedRef, row: Row) -> StoredRow:
    """In the order of the columns of `RECORDED`; a damaged one has no row."""
    created_at_ms, digest, sealed, meta, result = row
    try:
        found = RecordedRow(
            ref.key_digest,
            ref.recorded_run_id,
            ref.recorded_event_seq,
            to_blob(result),
            to_blob(meta),
            to_integer(created_at_ms),
        )
    except TypeError:
        return StoredRow(ref, None)
    as_written = sealed == seal(found) and digest == result_digest(found.result)
    return StoredRow(ref, found if as_written else None)


def read_head(row: Row) -> HeadRow:
    """In the order of the columns of `HEADS`."""
    key, run_id, seq, created_at_ms = row
    return HeadRow(RecordedRef(to_text(key), to_text(run_id), to_integer(seq)), to_integer(created_at_ms))
