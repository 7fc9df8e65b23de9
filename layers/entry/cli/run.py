"""`run`: start a run, or go on with one, and wait for what it ends with."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from ....core.run import RunRow
from ....core.step import StepRow
from ....services.clock import Clock
from ....services.engine import RunMismatch, RunNotFound, RunStatus
from ....services.ids import Ids
from ....services.ledger import Ledger
from ....services.workflow import AnyWorkflow
from ...layer import get
from ..open import App
from .modules import find_workflow
from .options import Settings, folders, open_driving, run_blocking, shared, value_of
from .output import Output
from .problem import INTERRUPTED, WRONG_USAGE, Problem, problem_of
from .recorded import outcome_of
from .words import read_arguments

__all__ = ["run"]

_A = TypeVar("_A")

LOOK_MS: Final = 200
"""How often is looked at a run that is waited for: whether it is stuck, and what to show of it."""


@click.command()
@click.argument("target", metavar="MODULE:WORKFLOW")
@click.argument("words", metavar="[ARG]...", nargs=-1)
@click.option("--id", "run_id", metavar="ID", help="The run's id; a new one, printed, if left out.")
@folders
@shared()
@click.pass_obj
def run(settings: Settings, target: str, words: tuple[str, ...], run_id: str | None) -> None:
    """Start a run and wait for its result; with the id of a run that exists, go on with that one.

    MODULE is a dotted module or the path of a .py file. Each ARG is a JSON value; a word that is none is text, and so
    is one whose parameter wants text. Without ARGS a run that exists goes on with those that it has, stuck ones too.
    What looks like an option goes after `--`.
    """
    asked = Asked(settings, target, find_workflow(target), words)
    try:
        value = run_blocking(_run(asked, run_id))
    except KeyboardInterrupt:
        raise _set_aside(asked) from None
    if settings.as_json:
        settings.output.json(
            {"id": asked.run_id, "workflow": asked.workflow.name, "state": "completed", "result": value}
        )
    elif isinstance(value, str):
        settings.output.text(value)
    else:
        settings.output.json(value)


@dataclass
class Asked:
    """What is to be run. `run_id` is known once the run is durable."""

    settings: Settings
    target: str
    workflow: AnyWorkflow
    words: Sequence[str]
    run_id: str | None = None


def _set_aside(asked: Asked) -> Problem:
    if asked.run_id is None:
        return Problem(
            "interrupted", "interrupted; `stepwell runs` tells whether the run was begun", exit_code=INTERRUPTED
        )
    command = shlex.join(
        ["stepwell", "--db", asked.settings.db, "run", asked.target, "--id", asked.run_id, *_folders(asked.settings)]
    )
    text = f"run {asked.run_id!r} is set aside; go on with it by\n  {command}"
    return Problem("interrupted", text, details={"id": asked.run_id}, exit_code=INTERRUPTED)


def _folders(settings: Settings) -> list[str]:
    """The options that say the same folders once more."""
    given = (("--workspace", settings.workspace), ("--artifacts", settings.artifacts))
    return [word for option, folder in given if folder is not None for word in (option, folder)]


async def _run(asked: Asked, run_id: str | None) -> object:
    """The JSON value that the run ends with; a `Problem` otherwise."""
    output = asked.settings.output
    async with open_driving(asked.settings, [asked.workflow]) as app:
        is_new = run_id is None
        run_id = get(app.env, Ids).new() if run_id is None else run_id
        await _begin(app, asked, run_id)
        asked.run_id = run_id
        if is_new:
            output.note(f"run {run_id}")
        return outcome_of(await _ended(app, run_id, output), asked.workflow)


async def _begin(app: App, asked: Asked, run_id: str) -> None:
    """See to it that there is the run that was asked for, and that it goes on."""
    row = value_of(await get(app.env, Ledger).run(run_id))
    if row is not None and row.workflow != asked.workflow.name:
        raise problem_of(RunMismatch(run_id, f"workflow {row.workflow}", f"workflow {asked.workflow.name}"))
    if row is None or asked.words:
        try:
            arguments = read_arguments(asked.workflow, asked.words)
            started = await app.start(asked.workflow, *arguments, id=run_id)
        except (TypeError, ValueError) as error:  # a type that is no JSON; what no parameter alone could tell; the id
            raise Problem("invalid_argument", str(error), exit_code=WRONG_USAGE) from None
        value_of(started)
    if row is not None and row.state == "stuck":
        value_of(await app.resume(run_id))


async def _ended(app: App, run_id: str, output: Output) -> RunRow:
    """The row of the run once it has ended. One that is stuck is a `Problem`: it would be waited for in vain."""
    clock, ledger = get(app.env, Clock), get(app.env, Ledger)
    result = asyncio.ensure_future(app.result(run_id))
    try:
        with output.progress(f"run {run_id}") as tell:
            while not await _within(result, clock.sleep_until_ms(clock.now_ms() + LOOK_MS)):
                status = value_of(await app.status(run_id))
                if status.state == "stuck":
                    raise _stuck(status)
                if output.live:
                    tell(_in_brief(status, value_of(await ledger.steps(run_id))))
        try:
            gave = await result
        except TypeError as error:  # the code says another type now
            text = f"{error}; `stepwell show {run_id}` prints it as it was recorded"
            raise Problem("invalid_result", text, details={"id": run_id}) from None
    finally:
        result.cancel()
    row = value_of(await ledger.run(run_id))
    if row is None or not row.ended:  # then what it gave is why not
        value_of(gave)
        raise problem_of(RunNotFound(run_id))
    return row


async def _within(result: asyncio.Future[_A], pause: Coroutine[Any, Any, None]) -> bool:
    """Whether the result is there before the pause is over."""
    timer = asyncio.ensure_future(pause)
    try:
        await asyncio.wait((result, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return result.done()


def _stuck(status: RunStatus) -> Problem:
    text = f"run {status.id!r} is stuck: {status.problem}\nmend the cause and give the same command with --id again"
    return Problem("run_stuck", text, details={"id": status.id, "problem": status.problem})


def _in_brief(status: RunStatus, steps: Sequence[StepRow]) -> str:
    done = sum(step.status == "done" for step in steps)
    waits = f", waits for {status.waiting_on}" if status.waiting_on else ""
    return f"run {status.id}: {status.state}, steps done: {done}{waits}"
