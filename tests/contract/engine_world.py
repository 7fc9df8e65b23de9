"""One ledger and the engines that are assembled over it, one after another or side by side, for tests of the engine.

A *restart* is the end of one `engine(...)` block and the beginning of the next: in memory the engine and the store are
built anew over the same ledger, on SQLite the file is closed and opened again too. Time stands until a test moves it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from stepwell import (
    AnyWorkflow,
    Artifacts,
    Clock,
    Engine,
    Failure,
    Layer,
    Ledger,
    ManualClock,
    Outcome,
    RunHandle,
    RunStatus,
    StepId,
    StepSandbox,
    Store,
    StoreKey,
    TooLarge,
    Unavailable,
    Waiters,
    WakeBus,
    build,
    get,
    provides,
)
from stepwell.core.batch import Batch
from stepwell.core.poll import DEFAULT_POLL, PollPolicy
from stepwell.core.run import RunRow
from stepwell.core.step import StepRow
from stepwell.core.waiter import Registered, Waiter
from stepwell.layers import artifacts, step_cache, step_sandbox, waiters
from stepwell.layers import engine as engines
from stepwell.layers import journal as journals
from stepwell.layers import ledger as ledgers
from stepwell.layers import store as stores
from stepwell.layers import wake_bus as wake_buses
from stepwell.layers.delivery import Delivery
from stepwell.layers.engine import EngineOptions
from stepwell.layers.ids import CountedIds
from stepwell.layers.ledger import MemoryLedger
from stepwell.layers.waiters import LedgerWaiters
from stepwell.services.engine import ResultFailure
from stepwell.services.journal import Journal
from stepwell.services.ledger import Verdict
from stepwell.services.step_cache import StepCache

from .ledger_double import LedgerDouble
from .store_world import failure, given_clock, given_ids, given_ledger, success
from .told_runs import check_journals

__all__ = ["NOW_MS", "Around", "EngineWorld", "Host", "Opened", "Refusing", "ended", "failure", "success", "until"]

_R = TypeVar("_R")

Host: TypeAlias = Literal["memory", "sqlite"]
Steps: TypeAlias = Artifacts | StepCache | StepSandbox
Around: TypeAlias = Callable[[Ledger], Ledger]

NOW_MS = 1_700_000_000_000
PATIENCE_S = 10.0
"""How long, of real time, a test waits for what must happen, before it fails."""


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Let the event loop turn until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            held = condition()
            if await held if inspect.isawaitable(held) else held:
                return
            await asyncio.sleep(0)


async def ended(handle: RunHandle[_R]) -> Outcome[_R, ResultFailure]:
    """What the run ends with, without moving the clock."""
    async with asyncio.timeout(PATIENCE_S):
        return await handle.result()


@dataclass(frozen=True)
class Opened:
    """One engine, and what it stands on."""

    engine: Engine
    store: Store
    ledger: Ledger
    clock: ManualClock

    async def status(self, run_id: str) -> RunStatus:
        return success(await self.engine.status(run_id))

    async def row(self, run_id: str) -> RunRow:
        row = success(await self.ledger.run(run_id))
        assert row is not None
        return row

    async def steps(self, run_id: str) -> dict[str, StepRow]:
        return {row.key: row for row in success(await self.ledger.steps(run_id))}

    async def becomes(self, run_id: str, state: str) -> RunStatus:
        """The run's status, once it is in this state."""

        async def stands() -> bool:
            return (await self.status(run_id)).state == state

        await until(stands)
        return await self.status(run_id)

    async def waits_for(self, run_id: str, text: str) -> None:
        """Return once the run is shown to wait for what the text says."""

        async def shown() -> bool:
            return text in ((await self.status(run_id)).waiting_on or "")

        await until(shown)

    async def advance_until(self, condition: Callable[[], bool | Awaitable[bool]], *, by_ms: int = 1_000) -> None:
        """Move the clock on, bit by bit, until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                held = condition()
                if await held if inspect.isawaitable(held) else held:
                    return
                await self.clock.advance(by_ms)

    async def ended_in_time(self, handle: RunHandle[_R], *, by_ms: int = 1_000) -> Outcome[_R, ResultFailure]:
        """What the run ends with, while the clock is moved on."""
        result = asyncio.ensure_future(handle.result())
        await self.advance_until(result.done, by_ms=by_ms)
        return result.result()

    async def result_in_time(self, run_id: str) -> Outcome[object, ResultFailure]:
        """The same for a run of which there is no handle."""
        result = asyncio.ensure_future(self.engine.result(run_id))
        await self.advance_until(result.done)
        return result.result()


class EngineWorld:
    """One ledger. All engines share its clock, and take their ids from one source."""

    def __init__(self, host: Host, path: Path) -> None:
        self.host = host
        self.path = path
        self.clock = ManualClock(NOW_MS)
        self.ids = CountedIds()
        self._memory = MemoryLedger(self.clock)

    @asynccontextmanager
    async def engine(
        self,
        *workflows: AnyWorkflow,
        drive: bool = True,
        around: Around | None = None,
        store: Layer[Store, Store] | None = None,
        clock: Clock | None = None,
        poll: PollPolicy = DEFAULT_POLL,
        silent: bool = False,
        bus: Layer[WakeBus, WakeBus] | None = None,
        plain: bool = False,
        steps: Layer[Steps, Steps] | None = None,
        options: EngineOptions | None = None,
    ) -> AsyncGenerator[Opened]:
        """An engine for the time of the block. `around` comes between it and the ledger; `store` replaces the store.

        It polls as `poll` says; `silent`: its wake bus never wakes, unless `bus` is another one; `plain`: its waiters
        cannot join. `steps` is what cached steps need, of which there is nothing by default. At the end of the block
        the journals of all runs tell what their rows say.
        """
        clocks = given_clock(clock or self.clock)
        async with build(self._ledger(clocks) | journals.layer_test()) as built:
            real = get(success(built), Ledger)
            ledger = real if around is None else around(real)
            told = given_journal(get(success(built), Journal))
            hints = bus or (wake_buses.layer_noop() if silent else wake_buses.layer_test())
            base = given_ledger(ledger) | clocks | given_ids(self.ids) | hints
            waiting = plain_waiters if plain else waiters.layer_test(poll=poll)
            absent = artifacts.layer_noop() | step_cache.layer_noop() | step_sandbox.layer_noop()
            services = base | stores.layer_test(poll=poll) | waiting | told | (steps or absent)
            told_engine: EngineOptions = {**(options or {}), "poll": poll}
            whole = services | engines.layer_test(workflows, drive, **told_engine)
            async with build(whole if store is None else whole.override(store)) as engine_built:
                env = success(engine_built)
                yield Opened(get(env, Engine), get(env, Store), ledger, self.clock)
            await check_journals(real)

    def _ledger(self, clocks: Layer[Clock, Clock]) -> Layer[Clock | Ledger, Clock | Ledger]:
        if self.host == "memory":
            return given_ledger(self._memory) | clocks
        return ledgers.layer(self.path, durability="normal") | clocks


def given_journal(journal: Journal) -> Layer[Journal, Journal]:
    @provides
    def recipe() -> Iterator[Journal]:
        yield journal

    return recipe


class PlainWaiters:
    """Waiters over a ledger whose changes cannot be committed in a batch of the caller's."""

    def __init__(self, ledger: Ledger) -> None:
        self._real = LedgerWaiters(ledger)

    async def register(self, waiter: Waiter) -> Outcome[Registered, TooLarge | Unavailable]:
        return await self._real.register(waiter)

    async def waiting(self, key: StoreKey) -> Outcome[tuple[Waiter, ...], Unavailable]:
        return await self._real.waiting(key)

    async def due(self, run_id: str) -> Outcome[tuple[Waiter, ...], Unavailable]:
        return await self._real.due(run_id)

    async def acknowledge(self, waiter: Waiter) -> Outcome[bool, Unavailable]:
        return await self._real.acknowledge(waiter)

    async def cancel(self, key: StoreKey, step: StepId) -> Outcome[None, Unavailable]:
        return await self._real.cancel(key, step)


@provides
async def plain_waiters(clock: Clock, ledger: Ledger, bus: WakeBus) -> AsyncIterator[Waiters]:
    delivery = Delivery(ledger, clock, bus, DEFAULT_POLL)
    delivery.open()
    yield PlainWaiters(ledger)
    await delivery.close()


Judge: TypeAlias = Callable[[Batch], Literal["no", "unknown"] | None]


class Refusing(LedgerDouble):
    """A ledger that answers some commits with `Unavailable`, as `judge` says of each batch.

    "no": it is not committed. "unknown": it is committed, and the answer does not say so. None: it is handed on.
    """

    def __init__(self, real: Ledger, judge: Judge) -> None:
        super().__init__(real)
        self._judge = judge

    async def commit(self, batch: Batch) -> Verdict:
        judged = self._judge(batch)
        if judged is None:
            return await self.real.commit(batch)
        if judged == "unknown":
            _ = await self.real.commit(batch)
        return Failure(Unavailable("as the test says", judged))

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        return tuple([await self.commit(batch) for batch in batches])
