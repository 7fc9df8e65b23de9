"""What the scenarios of waiting are played with: moments to come between, rivals here and in another process.

A *moment* is just before or just after a call of a ledger. `Interposed` numbers them, so that a test can let a rival do
something in each, one after the other, until there are no more. A rival stands on the real ledger, with a wake bus of
its own: what it does is heard of through the ledger only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar, final

from stepwell import (
    AnyWorkflow,
    Engine,
    Failure,
    Ledger,
    Outcome,
    Retry,
    Revision,
    Run,
    StepId,
    Store,
    StoreKey,
    StoreNotFound,
    Success,
    TimedOut,
    Unavailable,
    build,
    get,
    workflow,
)
from stepwell.core.batch import Batch, Commit, Document, Receipt
from stepwell.core.poll import PollPolicy
from stepwell.core.run import RunRow, RunState
from stepwell.core.signal import SignalRow
from stepwell.core.step import StepRow
from stepwell.core.waiter import WaiterRow, Wake
from stepwell.layers import engine as engines
from stepwell.layers import store as stores
from stepwell.layers import waiters, wake_bus
from stepwell.services.ledger import DueRuns, News, StoreTip, Verdict

from .engine_world import PATIENCE_S, EngineWorld, Opened, until
from .ledger_double import LedgerDouble
from .store_world import Chat, Message, append, chats, given_clock, given_ids, given_ledger, success

__all__ = [
    "BRANCHES",
    "HOUR_MS",
    "KNOWN",
    "SELDOM",
    "SHORT_MS",
    "Deaf",
    "Interposed",
    "LocalRival",
    "RemoteRival",
    "Rival",
    "Side",
    "acted_or_rests",
    "gathers",
    "hears",
    "hears_after",
    "hears_twice",
    "local_rival",
    "loses",
    "make",
    "marks",
    "outcome_of",
    "parks",
    "races",
    "ready",
    "remote_rival",
    "rests",
    "row_of",
    "seen",
    "sees",
    "takes",
]

_R = TypeVar("_R")

Side: TypeAlias = Literal["memory", "sqlite", "processes"]
"""Where the rival is: in this process, over memory or over a file, or in another one over the same file."""

HOUR_MS = 3_600_000
SELDOM = PollPolicy(initial_ms=HOUR_MS, factor=1, cap_ms=HOUR_MS)

SHORT_MS = 10
"""So short that the engine's own loops are seldom due meanwhile."""

Act: TypeAlias = Callable[[], Awaitable[object]]


# --- workflows, known to all processes ---------------------------------------


def unclaimed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if "claimed_by" not in message), None)


@workflow
async def sees(run: Run, store_id: str) -> str:
    return _id(await run.store(chats, store_id).when("seen", unclaimed))


@workflow
async def takes(run: Run, store_id: str) -> str:
    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = run.id

    taken = await run.store(chats, store_id).take("taken", unclaimed, claim)
    return _id(Success(taken.unwrap().selected) if isinstance(taken, Success) else taken)


@workflow
async def hears(run: Run, store_id: str) -> str:
    """The store plays no part: all three are started in the same way."""
    return success(await run.signal("news", str))


@workflow
async def hears_after(run: Run, store_id: str) -> str:
    """Begins to wait when there is a message in the store."""
    _ = success(await run.store(chats, store_id).when("begin", unclaimed))
    return success(await run.signal("news", str))


@workflow
async def hears_twice(run: Run, _: str) -> list[str]:
    """The first time for a moment, then for as long as it takes."""
    return [_text(await run.signal("news", str, timeout=SHORT_MS / 1000)), _text(await run.signal("news", str))]


@workflow
async def marks(run: Run, path: str) -> str:
    return await run.step("mark", mark, path, run.id)


