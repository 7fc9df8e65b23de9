"""Rivals: somebody else who does something durable, in this process or in another one.

Each has a wake bus of its own, so what it does is heard of through the ledger only.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol, final

from stepwell import Engine, Ledger, Store, Success, build, get
from stepwell.layers import artifacts, step_cache, step_sandbox, waiters, wake_bus
from stepwell.layers import engine as engines
from stepwell.layers import journal as journals
from stepwell.layers import store as stores

from .engine_world import PATIENCE_S, EngineWorld, Opened
from .scenario_flows import KNOWN, ghost, unghost
from .store_world import append, chats, given_clock, given_ids, given_ledger, success

__all__ = ["BYE", "HOUR_MS", "LocalRival", "RemoteRival", "Rival", "forker", "local_rival", "remote_rival"]

HOUR_MS = 3_600_000
BYE = b"bye\n"
"""What a process says last when it has closed all that it had opened."""


class Rival(Protocol):
    """What somebody else does, durably, before the call returns."""

    async def append(self, store_id: str, message_id: str) -> None: ...

    async def flicker(self, store_id: str) -> None:
        """A message comes, and is gone again in the next revision."""
        ...

    async def delete(self, store_id: str) -> None: ...

    async def signal(self, run_id: str, value: str) -> None: ...

    async def cancel(self, run_id: str) -> None: ...

    async def start(self, name: str, run_id: str, argument: str) -> bool:
        """Whether the run is there now, as it was asked for."""
        ...

    async def advance(self, ms: int) -> None: ...

    async def state(self, run_id: str) -> str: ...

    async def result(self, run_id: str) -> object: ...


@final
class LocalRival:
    """One in this process."""

    def __init__(self, app: Opened) -> None:
        self._app = app
        self._workflows = {each.name: each for each in KNOWN}

    async def append(self, store_id: str, message_id: str) -> None:
        _ = success(await self._app.store.update(chats, store_id, append(message_id)))

    async def flicker(self, store_id: str) -> None:
        _ = success(await self._app.store.update(chats, store_id, ghost))
        _ = success(await self._app.store.update(chats, store_id, unghost))

    async def delete(self, store_id: str) -> None:
        _ = success(await self._app.store.delete(chats, store_id))

    async def signal(self, run_id: str, value: str) -> None:
        _ = success(await self._app.engine.signal(run_id, "news", value))

    async def cancel(self, run_id: str) -> None:
        _ = success(await self._app.engine.cancel(run_id))

    async def start(self, name: str, run_id: str, argument: str) -> bool:
        return isinstance(await self._app.engine.start(self._workflows[name], argument, id=run_id), Success)

    async def advance(self, ms: int) -> None:
        await self._app.clock.advance(ms)

    async def state(self, run_id: str) -> str:
        return (await self._app.status(run_id)).state

    async def result(self, run_id: str) -> object:
        async with asyncio.timeout(PATIENCE_S):
            return success(await self._app.engine.result(run_id))


@final
class RemoteRival:
    """One in another process, by `scenario_child.py`; raises what came of a call that failed there."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asking = asyncio.Lock()

    async def _ask(self, name: str, *arguments: object) -> object:
        async with self._asking, asyncio.timeout(PATIENCE_S):
            self._writer.write(json.dumps([name, arguments]).encode() + b"\n")
            line = await self._reader.readline()
        answer: dict[str, object] = json.loads(line or b'{"error": "the other process has ended"}')
        if "error" in answer:
            raise AssertionError(f"{name}{arguments} in another process: {answer['error']}")
        return answer["value"]

    async def end(self) -> None:
        """Let the process close what it has opened, and end."""
        self._writer.write_eof()
        last = await self._reader.read()
        self._writer.close()
        assert last == BYE, last

    async def append(self, store_id: str, message_id: str) -> None:
        await self._ask("append", store_id, message_id)

    async def flicker(self, store_id: str) -> None:
        await self._ask("flicker", store_id)

    async def delete(self, store_id: str) -> None:
        await self._ask("delete", store_id)

    async def signal(self, run_id: str, value: str) -> None:
        await self._ask("signal", run_id, value)

    async def cancel(self, run_id: str) -> None:
        await self._ask("cancel", run_id)

    async def start(self, name: str, run_id: str, argument: str) -> bool:
        return bool(await self._ask("start", name, run_id, argument))

    async def advance(self, ms: int) -> None:
        await self._ask("advance", ms)

    async def state(self, run_id: str) -> str:
        return str(await self._ask("state", run_id))

    async def result(self, run_id: str) -> object:
        return await self._ask("result", run_id)


@asynccontextmanager
async def local_rival(world: EngineWorld, ledger: Ledger) -> AsyncGenerator[Rival]:
    """A rival over this very ledger, that drives nothing."""
    base = given_ledger(ledger) | given_clock(world.clock) | given_ids(world.ids) | wake_bus.layer_test()
    kept = stores.layer_test() | waiters.layer_test() | journals.layer_test()
    absent = artifacts.layer_noop() | step_cache.layer_noop() | step_sandbox.layer_noop()
    whole = base | kept | absent | engines.layer_test(KNOWN, False)
    async with build(whole) as built:
        env = success(built)
        yield LocalRival(Opened(get(env, Engine), get(env, Store), ledger, world.clock))


@asynccontextmanager
async def remote_rival(
    path: Path, *, drive: bool = False, deaf: bool = False, silent: bool = False, poll_ms: int = HOUR_MS
) -> AsyncGenerator[Rival]:
    """A rival in another process, over the same file."""
    assert _forkers, "the test module has no fixture that starts a forker"
    here, there = socket.socketpair()
    order = {"path": str(path), "drive": drive, "deaf": deaf, "silent": silent, "poll_ms": poll_ms}
    with there:
        _ = socket.send_fds(_forkers[-1], [json.dumps(order).encode()], [there.fileno()])
    rival = RemoteRival(*await asyncio.open_connection(sock=here))
    try:
        yield rival
    finally:
        await rival.end()


_forkers: list[socket.socket] = []


@contextmanager
def forker() -> Generator[None]:
    """Where rivals in other processes come from, for the time of the block: the imports are paid for once."""
    here, there = socket.socketpair()
    command = [sys.executable, "-m", f"{__package__}.scenario_child", str(there.fileno())]
    with here, subprocess.Popen(command, pass_fds=[there.fileno()], cwd=Path(__file__).parents[2]) as process:
        there.close()
        _forkers.append(here)
        try:
            yield
        finally:
            _ = _forkers.pop()
            here.shutdown(socket.SHUT_WR)
    assert process.returncode == 0
