"""`runs`, `show`, `cancel` and `resume`: what runs there are, and how they stand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, get_args

import click

from ....core.model import Unavailable
from ....core.outcome import Outcome
from ....core.run import ENDED, RunState
from ....services.engine import RunNotFound, RunStatus
from ....services.ledger import Ledger
from ...driver.owner import is_provably_dead
from ...layer import get
from ..open import App
from .numbers import whole_number
from .options import Settings, open_existing, run_blocking, shared, value_of
from .output import instant
from .problem import Problem, problem_of
from .recorded import Recorded, print_run, run_json, status_json

__all__ = ["cancel", "resume", "runs", "show"]

STATES: Final[tuple[RunState, ...]] = get_args(RunState)

MOST: Final = 1_000_000
"""How many runs are listed at most: all of them are held at once."""


# --- runs -------------------------------------------------------------------


@click.command()
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option(
    "--limit", type=whole_number(1, MOST), metavar="N", default="100", show_default=True, help="At most so many."
)
@click.option("--after", metavar="ID", help="Only runs that come after this one in the list.")
@click.option("--newest", is_flag=True, help="The run that was started last comes first.")
@shared()
@click.pass_obj
def runs(
    settings: Settings, state: RunState | None, workflow: str | None, limit: int, after: str | None, newest: bool
) -> None:
    """List runs in the order of their start."""
    found = run_blocking(_list(settings, state, workflow, limit, after, newest))
    output = settings.output
    if output.as_json:
        output.json({"runs": [status_json(status) for status in found]})
        return
    output.table(
        ["run", "workflow", "state", "changed", "waits for, or problem"],
        [(s.id, s.workflow, s.state, instant(s.updated_at_ms, "seconds"), s.problem or s.waiting_on) for s in found],
        whole=("state", "changed"),
    )
    if len(found) == limit:
        output.note(f"there may be more: --after {found[-1].id}")


async def _list(
    settings: Settings, state: RunState | None, workflow: str | None, limit: int, after: str | None, newest: bool
) -> tuple[RunStatus, ...]:
    async with open_existing(settings) as app:
        if after is not None:
            value_of(await app.status(after))
        return value_of(await app.runs(state=state, workflow=workflow, limit=limit, after=after, newest_first=newest))


# --- show -------------------------------------------------------------------


@click.command()
@click.argument("run_id", metavar="ID")
@shared()
@click.pass_obj
def show(settings: Settings, run_id: str) -> None:
    """Show a run: how it stands, what it waits for, its steps and what it ended with."""
    recorded = run_blocking(_read(settings, run_id))
    if settings.as_json:
        settings.output.json(run_json(recorded))
    else:
        print_run(settings.output, recorded)


async def _read(settings: Settings, run_id: str) -> Recorded:
    async with open_existing(settings) as app:
        ledger = get(app.env, Ledger)
        row = value_of(await ledger.run(run_id))
        if row is None:
            raise problem_of(RunNotFound(run_id))
        waiting_on = value_of(await app.status(run_id)).waiting_on
        steps, unread = value_of(await ledger.steps(run_id)), value_of(await ledger.signals(run_id))
        ended = row.owner is not None and is_provably_dead(row.owner)
        return Recorded(replace(row, waiting_on=waiting_on), steps, unread, ended)


# --- cancel and resume ------------------------------------------------------


@click.command()
@click.argument("run_id", metavar="ID")
@shared()
@click.pass_obj
def cancel(settings: Settings, run_id: str) -> None:
    """Ask a run to end. It has 30 seconds to clean up, wherever it is driven; a pending one ends at once."""
    before, after = run_blocking(_ask(settings, run_id, App.cancel))
    if before.state in ENDED:
        _tell(settings, after, f"run {run_id} had ended before: it is {after.state}")
    elif after.state in ENDED:
        _tell(settings, after, f"run {run_id} is {after.state}")
    else:
        _tell(
            settings, after, f"run {run_id} was asked to end, and does so when a worker drives it; it is {after.state}"
        )


@click.command()
@click.argument("run_id", metavar="ID")
@click.option("--drop", metavar="KEY", multiple=True, help="Set this recorded call aside, as if it had not been made.")
@click.option("--reopen", is_flag=True, help="Take up a failed run too: its outcome is taken back.")
@shared()
@click.pass_obj
def resume(settings: Settings, run_id: str, drop: tuple[str, ...], reopen: bool) -> None:
    """Let a stuck run try again, or a failed one with --reopen; a worker goes on with it.

    What the run has recorded stays. A call that is dropped is made anew where the workflow asks for its key.
    """

    def call(app: App, run_id: str) -> Awaitable[Outcome[None, RunNotFound | Unavailable]]:
        return app.resume(run_id, drop=drop, reopen=reopen)

    before, after = run_blocking(_ask(settings, run_id, call))
    if before.state == "stuck":
        _tell(settings, after, f"run {run_id} is stuck no more, and goes on when a worker drives it")
    elif before.state == "failed" and reopen:
        _tell(settings, after, f"run {run_id} is reopened, and goes on when a worker drives it")
    else:
        text = f"nothing to resume: run {run_id} is {after.state}, and {_resumable(after.state)}"
        if drop or reopen:
            raise Problem("not_resumed", text, details={"id": run_id, "state": after.state})
        _tell(settings, after, text)


def _resumable(state: RunState) -> str:
    return "only --reopen takes it up again" if state == "failed" else "only a stuck one is resumed"


async def _ask(
    settings: Settings, run_id: str, call: Callable[[App, str], Awaitable[Outcome[None, RunNotFound | Unavailable]]]
) -> tuple[RunStatus, RunStatus]:
    """How the run stood before the call, and how it stands after it."""
    async with open_existing(settings) as app:
        before = value_of(await app.status(run_id))
        try:
            value_of(await call(app, run_id))
        except ValueError as error:
            raise Problem("unknown_key", str(error), details={"id": run_id}) from None
        return before, value_of(await app.status(run_id))


def _tell(settings: Settings, status: RunStatus, text: str) -> None:
    if settings.as_json:
        settings.output.json(status_json(status))
    else:
        settings.output.text(text)
