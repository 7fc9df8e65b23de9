"""The reviewer: another process, a client of the same database, that decides about what the runs have recorded.

    python -m review.reviewer DATABASE BOARD

It takes one entry after the other, and waits while there is none; with several reviewers each entry is decided by one.
It drives no runs. It ends when it is terminated, and by itself after `PATIENCE` seconds without anything to decide.
"""

from __future__ import annotations

import asyncio
import sys

import stepwell
from stepwell import Failure, StoreHandle, Success, TimedOut, Unmatched

from .board import BOARD, Board, Entry, Verdict

READING = 0.06
"""Seconds that the reviewer spends on an entry."""

PATIENCE = 60.0

LONGEST_LINE = 120
FORGIVEN = 2
"""How many misspellings are a remark; more of them are a reason to ask for changes."""


def judge(entry: Entry) -> Verdict:
    """The rules. A broken link, or more misspellings than are forgiven, is a reason to ask for changes."""
    reasons = [f"line {link.line}: {link.target} leads nowhere" for link in entry.links.broken]
    spelling = [f"line {found.line}: {found.word}, meant was {found.meant}" for found in entry.misspellings]
    if len(spelling) > FORGIVEN:
        reasons += spelling
    if reasons:
        return Verdict(decision="changes requested", remarks=reasons, by="the reviewer")
    remarks = spelling
    if entry.measures.longest > LONGEST_LINE:
        remarks.append(f"line {entry.measures.longest_at} has {entry.measures.longest} characters")
    if entry.measures.trailing:
        remarks.append(f"{entry.measures.trailing} lines end in white space")
    return Verdict(decision="approved", remarks=remarks, by="the reviewer")


def undecided(board: Board) -> Entry | None:
    """The first entry without a verdict."""
    return next((entry for entry in board.entries.values() if entry.verdict is None), None)


def decide(_: Board, entry: Entry) -> None:
    """Give the verdict on an entry, in the commit that finds it: nobody else can have it."""
    entry.verdict = judge(entry)


async def work(board: StoreHandle[Board]) -> None:
    """Decide about one entry after the other, until none has come for `PATIENCE` seconds."""
    while True:
        taken = await board.take(undecided, decide)
        if isinstance(taken, Success):
            await asyncio.sleep(READING)
            continue
        if not isinstance(taken.failure(), Unmatched):
            raise SystemExit(f"the reviewer cannot write to the board: {taken.failure()}")
        found = await board.when(undecided, timeout=PATIENCE)
        if isinstance(found, Failure):
            if isinstance(found.failure(), TimedOut):
                return
            raise SystemExit(f"the reviewer cannot read the board: {found.failure()}")


async def main(database: str, name: str) -> None:
    async with stepwell.open(database, drive=False) as app:
        board = app.store(BOARD, name)
        opened = await board.get_or_create(Board)  # the reviewer may be here before all runs
        if isinstance(opened, Failure):
            raise SystemExit(f"the reviewer cannot open the board: {opened.failure()}")
        await work(board)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
