"""What a group writes of journals and the step cache, decided write by write.

Of a journal that is cut only what stays is written: what the group appended to it, and cuts again, never is. So stored
rows can go first, whatever the order of the writes was, and no row that goes is in the way of a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

from ...core.entry import START, RewindRow, link_rewind
from ...core.journal import Appended
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
from ...core.journal_writing import JournalWriter
from ...core.step_cache import Recorded, RecordedRef
from .held_journals import HeldJournals, JournalState
from .rows import MOST

__all__ = ["CheckpointChange", "JournalChanges", "JournalWrite", "Told"]

JournalWrite: TypeAlias = (
    Append | WriteCheckpoint | CompactJournal | RewindJournal | ForgetJournal | RecordRow | EvictHead | SetHead
)

CheckpointChange: TypeAlias = WriteCheckpoint | CompactJournal | RewindJournal | ForgetJournal


@dataclass(slots=True)
class Told:
    """What became of the writes of one batch, as its verdict tells it."""

    appended: list[Appended]
    recorded: list[Recorded]
    evicted: list[RecordedRef | None]


@final
class JournalChanges:
    """The changes of one group. `carried` has the journals of which more than the end changes, with what they carry.

    `checkpoints` are carried out in their order; `rewinds` are rows to be written.
    """

    __slots__ = ("at_ms", "carried", "checkpoints", "held", "rewinds", "writer")

    def __init__(self, held: HeldJournals, at_ms: int) -> None:
        self.held = held
        self.at_ms = at_ms
        self.writer = JournalWriter(held, at_ms)
        held.pending = self.writer.entries
        self.carried: dict[str, bytes | None] = {}
        self.checkpoints: list[tuple[CheckpointChange, int]] = []  # with the number of the journal
        self.rewinds: list[RewindRow] = []

    def __bool__(self) -> bool:
        writer = self.writer
        changed = writer.entries or writer.rows or writer.heads or self.checkpoints or self.carried
        return bool(changed or self.held.forgotten)

    def write(self, write: JournalWrite, told: Told) -> None:
        writer = self.writer
        match write:
            case Append(run_id, entries):
                told.appended += writer.append(run_id, entries)
            case RecordRow():
                self.held.check_head(write.row.key_digest)
                told.recorded.append(writer.record(write))
            case EvictHead():
                told.evicted.append(writer.evict(write))
            case SetHead():
                writer.set_head(write)
            case WriteCheckpoint(run_id, seq):
                state = self.held.state(run_id)
                state.checkpoints.add(seq)
                self.checkpoints.append((write, state.jno))
            case CompactJournal():
                self._compact(write)
            case RewindJournal():
                self._rewind(write)
            case ForgetJournal(run_id):
                self._forget(write, run_id)

    def journals(self) -> dict[str, JournalState]:
        """Those of which there are rows to be written."""
        runs = (*self.writer.journals, *self.carried)
        states = {run_id: self.held.state(run_id) for run_id in runs}
        return {
            run_id: state
            for run_id, state in states.items()
            if state.end.stored or state.end.last_seq >= 0 or run_id in self.carried
        }

    # --- cuts -----------------------------------------------------------------

    def _compact(self, write: CompactJournal) -> None:
        run_id, seq = write.run_id, write.seq
        state = self.held.state(run_id)
        state.floor_chain = self._hash_before(state, seq)
        state.end.floor = seq
        state.low = max(state.low, seq)
        state.checkpoints = {each for each in state.checkpoints if each >= seq}
        self._drop_entries(run_id, below=seq)
        self._change(write, state, write.carried)

    def _rewind(self, write: RewindJournal) -> None:
        run_id, to_seq = write.run_id, write.to_seq
        state = self.held.state(run_id)
        end, last = state.end, self.held.last_entry(state, to_seq)
        kept = (state.floor_chain or START) if last is None else last[1]
        end.generation += 1
        end.chain = link_rewind(kept, run_id, end.generation, end.last_seq, to_seq, self.at_ms)
        self.rewinds.append(RewindRow(run_id, end.generation, end.last_seq, to_seq, self.at_ms, end.chain))
        self._cut_above(state, to_seq)
        self._change(write, state, write.carried)

    def _forget(self, write: ForgetJournal, run_id: str) -> None:
        self.held.forget_rows(run_id)
        self.writer.rows[:] = [row for row in self.writer.rows if row.ref.recorded_run_id != run_id]
        state = self.held.known(run_id)
        if state is None or not (state.end.stored or state.end.last_seq >= 0):  # what appends nothing makes none
            self.held.note_cache_change()
            return
        # What was planned before does not hold any more; and what is appended later goes on from here.
        state.end.generation += 1
        state.end.floor, state.floor_chain = None, state.end.chain
        self.rewinds[:] = [each for each in self.rewinds if each.run_id != run_id]
        self._cut_above(state, -1)
        self._change(write, state, None)

    def _cut_above(self, state: JournalState, upto: int) -> None:
        run_id = state.end.run_id
        state.high = min(state.high, max(upto, -1))
        state.checkpoints = {each for each in state.checkpoints if each <= upto}
        self._drop_entries(run_id, above=upto)
        sources = self.writer.sources
        sources[:] = [each for each in sources if each[0] != run_id or each[2] <= upto]
        self.held.cut_sources(run_id, upto)

    def _drop_entries(self, run_id: str, *, below: int = -1, above: int = MOST) -> None:
        entries = self.writer.entries
        entries[:] = [each for each in entries if each.run_id != run_id or below <= each.seq <= above]

    def _change(self, write: CheckpointChange, state: JournalState, carried: bytes | None) -> None:
        self.checkpoints.append((write, state.jno))
        self.carried[state.end.run_id] = carried
        self.held.note_cache_change()

    def _hash_before(self, state: JournalState, seq: int) -> bytes:
        """The hash that an entry goes on from (`chain_after` of `core/entry.py`)."""
        last = self.held.last_entry(state, seq - 1)
        begun = state.floor_chain or START
        if last is None and state.end.floor is not None:
            return begun
        first, chain = (-MOST, begun) if last is None else last
        for rewind in reversed(self.rewinds):
            if rewind.run_id == state.end.run_id and first <= rewind.to_seq < seq:
                return rewind.chain
        if state.end.run_id in self.held.forgotten or not state.end.stored:
            return chain
        return self.held.last_rewind(state, first, seq - 1) or chain
