"""What a durable update of a store costs beside a bare commit of one row.

    python benchmarks/update.py [--rounds 30]

One caller: in each round 40 bare commits and 40 updates in turn, and the ratio of their times. Many callers: 100 of
them on one store, and the same code with groups of one. Exits 1 where a median misses its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from floor import BareCommits, Row, folder, report
from pydantic import BaseModel
from typing_extensions import TypedDict

from stepwell import StepId, Store, StoreDefinition, build, define_store, get
from stepwell.layers import clock, ids, ledger, store, wake_bus
from stepwell.layers.store import Limits

_T = TypeVar("_T")

PER_ROUND = 40
CALLERS = 100
UPDATES_PER_CALLER = 10


class Item(BaseModel):
    sku: str
    title: str
    count: int = 1
    done: bool = False


class Order(BaseModel):
    status: str = "new"
    attempts: int = 0
    items: list[Item] = []


@dataclass
class Basket:
    owner: str
    attempts: int = 0
    skus: list[str] = field(default_factory=list[str])


class Profile(TypedDict):
    name: str
    attempts: int
    tags: list[str]


orders = define_store("bench.orders", Order)
baskets = define_store("bench.baskets", Basket)
profiles = define_store("bench.profiles", Profile)

# Each about 1 KB as JSON.
ORDER = Order(items=[Item(sku=f"sku-{number:06d}", title="t" * 60, count=number) for number in range(8)])
BASKET = Basket("ann", skus=[f"sku-{number:06d}" for number in range(60)])
PROFILE: Profile = {"name": "ann", "attempts": 0, "tags": [f"tag-{number:06d}" for number in range(60)]}


def set_order(order: Order) -> None:
    order.attempts += 1


def set_basket(basket: Basket) -> None:
    basket.attempts += 1


def set_profile(profile: Profile) -> None:
    profile["attempts"] += 1


@asynccontextmanager
async def opened(path: Path, limits: Limits | None = None) -> AsyncGenerator[Store]:
    app = ledger.layer(path) | store.layer(limits=limits) | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(app) as built:
        yield get(built.unwrap(), Store)


# --- one caller -----------------------------------------------------------------


async def one_caller(
    name: str,
    definition: StoreDefinition[_T],
    initial: _T,
    updater: Callable[[_T], None],
    rounds: int,
    *,
    steps: bool = False,
    read: bool = False,
) -> Row:
    numbers = count()
    ratios: list[float] = []
    spent = 0.0
    with folder() as place:
        bare = BareCommits(place / "bare.db")
        async with opened(place / "app.db") as stores:
            (await stores.get_or_create(definition, "one", initial)).unwrap()

            async def update() -> float:
                step = StepId("run-0001", f"step-{next(numbers):08d}") if steps else None
                began = time.perf_counter()
                updated = (await stores.update(definition, "one", updater, step=step)).unwrap()
                if read:
                    _ = updated.state
                return time.perf_counter() - began

            for _ in range(PER_ROUND):  # warm up
                bare.commit()
                await update()
            for _ in range(rounds):
                floor = ours = 0.0
                for _ in range(PER_ROUND):
                    floor += bare.commit()
                    ours += await update()
                ratios.append(ours / floor)
                spent += ours
        bare.close()
    return Row(name, spent / rounds / PER_ROUND * 1e6, ratios, bound=2.0)


# --- many callers ---------------------------------------------------------------


async def burst(stores: Store, callers: int, updates: int) -> float:
    """All callers update one store, each one call after the other; how many seconds an update took, on average."""

    async def caller() -> None:
        for _ in range(updates):
            (await stores.update(orders, "hot", set_order)).unwrap()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return (time.perf_counter() - began) / (callers * updates)


async def many_callers(rounds: int) -> Row:
    ratios: list[float] = []
    spent = 0.0
    with folder() as place:
        async with (
            opened(place / "groups.db") as together,
            opened(place / "ones.db", Limits(round_size=1)) as alone,
        ):
            for stores in (together, alone):
                (await stores.get_or_create(orders, "hot", ORDER)).unwrap()
                await burst(stores, CALLERS, 1)
            for _ in range(rounds):
                one = await burst(alone, CALLERS, 2)
                group = await burst(together, CALLERS, UPDATES_PER_CALLER)
                ratios.append(one / group)
                spent += group
    name = f"{CALLERS} callers on one store, against groups of one"
    return Row(name, spent / rounds * 1e6, ratios, bound=5.0, at_least=True)


async def main(rounds: int) -> int:
    rows = [
        await one_caller("BaseModel", orders, ORDER, set_order, rounds),
        await one_caller("BaseModel, with a StepId", orders, ORDER, set_order, rounds, steps=True),
        await one_caller("BaseModel, the state is read", orders, ORDER, set_order, rounds, read=True),
        await one_caller("dataclass", baskets, BASKET, set_basket, rounds),
        await one_caller("dataclass, with a StepId", baskets, BASKET, set_basket, rounds, steps=True),
        await one_caller("TypedDict", profiles, PROFILE, set_profile, rounds),
        await one_caller("TypedDict, with a StepId", profiles, PROFILE, set_profile, rounds, steps=True),
    ]
    one = report(f"One caller, one field: an update, and its ratio to a bare commit ({rounds} rounds)", rows)
    many = report("Many callers: an update, and how much faster than with groups of one", [await many_callers(rounds)])
    return one or many


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="how many rounds each row is measured for")
    sys.exit(asyncio.run(main(parser.parse_args().rounds)))
