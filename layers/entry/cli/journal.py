"""`journal`: what happened in a run, in order, and whether the record of it is whole."""

from __future__ import annotations

import json
from typing import Final

import click

from ....core.journal import Compacted, Entry, Tampered, Verified
from ....core.outcome import Failure
from ....services.engine import RunNotFound
from ....services.journal import Journal, JournalError
from ...layer import get
from .numbers import whole_number
from .options import Settings, open_existing, run_blocking, shared, value_of
from .output import Output, instant, plain
from .problem import WRONG_USAGE, Problem, problem_of
from .words_first import WithOwn

__all__ = ["compacted", "journal", "verified_journals"]

SHOWN: Final = 1_000
LONGEST: Final = 400
"""Characters of a payload in a line for people; --json has it whole."""

RUN_ENDED: Final = frozenset({"stepwell.run-completed", "stepwell.run-failed", "stepwell.run-cancelled"})


@click.command("journal")
@click.argument("run_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is appended from now on, until the run ends.")
@click.option("--after", type=whole_number(0), metavar="SEQ", help="Only entries after this number.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only events of this type; may be repeated.")
@click.option(
    "--limit", type=whole_number(1), metavar="N", help=f"At most so many; {SHOWN} if left out, without --follow."
)
@shared()
@click.pass_obj
def journal_of(
    settings: Settings, run_id: str, follow: bool, after: int | None, types: tuple[str, ...], limit: int | None
) -> None:
    """Show the journal of a run: what happened in it, in order.

    An entry holds facts and digests, never results; `stepwell show` has these. With --json it is one object to a line.
    A journal that was compacted begins at its checkpoint.
    """
    if follow and limit is not None:
        raise Problem("usage", "--limit does not go with --follow, which has no end", exit_code=WRONG_USAGE)
    if follow:
        run_blocking(_follow(settings, run_id, after, types))
        return
    entries, more = run_blocking(_read(settings, run_id, after, types, limit or SHOWN))
    for entry in entries:
        _print(settings.output, entry)
    if more:
        settings.output.note(f"there are more: --after {entries[-1].seq}")


async def _read(
    settings: Settings, run_id: str, after: int | None, types: tuple[str, ...], limit: int
) -> tuple[list[Entry], bool]:
    async with open_existing(settings) as app:
        journal = get(app.env, Journal)
        after = await _begin(journal, settings.output, run_id, after)
        entries: list[Entry] = []
        while True:
            read = await journal.entries(
                run_id, after=after, event_types=types or None, limit=min(512, limit - len(entries))
            )
            if isinstance(read, Failure):
                failure = read.failure()
                raise compacted(failure) if isinstance(failure, Compacted) else problem_of(failure)
            page = read.unwrap()
            entries += page.entries
            if not page.has_more or len(entries) == limit:
                break
            after = entries[-1].seq
        if not entries and run_id not in value_of(await journal.runs()):
            raise problem_of(RunNotFound(run_id))
        return entries, page.has_more


async def _follow(settings: Settings, run_id: str, after: int | None, types: tuple[str, ...]) -> None:
    async with open_existing(settings) as app:
        journal = get(app.env, Journal)
        after = await _begin(journal, settings.output, run_id, after)
        try:
            async for entry in journal.follow(run_id, after=after):
                if not types or entry.event_type in types:
                    _print(settings.output, entry)
                if entry.event_type in RUN_ENDED:
                    return
        except JournalError as error:
            failure = error.failure
            raise (compacted(failure) if isinstance(failure, Compacted) else problem_of(failure)) from None


async def _begin(journal: Journal, output: Output, run_id: str, after: int | None) -> int | None:
    """Where to begin: where nothing was asked for, at what is left of a journal that was compacted."""
    if after is not None:
        return after
    read = await journal.entries(run_id, limit=1)
    failure = read.failure() if isinstance(read, Failure) else None
    if not isinstance(failure, Compacted):
        return None
    output.note(f"the journal was compacted: it begins at its checkpoint, entry {failure.floor}")
    return failure.floor - 1


def compacted(failure: Compacted) -> Problem:
    text = f"the journal of {failure.run_id!r} was compacted: it begins at {failure.floor}; --after {failure.floor - 1}"
    return Problem("compacted", text, details={"id": failure.run_id, "floor": failure.floor})


def _print(output: Output, entry: Entry) -> None:
    if output.as_json:
        output.json(_entry_json(entry))
        return
    payload = json.dumps(entry.payload, ensure_ascii=False, separators=(",", ":"))
    if len(payload) > LONGEST:
        payload = f"{payload[: LONGEST - 1]}…"
    output.text(plain(f"{entry.seq:>6}  {instant(entry.at_ms)}  {entry.event_type}  {payload}"))


def _entry_json(entry: Entry) -> dict[str, object]:
    source = entry.source
    return {
        "run_id": entry.run_id,
        "seq": entry.seq,
        "at_ms": entry.at_ms,
        "event_type": entry.event_type,
        "payload": entry.payload,
        "source": None if source is None else {"id": source.id, "seq": source.seq},
        "meta": None if entry.meta is None else dict(entry.meta),
    }


# --- verify -----------------------------------------------------------------


@click.command("verify")
@click.argument("run_id", metavar="[ID]", required=False)
@shared()
@click.pass_obj
def verify(settings: Settings, run_id: str | None) -> None:
    """Check every hash of the journal of a run, or of all. Exit code 1: something is not as it was written."""
    verified = run_blocking(verified_journals(settings, run_id))
    if settings.as_json:
        settings.output.json({"runs": verified.runs, "entries": verified.entries})
    else:
        runs = "1 run" if verified.runs == 1 else f"{verified.runs} runs"
        settings.output.text(f"{verified.entries} entries of {runs} are as they were written")


async def verified_journals(settings: Settings, run_id: str | None = None) -> Verified:
    """How many entries are as they were written; a Problem names the first that is not."""
    async with open_existing(settings) as app:
        journal = get(app.env, Journal)
        verified = await journal.verify(run_id)
        if isinstance(verified, Failure):
            failure = verified.failure()
            raise _tampered(failure) if isinstance(failure, Tampered) else problem_of(failure)
        if run_id is not None and run_id not in value_of(await journal.runs()):
            raise problem_of(RunNotFound(run_id))
        return verified.unwrap()


def _tampered(failure: Tampered) -> Problem:
    text = f"something in {failure.place} is not as it was written: {failure.message}"
    details = {"id": failure.run_id, "seq": failure.seq, "reason": failure.message}
    return Problem("tampered", f"{text}; restore a backup from before", details=details)


journal = WithOwn(journal_of, verify)
