"""Taking every run of a ledger from its owner, for good: no fence that anybody has, or will get elsewhere, is its own.

The database that was backed up may live on, and its owners raise fences there by one for each claim. So a fence is not
raised by one here, but beyond all that they can come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...core.backup import BackupCode, BackupError, Fencing
from ...core.batch import Batch, ChangeRun, RunFence
from ...core.damage import Damaged
from ...core.journal_writes import Append
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.run import WANTS_OWNER, RunColumns, RunRow, RunState, next_state
from ...core.run_events import run_entries
from ...services.clock import Clock
from ...services.journal_rows import JournalRows
from ...services.ledger import CannotOpen, Ledger
from ..sql.sqlite import open_sqlite
from .refused import why_not_opened

__all__ = ["fence", "fence_file"]

RUNS_AT_ONCE: Final = 1_000

LEAP: Final = 1 << 20
"""How far a fence is raised at least: more owners than a run has between a backup and its restore."""

_OPEN: Final[tuple[RunState, ...]] = ("pending", "running", "waiting", "stuck", "failed")
"""The states in which a run may be taken up, be it that somebody resumes it."""


async def fence(ledger: Ledger, clock: Clock) -> Outcome[Fencing, Unavailable]:
    """Take every run from its owner, who can write nothing there from then on; runs that executed wait for another."""
    claims = suspended = 0
    done: set[int] = set()
    """By number: a run that was set aside is met again among those that wait."""
    for state in _OPEN:
        after: int | None = None
        while True:
            read = await ledger.runs(state=state, limit=RUNS_AT_ONCE, after=after)
            if isinstance(read, Failure):
                return read
            rows = read.unwrap()
            if not rows:
                break
            after = rows[-1].no
            left = [row for row in rows if row.no not in done]
            fenced = await _fence_rows(ledger, left, clock.now_ms())
            if isinstance(fenced, Failure):
                return fenced
            for row in fenced.unwrap():
                done.add(row.no)
                suspended += row.state == "running"
                claims += row.state != "running" and row.owner is not None
    return Success(Fencing(claims, suspended))


async def _fence_rows(ledger: Ledger, rows: Sequence[RunRow], now_ms: int) -> Outcome[list[RunRow], Unavailable]:
    """Those of the rows that were fenced: another has a new owner, or has ended, since it was read."""
    tells = isinstance(ledger, JournalRows)
    verdicts = await ledger.commit_all([_fence_row(row, now_ms, tells) for row in rows])
    fenced: list[RunRow] = []
    for row, verdict in zip(rows, verdicts, strict=True):
        if isinstance(verdict, Success):
            fenced.append(row)
        elif isinstance(failure := verdict.failure(), Unavailable):
            return Failure(failure)
    return Success(fenced)


def _fence_row(row: RunRow, now_ms: int, tells: bool) -> Batch:
    """The batch that fences a run, and what its journal is told of that."""
    columns: RunColumns = {"fence": max(row.fence + LEAP, now_ms)}
    if row.owner is not None or row.state == "running":
        state = row.state if row.state == "pending" else next_state(row.state, "release")
        columns |= {"state": state, "owner": None, "lease_until_ms": 0, "wake_at_ms": None, "updated_at_ms": now_ms}
    if row.state == "running":
        columns |= {"waiting_on": WANTS_OWNER}
    batch = Batch((RunFence(row.id, row.fence),), (ChangeRun(row.id, columns),))
    entries = run_entries(batch) if tells and "owner" in columns else ()
    return batch + Batch((), (Append(row.id, entries),)) if entries else batch


async def fence_file(path: Path, clock: Clock) -> Outcome[Fencing, BackupError]:
    """Bring a database that nobody else has open up to date, and fence it; it is whole without a log afterwards."""
    try:
        ledger = await open_sqlite(path, clock, create=False)
    except CannotOpen as error:
        return Failure(why_not_opened(error))
    try:
        fenced = await fence(ledger, clock)
        settled = await ledger.settle()
    finally:
        await ledger.close()
    for answer in (fenced, settled):
        if isinstance(answer, Failure):
            failure = answer.failure()
            code: BackupCode = "database_damaged" if isinstance(failure, Damaged) else "io"
            return Failure(BackupError(code, f"the runs of the backup could not be fenced: {failure.reason}"))
    return Success(fenced.unwrap())
