"""A program of one version of a store's type, for tests: python form_process.py old|new PATH.

It counts up until it has done so often enough, or until a newer program has taken the state over; it prints how often.
"""

from __future__ import annotations

import asyncio
import sys

from pydantic import BaseModel

from stepwell import Failure, InvalidState, Success, build, define_store, get
from stepwell.core.outcome import Outcome
from stepwell.layers import clock, ids, ledger, store, wake_bus
from stepwell.services.store import Store

TURNS = 150


class Old(BaseModel):
    n: int = 0


class New(BaseModel):
    count: int = 0
    program: str


def rename(old: dict[str, int]) -> object:
    return {"count": old["n"], "program": "new"}


async def old(stores: Store) -> int:
    """It begins before the new one does, and ends when that one has changed the state."""
    olds = define_store("counters", Old)

    def count(state: Old) -> None:
        state.n += 1

    (await stores.get_or_create(olds, "c", Old())).unwrap()
    done = 0
    while done < 100 * TURNS:
        outcome = await stores.update(olds, "c", count)
        if isinstance(outcome, Failure) and _is_newer(outcome):
            read = await stores.get(olds, "c")
            assert isinstance(read, Failure), read
            assert _is_newer(read), read
            return done
        done += outcome.unwrap().version > 0
        if done == TURNS:
            print("begun", flush=True)
    raise AssertionError("nobody took the state over")


def _is_newer(outcome: Failure[object]) -> bool:
    failure = outcome.failure()
    return isinstance(failure, InvalidState) and "written by a newer program" in failure.issues[0].message


async def new(stores: Store) -> int:
    news = define_store("counters", New, version=2, upcasters={1: rename})

    def count(state: New) -> None:
        state.count += 1

    for _ in range(TURNS):
        outcome: Outcome[object, object] = await stores.update(news, "c", count)
        assert isinstance(outcome, Success), outcome
    return TURNS


async def main(program: str, path: str) -> None:
    app = ledger.layer(path) | store.layer() | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(app) as built:
        stores = get(built.unwrap(), Store)
        print(await (old(stores) if program == "old" else new(stores)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
