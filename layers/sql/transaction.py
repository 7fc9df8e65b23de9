"""One group's way through the writer: waiting for the lock, committing, and falling back to one by one.

It says how long to pause and does not pause itself, so that a thread can sleep and an event loop can do other things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from ...core.batch import Committed
from ...core.damage import damaged_rows
from ...core.judgement import stores_of
from ...core.model import Unavailable
from ...core.outcome import Failure, Success
from ...services.ledger import News
from .connection import DatabaseError, is_host_error, reason_of
from .group import Judged
from .journal_rows import DamagedRow
from .pauses import COURTESY_S
from .writer import Answer, Writer

__all__ = ["LOCKED", "Transaction"]

LOCKED: Final = (
    "the database is locked by another process, which did not give it up in time; "
    "find out which one holds it (a shell in a transaction, a backup), or try again"
)


@final
class Transaction:
    """The commit of one group: `run` it to its end, then each of its batches has an answer, in order."""

    def __init__(self, writer: Writer, group: Sequence[Judged], at_ms: int, pauses: Iterator[float]) -> None:
        self._writer = writer
        self._group = group
        self._at_ms = at_ms
        self._pauses = pauses
        self.answers: list[Answer] = []
        self.news: News | None = None
        """What was committed; None if nothing was."""

    def run(self) -> Iterator[float]:
        """Yields how many seconds to pause, whenever another connection holds the lock or is to be given way.

        A lock that is held is waited for until the pauses end.
        An error that one batch may have brought about undoes the group, and its batches are committed one by one, so
        that only that one fails.
        """
        try:
            yield from self._commit(self._group)
        except BaseException:
            missing = len(self._group) - len(self.answers)
            self.answers += [Failure(Unavailable("the commit was cut short", "unknown"))] * missing
            raise

    def _commit(self, group: Sequence[Judged]) -> Iterator[float]:
        if self._writer.gives_way:
            yield COURTESY_S
        try:
            while not self._writer.begin():
                pause = next(self._pauses, None)
                if pause is None:
                    self._fail(group, LOCKED)
                    return
                yield pause
        except Exception as error:
            self._fail(group, f"no transaction could be begun: {reason_of(error)}")
            return
        try:
            self.answers += self._writer.write(group, self._at_ms)
            if self.news != "wake":
                self.news = self._writer.news or self.news
            return
        except Exception as error:
            failed = error
        if is_host_error(failed):
            self._fail(group, f"nothing could be written: {reason_of(failed)}")
        elif len(group) > 1:
            yield from self._commit_apart(group)
        elif isinstance(failed, DatabaseError | UnicodeDecodeError):  # or stored text that is none
            self._fail(group, f"the batch could not be written: {reason_of(failed)}")
        elif isinstance(failed, DamagedRow):
            self.answers.append(Failure(damaged_rows(str(failed))))
        else:
            self.answers.append(failed)

    def _commit_apart(self, group: Sequence[Judged]) -> Iterator[float]:
        for *_, refused in group:
            refused.clear()  # what was judged before has been undone
        for judged in group:
            yield from self._commit([judged])
            batch, _, refused = judged
            answer = self.answers[-1]
            if not (isinstance(answer, Success) and isinstance(answer.unwrap(), Committed)):
                refused.update(expected.key for expected in stores_of(batch))

    def _fail(self, group: Sequence[Judged], reason: str) -> None:
        self.answers += [Failure(Unavailable(reason, "no")) for _ in group]
