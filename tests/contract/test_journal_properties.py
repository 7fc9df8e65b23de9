"""Whatever is done to journals, they are as a plain model says, whole, and fold to the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import Failure, Outcome, Success
from stepwell.core.cache_fold import RETIRING
from stepwell.core.entry import EntryRow
from stepwell.core.journal import (
    Appended,
    Checkpoint,
    Compacted,
    Entry,
    IdempotencyConflict,
    InvalidCheckpoint,
    Projection,
    Source,
    Verified,
)
from stepwell.core.kind import is_list
from stepwell.core.provenance import Action as Said
from stepwell.core.provenance import Found, provenance_entry, read_carried
from stepwell.core.step_cache import RecordedRef
from stepwell.layers.journal import LedgerJournal

from .journal_world import NOW_MS, World, open_world, rows_of
from .store_world import Host, success

Action: TypeAlias = tuple[str, str, int, int]
"""What is done, to which run, and two numbers: where, and of which source."""

actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "source", "source", "checkpoint", "compact", "rewind", "reopen"]
        ),
        st.sampled_from(["a", "b"]),
        st.integers(-1, 12),
        st.integers(0, 3),
    ),
    max_size=30,
)


@dataclass
class Run:
    """What a run's journal is to be."""

    entries: dict[int, tuple[object, Source | None]] = field(default_factory=dict[int, tuple[object, Source | None]])
    sources: dict[Source, tuple[int, object]] = field(default_factory=dict[Source, tuple[int, object]])
    checkpoints: dict[int, tuple[object, int | None]] = field(default_factory=dict[int, tuple[object, int | None]])
    last: int = -1
    floor: int | None = None

    def append(self, payload: object, source: Source | None) -> tuple[str, int]:
        known = None if source is None else self.sources.get(source)
        if known is not None:
            return ("duplicate" if known[1] == payload else "conflict"), known[0]
        self.last += 1
        self.entries[self.last] = (payload, source)
        if source is not None:
            self.sources[source] = (self.last, payload)
        return "appended", self.last

    def checkpoint(self, seq: int, state: object) -> bool:
        if seq not in self.entries or (self.floor is not None and seq <= self.floor):
            return False
        self.checkpoints[seq] = (state, None)
        return True

    def compact(self, upto: int | None) -> int | None:
        """How many entries went; None where there is nothing to compact to."""
        seq = max((each for each in self.checkpoints if upto is None or each <= upto), default=None)
        if seq is None:
            return 0 if upto is not None and self.floor is not None else None
        gone = [each for each in self.entries if each < seq]
        if seq != self.floor:
            self.floor = seq
            self.entries = {each: entry for each, entry in self.entries.items() if each >= seq}
            self.checkpoints = {each: kept for each, kept in self.checkpoints.items() if each >= seq}
            self.checkpoints[seq] = (self.checkpoints[seq][0], NOW_MS)
        return len(gone)

    def rewind(self, to_seq: int) -> int | None:
        """How many entries went; None where what would be kept is gone."""
        gone = [each for each in self.entries if each > to_seq]
        if self.floor is not None and to_seq < self.floor:
            return None
        self.entries = {each: entry for each, entry in self.entries.items() if each <= to_seq}
        self.sources = {source: kept for source, kept in self.sources.items() if kept[0] <= to_seq or not gone}
        self.checkpoints = {each: kept for each, kept in self.checkpoints.items() if each <= to_seq}
        return len(gone)


