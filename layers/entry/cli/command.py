"""The command itself: its parts, and what becomes of what goes wrong in them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Final

import click

from ....services.ledger import CannotOpen
from ....services.step_sandbox import WorkspaceRefusal
from ..open import is_unicode
from .backup import backup, restore
from .cache import cache
from .doctor import doctor
from .gc import gc
from .journal import journal
from .options import Settings, shared
from .output import Output
from .problem import INTERRUPTED, WRONG_USAGE, Problem, cannot_open
from .purge import purge
from .run import run
from .runs import cancel, resume, runs, show
from .sandbox import sandbox
from .signals import signal
from .stores import store, stores
from .version import stepwell_version
from .words_first import WithOwn
from .worker import worker

__all__ = ["main"]


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        print(f"stepwell {stepwell_version()}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@shared(root=True)
def root() -> None:
    """Durable workflows and typed stores in one SQLite file, and steps in a sandbox."""


COMMANDS: Final = (
    run,
    worker,
    runs,
    show,
    signal,
    cancel,
    resume,
    stores,
    WithOwn(store, purge),
    journal,
    cache,
    sandbox,
    gc,
    purge,
    backup,
    restore,
    doctor,
)

for command in COMMANDS:
    root.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and give the exit code: 0, 1 for a failure that is reported, 2 for wrong usage.

    130 is Ctrl-C. What a command meets is told on standard error, in words or as JSON; only bugs raise.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    logging.getLogger("stepwell").addHandler(logging.NullHandler())  # commands tell it in words of their own
    try:
        _admit(words)
        given: object = root.main(words, prog_name="stepwell", standalone_mode=False, obj=Settings())
        return given if isinstance(given, int) else 0
    except Problem as problem:
        return _report(words, problem)
    except CannotOpen as error:
        return _report(words, cannot_open(error))
    except WorkspaceRefusal as error:
        return _report(words, Problem(error.code, str(error)))
    except click.UsageError as error:
        return _report_usage(words, error)
    except click.ClickException as error:
        return _report(words, Problem("failed", error.format_message()))
    except (KeyboardInterrupt, click.Abort):
        return _report(words, Problem("interrupted", "interrupted", exit_code=INTERRUPTED))


def _admit(words: Sequence[str]) -> None:
    """Bytes that are no text come from the system as lone surrogates, which nothing that is stored can hold."""
    for word in words:
        if not is_unicode(word):
            raise Problem("usage", f"{word!a} is not valid Unicode", exit_code=WRONG_USAGE)


def _report(words: Sequence[str], problem: Problem) -> int:
    Output(_wants_json(words)).problem(problem)
    return problem.exit_code


def _report_usage(words: Sequence[str], error: click.UsageError) -> int:
    if _wants_json(words):
        return _report(words, Problem("usage", error.format_message(), exit_code=WRONG_USAGE))
    error.show()
    return WRONG_USAGE


def _wants_json(words: Sequence[str]) -> bool:
    """Read here once more, because a command line that click refuses leaves no settings."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options
