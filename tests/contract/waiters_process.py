"""Another process, which appends to the chat "c" and may end in the middle: python waiters_process.py PATH [POINT]."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from stepwell import Store, Success, build, define_store, get
from stepwell.layers import clock, ids, ledger, store, wake_bus
from stepwell.layers.ledger import CommitPoint

chats = define_store("chat", dict[str, list[dict[str, str]]])


def append(chat: dict[str, list[dict[str, str]]]) -> None:
    chat["messages"].append({"id": "x"})


async def main(path: str, at: str = "") -> None:
    def on_point(point: CommitPoint) -> None:
        if point.name == at:
            os.kill(os.getpid(), signal.SIGKILL)

    app = ledger.layer(path, on_point=on_point) | store.layer() | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(app) as built:
        assert isinstance(await get(built.unwrap(), Store).update(chats, "c", append), Success)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
