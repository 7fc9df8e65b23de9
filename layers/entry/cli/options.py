"""What every command shares: `--db` and `--json`, before or after its name, and how it opens the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, TypeVar

import click

from ....core.model import Unavailable
from ....core.outcome import Failure, Outcome
from ....services.workflow import AnyWorkflow
from ... import app as apps
from ..open import MEMORY, App, admit_path, open, open_layer
from .output import Output
from .problem import WRONG_USAGE, Met, Problem, problem_of

__all__ = ["Settings", "open_driving", "open_existing", "run_blocking", "shared", "value_of"]

_A = TypeVar("_A")
_C = TypeVar("_C", bound=Callable[..., object])

DATABASE: Final = "stepwell.db"


@dataclass
class Settings:
    """What the shared options say, wherever they stand; the later one counts."""

    db: str = DATABASE
    as_json: bool = False

    @property
    def output(self) -> Output:
        return Output(self.as_json)


def _keep(context: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
    settings = context.ensure_object(Settings)
    if isinstance(value, str):
        settings.db = value
    elif value:
        settings.as_json = True


def shared(*, root: bool = False, database: bool = True) -> Callable[[_C], _C]:
    """The shared options; without `database`, of a command that needs none, `--json` alone.

    Only the root reads the environment, so that an option always counts for more.
    """

    def decorate(command: _C) -> _C:
        db = click.option(
            "--db",
            metavar="PATH",
            envvar="STEPWELL_DB" if root else None,
            expose_value=False,
            callback=_keep,
            help=f"The database; $STEPWELL_DB, or {DATABASE}, if left out.",
        )
        as_json = click.option(
            "--json", is_flag=True, expose_value=False, callback=_keep, help="Print JSON, errors too."
        )
        return as_json(db(command) if database else command)

    return decorate


def open_driving(settings: Settings, workflows: Sequence[AnyWorkflow]) -> AbstractAsyncContextManager[App, None]:
    """The application in a database that is made where it is missing; it drives the runs of these workflows."""
    return open(_admit_db(settings), workflows=workflows)


def _admit_db(settings: Settings) -> str:
    try:
        return admit_path(settings.db)
    except ValueError as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None


def open_existing(settings: Settings) -> AbstractAsyncContextManager[App, None]:
    """The application in a database that must be there already; nothing is driven."""
    path = _admit_db(settings)
    if path == MEMORY:
        raise Problem("usage", f"{MEMORY!r} ends with its process, so there is nothing in it", exit_code=WRONG_USAGE)
    return open_layer(apps.layer(path, drive=False, create=False))


def run_blocking(work: Coroutine[object, object, _A]) -> _A:
    """Do the work of a command on an event loop of its own. Ctrl-C cancels it, and comes through when it has ended."""
    return asyncio.run(work)


def value_of(outcome: Outcome[_A, Met | Unavailable]) -> _A:
    """What a service answered; a failure becomes the command's."""
    if isinstance(outcome, Failure):
        raise problem_of(outcome.failure())
    return outcome.unwrap()
