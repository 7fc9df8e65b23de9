"""Who waits on a bus here is woken by what another process commits, and by nothing that it does not."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepwell import Ledger, ManualClock, StepId, Store, StoreKey, Waiter, Waiters, WakeBus, build, get
from stepwell.core.poll import PollPolicy
from stepwell.layers import clock, ids, ledger, store, waiters, wake_bus
from stepwell.layers.ledger import CommitPoint

from .store_world import append, chats, empty, given_ledger, ids_of, success
from .waiters_contract import Deaf
from .waiters_world import MESSAGES, NOW_MS, turns

KEY = StoreKey("chat", "c")
HOUR = PollPolicy(3_600_000, 1.0, 3_600_000)
FIVE_SECONDS = PollPolicy(5_000, 1.0, 5_000)


@dataclass(frozen=True)
class Here:
    """This process, which waits under a clock that stands."""

    store: Store
    ledger: Ledger
    waiters: Waiters
    bus: WakeBus
    clock: ManualClock

    async def wait(self) -> asyncio.Task[None]:
        """The run "run" waits for its wake, having looked at a chat without messages."""
        token = self.bus.token("run")
        seen = success(await self.store.get_or_create(chats, "c", empty())).revision
        registered = success(await self.waiters.register(Waiter(KEY, StepId("run", "wait"), seen, MESSAGES)))
        assert not registered.due
        waiting = asyncio.create_task(self.bus.await_wake("run", token))
        await turns()
        assert not waiting.done()
        return waiting

    async def messages(self) -> list[str]:
        return ids_of(success(await self.store.get(chats, "c")).state)


@asynccontextmanager
async def open_here(path: Path, poll: PollPolicy = HOUR, *, hears: bool = True) -> AsyncGenerator[Here]:
    manual = ManualClock(NOW_MS)
    clocks = clock.layer_test(manual)
    async with build(ledger.layer(path) | clocks) as hosts:
        real = get(success(hosts), Ledger)
        host = given_ledger(real if hears else Deaf(real)) | clocks | ids.layer() | wake_bus.layer()
        async with build(host | store.layer() | waiters.layer(poll=poll)) as built:
            env = success(built)
            yield Here(get(env, Store), real, get(env, Waiters), get(env, WakeBus), manual)


async def another_process(path: Path, point: str = "") -> int:
    script = Path(__file__).with_name("waiters_process.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), str(path), point)
    return await process.wait()


async def ends_within(waiting: asyncio.Task[None], seconds: float) -> bool:
    done, _ = await asyncio.wait({waiting}, timeout=seconds)
    return bool(done)


@pytest.mark.parametrize("host", ["sqlite"])
async def test_w26_a_commit_of_another_process_wakes_within_a_second(tmp_path: Path, host: str) -> None:
    async with open_here(tmp_path / f"{host}.db") as here:
        waiting = await here.wait()
        assert await another_process(tmp_path / f"{host}.db") == 0
        assert await ends_within(waiting, 1)
        assert (await here.messages(), here.clock.now_ms()) == (["x"], NOW_MS)


@pytest.mark.parametrize("point", [CommitPoint.AFTER_WAITERS.name, CommitPoint.BEFORE_COMMIT.name])
@pytest.mark.parametrize("host", ["sqlite"])
async def test_w27_a_commit_that_is_rolled_back_wakes_nobody(tmp_path: Path, host: str, point: str) -> None:
    async with open_here(tmp_path / f"{host}.db") as here:
        waiting = await here.wait()
        assert await another_process(tmp_path / f"{host}.db", point) == -signal.SIGKILL
        assert not await ends_within(waiting, 2)
        assert (await here.messages(), success(await here.ledger.wakes())) == ([], ())
        _ = waiting.cancel()
        _ = await asyncio.gather(waiting, return_exceptions=True)
        again = await here.wait()
        assert not again.done()
        _ = success(await here.store.update(chats, "c", append("y")))
        assert await ends_within(again, 1)


@pytest.mark.parametrize("host", ["sqlite"])
async def test_w28_without_news_the_poll_finds_it(tmp_path: Path, host: str) -> None:
    async with open_here(tmp_path / f"{host}.db", FIVE_SECONDS, hears=False) as here:
        waiting = await here.wait()
        assert await another_process(tmp_path / f"{host}.db") == 0
        await here.clock.advance(4_999)
        assert not waiting.done()
        await here.clock.advance(1)
        assert await ends_within(waiting, 1)
        assert await here.messages() == ["x"]


@pytest.mark.parametrize("host", ["memory", "sqlite"])
async def test_w24_a_wake_between_the_look_and_the_wait_is_not_missed(tmp_path: Path, host: str) -> None:
    manual = ManualClock(NOW_MS)
    hosts = ledger.layer_test() if host == "memory" else ledger.layer(tmp_path / "app.db")
    app = hosts | clock.layer_test(manual) | ids.layer() | wake_bus.layer() | store.layer() | waiters.layer(poll=HOUR)
    async with build(app) as built:
        env = success(built)
        bus, service, stores = get(env, WakeBus), get(env, Waiters), get(env, Store)
        seen = success(await stores.get_or_create(chats, "c", empty())).revision
        token = bus.token("run")
        registered = success(await service.register(Waiter(KEY, StepId("run", "wait"), seen, MESSAGES)))
        assert (registered.due, success(await service.due("run"))) == (False, ())
        _ = success(await stores.update(chats, "c", append("x")))  # while the caller is held between look and wait
        await turns()
        assert success(await service.due("run")) == (registered.waiter,)
        async with asyncio.timeout(1):
            await bus.await_wake("run", token)
        assert manual.now_ms() == NOW_MS
