"""What a batch expects and writes of journals and of the step cache; the other half of `core/batch.py`.

What becomes of an append, a recorded row or an eviction is found out where it is committed, and told by `Committed`.
"""

from __future__ import annotations

from msgspec import Struct

from .entry import NewEntry
from .journal import Source
from .recorded_row import RecordedRow
from .step_cache import RecordedRef

__all__ = [
    "Append",
    "CacheAt",
    "CompactJournal",
    "EvictHead",
    "ForgetJournal",
    "JournalAt",
    "RecordRow",
    "RewindJournal",
    "SetHead",
    "SourceFree",
    "WriteCheckpoint",
]

# --- what a batch expects ---------------------------------------------------


class SourceFree(Struct, frozen=True, gc=False):
    """The run's journal has no entry of the source, or the same one. Otherwise `Fenced`, naming the source."""

    run_id: str
    source: Source
    identity: bytes


class JournalAt(Struct, frozen=True, gc=False):
    """The run's journal has this generation and this floor, None where it was not compacted. Otherwise `Fenced`."""

    run_id: str
    generation: int
    floor: int | None


class CacheAt(Struct, frozen=True, gc=False):
    """Nothing of the step cache has changed since this number of changes. Otherwise `Fenced`, by its journal."""

    changes: int


# --- what a batch writes ----------------------------------------------------


class Append(Struct, frozen=True, gc=False):
    """Entries at the end of a run's journal. One whose source has an entry is not appended again.

    `Committed.appended` has the number of each, in the order of the writes.
    """

    run_id: str
    entries: tuple[NewEntry, ...]


class WriteCheckpoint(Struct, frozen=True, gc=False):
    """A state at an entry of a run's journal, in place of the one that may be there. `state` is JSON.

    Whoever plans it has seen the entry, and expects the journal to be as it was (`JournalAt`).
    """

    run_id: str
    seq: int
    state: bytes


class CompactJournal(Struct, frozen=True, gc=False):
    """The end of all entries before a checkpoint, and of the checkpoints before it.

    `carried` is what they said of the step cache, with all that was carried before; the journal keeps it.
    """

    run_id: str
    seq: int
    carried: bytes


class RewindJournal(Struct, frozen=True, gc=False):
    """The end of all entries after `to_seq`, of their sources and checkpoints; their numbers are not given again."""

    run_id: str
    to_seq: int
    carried: bytes


class ForgetJournal(Struct, frozen=True, gc=False):
    """The end of a run's journal and of the rows that it recorded; the last number that it gave is kept."""

    run_id: str


class RecordRow(Struct, frozen=True, gc=False):
    """A row of the step cache, recorded, and in force if its key has no other (`place` of `core/step_cache.py`).

    That it was recorded, and that it was admitted, is appended to the journal of its run. One that was written back
    from elsewhere is neither: `admits` is False then. `Committed.recorded` tells what became of it.
    """

    row: RecordedRow
    admits: bool = True


class EvictHead(Struct, frozen=True, gc=False):
    """A key has no row in force any more; with `row`, only if that is the one.

    With a `reason` an entry "removed" is appended to the cache's own journal, if there was one; without, another entry
    of the batch says why. `Committed.evicted` has the row that went, or None.
    """

    key_digest: str
    row: RecordedRef | None = None
    reason: str | None = None


class SetHead(Struct, frozen=True, gc=False):
    """A key has this row in force, if it is recorded; None is none. Nothing is appended: the journal says so."""

    key_digest: str
    row: RecordedRef | None
