"""The journals and the step cache of the memory ledger: dictionaries, and what is told of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from ...core.cache_fold import EVENT_TYPE
from ...core.entry import START, EntryRow, RewindRow, chain_after, link_rewind
from ...core.journal import Appended, Source
from ...core.journal_writes import (
    Append,
    CompactJournal,
    EvictHead,
    ForgetJournal,
    RecordRow,
    RewindJournal,
    SetHead,
    WriteCheckpoint,
)
from ...core.journal_writing import HeldJournal, JournalWriter, SealedRow
from ...core.recorded_row import HeadRow, StoredRow
from ...core.step_cache import HeldHead, Recorded, RecordedRef
from ...services.journal_rows import CheckpointRow, EntryPage, JournalRow, SourceRow

__all__ = ["JournalWrite", "JournalWrites", "Journals"]

JournalWrite: TypeAlias = (
    Append | WriteCheckpoint | CompactJournal | RewindJournal | ForgetJournal | RecordRow | EvictHead | SetHead
)


@dataclass(slots=True)
class _Journal:
    """One run's journal. `entries` are in order."""

    held: HeldJournal
    entries: list[EntryRow] = field(default_factory=list[EntryRow])
    sources: dict[Source, SourceRow] = field(default_factory=dict[Source, SourceRow])
    checkpoints: dict[int, CheckpointRow] = field(default_factory=dict[int, CheckpointRow])
    rewinds: list[RewindRow] = field(default_factory=list[RewindRow])
    carried: bytes | None = None
    floor_chain: bytes | None = None


