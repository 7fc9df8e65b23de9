"""Another process of the system, for tests: python store_process.py update_from PATH."""

from __future__ import annotations

import asyncio
import sys
from typing import NotRequired

from typing_extensions import TypedDict

from stepwell import StepId, Store, build, define_store, get
from stepwell.layers import clock, ids, ledger, store


class Message(TypedDict):
    id: str


class Chat(TypedDict):
    messages: list[Message]
    unrelated: NotRequired[int]


chats = define_store("chat", Chat)


async def update_from(stores: Store) -> None:
    snapshot = (await stores.get_or_create(chats, "c", {"messages": []})).unwrap()
    step = StepId("one", "a")
    await stores.update_from(chats, "c", snapshot, lambda chat: chat["messages"].append({"id": "x"}), step=step)


ACTIONS = {"update_from": update_from}


async def main(action: str, path: str) -> None:
    app = ledger.layer(path) | store.layer() | clock.layer() | ids.layer()
    async with build(app) as built:
        await ACTIONS[action](get(built.unwrap(), Store))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
