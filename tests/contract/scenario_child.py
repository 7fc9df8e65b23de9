"""Another process of the scenarios of waiting: it does what it reads, line by line, and answers when it is durable.

    python -m tests.contract.scenario_child '{"path": ..., "drive": ..., "deaf": ..., "silent": ..., "poll_ms": ...}'

Its clock stands until it is told to move it. `deaf`: its ledger gives no news. `silent`: its wake bus never wakes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TypedDict

from stepwell.core.poll import PollPolicy

from .engine_world import EngineWorld
from .scenario_world import KNOWN, Deaf, LocalRival


class Order(TypedDict):
    path: str
    drive: bool
    deaf: bool
    silent: bool
    poll_ms: int


async def obey(rival: LocalRival) -> None:
    """Until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        name, arguments = json.loads(line)
        try:
            answer = {"value": await getattr(rival, name)(*arguments)}
        except Exception as error:  # whoever asked is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


async def main(order: Order) -> None:
    poll = PollPolicy(initial_ms=order["poll_ms"], factor=1, cap_ms=order["poll_ms"])
    world = EngineWorld("sqlite", Path(order["path"]))
    async with world.engine(
        *KNOWN,
        drive=order["drive"],
        around=Deaf if order["deaf"] else None,
        poll=poll,
        silent=order["silent"],
    ) as app:
        await obey(LocalRival(app))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
