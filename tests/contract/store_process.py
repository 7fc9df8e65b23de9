"""Another process of the system, for tests: python store_process.py ACTION PATH NAME."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import NotRequired

from typing_extensions import TypedDict

from stepwell import StepId, Store, build, define_store, get
from stepwell.layers import clock, ids, ledger, store, wake_bus


class Message(TypedDict):
    id: str
    claimed_by: NotRequired[str]


class Chat(TypedDict):
    messages: list[Message]
    unrelated: NotRequired[int]


chats = define_store("chat", Chat)


async def update_from(stores: Store, name: str) -> None:
    """A conditional update by a step, and no more."""
    snapshot = (await stores.get_or_create(chats, "c", {"messages": []})).unwrap()
    step = StepId("one", "a")
    updated = await stores.update_from(chats, "c", snapshot, append(name), step=step)
    assert updated.unwrap().version == 1


async def update(stores: Store, name: str) -> None:
    """Many updates of a store that others change at the same time, by several callers."""
    (await stores.get_or_create(chats, "c", {"messages": []})).unwrap()

    async def caller(number: int) -> None:
        for turn in range(20):
            (await stores.update(chats, "c", append(f"{name}-{number}-{turn}"))).unwrap()

    await asyncio.gather(*(caller(number) for number in range(5)))


async def take(stores: Store, name: str) -> None:
    """Half of the 60 items that there are, by several callers."""

    def first_unclaimed(chat: Chat) -> Message | None:
        return next((message for message in chat["messages"] if "claimed_by" not in message), None)

    async def caller(number: int) -> None:
        def claim(_: Chat, message: Message) -> None:
            message["claimed_by"] = f"{name}-{number}"

        (await stores.take(chats, "c", first_unclaimed, claim, step=StepId(name, str(number)))).unwrap()

    await asyncio.gather(*(caller(number) for number in range(30)))


def append(id: str) -> Callable[[Chat], None]:
    return lambda chat: chat["messages"].append({"id": id})


ACTIONS = {"take": take, "update": update, "update_from": update_from}


async def main(action: str, path: str, name: str) -> None:
    app = ledger.layer(path) | store.layer() | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(app) as built:
        await ACTIONS[action](get(built.unwrap(), Store), name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
