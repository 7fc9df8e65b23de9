"""Reading journals: one function for each question that a ledger answers, over a connection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...core.entry import EntryRow, RewindRow
from ...core.journal import Source
from ...services.journal_rows import CheckpointRow, EntryPage, JournalRow, SourceRow
from . import journal_statements as sql
from .connection import Connection
from .journal_rows import DamagedRow, read_checkpoint, read_entry, read_journal, read_rewind, read_source
from .reading import snapshot
from .rows import MOST, Row, Value, bounded, to_integer

__all__ = [
    "checkpoints",
    "entries",
    "entry_of",
    "journal",
    "journals",
    "newest",
    "provenance",
    "rewinds",
    "sources",
    "stray_row",
]


def journal(connection: Connection, run_id: str) -> JournalRow | None:
    row = connection.row(sql.JOURNAL, run_id)
    return None if row is None else read_journal(row)


def journals(connection: Connection, after: str | None, limit: int) -> tuple[JournalRow, ...]:
    return tuple(map(read_journal, connection.rows(sql.JOURNALS, after or "", bounded(limit))))


def entries(
    connection: Connection, run_id: str, after: int | None, event_types: Collection[str] | None, limit: int
) -> EntryPage:
    """A page looks at no more entries than it has, for each of the types, and reads those that it has."""
    with snapshot(connection):
        place = connection.row(sql.JOURNAL_PLACE, run_id)
        if place is None:
            return EntryPage((), has_more=False, floor=None)
        jno, floor = place
        begin, most = bounded(-1 if after is None else after), bounded(limit)
        if event_types is None:
            found = _page(connection, run_id, jno, begin, most)
            last = found[-1].seq if found else begin
            has_more = len(found) == most and bool(connection.rows(sql.ENTRY_PLACES, jno, last, 1))
        else:
            places = _places_of_types(connection, jno, begin, bounded(most + 1), event_types)
            found = _entries_at(connection, run_id, places[:most])
            has_more = len(places) > most
    return EntryPage(tuple(found), has_more, floor if isinstance(floor, int) else None)


def _page(connection: Connection, run_id: str, jno: Value, begin: int, most: int) -> list[EntryRow]:
    try:
        return [read_entry(run_id, row) for row in connection.rows(sql.ENTRIES, jno, begin, most)]
    except UnicodeDecodeError:  # one of them has no text where text belongs
        return _entries_at(connection, run_id, connection.rows(sql.ENTRY_PLACES, jno, begin, most))


def _places_of_types(
    connection: Connection, jno: Value, begin: int, most: int, event_types: Collection[str]
) -> list[Row]:
    places: list[Row] = []
    last: Value = MOST
    for event_type in set(event_types):
        places += connection.rows(sql.ENTRY_PLACES_OF_TYPE, jno, event_type, begin, last, most)
        places.sort(key=_seq_at)
        if len(places) >= most:  # of the other types nothing later is asked for
            del places[most:]
            last = places[-1][0]
    return places


def _seq_at(place: Row) -> int:
    return to_integer(place[0])


def _entries_at(connection: Connection, run_id: str, places: Iterable[Row]) -> list[EntryRow]:
    """The entries at these places, which are their numbers in the journal and in the table."""
    found: list[EntryRow] = []
    for seq, no in places:
        try:
            found += [read_entry(run_id, row) for row in connection.rows(sql.ENTRY_AT, no)]
        except UnicodeDecodeError as error:
            raise DamagedRow(f"the entry {seq!r} of the run {run_id!r} cannot be read: {error}") from None
    return found


def newest(connection: Connection, limit: int) -> tuple[EntryRow, ...]:
    return _of_all_runs(connection.rows(sql.NEWEST, bounded(limit)))


def provenance(connection: Connection, after: int, limit: int) -> tuple[EntryRow, ...]:
    return _of_all_runs(connection.rows(sql.PROVENANCE, bounded(after), bounded(limit)))


def _of_all_runs(rows: Sequence[Row]) -> tuple[EntryRow, ...]:
    return tuple([read_entry(row[0], row[1:]) for row in rows])


def entry_of(connection: Connection, run_id: str, source: Source) -> SourceRow | None:
    if source.seq != bounded(source.seq):
        return None
    row = connection.row(sql.SOURCE, run_id, source.id, source.seq)
    return None if row is None else read_source(run_id, row)


def sources(connection: Connection, run_id: str, after: Source | None, limit: int) -> tuple[SourceRow, ...]:
    name, seq = ("", -MOST) if after is None else (after.id, bounded(after.seq))
    return tuple([read_source(run_id, row) for row in connection.rows(sql.SOURCES, run_id, name, seq, bounded(limit))])


def checkpoints(connection: Connection, run_id: str) -> tuple[CheckpointRow, ...]:
    return tuple([read_checkpoint(run_id, row) for row in connection.rows(sql.CHECKPOINTS, run_id)])


def rewinds(connection: Connection, run_id: str) -> tuple[RewindRow, ...]:
    return tuple([read_rewind(run_id, row) for row in connection.rows(sql.REWINDS, run_id)])


def stray_row(connection: Connection) -> str | None:
    row = connection.row(sql.STRAY)
    return None if row is None else f"a row of {row[0]!r}, {row[2]!r} of the journal {row[1]!r}, which there is not"