def mark(path: str, run_id: str) -> str:
    """One line a time, of who executed what."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        _ = os.write(descriptor, f"{run_id} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)
    return run_id


@workflow
async def loses(run: Run, kind: str) -> list[str]:
    """A wait that loses against a short sleep, and then the same wait for as long as it takes."""
    store_id = f"c-{run.id.removeprefix('r-')}"

    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = run.id

    async def wait(key: str) -> str:
        match kind:
            case "sees":
                return _id(await run.store(chats, store_id).when(key, unclaimed))
            case "takes":
                taken = success(await run.store(chats, store_id).take(key, unclaimed, claim))
                return taken.selected["id"]
            case _:
                return success(await run.signal("news", str))

    async def nap() -> str:
        await run.sleep("nap", SHORT_MS / 1000)
        return "late"

    return [await run.race(nap(), wait("first")), await wait("second")]


BRANCHES = ("sleep", "signal", "when", "take", "step")
ready: set[str] = set()
"""The runs whose step may succeed, in this process."""

seen: dict[str, list[str]] = {}
"""In which order the branches of a run went on, in its last execution in this process."""


@workflow
async def gathers(run: Run, order: str) -> list[str]:
    """Waits for all branches, given in this order, side by side."""
    log: list[str] = []
    seen[run.id] = log

    async def branch(name: str) -> None:
        await wait_for(run, name)
        log.append(name)

    await run.gather(*map(branch, order.split()))
    await run.sleep("end", 1)
    return log


@workflow
async def races(run: Run, order: str) -> list[str]:
    """Waits for the first of the branches, and says how each ended."""
    log: list[str] = []
    seen[run.id] = log

    async def branch(name: str) -> str:
        try:
            await wait_for(run, name)
        except asyncio.CancelledError:
            log.append(f"{name} lost")
            raise
        log.append(name)
        return name

    log.append(f"{await run.race(*map(branch, order.split()))} won")
    await run.sleep("end", 1)
    return log


async def wait_for(run: Run, name: str) -> None:
    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = run.id

    def fails_at_first() -> str:
        if run.id not in ready:
            raise LookupError("not yet")
        return run.id

    match name:
        case "sleep":
            await run.sleep("sleep", 60)
        case "signal":
            _ = success(await run.signal("news", str))
        case "when":
            _ = success(await run.store(chats, f"when-{run.id}").when("when", unclaimed))
        case "take":
            _ = success(await run.store(chats, f"take-{run.id}").take("take", unclaimed, claim))
        case "step":
            _ = await run.step("step", fails_at_first, retry=Retry(max_attempts=2, initial=60, cap=60))
        case _:
            raise ValueError(name)


KNOWN: tuple[AnyWorkflow, ...] = (sees, takes, hears, hears_after, hears_twice, marks, gathers, races, loses)


def _text(outcome: Outcome[str, object]) -> str:
    return "late" if isinstance(outcome, Failure) else outcome.unwrap()


def _id(outcome: Outcome[Message, object]) -> str:
    match outcome:
        case Success(message):
            return message["id"]
        case Failure(StoreNotFound()):
            return "gone"
        case Failure(TimedOut()):
            return "late"
        case Failure(failure):
            raise AssertionError(failure)


def ghost(chat: Chat) -> None:
    """A message that is there in one revision only."""
    chat["messages"].append({"id": "ghost"})


def unghost(chat: Chat) -> None:
    chat["messages"][:] = [message for message in chat["messages"] if message["id"] != "ghost"]


# --- moments ------------------------------------------------------------------


class Interposed(LedgerDouble):
    """Counts the moments of all calls; in the one that is armed, `act` is done before the call goes on."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.moments = 0
        self.calls: list[str] = []
        self.under_way = 0
        self.acted = False
        self._at = 0
        self._act: Act | None = None
        self._answering = 0
        self._open = asyncio.Event()
        self._open.set()

    async def unseen(self, act: Act) -> None:
        """Do this while no call is being answered: what is there for a part of it only, nobody sees."""
        self._open.clear()
        try:
            await until(lambda: not self._answering)
            _ = await act()
        finally:
            self._open.set()

    def arm(self, at: int, act: Act) -> None:
        """Count from 1 again, and act in the moment `at`."""
        self.moments, self.calls, self.acted, self._at, self._act = 0, [], False, at, act

    def disarm(self) -> None:
        self._act = None

    async def _moment(self) -> None:
        self.moments += 1
        if self.moments == self._at and self._act is not None:
            act, self._act = self._act, None
            await asyncio.shield(asyncio.ensure_future(act()))
            self.acted = True

    async def _between(self, name: str, call: Callable[[], Awaitable[_R]]) -> _R:
        self.under_way += 1
        self.calls.append(name)
        try:
            await self._moment()
            _ = await self._open.wait()
            self._answering += 1
            try:
                answer = await call()
            finally:
                self._answering -= 1
            await self._moment()
            return answer
        finally:
            self.under_way -= 1

    async def commit(self, batch: Batch) -> Verdict:
        return await self._between("commit", lambda: self.real.commit(batch))

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        return await self._between("commit_all", lambda: self.real.commit_all(batches))

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        return await self._between("receipt", lambda: self.real.receipt(key, step))

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        return await self._between("tip", lambda: self.real.tip(key))

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        return await self._between("tail", lambda: self.real.tail(key, after))

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        return await self._between("document", lambda: self.real.document(key, at))

    async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
        return await self._between("stores", lambda: self.real.stores(name))

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]:
        return await self._between("run", lambda: self.real.run(run_id))

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunRow, ...], Unavailable]:
        return await self._between(
            "runs",
            lambda: self.real.runs(state=state, workflow=workflow, limit=limit, after=after, newest_first=newest_first),
        )

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        return await self._between("steps", lambda: self.real.steps(run_id))

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        return await self._between("due", lambda: self.real.due(workflows, now_ms, dead=dead, limit=limit))

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        return await self._between("owners", self.real.owners)

    async def cancel_requests(self, owner: str) -> Outcome[tuple[str, ...], Unavailable]:
        return await self._between("cancel_requests", lambda: self.real.cancel_requests(owner))

    async def changes(self) -> Outcome[int, Unavailable]:
        return await self._between("changes", self.real.changes)

    async def waiters(
        self, *, key: StoreKey | None = None, run_id: str | None = None
    ) -> Outcome[tuple[WaiterRow, ...], Unavailable]:
        return await self._between("waiters", lambda: self.real.waiters(key=key, run_id=run_id))

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        return await self._between("wakes", lambda: self.real.wakes(after))

    async def signals(self, run_id: str, name: str | None = None) -> Outcome[tuple[SignalRow, ...], Unavailable]:
        return await self._between("signals", lambda: self.real.signals(run_id, name))


