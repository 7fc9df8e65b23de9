"""Effect dispatchers over stores of each host, the list, and none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, get_ident
from typing import Literal, TypeAlias, TypeVar

import pytest

from stepwell import (
    Failure,
    InvalidState,
    Outcome,
    Snapshot,
    Store,
    StoreDefinition,
    Success,
    TooLarge,
    Unavailable,
    build,
    get,
)
from stepwell.core.node import digest_of
from stepwell.layers import clock, effect_dispatcher, ids, ledger, store, wake_bus
from stepwell.layers.effect_dispatcher import DELIVERED, Delivery, MemoryEffectDispatcher
from stepwell.services.effect_dispatcher import Dispatched, Effect, EffectDispatcher, EffectFailed
from stepwell.services.store import Initial

from .effect_dispatcher_contract import MAIL, OTHER, EffectDispatcherContract, World
from .store_doubles import PlainStore, given_store

WAIT_S = 60

_T = TypeVar("_T")

Host: TypeAlias = Literal["memory", "sqlite"]
HOSTS: tuple[Host, ...] = ("memory", "sqlite")

on_each_host = pytest.mark.parametrize("host", HOSTS)


class Receiver:
    """Somebody outside who is told; `answer` may refuse."""

    def __init__(self) -> None:
        self.sent: list[Effect] = []
        self.refusals: list[Exception] = []

    async def tell(self, effect: Effect) -> None:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop()
        self.sent.append(effect)

    def seen(self) -> list[Effect]:
        return self.sent


@asynccontextmanager
async def opened(
    host: Host, folder: Path, deliver: Callable[[Effect], object]
) -> AsyncGenerator[tuple[EffectDispatcher, Store]]:
    at = ledger.layer(folder / "app.db") if host == "sqlite" else ledger.layer_test()
    beneath = at | clock.layer() | ids.layer() | wake_bus.layer() | store.layer()
    async with build(beneath | effect_dispatcher.layer(deliver)) as built:
        env = built.unwrap()
        yield get(env, EffectDispatcher), get(env, Store)


@pytest.fixture(params=[*HOSTS, "list"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "list":
        sent: list[Effect] = []
        async with build(effect_dispatcher.layer_test(sent)) as built:
            yield World(get(built.unwrap(), EffectDispatcher), lambda: sent)
        return
    receiver = Receiver()
    async with opened("sqlite" if request.param == "sqlite" else "memory", tmp_path, receiver.tell) as (dispatcher, _):
        yield World(dispatcher, receiver.seen)


class TestEffectDispatcher(EffectDispatcherContract):
    pass


# --- over a store ---------------------------------------------------------------


@on_each_host
async def test_what_is_not_delivered_is_a_failure_and_may_be_tried_again(host: Host, tmp_path: Path) -> None:
    receiver = Receiver()
    async with opened(host, tmp_path, receiver.tell) as (dispatcher, kept):
        receiver.refusals.append(ConnectionError("nobody is at home"))
        match await dispatcher.dispatch(MAIL):
            case Failure(EffectFailed("mail:1", cause)):
                assert (cause.type, cause.message) == ("ConnectionError", "nobody is at home")
                assert "in tell" in cause.traceback
            case other:
                pytest.fail(f"delivered: {other}")
        assert await kept.list_ids(DELIVERED) == Success(())
        assert await dispatcher.dispatch(MAIL) == Success(Dispatched("mail:1", again=False))
    assert receiver.sent == [MAIL]


@on_each_host
async def test_whoever_waits_for_a_delivery_that_fails_tries_it(host: Host, tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.refusals.append(ConnectionError("nobody is at home"))
    async with opened(host, tmp_path, receiver.tell) as (dispatcher, _):
        first, second, third = await asyncio.gather(*(dispatcher.dispatch(MAIL) for _ in range(3)))
    assert isinstance(first.failure(), EffectFailed)
    assert second == Success(Dispatched("mail:1", again=False))
    assert third == Success(Dispatched("mail:1", again=True))
    assert receiver.sent == [MAIL]


@on_each_host
async def test_what_was_delivered_is_in_a_store(host: Host, tmp_path: Path) -> None:
    receiver = Receiver()
    async with opened(host, tmp_path, receiver.tell) as (dispatcher, kept):
        _ = await dispatcher.dispatch(MAIL)
        record = (await kept.get(DELIVERED, MAIL.key)).unwrap()
        assert await kept.list_ids(DELIVERED) == Success((MAIL.key,))
    assert record.state == Delivery(digest_of(b'{"to":"ann","lines":[1,2.5,null]}'))


async def test_what_an_earlier_process_delivered_is_not_sent_again(tmp_path: Path) -> None:
    receiver = Receiver()
    for again in (False, True):
        async with opened("sqlite", tmp_path, receiver.tell) as (dispatcher, _):
            assert await dispatcher.dispatch(MAIL) == Success(Dispatched("mail:1", again))
    assert receiver.sent == [MAIL]


async def test_one_effect_does_not_wait_for_another(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    sent: list[str] = []

    async def deliver(effect: Effect) -> None:
        if effect is MAIL:
            await go_on.wait()
        sent.append(effect.key)

    async with opened("memory", tmp_path, deliver) as (dispatcher, _):
        slow = asyncio.create_task(dispatcher.dispatch(MAIL))
        _ = (await dispatcher.dispatch(OTHER)).unwrap()
        assert not slow.done()
        go_on.set()
        _ = (await slow).unwrap()
    assert sent == [OTHER.key, MAIL.key]


# --- ordinary functions -----------------------------------------------------------


async def test_an_ordinary_function_is_called_on_a_thread(tmp_path: Path) -> None:
    threads: list[int] = []

    def deliver(effect: Effect) -> None:
        threads.append(get_ident())
        if len(threads) == 1:
            raise ConnectionError("nobody is at home")

    async with opened("memory", tmp_path, deliver) as (dispatcher, _):
        assert isinstance((await dispatcher.dispatch(MAIL)).failure(), EffectFailed)
        assert await dispatcher.dispatch(MAIL) == Success(Dispatched("mail:1", again=False))
    assert len(threads) == 2
    assert get_ident() not in threads


async def test_what_an_ordinary_function_gives_to_be_awaited_is_awaited(tmp_path: Path) -> None:
    receiver = Receiver()
    async with opened("memory", tmp_path, lambda effect: receiver.tell(effect)) as (dispatcher, _):
        _ = (await dispatcher.dispatch(MAIL)).unwrap()
    assert receiver.sent == [MAIL]


async def test_a_cancellation_while_an_ordinary_function_delivers_does_not_make_it_deliver_twice(
    tmp_path: Path,
) -> None:
    reached, go_on = Event(), Event()
    sent: list[str] = []

    def deliver(effect: Effect) -> None:
        reached.set()
        assert go_on.wait(WAIT_S)
        sent.append(effect.key)

    async with opened("memory", tmp_path, deliver) as (dispatcher, _):
        cancelled = asyncio.create_task(dispatcher.dispatch(MAIL))
        assert await asyncio.to_thread(reached.wait, WAIT_S)
        after = asyncio.create_task(dispatcher.dispatch(MAIL))
        _ = cancelled.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            _ = await cancelled
        assert await after == Success(Dispatched("mail:1", again=True))
    assert sent == [MAIL.key]


async def test_an_async_function_that_is_cancelled_has_not_delivered(tmp_path: Path) -> None:
    reached = asyncio.Event()
    sent: list[str] = []

    async def deliver(effect: Effect) -> None:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        sent.append(effect.key)

    async with opened("memory", tmp_path, deliver) as (dispatcher, _):
        cancelled = asyncio.create_task(dispatcher.dispatch(MAIL))
        await reached.wait()
        after = asyncio.create_task(dispatcher.dispatch(MAIL))
        await asyncio.sleep(0)
        _ = cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            _ = await cancelled
        assert await after == Success(Dispatched("mail:1", again=False))
    assert sent == [MAIL.key]


class FarStore(PlainStore):
    """A store to which a call takes a turn of the loop, in which a cancellation arrives first."""

    async def get_or_create(
        self, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge | Unavailable]:
        await asyncio.sleep(0)
        return await super().get_or_create(definition, id, initial)


async def test_a_cancellation_after_delivery_does_not_make_it_be_sent_twice(tmp_path: Path) -> None:
    sent: list[str] = []

    async def deliver(effect: Effect) -> None:
        sent.append(effect.key)
        task = asyncio.current_task()
        assert task is not None
        _ = task.cancel()

    async with (
        opened("memory", tmp_path, deliver) as (_, near),
        build(effect_dispatcher.layer(deliver) | given_store(FarStore(near))) as built,
    ):
        dispatcher = get(built.unwrap(), EffectDispatcher)
        with pytest.raises(asyncio.CancelledError):
            _ = await asyncio.create_task(dispatcher.dispatch(MAIL))
        assert await dispatcher.dispatch(MAIL) == Success(Dispatched("mail:1", again=True))
    assert sent == [MAIL.key]


# --- where nothing can be recorded --------------------------------------------------


async def test_without_a_store_nothing_is_sent() -> None:
    receiver = Receiver()
    async with build(effect_dispatcher.layer(receiver.tell) | store.layer_noop()) as built:
        refused = (await get(built.unwrap(), EffectDispatcher).dispatch(MAIL)).failure()
    assert isinstance(refused, Unavailable)
    assert refused.applied == "no"
    assert receiver.sent == []


async def test_what_was_delivered_and_could_not_be_recorded_says_so(tmp_path: Path) -> None:
    """The store is closed by the time that the receiver has been told."""
    sent: list[str] = []
    closing = opened("sqlite", tmp_path, lambda _: None)

    async def deliver(effect: Effect) -> None:
        sent.append(effect.key)
        await closing.__aexit__(None, None, None)

    _, kept = await closing.__aenter__()
    async with build(effect_dispatcher.layer(deliver) | given_store(kept)) as built:
        refused = (await get(built.unwrap(), EffectDispatcher).dispatch(MAIL)).failure()
    assert isinstance(refused, Unavailable)
    assert refused.applied == "unknown"
    assert "'mail:1' was delivered, and that could not be recorded" in refused.reason
    assert sent == ["mail:1"]


# --- the list, and none -------------------------------------------------------------


async def test_layer_test_keeps_a_list_of_its_own() -> None:
    async with build(effect_dispatcher.layer_test()) as built:
        dispatcher = get(built.unwrap(), EffectDispatcher)
        assert isinstance(dispatcher, MemoryEffectDispatcher)
        _ = (await dispatcher.dispatch(MAIL)).unwrap()
        assert dispatcher.sent == [MAIL]


async def test_layer_noop_sends_nothing_and_says_what_to_do() -> None:
    async with build(effect_dispatcher.layer_noop()) as built:
        refused = (await get(built.unwrap(), EffectDispatcher).dispatch(MAIL)).failure()
    assert refused == Unavailable(
        "nothing delivers the effect 'mail:1' here; give effect_dispatcher.layer(deliver)", "no"
    )
