"""Other processes of the scenarios of waiting: each does what it is asked, and answers when that is durable.

Started once, by `forker`, it has everything imported, and forks a child for each order, which comes with a socket. The
child reads calls of a rival from it, line by line, until its end, and says "bye" when it has closed all. Its clock
stands until it is told to move it. `deaf`: its ledger gives no news. `silent`: its wake bus never wakes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TypedDict

from stepwell.core.poll import PollPolicy

from .engine_world import EngineWorld
from .scenario_flows import KNOWN
from .scenario_rivals import BYE, LocalRival
from .scenario_world import Deaf


class Order(TypedDict):
    path: str
    drive: bool
    deaf: bool
    silent: bool
    poll_ms: int


async def obey(rival: LocalRival, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the calls end."""
    while line := await reader.readline():
        name, arguments = json.loads(line)
        try:
            answer = {"value": await getattr(rival, name)(*arguments)}
        except Exception as error:  # whoever asked is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        writer.write(json.dumps(answer).encode() + b"\n")


async def work(order: Order, connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    poll = PollPolicy(initial_ms=order["poll_ms"], factor=1, cap_ms=order["poll_ms"])
    world = EngineWorld("sqlite", Path(order["path"]))
    async with world.engine(
        *KNOWN,
        drive=order["drive"],
        around=Deaf if order["deaf"] else None,
        poll=poll,
        silent=order["silent"],
    ) as app:
        await obey(LocalRival(app), reader, writer)
    writer.write(BYE)
    writer.close()
    await writer.wait_closed()


def main(orders: socket.socket) -> None:
    _ = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # how a child ended is told by what it said last
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 4096, 1)
        if not order:
            return
        connection = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            orders.close()
            asyncio.run(work(json.loads(order), connection))
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
