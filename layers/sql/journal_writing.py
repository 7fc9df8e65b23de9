"""The rows of journals and of the step cache that a group writes, table by table."""

from __future__ import annotations

from ...core.journal_writes import CompactJournal, ForgetJournal, RewindJournal, WriteCheckpoint
from . import journal_statements as sql
from .connection import Connection
from .held_journals import JournalState
from .journal_changes import JournalChanges
from .journal_rows import entry_cells, read_checkpoint, seal_of
from .points import CommitPoint, OnPoint
from .rows import MOST, Row, Value

__all__ = ["write_journals"]


def write_journals(connection: Connection, changes: JournalChanges, reached: OnPoint) -> None:
    """Write table by table, what goes before what comes, and say so after each kind of row."""
    held, writer = changes.held, changes.writer
    states = changes.journals()
    held.touched += states.values()
    if states:
        _write_journals(connection, changes, states)
        reached(CommitPoint.AFTER_JOURNALS)
    if changes.carried:
        _cut(connection, changes, states)
    if writer.entries:
        numbers = {run_id: state.jno for run_id, state in states.items()}
        connection.insert_cells(sql.INSERT_ENTRY, entry_cells(writer.entries, numbers))
        reached(CommitPoint.AFTER_ENTRIES)
    if writer.sources:
        connection.insert_cells(sql.INSERT_SOURCE, _source_cells(changes, states))
        reached(CommitPoint.AFTER_SOURCES)
    if changes.checkpoints:
        _write_checkpoints(connection, changes)
        reached(CommitPoint.AFTER_CHECKPOINTS)
    if writer.rows or held.forgotten:
        _write_recorded(connection, changes)
        reached(CommitPoint.AFTER_RECORDED)
    if writer.heads:
        _write_heads(connection, changes)
        reached(CommitPoint.AFTER_HEADS)
    if held.changes != held.stored_changes:
        connection.run(sql.UPDATE_CACHE_CHANGES, held.changes)


# --- journals ---------------------------------------------------------------


def _source_cells(changes: JournalChanges, states: dict[str, JournalState]) -> list[Value]:
    cells: list[Value] = []
    for run_id, source, seq, known in changes.writer.sources:
        sealed = seal_of(run_id, source.id, source.seq, seq, known)
        cells += (states[run_id].jno, source.id, source.seq, seq, known, sealed)
    return cells


def _write_journals(connection: Connection, changes: JournalChanges, states: dict[str, JournalState]) -> None:
    ends: list[Row] = []
    new_ends: list[Row] = []  # as of stores
    for run_id, state in states.items():
        end = state.end
        row = (end.last_seq, end.chain, seal_of(run_id, end.last_seq, end.chain), state.jno)
        (ends if end.stored else new_ends).append(row)
        if end.stored and run_id not in changes.carried:
            continue
        carried = changes.carried.get(run_id)
        rest = (end.generation, end.floor, state.floor_chain)
        sealed = seal_of(run_id, *rest, carried)
        if end.stored:
            connection.run(sql.UPDATE_JOURNAL, *rest, sealed, carried, state.jno)
        else:
            connection.run(sql.INSERT_JOURNAL, run_id, *rest, sealed, carried, state.jno)
    connection.insert_rows(sql.UPSERT_END, ends)
    connection.insert_rows(sql.INSERT_END, new_ends)


def _cut(connection: Connection, changes: JournalChanges, states: dict[str, JournalState]) -> None:
    """Remove what does not stay of the entries that are stored, and of their sources."""
    for run_id in changes.carried:
        state = states[run_id]
        if not state.end.stored:
            continue
        if state.low > 0:
            connection.run(sql.CUT_BELOW, state.jno, state.low)
        if state.high < MOST:
            connection.run(sql.CUT_ABOVE, state.jno, state.high)
            connection.run(sql.CUT_SOURCES, state.jno, state.high)
        if run_id in changes.held.forgotten:
            connection.run(sql.DELETE_REWINDS, state.jno)
    connection.run(sql.KEEP_ENTRY_NUMBER, changes.held.last_no)
    connection.run_many(
        sql.INSERT_REWIND,
        [
            (
                states[run_id].jno,
                *(rest := (rewind.generation, rewind.from_seq, rewind.to_seq, rewind.at_ms, rewind.chain)),
                seal_of(run_id, *rest),
            )
            for rewind in changes.rewinds
            for run_id in (rewind.run_id,)
        ],
    )


def _write_checkpoints(connection: Connection, changes: JournalChanges) -> None:
    at_ms = changes.at_ms
    for write, jno in changes.checkpoints:
        match write:
            case WriteCheckpoint(run_id, seq, state):
                sealed = seal_of(run_id, seq, at_ms, None, state)
                connection.run(sql.UPSERT_CHECKPOINT, jno, seq, at_ms, sealed, state)
            case CompactJournal(run_id, seq):
                connection.run(sql.DELETE_CHECKPOINTS_BELOW, jno, seq)
                _stamp(connection, run_id, jno, seq, at_ms)
            case RewindJournal(to_seq=to_seq):
                connection.run(sql.DELETE_CHECKPOINTS_ABOVE, jno, to_seq)
            case ForgetJournal():
                connection.run(sql.DELETE_CHECKPOINTS, jno)


def _stamp(connection: Connection, run_id: str, jno: int, seq: int, at_ms: int) -> None:
    """Say of a checkpoint that the journal was compacted to it; of a damaged one too, which stays damaged."""
    row = connection.row(sql.CHECKPOINT, jno, seq)
    if row is None:
        return
    found = read_checkpoint(run_id, row)
    sealed = b"" if found.state is None else seal_of(run_id, seq, found.at_ms, at_ms, found.state)
    connection.run(sql.STAMP_CHECKPOINT, at_ms, sealed, jno, seq)


# --- the step cache ---------------------------------------------------------


def _write_recorded(connection: Connection, changes: JournalChanges) -> None:
    connection.run_many(sql.DELETE_RECORDED, [(run_id,) for run_id in sorted(changes.held.forgotten)])
    connection.run_many(
        sql.INSERT_RECORDED,
        [
            (
                each.ref.recorded_run_id,
                each.ref.key_digest,
                each.ref.recorded_event_seq,
                each.row.created_at_ms,
                each.result_digest,
                each.seal,
                each.row.meta,
                each.row.result,
            )
            for each in changes.writer.rows
        ],
    )


def _write_heads(connection: Connection, changes: JournalChanges) -> None:
    created_at_ms = changes.held.created_at_ms
    gone: list[Row] = []
    heads: list[Row] = []
    for key, ref in changes.writer.heads.items():
        if ref is None:
            gone.append((key,))
        else:
            heads.append((key, ref.recorded_run_id, ref.recorded_event_seq, created_at_ms[key]))
    connection.run_many(sql.DELETE_HEAD, gone)
    connection.run_many(sql.UPSERT_HEAD, heads)
