"""The play: runs are started, the worker is killed in the middle of the work, another one finishes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from .children import Child, Children
from .progress import Progress
from .proof import Evidence, StepName
from .screen import Screen

TICK = 0.05
"""Seconds between two looks at the ledger."""

LULL, GLANCE = 0.5, 0.002
"""How many seconds is waited for the worker to execute something before it is killed; the seconds between two looks."""

PATIENCE = 120.0
"""Seconds after which the director gives up."""

OPEN_RUNS = 12
"""How many runs are under way at a time, so that at the kill there are some of every kind."""

KILL_FROM, EARLIEST, LATEST = 0.38, 0.30, 0.70
"""Shares of the work: where the kill is ordered, and between which two it must land."""

FIRST = 0.6
"""The share of the runs that is started before the kill, so that the work cannot run past `LATEST` meanwhile."""

FEW = 4
"""With fewer runs none can be held back; the reviewer then comes only after the kill, which has the same effect."""


class DemoFailed(Exception):
    """The demo cannot go on: why."""


class Piece(Protocol):
    """What is played. Its runs do about two thirds of their work before they need the reviewer."""

    async def start_run(self, run_id: str) -> None: ...

    def start_worker(self) -> Child: ...

    def start_reviewer(self) -> None: ...

    async def show(self, before: frozenset[StepName], workers: str) -> None:
        """Draw this moment; `before` is what was finished at the kill, `workers` tells of the processes that drive."""
        ...


class Play:
    """One performance of a piece. After it, `kills` counts the workers that were killed.

    `before` are the steps that were finished at the kill.
    """

    def __init__(
        self, piece: Piece, progress: Progress, evidence: Evidence, screen: Screen, children: Children
    ) -> None:
        self._piece = piece
        self._progress = progress
        self._evidence = evidence
        self._screen = screen
        self._children = children
        self.before: frozenset[StepName] = frozenset()
        self._workers = ""
        self._told = 0
        self._reviewer_is_there = False
        self.kills = 0

    async def perform(self, *, kill: bool = True) -> list[str]:
        """Let all runs that have not ended come to their end; what was wrong with the kill, nothing if it landed.

        Runs that an interrupted demo has left open come first, and do not count: how far they are is not in our hands.
        Where there are no others, nobody is killed.
        """
        self._evidence.note(self._progress.finished())
        worker = self._start_worker()
        begun = frozenset(run.run_id for run in self._progress.runs if run.open)
        if begun:
            self._screen.say(f"an earlier demo was interrupted; its {len(begun)} open runs go on first")
            self._call_reviewer()
            await self._finish(begun)
        fresh = [run.run_id for run in self._progress.runs if run.state is None]
        if not fresh:
            return []
        return await self._perform_with_kill(worker, fresh, kill)

    async def _perform_with_kill(self, worker: Child, fresh: list[str], kill: bool) -> list[str]:
        work = frozenset(fresh)
        few = len(fresh) < FEW
        if not few:
            self._call_reviewer()
        first = work if few else frozenset(fresh[: int(len(fresh) * FIRST)])
        await self._watch(first, lambda: self._progress.share(work) >= KILL_FROM)
        problems = ["the worker was not killed in the middle of the work"]
        if kill:
            problems = await self._kill(worker, work)
            self._start_worker()
        self._call_reviewer()
        await self._finish(work)
        return problems

    async def _kill(self, worker: Child, work: frozenset[str]) -> list[str]:
        """Kill the worker, and note what is finished while nobody drives."""
        await self._until_a_step_is_executed()
        killed = self._children.kill(worker)
        self.kills += killed
        await self._progress.refresh()
        self.before = self._progress.finished()
        self._evidence.note(self.before)
        share = self._progress.share(work)
        self._screen.say(
            f"killed the worker, process {worker.pid}, with SIGKILL: {share:.0%} of the steps are recorded, "
            f"{self._progress.ended(work)} of {len(work)} runs ended",
            "bold red",
        )
        if not killed:
            return [f"the kill did not land: the worker {worker.pid} had ended by itself before"]
        if not EARLIEST <= share <= LATEST:
            return [f"the kill did not land in the middle of the work: {share:.0%} of the steps were recorded by then"]
        return []

    async def _until_a_step_is_executed(self) -> None:
        """Until a line is logged, so that the worker is hit at its work; at most `LULL` seconds, if it only waits."""
        before = self._evidence.size_bytes()
        for _ in range(round(LULL / GLANCE)):
            if self._evidence.size_bytes() != before:
                return
            await asyncio.sleep(GLANCE)

    async def _finish(self, runs: frozenset[str]) -> None:
        await self._watch(runs, lambda: self._progress.ended(runs) == len(runs))

    async def _watch(self, runs: frozenset[str], reached: Callable[[], bool]) -> None:
        """Start these runs, a few at a time, and look on until the point is reached."""
        while True:
            await self._progress.refresh()
            self._tell()
            await self._piece.show(self.before, self._workers)
            if reached():
                return
            if how := self._children.ended():
                raise DemoFailed(how)
            if self._screen.elapsed() > PATIENCE:
                raise DemoFailed(self._overdue())
            await self._start_more(runs)
            await asyncio.sleep(TICK)

    async def _start_more(self, runs: frozenset[str]) -> None:
        room = OPEN_RUNS - sum(run.open for run in self._progress.runs)
        to_come = [run.run_id for run in self._progress.of(runs) if run.state is None]
        for run_id in to_come[: max(room, 0)]:
            await self._piece.start_run(run_id)

    def _start_worker(self) -> Child:
        worker = self._piece.start_worker()
        self._screen.say(f"started {'another' if self.kills else 'the'} worker, process {worker.pid}")
        self._workers = f"worker {worker.pid}{f' ({self._workers} was killed)' if self.kills else ''}"
        return worker

    def _call_reviewer(self) -> None:
        if not self._reviewer_is_there:
            self._reviewer_is_there = True
            self._piece.start_reviewer()

    def _tell(self) -> None:
        runs = frozenset(run.run_id for run in self._progress.runs)
        share = self._progress.share(runs)
        if int(share * 10) > self._told:
            self._told = int(share * 10)
            self._screen.say(f"{share:.0%} of the steps, {self._progress.ended(runs)} of {len(runs)} runs", "dim")

    def _overdue(self) -> str:
        late = [run for run in self._progress.runs if not run.ended]
        lines = [f"  {run.run_id}: {run.state or 'not started'} {run.note or ''}" for run in late]
        return "\n".join([f"these runs have not ended after {PATIENCE:.0f} seconds:", *lines])
