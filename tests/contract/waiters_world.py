"""One database, the clients assembled over it, and wake buses that count, fail and call back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from stepwell import (
    Ledger,
    ManualClock,
    Registered,
    Revision,
    StepId,
    Store,
    StoreKey,
    Waiter,
    Waiters,
    build,
    define_store,
    get,
)
from stepwell.core.model import Paths
from stepwell.core.poll import DEFAULT_POLL, PollPolicy
from stepwell.layers import clock, waiters, wake_bus
from stepwell.layers import ledger as ledgers
from stepwell.layers import store as stores
from stepwell.layers.ids import CountedIds

from .store_world import Around, Chat, Host, empty, given_ids, given_ledger, success

NOW_MS = 1_700_000_000_000
PATIENCE_S = 10.0

MESSAGES: Paths = (("messages",),)

boxes = define_store("box", dict[str, int])


async def turns(count: int = 60) -> None:
    """Let every task that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


class Wakes:
    """A bus's `wake`, which notes every attempt and what was delivered, and fails where a test says so."""

    def __init__(self, *, failing: Callable[[str, int], bool] = lambda _run_id, _attempt: False) -> None:
        self.attempts: list[str] = []
        self.delivered: list[str] = []
        self.failing = failing
        self.inside: Callable[[str], Awaitable[object]] | None = None
        self._news = asyncio.Condition()

    async def wake(self, run_id: str) -> None:
        self.attempts.append(run_id)
        async with self._news:
            self._news.notify_all()
        if self.failing(run_id, self.attempts.count(run_id)):
            raise OSError("the bus is out of order")
        if self.inside is not None:
            _ = await self.inside(run_id)
        self.delivered.append(run_id)
        async with self._news:
            self._news.notify_all()

    async def until(self, *, attempts: int = 0, delivered: int = 0, of: str = "") -> None:
        """Wait until there were so many, and `of` was woken, and then for what follows at once."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            _ = await self._news.wait_for(
                lambda: (
                    len(self.attempts) >= attempts
                    and len(self.delivered) >= delivered
                    and (not of or of in self.delivered)
                )
            )
        await turns()


@dataclass(frozen=True)
class Client:
    """One assembled set of services."""

    store: Store
    waiters: Waiters
    ledger: Ledger
    wakes: Wakes

    async def register(
        self,
        run_id: str,
        seen: Revision,
        read_paths: Paths = MESSAGES,
        *,
        key: StoreKey | None = None,
        queue: str | None = None,
    ) -> Registered:
        """A waiter of the run's step "wait" on the chat "c", unless another store is named."""
        key = StoreKey("chat", "c") if key is None else key
        return success(await self.waiters.register(Waiter(key, StepId(run_id, "wait"), seen, read_paths, queue=queue)))

    async def seen(self, key: StoreKey | None = None) -> Revision:
        tip = success(await self.ledger.tip(StoreKey("chat", "c") if key is None else key))
        assert tip is not None
        return tip

    async def acknowledge_all(self, run_id: str) -> list[bool]:
        return [success(await self.waiters.acknowledge(due)) for due in success(await self.waiters.due(run_id))]


class World:
    """A database in memory or in a file. Its clients have one manual clock."""

    def __init__(self, host: Host, path: Path, scope: AsyncExitStack) -> None:
        self.host = host
        self.path = path
        self.clock = ManualClock(NOW_MS)
        self.ids = CountedIds()
        self._scope = scope
        self.memory = ledgers.MemoryLedger(self.clock)

    async def client(
        self,
        wakes: Wakes | None = None,
        *,
        around: Around | None = None,
        ledger: Ledger | None = None,
        poll: PollPolicy = DEFAULT_POLL,
    ) -> Client:
        """A further client; with `ledger`, over that one. `around` comes between its services and the ledger."""
        wakes = Wakes() if wakes is None else wakes
        ledger = await self.ledger() if ledger is None else ledger
        if around is not None:
            ledger = around(ledger)
        layer = (
            given_ledger(ledger)
            | clock.layer_test(self.clock)
            | given_ids(self.ids)
            | wake_bus.layer_noop(wake=wakes.wake)
            | stores.layer_test()
            | waiters.layer_test(poll=poll)
        )
        env = success(await self._scope.enter_async_context(build(layer)))
        return Client(get(env, Store), get(env, Waiters), ledger, wakes)

    async def ledger(self) -> Ledger:
        if self.host == "memory":
            return self.memory
        clocks = clock.layer_test(self.clock)
        layer = ledgers.layer(self.path, durability="normal")
        env = success(await self._scope.enter_async_context(build(layer | clocks)))
        return get(env, Ledger)

    async def restart(self) -> None:
        """All clients end; what was in memory stays there."""
        await self._scope.aclose()


def chat(unrelated: int = 0) -> Chat:
    made = empty()
    made["unrelated"] = unrelated
    return made


def unrelated(draft: Chat) -> None:
    draft["unrelated"] = draft.get("unrelated", 0) + 1


@asynccontextmanager
async def open_world(host: Host, folder: Path) -> AsyncGenerator[World]:
    async with AsyncExitStack() as scope:
        yield World(host, folder / "app.db", scope)
