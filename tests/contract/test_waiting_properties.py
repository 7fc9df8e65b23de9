"""Random registrations, commits, deletions and acknowledgements: every host owes exactly the wakes of the model.

Two ledgers on one file take turns as the two processes would that have it open.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.core.batch import (
    Batch,
    CreateStore,
    DeleteStore,
    InsertRun,
    PassTurn,
    PatchStore,
    ReadSignal,
    RegisterWaiter,
    RemoveWaiter,
    SendSignal,
    WaiterAt,
    Write,
)
from stepwell.core.model import Path as StatePath
from stepwell.core.model import Paths, Revision, StepId, StoreKey
from stepwell.core.outcome import Failure, Success
from stepwell.core.patch import Operation, Patch, Put, Remove, Splice, encode
from stepwell.core.paths import EACH, SHAPE
from stepwell.core.run import RunRow
from stepwell.core.signal import SignalRow
from stepwell.core.waiter import Waiter, touched_by
from stepwell.layers.memory.ledger import MemoryLedger
from stepwell.layers.sql.sqlite import open_sqlite
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import Ledger, Verdict

from .ledger_batches import committed
from .waiting_model import ModelSignal, ModelWaiter, WaitingModel

KEYS = (StoreKey("a", "1"), StoreKey("a", "2"))
RUNS = ("run-1", "run-2")
STEPS = tuple(StepId(run_id, key) for run_id in RUNS for key in ("s1", "s2"))

keys = st.sampled_from((KEYS[0], KEYS[0], KEYS[0], KEYS[1]))
steps = st.sampled_from(STEPS)


def state_paths(segments: Sequence[str | int], *, least: int = 0, most: int = 3) -> st.SearchStrategy[StatePath]:
    segment: st.SearchStrategy[str | int] = st.sampled_from(segments)
    return st.lists(segment, min_size=least, max_size=most).map(lambda path: (*path,))


one_path = state_paths(["a", "b", 0, 1, EACH, SHAPE])
read_paths: st.SearchStrategy[Paths] = st.sampled_from([(("a",),)]) | st.lists(one_path, min_size=1, max_size=2).map(
    lambda paths: (*paths,)
)

operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Put, state_paths(["a", "b", 0, 1]), st.just(0)),
    st.builds(Remove, state_paths(["a", "b"], least=1, most=2)),
    st.builds(
        Splice,
        state_paths(["a", "b"], most=2),
        st.integers(0, 2),
        st.integers(0, 1),
        st.sampled_from([(), (0,)]),
    ),
)


@dataclass(frozen=True)
class Change:
    """A patch, of a store that is made if it is missing; `told`: with its paths."""

    key: StoreKey
    operations: tuple[Operation, ...]
    told: bool


@dataclass(frozen=True)
class End:
    key: StoreKey


@dataclass(frozen=True)
class Register:
    """Having seen the tip but `behind`; `gone`: of another instance."""

    key: StoreKey
    step: StepId
    queue: str | None
    behind: int
    gone: bool
    paths: Paths


@dataclass(frozen=True)
class Acknowledge:
    """At the generation that stands, at an older one, or at any."""

    key: StoreKey
    step: StepId
    at: str


@dataclass(frozen=True)
class Pass:
    key: StoreKey
    step: StepId


@dataclass(frozen=True)
class Send:
    run_id: str
    name: str
    dedupe: str | None


@dataclass(frozen=True)
class Read:
    """The unread signal that has come so many before the last."""

    run_id: str
    back: int


Plan: TypeAlias = Change | End | Register | Acknowledge | Pass | Send | Read

plans: st.SearchStrategy[Plan] = st.one_of(
    st.builds(Change, keys, st.lists(operations, max_size=2).map(tuple), st.booleans()),
    st.builds(Change, keys, st.lists(operations, max_size=2).map(tuple), st.booleans()),
    st.builds(
        Register,
        keys,
        steps,
        st.sampled_from([None, "q", "q", "r"]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([False] * 9 + [True]),
        read_paths,
    ),
    st.builds(
        Register, keys, steps, st.sampled_from([None, "q"]), st.sampled_from([0, 0, 1]), st.just(False), read_paths
    ),
    st.builds(Acknowledge, keys, steps, st.sampled_from(["now", "now", "before", "any"])),
    st.builds(Pass, keys, steps),
    st.builds(Send, st.sampled_from(RUNS), st.sampled_from(["x", "y"]), st.sampled_from([None, "d"])),
    st.builds(Read, st.sampled_from(RUNS), st.integers(0, 1)),
    st.builds(End, keys),
)


def groups(each: st.SearchStrategy[Plan], most: int) -> st.SearchStrategy[list[list[Plan]]]:
    """Groups of plans, each plan a batch of its own; one group after another."""
    return st.lists(st.lists(each, min_size=1, max_size=most), min_size=5, max_size=15)


one_queue: st.SearchStrategy[Plan] = st.one_of(
    st.builds(
        Change,
        st.just(KEYS[0]),
        st.sampled_from([(Put(("a",), 0),), (Put(("a",), 0),), (Put(("b",), 0),)]),
        st.just(True),
    ),
    st.builds(
        Register,
        st.just(KEYS[0]),
        steps,
        st.just("q"),
        st.sampled_from([0, 0, 1, 2]),
        st.just(False),
        st.sampled_from([(("a",),), (("a",),), (("a",), ("b",))]),
    ),
    st.builds(Acknowledge, st.just(KEYS[0]), steps, st.just("now")),
    st.builds(Pass, st.just(KEYS[0]), steps),
)

programs = groups(plans, 4) | groups(one_queue, 3).map(
    lambda program: [[Change(KEYS[0], (), told=True)], [waiting(step) for step in STEPS], *program]
)


def waiting(step: StepId) -> Plan:
    return Register(KEYS[0], step, "q", 0, gone=False, paths=(("a",),))


class World:
    """The ledgers, which take turns, and the model; of generations the model knows which registration has which."""

    def __init__(self, ledgers: tuple[Ledger, ...]) -> None:
        self._ledgers = ledgers
        self.model = WaitingModel()
        self._generations: dict[int, int] = {}
        self._instances = 0
        self._unread: dict[str, list[int]] = {}

    async def run(self, program: list[list[Plan]]) -> None:
        rows = [RunRow(id=run_id, workflow="w", created_at_ms=0, updated_at_ms=0) for run_id in RUNS]
        await self._ledgers[0].commit(Batch(writes=tuple(InsertRun(row) for row in rows)))
        for turn, group in enumerate(program):
            ledger = self._ledgers[turn % len(self._ledgers)]
            before = self._generations
            self._generations = dict(before)
            batches: list[Batch] = []
            expected: list[tuple[int, bool] | None] = []
            for plan in group:
                write, answer = self._apply(plan)
                batches.append(Batch(writes=(write,) if write else ()))
                expected.append(answer)
            self._learn(await ledger.commit_all(batches), expected)
            for each in self._ledgers:
                await self._compare(each)

    def _learn(self, verdicts: tuple[Verdict, ...], expected: list[tuple[int, bool] | None]) -> None:
        """The generations that were given, each greater than all before it; who is due at once is as expected."""
        for verdict, answer in zip(verdicts, expected, strict=True):
            registered = committed(verdict).registered
            assert [each.due for each in registered] == ([] if answer is None else [answer[1]])
            if answer is not None:
                generation = registered[0].waiter.generation
                assert generation > max(self._generations.values(), default=0)
                self._generations[answer[0]] = generation

    def _apply(self, plan: Plan) -> tuple[Write | None, tuple[int, bool] | None]:
        """The write, and what a registration will answer: its number in the model, and whether it is due."""
        model = self.model
        match plan:
            case Change(key, changes, told):
                return self._change(key, Patch(changes), told), None
            case End(key):
                tip = model.tips.get(key)
                if tip is None:
                    return None, None
                model.delete(key)
                return DeleteStore(key, tip), None
            case Register():
                tip = model.tips.get(plan.key)
                seen = Revision("gone", 3)
                if tip is not None and not plan.gone:
                    seen = Revision(tip.instance_id, max(0, tip.version - plan.behind))
                due = model.register(plan.key, plan.step, plan.queue, seen, plan.paths)
                registered = Waiter(plan.key, plan.step, seen, plan.paths, queue=plan.queue)
                return RegisterWaiter(registered), (model.registrations, due)
            case Acknowledge(key, step, at):
                generation = self._generation(model.waiter(key, step), at)
                model.remove(key, step, None if generation is None else generation[0])
                return RemoveWaiter(key, step, None if generation is None else generation[1]), None
            case Pass(key, step):
                waiter = model.waiter(key, step)
                known = None if waiter is None else self._generations.get(waiter.generation)
                if waiter is None or known is None:
                    return None, None
                model.pass_turn(key, step, waiter.generation)
                return PassTurn(key, step, known), None
            case Send(run_id, name, dedupe):
                value = b"%d" % len(model.signals)
                model.send(ModelSignal(run_id, name, value, dedupe))
                return SendSignal(SignalRow(run_id, name, value, dedupe)), None
            case Read(run_id, back):
                numbers = self._unread.get(run_id, [])
                if len(numbers) <= back:
                    return None, None
                place = len(numbers) - 1 - back
                [signal for signal in model.signals if signal.run_id == run_id and not signal.read][place].read = True
                return ReadSignal(run_id, numbers.pop(place), "key"), None

    def _generation(self, waiter: ModelWaiter | None, at: str) -> tuple[int, int] | None:
        """In the model and in the ledgers; None for any. One that was registered in this group is not known yet."""
        known = None if waiter is None else self._generations.get(waiter.generation)
        if waiter is None or known is None or at == "any":
            return None
        return (waiter.generation, known) if at == "now" else (waiter.generation - 1000, known - 1)

    def _change(self, key: StoreKey, patch: Patch, told: bool) -> Write:
        tip = self.model.tips.get(key)
        if tip is None:
            self._instances += 1
            first = Revision(f"instance-{self._instances}", 0)
            self.model.create(key, first)
            return CreateStore(key, first, b"{}")
        made, encoded = Revision(tip.instance_id, tip.version + 1), encode(patch)
        changed = touched_by(encoded)
        self.model.patch(key, made, changed)
        return PatchStore(key, made, encoded, changed if told else None)

    async def _compare(self, ledger: Ledger) -> None:
        model = self.model
        rows = (await ledger.waiters()).unwrap()
        assert [self._shown(each) for each in model.waiters] == [
            (row.waiter.key, row.waiter.step, row.waiter.queue, row.waiter.seen, row.waiter.read_paths) for row in rows
        ]
        assert [self._generations[each.generation] for each in model.waiters] == [row.waiter.generation for row in rows]
        by_number = {row.due_no: row.waiter for row in rows if row.due_no is not None}
        wakes = (await ledger.wakes()).unwrap()
        assert {wake.no: wake.waiter for wake in wakes if wake.waiter} == by_number
        assert [(wake.waiter.key, wake.waiter.step) for wake in wakes if wake.waiter] == [
            (each.key, each.step) for each in model.due()
        ]
        for key in KEYS:
            assert (await ledger.waiters(key=key)).unwrap() == tuple(row for row in rows if row.waiter.key == key)
        unread = [signal for signal in model.signals if not signal.read]
        assert [wake.run_id for wake in wakes if wake.waiter is None] == [signal.run_id for signal in unread]
        for run_id in RUNS:
            signals = (await ledger.signals(run_id)).unwrap()
            assert [(row.name, row.value) for row in signals] == [
                (signal.name, signal.value) for signal in unread if signal.run_id == run_id
            ]
            self._unread[run_id] = [row.no for row in signals]
        for row in rows[:1]:
            stands = WaiterAt(row.waiter.key, row.waiter.step, row.waiter.generation)
            assert isinstance(await ledger.commit(Batch((stands,))), Success)
            assert isinstance(
                await ledger.commit(Batch((WaiterAt(stands.key, stands.step, stands.generation + 1),))), Failure
            )

    @staticmethod
    def _shown(waiter: ModelWaiter) -> tuple[StoreKey, StepId, str | None, Revision, Paths]:
        return waiter.key, waiter.step, waiter.queue, waiter.seen, waiter.paths


@asynccontextmanager
async def on_one_file(count: int) -> AsyncGenerator[tuple[Ledger, ...]]:
    with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
        path = Path(folder) / "app.db"
        opened = [await open_sqlite(path, ManualClock(), durability="normal", commit="inline") for _ in range(count)]
        try:
            yield tuple(opened)
        finally:
            for ledger in opened:
                await ledger.close()


@given(program=programs)
@settings(max_examples=3 * settings().max_examples)
def test_memory_owes_the_wakes_of_the_model(program: list[list[Plan]]) -> None:
    asyncio.run(World((MemoryLedger(ManualClock()),)).run(program))


@pytest.mark.parametrize("ledgers", [1, 2])
@given(program=programs)
@settings(max_examples=max(100, settings().max_examples // 5))  # each makes a file
def test_sqlite_owes_the_wakes_of_the_model(ledgers: int, program: list[list[Plan]]) -> None:
    async def main() -> None:
        async with on_one_file(ledgers) as opened:
            await World(opened).run(program)

    asyncio.run(main())
