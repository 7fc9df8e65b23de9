"""Group commit: the event loop collects, one writer commits, every caller is answered.

What is submitted in one turn of the loop is handed over together; while a group is being committed the next one
gathers. The writer runs on a thread of its own or inline, on the loop; one group is in flight at a time. "auto" takes
whichever is quicker for each group: the loop, as long as the disk is quick (`pace.py`), nobody else writes to the file,
and there is little to write; the thread otherwise, and where the log is to be moved to the file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final, Literal, TypeAlias, final

from ...core.batch import Batch, size_bytes
from ...core.model import StoreKey, Unavailable
from ...core.outcome import Failure
from ...services.ledger import News
from .group import Judged
from .limits import LIMITS, Limits
from .pace import Pace
from .pauses import Pauses
from .thread import WriterThread
from .transaction import Transaction
from .writer import Answer, Writer

__all__ = ["CommitMode", "Committer"]

CommitMode: TypeAlias = Literal["thread", "inline", "auto"]

LITTLE_BYTES: Final = 256 * 1024
"""How much "auto" writes on the loop at a time."""


class _Answers(asyncio.Future["list[Answer]"]):
    """What a caller awaits. Cancelling the caller takes effect when it is done, or after `cancel_wait_s`.

    A task whose awaited future refuses to be cancelled is resumed with `CancelledError` as soon as that future is done:
    its batch has a verdict by then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, cancel_wait_s: float) -> None:
        super().__init__(loop=loop)
        self._cancel_wait_s = cancel_wait_s
        self._impatience: asyncio.TimerHandle | None = None

    def cancel(self, msg: object = None) -> bool:
        if self._impatience is None and not self.done():
            self._impatience = self.get_loop().call_later(self._cancel_wait_s, super().cancel, msg)
        return False

    def give(self, answers: list[Answer]) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
        if not self.done():
            self.set_result(answers)


