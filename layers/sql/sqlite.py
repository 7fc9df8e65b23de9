"""The ledger in one SQLite file: groups go to the writer, reads are short and run on the event loop.

Every read asks the file, so that it sees what any process has committed, and nothing that is not durable yet. Several
processes may use one file; a process that was forked may not use the ledger of its parent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TypeVar, final

from ...core.batch import Batch, Commit, Document, Receipt
from ...core.damage import Damaged, damaged_history, damaged_rows
from ...core.model import Revision, StepId, StoreKey, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.retention import StoredChange
from ...core.run import RunRow, RunState
from ...core.signal import SignalRow
from ...core.step import StepRow
from ...core.waiter import WaiterRow, Wake
from ...services.clock import Clock
from ...services.ledger import DueRuns, News, PinPage, RunWeight, SignalPage, StoreTip, Verdict
from ..listeners import Listeners
from . import history, reading, retention
from .committer import CommitMode, Committer
from .connection import Connection, DatabaseError, is_busy, is_damage, reason_of
from .journal_reading import JournalReading
from .limits import LIMITS
from .opening import Durability, connect_reader, connect_writer, empty_log, open_file
from .pauses import Pauses
from .watch import Watch
from .writer import OnPoint, Writer

__all__ = ["SqlLedger", "open_sqlite"]

_T = TypeVar("_T")


async def open_sqlite(
    path: str | PathLike[str],
    clock: Clock,
    *,
    durability: Durability = "full",
    commit: CommitMode = "auto",
    create: bool = True,
    on_point: OnPoint | None = None,
) -> SqlLedger:
    """The ledger in the file `path`, to be closed by `close`. Raises `CannotOpen`."""
    name = await asyncio.to_thread(open_file, path, create=create)
    reader = connect_reader(name)
    try:
        writer = Writer(lambda: connect_writer(name, durability), on_point)
    except BaseException:
        reader.close()
        raise
    return SqlLedger(reader, Committer(writer, clock.now_ms, commit))


@final
class SqlLedger(JournalReading):
    """A ledger over a committer and a connection for reading. It belongs to one process and one event loop."""

    def __init__(self, reader: Connection, committer: Committer) -> None:
        self._reader = reader
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._pauses = Pauses()
        self._sids: dict[StoreKey, int] = {}
        self._listeners = Listeners()
        self._watch: Watch | None = None
        committer.tell = self._tell
        committer.tell_of_others = self._tell_of_others
        self._closed = False

    async def close(self) -> None:
        """Answer all that was handed over, and let go of the file. Every later call answers `Unavailable`.

        A second call waits for the first. Cancelled, it commits no further group, answers `Unavailable` to whoever is
        queued, and lets go of the file all the same before it is cancelled.
        """
        if os.getpid() != self._process:  # the connections of a parent are not a child's to close
            return
        self._closed = True
        self._end_watch()
        try:
            await self._committer.close()
        finally:
            self._reader.close()

    # --- the service --------------------------------------------------------

    async def commit(self, batch: Batch) -> Verdict:
        if (refusal := self._refusal()) is not None:
            return Failure(refusal)
        (answer,) = await self._committer.submit((batch,))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        """As promised. A batch with a bug in it raises here; the others of the call have been judged on their own."""
        if (refusal := self._refusal()) is not None:
            return tuple(Failure(refusal) for _ in batches)
        verdicts: list[Verdict] = []
        for answer in await self._committer.submit(batches):
            if isinstance(answer, BaseException):
                raise answer
            verdicts.append(answer)
        return tuple(verdicts)

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        # The write that follows checks the file.
        return await self._read(lambda connection: reading.receipt(connection, self._sids, key, step), check_file=False)

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        return await self._read(lambda connection: reading.tip(connection, key), key)

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        return await self._read(lambda connection: reading.tail(connection, key, after), key)

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        return await self._read(lambda connection: reading.document(connection, key, at), key, at)

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        return await self._read(lambda connection: history.revisions(connection, key, limit, before, patches), key)

    async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
        return await self._read(lambda connection: reading.stores(connection, name))

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]:
        return await self._read(lambda connection: reading.run(connection, run_id))

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | int | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunRow, ...], Unavailable]:
        return await self._read(
            lambda connection: reading.runs(connection, state, workflow, limit, after, newest_first)
        )

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        return await self._read(lambda connection: reading.steps(connection, run_id))

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        return await self._read(lambda connection: reading.due(connection, workflows, now_ms, dead, limit))

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        return await self._read(reading.owners)

    async def cancel_requests(self, owner: str) -> Outcome[tuple[str, ...], Unavailable]:
        return await self._read(lambda connection: reading.cancel_requests(connection, owner))

    async def changes(self) -> Outcome[int, Unavailable]:
        return await self._read(reading.changes)

    async def waiters(
        self, *, key: StoreKey | None = None, run_id: str | None = None
    ) -> Outcome[tuple[WaiterRow, ...], Unavailable]:
        return await self._read(lambda connection: reading.waiters(connection, key, run_id), key)

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        return await self._read(lambda connection: reading.wakes(connection, after))

    async def signals(self, run_id: str, name: str | None = None) -> Outcome[tuple[SignalRow, ...], Unavailable]:
        return await self._read(lambda connection: reading.signals(connection, run_id, name))

    # --- what retention asks ------------------------------------------------

    async def histories(
        self, *, after: StoreKey | None = None, limit: int = 100
    ) -> Outcome[tuple[StoreKey, ...], Unavailable]:
        return await self._read(lambda connection: retention.histories(connection, after, limit))

    async def pins(
        self, *, after: tuple[str | int, ...] | None = None, limit: int = 1000
    ) -> Outcome[PinPage, Unavailable]:
        return await self._read(lambda connection: retention.pins(connection, after, limit))

    async def run_weight(self, run_id: str) -> Outcome[RunWeight, Unavailable]:
        return await self._read(lambda connection: retention.run_weight(connection, run_id))

    async def last_change(self) -> Outcome[int, Unavailable]:
        return await self._read(retention.last_change)

    async def stale_signals(self, *, after: int = 0, limit: int = 1000) -> Outcome[SignalPage, Unavailable]:
        return await self._read(lambda connection: retention.stale_signals(connection, after, limit))

    async def settle(self) -> Outcome[None, Unavailable]:
        """As promised: what is in the write-ahead log goes to the file, and the log becomes empty."""
        if (refusal := self._refusal()) is not None:
            return Failure(refusal)
        try:
            emptied = await asyncio.to_thread(empty_log, self._reader.path)
        except DatabaseError as error:
            return Failure(Unavailable(f"the write-ahead log could not be emptied: {reason_of(error)}", "no"))
        if emptied:
            return Success(None)
        return Failure(Unavailable("the write-ahead log could not be emptied: others keep the database busy", "no"))

    # --- news ---------------------------------------------------------------

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        """As promised. While anybody listens, the file is watched for what other processes commit.

        What this ledger commits itself is no news of "elsewhere".
        """
        if self._refusal() is not None:
            return lambda: None
        if self._watch is None:
            self._watch = Watch(self._reader.path, self._version, lambda: self._listeners.tell("elsewhere"))
        remove = self._listeners.add(listener)

        def unsubscribe() -> None:
            remove()
            if not self._listeners:
                self._end_watch()

        return unsubscribe

    def _tell(self, news: News) -> None:
        if self._watch is not None:
            self._watch.commit()
        self._listeners.tell(news)

    def _tell_of_others(self) -> None:
        if self._watch is not None:
            self._watch.met()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _version(self) -> int | None:
        """A number that is another one when others have committed; None where the file cannot tell now."""
        try:
            return None if self._closed else self._committer.others()
        except DatabaseError:
            return None

    # --- its guards ---------------------------------------------------------

    async def ask(self, query: Callable[[Connection], _T]) -> Outcome[_T, Unavailable]:
        return await self._read(query)

    async def _read(
        self,
        query: Callable[[Connection], _T],
        key: StoreKey | None = None,
        at: Revision | None = None,
        *,
        check_file: bool = True,
    ) -> Outcome[_T, Unavailable]:
        """Ask the file, again after a pause where it is locked: another process may just be opening or leaving it.

        Rows that are not as they were written are `Damaged`, naming the store and the revision that were asked for.
        """
        pauses = self._pauses.until(LIMITS.busy_wait_s)
        while (refusal := self._refusal()) is None:
            try:
                if check_file:
                    self._reader.check_file()
                return Success(query(self._reader))
            except DatabaseError as error:
                pause = next(pauses, None) if is_busy(error) else None
                if pause is None:
                    failed = Damaged if is_damage(error) else Unavailable
                    return Failure(failed(f"the database could not be read: {reason_of(error)}", "no"))
            except UnicodeEncodeError as error:  # what rows hold is decoded: this is what the caller asked with
                raise ValueError(f"{error.object!r} is not valid Unicode: {error.reason}") from None
            except (LookupError, TypeError, ValueError) as error:  # the rows made no sense to their reader
                return Failure(_damaged(key, at, error))
            await asyncio.sleep(pause)
        return Failure(refusal)

    def _refusal(self) -> Unavailable | None:
        """Why this ledger cannot be used here. Another event loop is a bug, and a RuntimeError."""
        if os.getpid() != self._process:
            return Unavailable("this process was forked from the one that opened the ledger; open the file anew", "no")
        if self._closed:
            return Unavailable("the ledger is closed", "no")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this ledger belongs to another event loop; build one for each loop")
        return None


def _damaged(key: StoreKey | None, at: Revision | None, error: Exception) -> Damaged:
    return damaged_rows(str(error)) if key is None else damaged_history(key, at, str(error))
