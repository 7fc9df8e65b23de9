"""`gc`: removing what need not be kept."""

from __future__ import annotations

import re
from typing import Final

import click

from ....core.retention import Retention
from ....services.revisions import Collected
from .options import Settings, open_existing, run_blocking, shared, value_of
from .problem import WRONG_USAGE, Problem

__all__ = ["gc"]

SPAN: Final = re.compile(r"(\d+)(s|m|h|d|w)")
UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def _read_span(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A span of time in milliseconds: a whole number and its unit."""
    if value is None:
        return None
    found = SPAN.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no span of time: write a number and s, m, h, d or w, like 30d")
    return int(found[1]) * UNITS_MS[found[2]]


@click.command()
@click.option("--keep-revisions", type=click.IntRange(min=1), metavar="N", help="Keep the newest N of each store.")
@click.option(
    "--keep", callback=_read_span, metavar="SPAN", help="Keep revisions in force within this time, like 30d or 12h."
)
@click.option("--keep-runs", callback=_read_span, metavar="SPAN", help="Forget runs that ended longer ago, like 7d.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; tell how much it would be.")
@shared()
@click.pass_obj
def gc(settings: Settings, keep_revisions: int | None, keep: int | None, keep_runs: int | None, dry_run: bool) -> None:
    """Remove old revisions of stores, and runs that have ended.

    What is in force stays, what a receipt or a step of a run names stays, and so does what was in force within the last
    minute. With both --keep-revisions and --keep, a revision stays if either keeps it. It works in small parts and may
    be interrupted; workers may go on meanwhile.
    """
    policy = Retention(keep_revisions=keep_revisions, keep_age_ms=keep, keep_ended_runs_ms=keep_runs)
    if policy == Retention():
        text = "nothing says what may go: give --keep-revisions, --keep or --keep-runs"
        raise Problem("usage", text, exit_code=WRONG_USAGE)
    done = run_blocking(_collect(settings, policy, dry_run))
    if settings.as_json:
        settings.output.json(
            {"runs": done.runs, "revisions": done.revisions, "size_bytes": done.size_bytes, "dry_run": dry_run}
        )
        return
    verb = "would remove" if dry_run else "removed"
    settings.output.text(f"{verb} {done.runs} runs and {done.revisions} revisions of {done.size_bytes} bytes")


async def _collect(settings: Settings, policy: Retention, dry_run: bool) -> Collected:
    async with open_existing(settings) as app:
        return value_of(await app.revisions.collect(policy, dry_run=dry_run))