class Deaf(LedgerDouble):
    """Gives no news at all, neither of its own commits nor of those of others."""

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        return lambda: None


# --- rivals ---------------------------------------------------------------------


class Rival(Protocol):
    """What somebody else does, durably, before the call returns."""

    async def append(self, store_id: str, message_id: str) -> None: ...

    async def flicker(self, store_id: str) -> None:
        """A message comes, and is gone again in the next revision."""
        ...

    async def delete(self, store_id: str) -> None: ...

    async def signal(self, run_id: str, value: str) -> None: ...

    async def cancel(self, run_id: str) -> None: ...

    async def start(self, name: str, run_id: str, argument: str) -> bool:
        """Whether the run is there now, as it was asked for."""
        ...

    async def advance(self, ms: int) -> None: ...

    async def state(self, run_id: str) -> str: ...

    async def result(self, run_id: str) -> object: ...


@final
class LocalRival:
    """One in this process."""

    def __init__(self, app: Opened) -> None:
        self._app = app
        self._workflows = {each.name: each for each in KNOWN}

    async def append(self, store_id: str, message_id: str) -> None:
        _ = success(await self._app.store.update(chats, store_id, append(message_id)))

    async def flicker(self, store_id: str) -> None:
        _ = success(await self._app.store.update(chats, store_id, ghost))
        _ = success(await self._app.store.update(chats, store_id, unghost))

    async def delete(self, store_id: str) -> None:
        _ = success(await self._app.store.delete(chats, store_id))

    async def signal(self, run_id: str, value: str) -> None:
        _ = success(await self._app.engine.signal(run_id, "news", value))

    async def cancel(self, run_id: str) -> None:
        _ = success(await self._app.engine.cancel(run_id))

    async def start(self, name: str, run_id: str, argument: str) -> bool:
        return isinstance(await self._app.engine.start(self._workflows[name], argument, id=run_id), Success)

    async def advance(self, ms: int) -> None:
        await self._app.clock.advance(ms)

    async def state(self, run_id: str) -> str:
        return (await self._app.status(run_id)).state

    async def result(self, run_id: str) -> object:
        async with asyncio.timeout(PATIENCE_S):
            return success(await self._app.engine.result(run_id))


