"""An entry of the journal as a ledger keeps it, and the chain that every entry of a run is a link of.

Each entry is hashed with the hash of the one before it, so that nothing in a run's journal can be changed, left out or
put in without the hashes of all that follow being wrong. A rewind is a link too. A ledger keeps the last hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.msgpack import Encoder

from .journal import Source

__all__ = [
    "START",
    "EntryRow",
    "NewEntry",
    "RewindRow",
    "chain_after",
    "hash_entry",
    "identity_of",
    "link",
    "link_rewind",
]

START: Final = bytes(32)
"""The hash before the first entry of a run."""

_encode: Final = Encoder().encode


class NewEntry(Struct, frozen=True, gc=False):
    """An entry that is to be appended; the ledger gives it its number, its instant and its hash.

    `payload` and `meta` are JSON; `spilled` says that the payload names the artifact that holds the real one. With a
    `source`, `identity` is what another entry of that source must have to be the same: it is not appended again.
    """

    event_type: str
    payload: bytes
    source: Source | None = None
    identity: bytes = b""
    meta: bytes | None = None
    spilled: bool = False


class EntryRow(Struct, frozen=True, gc=False):
    """A stored entry. `no` orders the entries of all runs by their commits; `chain` is its hash."""

    run_id: str
    seq: int
    event_type: str
    at_ms: int
    source: Source | None
    payload: bytes
    meta: bytes | None
    spilled: bool
    chain: bytes
    no: int = 0


class RewindRow(Struct, frozen=True, gc=False):
    """One rewind of a run's journal: it ended at `from_seq`, and nothing after `to_seq` is left of that.

    `sealed`: what is stored of it is what was written.
    """

    run_id: str
    generation: int
    from_seq: int
    to_seq: int
    at_ms: int
    chain: bytes
    sealed: bool = True


def link(previous: bytes, run_id: str, seq: int, at_ms: int, entry: NewEntry | EntryRow, no: int) -> bytes:
    """The hash of an entry that follows the one with the hash `previous`, and is the `no`th of all runs."""
    source = entry.source
    named = None if source is None else (source.id, source.seq)
    return hash_entry(
        previous, (run_id, seq, at_ms, entry.event_type, entry.payload, entry.meta, entry.spilled, named, no)
    )


Content: TypeAlias = tuple[str, int, int, str, bytes, bytes | None, bool, tuple[str, int] | None, int]
"""What is hashed of an entry: its run and number, the instant, type, payload, meta, spilled, its source, and `no`."""


def hash_entry(previous: bytes, content: Content) -> bytes:
    """What `link` says; whoever appends many entries has the parts of each at hand."""
    return sha256(previous + _encode(content)).digest()


def link_rewind(kept: bytes, run_id: str, generation: int, from_seq: int, to_seq: int, at_ms: int) -> bytes:
    """The hash that entries after a rewind go on from; `kept` is that of the last entry that stays, or `START`."""
    return sha256(kept + _encode((run_id, "rewind", generation, from_seq, to_seq, at_ms))).digest()


def chain_after(entry: EntryRow, next_seq: int, rewinds: Iterable[RewindRow]) -> bytes:
    """The hash that the entry `next_seq` goes on from, the next one that there is after `entry`.

    It is that of the last rewind to a place between them, if there was one: a later one would have removed the next
    entry, and an earlier one has left nothing.
    """
    between = [each for each in rewinds if entry.seq <= each.to_seq < next_seq]
    return max(between, key=lambda each: each.generation).chain if between else entry.chain


def identity_of(event_type: str, payload: bytes, meta: bytes | None) -> bytes:
    """What makes two entries of one source the same: all of their content."""
    return sha256(_encode((event_type, payload, meta))).digest()
