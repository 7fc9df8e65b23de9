"""What waiters and the delivery of their wakes keep on every host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from stepwell import Failure, Ledger, Outcome, Registered, Revision, StepId, StoreKey, Success, Unavailable, Waiter
from stepwell.core.batch import Batch, InsertRun, NoRun, ReadSignal, RegisterWaiter, RemoveWaiter, SendSignal
from stepwell.core.poll import PollPolicy
from stepwell.core.run import RunRow
from stepwell.core.signal import SignalRow
from stepwell.core.waiter import Wake
from stepwell.layers.waiters import LedgerWaiters
from stepwell.services.ledger import News

from .ledger_double import LedgerDouble
from .store_world import Chat, Message, append, chats, success
from .waiters_world import MESSAGES, NOW_MS, Client, Wakes, World, boxes, chat, turns, unrelated

CHAT = StoreKey("chat", "c")
DAY_MS = 24 * 3_600_000
SELDOM = PollPolicy(DAY_MS, 1.0, DAY_MS)


class Deaf(LedgerDouble):
    """A ledger that has no news for anybody."""

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        return lambda: None


class Faulty(LedgerDouble):
    """A ledger whose reads of what is owed fail in turn, each in its way; then they work."""

    def __init__(self, real: Ledger, *faults: Exception | Unavailable) -> None:
        super().__init__(real)
        self.faults = list(faults)
        self.reads = 0

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        self.reads += 1
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        return await super().wakes(after) if fault is None else Failure(fault)


def first_fails(*run_ids: str) -> Wakes:
    """A bus that fails the first wake of these runs."""
    return Wakes(failing=lambda run_id, attempt: run_id in run_ids and attempt == 1)


def always_fails(*run_ids: str) -> Wakes:
    return Wakes(failing=lambda run_id, _attempt: run_id in run_ids)


async def begin(client: Client) -> Revision:
    """The chat "c" exists; its revision."""
    return success(await client.store.get_or_create(chats, "c", chat())).revision


async def change(client: Client, updater: Callable[[Chat], None]) -> int:
    return success(await client.store.update(chats, "c", updater)).version


def unclaimed(state: Chat) -> Message | None:
    return next((message for message in state["messages"] if "claimed_by" not in message), None)


def claim(_state: Chat, message: Message | None) -> None:
    assert message is not None
    message["claimed_by"] = "worker"


class WaitersContract:
    """Registration, generations, acknowledgement."""

    async def test_a_registration_has_a_generation_greater_than_all_before_it(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        registered = [await client.register(run_id, seen) for run_id in ("a", "b", "a")]
        generations = [each.waiter.generation for each in registered]
        assert generations == sorted(set(generations))
        assert [each.due for each in registered] == [False, False, False]
        waiting = success(await client.waiters.waiting(CHAT))
        assert sorted(waiter.generation for waiter in waiting) == generations[1:]
        assert success(await client.waiters.due("a")) == ()

    async def test_s60_a_wake_comes_for_a_change_of_what_was_read_once(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        _ = await client.register("execution", seen)
        _ = await change(client, unrelated)
        await turns()
        assert client.wakes.attempts == []
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]
        assert await client.acknowledge_all("execution") == [True]
        _ = await change(client, append("y"))
        await turns()
        assert client.wakes.attempts == ["execution"]

    async def test_s60_a_due_waiter_is_not_woken_by_further_commits(self, world: World) -> None:
        client = await world.client()
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        _ = await change(client, append("y"))
        await turns()
        assert client.wakes.attempts == ["execution"]

    async def test_s61_waiters_are_read_back_as_they_were_registered(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        paths = (("messages", 0, "id"), ("by id", "0"))
        registered = await client.register("execution", seen, paths)
        expected = Waiter(CHAT, StepId("execution", "wait"), seen, paths, registered.waiter.generation)
        assert (registered, success(await client.waiters.waiting(CHAT))) == (Registered(expected, False), (expected,))
        await world.restart()
        again = await world.client()
        assert success(await again.waiters.waiting(CHAT)) == (expected,)

    async def test_s62_a_take_wakes_those_who_read_what_it_claimed(self, world: World) -> None:
        client = await world.client()
        _ = await begin(client)
        _ = await change(client, append("msg-1"))
        _ = await client.register("execution", await client.seen())
        assert isinstance(await client.store.take(chats, "c", unclaimed, claim), Success)
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]

    async def test_s63_a_claim_through_the_selected_value_wakes_who_read_that_field(self, world: World) -> None:
        client = await world.client()
        _ = await begin(client)
        _ = await change(client, append("msg-1"))
        seen = await client.seen()
        _ = await client.register("execution", seen, (("messages", 0, "claimed_by"),))
        _ = await client.register("other", seen, (("messages", 0, "id"),))
        assert isinstance(await client.store.take(chats, "c", unclaimed, claim), Success)
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]

    async def test_s64_what_was_taken_shows_the_claim_and_is_detached(self, world: World) -> None:
        client = await world.client()
        _ = await begin(client)
        _ = await change(client, append("msg-1"))
        taken = success(await client.store.take(chats, "c", unclaimed, claim))
        assert taken.selected == {"id": "msg-1", "claimed_by": "worker"}
        taken.selected["id"] = "changed by its owner"
        state = success(await client.store.get(chats, "c")).state
        assert state["messages"] == [{"id": "msg-1", "claimed_by": "worker"}]

    async def test_s65_a_registration_that_comes_too_late_is_due_at_once(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        assert await change(client, append("x")) == 1
        assert (await client.register("execution", seen)).due
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]
        assert await client.acknowledge_all("execution") == [True]
        _ = await change(client, append("y"))
        await turns()
        assert client.wakes.attempts == ["execution"]

    async def test_s144_unrelated_commits_since_the_look_do_not_make_it_due(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        for _ in range(500):
            _ = await change(client, unrelated)
        assert not (await client.register("execution", seen)).due
        await turns()
        assert client.wakes.attempts == []
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        assert [waiter.seen for waiter in success(await client.waiters.due("execution"))] == [seen]

    async def test_s75_one_that_read_nothing_waits_for_any_change(self, world: World) -> None:
        client = await world.client()
        registered = await client.register("execution", await begin(client), ())
        assert registered.waiter.read_paths == ((),)
        _ = await change(client, unrelated)
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]

    async def test_s9_keys_that_look_alike_when_joined_do_not_meet(self, world: World) -> None:
        client = await world.client()
        one, other = StoreKey("chat", "x:c"), StoreKey("chat:x", "c")
        _ = success(await client.store.get_or_create(chats, "x:c", chat()))
        _ = await client.register("one", await client.seen(one), key=one)
        _ = await client.register("other", Revision("no such instance", 0), key=other)
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["other"]
        assert [waiter.step.run_id for waiter in success(await client.waiters.waiting(one))] == ["one"]
        assert success(await client.waiters.waiting(other)) == ()

    async def test_an_older_generation_cannot_be_acknowledged(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        first = (await client.register("execution", seen)).waiter
        second = (await client.register("execution", seen)).waiter
        assert success(await client.waiters.acknowledge(first)) is False
        assert success(await client.waiters.waiting(CHAT)) == (second,)
        assert success(await client.waiters.acknowledge(second)) is True
        assert success(await client.waiters.acknowledge(second)) is False
        assert success(await client.waiters.acknowledge(replace(second, generation=0))) is False
        assert success(await client.waiters.waiting(CHAT)) == ()

    async def test_cancelling_removes_any_generation_and_nothing_else(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        _ = await client.register("execution", seen)
        other = (await client.register("other", seen)).waiter
        for _ in range(2):
            assert success(await client.waiters.cancel(CHAT, StepId("execution", "wait"))) is None
        assert success(await client.waiters.waiting(CHAT)) == (other,)

    async def test_the_batches_of_the_engine_say_the_same(self, world: World) -> None:
        client = await world.client()
        assert isinstance(client.waiters, LedgerWaiters)
        waiter = Waiter(CHAT, StepId("execution", "wait"), await begin(client), ())
        registration = client.waiters.registration(waiter)
        assert registration == Batch((), (RegisterWaiter(replace(waiter, read_paths=((),))),))
        removal = client.waiters.removal(CHAT, waiter.step)
        assert removal == Batch((), (RemoveWaiter(CHAT, waiter.step),))
        assert success(await client.ledger.commit(registration))
        assert [each.step for each in success(await client.waiters.waiting(CHAT))] == [waiter.step]
        assert success(await client.ledger.commit(removal))
        assert success(await client.waiters.waiting(CHAT)) == ()

    async def test_the_due_waiters_of_a_run_come_in_the_order_in_which_they_became_so(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        for step, paths in (("late", (("unrelated",),)), ("early", MESSAGES)):
            _ = success(await client.waiters.register(Waiter(CHAT, StepId("execution", step), seen, paths)))
        _ = await change(client, append("x"))
        _ = await change(client, unrelated)
        await client.wakes.until(delivered=2)
        assert [waiter.step.key for waiter in success(await client.waiters.due("execution"))] == ["early", "late"]


class DeliveryContract:
    """At least once, until it is acknowledged; never for what is owed no more."""

    async def test_s66_a_registration_outlives_a_bus_that_fails(self, world: World) -> None:
        client = await world.client(first_fails("execution"))
        seen = await begin(client)
        _ = await change(client, append("x"))
        assert (await client.register("execution", seen)).due
        await client.wakes.until(attempts=1)
        assert (len(client.wakes.attempts), client.wakes.delivered) == (1, [])
        _ = await change(client, unrelated)
        await client.wakes.until(attempts=2)
        assert (len(client.wakes.attempts), client.wakes.delivered) == (2, ["execution"])

    async def test_s67_an_update_outlives_a_bus_that_fails(self, world: World) -> None:
        client = await world.client(first_fails("execution"))
        waiter = (await client.register("execution", await begin(client))).waiter
        assert await change(client, append("x")) == 1
        await client.wakes.until(attempts=1)
        assert success(await client.waiters.due("execution")) == (waiter,)
        await world.clock.advance(100)
        assert client.wakes.delivered == ["execution"]
        assert success(await client.waiters.due("execution")) == (waiter,)

    async def test_s68_a_timer_delivers_what_failed(self, world: World) -> None:
        client = await world.client(first_fails("execution"))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        await world.clock.advance(99)
        assert len(client.wakes.attempts) == 1
        await world.clock.advance(1)
        assert (len(client.wakes.attempts), client.wakes.delivered) == (2, ["execution"])

    async def test_s68_pauses_between_failures_grow_up_to_a_bound(self, world: World) -> None:
        client = await world.client(always_fails("execution"))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        for seen, pause_ms in enumerate([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, *[30_000] * 3], 1):
            await world.clock.advance(pause_ms - 1)
            assert len(client.wakes.attempts) == seen, pause_ms
            await world.clock.advance(1)
            assert len(client.wakes.attempts) == seen + 1, pause_ms

    async def test_s68_attempts_at_commits_do_not_make_the_pauses_longer(self, world: World) -> None:
        client = await world.client(always_fails("execution"))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        for attempts in range(2, 12):
            _ = await change(client, unrelated)
            await client.wakes.until(attempts=attempts)
        await world.clock.advance(100)
        assert len(client.wakes.attempts) == 12

    async def test_s69_one_runs_failure_does_not_hold_up_another(self, world: World) -> None:
        client = await world.client(first_fails("retry"))
        seen = await begin(client)
        for run_id in ("retry", "healthy"):
            _ = await client.register(run_id, seen)
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=2)
        assert (client.wakes.attempts, client.wakes.delivered) == (["retry", "healthy"], ["healthy"])
        await world.clock.advance(100)
        assert client.wakes.delivered == ["healthy", "retry"]

    async def test_s70_a_run_whose_wakes_always_fail_harms_nobody(self, world: World) -> None:
        client = await world.client(always_fails("poison"))
        seen = await begin(client)
        for run_id in ("poison", "healthy"):
            _ = await client.register(run_id, seen)
        assert await change(client, append("x")) == 1
        await client.wakes.until(attempts=2)
        await world.clock.advance(3_000)
        assert client.wakes.delivered == ["healthy"]
        assert await client.acknowledge_all("healthy") == [True]
        _ = await client.register("healthy", await client.seen())
        _ = await change(client, append("y"))
        await client.wakes.until(delivered=2)
        assert client.wakes.delivered == ["healthy", "healthy"]

    async def test_s71_the_end_of_a_store_wakes_all_who_wait_for_it(self, world: World) -> None:
        client = await world.client()
        for expected in (None, "delete_from"):
            seen = await begin(client)
            before = len(client.wakes.attempts)
            for run_id in ("one", "two"):
                _ = await client.register(run_id, seen, (("messages", 7, "id"),))
            if expected is None:
                _ = success(await client.store.delete(chats, "c"))
            else:
                _ = success(await client.store.delete_from(chats, "c", seen))
            await client.wakes.until(delivered=before + 2)
            assert client.wakes.attempts[before:] == ["one", "two"]
            assert await client.acknowledge_all("one") + await client.acknowledge_all("two") == [True, True]
            assert success(await client.waiters.waiting(CHAT)) == ()
            assert success(await client.ledger.waiters()) == ()

    async def test_s72_a_wait_belongs_to_the_instance_that_it_looked_at(self, world: World) -> None:
        client = await world.client(first_fails("execution"))
        waiter = (await client.register("execution", await begin(client))).waiter
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        _ = success(await client.store.delete(chats, "c"))
        assert (await begin(client)).instance_id != waiter.seen.instance_id
        _ = await change(client, unrelated)
        await client.wakes.until(delivered=1)
        assert client.wakes.delivered == ["execution"]
        assert success(await client.waiters.due("execution")) == (waiter,)
        assert success(await client.waiters.waiting(CHAT)) == ()
        assert await client.acknowledge_all("execution") == [True]
        _ = await change(client, append("y"))
        await turns()
        assert client.wakes.delivered == ["execution"]

    async def test_s73_a_registration_survives_the_acknowledgement_of_the_one_before(self, world: World) -> None:
        first = await world.client()
        second = await world.client()
        waiter = (await first.register("execution", await begin(first))).waiter
        acknowledged: list[bool] = []

        async def register_again(_run_id: str) -> None:
            first.wakes.inside = None
            _ = await second.register("execution", await second.seen())
            acknowledged.append(success(await first.waiters.acknowledge(waiter)))

        first.wakes.inside = register_again
        _ = await change(first, append("x"))
        await first.wakes.until(delivered=1)
        assert acknowledged == [False]
        _ = await change(first, append("y"))
        await first.wakes.until(delivered=2)
        assert first.wakes.attempts == ["execution", "execution"]

    async def test_s74_a_wake_whose_waiter_is_gone_is_dropped_silently(self, world: World) -> None:
        client = await world.client(always_fails("execution"))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        await world.clock.advance(100)
        assert len(client.wakes.attempts) == 2
        _ = success(await client.waiters.cancel(CHAT, StepId("execution", "wait")))
        await turns()
        await world.clock.advance(DAY_MS // 24)
        assert len(client.wakes.attempts) == 2

    async def test_s74_a_waiter_that_goes_while_another_is_woken_is_not_called(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        for run_id in ("first", "second"):
            _ = await client.register(run_id, seen)

        async def cancel_second(_run_id: str) -> None:
            _ = success(await client.waiters.cancel(CHAT, StepId("second", "wait")))

        client.wakes.inside = cancel_second
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        await world.clock.advance(6_000)
        assert set(client.wakes.attempts) == {"first"}

    async def test_s76_a_restart_delivers_what_was_never_delivered(self, world: World) -> None:
        client = await world.client(always_fails("execution"))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        await world.restart()
        again = await world.client()
        await again.wakes.until(delivered=1)
        assert again.wakes.attempts == ["execution"]

    async def test_s77_a_second_client_over_the_same_ledger_delivers_unasked(self, world: World) -> None:
        client = await world.client(always_fails("execution"))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        second = await world.client(ledger=client.ledger)
        await second.wakes.until(delivered=1)
        assert second.wakes.attempts == ["execution"]

    async def test_what_nobody_acknowledges_is_repeated_ever_less_often(self, world: World) -> None:
        client = await world.client()
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        for seen, pause_s in enumerate([5, 10, 20, 40, 80, 160, 300, 300], 1):
            await world.clock.advance(pause_s * 1_000 - 1)
            assert len(client.wakes.delivered) == seen, pause_s
            await world.clock.advance(1)
            assert len(client.wakes.delivered) == seen + 1, pause_s
        before = len(client.wakes.attempts)
        assert await client.acknowledge_all("execution") == [True]
        await world.clock.advance(DAY_MS // 24)
        assert len(client.wakes.attempts) == before

    async def test_a_signal_is_one_hint(self, world: World) -> None:
        client = await world.client()
        await send(client, "execution", "go")
        await client.wakes.until(delivered=1)
        await world.clock.advance(DAY_MS // 24)
        assert client.wakes.attempts == ["execution"]

    async def test_a_signal_whose_hint_failed_is_hinted_at_again_unless_it_was_read(self, world: World) -> None:
        client = await world.client(Wakes(failing=lambda run_id, attempt: attempt == 1 or run_id == "reads"))
        await send(client, "execution", "go")
        await client.wakes.until(attempts=1)
        await send(client, "reads", "go")
        await client.wakes.until(attempts=3, delivered=1)
        (signal,) = success(await client.ledger.signals("reads"))
        assert success(await client.ledger.commit(Batch((), (ReadSignal("reads", signal.no, "signal:go:1"),))))
        await turns()
        before = len(client.wakes.attempts)
        await world.clock.advance(DAY_MS // 24)
        assert client.wakes.delivered == ["execution"]
        assert client.wakes.attempts[before:] == []

    async def test_a_client_that_is_closed_delivers_nothing_more(self, world: World) -> None:
        wakes = Wakes()
        client = await world.client(wakes)
        _ = await client.register("execution", await begin(client))
        await world.restart()
        other = await world.client()
        _ = await change(other, append("x"))
        await other.wakes.until(delivered=1)
        await world.clock.advance(DAY_MS // 24)
        assert wakes.attempts == []

    async def test_a_ledger_that_cannot_be_read_is_asked_again_ever_less_often(self, world: World) -> None:
        faulty = Faulty(await world.ledger(), *[Unavailable("the disk is busy", "no")] * 3)
        client = await world.client(ledger=faulty, poll=SELDOM)
        await turns()
        for reads, pause_ms in enumerate([100, 200, 400], 1):
            await world.clock.advance(pause_ms - 1)
            assert faulty.reads == reads
            await world.clock.advance(1)
            assert faulty.reads == reads + 1
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]

    async def test_a_fault_of_the_host_is_reported_and_all_begins_anew(self, world: World) -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
        fault = ZeroDivisionError("a bug")
        client = await world.client(ledger=Faulty(await world.ledger(), fault))
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await world.clock.advance(100)
        await client.wakes.until(delivered=1)
        assert (reported, set(client.wakes.attempts)) == ([fault], {"execution"})

    async def test_a_fault_that_stays_is_met_ever_less_often(self, world: World) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        faulty = Faulty(await world.ledger(), *[ZeroDivisionError("a bug")] * 1_000)
        _ = await world.client(ledger=faulty)
        for _ in range(60):
            await world.clock.advance(1_000)
        assert 5 < faulty.reads < 40

    async def test_a_bus_that_gives_up_fails_like_any_other(self, world: World) -> None:
        """Only the end of the delivery itself is a cancellation."""
        client = await world.client()

        async def give_up(_run_id: str) -> None:
            client.wakes.inside = None
            raise asyncio.CancelledError

        client.wakes.inside = give_up
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        await world.clock.advance(100)
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution", "execution"]

    async def test_nothing_is_lost_where_there_is_no_news(self, world: World) -> None:
        client = await world.client(around=Deaf, poll=PollPolicy(5_000, 1.0, 5_000))
        await turns()
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await world.clock.advance(4_999)
        assert client.wakes.attempts == []
        await world.clock.advance(1)
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["execution"]

    async def test_a_poll_that_finds_nothing_grows_slow_and_one_that_does_is_quick_again(self, world: World) -> None:
        reads: list[int] = []

        class Counting(Deaf):
            async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
                reads.append(world.clock.now_ms() - NOW_MS)
                return await self.real.wakes(after)

        client = await world.client(around=Counting)
        await turns()
        _ = await client.register("execution", await begin(client))
        await world.clock.advance(1_000)
        assert reads == [0, 200, 500, 950]
        await world.clock.advance(DAY_MS // 24)
        assert reads[-1] - reads[-2] == 30_000
        _ = await change(client, append("x"))
        await world.clock.advance(30_000)
        assert client.wakes.delivered[:1] == ["execution"]
        found = next(at for at, at_ms in enumerate(reads) if at_ms > 3_601_000)
        assert reads[found + 1] - reads[found] == 200

    async def test_s76_thousands_that_are_due_at_start_are_delivered_in_order_and_in_slices(self, world: World) -> None:
        client = await world.client(Wakes(failing=lambda _run_id, _attempt: True))
        seen = await begin(client)
        step = [StepId(f"run-{number:04}", "wait") for number in range(2_500)]
        for at in range(0, 2_500, 500):
            writes = tuple(RegisterWaiter(Waiter(CHAT, each, seen, MESSAGES)) for each in step[at : at + 500])
            assert success(await client.ledger.commit(Batch((), writes)))
        await world.restart()
        quiet = await world.client(Wakes())
        _ = await change(quiet, append("x"))
        await quiet.wakes.until(delivered=2_500)
        assert quiet.wakes.attempts == [each.run_id for each in step]
        await world.restart()
        again = await world.client()
        await again.wakes.until(delivered=2_500)
        assert again.wakes.attempts == [each.run_id for each in step]


class QueueContract:
    """One at a time, in the order of their first registration."""

    async def test_a_change_wakes_the_first_and_its_end_the_next(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        for run_id in ("one", "two", "three"):
            _ = await client.register(run_id, seen, queue="takers")
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["one"]
        assert await client.acknowledge_all("one") == [True]
        await client.wakes.until(delivered=2)
        assert client.wakes.attempts == ["one", "two"]

    async def test_one_that_does_not_act_for_5_s_lets_the_next_one_try(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        for run_id in ("one", "two"):
            _ = await client.register(run_id, seen, queue="takers")
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        await world.clock.advance(4_999)
        assert client.wakes.attempts == ["one"]
        await world.clock.advance(1)
        await client.wakes.until(delivered=3)
        assert sorted(client.wakes.attempts) == ["one", "one", "two"]
        assert [len(success(await client.waiters.due(run_id))) for run_id in ("one", "two")] == [1, 1]

    async def test_the_turn_passes_also_where_its_wake_always_fails(self, world: World) -> None:
        client = await world.client(always_fails("one"))
        seen = await begin(client)
        for run_id in ("one", "two", "three"):
            _ = await client.register(run_id, seen, queue="takers")
        _ = await change(client, append("x"))
        await client.wakes.until(attempts=1)
        await world.clock.advance(5_000)
        await client.wakes.until(delivered=1)
        assert client.wakes.delivered == ["two"]
        assert await client.acknowledge_all("two") == [True]
        await client.wakes.until(delivered=2)
        assert client.wakes.delivered == ["two", "three"]  # "one" is due still, and holds nobody up

    async def test_one_that_joins_behind_a_turn_that_was_not_used_has_its_own(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        _ = await client.register("one", seen, queue="takers")
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        await world.clock.advance(6_000)
        _ = await client.register("two", await client.seen(), queue="takers")
        _ = await change(client, append("y"))
        await client.wakes.until(of="two")

    async def test_a_dead_head_costs_its_queue_5_s_once(self, world: World) -> None:
        client = await world.client()
        seen = await begin(client)
        for run_id in ("dead", "two", "three", "four"):
            _ = await client.register(run_id, seen, queue="takers")
        _ = await change(client, append("x"))
        await client.wakes.until(of="dead")
        await world.clock.advance(5_000)
        for run_id in ("two", "three", "four"):
            await client.wakes.until(of=run_id)
            assert await client.acknowledge_all(run_id) == [True]
            _ = await change(client, append(run_id))

    async def test_for_a_queue_of_one_its_turn_passes_once(self, world: World) -> None:
        client = await world.client()
        _ = await client.register("one", await begin(client), queue="takers")
        _ = await change(client, append("x"))
        await client.wakes.until(delivered=1)
        heard: list[News] = []
        stop = client.ledger.subscribe(heard.append)
        await world.clock.advance(DAY_MS // 24)
        stop()
        assert (heard.count("commit"), heard.count("wake")) == (1, 0)  # "elsewhere" may be spurious


class HintContract:
    """What wakes, and how soon."""

    async def test_a_wake_reaches_a_bus_in_the_turn_after_its_commit(self, world: World) -> None:
        """Nothing but the ledger's own read stands between the news and the bus."""
        client = await world.client()
        _ = await client.register("execution", await begin(client))
        _ = await change(client, append("x"))
        await turns(2)
        assert client.wakes.attempts == ["execution"]

    async def test_a_state_without_structure_wakes_by_its_keys(self, world: World) -> None:
        client = await world.client()
        _ = success(await client.store.get_or_create(boxes, "b", {"a": 1, "b": 1}))
        key = StoreKey("box", "b")
        for name in ("a", "b"):
            _ = await client.register(f"reads-{name}", await client.seen(key), ((name,),), key=key)

        def add(box: dict[str, int]) -> None:
            box["b"] += 1

        _ = success(await client.store.update(boxes, "b", add))
        await client.wakes.until(delivered=1)
        assert client.wakes.attempts == ["reads-b"]


async def send(client: Client, run_id: str, name: str) -> None:
    """A signal to a run that exists."""
    row = RunRow(id=run_id, workflow="fulfil", created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
    assert success(await client.ledger.commit(Batch((NoRun(run_id),), (InsertRun(row),))))
    assert success(await client.ledger.commit(Batch((), (SendSignal(SignalRow(run_id, name, b"1")),))))
