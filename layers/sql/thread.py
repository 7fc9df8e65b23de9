"""The thread of a writer: it commits what the event loop hands to it, one group after another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, final

from .bell import Bell
from .writer import Writer

__all__ = ["WriterThread"]

KEEP_S: Final = 0.002
"""How long the lock is kept for the next try of a caller that was told of a conflict: it plans anew and comes back."""

PATIENCE_S: Final = 0.002
"""How long a transaction may take until the loop stands aside for it; and again, while that lets it get on."""

MOST_PATIENCE_S: Final = 0.064
"""The longest time until then, which doubles each time that it did not: the thread waits for something else."""

LOOK_S: Final = 0.0001
"""How long the loop sleeps at a time while it stands aside: what it takes a thread to wake up on another core."""

LOOKS: Final = 20
"""How many times, at most: a group of a hundred changes is through by then."""


@final
class WriterThread:
    """Commits transactions in the order in which they are handed over, and tells the loop after each.

    A thread that wants the interpreter gets it after `sys.getswitchinterval()`, but only from one that keeps it for so
    long. A loop that is busy in shorter slices lets go of it in each turn, as it looks for events, and takes it back
    before the thread is awake: beside it a commit took up to a second. So the loop stands aside now and then while
    there is a transaction, for as long as this has one statement follow the other. Where none does, the thread waits
    for the disk or for another process, and needs no interpreter.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer) -> None:
        self._loop = loop
        self._bell = Bell(loop)
        self._writer = writer
        self.is_free = False
        """Whether it waits for work: the loop may use the writer then, unless it has handed over some."""
        writer.keeps_turn = True  # which is safe here, where no other code delays the moment of giving it up
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._patience_s = PATIENCE_S
        self._next_aside: asyncio.TimerHandle | None = None
        # A daemon: a program that forgets to close its ledger must be able to end.
        self._thread = threading.Thread(target=self._run, name="stepwell-writer", daemon=True)
        self._thread.start()

    def commit(self, running: Iterable[float], committed: Callable[[], None]) -> None:
        """Run a transaction to its end on the thread, and then `committed` on the loop; one at a time."""

        def work() -> None:
            try:
                for pause in running:
                    time.sleep(pause)
            finally:
                self._bell.tell(ended)

        def ended() -> None:
            if self._next_aside is not None:
                self._next_aside.cancel()
            committed()

        self._work.put(work)
        self._patience_s = PATIENCE_S
        self._stand_aside_later()

    def stop(self) -> None:
        """Do what was handed over, close the writer, and end."""
        self._work.put(None)
        self._thread.join()
        self._bell.close()

    def _stand_aside_later(self) -> None:
        self._next_aside = self._loop.call_later(self._patience_s, self._stand_aside)

    def _stand_aside(self) -> None:
        """Sleep as long as the thread gets on by that; once at least, to see whether it does."""
        self._patience_s = min(2 * self._patience_s, MOST_PATIENCE_S)
        for _ in range(LOOKS):
            before = self._writer.statements
            time.sleep(LOOK_S)
            if self._writer.statements == before:
                break
            self._patience_s = PATIENCE_S
        self._stand_aside_later()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException as error:  # whatever it is, the groups after it are to be answered
                context = {"message": "a commit was cut short", "exception": error}
                self._bell.tell(partial(self._loop.call_exception_handler, context))
        self._writer.close()

    def _next(self) -> Callable[[], None] | None:
        if self._writer.has_turn:
            try:
                return self._work.get(timeout=KEEP_S)
            except Empty:
                self._writer.give_up_turn()
        self.is_free = True
        work = self._work.get()
        self.is_free = False
        return work