@final
class Journals:
    """All journals, recorded rows and heads; what `JournalWriter` asks for is answered from them."""

    def __init__(self) -> None:
        self._journals: dict[str, _Journal] = {}
        self._rows: dict[RecordedRef, SealedRow] = {}
        self._heads: dict[str, HeadRow] = {}
        self.last_no = 0
        self.changes = 0
        """How often the step cache was changed."""

    # --- as `core/journal_writing.py` asks ------------------------------------

    def held_journal(self, run_id: str) -> HeldJournal:
        return self._of(run_id).held

    def held_source(self, run_id: str, source: Source) -> int | None:
        known = self._of(run_id).sources.get(source)
        return None if known is None else known.seq

    def keep_source(self, run_id: str, source: Source, seq: int, identity: bytes) -> None:
        self._of(run_id).sources[source] = SourceRow(source, seq, identity)

    def held_head(self, key_digest: str) -> HeldHead | None:
        head = self._heads.get(key_digest)
        if head is None:
            return None
        row = self._rows.get(head.ref)
        return HeldHead(head.ref, None if row is None else row.result_digest)

    def keep_head(self, key_digest: str, head: HeldHead | None) -> None:
        if head is None:
            self._heads.pop(key_digest, None)
        else:
            self._heads[key_digest] = HeadRow(head.ref, self._rows[head.ref].row.created_at_ms)

    def held_row(self, ref: RecordedRef) -> tuple[bytes, bytes] | None:
        row = self._rows.get(ref)
        return None if row is None else (row.seal, row.result_digest)

    def keep_row(self, row: SealedRow) -> None:
        self._rows[row.ref] = row
        self.note_cache_change()

    def note_cache_change(self) -> None:
        self.changes += 1

    # --- as `judge` asks ------------------------------------------------------

    def identity(self, run_id: str, source: Source) -> bytes | None:
        journal = self._journals.get(run_id)
        known = None if journal is None else journal.sources.get(source)
        return None if known is None else known.identity

    def place(self, run_id: str) -> tuple[int, int | None]:
        journal = self._journals.get(run_id)
        return (0, None) if journal is None else (journal.held.generation, journal.held.floor)

    def has_entry(self, run_id: str, seq: int) -> bool:
        journal = self._journals.get(run_id)
        return journal is not None and any(entry.seq == seq for entry in journal.entries)

    def has_checkpoint(self, run_id: str, seq: int) -> bool:
        journal = self._journals.get(run_id)
        return journal is not None and seq in journal.checkpoints

    # --- writing --------------------------------------------------------------

    def writer(self, at_ms: int) -> JournalWriter:
        return JournalWriter(self, at_ms)

    def keep(self, entries: Iterable[EntryRow]) -> None:
        """Put in what a writer has numbered."""
        for entry in entries:
            self._of(entry.run_id).entries.append(entry)

    def checkpoint(self, write: WriteCheckpoint, at_ms: int) -> None:
        checkpoints = self._of(write.run_id).checkpoints
        checkpoints[write.seq] = CheckpointRow(write.run_id, write.seq, write.state, at_ms, None)

    def compact(self, write: CompactJournal, at_ms: int) -> None:
        journal = self._of(write.run_id)
        gone = [entry for entry in journal.entries if entry.seq < write.seq]
        journal.entries = [entry for entry in journal.entries if entry.seq >= write.seq]
        if gone:
            journal.floor_chain = chain_after(gone[-1], write.seq, journal.rewinds)
        elif between := [each for each in journal.rewinds if each.to_seq < write.seq and journal.held.floor is None]:
            journal.floor_chain = max(between, key=lambda each: each.generation).chain
        elif journal.floor_chain is None:
            journal.floor_chain = START
        journal.held.floor, journal.carried = write.seq, write.carried
        for seq in [seq for seq in journal.checkpoints if seq < write.seq]:
            del journal.checkpoints[seq]
        kept = journal.checkpoints[write.seq]
        journal.checkpoints[write.seq] = CheckpointRow(kept.run_id, kept.seq, kept.state, kept.at_ms, at_ms)
        self.changes += 1

    def rewind(self, write: RewindJournal, at_ms: int) -> None:
        journal, to_seq = self._of(write.run_id), write.to_seq
        held, from_seq = journal.held, journal.held.last_seq
        journal.entries = [entry for entry in journal.entries if entry.seq <= to_seq]
        journal.sources = {source: row for source, row in journal.sources.items() if row.seq <= to_seq}
        for seq in [seq for seq in journal.checkpoints if seq > to_seq]:
            del journal.checkpoints[seq]
        held.generation += 1
        before = journal.entries[-1].chain if journal.entries else journal.floor_chain or START
        held.chain = link_rewind(before, write.run_id, held.generation, from_seq, to_seq, at_ms)
        journal.rewinds.append(RewindRow(write.run_id, held.generation, from_seq, to_seq, at_ms, held.chain))
        journal.carried = write.carried
        self.changes += 1

    def forget(self, run_id: str) -> None:
        journal = self._journals.get(run_id)
        if journal is not None and not _is_new(journal):
            held = journal.held  # its generation is raised: what was planned on what is gone does not hold any more
            kept = HeldJournal(run_id, held.last_seq, held.chain, held.generation + 1, stored=True)
            self._journals[run_id] = _Journal(kept, floor_chain=held.chain)
        for ref in [ref for ref in self._rows if ref.recorded_run_id == run_id]:
            del self._rows[ref]
        self.changes += 1

    # --- telling --------------------------------------------------------------

    def journal(self, run_id: str) -> JournalRow | None:
        journal = self._journals.get(run_id)
        return None if journal is None or _is_new(journal) else _row(journal)

    def journals(self, after: str | None, limit: int) -> tuple[JournalRow, ...]:
        later = [
            journal
            for run_id, journal in sorted(self._journals.items())
            if (after is None or run_id > after) and not _is_new(journal)
        ]
        return tuple(map(_row, later[:limit]))

    def entries(self, run_id: str, after: int | None, event_types: Collection[str] | None, limit: int) -> EntryPage:
        journal = self._journals.get(run_id)
        if journal is None:
            return EntryPage((), has_more=False, floor=None)
        chosen = [
            entry
            for entry in journal.entries
            if (after is None or entry.seq > after) and (event_types is None or entry.event_type in event_types)
        ]
        return EntryPage(tuple(chosen[:limit]), len(chosen) > limit, journal.held.floor)

    def newest(self, limit: int) -> tuple[EntryRow, ...]:
        return tuple(sorted(self._all(), key=lambda entry: -entry.no)[:limit])

    def entry_of(self, run_id: str, source: Source) -> SourceRow | None:
        journal = self._journals.get(run_id)
        return None if journal is None else journal.sources.get(source)

    def sources(self, run_id: str, after: Source | None, limit: int) -> tuple[SourceRow, ...]:
        journal = self._journals.get(run_id)
        rows = () if journal is None else tuple(journal.sources.values())
        place = None if after is None else (after.id, after.seq)
        later = [row for row in rows if place is None or (row.source.id, row.source.seq) > place]
        return tuple(sorted(later, key=lambda row: (row.source.id, row.source.seq))[:limit])

    def checkpoints(self, run_id: str) -> tuple[CheckpointRow, ...]:
        journal = self._journals.get(run_id)
        rows = () if journal is None else tuple(journal.checkpoints.values())
        return tuple(sorted(rows, key=lambda row: -row.seq))

    def rewinds(self, run_id: str) -> tuple[RewindRow, ...]:
        journal = self._journals.get(run_id)
        return () if journal is None else tuple(journal.rewinds)

    def provenance(self, after: int, limit: int) -> tuple[EntryRow, ...]:
        of_cache = [entry for entry in self._all() if entry.event_type == EVENT_TYPE and entry.no > after]
        return tuple(sorted(of_cache, key=lambda entry: entry.no)[:limit])

    def head(self, key_digest: str) -> HeadRow | None:
        return self._heads.get(key_digest)

    def heads(self, after: str, created_before_ms: int | None, limit: int) -> tuple[HeadRow, ...]:
        rows = [self._heads[key] for key in sorted(self._heads) if key > after]
        return tuple(
            [row for row in rows if created_before_ms is None or row.created_at_ms < created_before_ms][:limit]
        )

    def recorded(self, ref: RecordedRef) -> StoredRow | None:
        row = self._rows.get(ref)
        return None if row is None else StoredRow(ref, row.row)

    def in_force(self, key_digest: str) -> StoredRow | None:
        head = self._heads.get(key_digest)
        return None if head is None else self.recorded(head.ref) or StoredRow(head.ref, None)

    def recorded_of(self, run_id: str, after: RecordedRef | None, limit: int) -> tuple[RecordedRef, ...]:
        refs = [ref for ref in self._rows if ref.recorded_run_id == run_id]
        place = None if after is None else _order(after)
        return tuple(sorted((ref for ref in refs if place is None or _order(ref) > place), key=_order)[:limit])

    def are_recorded(self, refs: Sequence[RecordedRef]) -> frozenset[RecordedRef]:
        return frozenset(ref for ref in refs if ref in self._rows)

    # --- parts ----------------------------------------------------------------

    def _of(self, run_id: str) -> _Journal:
        journal = self._journals.get(run_id)
        if journal is None:
            journal = self._journals[run_id] = _Journal(HeldJournal(run_id))
        return journal

    def _all(self) -> Iterable[EntryRow]:
        return (entry for journal in self._journals.values() for entry in journal.entries)


