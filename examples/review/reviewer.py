"""The reviewer: another process, a client of the same database, that decides about what the runs have recorded.

    python -m review.reviewer DATABASE BOARD

It drives no runs. It ends when it is terminated, and by itself after `PATIENCE` seconds without anything to decide.
"""

from __future__ import annotations

import asyncio
import sys

import stepwell
from stepwell import Failure, StoreHandle, StoreNotFound

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


async def decide(board: StoreHandle[Board]) -> bool:
    """Give the verdict for one entry that has none; whether there was one."""
    got = await board.get()
    if isinstance(got, Failure):
        if isinstance(got.failure(), StoreNotFound):  # nothing was recorded yet
            return False
        raise SystemExit(f"the reviewer cannot read the board: {got.failure()}")
    waiting = next(((path, entry) for path, entry in got.unwrap().state.entries.items() if not entry.verdict), None)
    if waiting is None:
        return False
    path, entry = waiting
    await asyncio.sleep(READING)
    verdict = judge(entry)

    def give(draft: Board) -> None:
        now = draft.entries.get(path)
        if now is not None and now.run_id == entry.run_id:  # otherwise the file was recorded again since
            now.verdict = verdict

    given = await board.update(give)
    if isinstance(given, Failure):
        raise SystemExit(f"the reviewer cannot write to the board: {given.failure()}")
    return True


async def main(database: str, name: str) -> None:
    async with stepwell.open(database, drive=False) as app:
        board = app.store(BOARD, name)
        idle = 0.0
        while idle < PATIENCE:
            if await decide(board):
                idle = 0.0
            else:
                await asyncio.sleep(READING)
                idle += READING


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