@final
class RemoteRival:
    """One in another process, by `scenario_child.py`; raises what came of a call that failed there."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    async def _ask(self, name: str, *arguments: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._asking, asyncio.timeout(PATIENCE_S):
            self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
            line = await self._process.stdout.readline()
        answer: dict[str, object] = json.loads(line or b'{"error": "the other process has ended"}')
        if "error" in answer:
            raise AssertionError(f"{name}{arguments} in another process: {answer['error']}")
        return answer["value"]

    async def append(self, store_id: str, message_id: str) -> None:
        await self._ask("append", store_id, message_id)

    async def flicker(self, store_id: str) -> None:
        await self._ask("flicker", store_id)

    async def delete(self, store_id: str) -> None:
        await self._ask("delete", store_id)

    async def signal(self, run_id: str, value: str) -> None:
        await self._ask("signal", run_id, value)

    async def cancel(self, run_id: str) -> None:
        await self._ask("cancel", run_id)

    async def start(self, name: str, run_id: str, argument: str) -> bool:
        return bool(await self._ask("start", name, run_id, argument))

    async def advance(self, ms: int) -> None:
        await self._ask("advance", ms)

    async def state(self, run_id: str) -> str:
        return str(await self._ask("state", run_id))

    async def result(self, run_id: str) -> object:
        return await self._ask("result", run_id)


@asynccontextmanager
async def local_rival(world: EngineWorld, ledger: Ledger) -> AsyncGenerator[Rival]:
    """A rival over this very ledger, that drives nothing."""
    base = given_ledger(ledger) | given_clock(world.clock) | given_ids(world.ids) | wake_bus.layer_test()
    whole = base | stores.layer_test() | waiters.layer_test() | engines.layer_test(KNOWN, False)
    async with build(whole) as built:
        env = success(built)
        yield LocalRival(Opened(get(env, Engine), get(env, Store), ledger, world.clock))


@asynccontextmanager
async def remote_rival(
    path: Path, *, drive: bool = False, deaf: bool = False, silent: bool = False, poll_ms: int = HOUR_MS
) -> AsyncGenerator[Rival]:
    """A rival in another process, over the same file."""
    order = {"path": str(path), "drive": drive, "deaf": deaf, "silent": silent, "poll_ms": poll_ms}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"{__package__}.scenario_child",
        json.dumps(order),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    rival = RemoteRival(process)
    try:
        yield rival
    finally:
        assert process.stdin is not None
        process.stdin.close()
        _ = await process.wait()
    assert process.returncode == 0


# --- what is seen ------------------------------------------------------------------


async def make(store: Store, store_id: str) -> None:
    _ = success(await store.get_or_create(chats, store_id, {"messages": []}))


async def row_of(ledger: Ledger, run_id: str) -> RunRow:
    row = success(await ledger.run(run_id))
    assert row is not None
    return row


async def parks(ledger: Ledger, run_id: str) -> None:
    """Return once the run waits."""
    await until(lambda: _stands(ledger, run_id, "waiting"))


async def outcome_of(ledger: Ledger, run_id: str) -> object:
    """What the run has returned, once it has."""
    await until(lambda: _stands(ledger, run_id, "completed"))
    return json.loads((await row_of(ledger, run_id)).outcome or b"null")


async def _stands(ledger: Ledger, run_id: str, state: RunState) -> bool:
    return (await row_of(ledger, run_id)).state == state


QUIET_TURNS = 25


async def acted_or_rests(double: Interposed, run_id: str) -> bool:
    """Return once the double has acted, True; or once the run rests, False."""
    quiet, before = 0, -1
    async with asyncio.timeout(PATIENCE_S):
        while not double.acted:
            quiet = quiet + 1 if await _is_quiet(double, run_id, before) else 0
            before = double.moments
            if quiet == QUIET_TURNS:
                return False
            await asyncio.sleep(0)
    return True


async def rests(double: Interposed, run_id: str) -> None:
    """Return once the run waits, and no call has been made for a while."""
    double.arm(0, _nothing)
    double.moments = 1  # as if there had been a call
    assert not await acted_or_rests(double, run_id)


async def _nothing() -> None:
    pass


async def _is_quiet(double: Interposed, run_id: str, before: int) -> bool:
    row = success(await double.real.run(run_id))
    waits = row is not None and row.state == "waiting" and row.owner is not None
    return waits and not double.under_way and 0 < double.moments == before