class Compared:
    """Journals, and beside them what they are to be."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs = {"a": Run(), "b": Run()}
        self.count = 0

    async def execute(self, done: Sequence[Action]) -> None:
        journal = await self.world.journal(page_size=3)
        for name, run_id, at, source in done:
            if name == "reopen":
                await self.world.restart()
                journal = await self.world.journal(page_size=2)
            else:
                await self._act(journal, name, run_id, at, source)
            await self._compare(journal, run_id)
        expected = [len(run.entries) for run in self.runs.values() if run.entries]
        assert success(await journal.verify()) == Verified(len(expected), sum(expected))
        assert success(await journal.runs()) == tuple(run_id for run_id, run in self.runs.items() if run.entries)

    async def _act(self, journal: LedgerJournal, name: str, run_id: str, at: int, number: int) -> None:
        run = self.runs[run_id]
        self.count += 1
        match name:
            case "append":
                seq = run.append(self.count, None)[1]
                assert await journal.append(run_id, "t", self.count) == Success(Appended(seq, duplicate=False))
            case "source":
                source, payload = Source("s", number), at % 2
                what, seq = run.append(payload, source)
                answer = await journal.append(run_id, "t", payload, source=source)
                if what == "conflict":
                    assert answer == Failure(IdempotencyConflict(run_id, source))
                else:
                    assert answer == Success(Appended(seq, duplicate=what == "duplicate"))
            case "checkpoint":
                kept = run.checkpoint(at, self.count)
                put = await journal.checkpoint(run_id, at, self.count)
                expected = Checkpoint(run_id, at, self.count, None)
                assert put == (Success(expected) if kept else Failure(InvalidCheckpoint(run_id, at)))
            case "compact":
                upto = None if at < 0 else at
                gone = run.compact(upto)
                self._same(await journal.compact(run_id, upto), gone, InvalidCheckpoint(run_id, at))
            case _:
                floor = run.floor
                gone = run.rewind(at)
                self._same(await journal.rewind(run_id, at), gone, Compacted(run_id, -1 if floor is None else floor))

    def _same(self, answer: Outcome[int, object], gone: int | None, refused: object) -> None:
        assert answer == (Failure(refused) if gone is None else Success(gone))

    async def _compare(self, journal: LedgerJournal, run_id: str) -> None:
        run = self.runs[run_id]
        after = None if run.floor is None else run.floor - 1
        page = success(await journal.entries(run_id, after=after))
        assert {each.seq: (each.payload, each.source) for each in page.entries} == run.entries
        assert [each.seq for each in page.entries] == sorted(run.entries)
        latest = max(run.checkpoints, default=None)
        expected = None if latest is None else Checkpoint(run_id, latest, *run.checkpoints[latest])
        assert success(await journal.latest_checkpoint(run_id)) == expected


def _execute(host: Host, work: Callable[[World], object]) -> None:
    async def execute() -> None:
        with TemporaryDirectory() as folder:
            async with open_world(host, Path(folder)) as world:
                done = work(world)
                assert asyncio.iscoroutine(done)
                await done

    asyncio.run(execute())


@given(actions)
def test_journals_in_memory_are_as_a_model_says(done: list[Action]) -> None:
    _execute("memory", lambda world: Compared(world).execute(done))


@settings(max_examples=20)
@given(actions)
def test_journals_in_a_file_are_as_a_model_says(done: list[Action]) -> None:
    _execute("sqlite", lambda world: Compared(world).execute(done))


# --- folds ------------------------------------------------------------------------


def _noted(state: tuple[object, ...], entry: Entry) -> tuple[object, ...]:
    return (*state, entry.payload)


SAID: tuple[Said, ...] = ("recorded", "admitted", "expired", "replay_failed", "removed")
ROWS = [RecordedRef(f"k{number % 3}", "run", number) for number in range(5)]

lives = st.lists(
    st.tuples(st.just("say"), st.sampled_from(SAID), st.integers(0, 4))
    | st.tuples(st.just("note"), st.just("recorded"), st.integers(0, 4))
    | st.tuples(st.just("compact"), st.just("recorded"), st.integers(0, 12)),
    max_size=25,
)


async def _folded(world: World, life: Sequence[tuple[str, Said, int]], run_id: str, *, compacts: bool) -> object:
    """What a journal that lived like this folds to, and what it says of the cache; a checkpoint resumes the fold."""
    journal, ledger = await world.journal(page_size=4), await world.ledger()
    for number, (name, said, at) in enumerate(life):
        if name == "say":
            _ = success(await ledger.commit(journal.appending(run_id, [provenance_entry(said, ROWS[at])])))
        elif name == "note":
            _ = success(await journal.append(run_id, "t", number))
        elif compacts:
            start, state = await _resumed(journal, run_id)
            page = success(await journal.entries(run_id, after=start))
            for entry in page.entries[: at + 1]:
                start, state = entry.seq, _noted(state, entry)
            if isinstance(await journal.checkpoint(run_id, start, list(state)), Success):
                _ = success(await journal.compact(run_id))
    start, state = await _resumed(journal, run_id)
    whole = success(await journal.project(run_id, Projection(lambda: state, _noted), after=start))
    rows = rows_of(ledger)
    kept = success(await rows.journal(run_id))
    stored: list[EntryRow] = list(success(await rows.entries(run_id, limit=1_000)).entries)
    found = Found.of(stored, None if kept is None else read_carried(kept.carried))
    _ = success(await journal.verify())
    return whole, set(found.admitted), {row: retired.action for row, retired in found.retired.items()}


async def _resumed(journal: LedgerJournal, run_id: str) -> tuple[int, tuple[object, ...]]:
    checkpoint = success(await journal.latest_checkpoint(run_id))
    if checkpoint is None:
        return -1, ()
    assert is_list(checkpoint.state)
    return checkpoint.seq, tuple(checkpoint.state)


async def _compare_folds(world: World, life: Sequence[tuple[str, Said, int]]) -> None:
    compacted = await _folded(world, life, "compacted", compacts=True)
    assert compacted == await _folded(world, life, "whole", compacts=False)
    if not any(name == "say" and said in RETIRING for name, said, _ in life):
        assert isinstance(compacted, tuple)
        assert compacted[2] == {}


@given(lives)
def test_f33_a_fold_over_compactions_is_the_fold_without_in_memory(life: list[tuple[str, Said, int]]) -> None:
    _execute("memory", lambda world: _compare_folds(world, life))


@settings(max_examples=15)
@given(lives)
def test_f33_a_fold_over_compactions_is_the_fold_without_in_a_file_of_sqlite(life: list[tuple[str, Said, int]]) -> None:
    _execute("sqlite", lambda world: _compare_folds(world, life))


@pytest.mark.parametrize("host", ["memory", "sqlite"])
def test_a_life_with_everything_in_it(host: Host) -> None:
    """What the properties are seldom given, once for sure."""
    done: list[Action] = [
        *[("append", "a", 0, 0)] * 4,
        ("source", "a", 1, 1),
        ("rewind", "a", 2, 0),
        ("source", "a", 0, 1),
        ("checkpoint", "a", 2, 0),
        ("compact", "a", -1, 0),
        ("reopen", "a", 0, 0),
        ("source", "a", 1, 1),
        ("rewind", "a", 2, 0),
        ("append", "a", 0, 0),
        ("checkpoint", "a", 6, 0),
        ("compact", "a", 6, 0),
        ("compact", "a", 3, 0),
        ("rewind", "a", 3, 0),
    ]
    _execute(host, lambda world: Compared(world).execute(done))
