"""What the scenarios of waiting are played with: moments to come between, and stages on which a rival does.

A *moment* is just before or just after a call of a ledger. `Interposed` numbers them, so that a test can let a rival do
something in each, one after the other, until there are no more.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from stepwell import Ledger, Outcome, Revision, StepId, Store, StoreKey, Unavailable
from stepwell.core.batch import Batch, Commit, Document, Receipt
from stepwell.core.poll import PollPolicy
from stepwell.core.run import RunRow, RunState
from stepwell.core.signal import SignalRow
from stepwell.core.step import StepRow
from stepwell.core.waiter import WaiterRow, Wake
from stepwell.services.ledger import DueRuns, News, StoreTip, Verdict

from .engine_world import PATIENCE_S, EngineWorld, Opened, until
from .ledger_double import LedgerDouble
from .scenario_flows import KNOWN, hears, sees, takes
from .scenario_rivals import HOUR_MS, Rival, local_rival, remote_rival
from .store_world import chats, success

__all__ = [
    "KINDS",
    "ON_STORES",
    "SELDOM",
    "SIDES",
    "WAITS",
    "Deaf",
    "Interposed",
    "Kind",
    "Side",
    "Stage",
    "acted_or_rests",
    "driven",
    "has_ended",
    "make",
    "other_rival",
    "outcome_of",
    "parks",
    "played",
    "rests",
    "row_of",
    "world_of",
]

_R = TypeVar("_R")

Side: TypeAlias = Literal["memory", "sqlite", "processes"]
"""Where the rival is: in this process, over memory or over a file, or in another one over the same file."""

SIDES: tuple[Side, ...] = ("memory", "sqlite", "processes")

Kind: TypeAlias = Literal["sees", "takes", "hears"]
WAITS = {"sees": sees, "takes": takes, "hears": hears}
KINDS: tuple[Kind, ...] = ("sees", "takes", "hears")
ON_STORES: tuple[Kind, ...] = ("sees", "takes")


SELDOM = PollPolicy(initial_ms=HOUR_MS, factor=1, cap_ms=HOUR_MS)

Act: TypeAlias = Callable[[], Awaitable[object]]


# --- moments ------------------------------------------------------------------


class Interposed(LedgerDouble):
    """Counts the moments of all calls; in the one that is armed, `act` is done before the call goes on."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.moments = 0
        self.calls: list[str] = []
        self.under_way = 0
        self.acted = False
        self.is_acting = False
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
            self.is_acting = True
            await asyncio.shield(asyncio.ensure_future(act()))
            self.acted, self.is_acting = True, False

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
        after: str | int | None = None,
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
    """Return once the double has acted, True; or once the run waits, nothing is owed and no call is made, False."""
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
    is_idle = not double.under_way and 0 < double.moments == before
    return waits and is_idle and not success(await double.real.wakes())


async def has_ended(ledger: Ledger, run_id: str) -> bool:
    return (await row_of(ledger, run_id)).ended


# --- stages -----------------------------------------------------------------------


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


@asynccontextmanager
async def other_rival(world: EngineWorld) -> AsyncGenerator[Rival]:
    """A rival in this process that outlives engines: over the same memory, or over the file by itself."""
    async with world.engine(drive=False, poll=SELDOM) as app, local_rival(world, app.ledger) as rival:
        yield rival
