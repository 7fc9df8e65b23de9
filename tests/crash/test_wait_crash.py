"""Processes that end by SIGKILL between a commit, the delivery of its wakes, and what the woken run records.

Wherever one ends, whoever is there afterwards goes on: each wait is answered once, and nothing stays registered.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepwell import AnyWorkflow
from stepwell.layers.ledger import CommitPoint

from ..contract.told_runs import check_agreement, types_of
from . import wait_child
from .wait_child import (
    BESIDE_COMMITS,
    LATE_S,
    End,
    Kind,
    Opened,
    Order,
    Role,
    flow,
    give,
    opened,
    parked,
    run_of,
    shelf_of,
    shelves,
)

KILLS_A_POINT = 50 if os.environ.get("STEPWELL_SOAK") else 10
"""Of each role: 20 or 30 in all, and five times as many in the long run."""

KINDS: tuple[Kind, ...] = ("sees", "takes", "hears")
ON_STORES: tuple[Kind, ...] = ("sees", "takes")

ALL = ("BEFORE_BEGIN", "AFTER_BEGIN", "AFTER_JUDGEMENT", "BEFORE_COMMIT", "AFTER_COMMIT")
"""Points that every commit passes."""

Way = tuple[Kind, int]
"""What is waited for, and at which passing of the point the process ends."""


def ways(kinds: Iterable[Kind], *occurrences: int) -> list[Way]:
    return list(itertools.product(kinds, occurrences))


ALONE: dict[str, list[Way]] = {
    **dict.fromkeys(ALL, ways(KINDS, 1, 2)),  # the commit of the write, and the one that records what the wait came to
    "AFTER_STORES": [*ways(ON_STORES, 1), ("takes", 2)],
    "AFTER_LOG": [*ways(ON_STORES, 1), ("takes", 2)],
    "AFTER_RECEIPTS": [*ways(ON_STORES, 1), ("takes", 2)],
    "AFTER_RUNS": ways(KINDS, 1),
    "AFTER_STEPS": ways(KINDS, 1),
    "AFTER_JOURNALS": ways(KINDS, 1),
    "AFTER_ENTRIES": ways(KINDS, 1),
    "AFTER_WAITERS": ways(ON_STORES, 1, 2),
    "AFTER_SIGNALS": ways(["hears"], 1, 2),
    **dict.fromkeys(BESIDE_COMMITS, ways(KINDS, 1)),
}

WAITER: dict[str, list[Way]] = {
    **dict.fromkeys(ALL, ways(KINDS, 1)),
    "AFTER_STORES": ways(["takes"], 1),
    "AFTER_LOG": ways(["takes"], 1),
    "AFTER_RECEIPTS": ways(["takes"], 1),
    "AFTER_RUNS": ways(KINDS, 1),
    "AFTER_STEPS": ways(KINDS, 1),
    "AFTER_JOURNALS": ways(KINDS, 1),
    "AFTER_ENTRIES": ways(KINDS, 1),
    "AFTER_WAITERS": ways(ON_STORES, 1),
    "AFTER_SIGNALS": ways(["hears"], 1),
    **dict.fromkeys(BESIDE_COMMITS, ways(KINDS, 1)),
}

WRITER: dict[str, list[Way]] = {
    **dict.fromkeys(ALL, ways(KINDS, 1)),
    "AFTER_STORES": ways(ON_STORES, 1),
    "AFTER_LOG": ways(ON_STORES, 1),
    "AFTER_RECEIPTS": ways(ON_STORES, 1),
    "AFTER_WAITERS": ways(ON_STORES, 1),
    "AFTER_SIGNALS": ways(["hears"], 1),
    "before wake": ways(KINDS, 1),
    "after wake": ways(KINDS, 1),
}

NEVER_PASSED = {"AFTER_BASES", "AFTER_SOURCES", "AFTER_CHECKPOINTS", "AFTER_RECORDED", "AFTER_HEADS"}
"""No base is written for so small a state, no entry has a source, and these applications have no step cache."""


def test_every_point_of_a_commit_is_tried() -> None:
    assert {*ALONE, *NEVER_PASSED} >= {point.name for point in CommitPoint}


# --- processes -------------------------------------------------------------------


@dataclass(frozen=True)
class Processes:
    """Gives a new process for each order."""

    zygote: subprocess.Popen[str]

    def start(self, order: Order) -> None:
        assert self.zygote.stdin is not None
        _ = self.zygote.stdin.write(json.dumps(order) + "\n")
        self.zygote.stdin.flush()

    async def says(self) -> str:
        assert self.zygote.stdout is not None
        return (await asyncio.to_thread(self.zygote.stdout.readline)).strip()


@contextmanager
def started() -> Generator[Processes]:
    command = [sys.executable, "-m", wait_child.__name__]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as zygote:
        yield Processes(zygote)


@dataclass
class Trial:
    """One database; the orders of one role, each for a run of its own; and how often a process ended at each point."""

    database: Path
    role: Role
    points: Mapping[str, list[Way]]
    kills: Counter[str]
    orders: list[Order]

    @classmethod
    def of(cls, database: Path, role: Role, points: Mapping[str, list[Way]]) -> Trial:
        orders: list[Order] = []
        for point, found in points.items():
            for kind, occurrence in itertools.islice(itertools.cycle(found), KILLS_A_POINT):
                orders.append(
                    Order(
                        database=str(database),
                        number=len(orders),
                        kind=kind,
                        role=role,
                        point=point,
                        occurrence=occurrence,
                    )
                )
        return cls(database, role, points, Counter(), orders)

    @property
    def flows(self) -> list[AnyWorkflow]:
        return [flow(order["kind"], order["number"]) for order in self.orders]

    async def prepare(self) -> None:
        async with self.client() as app:
            _ = await asyncio.gather(
                *(app.store.get_or_create(shelves, shelf_of(order["number"]), {"items": []}) for order in self.orders)
            )

    def client(self, *workflows: AnyWorkflow) -> AbstractAsyncContextManager[Opened]:
        return opened(self.database, End("never", 0), *workflows)

    async def ended(self, order: Order, processes: Processes) -> None:
        """Take note of how the process of an order ended."""
        status = int(await processes.says())
        assert status in (0, -signal.SIGKILL), order
        self.kills[order["point"]] += status != 0
        assert status != 0 or self.role == "writer", f"{order} was not carried out: the point was not passed"

    async def check(self) -> None:
        """The next process goes on with all runs; each wait is answered, once, and nothing is left."""
        for point in self.points:
            is_raced = self.role == "writer" and "wake" in point  # the other process may be done before it wakes
            assert self.kills[point] >= KILLS_A_POINT * (0.2 if is_raced else 0.9), self.kills
        async with self.client(*self.flows) as app, asyncio.timeout(LATE_S):
            for order in self.orders:
                await give(order["kind"], order["number"], app.store, app.engine)
            for order in self.orders:
                await check_answer(app, order)
            assert (await app.ledger.waiters()).unwrap() == ()
            assert (await app.ledger.wakes()).unwrap() == ()


async def check_answer(app: Opened, order: Order) -> None:
    kind, number = order["kind"], order["number"]
    assert (await app.engine.result(run_of(number))).unwrap() == "item", order
    (row,) = (await app.ledger.steps(run_of(number))).unwrap()
    assert (row.status, row.position) == ("done", 1), order
    await check_agreement(app.ledger, run_of(number))
    assert (await types_of(app.ledger, run_of(number))).count("wake-scheduled") <= 1, order
    shelf = (await app.store.get(shelves, shelf_of(number))).unwrap()
    match kind:
        case "sees":
            assert (shelf.version, shelf.state["items"]) == (1, [{"id": "item"}]), order
        case "takes":
            taken = {"id": "item", "claimed_by": run_of(number)}
            assert (shelf.version, shelf.state["items"]) == (2, [taken]), order
        case "hears":
            assert (await app.ledger.signals(run_of(number))).unwrap() == ()


# --- the three roles -----------------------------------------------------------------


async def test_the_only_process_ends_anywhere_between_its_write_and_the_answer(tmp_path: Path) -> None:
    trial = Trial.of(tmp_path / "app.db", "alone", ALONE)
    await trial.prepare()
    with started() as processes:
        for order in trial.orders:
            processes.start(order)
            await trial.ended(order, processes)
    await trial.check()


async def test_o46_the_waiting_process_ends_anywhere_between_a_wake_and_the_answer(tmp_path: Path) -> None:
    trial = Trial.of(tmp_path / "app.db", "waiter", WAITER)
    await trial.prepare()
    async with trial.client() as app:
        with started() as processes:
            for order in trial.orders:
                processes.start(order)
                assert await processes.says() == "parked", order
                await give(order["kind"], order["number"], app.store, app.engine)
                await trial.ended(order, processes)
    await trial.check()


async def test_the_writing_process_ends_anywhere_between_its_commit_and_the_wake(tmp_path: Path) -> None:
    """What it has committed wakes the run in the other process, without its help; what it has not, does not."""
    trial = Trial.of(tmp_path / "app.db", "writer", WRITER)
    await trial.prepare()
    async with trial.client(*trial.flows) as app:
        for order in trial.orders:
            _ = (await app.engine.start(flow(order["kind"], order["number"]), id=run_of(order["number"]))).unwrap()
        for order in trial.orders:
            await parked(app, order["number"])
        with started() as processes:
            for order in trial.orders:
                processes.start(order)
                await trial.ended(order, processes)
                if await is_written(app, order):
                    _ = (await app.engine.result(run_of(order["number"]), timeout=LATE_S)).unwrap()
                else:
                    row = (await app.ledger.run(run_of(order["number"]))).unwrap()
                    assert row is not None
                    assert row.state == "waiting"
    await trial.check()


async def is_written(app: Opened, order: Order) -> bool:
    """By the commit, which the point of the order comes before or after."""
    committed = order["point"] in ("AFTER_COMMIT", "before wake", "after wake")
    if order["kind"] != "hears":
        shelf = (await app.store.get(shelves, shelf_of(order["number"]))).unwrap()
        assert bool(shelf.state["items"]) == committed, order
    return committed