@final
class JournalWrites:
    """What a batch writes of journals and the step cache, and what became of it."""

    def __init__(self, journals: Journals, at_ms: int) -> None:
        self._journals = journals
        self._at_ms = at_ms
        self.appended: list[Appended] = []
        self.recorded: list[Recorded] = []
        self.evicted: list[RecordedRef | None] = []

    def write(self, write: JournalWrite) -> None:
        journals, at_ms = self._journals, self._at_ms
        writer = journals.writer(at_ms)
        match write:
            case Append(run_id, entries):
                self.appended += writer.append(run_id, entries)
            case RecordRow():
                self.recorded.append(writer.record(write))
            case EvictHead():
                self.evicted.append(writer.evict(write))
            case SetHead():
                writer.set_head(write)
            case WriteCheckpoint():
                journals.checkpoint(write, at_ms)
            case CompactJournal():
                journals.compact(write, at_ms)
            case RewindJournal():
                journals.rewind(write, at_ms)
            case ForgetJournal(run_id):
                journals.forget(run_id)
        journals.keep(writer.entries)


def _is_new(journal: _Journal) -> bool:
    """Whether it was asked for, and has never had an entry."""
    return journal.held.last_seq < 0


def _order(ref: RecordedRef) -> tuple[str, int]:
    return ref.key_digest, ref.recorded_event_seq


def _row(journal: _Journal) -> JournalRow:
    held = journal.held
    return JournalRow(
        held.run_id,
        held.last_seq,
        held.chain,
        held.generation,
        held.floor,
        journal.floor_chain,
        journal.carried,
    )
