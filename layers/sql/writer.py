"""The writing connection: one transaction for a group of batches, begun without waiting and ended for certain.

Whatever goes wrong, nothing is left open: `begin` either opens a transaction or has changed nothing, and `write` ends
it, by a commit or by rolling back. A connection that cannot even roll back is closed and opened anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias, final

from ...core.model import Conflict, Unavailable
from ...core.outcome import Failure
from ...services.ledger import News, Verdict
from .connection import Connection, DatabaseError, is_busy, leaves_no_trace, reason_of
from .group import Judged, decide
from .group_rows import read_held, write_rows, write_waiting
from .held import Held
from .opening import CHECKPOINT_PAGES
from .points import CommitPoint, OnPoint
from .rows import to_integer

__all__ = ["Answer", "CommitPoint", "OnPoint", "Writer"]

Answer: TypeAlias = Verdict | BaseException
"""What a batch met: its verdict, or the bug that writing it brought to light, to be raised in its caller only."""

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
            held = self._held = read_held(connection, group, self._held)
            verdicts, rows = decide(group, held, at_ms)
            self._reached(CommitPoint.AFTER_JUDGEMENT)
            write_rows(connection, held, rows, self._reached)
            woke = write_waiting(connection, held, rows, verdicts, self._reached)
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
    def statements(self) -> int:
        """A number that changes with each statement that is begun. Any thread may read it."""
        connection = self._connection
        return 0 if connection is None else connection.statements

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
