"""The writing connection: one transaction for a group of batches, begun without waiting and ended for certain.

Whatever goes wrong, nothing is left open: `begin` either opens a transaction or has changed nothing, and `write` ends
it, by a commit or by rolling back. A connection that cannot even roll back is closed and opened anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, final

from ...core.batch import Committed
from ...core.model import Conflict, Revision, StoreKey, Unavailable
from ...core.outcome import Failure, Success
from ...core.run import ENDED
from ...services.ledger import News, Verdict
from .connection import Connection, DatabaseError, is_busy, leaves_no_trace, reason_of
from .group import Judged, Rows, decide
from .held import Asked, Held, HeldRun, HeldStore
from .opening import CHECKPOINT_PAGES
from .retention import KEEP_NUMBERS, write_removals, write_spent
from .rows import optional_integer, read_receipt, to_integer, to_text
from .statements import (
    HELD_FORM,
    HELD_RECEIPT,
    HELD_RUN,
    HELD_STORE_TO_WRITE,
    HELD_WAITER,
    INSERT_BASE,
    INSERT_FORM,
    INSERT_LOG,
    INSERT_RECEIPT,
    INSERT_STORE,
    LAST_NUMBERS,
    UPDATE_STORE,
    UPSERT_BASE,
    UPSERT_STEP,
)
from .waiting import WaitingRows

__all__ = ["Answer", "CommitPoint", "OnPoint", "Writer"]

Answer: TypeAlias = Verdict | BaseException
"""What a batch met: its verdict, or the bug that writing it brought to light, to be raised in its caller only."""


class CommitPoint(Enum):
    """Where a commit stands. A process that ends at any of them has written a group whole, or nothing of it."""

    BEFORE_BEGIN = "before begin"
    AFTER_BEGIN = "after begin"
    AFTER_JUDGEMENT = "after judgement"
    AFTER_STORES = "after the rows of stores"
    AFTER_LOG = "after the rows of the log"
    AFTER_BASES = "after the bases"
    AFTER_RECEIPTS = "after the receipts"
    AFTER_RUNS = "after the rows of runs"
    AFTER_STEPS = "after the rows of steps"
    AFTER_WAITERS = "after the rows of waiters"
    AFTER_SIGNALS = "after the rows of signals"
    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit, before the answer"


OnPoint: TypeAlias = Callable[[CommitPoint], None]
"""Called in passing, on the thread that commits. What it raises is treated as an error of the database there."""

COURTESY: Final = 5
"""After how many commits of its own a writer still gives way to others, since it last saw a sign of them."""


@final
class Writer:
    """Owns the writing connection. Not safe for threads: one of them uses it, whichever that is.

    It is fair to other processes. While there are signs of them, `gives_way` asks for a pause after each commit: one
    that commits in quick succession would leave them no moment to take the lock. And a writer that got the lock only to
    find its batches planned on what others have changed since keeps it for their next try, if `keeps_turn` allows that;
    then `has_turn`. Otherwise whoever waits for the lock would always be the one who comes too late.

    `is_alone` until it sees signs of others; it has `met_others` whenever they have committed since it did. `commit_s`
    is how long the last commit took by the clock `now_s`, in seconds, without what led to it. Where the log is to be
    moved to the file, which takes far longer, a commit does that too if it `may_checkpoint`; otherwise one is
    `checkpoint_due` from then on.
    """

    def __init__(self, connect: Callable[[], Connection], on_point: OnPoint | None = None) -> None:
        self._connect = connect
        self._connection: Connection | None = self._open()
        self._reached = on_point or _pass_by
        self._closed = False
        self._left_version: int | None = None
        self._held: Held | None = None
        self._courtesy = 0
        self.keeps_turn = False
        self.has_turn = False
        self.gives_way = False
        self.may_checkpoint = True
        self.checkpoint_due = False
        self.commit_s = 0.0
        self.now_s: Callable[[], float] = _no_time
        self.met_others = False
        self.news: News | None = None
        """What the last group has brought, None for nothing; of one that may have been committed, what it would."""

    def begin(self) -> bool:
        """Open a transaction, unless another connection writes just now; then False. Other errors are raised."""
        if self._closed:
            raise ConnectionError("the ledger is closed")
        self._reached(CommitPoint.BEFORE_BEGIN)
        if self.has_turn:
            self.has_turn = False
            return True
        if self._connection is None:
            self._connection = self._open()
        self._connection.check_file()
        try:
            self._connection.run("begin immediate")
        except DatabaseError as error:
            if is_busy(error):
                self._courtesy = COURTESY
                return False
            raise
        self._look_for_others(self._connection)
        return True

    def write(self, group: Sequence[Judged], at_ms: int) -> list[Answer]:
        """Judge and write in the open transaction, and end it. An error before the commit undoes all and is raised."""
        assert self._connection is not None
        connection = self._connection
        self.news = None
        try:
            self._reached(CommitPoint.AFTER_BEGIN)
            held = self._held = _read_held(connection, group, self._held)
            verdicts, rows = decide(group, held, at_ms)
            self._reached(CommitPoint.AFTER_JUDGEMENT)
            _write_rows(connection, held, rows, self._reached)
            woke = _write_waiting(connection, held, rows, verdicts, self._reached)
            self._reached(CommitPoint.BEFORE_COMMIT)
        except BaseException:
            self._held = None
            self._roll_back()
            raise
        self.gives_way = bool(rows) and self._courtesy > 0
        if not rows:  # all were refused or wrote nothing: there is nothing to sync
            if self.keeps_turn and self._courtesy and any(map(_is_conflict, verdicts)):
                self.has_turn = True
            else:
                self._roll_back()
            return [*verdicts]
        self._courtesy = max(0, self._courtesy - 1)
        committed = False
        began_s = self.now_s()
        try:
            connection.run("commit")
            committed = True
            self.commit_s = self.now_s() - began_s
            self._left_version = connection.data_version
            held.committed()
            self._reached(CommitPoint.AFTER_COMMIT)
        except Exception as error:
            self._held = None
            undone = not committed and self._roll_back() and leaves_no_trace(error)
            reason = f"the commit failed: {reason_of(error)}"
            if not undone:
                self.news = "wake" if woke else "commit"
            return [Failure(Unavailable(reason, "no" if undone else "unknown")) for _ in group]
        self.news = "wake" if woke else "commit"
        self._checkpoint(connection)
        return [*verdicts]

    def give_up_turn(self) -> None:
        """Nobody came back: let others write."""
        if self.has_turn:
            self.has_turn = False
            self._roll_back()

    def close(self) -> None:
        """Let go of the file, for good."""
        self._closed = True
        self._drop()

    def others(self) -> int | None:
        """A number that changes when others commit, and not when this writer does; None if it cannot be asked now."""
        if self._connection is None or self._connection.in_transaction:
            return None
        (version,) = self._connection.rows("pragma data_version")[0]
        return to_integer(version)

    @property
    def is_alone(self) -> bool:
        return self._courtesy == 0

    @contextmanager
    def on_loop(self) -> Generator[None]:
        """A writer that a thread uses too commits on the event loop, where it may keep nothing for later."""
        keeps_turn, self.keeps_turn, self.may_checkpoint = self.keeps_turn, False, False
        try:
            yield
        finally:
            self.keeps_turn, self.may_checkpoint = keeps_turn, True

    def _open(self) -> Connection:
        def committed(pages: int) -> None:
            self.checkpoint_due = pages >= CHECKPOINT_PAGES

        connection = self._connect()
        connection.on_commit(committed)
        return connection

    def _checkpoint(self, connection: Connection) -> None:
        if self.checkpoint_due and self.may_checkpoint:
            self.checkpoint_due = False
            with suppress(DatabaseError):  # all is durable in the log; the next commit tries again
                connection.checkpoint()

    def _look_for_others(self, connection: Connection) -> None:
        """Forget what was held, and take turns from now on, if the file is not as this connection left it."""
        if connection.data_version != self._left_version:
            self._held = None
            if self._left_version is not None:
                self._courtesy = COURTESY
                self.met_others = True
        self._left_version = connection.data_version

    def _drop(self) -> None:
        self._held = self._left_version = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _roll_back(self) -> bool:
        """End the transaction without its changes, and say whether that is certain."""
        assert self._connection is not None
        try:
            if self._connection.in_transaction:  # some errors have rolled back already
                self._connection.run("rollback")
            self._left_version = self._connection.data_version
        except DatabaseError:
            self._drop()  # what it had not committed, it has not written; the next group opens anew
            return False
        return True


def _is_conflict(verdict: Verdict) -> bool:
    return isinstance(verdict, Failure) and isinstance(verdict.failure(), Conflict)


def _no_time() -> float:
    return 0.0


def _pass_by(_: CommitPoint) -> None:
    pass


# --- the statements of a group ----------------------------------------------


def _read_held(connection: Connection, group: Sequence[Judged], held: Held | None) -> Held:
    """What is stored of all that the group asks for, read inside its transaction.

    `held` is what the group before it left, if nobody else has written since: that need not be read again.
    """
    asked = Asked.of(batch for batch, _ in group)
    if held is None:
        (numbers,) = connection.rows(LAST_NUMBERS)
        held = Held(*map(to_integer, numbers))
    for key in asked.stores:
        _read_store(connection, key, held)
    for name, form in asked.forms:
        if (name, form) not in held.forms and (row := connection.row(HELD_FORM, name, form.version, form.fingerprint)):
            held.forms[name, form] = to_integer(row[0])
    for key, step in asked.receipts:
        store = _read_store(connection, key, held)
        if store and (row := connection.row(HELD_RECEIPT, step.run_id, step.key, store.sid)):
            held.receipts[key, step] = read_receipt(key, step, row)
    for run_id in asked.runs:
        if run_id not in held.runs and (row := connection.row(HELD_RUN, run_id)):
            held.runs[run_id] = HeldRun(to_integer(row[0]), to_integer(row[1]), row[2] in ENDED)
    for key, step in asked.waiters:
        if row := connection.row(HELD_WAITER, key.name, key.id, step.run_id, step.key):
            held.generations[key, step] = to_integer(row[0])
    return held


def _read_store(connection: Connection, key: StoreKey, held: Held) -> HeldStore | None:
    store = held.stores.get(key)
    if store is None and (row := connection.row(HELD_STORE_TO_WRITE, key.name, key.id)):
        sid, instance, version, seq, fno, waited = row
        tip = None if instance is None else Revision(to_text(instance), to_integer(version))
        store = HeldStore(to_integer(sid), tip, optional_integer(seq), optional_integer(fno), waited=bool(waited))
        held.stores[key] = store
    return store


def _write_rows(connection: Connection, held: Held, rows: Rows, reached: OnPoint) -> None:
    """Write table by table, and say so after each kind of row."""
    if rows.spent:
        write_spent(connection, rows)
    if held.new_forms:
        forms = [(held.forms[name, form], name, form.version, form.fingerprint) for name, form in held.new_forms]
        connection.run_many(INSERT_FORM, forms)
    if rows.touched:
        new, stored = rows.stores()
        connection.run_many(INSERT_STORE, new)
        connection.run_many(UPDATE_STORE, stored)
        reached(CommitPoint.AFTER_STORES)
    if rows.log:
        connection.run_many(INSERT_LOG, rows.log)
        reached(CommitPoint.AFTER_LOG)
    if rows.bases or rows.later_bases:
        connection.run_many(INSERT_BASE, rows.bases)
        connection.run_many(UPSERT_BASE, rows.later_bases)
        reached(CommitPoint.AFTER_BASES)
    if rows.receipts:
        connection.run_many(INSERT_RECEIPT, rows.receipts)
        reached(CommitPoint.AFTER_RECEIPTS)
    if rows.removals:
        write_removals(connection, rows)
    if rows.removals or rows.spent:
        connection.run(KEEP_NUMBERS, held.last_seq, held.last_no)
    if rows.runs:
        for sql, changes in groupby(rows.runs, key=itemgetter(0)):  # in their order
            connection.run_many(sql, [values for _, values in changes])
        reached(CommitPoint.AFTER_RUNS)
    if rows.steps:
        connection.run_many(UPSERT_STEP, rows.steps)
        reached(CommitPoint.AFTER_STEPS)


def _write_waiting(connection: Connection, held: Held, rows: Rows, verdicts: list[Verdict], reached: OnPoint) -> bool:
    """Write waiters and signals, put what was registered into the verdicts, and say whether a wake came to be owed."""
    if not rows.waits and not rows.signals:
        return False
    waiting = WaitingRows(connection, held, rows)
    if rows.waits:
        waiting.write_waiters()
        reached(CommitPoint.AFTER_WAITERS)
    if rows.signals:
        waiting.write_signals()
        reached(CommitPoint.AFTER_SIGNALS)
    waiting.write_sequence()
    for number, registered in waiting.registered.items():
        verdict = verdicts[number].unwrap()
        assert isinstance(verdict, Committed)  # nothing of the others was written
        verdicts[number] = Success(Committed(verdict.revision, verdict.seqs, tuple(registered)))
    return waiting.woke
