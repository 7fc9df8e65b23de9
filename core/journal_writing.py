"""What a ledger writes of journals and the step cache, decided purely; every host writes what comes out.

A host holds what is stored, as `Held` asks for it, and with it what was decided before, as if it were stored too.
`JournalWriter` numbers and hashes entries, finds out what becomes of rows and heads, and collects what to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, final

from msgspec import Struct

from .cache_fold import EVENT_TYPE
from .entry import START, EntryRow, NewEntry, hash_entry
from .journal import Appended, Source
from .journal_writes import EvictHead, RecordRow, SetHead
from .provenance import CACHE_JOURNAL, provenance_entry
from .recorded_row import RecordedRow, result_digest, seal
from .step_cache import HeldHead, Recorded, RecordedRef, place

__all__ = ["Held", "HeldJournal", "JournalWriter", "SealedRow"]


class HeldJournal(Struct, gc=False):
    """The end of a run's journal, as it goes on. `stored`: there is a row of it already."""

    run_id: str
    last_seq: int = -1
    chain: bytes = START
    generation: int = 0
    floor: int | None = None
    stored: bool = False


class SealedRow(Struct, frozen=True, gc=False):
    """A recorded row that is to be written, with its seal and the digest of its result."""

    row: RecordedRow
    ref: RecordedRef
    seal: bytes
    result_digest: bytes


class Held(Protocol):
    """What is stored, and what was decided to be."""

    last_no: int
    """The last number that was given to an entry of any run."""

    def held_journal(self, run_id: str) -> HeldJournal:
        """The journal of a run, a new one if there is none; it is changed in place."""
        ...

    def held_source(self, run_id: str, source: Source) -> int | None:
        """The number of the entry of a source."""
        ...

    def keep_source(self, run_id: str, source: Source, seq: int, identity: bytes) -> None: ...

    def held_head(self, key_digest: str) -> HeldHead | None: ...

    def keep_head(self, key_digest: str, head: HeldHead | None) -> None: ...

    def held_row(self, ref: RecordedRef) -> tuple[bytes, bytes] | None:
        """The seal and the result digest of a recorded row, None where there is none."""
        ...

    def keep_row(self, row: SealedRow) -> None: ...

    def note_cache_change(self) -> None:
        """The number of changes of the step cache is raised."""
        ...


@final
class JournalWriter:
    """Decides write by write; `entries`, `sources`, `rows`, `heads` and `journals` are then to be written.

    `heads` has the row that each key has in force in the end, None for none.
    """

    __slots__ = ("_at_ms", "_held", "entries", "heads", "journals", "rows", "sources")

    def __init__(self, held: Held, at_ms: int) -> None:
        self._held = held
        self._at_ms = at_ms
        self.entries: list[EntryRow] = []
        self.sources: list[tuple[str, Source, int, bytes]] = []
        self.rows: list[SealedRow] = []
        self.heads: dict[str, RecordedRef | None] = {}
        self.journals: dict[str, HeldJournal] = {}

    def append(self, run_id: str, entries: Iterable[NewEntry]) -> list[Appended]:
        """Number and hash these entries. One whose source has an entry is not appended again."""
        held, at_ms, rows = self._held, self._at_ms, self.entries
        journal = held.held_journal(run_id)
        self.journals[run_id] = journal
        seq, chain, no = journal.last_seq, journal.chain, held.last_no
        appended: list[Appended] = []
        for entry in entries:
            source, event_type, payload = entry.source, entry.event_type, entry.payload
            meta, spilled = entry.meta, entry.spilled
            if source is not None:
                if (known := held.held_source(run_id, source)) is not None:
                    appended.append(Appended(known, duplicate=True))
                    continue
                held.keep_source(run_id, source, seq + 1, entry.identity)
                self.sources.append((run_id, source, seq + 1, entry.identity))
            seq += 1
            no += 1
            named = None if source is None else (source.id, source.seq)
            chain = hash_entry(chain, (run_id, seq, at_ms, event_type, payload, meta, spilled, named, no))
            rows.append(EntryRow(run_id, seq, event_type, at_ms, source, payload, meta, spilled, chain, no))
            if event_type == EVENT_TYPE:
                held.note_cache_change()
            appended.append(Appended(seq, duplicate=False))
        journal.last_seq, journal.chain, held.last_no = seq, chain, no
        return appended

    def record(self, write: RecordRow) -> Recorded:
        """Record a row, and put it in force if nothing stands against it; its run's journal says so."""
        row = write.row
        if row.seq is None:
            row = RecordedRow(
                row.key_digest,
                row.run_id,
                self._held.held_journal(row.run_id).last_seq + 1,
                row.result,
                row.meta,
                row.created_at_ms,
            )
        ref = RecordedRef(row.key_digest, row.run_id, row.seq or 0)
        sealed = SealedRow(row, ref, seal(row), result_digest(row.result))
        known, head = self._held.held_row(ref), self._held.held_head(row.key_digest)
        placed = place(ref, sealed.result_digest, sealed.seal, None if known is None else known[0], head)
        if placed.writes_row:
            if write.admits:
                self._say(row.run_id, provenance_entry("recorded", ref))
            self.rows.append(sealed)
            self._held.keep_row(sealed)
        if placed.removes is not None:
            self._say(CACHE_JOURNAL, provenance_entry("removed", placed.removes, "decode_failed"))
        if placed.sets_head:
            if write.admits and placed.writes_row:
                self._say(row.run_id, provenance_entry("admitted", ref))
            self._put_in_force(row.key_digest, HeldHead(ref, sealed.result_digest))
        return placed.recorded

    def evict(self, write: EvictHead) -> RecordedRef | None:
        """Take the row out of force that a key has, or that very one; what went is told."""
        head = self._held.held_head(write.key_digest)
        if head is None or write.row not in (None, head.ref):
            return None
        if write.reason is not None:
            self._say(CACHE_JOURNAL, provenance_entry("removed", head.ref, write.reason))
        self._put_in_force(write.key_digest, None)
        return head.ref

    def set_head(self, write: SetHead) -> None:
        """Put exactly this row in force, if it is recorded."""
        if write.row is None:
            self._put_in_force(write.key_digest, None)
        elif (known := self._held.held_row(write.row)) is not None:
            self._put_in_force(write.key_digest, HeldHead(write.row, known[1]))

    def _say(self, run_id: str, entry: NewEntry) -> None:
        _ = self.append(run_id, (entry,))

    def _put_in_force(self, key_digest: str, head: HeldHead | None) -> None:
        self._held.keep_head(key_digest, head)
        self.heads[key_digest] = None if head is None else head.ref
        self._held.note_cache_change()
