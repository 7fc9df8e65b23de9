"""The order in which results reach the branches of `run.gather`: the same in every replay, wherever a run is cut off.

Branches of random programs append to one list between their durable calls. An execution that is cut off at a random
commit has seen the beginning of what the next one sees; one that replays everything sees exactly the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepwell import AnyWorkflow, Ledger, Run, StepFailed, Success, workflow
from stepwell.core.batch import Batch
from stepwell.core.lease import LEASE_MS
from stepwell.layers.driver.turnstile import SETTLE_TURNS

from .engine_world import EngineWorld, Opened, Refusing, success, until
from .store_world import append, chats, empty, ids_of

Kind: TypeAlias = Literal["step", "fails", "update", "nap", "nested"]
Program: TypeAlias = list[list[tuple[Kind, int]]]
Log: TypeAlias = list[tuple[str, object]]

KINDS: tuple[Kind, ...] = ("step", "fails", "update", "nap", "nested")
CALLS = st.tuples(st.sampled_from(KINDS), st.integers(0, 12))
PROGRAMS = st.lists(st.lists(CALLS, max_size=4), min_size=1, max_size=4)
ANSWERS: tuple[Literal["no", "unknown"], ...] = ("no", "unknown")
CUTS = st.lists(st.tuples(st.integers(1, 30), st.sampled_from(ANSWERS)), max_size=2)


async def busy(turns: int) -> int:
    """Takes so many turns of the event loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return turns


async def failing(turns: int) -> int:
    raise ValueError(await busy(turns))


@dataclass
class Executions:
    """What each execution of a program saw, in order."""

    program: Program
    logs: list[Log] = field(default_factory=list[Log])

    def workflow(self) -> AnyWorkflow:
        @workflow(name="program")
        async def program(run: Run) -> int:
            log: Log = []
            self.logs.append(log)
            await run.gather(*(self._branch(run, log, str(at), calls) for at, calls in enumerate(self.program)))
            log.append(("all", len(log)))
            await run.sleep("end", 60)
            return len(log)

        return program

    async def _branch(self, run: Run, log: Log, name: str, calls: list[tuple[Kind, int]]) -> None:
        log.append((name, "begins"))
        for at, (kind, turns) in enumerate(calls):
            key = f"{name}.{at}"
            log.append((key, await self._call(run, log, key, kind, turns)))

    async def _call(self, run: Run, log: Log, key: str, kind: Kind, turns: int) -> object:
        match kind:
            case "step":
                return await run.step(key, busy, turns)
            case "fails":
                try:
                    return await run.step(key, failing, turns)
                except StepFailed as failed:
                    return failed.error.message
            case "update":
                return ids_of(success(await run.store(chats, "c").update(key, append(key))).state)
            case "nap":
                await run.sleep(key, turns / 1000)
                return None
            case "nested":
                inner: list[tuple[Kind, int]] = [("step", turns), ("step", 0)]
                await run.gather(*(self._branch(run, log, f"{key}.{n}", inner[n:]) for n in range(2)))
                return "both"


class Cut:
    """Lets so many commits through, answers the next as it is told, and none after that."""

    def __init__(self, after: int, applied: Literal["no", "unknown"]) -> None:
        self.left = after
        self._applied: Literal["no", "unknown"] = applied

    def __call__(self, batch: Batch) -> Literal["no", "unknown"] | None:
        self.left -= 1
        if self.left > 0:
            return None
        return self._applied if self.left == 0 else "no"

    def around(self, ledger: Ledger) -> Ledger:
        return Refusing(ledger, self)

    @property
    def made(self) -> bool:
        return self.left <= 0


