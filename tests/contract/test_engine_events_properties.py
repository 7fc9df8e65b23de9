"""Random workflows, cut off, cancelled and signalled at random: their journals tell exactly what their rows say.

`EngineWorld` holds each journal against the rows whenever an engine has ended, in the middle of the run too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import event, example, given
from hypothesis import strategies as st

from stepwell import Retry, Run, StepFailed, workflow

from .engine_kinds import Deaf, drivers
from .engine_world import EngineWorld, Opened, success
from .store_world import Chat, Message, append, chats, empty
from .told_runs import check_agreement, entries_of, facts_of

BY_ITSELF = ("step", "once", "fail", "retry", "sleep", "update", "take", "signal", "defer")
IN_BRANCHES = ("step", "fail", "retry", "sleep", "update", "take", "signal")


def branching(how: str, kinds: list[str]) -> list[str]:
    return [how, *kinds]


ACTS: st.SearchStrategy[list[str]] = st.sampled_from([["do", kind] for kind in BY_ITSELF]) | st.builds(
    branching, st.sampled_from(("gather", "race")), st.lists(st.sampled_from(IN_BRANCHES), min_size=2, max_size=3)
)
PROGRAMS = st.lists(ACTS, max_size=6)
"""How, and the kinds of calls: one, or several side by side."""


@dataclass(frozen=True)
class Execution:
    """One engine: for how many turns of the loop it lasts, what comes from outside meanwhile, and how it ends."""

    turns: int
    passes_ms: int
    signals: int = 0
    cancels: bool = False
    crashes: bool = False


EXECUTIONS = st.lists(
    st.builds(
        Execution, st.integers(0, 60), st.sampled_from((0, 1_000)), st.integers(0, 2), st.booleans(), st.booleans()
    ),
    max_size=3,
)


def unclaimed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if "claimed_by" not in message), None)


def claim(_: Chat, message: Message) -> None:
    message["claimed_by"] = "r"


def fail() -> None:
    raise ValueError("as it must")


async def one() -> int:
    return 1


async def do(run: Run, kind: str, key: str) -> None:
    """One durable call, whatever it comes to."""
    store = run.store(chats)
    with suppress(StepFailed):
        match kind:
            case "step":
                _ = await run.step(key, one)
            case "once":
                _ = await run.step(key, one, mode="at_most_once")
            case "fail":
                await run.step(key, fail)
            case "retry":
                await run.step(key, fail, retry=Retry(max_attempts=2, initial=1))
            case "sleep":
                await run.sleep(key, 1)
            case "update":
                _ = await store.update(key, append(key))
            case "take":
                _ = await store.take_now(key, unclaimed, claim)
            case "signal":
                _ = await run.signal("news", int, timeout=5)
            case _:
                await run.defer(key, one)


@workflow
async def random(run: Run, program: list[list[str]]) -> str:
    _ = await run.store(chats).get_or_create("create", empty)
    for place, (how, *kinds) in enumerate(program):
        calls = [do(run, kind, f"{place}.{at}") for at, kind in enumerate(kinds)]
        match how:
            case "gather":
                _ = await run.gather(*calls)
            case "race":
                _ = await run.race(*calls)
            case _:
                await calls[0]
    return "done"


async def execute(world: EngineWorld, program: list[list[str]], execution: Execution) -> None:
    """Drive the run for a while; one that crashes writes nothing from then on, also not that it ends."""
    async with world.engine(random, around=Deaf) as app:
        _ = success(await app.engine.start(random, program, id="r"))
        for number in range(execution.signals):
            _ = await app.engine.signal("r", "news", number, dedupe=str(number))
        if execution.passes_ms:
            await app.clock.advance(execution.passes_ms)
        for _ in range(execution.turns):
            await asyncio.sleep(0)
        if execution.cancels:
            _ = await app.engine.cancel("r")
        if execution.crashes:
            await end_process(app)


async def end_process(app: Opened) -> None:
    """Nothing is written any more; what is under way ends."""
    assert isinstance(app.ledger, Deaf)
    app.ledger.deaf = True
    for driver in drivers("r"):
        _ = driver.cancel()
        await app.advance_until(driver.done)


async def check(world: EngineWorld, program: list[list[str]], executions: list[Execution]) -> None:
    for execution in executions:
        await execute(world, program, execution)
    async with world.engine(random) as app:
        handle = success(await app.engine.start(random, program, id="r"))
        _ = await app.ended_in_time(handle)
        await check_agreement(app.ledger, "r")
        await check_order(app, branches=any(how != "do" for how, *_ in program))


async def check_order(app: Opened, *, branches: bool) -> None:
    """The start is told first and the end last, in between each completion once, and by itself in its order."""
    row = await app.row("r")
    event(row.state)
    entries = await entries_of(app.ledger, "r")
    assert entries[0].event_type == "stepwell.run-started"
    assert entries[-1].event_type == f"stepwell.run-{row.state}"
    positions = [facts["position"] for facts in map(facts_of, entries) if "position" in facts]
    assert len(positions) == len(set(positions))
    if not branches:  # who loses a race may have had a position
        assert positions == list(range(1, len(positions) + 1))


CRASHES = Execution(turns=20, passes_ms=0, crashes=True)
CANCELLED = Execution(turns=30, passes_ms=1_000, cancels=True)


@given(PROGRAMS, EXECUTIONS)
@example([["do", "once"], ["do", "retry"], ["do", "sleep"]], [CRASHES, CRASHES])
@example([["do", "defer"], ["race", "sleep", "signal"], ["gather", "sleep", "sleep"]], [CANCELLED])
@example([["do", "signal"], ["do", "signal"]], [Execution(40, 0, signals=2)])
def test_a_journal_tells_exactly_the_steps_of_its_run_in_order(
    program: list[list[str]], executions: list[Execution]
) -> None:
    asyncio.run(check(EngineWorld("memory", Path()), program, executions))
