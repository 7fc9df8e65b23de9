"""The proof that no finished step ran twice: what was executed is held against what was recorded.

A step is finished when the ledger holds its completion. At a checkpoint, while no worker lives, the director notes the
finished steps and the length of the log of executions; whatever of them is logged after that ran twice. A step that was
in flight at the kill has no completion, and may be executed again: that is what "at least once" says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias, final

StepName: TypeAlias = tuple[str, str]
"""A run's id and a step's key."""


class Execution(NamedTuple):
    """One line of the log: a step function came to its end, in the process `pid`."""

    run_id: str
    key: str
    attempt: int
    pid: int

    @property
    def step(self) -> StepName:
        return self.run_id, self.key


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The steps that were finished when the log had `logged` lines."""

    logged: int
    finished: frozenset[StepName]


@dataclass(frozen=True, slots=True)
class Proof:
    """What the log shows. `twice` must be empty; `again` is what was in flight at a kill and executed once more."""

    executed: int
    again: tuple[StepName, ...]
    twice: tuple[StepName, ...]
    unlogged: tuple[StepName, ...]
    """Steps that the ledger calls finished and the log does not know; must be empty, or the log proves nothing."""


def read_log(path: Path) -> list[Execution]:
    """The executions in the order in which they were logged."""
    if not path.exists():
        return []
    fields = (line.rsplit(" ", 3) for line in path.read_text(encoding="utf-8").splitlines())
    return [Execution(run_id, key, int(attempt), int(pid)) for run_id, key, attempt, pid in fields]


@final
class Evidence:
    """The log at `path`, which knows the steps whose keys are in `logged`, and the checkpoints of one demo."""

    def __init__(self, path: Path, logged: frozenset[str]) -> None:
        self.path = path
        self._logged = logged
        self._checkpoints: list[Checkpoint] = []

    def size_bytes(self) -> int:
        """How long the log is now."""
        return self.path.stat().st_size if self.path.exists() else 0

    def note(self, finished: frozenset[StepName]) -> None:
        """Make a checkpoint of what is finished now; no worker may live."""
        self._checkpoints.append(Checkpoint(len(read_log(self.path)), self.of_log(finished)))

    def of_log(self, steps: frozenset[StepName]) -> frozenset[StepName]:
        """Those of the steps that the log knows."""
        return frozenset(step for step in steps if step[1] in self._logged)

    def prove(self, finished: frozenset[StepName]) -> Proof:
        """Hold the log against the checkpoints and against what is finished now."""
        return prove(read_log(self.path), self._checkpoints, self.of_log(finished))


def prove(log: list[Execution], checkpoints: list[Checkpoint], finished: frozenset[StepName]) -> Proof:
    """An execution is judged in two ways; only lines after the first checkpoint are.

    It must not belong to a step that was finished at an earlier checkpoint, and no process may execute a step that it
    has executed before, since nothing has interrupted it. Each step that is finished at the end must be in the log.
    """
    since = log[checkpoints[0].logged :] if checkpoints else log
    late = {e.step for c in checkpoints for e in log[c.logged :] if e.step in c.finished}
    by_process = Counter((e.step, e.pid) for e in since)
    twice = late | {step for (step, _), times in by_process.items() if times > 1}
    by_step = Counter(e.step for e in since)
    return Proof(
        executed=len(since),
        again=tuple(sorted(step for step, times in by_step.items() if times > 1 and step not in twice)),
        twice=tuple(sorted(twice)),
        unlogged=tuple(sorted(finished - {e.step for e in log})),
    )