async def check(program: Program, cuts: list[tuple[int, Literal["no", "unknown"]]]) -> None:
    executions = Executions(program)
    flow = executions.workflow()
    world = EngineWorld("memory", Path())
    async with world.engine(drive=False) as app:
        _ = await app.store.get_or_create(chats, "c", empty)
        handle = success(await app.engine.start(flow, id="r"))
    for after, applied in cuts:
        cut = Cut(after, applied)
        async with world.engine(flow, around=cut.around) as app:
            await app.advance_until(either(app, cut), by_ms=5)
        await world.clock.advance(LEASE_MS + 1)
    async with world.engine(flow) as app:
        await app.advance_until(either(app), by_ms=5)
    async with world.engine(flow) as app:
        await app.clock.advance(60_000)
        await until(lambda: executions.logs[-1][-1:] == [("all", len(executions.logs[-1]) - 1)])
        assert await app.engine.result(handle.id) == Success(len(executions.logs[-1]))
        assert (await app.status("r")).problem is None
    for earlier, later in zip(executions.logs, executions.logs[1:], strict=False):
        assert later[: len(earlier)] == earlier
    assert executions.logs[-1] == executions.logs[-2]


def either(app: Opened, cut: Cut | None = None) -> Callable[[], Awaitable[bool]]:
    """Whether the cut was made, or the program has come to its last sleep."""

    async def reached() -> bool:
        return (cut is not None and cut.made) or "'end'" in ((await app.status("r")).waiting_on or "")

    return reached


@settings(max_examples=80, deadline=None)
@given(PROGRAMS, CUTS)
@example([[("step", 5)], [("step", 0), ("step", 0)]], [])
@example([[("step", 3), ("update", 0)], [("update", 0), ("nested", 2)], [("nap", 3)]], [(7, "unknown")])
def test_every_replay_hands_results_over_in_the_order_of_the_record(
    program: Program, cuts: list[tuple[int, Literal["no", "unknown"]]]
) -> None:
    asyncio.run(check(program, cuts))


async def test_a_late_branch_waits_for_no_result_that_comes_after_its_own(tmp_path: Path) -> None:
    """Fails where a branch counts as blocked before it has said which result it waits for."""
    await check([[("step", 9)], [("step", 0)], [("step", 4)]], [])


SAME: Program = [[("step", 3), ("step", 0), ("step", 7)], [("step", 0), ("nested", 4), ("step", 1)], [("step", 9)] * 4]
"""One function under many keys, side by side: each call may look like one that another branch has yet to ask for."""


@pytest.mark.parametrize("applied", ANSWERS)
async def test_no_call_of_unchanged_code_is_taken_for_a_renamed_one(applied: Literal["no", "unknown"]) -> None:
    """Cut off at every commit, and where that was at an odd one, half as far on once more."""
    for after in range(1, 22):
        await check(SAME, [(after, applied)])
        if after % 2:
            await check(SAME, [(after, applied), (after // 2 + 1, applied)])


async def test_code_that_waits_for_something_else_is_not_taken_for_changed_code() -> None:
    """One branch comes to its recorded calls late, by turns of the loop, while another stands before a new one."""
    logs: list[list[str]] = []

    @workflow(name="late")
    async def late(run: Run) -> None:
        log: list[str] = []
        logs.append(log)

        async def branch(name: str, turns: int) -> None:
            for n in range(3):
                _ = await busy(turns)
                await run.step(f"{name}.{n}", busy, 0)
                log.append(f"{name}.{n}")

        await run.gather(branch("quick", 0), branch("late", SETTLE_TURNS * 3))
        await run.sleep("end", 60)

    for after in range(2, 9):
        world = EngineWorld("memory", Path())
        cut = Cut(after, "no")
        async with world.engine(late, around=cut.around) as app:
            _ = success(await app.engine.start(late, id="r"))
            await until(lambda cut=cut: cut.made)  # type: ignore[misc]
        await world.clock.advance(LEASE_MS + 1)
        async with world.engine(late) as app:
            await app.waits_for("r", "'end'")
        assert sorted(logs[-1]) == sorted(f"{name}.{n}" for name in ("quick", "late") for n in range(3))
