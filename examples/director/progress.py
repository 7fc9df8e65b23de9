"""How far the runs are, read from the ledger through the public API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell import Failure, Ledger

from .proof import StepName

ENDED = ("completed", "failed", "cancelled")


class LedgerUnavailable(Exception):
    """The ledger cannot be read: why."""


@dataclass(slots=True)
class RunProgress:
    """One run: the state of its row (None before it is started), what it waits for, and its finished stages."""

    run_id: str
    state: str | None = None
    note: str | None = None
    steps: int = 0
    done: frozenset[str] = frozenset()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def open(self) -> bool:
        """Started, and not ended."""
        return self.state is not None and not self.ended


class Progress:
    """The runs of a demo. `refresh` reads those that have not ended, and no others."""

    def __init__(self, ledger: Ledger, run_ids: Sequence[str], stages: Sequence[str]) -> None:
        self._ledger = ledger
        self._stages = frozenset(stages)
        self.runs = [RunProgress(run_id) for run_id in run_ids]

    async def refresh(self) -> None:
        """Read anew what may have changed."""
        for run in self.runs:
            if not run.ended:
                await self._read(run)

    async def _read(self, run: RunProgress) -> None:
        row = await self._ledger.run(run.run_id)
        if isinstance(row, Failure):
            raise LedgerUnavailable(row.failure().reason)
        found = row.unwrap()
        if found is None:
            return
        rows = await self._ledger.steps(run.run_id)  # after the row: a run that has ended gets no more steps
        if isinstance(rows, Failure):
            raise LedgerUnavailable(rows.failure().reason)
        done = [step.key for step in rows.unwrap() if step.status == "done"]
        run.state, run.note, run.steps = found.state, found.problem or found.waiting_on, len(done)
        run.done = self._stages.intersection(done)

    def finished(self) -> frozenset[StepName]:
        """The stages that are recorded as completed."""
        return frozenset((run.run_id, key) for run in self.runs for key in run.done)

    def share(self, run_ids: frozenset[str]) -> float:
        """How much of these runs is done, from 0 to 1, by their finished stages."""
        done = sum(len(run.done) for run in self.of(run_ids))
        return done / (len(self._stages) * len(run_ids))

    def of(self, run_ids: frozenset[str]) -> list[RunProgress]:
        """These runs, in their order."""
        return [run for run in self.runs if run.run_id in run_ids]

    def ended(self, run_ids: frozenset[str]) -> int:
        """How many of these runs have ended."""
        return sum(run.ended for run in self.of(run_ids))
