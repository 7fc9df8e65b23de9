"""`signal`: send a run a value under a name."""

from __future__ import annotations

from typing import Final

import click

from ....core.model import TooLarge
from ....core.outcome import Failure
from ....core.signal import UNREAD_SIGNALS
from ....services.engine import RunStatus
from .options import Settings, open_existing, run_blocking, shared, value_of
from .problem import WRONG_USAGE, Problem
from .recorded import status_json
from .words import parse_json

__all__ = ["signal"]


@click.command()
@click.argument("run_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("word", metavar="VALUE")
@click.option("--dedupe", metavar="KEY", help="Drop it if a signal of this name with the same KEY was sent before.")
@shared()
@click.pass_obj
def signal(settings: Settings, run_id: str, name: str, word: str, dedupe: str | None) -> None:
    """Send a run a signal, which it reads when it asks for NAME; it is kept until then.

    VALUE is a JSON value; a word that is none is text, and text that reads like JSON stands in quotes of its own, as in
    '"4711"'. What looks like an option goes after `--`.
    """
    status = run_blocking(_send(settings, run_id, name, _value(word), dedupe))
    if settings.as_json:
        settings.output.json(status_json(status))
    else:
        settings.output.text(f"signal {name} was sent to run {run_id}, which is {status.state}")


def _value(word: str) -> object:
    try:
        return parse_json(word)
    except ValueError:
        return word


_FULL: Final = "that is the limit, and nothing was sent"


def _is_full(failure: object) -> bool:
    """Whether there are too many signals, rather than too many bytes of one."""
    return isinstance(failure, TooLarge) and failure.limit_bytes == UNREAD_SIGNALS


async def _send(settings: Settings, run_id: str, name: str, value: object, dedupe: str | None) -> RunStatus:
    async with open_existing(settings) as app:
        try:
            sent = await app.signal(run_id, name, value, dedupe=dedupe)
        except (TypeError, ValueError) as error:  # the name, the key, or numbers that JSON cannot hold
            raise Problem("invalid_argument", str(error), exit_code=WRONG_USAGE) from None
        if isinstance(sent, Failure) and _is_full(sent.failure()):
            raise Problem("too_many_signals", f"run {run_id!r} has {UNREAD_SIGNALS} unread signals; {_FULL}")
        value_of(sent)
        return value_of(await app.status(run_id))
