"""Waiters and signals in dictionaries: who waits for what, who is owed a wake, and what a run has not read yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar, final

from ...core.batch import Commit
from ...core.model import Path, Paths, Revision, StepId, StoreKey
from ...core.signal import SignalRow
from ...core.waiter import CHECKED_COMMITS, Registered, Waiter, WaiterRow, Wake, join, lives, may_have_met
from ...core.waiter_index import WaiterIndex

__all__ = ["CommitsAfter", "Waiting"]

_T = TypeVar("_T")

CommitsAfter: TypeAlias = Callable[[Revision], Sequence[Commit] | None]
"""The commits of a store after one of its revisions, in order; None if that is not known any more."""


@dataclass(slots=True, eq=False)
class _Line:
    """Those that wait together: the members of a queue of one instance, by their places, or one waiter alone."""

    seen: Revision
    paths: Paths
    members: dict[int, _Member] = field(default_factory=dict[int, "_Member"])

    def is_held(self) -> bool:
        """Whether one has the turn."""
        return any(member.due_no is not None and not member.passed for member in self.members.values())

    def has_passed(self) -> bool:
        return any(member.passed for member in self.members.values())

    def first_waiting(self) -> _Member | None:
        return next((member for member in self.members.values() if member.due_no is None), None)


@dataclass(slots=True, eq=False)
class _Member:
    """A waiter with its place, which is the generation of its first registration."""

    waiter: Waiter
    place: int
    line: _Line
    registered_at_ms: int
    due_no: int | None = None
    passed: bool = False

    def as_held(self) -> Waiter:
        return replace(self.waiter, seen=self.line.seen, read_paths=self.line.paths)


@final
class Waiting:
    """Waiters, the wakes that are owed to them, and signals; all numbered by one counter, from 1."""

    def __init__(self) -> None:
        self._last_no = 0
        self._members: dict[StoreKey, dict[StepId, _Member]] = {}  # by store, in the order of their places
        self._queues: dict[tuple[StoreKey, str, str], _Line] = {}
        self._indices: dict[StoreKey, WaiterIndex[_Line]] = {}
        self._due: dict[int, _Member] = {}
        self._unread: dict[int, SignalRow] = {}
        self._deduped: set[tuple[str, str, str]] = set()
        self.last_owed = 0
        """The number of the last wake that came to be owed."""

    # --- waiters ------------------------------------------------------------

    def generation(self, key: StoreKey, step: StepId) -> int | None:
        member = self._member(key, step)
        return None if member is None else member.waiter.generation

    def register(self, waiter: Waiter, tip: Revision | None, commits_after: CommitsAfter, at_ms: int) -> Registered:
        """Register the waiter on a store whose tip is `tip`, by the rules of `core/waiter.py`."""
        waiter = replace(waiter, generation=self._next_no())
        member = self._member(waiter.key, waiter.step)
        if member is not None and not _is_same_line(member.waiter, waiter):
            self.remove(waiter.key, waiter.step)
            member = None
        was_due, last_look = False, None
        if member is None:
            member = self._enter(waiter, at_ms)
            if len(member.line.members) > 1:
                last_look = member.line.seen.version
        else:
            was_due = member.due_no is not None
            self._settle(member)
            member.waiter, member.registered_at_ms = waiter, at_ms
            if waiter.queue is not None:
                last_look = member.line.seen.version
        line = member.line
        was_met = was_due or line.has_passed()
        joining = join(waiter.seen, tip, last_look, was_met=was_met, is_held=line.is_held())
        if joining.takes:
            self._forget(waiter.key, line)
            line.seen, line.paths = waiter.seen, waiter.read_paths
            if lives(waiter.seen, tip):
                self._remember(waiter.key, line)
        if joining.due:
            self._make_due(member)
        elif joining.checks and tip is not None and self._is_stale(line, tip, commits_after):
            self._make_first_due(line)
        return Registered(waiter, due=member.due_no is not None)

    def remove(self, key: StoreKey, step: StepId, generation: int | None = None) -> None:
        member = self._member(key, step)
        if member is None or generation not in (None, member.waiter.generation):
            return
        had_turn = member.due_no is not None and not member.passed
        self._settle(member)
        line = member.line
        del self._members[key][step]
        del line.members[member.place]
        if not line.members:
            self._forget(key, line)
            if member.waiter.queue is not None:
                del self._queues[key, member.waiter.seen.instance_id, member.waiter.queue]
        elif had_turn and not line.is_held():
            self._make_first_due(line)

    def pass_turn(self, key: StoreKey, step: StepId, generation: int) -> None:
        member = self._member(key, step)
        if member is None or member.waiter.generation != generation or member.due_no is None or member.passed:
            return
        member.passed = True
        if not member.line.is_held():
            self._make_first_due(member.line)

    def meet(self, key: StoreKey, changed: Callable[[], Iterable[Path]]) -> None:
        """A commit changed these paths of the store, which are asked for if somebody waits there."""
        index = self._indices.get(key)
        if not index:
            return
        met = [line.first_waiting() for line in index.match(changed()) if not line.is_held()]
        for member in sorted((member for member in met if member is not None), key=lambda member: member.place):
            self._make_due(member)

    def end(self, key: StoreKey) -> None:
        """The instance is gone: all who wait on the store are due."""
        self._indices.pop(key, None)
        for member in self._members.get(key, {}).values():
            if member.due_no is None:
                self._make_due(member)

    def erase(self, key: StoreKey, is_kept: Callable[[str], bool]) -> None:
        """What was read of instances that are not kept is no longer known."""
        for member in self._members.get(key, {}).values():
            if not is_kept(member.line.seen.instance_id):
                member.line.paths = ((),)

    # --- signals ------------------------------------------------------------

    def send(self, row: SignalRow) -> None:
        if row.dedupe is not None:
            use = (row.run_id, row.name, row.dedupe)
            if use in self._deduped:
                return
            self._deduped.add(use)
        self.last_owed = no = self._next_no()
        self._unread[no] = replace(row, no=no)

    def read(self, run_id: str, no: int) -> None:
        row = self._unread.get(no)
        if row is not None and row.run_id == run_id:
            del self._unread[no]

    def forget_signals(self, run_id: str, most: int | None) -> None:
        """Drop so many unread signals of a run, or all, and then also what was sent to it."""
        for no in [no for no, row in self._unread.items() if row.run_id == run_id][:most]:
            del self._unread[no]
        if most is None:
            self._deduped = {use for use in self._deduped if use[0] != run_id}

    # --- questions ----------------------------------------------------------

    def waiters(self, key: StoreKey | None, run_id: str | None) -> tuple[WaiterRow, ...]:
        stores = self._members.values() if key is None else [self._members.get(key, {})]
        found = [member for members in stores for step, member in members.items() if run_id in (None, step.run_id)]
        found.sort(key=lambda member: member.place)
        return tuple(WaiterRow(member.as_held(), member.due_no, member.registered_at_ms) for member in found)

    def wakes(self, after: int, is_open: Callable[[str], bool]) -> tuple[Wake, ...]:
        due = [Wake(no, member.waiter.step.run_id, member.as_held()) for no, member in _later(self._due, after)]
        signals = [Wake(no, row.run_id, None) for no, row in _later(self._unread, after) if is_open(row.run_id)]
        return tuple(sorted(due + signals, key=lambda wake: wake.no))

    def signals(self, run_id: str, name: str | None) -> tuple[SignalRow, ...]:
        return tuple(row for row in self._unread.values() if row.run_id == run_id and name in (None, row.name))

    # --- what changes -------------------------------------------------------

    def _next_no(self) -> int:
        self._last_no += 1
        return self._last_no

    def _member(self, key: StoreKey, step: StepId) -> _Member | None:
        return self._members.get(key, {}).get(step)

    def _enter(self, waiter: Waiter, at_ms: int) -> _Member:
        """A new member of its line, which is made if there is none."""
        line = _Line(waiter.seen, waiter.read_paths)
        if waiter.queue is not None:
            line = self._queues.setdefault((waiter.key, waiter.seen.instance_id, waiter.queue), line)
        member = _Member(waiter, waiter.generation, line, at_ms)
        line.members[member.place] = member
        self._members.setdefault(waiter.key, {})[waiter.step] = member
        return member

    def _remember(self, key: StoreKey, line: _Line) -> None:
        index = self._indices.setdefault(key, WaiterIndex())
        for path in line.paths:
            index.add(path, line)

    def _forget(self, key: StoreKey, line: _Line) -> None:
        index = self._indices.get(key)
        if index is None:
            return
        for path in line.paths:
            index.remove(path, line)
        if not index:
            del self._indices[key]

    def _is_stale(self, line: _Line, tip: Revision, commits_after: CommitsAfter) -> bool:
        behind = tip.version - line.seen.version
        if not 0 < behind <= CHECKED_COMMITS:
            return behind > 0
        commits = commits_after(line.seen)
        return commits is None or may_have_met([commit.patch for commit in commits], line.paths)

    def _make_first_due(self, line: _Line) -> None:
        first = line.first_waiting()
        if first is not None:
            self._make_due(first)

    def _make_due(self, member: _Member) -> None:
        self.last_owed = member.due_no = no = self._next_no()
        self._due[no] = member

    def _settle(self, member: _Member) -> None:
        """No wake is owed to it any more."""
        if member.due_no is not None:
            del self._due[member.due_no]
            member.due_no, member.passed = None, False


def _is_same_line(one: Waiter, other: Waiter) -> bool:
    return (one.queue, one.seen.instance_id) == (other.queue, other.seen.instance_id)


def _later(numbered: dict[int, _T], after: int) -> list[tuple[int, _T]]:
    """Those numbered after `after`, found from the end: numbers only grow."""
    found: list[tuple[int, _T]] = []
    for no in reversed(numbered):
        if no <= after:
            break
        found.append((no, numbered[no]))
    return found[::-1]
