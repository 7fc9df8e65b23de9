"""The proof that no write woke a run that had not read what was written: looks are held against commits.

A waiting run looks when it begins to wait, in each process that drives it, and when it is woken. A look that finds
nothing, after an earlier one of the same process that found nothing, was a wake for nothing; there must be none. What
might have caused such wakes are the commits of others to the same store between the one from which the run waits and
the one that it found; they are counted for runs whose worker was there all that time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from stepwell import Failure, Ledger
from stepwell.core.store_outcome import read_outcome

from .progress import LedgerUnavailable


class Look(NamedTuple):
    """One line of the log: the selector of a run's wait ran, in the process `pid`, and found something or not."""

    run_id: str
    pid: int
    found: bool


@dataclass(frozen=True, slots=True)
class Waited:
    """What became of the waits of some runs. `idle` and `unseen` must be empty."""

    runs: int
    passed: int
    """How many commits of others came while a run waited, added up over the runs."""
    looks: int
    found: int
    idle: tuple[str, ...]
    """The runs that were woken for nothing, once for each time."""
    unseen: tuple[str, ...]
    """Runs that have found what they waited for, by the ledger, of which the log knows no such look."""


@final
class Looks:
    """The log at `path`, from where it ends now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = len(read_looks(path))

    def judge(self, passed: Mapping[str, int], interrupted: Collection[str]) -> Waited:
        """Hold the log against the runs that have found what they waited for, and how many commits each let pass.

        What passed while a run was `interrupted` could wake nobody, and does not count.
        """
        return judge(read_looks(self._path), self._before, passed, interrupted)


def read_looks(path: Path) -> list[Look]:
    """The looks in the order in which they were logged."""
    if not path.exists():
        return []
    fields = (line.rsplit(" ", 2) for line in path.read_text(encoding="utf-8").splitlines())
    return [Look(run_id, int(pid), found == "1") for run_id, pid, found in fields]


def judge(log: Sequence[Look], before: int, passed: Mapping[str, int], interrupted: Collection[str]) -> Waited:
    """As `Looks.judge` says. The first `before` looks are of earlier demos, and only show that a run has found it."""
    idle: list[str] = []
    missed = set[tuple[str, int]]()
    for look in log[before:]:
        if not look.found:
            if (look.run_id, look.pid) in missed:
                idle.append(look.run_id)
            missed.add((look.run_id, look.pid))
    seen = {look.run_id for look in log if look.found}
    return Waited(
        runs=len(passed),
        passed=sum(count for run_id, count in passed.items() if run_id not in interrupted),
        looks=len(log) - before,
        found=sum(look.found for look in log[before:]),
        idle=tuple(sorted(idle)),
        unseen=tuple(sorted(passed.keys() - seen)),
    )


async def passed_by(ledger: Ledger, run_ids: Collection[str], began: str, ended: str) -> dict[str, int]:
    """How many commits of others lie between what the step `began` wrote and what the wait `ended` found, by run.

    One of the commits in between is what was waited for. Runs that have not found anything are left out.
    """
    passed: dict[str, int] = {}
    for run_id in run_ids:
        rows = await ledger.steps(run_id)
        if isinstance(rows, Failure):
            raise LedgerUnavailable(rows.failure().reason)
        versions = dict[str, int]()
        for row in rows.unwrap():
            if row.key in (began, ended) and row.status == "done" and row.value is not None:
                outcome = read_outcome(row.value)
                revision = None if isinstance(outcome, Failure) else outcome.unwrap().revision
                if revision is not None:
                    versions[row.key] = revision.version
        if len(versions) == 2:
            passed[run_id] = versions[ended] - versions[began] - 1
    return passed
