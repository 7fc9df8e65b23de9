"""Random writes of journals and the step cache: both hosts answer alike, in groups too, and keep the chains."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.core.batch import Batch, Expectation, Write
from stepwell.core.entry import NewEntry
from stepwell.core.journal import Source
from stepwell.core.journal_writes import (
    Append,
    CacheAt,
    CompactJournal,
    EvictHead,
    ForgetJournal,
    JournalAt,
    RecordRow,
    RewindJournal,
    SetHead,
    SourceFree,
    WriteCheckpoint,
)
from stepwell.core.provenance import CACHE_JOURNAL
from stepwell.core.recorded_row import RecordedRow
from stepwell.core.step_cache import RecordedRef
from stepwell.layers.memory.ledger import MemoryLedger
from stepwell.layers.sql.sqlite import open_sqlite
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import Verdict

from .ledger_batches import NOW_MS, patch
from .ledger_journal_batches import JournalLedger, batch, check_chain

RUNS = ("run-1", "run-2")
KEYS = ("key-1", "key-2")
TYPES = ("test.a", "test.b")

runs = st.sampled_from(RUNS)
keys = st.sampled_from(KEYS)
results = st.sampled_from([b"1", b"2"])
sources = st.one_of(st.none(), st.builds(Source, st.sampled_from(["a", "b"]), st.integers(0, 1)))
rows = st.one_of(st.none(), st.integers(0, 12))


def _entry(source: Source | None, event_type: str, payload: bytes) -> NewEntry:
    return NewEntry(event_type, payload, source, payload)


entries = st.builds(_entry, sources, st.sampled_from(TYPES), results)
refs = st.builds(RecordedRef, keys, runs, st.integers(0, 12))
records = st.builds(RecordedRow, keys, runs, rows, results, st.just(b"{}"), st.integers(0, 3))


@dataclass(frozen=True)
class Cut:
    """What somebody means to do to a journal, at some place of it; it is planned on what is there then."""

    kind: Literal["checkpoint", "compact", "rewind", "forget"]
    run_id: str
    where: float


@dataclass(frozen=True)
class Plan:
    """`fate` 0 is refused for another reason, and 1 expects that nobody changes the cache."""

    writes: list[Write | Cut]
    expects: list[Expectation]
    fate: int


cuts = st.builds(Cut, st.sampled_from(["checkpoint", "compact", "rewind", "forget"]), runs, st.floats(0, 1))
plain = st.one_of(
    st.builds(Append, runs, st.lists(entries, max_size=4).map(tuple)),
    st.builds(RecordRow, records, st.booleans()),
    st.builds(EvictHead, keys, st.one_of(st.none(), refs), st.sampled_from([None, "sweep", "evict"])),
    st.builds(SetHead, keys, st.none()),
    refs.map(lambda ref: SetHead(ref.key_digest, ref)),
)
expected = st.one_of(
    st.builds(SourceFree, runs, st.builds(Source, st.sampled_from(["a", "b"]), st.integers(0, 1)), results),
    st.builds(JournalAt, runs, st.integers(0, 1), st.none()),
)
plans = st.builds(
    Plan, st.lists(st.one_of(plain, plain, cuts), max_size=4), st.lists(expected, max_size=1), st.integers(0, 9)
)
programs = st.lists(st.lists(plans, min_size=1, max_size=4), min_size=1, max_size=8)


async def planned(ledger: JournalLedger, plan: Plan) -> Batch:
    """The batch that a plan comes to, on what the ledger holds now; rarely one that is refused."""
    made: list[Write] = []
    expects = list(plan.expects)
    cut: set[str] = set()
    for write in plan.writes:
        if not isinstance(write, Cut):
            made.append(write)
            continue
        kind, run_id = write.kind, write.run_id
        row = (await ledger.journal(run_id)).unwrap()
        numbers = [each.seq for each in (await ledger.entries(run_id)).unwrap().entries]
        if row is None or not numbers or run_id in cut:
            continue
        seq = numbers[int(write.where * (len(numbers) - 1))]
        if kind != "checkpoint":
            cut.add(run_id)
        expects.append(JournalAt(run_id, row.generation, row.floor))
        if kind in ("checkpoint", "compact") and seq != row.floor:
            made.append(WriteCheckpoint(run_id, seq, b"%d" % seq))
        if kind == "compact" and seq != row.floor:
            made.append(CompactJournal(run_id, seq, b"to %d" % seq))
        if kind == "rewind":
            to_seq = -1 if write.where < 0.1 and row.floor is None else seq
            made.append(RewindJournal(run_id, to_seq, b"back to %d" % to_seq))
        if kind == "forget":
            made.append(ForgetJournal(run_id))
    if plan.fate == 1:
        expects.append(CacheAt((await ledger.cache_changes()).unwrap()))
    whole = batch(*made, expects=expects)
    return whole + patch(7) if plan.fate == 0 else whole


async def commit(ledger: JournalLedger, batches: list[Batch], way: str) -> list[Verdict | str]:
    if way == "in sequence":
        try:
            return list(await ledger.commit_all(batches))
        except ValueError as error:
            return [str(error)]
    calls: list[Awaitable[Verdict]] = [ledger.commit(each) for each in batches]
    if way == "at once":
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return [_told(answer) for answer in answers]
    found: list[Verdict | str] = []
    for call in calls:
        try:
            found.append(await call)
        except ValueError as error:
            found.append(str(error))
    return found


def _told(answer: Verdict | BaseException) -> Verdict | str:
    if isinstance(answer, BaseException):
        assert isinstance(answer, ValueError)  # planned on what another batch of the group has removed
        return str(answer)
    return answer


async def all_told(ledger: JournalLedger) -> list[object]:
    """All that the ledger tells of journals and the step cache."""
    told: list[object] = [await ledger.journals(), await ledger.newest(1000), await ledger.provenance()]
    told += [await ledger.heads(), await ledger.heads(created_before_ms=2), await ledger.cache_changes()]
    for run_id in (*RUNS, CACHE_JOURNAL):
        told += [await ledger.entries(run_id), await ledger.entries(run_id, event_types=["test.b"], after=2, limit=3)]
        told += [await ledger.checkpoints(run_id), await ledger.rewinds(run_id), await ledger.sources(run_id)]
        found = await ledger.recorded_of(run_id)
        told += [found, *[await ledger.recorded(ref) for ref in found.unwrap()]]
    return told


async def check_chains(ledger: JournalLedger) -> None:
    for row in (await ledger.journals()).unwrap():
        await check_chain(ledger, row.run_id)


async def run_program(program: list[list[Plan]], way: str) -> None:
    with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
        memory = MemoryLedger(ManualClock(NOW_MS))
        path = Path(folder) / "app.db"
        sqlite = await open_sqlite(path, ManualClock(NOW_MS), durability="normal", commit="inline")
        try:
            for sequence in program:
                batches = [await planned(memory, plan) for plan in sequence]
                assert await commit(sqlite, batches, way) == await commit(memory, batches, way)
                assert await all_told(sqlite) == await all_told(memory)
                await check_chains(sqlite)
        finally:
            await sqlite.close()
        again = await open_sqlite(path, ManualClock(NOW_MS), durability="normal", commit="inline")
        try:
            assert await all_told(again) == await all_told(memory)
        finally:
            await again.close()


@pytest.mark.parametrize("way", ["one by one", "at once", "in sequence"])
@given(program=programs)
@settings(max_examples=settings().max_examples // 3)  # each makes a file
def test_both_hosts_answer_alike(way: str, program: list[list[Plan]]) -> None:
    asyncio.run(run_program(program, way))
