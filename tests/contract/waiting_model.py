"""Waiters and signals as naively as they can be said: every commit is remembered, and every question looks through all.

A waiter is owed a wake if and only if a commit after what it saw met what it read, or its instance went. Of a queue the
last look of any member counts, and one is owed at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stepwell.core.model import Paths, Revision, StepId, StoreKey
from stepwell.core.paths import EACH, SHAPE

__all__ = ["Commitment", "ModelSignal", "ModelWaiter", "WaitingModel", "meet"]


def meet(reads: Paths, writes: Paths) -> bool:
    """Whether one leads to the other, segment by segment; written out here, so that it shares nothing with the core."""
    return any(
        all(read == written or (read is EACH and written is not SHAPE) for read, written in zip(r, w, strict=False))
        for r in reads
        for w in writes
    )


@dataclass(frozen=True)
class Commitment:
    """What a commit changed. The deletion of an instance is one that changes nothing and ends it."""

    key: StoreKey
    revision: Revision
    changed: Paths


@dataclass
class ModelWaiter:
    key: StoreKey
    step: StepId
    queue: str | None
    seen: Revision
    paths: Paths
    generation: int
    due: int | None = None
    """Its turn among all that came to be due."""
    passed: bool = False


@dataclass
class ModelSignal:
    run_id: str
    name: str
    value: bytes
    dedupe: str | None
    read: bool = False


@dataclass
class WaitingModel:
    """`waiters` in the order of their first registration; a generation here only tells registrations apart."""

    tips: dict[StoreKey, Revision] = field(default_factory=dict[StoreKey, Revision])
    commits: list[Commitment] = field(default_factory=list[Commitment])
    waiters: list[ModelWaiter] = field(default_factory=list[ModelWaiter])
    signals: list[ModelSignal] = field(default_factory=list[ModelSignal])
    registrations: int = 0
    dues: int = 0

    # --- questions ----------------------------------------------------------

    def waiter(self, key: StoreKey, step: StepId) -> ModelWaiter | None:
        return next((each for each in self.waiters if (each.key, each.step) == (key, step)), None)

    def due(self) -> list[ModelWaiter]:
        return sorted((each for each in self.waiters if each.due is not None), key=lambda each: each.due or 0)

    def together(self, waiter: ModelWaiter) -> list[ModelWaiter]:
        """The waiter, or all of its queue, in order."""
        if waiter.queue is None:
            return [waiter]
        line = (waiter.key, waiter.queue, waiter.seen.instance_id)
        return [each for each in self.waiters if (each.key, each.queue, each.seen.instance_id) == line]

    def is_gone(self, waiter: ModelWaiter) -> bool:
        tip = self.tips.get(waiter.key)
        return tip is None or tip.instance_id != waiter.seen.instance_id

    def is_met(self, waiter: ModelWaiter) -> bool:
        """By a commit after what it saw."""
        return any(
            each.key == waiter.key
            and each.revision.instance_id == waiter.seen.instance_id
            and each.revision.version > waiter.seen.version
            and meet(waiter.paths, each.changed)
            for each in self.commits
        )

    # --- what happens -------------------------------------------------------

    def create(self, key: StoreKey, revision: Revision) -> None:
        self.tips[key] = revision

    def patch(self, key: StoreKey, revision: Revision, changed: Paths) -> None:
        self.tips[key] = revision
        self.commits.append(Commitment(key, revision, changed))
        self._settle()

    def delete(self, key: StoreKey) -> None:
        del self.tips[key]
        self._settle()

    def register(self, key: StoreKey, step: StepId, queue: str | None, seen: Revision, paths: Paths) -> bool:
        """Whether it is due at once."""
        self.registrations += 1
        old = self.waiter(key, step)
        if old is not None and (old.queue, old.seen.instance_id) != (queue, seen.instance_id):
            self.remove(key, step, None)
            old = None
        new = old or ModelWaiter(key, step, queue, seen, paths, 0)
        new.generation, new.due, new.passed = self.registrations, None, False
        if old is None:
            self.waiters.append(new)
        if not self.is_gone(new):
            line = self.together(new)
            last = max((each for each in line if each is not new), key=lambda each: each.seen.version, default=old)
            if last is None or queue is None or last.seen.version < seen.version:
                last = ModelWaiter(key, step, queue, seen, paths, 0)
            for each in line:
                each.seen, each.paths = last.seen, last.paths
        elif queue is None or len(self.together(new)) == 1:
            new.seen, new.paths = (seen, paths) if queue is None or old is None else (new.seen, new.paths)
        else:
            others = [each for each in self.together(new) if each is not new]
            new.seen, new.paths = others[0].seen, others[0].paths
        self._settle()
        return new.due is not None

    def remove(self, key: StoreKey, step: StepId, generation: int | None) -> None:
        waiter = self.waiter(key, step)
        if waiter is None or generation not in (None, waiter.generation):
            return
        line = self.together(waiter)
        line.remove(waiter)
        self.waiters = [each for each in self.waiters if each is not waiter]
        if waiter.due is not None and not waiter.passed and not any(map(_holds, line)):
            self._give([each for each in line if each.due is None][:1])

    def pass_turn(self, key: StoreKey, step: StepId, generation: int) -> None:
        waiter = self.waiter(key, step)
        if waiter is None or waiter.generation != generation or waiter.due is None or waiter.passed:
            return
        line = self.together(waiter)
        waiter.passed = True
        if not any(map(_holds, line)):
            self._give([each for each in line if each.due is None][:1])

    def send(self, signal: ModelSignal) -> None:
        use = (signal.run_id, signal.name, signal.dedupe)
        if signal.dedupe is None or all((each.run_id, each.name, each.dedupe) != use for each in self.signals):
            self.signals.append(signal)

    def _settle(self) -> None:
        """Whoever is owed a wake is due: all whose instance is gone, the first to wait in each line that was met."""
        owed: list[ModelWaiter] = []
        for waiter in self.waiters:
            line = self.together(waiter)
            first = next((each for each in line if each.due is None), None)
            if self.is_gone(waiter) or (waiter is first and self.is_met(waiter) and not any(map(_holds, line))):
                owed.append(waiter)
        self._give([each for each in owed if each.due is None])

    def _give(self, waiters: list[ModelWaiter]) -> None:
        for waiter in waiters:
            self.dues += 1
            waiter.due = self.dues


def _holds(waiter: ModelWaiter) -> bool:
    """Whether it has the turn."""
    return waiter.due is not None and not waiter.passed
