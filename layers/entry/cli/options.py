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
from ..open import MEMORY, App, admit_path, admit_workspace, open, open_layer
from .output import Output
from .problem import WRONG_USAGE, Met, Problem, problem_of

__all__ = ["Settings", "folders", "open_driving", "open_existing", "run_blocking", "shared", "value_of"]

_A = TypeVar("_A")
_C = TypeVar("_C", bound=Callable[..., object])

DATABASE: Final = "stepwell.db"


@dataclass
class Settings:
    """What the shared options say, wherever they stand; the later one counts."""

    db: str = DATABASE
    is_db_named: bool = False
    as_json: bool = False
    workspace: str | None = None
    artifacts: str | None = None

    @property
    def output(self) -> Output:
        return Output(self.as_json)


def _keep(context: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
    settings = context.ensure_object(Settings)
    if isinstance(value, str):
        settings.db, settings.is_db_named = value, True
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


def folders(command: _C) -> _C:
    """The options of a command that drives: the folders of files that the steps of its application work with."""
    workspace = click.option(
        "--workspace", metavar="DIR", expose_value=False, callback=_keep_folder, help="The folder of sandboxed steps."
    )
    artifacts = click.option(
        "--artifacts",
        metavar="DIR",
        expose_value=False,
        callback=_keep_folder,
        help="Where large outputs are kept; within the workspace if left out.",
    )
    return workspace(artifacts(command))


def _keep_folder(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    settings = context.ensure_object(Settings)
    if parameter.name == "workspace":
        settings.workspace = value
    else:
        settings.artifacts = value


def open_driving(settings: Settings, workflows: Sequence[AnyWorkflow]) -> AbstractAsyncContextManager[App, None]:
    """The application in a database that is made where it is missing; it drives the runs of these workflows."""
    path = _admit_db(settings)
    if settings.workspace is not None:
        _admitted(admit_workspace, settings.workspace)
    return open(path, workflows=workflows, workspace=settings.workspace, artifacts=settings.artifacts)


def _admit_db(settings: Settings) -> str:
    return _admitted(admit_path, settings.db)


def _admitted(admit: Callable[[str], _A], given: str) -> _A:
    """What a check of `open` says of an option; what it refuses is wrong usage."""
    try:
        return admit(given)
    except ValueError as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None


def open_existing(settings: Settings) -> AbstractAsyncContextManager[App, None]:
    """The application in a database that must be there already; nothing is driven, and a damaged journal is no
    hindrance: whoever looks for the damage must be able to."""
    path = _admit_db(settings)
    if path == MEMORY:
        raise Problem("usage", f"{MEMORY!r} ends with its process, so there is nothing in it", exit_code=WRONG_USAGE)
    return open_layer(apps.layer(path, drive=False, create=False, check=False))


def run_blocking(work: Coroutine[object, object, _A]) -> _A:
    """Do the work of a command on an event loop of its own. Ctrl-C cancels it, and comes through when it has ended."""
    return asyncio.run(work)


def value_of(outcome: Outcome[_A, Met | Unavailable]) -> _A:
    """What a service answered; a failure becomes the command's."""
    if isinstance(outcome, Failure):
        raise problem_of(outcome.failure())
    return outcome.unwrap()
