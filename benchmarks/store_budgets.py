"""The budgets of stores: what a durable update costs, alone and among many, and what it leaves on the disk.

Every update but those that compare two sizes has a step id, so that it writes a receipt, as the bare groups do.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import apsw
from budget import Budget, Pair
from floor import BareCommits, BareGroups, ThreadedCommits
from pydantic import TypeAdapter
from world import (
    CALLERS,
    PATCH,
    Order,
    Services,
    Size,
    Steps,
    World,
    in_turn,
    many_at_once,
    opened,
    order,
    orders,
    set_item,
    set_root,
    timed,
)

from stepwell import Clock, Env, Ids, Ledger, Store, WakeBus, get
from stepwell.layers.sql.committer import CommitMode
from stepwell.layers.store import LedgerStore, Limits

__all__ = ["STORE_BUDGETS"]

STORES = 10_000
PAIRS = 7

BUSY_SLICE_S = 0.002
BUSY_S = 1.0
REFERENCE_S = 250e-6
"""The bare commit for which the budgets beside a busy loop were set: they are eased in proportion where one takes
longer, and never made stricter."""


async def make(stores: Store, count: int, size: Size = "1 KB") -> None:
    for start in range(0, count, CALLERS):
        ids = range(start, min(start + CALLERS, count))
        made = await asyncio.gather(*(stores.get_or_create(orders, f"{at}", order(size)) for at in ids))
        for each in made:
            _ = each.unwrap()


def updates(stores: Store, choose: Callable[[], str], steps: Steps | None) -> Callable[[], Awaitable[None]]:
    async def update() -> None:
        step = steps.next() if steps else None
        _ = (await stores.update(orders, choose(), set_root, step=step)).unwrap()

    return update


def always_first() -> str:
    return "0"


def chooser(count: int) -> Callable[[], str]:
    """Picks at random, from a seed of its own: every run is given the same stores."""
    rng = random.Random(7)
    return lambda: f"{rng.randrange(count)}"


# --- one caller ------------------------------------------------------------------------


async def one_caller(mode: CommitMode, world: World) -> Sequence[Pair]:
    bare = BareCommits(world.file())
    threaded = ThreadedCommits(bare)

    async def on_loop() -> float:
        return bare.commit()

    async with opened(world.file(), commit=mode) as env:
        stores = get(env, Store)
        await make(stores, 1)
        update = updates(stores, always_first, Steps())
        floor = on_loop if mode == "inline" else threaded.commit
        pairs = await in_turn(lambda: timed(update), floor, pairs=15, each=40)
    threaded.close()
    bare.close()
    return pairs


async def sizes(change: Callable[[Order], None], world: World) -> Sequence[Pair]:
    """One caller, a store of 10 MB and one of 1 KB in turn."""
    async with opened(world.file()) as env:
        stores = get(env, Store)
        for size in ("1 KB", "10 MB"):
            _ = (await stores.get_or_create(orders, size, order(size))).unwrap()

        async def update(size: Size) -> None:
            _ = (await stores.update(orders, size, change)).unwrap()

        large, small = partial(update, "10 MB"), partial(update, "1 KB")
        return await in_turn(lambda: timed(large), lambda: timed(small), pairs=11, each=40)


# --- a hundred callers -----------------------------------------------------------------


async def beside_bare_groups(stores_count: int, world: World) -> Sequence[Pair]:
    """What an update takes, and what a change takes in a bare commit of as many as there are callers."""
    groups = BareGroups(world.file(), stores_count, PATCH)
    rng = random.Random(7)

    def bare() -> float:
        return groups.commit([rng.randrange(stores_count) for _ in range(CALLERS)])

    pairs: list[Pair] = []
    async with opened(world.file()) as env:
        stores = get(env, Store)
        await make(stores, stores_count)
        update = updates(stores, chooser(stores_count) if stores_count > 1 else always_first, Steps())
        _ = await many_at_once(update, CALLERS, 50)
        for _ in range(PAIRS):
            floor = sum(bare() for _ in range(10))
            ours = await many_at_once(update, CALLERS, 20)
            floor += sum(bare() for _ in range(10))
            pairs.append(Pair(ours, floor / 20 / CALLERS))
    groups.close()
    return pairs


async def against_ones(world: World) -> Sequence[Pair]:
    """Updates a second in groups, and with one transaction for each: the same code, in groups of one."""
    pairs: list[Pair] = []
    async with opened(world.file()) as together, opened(world.file(), Limits(round_size=1)) as alone:
        work: list[Callable[[], Awaitable[None]]] = []
        for env in (together, alone):
            await make(get(env, Store), 1)
            work.append(updates(get(env, Store), always_first, Steps()))
            _ = await many_at_once(work[-1], CALLERS, 2)
        for _ in range(PAIRS):
            ones = await many_at_once(work[1], CALLERS, 1)
            groups = await many_at_once(work[0], CALLERS, 20)
            ones += await many_at_once(work[1], CALLERS, 1)
            pairs.append(Pair(1 / groups, 2 / ones))
    return pairs


# --- beside a busy loop ----------------------------------------------------------------


async def busy(world: World) -> Sequence[Sequence[Pair]]:
    """Updates a second, the 99th percentile in ms, and updates to a bare commit; each caller has a store of its own."""
    bare = BareCommits(world.file())
    rates: list[Pair] = []
    late: list[Pair] = []
    to_commits: list[Pair] = []
    async with opened(world.file()) as env:
        stores = get(env, Store)
        await make(stores, CALLERS)
        for at in range(PAIRS + 1):
            commit = sum(bare.commit() for _ in range(40))
            taken, seconds = await beside_slices(stores)
            commit = (commit + sum(bare.commit() for _ in range(40))) / 80
            slow = max(1.0, commit / REFERENCE_S)
            p99_ms = sorted(taken)[len(taken) * 99 // 100] * 1e3
            if at:  # the first one warms up
                rates.append(Pair(len(taken) / seconds, 1 / slow))
                late.append(Pair(p99_ms, slow))
                to_commits.append(Pair(len(taken) / seconds, 1 / commit))
    bare.close()
    return rates, late, to_commits


async def beside_slices(stores: Store) -> tuple[list[float], float]:
    """How long each update took while something else keeps the loop busy for 2 ms whenever it has its turn."""
    taken: list[float] = []
    until = time.perf_counter() + BUSY_S

    async def caller(id: str) -> None:
        while (began := time.perf_counter()) < until:
            _ = (await stores.update(orders, id, set_root)).unwrap()
            taken.append(time.perf_counter() - began)

    async def burn() -> None:
        while (now := time.perf_counter()) < until:
            while time.perf_counter() < now + BUSY_SLICE_S:
                pass
            await asyncio.sleep(0)

    began = time.perf_counter()
    _ = await asyncio.gather(burn(), *(caller(f"{at}") for at in range(CALLERS)))
    return taken, time.perf_counter() - began


# --- what is written, and read again ------------------------------------------------------


async def wal_bytes(size: Size, count: int, world: World) -> Sequence[Pair]:
    """KB that the write-ahead log grew by for each update, of 100 callers."""
    path = world.file()
    pairs: list[Pair] = []
    async with opened(path) as env:
        stores = get(env, Store)
        await make(stores, count, size)
        update = updates(stores, chooser(count), Steps())
        _ = await many_at_once(update, CALLERS, 5)
        for _ in range(PAIRS):
            empty_log(path)
            _ = await many_at_once(update, CALLERS, 10)
            pairs.append(Pair(log_bytes(path) / (CALLERS * 10) / 1000))
    return pairs


def log_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def empty_log(path: Path) -> None:
    """From here its length says what was written: it is shorter than what makes the writer begin it anew."""
    connection = apsw.Connection(str(path))
    _ = connection.execute("pragma busy_timeout = 5000").fetchall()
    _ = connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    connection.close()
    assert log_bytes(path) == 0, "somebody else reads or writes"


async def cold_reads(size: Size, world: World) -> Sequence[Sequence[Pair]]:
    """Of a store that this process has not seen, half-way to its next base: up to the snapshot, and to its state."""
    snapshots: list[Pair] = []
    states: list[Pair] = []
    validate = TypeAdapter(Order).validate_json
    async with opened(world.file()) as env:
        stores = get(env, Store)
        await make(stores, 1, size)
        base = orders.schema.encode(order(size))
        rows = len(base) // 4 // (80 + len(PATCH))  # a base is due when the log weighs half of the last one
        _ = await many_at_once(updates(stores, always_first, None), 10, rows // 10)
        for _ in range(PAIRS + 1):
            began = time.perf_counter()
            _ = validate(base)
            floor = time.perf_counter() - began
            to_snapshot, to_state = await cold_read(env)
            snapshots.append(Pair(to_snapshot, floor))
            states.append(Pair(to_state, floor))
    return snapshots[1:], states[1:]


async def cold_read(env: Env[Services]) -> tuple[float, float]:
    cold = LedgerStore(get(env, Ledger), get(env, Clock), get(env, Ids), get(env, WakeBus))
    began = time.perf_counter()
    snapshot = (await cold.get(orders, "0")).unwrap()
    to_snapshot = time.perf_counter() - began
    _ = snapshot.state
    to_state = time.perf_counter() - began
    await cold.close()
    return to_snapshot, to_state


# --- the budgets --------------------------------------------------------------------------


def shared(
    name: str, measure: Callable[[World], Awaitable[Sequence[Sequence[Pair]]]], at: int
) -> Callable[[World], Awaitable[Sequence[Pair]]]:
    return lambda world: world.once(name, measure, at)


def cold(size: Size, at: int) -> Callable[[World], Awaitable[Sequence[Pair]]]:
    return shared(f"cold {size}", partial(cold_reads, size), at)


GROUP = "bare group commit"
COMMIT = "bare commit"

STORE_BUDGETS = (
    Budget("one-thread", "update, one caller, thread", f"{COMMIT}, thread", 1.6, partial(one_caller, "thread")),
    Budget("one-inline", "update, one caller, inline", f"{COMMIT}, inline", 1.2, partial(one_caller, "inline")),
    Budget("hot", "update, 100 callers, hot store", GROUP, 2.5, partial(beside_bare_groups, 1)),
    Budget("hot-ones", "updates/s, 100 callers, hot store", "a transaction each", 8.0, against_ones, at_least=True),
    Budget("random", "update, 100 callers, 10,000 stores", GROUP, 5.0, partial(beside_bare_groups, STORES)),
    Budget("busy", "updates/s, busy loop", "-", 8_000, shared("busy", busy, 0), "/s", at_least=True),
    Budget("busy-late", "update, busy loop, p99", "-", 50.0, shared("busy", busy, 1), "ms"),
    Budget("busy-commits", "the same as busy, as a ratio", f"{COMMIT}s/s", None, shared("busy", busy, 2)),
    Budget("wal-random", "log written, 10,000 of 1 KB", "-", 2.5, partial(wal_bytes, "1 KB", STORES), "KB"),
    Budget("wal-large", "log written, one of 10 MB", "-", 3.0, partial(wal_bytes, "10 MB", 1), "KB"),
    Budget("cold-100KB", "cold read, 100 KB", "validate_json", 2.0, cold("100 KB", 0)),
    Budget("cold-100KB-state", "cold read, 100 KB, with .state", "validate_json", None, cold("100 KB", 1)),
    Budget("cold-10MB", "cold read, 10 MB", "validate_json", 2.0, cold("10 MB", 0)),
    Budget("cold-10MB-state", "cold read, 10 MB, with .state", "validate_json", None, cold("10 MB", 1)),
    Budget("size-root", "update, field of a 10 MB root", "the same of 1 KB", 1.3, partial(sizes, set_root)),
    Budget("size-item", "update, items[3].status of 10 MB", "the same of 1 KB", 1.3, partial(sizes, set_item)),
)
