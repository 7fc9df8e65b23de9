"""What every store must do: wait in memory until a selector finds something, and look no more often than it must."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

import pytest
from pydantic import BaseModel

from stepwell import (
    Failure,
    InvalidState,
    Layer,
    Ledger,
    ManualClock,
    Outcome,
    Replace,
    Revision,
    Store,
    StoreDefinition,
    StoreKey,
    StoreNotFound,
    TimedOut,
    Unavailable,
    WakeBus,
    WakeToken,
    define_store,
    provides,
)
from stepwell.core.poll import PollPolicy
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import News

from .ledger_double import LedgerDouble
from .store_contract import made
from .store_doubles import PlainStore
from .store_world import Chat, Message, World, append, chats, failure, success

_R = TypeVar("_R")
_T = TypeVar("_T")

KEY = StoreKey("chat", "c")
LATE_S = 20
"""In real seconds, how long a test waits for what must come."""

tables = define_store("when.tables", dict[str, int])


class Looking(Generic[_T, _R]):
    """A selector that counts its runs."""

    def __init__(self, selector: Callable[[_T], _R]) -> None:
        self.runs = 0
        self._selector = selector

    def __call__(self, state: _T) -> _R:
        self.runs += 1
        return self._selector(state)


class Bus:
    """A bus that tells whom it has woken and how many wait; single operations can fail."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.waiting = 0
        self.fails_to_wake = self.fails_to_wait = self.is_silent = False
        self._real = MemoryWakeBus()

    async def wake(self, run_id: str) -> None:
        self.woken.append(run_id)
        if self.fails_to_wake:
            raise RuntimeError("this bus is broken")
        if not self.is_silent:
            await self._real.wake(run_id)

    async def await_wake(self, run_id: str, token: WakeToken | None = None) -> None:
        self.waiting += 1
        try:
            if self.fails_to_wait:
                raise RuntimeError("this bus is broken")
            await self._real.await_wake(run_id, token)
        finally:
            self.waiting -= 1

    async def waiters(self, run_id: str) -> int:
        return await self._real.waiters(run_id)

    def token(self, run_id: str) -> WakeToken:
        return self._real.token(run_id)

    def layer(self) -> Layer[WakeBus, WakeBus]:
        @provides
        def recipe() -> Iterator[WakeBus]:
            yield self

        return recipe


class Listened(LedgerDouble):
    """Counts who listens, and can keep the news to itself."""

    def __init__(self, real: Ledger, *, is_deaf: bool = False) -> None:
        super().__init__(real)
        self.listeners = 0
        self.tips = 0
        self._is_deaf = is_deaf

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        self.tips += 1
        return await super().tip(key)

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        self.listeners += 1
        unsubscribe = super().subscribe((lambda _: None) if self._is_deaf else listener)

        def leave() -> None:
            self.listeners -= 1
            unsubscribe()

        return leave


class Meddled(LedgerDouble):
    """Right after the tip has been asked for, for the time number `at`, `rival` is awaited."""

    def __init__(self, real: Ledger, at: int, rival: Callable[[], Awaitable[object]]) -> None:
        super().__init__(real)
        self.tips = 0
        self._at = at
        self._rival = rival

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        answer = await super().tip(key)
        self.tips += 1
        if self.tips == self._at + 1:
            await self._rival()
            await turns()  # for as long as the news need to be heard and followed
        return answer


class Place:
    """A client with all that its waits rest on: a clock that stands, a bus and a ledger that can be looked at."""

    def __init__(self, store: Store, clock: ManualClock, bus: Bus, ledger: Listened) -> None:
        self.store = store
        self.clock = clock
        self.bus = bus
        self.ledger = ledger

    async def parked(self, count: int = 1) -> None:
        """Return when so many waits are parked, and nothing else is going on."""
        async with asyncio.timeout(LATE_S):
            while self.bus.waiting != count:  # noqa: ASYNC110  # nothing tells when they are
                await asyncio.sleep(0)
        await turns()

    def assert_nothing_is_left(self) -> None:
        assert (self.bus.waiting, self.ledger.listeners) == (0, 0)


