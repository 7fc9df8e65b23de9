"""Random trees of `run.gather` and `run.race`, cut off at random commits: every replay sees what the record says.

Branches append to one list between their durable calls, and clean up by durable calls where they lose. An execution
that is cut off has seen the beginning of what the next one sees, and no call is performed again that was recorded, be
it as done or as lost. Each signal is read once, and none is consumed by a wait that lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stepwell import AnyWorkflow, Ledger, Run, StepFailed, Success, workflow
from stepwell.core.batch import Batch, WriteStep
from stepwell.core.lease import LEASE_MS
from stepwell.core.signal_reading import read_signal_reading

from .engine_world import EngineWorld, Opened, Refusing, success, until
from .store_world import append, chats, empty, ids_of

Applied: TypeAlias = Literal["no", "unknown"]
Log: TypeAlias = list[tuple[str, object]]


@dataclass(frozen=True)
class Call:
    """A durable call; a step takes `turns` of the event loop, a nap and a signal so many milliseconds at most."""

    kind: Literal["step", "fails", "update", "nap", "signal", "takes its time"]
    turns: int


@dataclass(frozen=True)
class Fork:
    kind: Literal["gather", "race"]
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Branch:
    """Calls one after another. One that tidies makes a durable call on its way out, however it ends."""

    calls: tuple[Call | Fork, ...]
    tidies: bool = False


KINDS: tuple[Literal["step", "fails", "update", "nap", "signal", "takes its time"], ...] = (
    "step",
    "fails",
    "update",
    "nap",
    "signal",
    "takes its time",
)
CALLS = st.builds(Call, st.sampled_from(KINDS), st.integers(0, 12))


def branches_of(calls: st.SearchStrategy[Call | Fork]) -> st.SearchStrategy[Branch]:
    return st.builds(Branch, st.lists(calls, max_size=3).map(tuple), st.booleans())


def forks_of(calls: st.SearchStrategy[Call | Fork]) -> st.SearchStrategy[Fork]:
    branches = st.lists(branches_of(calls), min_size=1, max_size=3).map(tuple)
    return st.builds(Fork, st.sampled_from(("gather", "race", "race")), branches)


NODES: st.SearchStrategy[Call | Fork] = st.recursive(CALLS, lambda calls: CALLS | forks_of(calls), max_leaves=12)
PROGRAMS = st.lists(forks_of(NODES), min_size=1, max_size=2).map(tuple)
ANSWERS: tuple[Applied, ...] = ("no", "unknown")
CUTS = st.lists(st.tuples(st.integers(1, 30), st.sampled_from(ANSWERS)), max_size=2)  # three without progress: stuck
SENT = st.lists(st.integers(1, 20), max_size=4)


@dataclass
class Executions:
    """What each execution of a program saw, in order, and how often each step was performed."""

    program: tuple[Fork, ...]
    logs: list[Log] = field(default_factory=list[Log])
    performed: Counter[str] = field(default_factory=Counter[str])
    recorded: dict[str, int] = field(default_factory=dict[str, int])

    def workflow(self) -> AnyWorkflow:
        @workflow(name="program")
        async def program(run: Run) -> int:
            log: Log = []
            self.logs.append(log)
            for at, fork in enumerate(self.program):
                log.append((str(at), await self._fork(run, log, str(at), fork)))
            log.append(("all", len(log)))
            await run.sleep("end", 60)
            return len(log)

        return program

    async def _fork(self, run: Run, log: Log, name: str, fork: Fork) -> object:
        branches = [self._branch(run, log, f"{name}.{at}", branch) for at, branch in enumerate(fork.branches)]
        try:
            if fork.kind == "gather":
                return list(await run.gather(*branches))
            return await run.race(*branches)
        except StepFailed as failed:
            return failed.key

    async def _branch(self, run: Run, log: Log, name: str, branch: Branch) -> str:
        log.append((name, "begins"))
        try:
            for at, call in enumerate(branch.calls):
                key = f"{name}.{at}"
                made = self._fork(run, log, key, call) if isinstance(call, Fork) else self._call(run, key, call)
                log.append((key, await made))
        except asyncio.CancelledError:
            log.append((name, "cancelled"))
            raise
        finally:
            if branch.tidies and not run.suspending:
                log.append((name, await run.step(f"{name} tidies", self._busy, f"{name} tidies", 2)))
        return name

    async def _call(self, run: Run, key: str, call: Call) -> object:
        match call.kind:
            case "step":
                return await run.step(key, self._busy, key, call.turns)
            case "takes its time":
                return await run.step(key, self._stubborn, key, call.turns)
            case "fails":
                return await run.step(key, self._failing, key, call.turns)
            case "update":
                return ids_of(success(await run.store(chats, "c").update(key, append(key))).state)
            case "nap":
                await run.sleep(key, call.turns / 1000)
                return None
            case "signal":
                return str(await run.signal("x", int, timeout=call.turns / 1000))

    async def _busy(self, key: str, turns: int) -> int:
        self.performed[key] += 1
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    async def _stubborn(self, key: str, turns: int) -> int:
        """Takes as long again to end where it is cancelled."""
        try:
            return await self._busy(key, turns * 2)
        except asyncio.CancelledError:
            for _ in range(turns):
                await asyncio.sleep(0)
            raise

    async def _failing(self, key: str, turns: int) -> int:
        raise ValueError(await self._busy(key, turns))

    def note(self, batch: Batch) -> None:
        """The batch is committed: what it records is not to be performed again."""
        for write in batch.writes:
            if isinstance(write, WriteStep) and write.row.status in ("done", "failed", "lost"):
                self.recorded.setdefault(write.row.key, self.performed[write.row.key])

    def check_performed(self) -> None:
        for key, times in self.recorded.items():
            assert self.performed[key] == times, key


class Cut:
    """Lets so many commits through, answers the next as it is told, and none after that."""

    def __init__(self, executions: Executions, after: int | None, applied: Applied = "no") -> None:
        self.left = after
        self._executions = executions
        self._applied: Applied = applied

    def __call__(self, batch: Batch) -> Applied | None:
        if self.left is not None:
            self.left -= 1
        if self.left is None or self.left > 0:
            self._executions.note(batch)
            return None
        if self.left == 0 and self._applied == "unknown":
            self._executions.note(batch)
            return "unknown"
        return "no"

    def around(self, ledger: Ledger) -> Ledger:
        return Refusing(ledger, self)

    @property
    def made(self) -> bool:
        return self.left is not None and self.left <= 0


async def check(program: tuple[Fork, ...], cuts: list[tuple[int, Applied]], sent: list[int]) -> None:
    """`sent` tells before which milliseconds signals are sent; more come before each restart."""
    executions = Executions(program)
    flow = executions.workflow()
    world = EngineWorld("memory", Path())
    signals = 0
    async with world.engine(drive=False) as client:
        _ = await client.store.get_or_create(chats, "c", empty)
        handle = success(await client.engine.start(flow, id="r"))
        began_ms = world.clock.now_ms()

        async def send_due() -> None:
            nonlocal signals
            while signals < len(sent) and sorted(sent)[signals] <= world.clock.now_ms() - began_ms:
                assert await handle.signal("x", signals) == Success(None)
                signals += 1

        for after, applied in cuts:
            cut = Cut(executions, after, applied)
            async with world.engine(flow, around=cut.around) as app:
                await app.advance_until(either(app, cut, send_due), by_ms=3)
            await world.clock.advance(LEASE_MS + 1)
        whole = Cut(executions, None)
        async with world.engine(flow, around=whole.around) as app:
            await app.advance_until(either(app, whole, send_due), by_ms=3)
        async with world.engine(flow, around=whole.around) as app:
            await app.clock.advance(60_000)
            await until(lambda: executions.logs[-1][-1:] == [("all", len(executions.logs[-1]) - 1)])
            assert await app.engine.result(handle.id) == Success(len(executions.logs[-1]))
            assert (await app.status("r")).problem is None
        await check_signals(client, signals)
    for earlier, later in zip(executions.logs, executions.logs[1:], strict=False):
        assert later[: len(earlier)] == earlier
    assert executions.logs[-1] == executions.logs[-2]
    executions.check_performed()


async def check_signals(client: Opened, sent: int) -> None:
    """Each was read once and handed over at most once, or is unread."""
    rows = (await client.steps("r")).values()
    readings = [read_signal_reading(row.value or b"") for row in rows if row.kind == "signal" and row.status == "done"]
    read = [int(one.value) for one in readings if one.value is not None and one.again is None]
    again = [one.again for one in readings if one.again is not None]
    assert len(set(again)) == len(again)
    unread = [int(row.value) for row in success(await client.ledger.signals("r"))]
    assert sorted(read + unread) == list(range(sent))


def either(app: Opened, cut: Cut, meanwhile: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[bool]]:
    """Whether the cut was made, or the program has come to its last sleep."""

    async def reached() -> bool:
        await meanwhile()
        return cut.made or "'end'" in ((await app.status("r")).waiting_on or "")

    return reached


STEP, NAP, SIGNAL, UPDATE, FAILS = (Call(kind, 3) for kind in ("step", "nap", "signal", "update", "fails"))
STUBBORN = Call("takes its time", 12)
RACES: dict[str, tuple[Fork, ...]] = {
    "one branch": (Fork("race", (Branch((STEP,)),)),),
    "no call": (Fork("race", (Branch(()), Branch((STEP,), tidies=True))),),
    "all at once": (Fork("race", tuple(Branch((Call("step", 0),), tidies=True) for _ in range(3))),),
    "an exception first": (Fork("race", (Branch((FAILS,)), Branch((NAP,), tidies=True))),),
    "nested": (
        Fork(
            "race",
            (
                Branch((Fork("race", (Branch((STEP, NAP), tidies=True), Branch((SIGNAL,), tidies=True))), STEP)),
                Branch((Fork("gather", (Branch((NAP, STEP), tidies=True), Branch((UPDATE, SIGNAL)))),), tidies=True),
            ),
        ),
    ),
    "in a gather": (
        Fork(
            "gather",
            (
                Branch((Fork("race", (Branch((Call("step", 1),)), Branch((STUBBORN,), tidies=True))),)),
                Branch((STEP, STEP, STEP)),
                Branch((Fork("race", (Branch(()), Branch((Fork("gather", (Branch((STEP,)), Branch((NAP,)))),)))),)),
            ),
        ),
    ),
}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS, CUTS, SENT)
@example(RACES["nested"], [(7, "unknown"), (5, "no")], [1, 4])
def test_every_replay_of_a_race_ends_it_in_the_same_way(
    program: tuple[Fork, ...], cuts: list[tuple[int, Applied]], sent: list[int]
) -> None:
    asyncio.run(check(program, cuts, sent))


@pytest.mark.parametrize("applied", ANSWERS)
@pytest.mark.parametrize("name", list(RACES))
async def test_a_race_that_is_cut_off_at_any_commit_ends_as_it_was_recorded(name: str, applied: Applied) -> None:
    for after in range(1, 20):
        await check(RACES[name], [(after, applied)], [2])
