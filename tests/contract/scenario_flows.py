"""The workflows of the scenarios of waiting; all processes know them."""

from __future__ import annotations

import asyncio
import os

from stepwell import AnyWorkflow, Failure, Outcome, Retry, Run, StoreNotFound, Success, TimedOut, workflow

from .store_world import Chat, Message, chats, success

__all__ = [
    "BRANCHES",
    "KNOWN",
    "SHORT_MS",
    "gathers",
    "ghost",
    "hears",
    "hears_after",
    "hears_twice",
    "loses",
    "marks",
    "races",
    "ready",
    "seen",
    "sees",
    "takes",
    "unghost",
]

SHORT_MS = 10
"""So short that the engine's own loops are seldom due meanwhile."""


def unclaimed(chat: Chat) -> Message | None:
    return next((message for message in chat["messages"] if "claimed_by" not in message), None)


@workflow
async def sees(run: Run, store_id: str) -> str:
    return _id(await run.store(chats, store_id).when("seen", unclaimed))


@workflow
async def takes(run: Run, store_id: str) -> str:
    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = run.id

    taken = await run.store(chats, store_id).take("taken", unclaimed, claim)
    return _id(Success(taken.unwrap().selected) if isinstance(taken, Success) else taken)


@workflow
async def hears(run: Run, store_id: str) -> str:
    """The store plays no part: all three are started in the same way."""
    return success(await run.signal("news", str))


@workflow
async def hears_after(run: Run, store_id: str) -> str:
    """Begins to wait when there is a message in the store."""
    _ = success(await run.store(chats, store_id).when("begin", unclaimed))
    return success(await run.signal("news", str))


@workflow
async def hears_twice(run: Run, _: str) -> list[str]:
    """The first time for a moment, then for as long as it takes."""
    return [_text(await run.signal("news", str, timeout=SHORT_MS / 1000)), _text(await run.signal("news", str))]


@workflow
async def marks(run: Run, path: str) -> str:
    return await run.step("mark", mark, path, run.id)


def mark(path: str, run_id: str) -> str:
    """One line a time, of who executed what."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        _ = os.write(descriptor, f"{run_id} {os.getpid()}\n".encode())
    finally:
        os.close(descriptor)
    return run_id


@workflow
async def loses(run: Run, kind: str) -> list[str]:
    """A wait that loses against a short sleep, and then the same wait for as long as it takes."""
    store_id = f"c-{run.id.removeprefix('r-')}"

    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = run.id

    async def wait(key: str) -> str:
        match kind:
            case "sees":
                return _id(await run.store(chats, store_id).when(key, unclaimed))
            case "takes":
                taken = success(await run.store(chats, store_id).take(key, unclaimed, claim))
                return taken.selected["id"]
            case _:
                return success(await run.signal("news", str))

    async def nap() -> str:
        await run.sleep("nap", SHORT_MS / 1000)
        return "late"

    return [await run.race(nap(), wait("first")), await wait("second")]


BRANCHES = ("sleep", "signal", "when", "take", "step")
ready: set[str] = set()
"""The runs whose step may succeed, in this process."""

seen: dict[str, list[str]] = {}
"""In which order the branches of a run went on, in its last execution in this process."""


@workflow
async def gathers(run: Run, order: str) -> list[str]:
    """Waits for all branches, given in this order, side by side."""
    log: list[str] = []
    seen[run.id] = log

    async def branch(name: str) -> None:
        await wait_for(run, name)
        log.append(name)

    await run.gather(*map(branch, order.split()))
    await run.sleep("end", 1)
    return log


@workflow
async def races(run: Run, order: str) -> list[str]:
    """Waits for the first of the branches, and says how each ended."""
    log: list[str] = []
    seen[run.id] = log

    async def branch(name: str) -> str:
        try:
            await wait_for(run, name)
        except asyncio.CancelledError:
            log.append(f"{name} lost")
            raise
        log.append(name)
        return name

    log.append(f"{await run.race(*map(branch, order.split()))} won")
    await run.sleep("end", 1)
    return log


async def wait_for(run: Run, name: str) -> None:
    def claim(_: Chat, message: Message) -> None:
        message["claimed_by"] = run.id

    def fails_at_first() -> str:
        if run.id not in ready:
            raise LookupError("not yet")
        return run.id

    match name:
        case "sleep":
            await run.sleep("sleep", 60)
        case "signal":
            _ = success(await run.signal("news", str))
        case "when":
            _ = success(await run.store(chats, f"when-{run.id}").when("when", unclaimed))
        case "take":
            _ = success(await run.store(chats, f"take-{run.id}").take("take", unclaimed, claim))
        case "step":
            _ = await run.step("step", fails_at_first, retry=Retry(max_attempts=2, initial=60, cap=60))
        case _:
            raise ValueError(name)


KNOWN: tuple[AnyWorkflow, ...] = (sees, takes, hears, hears_after, hears_twice, marks, gathers, races, loses)


def _text(outcome: Outcome[str, object]) -> str:
    return "late" if isinstance(outcome, Failure) else outcome.unwrap()


def _id(outcome: Outcome[Message, object]) -> str:
    match outcome:
        case Success(message):
            return message["id"]
        case Failure(StoreNotFound()):
            return "gone"
        case Failure(TimedOut()):
            return "late"
        case Failure(failure):
            raise AssertionError(failure)


def ghost(chat: Chat) -> None:
    """A message that is there in one revision only."""
    chat["messages"].append({"id": "ghost"})


def unghost(chat: Chat) -> None:
    chat["messages"][:] = [message for message in chat["messages"] if message["id"] != "ghost"]
