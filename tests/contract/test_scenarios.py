"""Ways in which others lose a wake or an event, each in every place where it can happen: scenarios 1 to 4.

The scenarios are those of the bug trackers of systems like this one. Where one says "at every await point", the points
are numbered and tried one after the other, until there are no more (`scenario_world.py`). Each is played with a rival
in this process and with one in another process. The clock stands where only an obligation and its hint may wake a run.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from stepwell import Ledger
from stepwell.core.poll import PollPolicy

from .engine_world import NOW_MS, success, until
from .scenario_flows import (
    KNOWN,
    SHORT_MS,
    hears_after,
    hears_twice,
    loses,
    takes,
)
from .scenario_rivals import LocalRival, Rival, forker, local_rival, remote_rival
from .scenario_world import (
    KINDS,
    ON_STORES,
    SELDOM,
    SIDES,
    WAITS,
    Deaf,
    Interposed,
    Kind,
    Side,
    Stage,
    acted_or_rests,
    driven,
    has_ended,
    make,
    other_rival,
    outcome_of,
    parks,
    played,
    rests,
    row_of,
    world_of,
)
from .store_world import chats

FEWEST_MOMENTS = 6
"""Of a wait on its way: a run is committed, the store is looked at, a waiter is registered; each has two moments."""


@pytest.fixture(scope="module", autouse=True)
def other_processes() -> Generator[None]:
    with forker():
        yield


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Side:
    given: Side = request.param
    return given


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
            await stage.app.advance_until(lambda: has_ended(ledger, f"r-{number}"))
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


async def test_scenario_4_a_signal_at_any_moment_of_a_time_out_is_heard_once(side: Side, tmp_path: Path) -> None:
    async with played(side, tmp_path) as stage:

        async def prepare(number: int) -> None:
            _ = success(await stage.app.engine.start(hears_twice, f"c-{number}", id=f"r-{number}"))
            await rests(stage.double, f"r-{number}")

        async def begin(_: int) -> None:
            await stage.app.clock.advance(SHORT_MS)

        async def check(number: int) -> None:
            await until(lambda: _says_late_or_ended(stage, number))
            if not await has_ended(stage.double.real, f"r-{number}"):
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
            if not await has_ended(ledger, f"r-{number}"):
                await (
                    stage.rival.signal(f"r-{number}", "another")
                    if kind == "hears"
                    else stage.rival.append(f"c-{number}", "another")
                )
            assert await stage.outcome(number) in (["late", won], [won, won if kind == "sees" else "another"])

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
