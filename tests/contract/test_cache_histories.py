"""Random histories of a step cache: both hosts hold what a model holds, and a rebuild loses nothing that is proven."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from stepwell.core.batch import Batch, Committed, InsertRun
from stepwell.core.cache_verdict import Explanation
from stepwell.core.journal_writes import Append
from stepwell.core.outcome import Failure, Success
from stepwell.core.provenance import Action, provenance_entry
from stepwell.core.retention import SETTLING_MS
from stepwell.core.run import RunRow
from stepwell.core.step_cache import CacheConflict, CacheEntry, ExistingSame, Inserted, RecordedRef, Standing

from .cache_model import KEYS, CacheModel, Kind, Op, programs
from .cache_world import Host, World, counts, good, opened

ACTIONS: tuple[Action, ...] = ("expired", "stale_read_set", "replay_failed", "removed")


class Player:
    """Does to a cache and to a model the same, and compares what they answer and hold."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.model = CacheModel()
        self.told: list[object] = []
        """What is to be the same on every host."""
        self._numbers = count(1)

    async def play(self, program: list[Op]) -> None:
        for op in program:
            await self.world.clock.advance(1)
            await self.do(op)
            assert await self.world.heads() == self.model.heads
        assert await self.proven() == self.model.proven()
        await self.rebuild()

    async def do(self, op: Op) -> None:
        world, model = self.world, self.model
        match op.kind:
            case "put":
                await self.put(op)
            case "again":
                known = sorted((ref for ref in model.results if ref.key_digest == op.key), key=str)
                if known:
                    ref = known[op.number % len(known)]
                    entry = CacheEntry(ref, model.results[ref], {}, model.created[ref])
                    expected = model.put(ref, model.results[ref], world.clock.now_ms())
                    assert standing(await world.cache.put(entry)) == expected
            case "foreign":
                ref = RecordedRef(op.key, "elsewhere", next(self._numbers))
                entry = CacheEntry(ref, op.number, {}, world.clock.now_ms())
                expected = model.put(ref, op.number, world.clock.now_ms(), foreign=True)
                assert standing(await world.cache.write_back(entry)) == expected
            case "evict":
                assert await world.cache.evict(op.key) == Success(model.end(op.key) is not None)
            case "retire":
                head = model.end(op.key)
                if head is not None:
                    why = provenance_entry(ACTIONS[op.number], head)
                    batch = world.cache.evicting(head) + Batch((), (Append(op.run, (why,)),))
                    committed = good(await world.ledger.commit(batch))
                    assert isinstance(committed, Committed)
                    assert committed.evicted == (head,)
            case "sweep":
                swept = model.sweep(world.clock.now_ms() - op.number * 4)
                assert await world.cache.sweep(op.number * 4) == Success(swept)
            case "rebuild":
                await self.rebuild()
            case "verify":
                assert await self.proven() == model.proven()
            case "chat" | "compact" | "rewind" | "forget":
                await self.shorten(op)

    async def put(self, op: Op) -> None:
        now_ms = self.world.clock.now_ms()
        batch = good(self.world.cache.recording(op.key, op.run, str(op.number).encode(), {}))
        committed = good(await self.world.ledger.commit(batch))
        assert isinstance(committed, Committed)
        (recorded,) = committed.recorded
        assert recorded.ref not in self.model.results  # no number is given twice
        assert recorded.standing == self.model.put(recorded.ref, op.number, now_ms)
        assert recorded.head == self.model.heads[op.key]

    async def shorten(self, op: Op) -> None:
        """What the journals lose; no row is lost by that, but for those of a run that is forgotten."""
        journal, run = self.world.journal, op.run
        entries = await self.world.entries(run)
        if op.kind == "chat":
            _ = good(await journal.append(run, "another", {"n": op.number}))
        elif op.kind == "forget":
            await self.forget(run)
        elif op.kind == "rewind":
            if entries:
                _ = good(await journal.rewind(run, entries[-1 - op.number if op.number < len(entries) else 0].seq))
        elif entries:
            place = entries[-1 - op.number // 2 if len(entries) > 1 else 0].seq
            checkpoint = await journal.checkpoint(run, place, op.key)
            if isinstance(checkpoint, Success):  # otherwise it is the one that was compacted to
                _ = good(await journal.compact(run))

    async def forget(self, run: str) -> None:
        world = self.world
        long_ago = world.clock.now_ms() - SETTLING_MS
        ended = RunRow(id=run, workflow="w", state="completed", created_at_ms=long_ago, updated_at_ms=long_ago)
        _ = await world.commit(InsertRun(ended))
        assert await world.collected() == 1
        self.model.forget(run)

    async def proven(self) -> dict[str, RecordedRef]:
        """The heads that a comparison finds to be right, which are all that a rebuild would leave."""
        before = await self.world.everything()
        verification = good(await self.world.fold.verify())
        assert await self.world.everything() == before
        assert (verification.missing, verification.different) == (0, 0)
        self.told.append(in_full(verification.keys))
        matching = (each.ref for each in verification.keys if each.difference == "matching")
        return {ref.key_digest: ref for ref in matching if ref is not None}

    async def rebuild(self) -> None:
        rebuilt = await self.world.rebuilt()
        self.model.rebuild()
        assert await self.world.heads() == self.model.heads
        self.told.append((counts(rebuilt), in_full(rebuilt.keys)))
        before = await self.world.everything()
        again = await self.world.rebuilt()
        assert await self.world.everything() == before
        assert counts(again) == counts(rebuilt)
        # A head that nobody admitted is gone, and of its key no more is told than what was said before it.
        gone = {each.key_digest for each in rebuilt.keys if each.verdict == "not_admitted"}
        assert [each for each in again.keys if each.key_digest not in gone] == [
            each for each in rebuilt.keys if each.key_digest not in gone
        ]
        assert {each.verdict for each in again.keys if each.key_digest in gone} <= {"removed", "retired"}
        verification = good(await self.world.fold.verify())
        assert (verification.matching, verification.extra) == (len(self.model.heads), 0)
        assert (verification.missing, verification.different) == (0, 0)
        for key in KEYS:
            explained = good(await self.world.fold.explain(key))
            assert explained in again.keys or explained == Explanation(key, "not_admitted", None)


def standing(outcome: object) -> Standing:
    match outcome:
        case Success(Inserted()):
            return "inserted"
        case Success(ExistingSame()):
            return "existing_same"
        case _:
            assert isinstance(outcome, Failure)
            assert isinstance(outcome.failure(), CacheConflict)
            return "conflict"


def in_full(keys: tuple[Explanation, ...]) -> list[object]:
    return [(each, each.action, each.reason, each.run_id, each.seq, each.rows, each.difference) for each in keys]


async def play(host: Host, program: list[Op]) -> list[object]:
    with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
        async with opened(host, Path(folder) / "app.db", durability="normal") as world:
            player = Player(world)
            await player.play(program)
            return player.told


FOREIGN_AFTER_AN_EVICTION = [Op("put", "k", "a", 0), Op("evict", "k", "a", 0), Op("foreign", "k", "a", 0)]
RETIRED_AND_IN_FORCE = [
    *(Op("put", "k", "b", 0), Op("evict", "k", "b", 0), Op("put", "k", "a", 0)),
    *(Op("forget", "k", "a", 0), Op("again", "k", "b", 0)),
]


@given(program=programs)
@example(program=FOREIGN_AFTER_AN_EVICTION)
@example(program=RETIRED_AND_IN_FORCE)
def test_memory_holds_what_the_model_holds(program: list[Op]) -> None:
    _ = asyncio.run(play("memory", program))


@given(program=programs)
@settings(max_examples=settings().max_examples // 3)  # each makes a file
def test_sqlite_holds_what_the_model_holds_and_tells_what_memory_tells(program: list[Op]) -> None:
    assert asyncio.run(play("sqlite", program)) == asyncio.run(play("memory", program))


@pytest.mark.parametrize("host", ["memory", "sqlite"])
def test_a_history_with_everything_in_it(host: Host) -> None:
    kinds: tuple[Kind, ...] = ("put", "chat", "put", "retire", "put", "compact", "rewind", "foreign", "again", "sweep")
    places = zip((*kinds, "forget", "verify"), KEYS * 4, "abcbacabcabc", strict=True)
    program = [Op(kind, key, run, number) for kind, key, run in places for number in range(3)]
    _ = asyncio.run(play(host, program))
