"""One database and the clients assembled over it, for tests of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, TypeAlias, TypeVar

from typing_extensions import TypedDict

from stepwell import (
    Clock,
    Failure,
    Ids,
    Layer,
    Ledger,
    Outcome,
    Store,
    Success,
    WakeBus,
    build,
    define_store,
    get,
    provides,
)
from stepwell.core.poll import DEFAULT_POLL, PollPolicy
from stepwell.layers import ledger as ledgers
from stepwell.layers import store as stores
from stepwell.layers import wake_bus as wake_buses
from stepwell.layers.ids import CountedIds
from stepwell.layers.store import LedgerStore, Limits

_A = TypeVar("_A")
_E = TypeVar("_E")

Host: TypeAlias = Literal["memory", "sqlite"]
Around: TypeAlias = Callable[[Ledger], Ledger]


class Message(TypedDict):
    id: str
    claimed_by: NotRequired[str]
    processed: NotRequired[bool]


class Chat(TypedDict):
    messages: list[Message]
    unrelated: NotRequired[int]


chats = define_store("chat", Chat)


def empty() -> Chat:
    return {"messages": []}


def append(id: str) -> Callable[[Chat], None]:
    def updater(chat: Chat) -> None:
        chat["messages"].append({"id": id})

    return updater


def ids_of(chat: Chat) -> list[str]:
    return [message["id"] for message in chat["messages"]]


class Counted:
    """An updater that counts its runs."""

    def __init__(self, updater: Callable[[Chat], None]) -> None:
        self.runs = 0
        self._updater = updater

    def __call__(self, chat: Chat) -> None:
        self.runs += 1
        self._updater(chat)


def failure(outcome: Outcome[_A, _E]) -> _E:
    """The failure of an outcome that must be one."""
    assert isinstance(outcome, Failure), outcome
    return outcome.failure()


def success(outcome: Outcome[_A, _E]) -> _A:
    """The value of an outcome that must be one."""
    assert isinstance(outcome, Success), outcome
    return outcome.unwrap()


class PassingClock:
    """A clock on which every sleep is over at once, having passed; it remembers how long they were."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self.sleeps_ms: list[int] = []

    def now_ms(self) -> int:
        return self._now_ms

    async def sleep_until_ms(self, at_ms: int) -> None:
        self.sleeps_ms.append(at_ms - self._now_ms)
        self._now_ms = max(self._now_ms, at_ms)
        await asyncio.sleep(0)


def given_clock(clock: Clock) -> Layer[Clock, Clock]:
    @provides
    def recipe() -> Iterator[Clock]:
        yield clock

    return recipe


def given_ids(ids: Ids) -> Layer[Ids, Ids]:
    @provides
    def recipe() -> Iterator[Ids]:
        yield ids

    return recipe


def given_ledger(ledger: Ledger) -> Layer[Ledger, Ledger]:
    @provides
    def recipe() -> Iterator[Ledger]:
        yield ledger

    return recipe


@dataclass(frozen=True)
class Client:
    """One assembled set of services."""

    store: Store
    ledger: Ledger

    @property
    def joinable(self) -> LedgerStore:
        """The store with the calls that the engine makes."""
        assert isinstance(self.store, LedgerStore)
        return self.store


class World:
    """One database, in memory or in a file, and its clients. Their ids come from one source, so that all differ."""

    def __init__(self, host: Host, path: Path, scope: AsyncExitStack) -> None:
        self.host = host
        self.path = path
        self.clock = PassingClock()
        self.ids = CountedIds()
        self._scope = scope
        self.memory = ledgers.MemoryLedger(self.clock)

    async def client(
        self,
        *,
        around: Around | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        bus: Layer[WakeBus, WakeBus] | None = None,
        poll: PollPolicy | None = None,
    ) -> Client:
        """A further client. `around` comes between its store and the ledger."""
        clocks = given_clock(clock or self.clock)
        ledger = await self._ledger(clocks)
        if around is not None:
            ledger = around(ledger)
        layer = given_ledger(ledger) | clocks | given_ids(self.ids) | (bus or wake_buses.layer_test())
        env = success(
            await self._scope.enter_async_context(
                build(layer | stores.layer_test(limits=limits, poll=poll or DEFAULT_POLL))
            )
        )
        return Client(get(env, Store), ledger)

    async def _ledger(self, clocks: Layer[Clock, Clock]) -> Ledger:
        if self.host == "memory":
            return self.memory
        env = success(await self._scope.enter_async_context(build(ledgers.layer(self.path) | clocks)))
        return get(env, Ledger)

    async def close(self) -> None:
        """All clients end."""
        await self._scope.aclose()

    async def restart(self) -> Client:
        """All clients end, and the database is opened again. What was in memory goes on in memory."""
        await self.close()
        return await self.client()


@asynccontextmanager
async def open_world(host: Host, folder: Path) -> AsyncGenerator[World]:
    async with AsyncExitStack() as scope:
        yield World(host, folder / "app.db", scope)
