"""What the command line is tried on: a module of workflows and a store, as a user writes it. Loaded by its path."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from stepwell import Failure, Outcome, Run, Success, define_store, workflow


class Item(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    status: Literal["new", "approved"] = "new"
    items: list[Item] = []
    notes: dict[str, str] = {}


orders = define_store("shop.orders", Order)
counters = define_store("shop.counters", dict[str, int])


def note(line: str) -> str:
    """Leave a mark outside: whoever counts the lines knows how often this has run."""
    with Path("marks.txt").open("a") as marks:
        marks.write(f"{line}\n")
    return line


def knock(pipe: str) -> None:
    """Say that this has been reached, to whoever reads the named pipe; wait until somebody does."""
    Path(pipe).write_text("here\n")


def is_mended() -> bool:
    return Path("mended").exists()


def has_begun() -> bool:
    return Path("marks.txt").exists()


def die_unless_mended() -> None:
    if not is_mended():
        os.kill(os.getpid(), signal.SIGKILL)


@workflow
async def greet(run: Run, name: str, times: int = 1, *more: float) -> str:
    await run.step("note", note, name)
    return f"{name} {times} {list(more)}"


@workflow
async def sum_up(run: Run, amounts: dict[str, int]) -> dict[str, int]:
    return {"total": sum(amounts.values())}


@workflow(name="untyped", version="2")
async def without_annotations(run: Run, value: Any = None) -> Any:
    return value


@workflow
async def fails(run: Run) -> None:
    raise RuntimeError("no more paper")


@workflow
async def declines(run: Run, decline: bool) -> Outcome[int, str]:
    return Failure("not today") if decline else Success(3)


@workflow
async def opens(run: Run, order_id: str) -> int:
    order = run.store(orders, order_id)
    await order.get_or_create("open", lambda: Order(items=[Item(sku="a"), Item(sku="b", count=2)]))
    updated = await order.update("approve", approve)
    return updated.unwrap().version


def approve(order: Order) -> None:
    order.status = "approved"


@workflow
async def waits(run: Run, pipe: str | None = None) -> str:
    await run.step("note", note, "waits")
    if pipe is not None:
        await run.step("knock", knock, pipe)
    await run.sleep("long", 3600)
    return "waited"


@workflow
async def decides(run: Run) -> object:
    answer = await run.signal("decision", object)
    return answer.unwrap()


@workflow
async def killed(run: Run) -> str:
    await run.step("note", note, "before")
    await run.step("die", die_unless_mended)
    return "survived"


@workflow
async def changes_its_mind(run: Run) -> str:
    """Killed the first time; then its code has changed, so it is stuck, until that is mended."""
    if has_begun() and not is_mended():
        await run.sleep("first", 0)
    else:
        await run.step("first", note, "one")
    await run.step("die", die_unless_mended)
    return "mended"
