"""Processes that wait for something, or write it, and end themselves on the way, for `test_wait_crash.py`.

Started once, it has everything imported and forks a child for each line that it reads: an order, as JSON. It answers
with the child's exit status. A child that only waits says "parked" before that, when it does.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from stepwell import (
    AnyWorkflow,
    Engine,
    Ledger,
    Run,
    StepId,
    Store,
    Success,
    build,
    define_store,
    get,
    workflow,
)
from stepwell.core.batch import Batch, WriteStep
from stepwell.layers import (
    artifacts,
    clock,
    engine,
    ids,
    journal,
    ledger,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)
from stepwell.layers.ledger import CommitPoint
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.journal import Journal
from stepwell.services.ledger import Verdict
from stepwell.services.wake_bus import WakeToken

from ..contract.engine_world import given_journal, until
from ..contract.ledger_double import LedgerDouble
from ..contract.store_world import given_ledger

LATE_S: Final = 20.0
"""How long, of real time, anything may take."""

Kind: TypeAlias = Literal["sees", "takes", "hears"]
Role: TypeAlias = Literal["alone", "waiter", "writer"]
"""Who ends: the only process, which waits and writes; the one that waits; or the one that writes."""

BESIDE_COMMITS: Final = ("before wake", "after wake", "woken", "before record", "after record")
"""Where a process may end beside the points of its commits: around the call of its bus, between the wake and the look,
and around the call that records what the wait came to."""


class Order(TypedDict):
    """End as `point` is passed for the `occurrence`-th time since the run waits."""

    database: str
    number: int
    kind: Kind
    role: Role
    point: str
    occurrence: int


# --- what is waited for ---------------------------------------------------------


class Item(TypedDict):
    id: str
    claimed_by: NotRequired[str]


class Shelf(TypedDict):
    items: list[Item]


shelves = define_store("shelf", Shelf)


def unclaimed(shelf: Shelf) -> Item | None:
    return next((item for item in shelf["items"] if "claimed_by" not in item), None)


def put(shelf: Shelf) -> None:
    shelf["items"].append({"id": "item"})


def shelf_of(number: int) -> str:
    return f"shelf-{number}"


def run_of(number: int) -> str:
    return f"run-{number}"


def flow(kind: Kind, number: int) -> AnyWorkflow:
    """A workflow of its own for each run, so that a process drives no other one's."""

    @workflow(name=f"{kind}-{number}")
    async def waits(run: Run) -> str:
        def claim(_: Shelf, item: Item) -> None:
            item["claimed_by"] = run.id

        shelf = run.store(shelves, shelf_of(number))
        match kind:
            case "sees":
                return (await shelf.when("wait", unclaimed)).unwrap()["id"]
            case "takes":
                return (await shelf.take("wait", unclaimed, claim)).unwrap().selected["id"]
            case "hears":
                return (await run.signal("item", str)).unwrap()

    return waits


async def give(kind: Kind, number: int, stores: Store, runs: Engine) -> None:
    """What the run waits for, durably, and once, however often this is called."""
    if kind == "hears":
        _ = await runs.signal(run_of(number), "item", "item", dedupe="once")  # the run may have ended with it
    else:
        _ = (await stores.update(shelves, shelf_of(number), put, step=StepId("test", str(number)))).unwrap()


# --- the end -----------------------------------------------------------------------


@dataclass
class End:
    """Ends the process at the point of the order, once it is armed."""

    point: str
    left: int
    armed: bool = False

    def pass_(self, point: str) -> None:
        if self.armed and point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def pass_commit(self, point: CommitPoint) -> None:
        self.pass_(point.name)


class EndingBus:
    """A bus around whose calls the process may end. `delivered`: one went through."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._real = MemoryWakeBus()
        self.delivered = False
        self.layer = wake_bus.layer_noop(wake=self._wake, await_wake=self._await_wake, token=self._real.token)

    async def _wake(self, run_id: str) -> None:
        self._end.pass_("before wake")
        await self._real.wake(run_id)
        self._end.pass_("after wake")
        self.delivered = True

    async def _await_wake(self, run_id: str, token: WakeToken | None) -> None:
        await self._real.await_wake(run_id, token)
        self._end.pass_("woken")


class EndingLedger(LedgerDouble):
    """A ledger around whose recording of results the process may end."""

    def __init__(self, real: Ledger, end: End) -> None:
        super().__init__(real)
        self._end = end
        self.under_way = 0

    async def commit(self, batch: Batch) -> Verdict:
        (verdict,) = await self.commit_all((batch,))
        return verdict

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        records = any(isinstance(each, WriteStep) and each.row.status == "done" for b in batches for each in b.writes)
        if records:
            self._end.pass_("before record")
        self.under_way += 1
        try:
            verdicts = await self.real.commit_all(batches)
        finally:
            self.under_way -= 1
        if records:
            self._end.pass_("after record")
        return verdicts


@dataclass(frozen=True)
class Opened:
    ledger: EndingLedger
    store: Store
    engine: Engine
    bus: EndingBus


@asynccontextmanager
async def opened(database: Path, end: End, *workflows: AnyWorkflow) -> AsyncGenerator[Opened]:
    host = ledger.layer(database, durability="normal", on_point=end.pass_commit) | clock.layer()
    async with build(host | journal.layer()) as hosted:
        double = EndingLedger(get(hosted.unwrap(), Ledger), end)
        bus = EndingBus(end)
        base = given_ledger(double) | clock.layer() | ids.layer() | bus.layer
        absent = artifacts.layer_noop() | step_cache.layer_noop() | step_sandbox.layer_noop()
        told = given_journal(get(hosted.unwrap(), Journal))  # over the ledger itself: the double knows no journals
        services = base | store.layer() | waiters.layer() | told | absent | engine.layer(workflows)
        async with build(services) as built:
            env = built.unwrap()
            yield Opened(double, get(env, Store), get(env, Engine), bus)


# --- the roles -----------------------------------------------------------------------


async def parked(app: Opened, number: int) -> None:
    """Return once the run waits, and no commit is under way that would pass a point."""
    await until(lambda: _waits(app, number))


async def _waits(app: Opened, number: int) -> bool:
    row = (await app.ledger.run(run_of(number))).unwrap()
    return row is not None and row.state == "waiting" and not app.ledger.under_way


async def _is_delivered(app: Opened) -> bool:
    """Whether a wake went through, or none is owed any more: others may be faster."""
    return app.bus.delivered or not (await app.ledger.wakes()).unwrap()


async def execute(order: Order) -> None:
    kind, number, role = order["kind"], order["number"], order["role"]
    end = End(order["point"], order["occurrence"])
    waits = flow(kind, number)
    async with (
        asyncio.timeout(LATE_S),
        opened(Path(order["database"]), end, *(() if role == "writer" else (waits,))) as app,
    ):
        if role == "writer":
            end.armed = True
            await give(kind, number, app.store, app.engine)
            await until(lambda: _is_delivered(app))
            return
        handle = (await app.engine.start(waits, id=run_of(number))).unwrap()
        await parked(app, number)
        end.armed = True
        if role == "alone":
            await give(kind, number, app.store, app.engine)
        else:
            print("parked", flush=True)
        assert await handle.result() == Success("item")


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(execute(json.loads(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
