"""`gc`: removing what need not be kept."""

from __future__ import annotations

from typing import Final

import click

from ....core.retention import Retention
from ....services.revisions import Collected
from .numbers import span_ms, whole_number
from .options import Settings, open_existing, run_blocking, shared, value_of
from .output import instant
from .problem import WRONG_USAGE, Problem

__all__ = ["gc"]

KEEP_RUNS: Final = (
    "Forget runs that ended longer ago, like 7d. Their ids are free then: starting such an id again runs it again."
)


@click.command()
@click.option("--keep-revisions", type=whole_number(1), metavar="N", help="Keep the newest N of each store.")
@click.option("--keep", type=span_ms, metavar="SPAN", help="Keep revisions in force within this time, like 30d or 12h.")
@click.option("--keep-runs", type=span_ms, metavar="SPAN", help=KEEP_RUNS)
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
    if not done.runs and not done.revisions:
        settings.output.note(_when(done))


def _when(done: Collected) -> str:
    """What a policy that let nothing go waits for."""
    runs, revisions = instant(done.next_run_ms, "seconds"), instant(done.next_revision_ms, "seconds")
    first = [f"the first {what} at {at}" for what, at in (("run", runs), ("revision", revisions)) if at is not None]
    if not first:
        return "nothing that it does not keep is there, whatever its age"
    return f"what is there is too young, and would go later: {', '.join(first)}"


async def _collect(settings: Settings, policy: Retention, dry_run: bool) -> Collected:
    async with open_existing(settings) as app:
        return value_of(await app.revisions.collect(policy, dry_run=dry_run))
