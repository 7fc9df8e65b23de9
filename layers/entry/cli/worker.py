"""`worker`: drive the runs of some workflows until told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import click

from ....core.run import RunRow, RunState
from ....services.clock import Clock
from ....services.ledger import Ledger
from ....services.workflow import AnyWorkflow
from ...layer import get
from ..open import App
from .modules import workflows_of
from .options import Settings, folders, open_driving, run_blocking, shared, value_of
from .output import Output, instant, plain
from .problem import Problem
from .recorded import status_json

__all__ = ["LOOK_MS", "Follower", "worker"]

LOOK_MS: Final = 500
"""How often is looked whether anything has changed."""

PAGE: Final = 100
"""How many runs are read at a time: each may hold megabytes of arguments and results."""

FOLLOWED: Final = 1_000
"""Of how many runs at a time every change of state is told; of others only that they are there."""


@click.command()
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True)
@click.option("--once", is_flag=True, help="End when no run can go on now.")
@folders
@shared()
@click.pass_obj
def worker(settings: Settings, modules: tuple[str, ...], once: bool) -> None:
    """Drive the runs of the workflows in these modules, until SIGINT or SIGTERM, and tell what becomes of them.

    Told to stop, it takes no new run and sets its own aside: they go on where they were when a worker starts again.
    """
    run_blocking(_work(settings, workflows_of(modules), once))


async def _work(settings: Settings, workflows: Sequence[AnyWorkflow], once: bool) -> None:
    output = settings.output
    names = [one.name for one in workflows]
    async with _told_to_stop() as stop:
        async with open_driving(settings, workflows) as app:
            since_ms = get(app.env, Clock).now_ms()
            output.note(f"worker of {', '.join(names)} in {settings.db}; Ctrl-C stops it")
            await Follower(app, names, output, since_ms).follow(stop, once)
            if stop.is_set():
                output.note("stopping: what runs is set aside")
        output.note("stopped")


@asynccontextmanager
async def _told_to_stop() -> AsyncGenerator[asyncio.Event]:
    """Set by SIGINT and SIGTERM. A second one ends the process as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, tell, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class Follower:
    """Tells every change of state of the runs of some workflows, as far as looking now and then shows it."""

    def __init__(self, app: App, workflows: Sequence[str], output: Output, since_ms: int) -> None:
        self._ledger = get(app.env, Ledger)
        self._clock = get(app.env, Clock)
        self._workflows = workflows
        self._output = output
        self._since_ms = since_ms
        self._followed: dict[str, RunState] = {}
        self._last: int | None = None

    async def follow(self, stop: asyncio.Event, once: bool) -> None:
        """Until `stop` is set; with `once`, until no run can go on now."""
        seen: int | None = None
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stopped.done():
                try:
                    idle = once and await self._is_idle()
                    changes = value_of(await self._ledger.changes())
                    if changes != seen:
                        await self._look()
                        seen = changes
                    if idle:
                        return
                except Problem as problem:
                    if once:
                        raise
                    self._output.note(problem.message)  # once the database can answer again, this goes on
                pause = asyncio.ensure_future(self._clock.sleep_until_ms(self._clock.now_ms() + LOOK_MS))
                await asyncio.wait((stopped, pause), return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
        finally:
            stopped.cancel()

    async def _look(self) -> None:
        """Tell what has changed since the last look: of the runs that are followed, and of those that are new."""
        for run_id in list(self._followed):
            row = value_of(await self._ledger.run(run_id))
            if row is not None:
                self._tell(row)
        async for row in self._new_runs():
            if row.workflow in self._workflows and (not row.ended or row.updated_at_ms >= self._since_ms):
                self._tell(row)

    async def _new_runs(self) -> AsyncIterator[RunRow]:
        while rows := value_of(await self._ledger.runs(after=self._last, limit=PAGE)):
            for row in rows:
                yield row
            self._last = rows[-1].no

    def _tell(self, row: RunRow) -> None:
        before = self._followed.get(row.id)
        if before != row.state:
            self._print(row)
        if row.ended:
            self._followed.pop(row.id, None)
        elif before is not None or len(self._followed) < FOLLOWED:
            self._followed[row.id] = row.state

    def _print(self, row: RunRow) -> None:
        if self._output.as_json:
            self._output.json(status_json(row))
            return
        more = {"waiting": row.waiting_on, "stuck": row.problem}.get(row.state)
        told = f"{row.state}: {more}" if more else row.state
        self._output.text(plain(f"{instant(row.updated_at_ms)}  {row.workflow}  {row.id}  {told}"))

    async def _is_idle(self) -> bool:
        """Whether no run is to be begun, none is executed, and none that waits is due, whoever owns it."""
        now_ms = self._clock.now_ms()
        if value_of(await self._ledger.due(self._workflows, now_ms, limit=1)).rows:
            return False
        for workflow in self._workflows:
            for state in ("pending", "running"):
                if value_of(await self._ledger.runs(state=state, workflow=workflow, limit=1)):
                    return False
            if await self._has_overdue(workflow, now_ms):
                return False
        return True

    async def _has_overdue(self, workflow: str, now_ms: int) -> bool:
        """Whether a waiting run should have gone on by now: its owner is about to, or is dead and will be replaced."""
        last: int | None = None
        while rows := value_of(await self._ledger.runs(state="waiting", workflow=workflow, after=last, limit=PAGE)):
            if any(row.wake_at_ms is not None and row.wake_at_ms <= now_ms for row in rows):
                return True
            last = rows[-1].no
        return False
