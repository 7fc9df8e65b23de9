"""The thread of a writer: it commits what the event loop hands to it, one group after another."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import final

from .transaction import Transaction

__all__ = ["WriterThread"]


@final
class WriterThread:
    """Commits transactions in the order in which they are handed over, and tells the loop after each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a program that forgets to close its ledger must be able to end.
        self._thread = threading.Thread(target=self._run, name="stepwell-writer", daemon=True)
        self._thread.start()

    def commit(self, transaction: Transaction, committed: Callable[[], None]) -> None:
        """Run the transaction on the thread, and then `committed` on the loop."""

        def work() -> None:
            try:
                for pause in transaction.run():
                    time.sleep(pause)
            finally:
                self._tell(committed)

        self._work.put(work)

    def stop(self, last: Callable[[], None]) -> None:
        """Do what was handed over, then `last`, and end."""
        self._work.put(last)
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as error:  # whatever it is, the groups after it are to be answered
                context = {"message": "a commit was cut short", "exception": error}
                self._tell(partial(self._loop.call_exception_handler, context))

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(what)