class _Closed(asyncio.Future[None]):
    """What those who close await. Cancelling one of them takes effect when all is closed, which it hastens."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hasten: Callable[[], None]) -> None:
        super().__init__(loop=loop)
        self._hasten = hasten

    def cancel(self, msg: object = None) -> bool:
        if not self.done():
            self._hasten()
        return False


@dataclass(slots=True, eq=False)
class _Call:
    """Batches that were submitted together, in order, and the future of their answers."""

    batches: tuple[Batch, ...]
    sizes: list[int]
    answers: _Answers


@final
class Committer:
    """Brings batches to the writer in groups. It belongs to the event loop that made it."""

    def __init__(self, writer: Writer, now_ms: Callable[[], int], mode: CommitMode, limits: Limits = LIMITS) -> None:
        self.tell: Callable[[News], None] = _tell_nobody
        """Called on the loop with the news of a group, before its callers are answered."""
        self.tell_of_others: Callable[[], None] = _nothing
        """Called on the loop when a group has met what others committed."""
        self._loop = asyncio.get_running_loop()
        self._writer = writer
        writer.now_s = self._loop.time
        self._now_ms = now_ms
        self._limits = limits
        self._pauses = Pauses()
        self._at_ms = 0
        self._calls: deque[_Call] = deque()
        self._queued = 0
        self._scheduled = False
        self._in_flight = False
        self._handed_over_s = 0.0
        self._closing = False
        self._closed = _Closed(self._loop, self._refuse_queued)
        self._pace = Pace() if mode == "auto" else None
        self._thread = WriterThread(self._loop, writer) if mode != "inline" else None

    def submit(self, batches: Sequence[Batch]) -> asyncio.Future[list[Answer]]:
        """The answers to the batches, in order, which are judged in one transaction."""
        answers = _Answers(self._loop, self._limits.cancel_wait_s)
        if self._closing:
            answers.give(_unavailable("the ledger is closed", batches))
        elif self._queued + len(batches) > self._limits.queue_batches:
            answers.give(_unavailable(f"{self._queued} batches wait for their turn already; try again later", batches))
        else:
            self._at_ms = self._now_ms()  # here, where a clock that cannot answer is the caller's error
            batches = tuple(batches)  # whoever submitted them may change a list
            self._calls.append(_Call(batches, [*map(size_bytes, batches)], answers))
            self._queued += len(batches)
            self._schedule()
        return answers

    async def close(self) -> None:
        """Answer all that was submitted, end the thread, close the writer. Every call returns when that is done.

        Cancelled, it commits no further group: who is queued is told so, and it is cancelled when all is closed.
        A lock that another process holds is waited for no longer than `busy_wait_closing_s`.
        """
        self._closing = True
        self._end_if_idle()
        await self._closed

    def others(self) -> int | None:
        """A number that changes when others have committed to the file; None if the writer is at work just now."""
        is_free = not self._in_flight and (self._thread is None or self._thread.is_free)
        return self._writer.others() if is_free else None

    # --- closing ------------------------------------------------------------

    def _refuse_queued(self) -> None:
        while self._calls:
            call = self._calls.popleft()
            call.answers.give(_unavailable("the ledger was closed before this batch had its turn", call.batches))
        self._queued = 0
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        """Let go of the file, once nobody is left to be answered; what goes wrong with that is raised in `close`."""
        if not self._closing or self._calls or self._in_flight or self._closed.done():
            return
        try:
            if self._thread is None:
                self._writer.close()
            else:
                self._thread.stop()
        except Exception as error:
            self._closed.set_exception(error)
        else:
            self._closed.set_result(None)

    # --- groups -------------------------------------------------------------

    def _schedule(self) -> None:
        """Hand over a group at the end of this turn, when all that runs in it has submitted what it will."""
        if self._calls and not self._scheduled and not self._in_flight:
            self._scheduled = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._scheduled = False
        if not self._calls:  # they were refused meanwhile
            return
        self._in_flight = True
        self._handed_over_s = self._loop.time()
        calls = self._next_group()
        group: list[Judged] = []
        for call in calls:
            refused: set[StoreKey] = set()
            group += zip(call.batches, call.sizes, repeat(refused, len(call.batches)), strict=True)
        transaction = Transaction(self._writer, group, self._at_ms, self._busy_pauses())
        if self._thread is None:
            self._commit_inline(calls, transaction, transaction.run())
        elif self._is_quick(calls):
            self._commit_quickly(self._thread, calls, transaction)
        else:
            self._thread.commit(transaction.run(), lambda: self._answer(calls, transaction))

    def _busy_pauses(self) -> Iterator[float]:
        """One group's pauses, while another process holds the lock; closing ends them early."""
        waited_s = 0.0
        for pause_s in self._pauses.until(self._limits.busy_wait_s):
            if self._closing and waited_s >= self._limits.busy_wait_closing_s:
                return
            waited_s += pause_s
            yield pause_s

    def _next_group(self) -> list[_Call]:
        """The calls that have waited longest: at least one, and no more than fit into a group."""
        calls: list[_Call] = []
        batches = size = 0
        while self._calls:
            call = self._calls[0]
            batches, size = batches + len(call.batches), size + sum(call.sizes)
            if calls and (batches > self._limits.group_batches or size > self._limits.group_bytes):
                break
            calls.append(self._calls.popleft())
            self._queued -= len(call.batches)
        return calls

    def _commit_inline(self, calls: list[_Call], transaction: Transaction, running: Iterator[float]) -> None:
        """Commit on the loop, which goes on while another process holds the lock."""
        pause: float | None = None
        try:
            pause = next(running, None)
        finally:
            if pause is None:
                self._answer(calls, transaction)
        if pause is not None:
            self._loop.call_later(pause, self._commit_inline, calls, transaction, running)

    def _is_quick(self, calls: Sequence[_Call]) -> bool:
        """Whether "auto" commits them on the loop. Of a writer that is alone, the thread has let go."""
        if self._pace is None or not self._pace.is_quick or not self._writer.is_alone or self._writer.checkpoint_due:
            return False
        return sum(sum(call.sizes) for call in calls) <= LITTLE_BYTES

    def _commit_quickly(self, thread: WriterThread, calls: list[_Call], transaction: Transaction) -> None:
        """Commit on the loop; from the first pause on, if there is one, on the thread."""
        running = transaction.run()
        pause: float | None = None
        try:
            with self._writer.on_loop():
                pause = next(running, None)
        finally:
            if pause is None:
                self._answer(calls, transaction, on_loop=True)
        if pause is not None:
            thread.commit(chain((pause,), running), lambda: self._answer(calls, transaction))

    def _answer(self, calls: list[_Call], transaction: Transaction, *, on_loop: bool = False) -> None:
        """Tell the news, give each call the answers to its own batches, and go on with the next group."""
        self._in_flight = False
        if self._pace is not None:
            if on_loop:
                self._pace.took(self._writer.commit_s)
            else:
                self._pace.took_beside(self._writer.commit_s, self._loop.time() - self._handed_over_s)
        if transaction.news is not None:
            self.tell(transaction.news)
        if self._writer.met_others:
            self._writer.met_others = False
            self.tell_of_others()
        begin = 0
        for call in calls:
            end = begin + len(call.batches)
            call.answers.give(transaction.answers[begin:end])
            begin = end
        self._schedule()
        self._end_if_idle()


def _nothing() -> None:
    pass


def _tell_nobody(_: News) -> None:
    pass


def _unavailable(reason: str, batches: Sequence[Batch]) -> list[Answer]:
    return [Failure(Unavailable(reason, "no")) for _ in batches]
