"""What the budgets are measured on: orders of 1 KB, 100 KB and 10 MB, and one application on the disk at hand."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import count, cycle
from pathlib import Path
from typing import Final, Literal, TypeAlias

from budget import Pair
from pydantic import BaseModel

from stepwell import Clock, Env, Ids, Ledger, StepId, Store, WakeBus, build, define_store
from stepwell.layers import clock, ids, ledger, store, wake_bus
from stepwell.layers.sql.committer import CommitMode
from stepwell.layers.store import Limits

__all__ = [
    "CALLERS",
    "ITEMS",
    "PATCH",
    "Item",
    "Order",
    "Services",
    "Size",
    "Steps",
    "World",
    "in_turn",
    "many_at_once",
    "opened",
    "order",
    "orders",
    "set_item",
    "set_root",
    "timed",
]

Services: TypeAlias = Clock | Ids | Ledger | Store | WakeBus

Size: TypeAlias = Literal["1 KB", "100 KB", "10 MB"]
ITEMS: Final[dict[Size, int]] = {"1 KB": 8, "100 KB": 870, "10 MB": 87_000}

CALLERS: Final = 100
PATCH: Final = b'[["=",["attempts"],1234]]'
"""About what a change of one field is written as."""


class Item(BaseModel):
    sku: str
    title: str
    status: str = "new"
    count: int = 1
    done: bool = False


class Order(BaseModel):
    status: str = "new"
    attempts: int = 0
    items: list[Item] = []


orders = define_store("budget.orders", Order)

_statuses = cycle(("paid", "sent", "back"))  # three, so that two states that take turns both change each time


def set_root(state: Order) -> None:
    state.attempts += 1


def set_item(state: Order) -> None:
    state.items[3].status = next(_statuses)


@cache
def order(size: Size) -> Order:
    """The canonical state of that size, made once, and not looked at by the collector: it is the harness's own."""
    items = [Item(sku=f"sku-{at:06d}", title="t" * 42, count=at) for at in range(ITEMS[size])]
    state = orders.schema.validate(Order(items=items)).unwrap().state
    gc.collect()
    gc.freeze()
    return state


class Steps:
    """Step ids, whose runs are ordered by time, as the engine makes them."""

    def __init__(self) -> None:
        self._numbers = count()

    def next(self) -> StepId:
        return StepId(f"{time.time_ns():x}", f"step-{next(self._numbers)}")


class World:
    """A folder for one run of the measures, and what two of them share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = count()
        self._measured: dict[str, asyncio.Task[Sequence[Sequence[Pair]]]] = {}

    def file(self) -> Path:
        """The path of a database that is not there yet."""
        return self._path / f"{next(self._files)}.db"

    async def once(
        self, name: str, measure: Callable[[World], Awaitable[Sequence[Sequence[Pair]]]], at: int
    ) -> Sequence[Pair]:
        """The pairs at that place of what `measure` gives, which is called for the first of those that ask for one."""
        if name not in self._measured:

            async def measured() -> Sequence[Sequence[Pair]]:
                return await measure(self)

            self._measured[name] = asyncio.create_task(measured())
        return (await self._measured[name])[at]


@asynccontextmanager
async def opened(
    path: Path, limits: Limits | None = None, commit: CommitMode = "auto"
) -> AsyncGenerator[Env[Services]]:
    host = ledger.layer(path, commit=commit) | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(host | store.layer(limits=limits)) as built:
        yield built.unwrap()


# --- how a measure is taken ---------------------------------------------------------


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def in_turn(
    ours: Callable[[], Awaitable[float]], floor: Callable[[], Awaitable[float]], pairs: int, each: int
) -> list[Pair]:
    """Pairs of sums of `each` times, ours and the floor one after the other; one pair more, the first, warms up."""
    found: list[Pair] = []
    for _ in range(pairs + 1):
        below = above = 0.0
        for _ in range(each):
            below += await floor()
            above += await ours()
        found.append(Pair(above, below))
    return found[1:]


async def many_at_once(work: Callable[[], Awaitable[object]], callers: int, each: int) -> float:
    """How many seconds one of them takes, if so many callers do so many each, one after the other."""

    async def caller() -> None:
        for _ in range(each):
            await work()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return (time.perf_counter() - began) / (callers * each)