async def opened(world: World, *, is_deaf: bool = False, poll: PollPolicy | None = None) -> Place:
    """A client whose own ledger keeps the news to itself if `is_deaf`."""
    clock, bus = ManualClock(1_000_000), Bus()
    ledgers: list[Listened] = []

    def around(ledger: Ledger) -> Ledger:
        ledgers.append(Listened(ledger, is_deaf=is_deaf))
        return ledgers[0]

    client = await world.client(around=around, clock=clock, bus=bus.layer(), poll=poll)
    return Place(client.store, clock, bus, ledgers[0])


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(task: asyncio.Task[_R]) -> _R:
    return await asyncio.wait_for(task, LATE_S)


def named(id: str) -> Callable[[Chat], Message | None]:
    return lambda chat: next((message for message in chat["messages"] if message["id"] == id), None)


def unrelated(chat: Chat) -> None:
    chat["unrelated"] = chat.get("unrelated", 0) + 1


def cell(key: str, table: dict[str, int]) -> int | None:
    return table[key] or None


def put(key: str, table: dict[str, int]) -> None:
    table[key] = 1


class StoreWhenContract:
    # --- at once ------------------------------------------------------------------

    async def test_what_is_there_is_given_at_once(self, world: World) -> None:
        place = await opened(world)
        handle = place.store.handle(chats, "c")
        await made(place.store)
        success(await handle.update(append("x")))
        looking = Looking(named("x"))
        found = success(await handle.when(looking))
        assert (found, looking.runs) == ({"id": "x"}, 1)
        assert isinstance(found, dict)
        found["claimed_by"] = "mine"  # it is the caller's own
        assert success(await handle.get()).state == {"messages": [{"id": "x"}]}
        place.assert_nothing_is_left()

    async def test_a_store_that_is_not_there_is_not_waited_for(self, world: World) -> None:
        place = await opened(world)
        looking = Looking(named("x"))
        assert failure(await place.store.handle(chats, "c").when(looking)) == StoreNotFound(KEY)
        assert looking.runs == 0

    @pytest.mark.parametrize("value", [0, "", [], {}, True])
    async def test_s43_all_but_none_and_false_end_a_wait(self, world: World, value: object) -> None:
        place = await opened(world)
        await made(place.store)
        assert repr(success(await place.store.handle(chats, "c").when(lambda _: value))) == repr(value)

    async def test_with_no_time_it_looks_once(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        looking = Looking(named("x"))
        handle = place.store.handle(chats, "c")
        assert failure(await handle.when(looking, timeout=0)) == TimedOut(0)
        assert looking.runs == 1
        with pytest.raises(ValueError, match="timeout is at least 0"):
            await handle.when(looking, timeout=-1)
        with pytest.raises(TypeError, match="timeout is a number of seconds"):
            await handle.when(looking, timeout=True)
        place.assert_nothing_is_left()

    # --- woken by commits ------------------------------------------------------------

    async def test_a_commit_that_met_what_was_read_ends_the_wait(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        looking = Looking(named("x"))
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        for _ in range(3):
            success(await place.store.update(chats, "c", unrelated))
        await turns()
        assert (looking.runs, place.bus.woken) == (1, [])  # nobody looked again
        success(await place.store.update(chats, "c", append("y")))
        await place.parked()
        assert (looking.runs, len(place.bus.woken)) == (2, 1)
        success(await place.store.update(chats, "c", append("x")))
        assert success(await ended(task)) == {"id": "x"}
        assert (looking.runs, place.clock.now_ms()) == (3, 1_000_000)
        place.assert_nothing_is_left()

    async def test_a_take_wakes_like_an_update(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        success(await place.store.update(chats, "c", append("x")))
        handle = place.store.handle(chats, "c")
        task = asyncio.create_task(handle.when(lambda chat: chat["messages"][0].get("claimed_by")))
        await place.parked()

        def claim(_: Chat, message: Message) -> None:
            message["claimed_by"] = "me"

        success(await handle.take(named("x"), claim))
        assert success(await ended(task)) == "me"

    async def test_a_commit_of_another_client_ends_the_wait(self, world: World) -> None:
        place = await opened(world)
        other = (await world.client()).store
        await made(other)
        looking = Looking(named("x"))
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        success(await other.update(chats, "c", unrelated))
        success(await other.update(chats, "c", append("x")))
        assert success(await ended(task)) == {"id": "x"}
        assert looking.runs == 2
        place.assert_nothing_is_left()

    @pytest.mark.parametrize("at", [0, 1])
    async def test_a_commit_between_the_look_and_the_wait_is_not_missed(self, world: World, at: int) -> None:
        """It asks for the tip before each of its two looks: at one of them others commit right after the answer."""
        other = (await world.client()).store
        await made(other)
        meddled: list[Meddled] = []

        def around(ledger: Ledger) -> Ledger:
            meddled.append(Meddled(ledger, at, lambda: other.update(chats, "c", append("x"))))
            return meddled[0]

        store = (await world.client(around=around, clock=ManualClock(), bus=Bus().layer())).store
        success(await store.get(chats, "c"))  # from now on it asks for tips
        assert success(await asyncio.wait_for(store.handle(chats, "c").when(named("x")), LATE_S)) == {"id": "x"}
        assert meddled[0].tips > at  # and time stood still, so that no poll was needed

    async def test_a_commit_that_others_were_told_of_meanwhile_is_not_missed(self, world: World) -> None:
        """One is parked already, and is told of the commit while the other still has its answer from before."""
        other = (await world.client()).store
        await made(other)
        meddled: list[Meddled] = []

        def around(ledger: Ledger) -> Ledger:
            meddled.append(Meddled(ledger, 3, lambda: other.update(chats, "c", append("x"))))
            return meddled[0]

        bus = Bus()
        store = (await world.client(around=around, clock=ManualClock(), bus=bus.layer())).store
        success(await store.get(chats, "c"))
        before = asyncio.create_task(store.handle(chats, "c").when(lambda chat: "unrelated" in chat))  # it is not met
        await turns()
        assert (meddled[0].tips, bus.waiting) == (
            2,
            1,
        )  # it has looked twice, and is parked; the next one does the same
        after = asyncio.create_task(store.handle(chats, "c").when(named("x")))
        assert success(await ended(after)) == {"id": "x"}
        before.cancel()
        await asyncio.wait({before})

    async def test_whoever_commits_here_tells_of_what_others_committed_before(self, world: World) -> None:
        """No news come; but the version of a commit of this client shows that there was another."""
        place = await opened(world, is_deaf=True)
        other = (await world.client()).store
        await made(place.store)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("x")))
        await place.parked()
        success(await other.update(chats, "c", append("x")))
        await turns()
        assert not task.done()
        success(await place.store.update(chats, "c", unrelated))
        assert success(await ended(task)) == {"id": "x"}

    async def test_whoever_sees_more_than_the_others_tells_them(self, world: World) -> None:
        """No news come; but a further wait looks at a revision that the one before has not been told of."""
        place = await opened(world, is_deaf=True)
        other = (await world.client()).store
        await made(place.store)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("x")))
        await place.parked()
        success(await other.update(chats, "c", append("x")))
        further = asyncio.create_task(place.store.handle(chats, "c").when(named("y")))
        assert success(await ended(task)) == {"id": "x"}
        further.cancel()
        await asyncio.wait({further})
        place.assert_nothing_is_left()

    async def test_what_an_earlier_look_read_wakes_nobody(self, world: World) -> None:
        place = await opened(world, is_deaf=True)
        other = (await world.client()).store
        await made(place.store)

        def select(chat: Chat) -> bool:
            return len(chat["messages"]) > 1 if chat["messages"] else chat.get("unrelated", 0) > 5

        looking = Looking(select)
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        success(await other.update(chats, "c", append("x")))
        await place.clock.advance(200)
        await turns()
        assert looking.runs == 2  # and now it has not read `unrelated`
        success(await place.store.update(chats, "c", unrelated))
        await turns()
        assert (place.bus.woken, looking.runs) == ([], 2)
        success(await place.store.update(chats, "c", append("y")))
        assert success(await ended(task)) is True

    async def test_s54_a_replacement_wakes_who_read_what_differs(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("ready")))
        await place.parked()
        success(await place.store.update(chats, "c", lambda _: Replace({"messages": [{"id": "ready"}]})))
        assert success(await ended(task)) == {"id": "ready"}

    async def test_s55_what_a_replacement_drops_wakes_its_reader(self, world: World) -> None:
        place = await opened(world)
        chat: Chat = {"messages": [{"id": "a"}], "unrelated": 1}
        success(await place.store.get_or_create(chats, "c", chat))
        task = asyncio.create_task(place.store.handle(chats, "c").when(lambda chat: "unrelated" not in chat))
        await place.parked()
        updated = success(await place.store.update(chats, "c", lambda _: Replace[Chat]({"messages": [{"id": "b"}]})))
        assert updated.state == {"messages": [{"id": "b"}]}
        assert success(await ended(task)) is True

    async def test_s57_an_update_that_changes_nothing_wakes_nobody(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        looking = Looking[Chat, bool](lambda chat: chat == {"messages": [{"id": "x"}]})  # it reads the root
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        assert success(await place.store.update(chats, "c", lambda _: None)).version == 1
        await turns()
        assert (looking.runs, place.bus.woken) == (1, [])
        success(await place.store.update(chats, "c", append("x")))
        assert success(await ended(task)) is True

    async def test_s75_a_selector_that_reads_nothing_looks_after_every_change(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        outside: list[str] = []
        looking = Looking[Chat, str | None](lambda _: outside[0] if outside else None)
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        success(await place.store.update(chats, "c", unrelated))
        await place.parked()
        assert looking.runs == 2
        outside.append("x")
        success(await place.store.update(chats, "c", unrelated))
        assert success(await ended(task)) == "x"

    async def test_s87_one_append_among_5000_wakes_the_one_that_it_meets(self, world: World) -> None:
        place = await opened(world)
        chat: Chat = {"messages": [{"id": f"msg-{number}"} for number in range(5_000)]}
        success(await place.store.get_or_create(chats, "c", chat))
        handle = place.store.handle(chats, "c")
        met = asyncio.create_task(handle.when(lambda chat: len(chat["messages"]) > 5_000))
        first = Looking[Chat, str | None](lambda chat: chat["messages"][0].get("claimed_by"))
        other = asyncio.create_task(handle.when(first))
        await place.parked(2)
        success(await handle.update(append("msg-5000")))
        assert success(await ended(met)) is True
        assert (len(place.bus.woken), first.runs) == (1, 1)
        other.cancel()
        await asyncio.wait({other})
        place.assert_nothing_is_left()

    async def test_hundreds_who_wait_for_one_store_look_only_when_they_are_met(self, world: World) -> None:
        place = await opened(world)
        success(await place.store.get_or_create(tables, "t", {str(number): 0 for number in range(300)}))
        handle = place.store.handle(tables, "t")
        lookings = [Looking(partial(cell, str(number))) for number in range(300)]
        tasks = [asyncio.create_task(handle.when(looking)) for looking in lookings]
        await place.parked(300)
        for number in range(300):
            success(await handle.update(partial(put, str(number))))
        assert [success(await ended(task)) for task in tasks] == [1] * 300
        assert sum(looking.runs for looking in lookings) == 600
        place.assert_nothing_is_left()

    # --- the end of an instance ---------------------------------------------------------

    @pytest.mark.parametrize("by", ["itself", "another client"])
    async def test_a_deleted_store_ends_the_wait(self, world: World, by: str) -> None:
        place = await opened(world)
        deleter = place.store if by == "itself" else (await world.client()).store
        await made(place.store)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("x")))
        await place.parked()
        assert success(await deleter.delete(chats, "c")) is None
        assert failure(await ended(task)) == StoreNotFound(KEY)
        place.assert_nothing_is_left()

    @pytest.mark.parametrize("by", ["itself", "another client"])
    async def test_s72_a_wait_belongs_to_the_instance_that_it_looked_at(self, world: World, by: str) -> None:
        place = await opened(world)
        other = place.store if by == "itself" else (await world.client()).store
        await made(place.store)
        looking = Looking(named("x"))
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        calls = (other.delete(chats, "c"), made(other), other.update(chats, "c", append("x")))
        await asyncio.gather(*calls)
        assert failure(await ended(task)) == StoreNotFound(KEY)
        assert looking.runs == 1
        place.assert_nothing_is_left()

    async def test_s72_a_store_that_was_made_again_unseen_is_not_the_one_that_was_waited_for(
        self, world: World
    ) -> None:
        place = await opened(world, is_deaf=True)
        other = (await world.client()).store
        await made(place.store)
        looking = Looking(named("x"))
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        success(await other.delete(chats, "c"))
        await made(other)
        success(await other.update(chats, "c", append("x")))
        await turns()
        assert not task.done()
        await place.clock.advance(200)
        assert failure(await ended(task)) == StoreNotFound(KEY)
        assert looking.runs == 1
        place.assert_nothing_is_left()

    # --- time -----------------------------------------------------------------------------

    async def test_a_wait_ends_at_its_deadline(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("x"), timeout=1.5))
        await place.parked()
        await place.clock.advance(1_499)
        await turns()
        assert not task.done()
        await place.clock.advance(1)
        assert failure(await ended(task)) == TimedOut(1_500)
        place.assert_nothing_is_left()

    async def test_s141_at_the_deadline_a_match_wins(self, world: World) -> None:
        """No news of the commit comes, and the deadline is before the first poll."""
        place = await opened(world, is_deaf=True)
        other = (await world.client()).store
        await made(other)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("x"), timeout=0.1))
        await place.parked()
        success(await other.update(chats, "c", append("x")))
        await turns()
        assert not task.done()
        await place.clock.advance(100)
        assert success(await ended(task)) == {"id": "x"}

    async def test_without_news_the_poll_finds_it(self, world: World) -> None:
        place = await opened(world, is_deaf=True)
        other = (await world.client()).store
        await made(other)
        looking = Looking(named("x"))
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await place.parked()
        for pause_ms in (200, 300, 450):
            reads = place.ledger.tips
            await place.clock.advance(pause_ms - 1)
            assert place.ledger.tips == reads
            await place.clock.advance(1)
            await place.parked()
            assert (place.ledger.tips, looking.runs) == (reads + 1, 1)  # the tip had not moved
        success(await other.update(chats, "c", append("x")))
        await place.clock.advance(675)
        assert success(await ended(task)) == {"id": "x"}
        assert looking.runs == 2

    async def test_the_poll_is_as_slow_as_its_policy_says(self, world: World) -> None:
        place = await opened(world, is_deaf=True, poll=PollPolicy(5_000, 1.0, 5_000))
        other = (await world.client()).store
        await made(other)
        task = asyncio.create_task(place.store.handle(chats, "c").when(named("x")))
        await place.parked()
        success(await other.update(chats, "c", append("x")))
        await place.clock.advance(4_999)
        await turns()
        assert not task.done()
        await place.clock.advance(1)
        assert success(await ended(task)) == {"id": "x"}

    @pytest.mark.parametrize("fault", ["is_silent", "fails_to_wake", "fails_to_wait"])
    async def test_a_bus_that_does_not_wake_leaves_the_poll(self, world: World, fault: str) -> None:
        place = await opened(world)
        setattr(place.bus, fault, True)
        await made(place.store)
        looking = Looking(named("x"))
        task = asyncio.create_task(place.store.handle(chats, "c").when(looking))
        await turns()
        success(await place.store.update(chats, "c", append("x")))  # which does not fail
        await turns()
        assert not task.done()
        await place.clock.advance(200)
        assert success(await ended(task)) == {"id": "x"}
        place.assert_nothing_is_left()

    # --- what ends it otherwise -----------------------------------------------------------

    async def test_cancelled_it_leaves_nothing_behind(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        before = asyncio.all_tasks()
        handle = place.store.handle(chats, "c")
        for spins in (*range(12), 200):
            task = asyncio.create_task(handle.when(named("x")))
            await turns(spins)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            await turns()
            place.assert_nothing_is_left()
            assert asyncio.all_tasks() == before
        success(await place.store.update(chats, "c", append("x")))
        assert place.bus.woken == []

    async def test_one_of_several_that_is_cancelled_takes_nobody_along(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        handle = place.store.handle(chats, "c")
        tasks = [asyncio.create_task(handle.when(named("x"))) for _ in range(3)]
        await place.parked(3)
        tasks[0].cancel()
        await place.parked(2)
        success(await handle.update(append("x")))
        assert [success(await ended(task)) for task in tasks[1:]] == [{"id": "x"}] * 2
        place.assert_nothing_is_left()

    async def test_what_a_selector_raises_is_raised(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)

        def picky(chat: Chat) -> bool:
            if chat["messages"]:
                raise LookupError("not this one")
            return False

        task = asyncio.create_task(place.store.handle(chats, "c").when(picky))
        await place.parked()
        success(await place.store.update(chats, "c", append("x")))
        with pytest.raises(LookupError, match="not this one"):
            await ended(task)
        place.assert_nothing_is_left()

    async def test_a_state_that_fits_no_more_ends_the_wait(self, world: World) -> None:
        class Before(BaseModel):
            n: int | str = 0

        class Today(BaseModel):
            n: int = 0

        before, today = StoreDefinition("changed", Before), StoreDefinition("changed", Today)
        place = await opened(world)
        success(await place.store.get_or_create(before, "c", Before()))
        task = asyncio.create_task(place.store.handle(today, "c").when(lambda state: state.n > 0))
        await place.parked()

        def text(state: Before) -> None:
            state.n = "text"

        success(await place.store.update(before, "c", text))
        invalid = failure(await ended(task))
        assert isinstance(invalid, InvalidState)
        assert [issue.path for issue in invalid.issues] == [(), ("n",)]  # what to do, and what is wrong

    async def test_a_store_that_cannot_wait_says_so(self, world: World) -> None:
        store = PlainStore((await world.client()).store)
        await made(store)
        unavailable = failure(await store.handle(chats, "c").when(named("x")))
        assert unavailable == Unavailable("a PlainStore cannot wait: it has no call `when`", "no")

    async def test_when_the_store_is_closed_whoever_waits_is_told(self, world: World) -> None:
        place = await opened(world)
        await made(place.store)
        handle = place.store.handle(chats, "c")
        tasks = [asyncio.create_task(handle.when(named("x"))) for _ in range(3)]
        await place.parked(3)
        await world.close()
        outcomes = [await ended(task) for task in tasks]
        assert outcomes == [Failure(Unavailable("the store was closed while a call waited", "no"))] * 3
        place.assert_nothing_is_left()

    # --- against the naive definition -------------------------------------------------------

    async def test_every_state_that_matches_ends_the_waits_for_it(self, world: World) -> None:
        """Two clients change one table in turn; whoever waits for a count in a cell gets it without a poll."""
        places = [await opened(world), await opened(world)]
        success(await places[0].store.get_or_create(tables, "t", {"a": 0, "b": 0}))

        def reaches(key: str, count: int) -> Callable[[dict[str, int]], bool]:
            return lambda table: table[key] >= count

        waits = [
            asyncio.create_task(place.store.handle(tables, "t").when(reaches(key, count)))
            for place in places
            for key in ("a", "b")
            for count in range(1, 11)
        ]
        await asyncio.gather(*(place.parked(20) for place in places))

        def count_up(key: str) -> Callable[[dict[str, int]], None]:
            return lambda table: table.update({key: table[key] + 1})

        for place in (*places, *places, *places, *places, *places):
            await asyncio.gather(*(place.store.update(tables, "t", count_up(key)) for key in ("a", "b")))
        assert [success(await ended(wait)) for wait in waits] == [True] * 40
        for place in places:
            place.assert_nothing_is_left()
