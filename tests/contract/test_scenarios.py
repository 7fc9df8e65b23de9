"""Seven ways in which others lose a wake, an event or a run, each in every place where it can happen.

The scenarios are those of the bug trackers of systems like this one. Where one says "at every await point", the points
are numbered and tried one after the other, until there are no more (`scenario_world.py`). Each is played with a rival
in this process and with one in another process. The clock stands where only an obligation and its hint may wake a run.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from stepwell import Ledger
from stepwell.core.poll import PollPolicy

from .engine_world import NOW_MS, EngineWorld, Opened, success, until
from .scenario_world import (
    KNOWN,
    SELDOM,
    Deaf,
    Interposed,
    LocalRival,
    Rival,
    Side,
    acted_or_rests,
    hears,
    hears_after,
    local_rival,
    make,
    outcome_of,
    parks,
    remote_rival,
    rests,
    sees,
    takes,
)

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
        acted = True
        for moment in itertools.count(1):
            if not acted:
                break
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
