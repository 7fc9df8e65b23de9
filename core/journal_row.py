"""What a ledger keeps of a journal beside its entries, as it tells it."""

from __future__ import annotations

from msgspec import Struct

from .entry import EntryRow
from .journal import Source

__all__ = ["CheckpointRow", "EntryPage", "JournalRow", "SourceRow"]


class JournalRow(Struct, frozen=True, gc=False):
    """The journal of one run. `last_seq` is the last number that it gave, -1 before the first, and `chain` its hash.

    `floor` is the number of the checkpoint that it was compacted to, and `floor_chain` the hash before that entry. A
    journal that was forgotten and goes on has no floor, and the hash before its first entry is `floor_chain` too.
    `carried` is what compacted and rewound parts said of the step cache (`core/provenance.py`). `sealed`: what is
    stored of it is what was written.
    """

    run_id: str
    last_seq: int
    chain: bytes
    generation: int = 0
    floor: int | None = None
    floor_chain: bytes | None = None
    carried: bytes | None = None
    sealed: bool = True


class EntryPage(Struct, frozen=True, gc=False):
    """Some entries in order, whether more of those asked for follow, and the floor when they were read."""

    entries: tuple[EntryRow, ...]
    has_more: bool
    floor: int | None


class CheckpointRow(Struct, frozen=True, gc=False):
    """A checkpoint as it is stored; `state` is None if that is not what was written."""

    run_id: str
    seq: int
    state: bytes | None
    at_ms: int
    compacted_at_ms: int | None


class SourceRow(Struct, frozen=True, gc=False):
    """The entry of a source, also of one that was compacted. `sealed`: it is what was written."""

    source: Source
    seq: int
    identity: bytes
    sealed: bool = True
