"""What is stored of journals and the step cache, as a group asks for it while it is decided, and as it then goes on.

It is looked up where it is asked for, inside the transaction, and not before: which row an eviction takes, and which
number a recorded row gets, turns out only then. What was looked up is not looked up again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar, final

from ...core.entry import EntryRow
from ...core.journal import Source
from ...core.journal_writing import HeldJournal, SealedRow
from ...core.step_cache import HeldHead, RecordedRef
from . import journal_statements as sql
from .connection import Connection
from .journal_rows import DamagedRow, read_recorded
from .rows import MOST, Row, bounded, optional_blob, optional_integer, to_blob, to_integer, to_text

__all__ = ["HeldJournals", "HeldRecorded", "JournalState"]

_T = TypeVar("_T")

KEPT: Final = 4096
"""Of how many journals the rows are kept from one group to the next."""


@dataclass(slots=True)
class JournalState:
    """A journal, with its number. Of its stored entries those from `low` to `high` stay in the end.

    `floor_chain` is the hash before the first entry that is kept, None where that is `START`.
    """

    jno: int
    end: HeldJournal
    floor_chain: bytes | None = None
    low: int = 0
    high: int = MOST
    checkpoints: set[int] = field(default_factory=set[int])
    """Those that the group has written."""

    @property
    def is_cut(self) -> bool:
        return self.low > 0 or self.high < MOST


@dataclass(slots=True, frozen=True)
class HeldRecorded:
    """What is compared of a recorded row, and when it was recorded."""

    seal: bytes
    result_digest: bytes
    created_at_ms: int


KnownSource: TypeAlias = tuple[int, bytes]
"""The number of the entry of a source, and its identity."""


@final
class HeldJournals:
    """The `Held` of `core/journal_writing.py`, over the connection that writes; and the half of `Tips` that is its.

    `pending` are the entries that the group will write; a journal that is cut loses its own among them at once.
    """

    def __init__(self, connection: Connection, last_jno: int, last_no: int, changes: int) -> None:
        self._connection = connection
        self._last_jno = last_jno
        self.last_no = last_no
        self.changes = self.stored_changes = changes
        self.pending: list[EntryRow] = []
        self.forgotten: set[str] = set()
        self._states: dict[str, JournalState] = {}
        self._sources: dict[tuple[str, Source], KnownSource | None] = {}
        self._heads: dict[str, HeldHead | None] = {}
        self._rows: dict[RecordedRef, HeldRecorded | None] = {}
        self._sound: set[RecordedRef] = set()
        self.touched: list[JournalState] = []
        """The journals of which the group has written rows."""
        self.created_at_ms: dict[str, int] = {}
        """Of the heads that the group has put in force, when their rows were recorded."""

    # --- as `JournalWriter` asks ----------------------------------------------

    def held_journal(self, run_id: str) -> HeldJournal:
        return self.state(run_id).end

    def held_source(self, run_id: str, source: Source) -> int | None:
        known = self._source(run_id, source)
        return None if known is None else known[0]

    def keep_source(self, run_id: str, source: Source, seq: int, identity: bytes) -> None:
        self._sources[run_id, source] = (seq, identity)

    def held_head(self, key_digest: str) -> HeldHead | None:
        """The digest is as it is stored; whether its row is damaged is looked at by `check_head`."""
        if key_digest in self._heads:
            return self._heads[key_digest]
        row = self._connection.row(sql.HELD_HEAD, key_digest)
        head = None if row is None else _read(f"the head of {key_digest}", row, lambda row: _head(key_digest, row))
        if head is not None and (head.ref in self._rows or head.ref.recorded_run_id in self.forgotten):
            row_now = self._rows.get(head.ref)
            head = HeldHead(head.ref, None if row_now is None else row_now.result_digest)
        self._heads[key_digest] = head
        return head

    def keep_head(self, key_digest: str, head: HeldHead | None) -> None:
        self._heads[key_digest] = head
        if head is not None and (row := self.recorded(head.ref)) is not None:
            self.created_at_ms[key_digest] = row.created_at_ms

    def held_row(self, ref: RecordedRef) -> tuple[bytes, bytes] | None:
        row = self.recorded(ref)
        return None if row is None else (row.seal, row.result_digest)

    def keep_row(self, row: SealedRow) -> None:
        self._rows[row.ref] = HeldRecorded(row.seal, row.result_digest, row.row.created_at_ms)
        self._sound.add(row.ref)
        head = self._heads.get(row.ref.key_digest)
        if head is not None and head.ref == row.ref:  # it had lost its row
            self._heads[row.ref.key_digest] = HeldHead(row.ref, row.result_digest)
        self.note_cache_change()

    def note_cache_change(self) -> None:
        self.changes += 1

    # --- as `judge` asks ------------------------------------------------------

    def identity(self, run_id: str, source: Source) -> bytes | None:
        known = self._source(run_id, source)
        return None if known is None else known[1]

    def place(self, run_id: str) -> tuple[int, int | None]:
        state = self.known(run_id)
        return (0, None) if state is None else (state.end.generation, state.end.floor)

    def has_entry(self, run_id: str, seq: int) -> bool:
        state = self.known(run_id)
        if state is None:
            return False
        if any(entry.seq == seq and entry.run_id == run_id for entry in self.pending):
            return True
        return state.low <= seq <= state.high and self._connection.row(sql.HAS_ENTRY, state.jno, seq) is not None

    def has_checkpoint(self, run_id: str, seq: int) -> bool:
        state = self.known(run_id)
        if state is None:
            return False
        if seq in state.checkpoints:
            return True
        return state.low <= seq <= state.high and self._connection.row(sql.HAS_CHECKPOINT, state.jno, seq) is not None

    # --- journals -------------------------------------------------------------

    def known(self, run_id: str) -> JournalState | None:
        """The journal of a run, if it has one."""
        state = self._states.get(run_id)
        if state is None and (row := self._connection.row(sql.HELD_JOURNAL, run_id)) is not None:
            state = _read(f"the journal of {run_id!r}", row, lambda row: _state(run_id, row))
            self._states[run_id] = state
        return state

    def state(self, run_id: str) -> JournalState:
        """The journal of a run, numbered now if it has none."""
        state = self.known(run_id)
        if state is None:
            self._last_jno += 1
            state = self._states[run_id] = JournalState(self._last_jno, HeldJournal(run_id))
        return state

    def last_entry(self, state: JournalState, upto: int) -> tuple[int, bytes] | None:
        """The number and the hash of the last entry that is not after a number."""
        run_id = state.end.run_id
        for entry in reversed(self.pending):
            if entry.run_id == run_id and entry.seq <= upto:
                return entry.seq, entry.chain
        if not state.end.stored or state.low > min(upto, state.high):
            return None
        row = self._connection.row(sql.LAST_ENTRY, state.jno, state.low, bounded(min(upto, state.high)))
        return None if row is None else _read(f"an entry of {run_id!r}", row, _link)

    def last_rewind(self, state: JournalState, first: int, last: int) -> bytes | None:
        """The hash of the last rewind to a place between these that is stored."""
        row = self._connection.row(sql.LAST_REWIND, state.jno, first, last)
        return None if row is None else _read(f"a rewind of {state.end.run_id!r}", row, lambda row: to_blob(row[0]))

    def cut_sources(self, run_id: str, upto: int) -> None:
        """No source has an entry after a number."""
        for (run, source), known in self._sources.items():
            if run == run_id and known is not None and known[0] > upto:
                self._sources[run, source] = None

    def _source(self, run_id: str, source: Source) -> KnownSource | None:
        place = (run_id, source)
        if place in self._sources:
            return self._sources[place]
        state = self.known(run_id)
        row = None
        if state is not None and state.end.stored:
            row = self._connection.row(sql.HELD_SOURCE, state.jno, source.id, source.seq)
        known = None if row is None else _read(f"the source {source} of {run_id!r}", row, _known_source)
        if known is not None and state is not None and known[0] > state.high:
            known = None
        self._sources[place] = known
        return known

    # --- the step cache -------------------------------------------------------

    def recorded(self, ref: RecordedRef) -> HeldRecorded | None:
        """What is compared of a row that is stored, damaged or not."""
        if ref in self._rows:
            return self._rows[ref]
        row = None
        if ref.recorded_run_id not in self.forgotten:
            row = self._connection.row(sql.HELD_RECORDED, *_place(ref))
        found = None if row is None else _read(f"the row {ref}", row, _recorded)
        self._rows[ref] = found
        return found

    def check_head(self, key_digest: str) -> None:
        """A head whose row is damaged has no digest from now on: it stands against nobody."""
        head = self.held_head(key_digest)
        if head is None or head.result_digest is None or head.ref in self._sound:
            return
        row = self._connection.row(sql.RECORDED, *_place(head.ref))
        if row is None or read_recorded(head.ref, row).row is None:
            self._heads[key_digest] = HeldHead(head.ref, None)
        else:
            self._sound.add(head.ref)

    def forget_rows(self, run_id: str) -> None:
        """A run has no recorded rows any more."""
        self.forgotten.add(run_id)
        for ref in self._rows:
            if ref.recorded_run_id == run_id:
                self._rows[ref] = None
        for key, head in self._heads.items():
            if head is not None and head.ref.recorded_run_id == run_id:
                self._heads[key] = HeldHead(head.ref, None)

    # --- from group to group --------------------------------------------------

    def committed(self) -> None:
        """What was going to be written is stored. Only journals are kept: the rest is asked for once or so."""
        for state in self.touched:
            state.end.stored = True
            state.low, state.high = 0, MOST
            state.checkpoints.clear()
        self.touched.clear()
        self.stored_changes = self.changes
        self.pending = []
        self.forgotten.clear()
        self._sources.clear()
        self._heads.clear()
        self._rows.clear()
        self._sound.clear()
        self.created_at_ms.clear()
        if len(self._states) > KEPT:
            self._states.clear()


def _read(what: str, row: Row, read: Callable[[Row], _T]) -> _T:
    try:
        return read(row)
    except TypeError as error:
        raise DamagedRow(f"{what} is damaged: {error}") from None


def _state(run_id: str, row: Row) -> JournalState:
    jno, last_seq, chain, generation, floor, floor_chain = row
    end = HeldJournal(
        run_id, to_integer(last_seq), to_blob(chain), to_integer(generation), optional_integer(floor), stored=True
    )
    return JournalState(to_integer(jno), end, optional_blob(floor_chain))


def _link(row: Row) -> tuple[int, bytes]:
    return to_integer(row[0]), to_blob(row[1])


def _known_source(row: Row) -> KnownSource:
    return to_integer(row[0]), to_blob(row[1])


def _head(key_digest: str, row: Row) -> HeldHead:
    run_id, seq, digest = row
    return HeldHead(
        RecordedRef(key_digest, to_text(run_id), to_integer(seq)), digest if isinstance(digest, bytes) else None
    )


def _recorded(row: Row) -> HeldRecorded:
    return HeldRecorded(to_blob(row[0]), to_blob(row[1]), to_integer(row[2]))


def _place(ref: RecordedRef) -> Row:
    return ref.recorded_run_id, ref.key_digest, ref.recorded_event_seq
