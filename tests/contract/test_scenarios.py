"""Seven ways in which others lose a wake, an event or a run, each in every place where it can happen.

The scenarios are those of the bug trackers of systems like this one. Where one says "at every await point", the points
are numbered and tried one after the other, until there are no more (`scenario_world.py`). Each is played with a rival
in this process and with one in another process. The clock stands where only an obligation and its hint may wake a run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import apsw
import pytest

from stepwell import Ledger, Success
from stepwell.core.poll import PollPolicy

from .engine_world import NOW_MS, EngineWorld, Opened, success, until
from .scenario_world import (
    BRANCHES,
    KNOWN,
    SELDOM,
    SHORT_MS,
    Deaf,
    Interposed,
    LocalRival,
    Rival,
    Side,
    acted_or_rests,
    gathers,
    hears,
    hears_after,
    hears_twice,
    local_rival,
    loses,
    make,
    marks,
    outcome_of,
    parks,
    races,
    ready,
    remote_rival,
    rests,
    row_of,
    seen,
    sees,
    takes,
)
from .store_world import append, chats

SIDES: tuple[Side, ...] = ("memory", "sqlite", "processes")

Kind: TypeAlias = Literal["sees", "takes", "hears"]
WAITS = {"sees": sees, "takes": takes, "hears": hears}
KINDS: tuple[Kind, ...] = ("sees", "takes", "hears")
ON_STORES: tuple[Kind, ...] = ("sees", "takes")

FEWEST_MOMENTS = 6
"""Of a wait on its way: a run is committed, the store is looked at, a waiter is registered; each has two moments."""


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Side:
    given: Side = request.param
    return given


@dataclass(frozen=True)
class Stage:
    """An engine that drives, over a ledger in whose moments a rival acts."""

    app: Opened
    double: Interposed
    rival: Rival

    async def start(self, kind: Kind, number: int) -> None:
        """The run `r-number` waits for something in the store `c-number`."""
        _ = success(await self.app.engine.start(WAITS[kind], f"c-{number}", id=f"r-{number}"))

    async def give(self, kind: Kind, number: int) -> None:
        """What the run waits for; it comes from the rival."""
        if kind == "hears":
            await self.rival.signal(f"r-{number}", f"m-{number}")
        else:
            await self.rival.append(f"c-{number}", f"m-{number}")

    async def outcome(self, number: int) -> object:
        return await outcome_of(self.double.real, f"r-{number}")

    async def left(self) -> list[object]:
        """Who is still registered, and what is owed."""
        ledger = self.double.real
        return [*success(await ledger.waiters()), *success(await ledger.wakes())]

    async def in_each_moment(
        self,
        act: Callable[[int], Awaitable[object]],
        begin: Callable[[int], Awaitable[object]],
        check: Callable[[int], Awaitable[object]],
        *,
        first: int = 1,
        prepare: Callable[[int], Awaitable[object]] | None = None,
    ) -> int:
        """Let `act` come in the first moment after `begin` of a run, in the second of another run, and so on.

        The last of them comes when the run rests. How many there were. Each is `check`ed, and has a store of its own.
        """
        acted = True
        for moment in itertools.count(first):
            if not acted:
                return moment - 1
            await make(self.app.store, f"c-{moment}")
            if prepare is not None:
                await prepare(moment)
            await until(lambda: not self.double.under_way)
            self.double.arm(moment, partial(act, moment))
            await begin(moment)
            acted = await acted_or_rests(self.double, f"r-{moment}")
            if not acted:
                self.double.disarm()
                await act(moment)
            await check(moment)
        raise AssertionError


@asynccontextmanager
async def driven(world: EngineWorld) -> AsyncGenerator[tuple[Opened, Interposed]]:
    doubles: list[Interposed] = []

    def around(ledger: Ledger) -> Ledger:
        doubles.append(Interposed(ledger))
        return doubles[0]

    async with world.engine(*KNOWN, around=around, poll=SELDOM) as app:
        yield app, doubles[0]


@asynccontextmanager
async def played(side: Side, folder: Path) -> AsyncGenerator[Stage]:
    """A stage with a rival over the very same ledger, or in another process."""
    world = world_of(side, folder)
    async with driven(world) as (app, double):
        rivals = remote_rival(world.path) if side == "processes" else local_rival(world, double.real)
        async with rivals as rival:
            yield Stage(app, double, rival)


def world_of(side: Side, folder: Path) -> EngineWorld:
    return EngineWorld("memory" if side == "memory" else "sqlite", folder / "app.db")


# --- 1: a write between the look and the registration ------------------------------------


@pytest.mark.parametrize("kind", ON_STORES)
async def test_scenario_1_a_write_at_any_moment_of_a_wait_is_never_missed(
    side: Side, kind: Kind, tmp_path: Path
) -> None:
    async with played(side, tmp_path) as stage:

        async def check(number: int) -> None:
            assert await stage.outcome(number) == f"m-{number}"

        moments = await stage.in_each_moment(partial(stage.give, kind), partial(stage.start, kind), check)
        assert moments > FEWEST_MOMENTS
        assert stage.app.clock.now_ms() == NOW_MS
        assert await stage.left() == []


async def test_scenario_1_a_signal_at_any_moment_of_a_wait_is_never_missed(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:

        async def prepare(number: int) -> None:
            _ = success(await stage.app.engine.start(hears_after, f"c-{number}", id=f"r-{number}"))
            await rests(stage.double, f"r-{number}")

        async def begin(number: int) -> None:
            await stage.rival.append(f"c-{number}", "begin")

        async def check(number: int) -> None:
            assert await stage.outcome(number) == f"m-{number}"

        moments = await stage.in_each_moment(partial(stage.give, "hears"), begin, check, prepare=prepare)
        assert moments > FEWEST_MOMENTS
        assert stage.app.clock.now_ms() == NOW_MS
        assert await stage.left() == []


@pytest.mark.parametrize("kind", ON_STORES)
async def test_scenario_1_a_write_at_any_moment_of_a_second_look_is_never_missed(
    side: Side, kind: Kind, tmp_path: Path
) -> None:
    """The run waits, is woken for nothing, and registers again."""
    async with played(side, tmp_path) as stage:

        async def prepare(number: int) -> None:
            await stage.start(kind, number)
            await rests(stage.double, f"r-{number}")

        async def begin(number: int) -> None:
            await stage.double.unseen(partial(stage.rival.flicker, f"c-{number}"))

        async def check(number: int) -> None:
            assert await stage.outcome(number) == f"m-{number}"

        moments = await stage.in_each_moment(partial(stage.give, kind), begin, check, prepare=prepare)
        assert moments > FEWEST_MOMENTS
        assert stage.app.clock.now_ms() == NOW_MS
        assert await stage.left() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_1_a_write_at_any_moment_of_a_take_over_is_never_missed(
    side: Side, kind: Kind, tmp_path: Path
) -> None:
    """The run waits already, and its next owner takes it up; the write comes in each moment of that."""
    world = world_of(side, tmp_path)
    async with AsyncExitStack() as stack:
        rivals = remote_rival(world.path) if side == "processes" else other_rival(world)
        rival = await stack.enter_async_context(rivals)
        acted, moment = True, 0
        while acted:
            moment += 1
            async with driven(world) as (app, double):
                stage = Stage(app, double, rival)
                await make(app.store, f"c-{moment}")
                await stage.start(kind, moment)
                await parks(double.real, f"r-{moment}")
            doubles: list[Interposed] = []

            def around(ledger: Ledger, moment: int = moment, doubles: list[Interposed] = doubles) -> Ledger:
                double = Interposed(ledger)
                double.arm(moment, partial(Stage(app, double, rival).give, kind, moment))
                doubles.append(double)
                return double

            async with world.engine(*KNOWN, around=around, poll=SELDOM) as app:
                (double,) = doubles
                stage = Stage(app, double, rival)
                acted = await acted_or_rests(double, f"r-{moment}")
                if not acted:
                    double.disarm()
                    await stage.give(kind, moment)
                assert await stage.outcome(moment) == f"m-{moment}"
                assert await stage.left() == []
        assert moment > FEWEST_MOMENTS
        assert world.clock.now_ms() == NOW_MS


@pytest.mark.parametrize("kind", ON_STORES)
async def test_scenario_1_a_deletion_at_any_moment_of_a_wait_is_never_missed(
    side: Side, kind: Kind, tmp_path: Path
) -> None:
    async with played(side, tmp_path) as stage:

        async def delete(number: int) -> None:
            await stage.rival.delete(f"c-{number}")

        async def check(number: int) -> None:
            assert await stage.outcome(number) == "gone"

        assert await stage.in_each_moment(delete, partial(stage.start, kind), check) > FEWEST_MOMENTS
        assert stage.app.clock.now_ms() == NOW_MS
        assert await stage.left() == []


@asynccontextmanager
async def other_rival(world: EngineWorld) -> AsyncGenerator[Rival]:
    """A rival in this process that outlives engines: over the same memory, or over the file by itself."""
    async with world.engine(drive=False, poll=SELDOM) as app, local_rival(world, app.ledger) as rival:
        yield rival


# --- 2: lost hints -----------------------------------------------------------------------

POLL_MS = 5_000
POLL = PollPolicy(initial_ms=POLL_MS, factor=1, cap_ms=POLL_MS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", ["bus", "news", "both"])
async def test_scenario_2_where_a_hint_is_lost_the_poll_wakes_in_time(
    side: Side, kind: Kind, lost: str, tmp_path: Path
) -> None:
    """Of two runs one waits here, and the other, where there is one, in another process."""
    world = world_of(side, tmp_path)
    silent, deaf = lost in ("bus", "both"), lost in ("news", "both")
    async with (
        world.engine(*KNOWN, around=Deaf if deaf else None, silent=silent, poll=POLL) as app,
        local_rival(world, app.ledger) as writer,
        AsyncExitStack() as stack,
    ):
        places: list[Rival] = [LocalRival(app)]
        if side == "processes":
            there = remote_rival(world.path, drive=True, deaf=deaf, silent=silent, poll_ms=POLL_MS)
            places.append(await stack.enter_async_context(there))
        for number, place in enumerate(places):
            await make(app.store, f"c-{number}")
            assert await place.start(WAITS[kind].name, f"r-{number}", f"c-{number}")
            await parks(app.ledger, f"r-{number}")
            await Stage(app, Interposed(app.ledger), writer).give(kind, number)
        for number, place in enumerate(places):
            await place.advance(POLL_MS - 1)
            assert await place.state(f"r-{number}") == "waiting"
            await place.advance(1)
            assert await place.result(f"r-{number}") == f"m-{number}"


# --- 3: there and gone again ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ON_STORES)
async def test_scenario_3_what_comes_and_goes_at_any_moment_is_not_acted_on_and_hides_nothing(
    side: Side, kind: Kind, tmp_path: Path
) -> None:
    async with played(side, tmp_path) as stage:

        async def flicker(number: int) -> None:
            await stage.double.unseen(partial(stage.rival.flicker, f"c-{number}"))

        async def check(number: int) -> None:
            await rests(stage.double, f"r-{number}")
            await stage.give(kind, number)
            assert await stage.outcome(number) == f"m-{number}"

        assert await stage.in_each_moment(flicker, partial(stage.start, kind), check) > FEWEST_MOMENTS
        assert stage.app.clock.now_ms() == NOW_MS
        assert await stage.left() == []


# --- 4: who gave up takes nothing ------------------------------------------------------------


@pytest.mark.parametrize("first", ["the item", "the cancellation"])
async def test_scenario_4_a_taker_cancelled_at_any_moment_leaves_what_it_did_not_take(
    side: Side, first: str, tmp_path: Path
) -> None:
    """Both come in the same moment, in either order; the next taker gets what the cancelled one did not."""
    async with played(side, tmp_path) as stage:
        ledger = stage.double.real

        async def act(number: int) -> None:
            if first == "the item":
                await stage.give("takes", number)
            if success(await ledger.run(f"r-{number}")) is not None:
                await stage.rival.cancel(f"r-{number}")
            if first == "the cancellation":
                await stage.give("takes", number)

        async def check(number: int) -> None:
            await stage.app.advance_until(lambda: _has_ended(ledger, f"r-{number}"))
            row = await row_of(ledger, f"r-{number}")
            (item,) = success(await stage.app.store.get(chats, f"c-{number}")).state["messages"]
            if row.state == "completed":
                assert item.get("claimed_by") == f"r-{number}"
                return
            assert row.state == "cancelled"
            taken = (await stage.app.steps(f"r-{number}")).get("taken")
            assert ("claimed_by" in item) == (taken is not None and taken.status == "done")
            assert success(await ledger.waiters(run_id=f"r-{number}")) == ()
            if "claimed_by" not in item:
                _ = success(await stage.app.engine.start(takes, f"c-{number}", id=f"next-{number}"))
                assert await outcome_of(ledger, f"next-{number}") == f"m-{number}"

        assert await stage.in_each_moment(act, partial(stage.start, "takes"), check) > FEWEST_MOMENTS
        assert await stage.left() == []


async def _has_ended(ledger: Ledger, run_id: str) -> bool:
    return (await row_of(ledger, run_id)).ended


async def test_scenario_4_a_signal_at_any_moment_of_a_time_out_is_heard_once(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:

        async def prepare(number: int) -> None:
            _ = success(await stage.app.engine.start(hears_twice, f"c-{number}", id=f"r-{number}"))
            await rests(stage.double, f"r-{number}")

        async def begin(_: int) -> None:
            await stage.app.clock.advance(SHORT_MS)

        async def check(number: int) -> None:
            await until(lambda: _says_late_or_ended(stage, number))
            if not await _has_ended(stage.double.real, f"r-{number}"):
                await stage.rival.signal(f"r-{number}", "another")
            assert await stage.outcome(number) in (["late", f"m-{number}"], [f"m-{number}", "another"])

        moments = await stage.in_each_moment(partial(stage.give, "hears"), begin, check, prepare=prepare)
        assert moments >= 4
        assert await stage.left() == []


async def _says_late_or_ended(stage: Stage, number: int) -> bool:
    """Whether the run needs another signal, or none."""
    unread = success(await stage.double.real.signals(f"r-{number}"))
    row = await row_of(stage.double.real, f"r-{number}")
    return row.ended or (not unread and row.state == "waiting")


@pytest.mark.parametrize("kind", KINDS)
async def test_scenario_4_a_wait_that_loses_a_race_at_any_moment_consumes_nothing(
    side: Side, kind: Kind, tmp_path: Path
) -> None:
    async with played(side, tmp_path) as stage:

        async def prepare(number: int) -> None:
            _ = success(await stage.app.engine.start(loses, kind, id=f"r-{number}"))
            await rests(stage.double, f"r-{number}")

        async def begin(_: int) -> None:
            await stage.app.clock.advance(SHORT_MS)

        async def check(number: int) -> None:
            """What came is given once, whoever won; one that does not consume sees it twice."""
            ledger, won = stage.double.real, f"m-{number}"
            await until(lambda: _wants_more_or_ended(stage, number))
            if not await _has_ended(ledger, f"r-{number}"):
                await (
                    stage.rival.signal(f"r-{number}", "another")
                    if kind == "hears"
                    else stage.rival.append(f"c-{number}", "another")
                )
            outcome = await stage.outcome(number)
            if kind == "takes" and outcome == [
                "late",
                "another",
            ]:  # it was being committed when it lost, and stays done
                assert (await stage.app.steps(f"r-{number}"))["first"].status == "done"
                return
            assert outcome in (["late", won], [won, won if kind == "sees" else "another"])

        moments = await stage.in_each_moment(partial(stage.give, kind), begin, check, prepare=prepare)
        assert moments >= 4
        assert await stage.left() == []


async def _wants_more_or_ended(stage: Stage, number: int) -> bool:
    is_used_up = await _is_used_up(stage, number)
    row = await row_of(stage.double.real, f"r-{number}")
    return row.ended or (is_used_up and row.state == "waiting")


async def _is_used_up(stage: Stage, number: int) -> bool:
    """Whether nothing is left for the run to take or to hear."""
    unread = success(await stage.double.real.signals(f"r-{number}"))
    messages = success(await stage.app.store.get(chats, f"c-{number}")).state["messages"]
    return not unread and all("claimed_by" in message for message in messages)


# --- 5: several waits that are ready at once ---------------------------------------------------

ORDERS = [" ".join(order) for order in itertools.permutations(BRANCHES)]
PAIRS = [" ".join(order) for order in itertools.permutations(BRANCHES, 2)]


@pytest.mark.parametrize("how", ["gathers", "races"])
async def test_scenario_5_waits_that_are_ready_at_once_replay_in_the_recorded_order(
    side: Side, how: str, tmp_path: Path
) -> None:
    """All permutations of a sleep, a signal, a condition, a take and a step, each in a run of its own.

    An execution meets all of them ready, another one replays it, and tells in its result what it saw.
    """
    flow = gathers if how == "gathers" else races
    orders = ORDERS if side == "memory" or how == "gathers" else PAIRS
    runs = {f"r-{at:03}": order for at, order in enumerate(orders)}
    world = world_of(side, tmp_path)
    ready.clear()
    async with world.engine(*KNOWN, poll=SELDOM) as app:
        for run_id in runs:
            await make(app.store, f"when-{run_id}")
            await make(app.store, f"take-{run_id}")
        for run_id, order in runs.items():
            _ = success(await app.engine.start(flow, order, id=run_id))
        for run_id in runs:
            await parks(app.ledger, run_id)
    async with world.engine(drive=False, poll=SELDOM) as app:
        for run_id in runs:
            for store_id in (f"when-{run_id}", f"take-{run_id}"):
                _ = success(await app.store.update(chats, store_id, append("x")))
            _ = success(await app.engine.signal(run_id, "news", "y"))
    ready.update(runs)
    await world.clock.advance(60_000)
    async with world.engine(*KNOWN, poll=SELDOM) as app:
        for run_id in runs:
            await until(lambda run_id=run_id: _ends_next(app, run_id))
        first = {run_id: list(seen[run_id]) for run_id in runs}
        for run_id in runs:
            if how == "gathers":
                steps = [row for row in (await app.steps(run_id)).values() if row.position is not None]
                recorded = [_branch(row.kind) for row in sorted(steps, key=lambda row: row.position or 0)]
                assert first[run_id] == recorded
    seen.clear()
    async with AsyncExitStack() as stack:
        if side == "processes":
            replayer = await stack.enter_async_context(remote_rival(world.path, drive=True))
            await replayer.advance(60_000)
        else:
            replayer = LocalRival(await stack.enter_async_context(world.engine(*KNOWN, poll=SELDOM)))
        await replayer.advance(1_000)
        for run_id in runs:
            assert await replayer.result(run_id) == first[run_id]
    orders_seen = {tuple(log) for log in first.values()}
    assert len(orders_seen) > 1, "that all were alike proves nothing"


async def _ends_next(app: Opened, run_id: str) -> bool:
    row = (await app.steps(run_id)).get("end")
    return row is not None and row.status == "waiting" and (await app.row(run_id)).state == "waiting"


def _branch(kind: str) -> str:
    return kind.removeprefix("store.")


# --- 6: one id, started twice -------------------------------------------------------------------


async def test_scenario_6_an_id_started_again_at_any_moment_of_its_start_is_one_run(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:
        log = str(tmp_path / "log")
        again: dict[int, bool] = {}

        async def act(number: int) -> None:
            again[number] = await stage.rival.start("marks", f"r-{number}", log)

        moment = 0
        stage.double.acted = True
        while stage.double.acted:
            moment += 1
            stage.double.arm(moment, partial(act, moment))
            handle = success(await stage.app.engine.start(marks, log, id=f"r-{moment}"))
            assert success(await stage.app.ended_in_time(handle)) == f"r-{moment}"
        assert list(again) == list(range(1, moment))
        assert all(again.values())
        assert moment > 4
        assert sorted(executed(tmp_path / "log")) == sorted(f"r-{number}" for number in range(1, moment + 1))


async def test_scenario_6_of_two_starts_with_other_arguments_one_is_refused(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:
        mine, other = str(tmp_path / "mine"), str(tmp_path / "other")
        for moment in (1, 2):  # before and after the commit of the start
            run_id = f"r-{moment}"
            stage.double.arm(moment, partial(stage.rival.start, "marks", run_id, other))
            started = await stage.app.engine.start(marks, mine, id=run_id)
            assert isinstance(started, Success) == (moment == 2)
            await stage.app.advance_until(lambda run_id=run_id: _has_ended(stage.double.real, run_id))
        assert executed(tmp_path / "other") == ["r-1"]
        assert executed(tmp_path / "mine") == ["r-2"]


async def test_scenario_6_many_starts_of_one_id_at_once_are_one_run(side: Side, tmp_path: Path) -> None:
    world, log = world_of(side, tmp_path), str(tmp_path / "log")
    async with driven(world) as (app, double), AsyncExitStack() as stack:
        rivals = remote_rival(world.path, drive=True) if side == "processes" else local_rival(world, double.real)
        starters: tuple[Rival, ...] = (LocalRival(app), await stack.enter_async_context(rivals), LocalRival(app))
        runs = [f"r-{number:02}" for number in range(30)]
        started = await asyncio.gather(*(each.start("marks", run_id, log) for run_id in runs for each in starters))
        assert all(started)
        for run_id in runs:
            await app.advance_until(lambda run_id=run_id: _has_ended(double.real, run_id))
        assert sorted(executed(tmp_path / "log")) == runs


def executed(log: Path) -> list[str]:
    """The runs that executed the step, as often as they did."""
    return [line.split()[0] for line in log.read_text().splitlines()]


# --- 7: two workers over one file ------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete"])
async def test_scenario_7_two_worker_processes_execute_every_run_once(journal: str, tmp_path: Path) -> None:
    world, log = EngineWorld("sqlite", tmp_path / "app.db"), tmp_path / "log"
    async with world.engine(drive=False):
        pass
    switch_journal(world.path, journal)
    async with (
        remote_rival(world.path, drive=True) as one,
        remote_rival(world.path, drive=True) as two,
        world.engine(*KNOWN, drive=False) as app,
    ):
        runs: list[str] = []
        while len(workers(log)) < 2 or len(runs) < 200:
            assert len(runs) < 2_000, "one worker has got nothing"
            wave = [f"r-{len(runs) + number:04}" for number in range(50)]
            _ = await asyncio.gather(*(app.engine.start(marks, str(log), id=run_id) for run_id in wave))
            runs += wave
            await asyncio.gather(one.advance(1_000), two.advance(1_000))
            for run_id in wave:
                assert await outcome_of(app.ledger, run_id) == run_id
        assert sorted(executed(log)) == runs


def switch_journal(path: Path, journal: str) -> None:
    connection = apsw.Connection(str(path))
    (mode,) = connection.execute(f"pragma journal_mode = {journal}").fetchall()
    connection.close()
    assert mode == (journal,)


def workers(log: Path) -> set[str]:
    return {line.split()[1] for line in log.read_text().splitlines()} if log.exists() else set()
