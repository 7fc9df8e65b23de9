"""Small batches for journals and the step cache, and what must hold of a journal that anybody has read."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from stepwell.core.batch import Batch, Committed, Expectation, Write
from stepwell.core.entry import EntryRow, NewEntry, RewindRow
from stepwell.core.journal import Source
from stepwell.core.journal_writes import (
    Append,
    CompactJournal,
    ForgetJournal,
    RecordRow,
    RewindJournal,
    WriteCheckpoint,
)
from stepwell.core.recorded_row import RecordedRow
from stepwell.core.step_cache import RecordedRef
from stepwell.services.journal_rows import CacheRows, JournalRow, JournalRows
from stepwell.services.ledger import Ledger, Verdict

RUN = "run-1"
OTHER = "run-2"
KEY = "key-1"


class JournalLedger(Ledger, JournalRows, CacheRows, Protocol):
    """A ledger that keeps journals and a step cache."""


def entry(number: int, source: Source | None = None, event_type: str = "test.counted") -> NewEntry:
    """An entry; those of one number are the same."""
    payload = b'{"n":%d}' % number
    return NewEntry(event_type, payload, source, b"" if source is None else sha256(payload).digest())


def batch(*writes: Write, expects: Sequence[Expectation] = ()) -> Batch:
    return Batch(tuple(expects), writes)


def append(*numbers: int, run_id: str = RUN) -> Batch:
    return batch(Append(run_id, tuple(map(entry, numbers))))


def sourced(number: int, seq: int = 0, source: str = "source-1", run_id: str = RUN) -> Batch:
    return batch(Append(run_id, (entry(number, Source(source, seq)),)))


def compact(seq: int, run_id: str = RUN, carried: bytes = b"carried") -> Batch:
    return batch(WriteCheckpoint(run_id, seq, b'{"upto":%d}' % seq), CompactJournal(run_id, seq, carried))


def rewind(to_seq: int, run_id: str = RUN, carried: bytes = b"rewound") -> Batch:
    return batch(RewindJournal(run_id, to_seq, carried))


def forget(run_id: str = RUN) -> Batch:
    return batch(ForgetJournal(run_id))


def recorded(
    result: bytes = b"1", seq: int | None = None, key: str = KEY, run_id: str = RUN, created_at_ms: int = 7
) -> RecordRow:
    return RecordRow(RecordedRow(key, run_id, seq, result, b"{}", created_at_ms))


def ref(seq: int, key: str = KEY, run_id: str = RUN) -> RecordedRef:
    return RecordedRef(key, run_id, seq)


async def done(ledger: Ledger, *batches: Batch) -> Committed:
    """What the last of these batches came to; all of them are committed, one after another."""
    last = Committed()
    for each in batches:
        last = told(await ledger.commit(each))
    return last


def told(verdict: Verdict) -> Committed:
    answer = verdict.unwrap()
    assert isinstance(answer, Committed)
    return answer


async def all_entries(ledger: JournalRows, run_id: str = RUN) -> tuple[EntryRow, ...]:
    return (await ledger.entries(run_id, limit=1_000_000)).unwrap().entries


async def numbers(ledger: JournalRows, run_id: str = RUN) -> list[int]:
    return [each.seq for each in await all_entries(ledger, run_id)]


async def journal_of(ledger: JournalRows, run_id: str = RUN) -> JournalRow:
    row = (await ledger.journal(run_id)).unwrap()
    assert row is not None
    return row


# --- the chain ----------------------------------------------------------------


async def check_chain(ledger: JournalRows, run_id: str = RUN) -> None:
    """Every hash of a journal, computed anew and without the code that made it."""
    row = await journal_of(ledger, run_id)
    rewinds = (await ledger.rewinds(run_id)).unwrap()
    assert row.sealed
    assert all(each.sealed for each in rewinds)
    chain, before = row.floor_chain or bytes(32), -1
    known = {before: chain}
    for each in await all_entries(ledger, run_id):
        if before >= 0 or row.floor is None:
            chain = _after_rewinds(known, before, each.seq, rewinds) or chain
        chain = _hash(chain, _content(each))
        assert each.chain == chain, f"the entry {each.seq} has another hash"
        known[each.seq], before = chain, each.seq
    assert (_after_rewinds(known, before, row.last_seq + 1, rewinds) or chain) == row.chain


def _after_rewinds(known: dict[int, bytes], first: int, last: int, rewinds: Sequence[RewindRow]) -> bytes | None:
    """The hash of the last rewind to a place between an entry and the next one."""
    between = [each for each in rewinds if first <= each.to_seq < last]
    if not between:
        return None
    each = between[-1]  # what those before it have kept is gone
    content = (each.run_id, "rewind", each.generation, each.from_seq, each.to_seq, each.at_ms)
    assert each.chain == _hash(known[first], content), f"the rewind to {each.to_seq} has another hash"
    return each.chain


def _content(row: EntryRow) -> object:
    source = None if row.source is None else (row.source.id, row.source.seq)
    return (row.run_id, row.seq, row.at_ms, row.event_type, row.payload, row.meta, row.spilled, source, row.no)


def _hash(previous: bytes, content: object) -> bytes:
    return sha256(previous + msgspec.msgpack.encode(content)).digest()
