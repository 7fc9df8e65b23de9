"""What becomes of waiters and signals, found out inside the transaction of a group once its other rows are written.

The rules are those of `core/waiter.py`. A commit on a store where somebody waits costs one search for what it changed,
however many wait for something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, assert_never, final

from ...core import paths as core_paths
from ...core.batch import DeleteStore, PassTurn, PatchStore, ReadSignal, RegisterWaiter, RemoveWaiter, SendSignal
from ...core.model import Paths, StepId
from ...core.waiter import CHECKED_COMMITS, Registered, Waiter, join, lives, may_have_met, touched_by
from ...core.waiter_index import WaiterIndex
from . import statements as sql
from .connection import Connection
from .group import Rows, SignalWrite, Wait
from .held import Held, HeldStore
from .path_rows import Range, path_rows, ranges_met
from .rows import optional_integer, optional_text, to_blob, to_integer, to_text
from .schema import PATCHED

__all__ = ["WaitingRows"]

MANY_RANGES: Final = 4096
"""From how many ranges on it may be cheaper to read what all wait for than to search each."""


@final
class WaitingRows:
    """Writes the waiters and signals of one group. `woke`: a wake came to be owed."""

    def __init__(self, connection: Connection, held: Held, rows: Rows) -> None:
        self._connection = connection
        self._held = held
        self._rows = rows
        self.registered: dict[int, list[Registered]] = {}
        """By the number of the batch in the group, in the order of its writes."""
        self.woke = False

    def write_waiters(self) -> None:
        for wait in self._rows.waits:
            match wait.write:
                case PatchStore():
                    self._meet(wait.store, wait.write)
                case DeleteStore():
                    self._end(wait.store)
                case RegisterWaiter(waiter):
                    registered = self._register(wait, replace(waiter, generation=wait.generation))
                    self.registered.setdefault(wait.batch, []).append(registered)
                case RemoveWaiter():
                    self._remove_at(wait.store, wait.write)
                case PassTurn():
                    self._pass_turn(wait.store, wait.write)
                case _:
                    assert_never(wait.write)

    def write_signals(self) -> None:
        for write, run_no in self._rows.signals:
            self._write_signal(write, run_no)

    def write_sequence(self) -> None:
        """To be called last, with whatever numbers were given."""
        if self._held.sequence != self._held.stored_sequence:
            self._connection.run(sql.UPDATE_SEQUENCE, self._held.sequence)

    # --- a store has changed ------------------------------------------------

    def _meet(self, store: HeldStore, write: PatchStore) -> None:
        if store.masks is None:
            store.masks = {to_integer(mask) for (mask,) in self._connection.rows(sql.MASKS, store.sid, store.sid)}
        if not store.masks:
            return
        changed = touched_by(write.patch) if write.changed is None else write.changed
        ranges = ranges_met(changed, store.masks)
        places = self._all_met(store, changed, len(ranges)) if len(ranges) > MANY_RANGES else None
        self._make_due(self._met(store, ranges) if places is None else places)

    def _met(self, store: HeldStore, ranges: Iterable[Range]) -> set[int]:
        """The places of those who are due because a path of theirs is in one of these ranges."""
        rows = self._connection.rows_of_many(sql.MET, [(store.sid, *found) for found in ranges])
        return {to_integer(place) for (place,) in rows if place is not None}

    def _all_met(self, store: HeldStore, changed: Paths, most: int) -> set[int] | None:
        """The same by reading what everybody waits for; None if these are too many."""
        lines = self._connection.rows(sql.LINES_WITH_PATHS, store.sid, most + 1)
        if len(lines) > most:
            return None
        index: WaiterIndex[int] = WaiterIndex()
        for lno, paths in lines:
            for path in core_paths.decode(to_blob(paths)):
                index.add(path, to_integer(lno))
        idle = [lno for lno in index.match(changed) if not self._is_held(lno)]
        rows = [self._connection.row(sql.FIRST_WAITING, lno) for lno in idle]
        return {to_integer(row[0]) for row in rows if row is not None}

    def _end(self, store: HeldStore) -> None:
        """The instance is gone, and with it what was read of it: all who wait are due."""
        self._make_due(to_integer(place) for (place,) in self._connection.rows(sql.ALL_WAITING, store.sid))
        self._connection.run(sql.DELETE_PATHS, store.sid)
        store.masks = set()

    # --- waiters ------------------------------------------------------------

    def _register(self, wait: Wait, waiter: Waiter) -> Registered:
        store, seen, queue = wait.store, waiter.seen, waiter.queue
        member = self._member(store, waiter.step)
        if member is not None and (member.instance, member.queue) != (seen.instance_id, queue):
            self._remove(store, member)
            member = None
        was_due = member is not None and member.due_no is not None
        if member is None:
            member = self._enter(store, waiter)
        else:
            self._connection.run(sql.REGISTER_AGAIN, waiter.generation, self._rows.at_ms, member.place)
        lno = member.lno
        look = self._look(lno)
        is_held = queue is not None and self._is_held(lno)
        was_met = was_due or (queue is not None and self._connection.row(sql.ANY_PASSED, lno) is not None)
        joining = join(
            seen,
            wait.tip,
            None if queue is None or look is None else look.version,
            was_met=was_met,
            is_held=is_held,
        )
        if joining.takes:
            look = self._take_look(store, lno, look, waiter, indexed=lives(seen, wait.tip))
        if joining.due:
            self._make_due([member.place])
            return Registered(waiter, due=True)
        first = None
        if joining.checks and look is not None and self._is_stale(wait, look):
            first = self._make_first_due(lno)
        return Registered(waiter, due=first == member.place)

    def _enter(self, store: HeldStore, waiter: Waiter) -> _Member:
        """A new member of its line, whose number is its own where there is no line yet."""
        place, step, instance = waiter.generation, waiter.step, waiter.seen.instance_id
        lno = place
        if waiter.queue is not None:
            found = self._connection.row(sql.QUEUE, store.sid, instance, waiter.queue)
            lno = place if found is None else to_integer(found[0])
        at_ms = self._rows.at_ms
        self._connection.run(sql.INSERT_WAITER, place, place, step.run_id, step.key, store.sid, lno, at_ms)
        return _Member(place, place, None, False, lno, instance, waiter.queue)

    def _take_look(self, store: HeldStore, lno: int, last: _Look | None, waiter: Waiter, *, indexed: bool) -> _Look:
        """Let those in the line wait by the waiter's look; the line is made if it had none."""
        seen, queue, connection = waiter.seen, waiter.queue, self._connection
        look = _Look(seen.version, core_paths.encode(waiter.read_paths))
        if last is None:
            store.waited = True
            connection.run(sql.INSERT_LINE, lno, store.sid, seen.instance_id, queue, look.version, look.paths)
        else:
            connection.run(sql.LOOK_AGAIN, look.version, look.paths, lno)
            if last.paths == look.paths:  # those of an instance that lives are there as long as the line is
                return look
            self._forget(store, lno, last)
        if indexed:
            rows = path_rows(waiter.read_paths)
            connection.run_many(sql.INSERT_PATH, [(store.sid, mask, path, lno) for mask, path in rows])
            if store.masks is not None:
                store.masks.update(mask for mask, _ in rows)
        return look

    def _is_stale(self, wait: Wait, look: _Look) -> bool:
        """Whether a commit after the look may have changed what it read; also if that cannot be known any more."""
        behind = 0 if wait.tip is None else wait.tip.version - look.version
        if behind <= 0:
            return False
        if behind > CHECKED_COMMITS:
            return True
        rows = self._connection.rows(sql.TAIL_CHAIN, wait.last_seq, look.version + 1)
        if len(rows) != behind or any(kind != PATCHED for _, kind, _, _ in rows) or rows[-1][0] != look.version + 1:
            return True
        return may_have_met([to_blob(patch) for _, _, patch, _ in rows], core_paths.decode(look.paths))

    def _remove(self, store: HeldStore, member: _Member) -> None:
        connection, lno = self._connection, member.lno
        connection.run(sql.DELETE_WAITER, member.place)
        if member.queue is not None and connection.row(sql.ANY_MEMBER, lno) is not None:
            if member.due_no is not None and not member.passed and not self._is_held(lno):
                self._make_first_due(lno)
            return
        look = self._look(lno)
        if look is not None:
            self._forget(store, lno, look)
        connection.run(sql.DELETE_LINE, lno)
        if connection.row(sql.ANY_LINE, store.sid) is None:
            store.waited, store.masks = False, set()

    def _remove_at(self, store: HeldStore, write: RemoveWaiter) -> None:
        member = self._member(store, write.step)
        if member is not None and write.generation in (None, member.generation):
            self._remove(store, member)

    def _pass_turn(self, store: HeldStore, write: PassTurn) -> None:
        member = self._member(store, write.step)
        if member is None or member.generation != write.generation or member.due_no is None or member.passed:
            return
        self._connection.run(sql.PASS, member.place)
        if not self._is_held(member.lno):
            self._make_first_due(member.lno)

    def _make_due(self, places: Iterable[int]) -> None:
        """In the order of their places."""
        rows = [(self._held.next_number(), place) for place in sorted(places)]
        if rows:
            self.woke = True
            self._connection.run_many(sql.MAKE_DUE, rows)

    def _make_first_due(self, lno: int) -> int | None:
        """The place of the first in the line who is not due, and is now; None if all are."""
        row = self._connection.row(sql.FIRST_WAITING, lno)
        if row is None:
            return None
        place = to_integer(row[0])
        self._make_due([place])
        return place

    # --- what is stored -----------------------------------------------------

    def _member(self, store: HeldStore, step: StepId) -> _Member | None:
        row = self._connection.row(sql.WAITER, step.run_id, step.key, store.sid)
        if row is None:
            return None
        place, generation, due_no, passed, lno, instance, queue = row
        return _Member(
            to_integer(place),
            to_integer(generation),
            optional_integer(due_no),
            bool(passed),
            to_integer(lno),
            to_text(instance),
            optional_text(queue),
        )

    def _look(self, lno: int) -> _Look | None:
        row = self._connection.row(sql.LINE, lno)
        return None if row is None else _Look(to_integer(row[0]), to_blob(row[1]))

    def _is_held(self, lno: int) -> bool:
        """Whether anybody in the line has the turn."""
        return self._connection.row(sql.HOLDER, lno) is not None

    def _forget(self, store: HeldStore, lno: int, look: _Look) -> None:
        """The line waits for these paths no longer."""
        rows = path_rows(core_paths.decode(look.paths))
        self._connection.run_many(sql.DELETE_PATH, [(store.sid, mask, path, lno) for mask, path in rows])

    # --- signals ------------------------------------------------------------

    def _write_signal(self, write: SignalWrite, run_no: int) -> None:
        connection = self._connection
        match write:
            case SendSignal(row):
                if row.dedupe is not None and connection.row(sql.SIGNAL_USED, run_no, row.name, row.dedupe):
                    return
                self.woke = True
                connection.run(sql.INSERT_SIGNAL, self._held.next_number(), run_no, row.name, row.value, row.dedupe)
            case ReadSignal():
                connection.run(sql.READ_SIGNAL, write.key, write.no, run_no)


@dataclass(frozen=True, slots=True)
class _Member:
    """A waiter as it is stored: in which line, and in which place there."""

    place: int
    generation: int
    due_no: int | None
    passed: bool
    lno: int
    instance: str
    queue: str | None


@dataclass(frozen=True, slots=True)
class _Look:
    """The look that counts for a line: at which version, and the encoded paths that it read."""

    version: int
    paths: bytes
