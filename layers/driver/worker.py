"""The worker of an engine: it claims runs that may be claimed, drives them, and keeps their leases.

It looks for such runs when it is told to (`look`), when one becomes due, and when somebody has committed: news of other
processes come at once where there are not many of them, and whether anybody has committed is asked every `WATCH_MS`,
which costs next to nothing. A pause without any of these grows as `DEFAULT_POLL` says, so even a missed sign delays a
run and never loses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import final

from ...core.batch import Batch, ChangeRun, RenewLeases, RunFence
from ...core.lease import RENEW_MS, claim, hold
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.poll import DEFAULT_POLL, PollPolicy
from ...core.run import RunRow
from ...core.step import StepRow
from ...services.ledger import DueRuns, News
from ...services.workflow import AnyWorkflow
from .owner import is_provably_dead
from .run import RunDriver
from .telling import telling
from .tools import Tools

__all__ = ["Worker"]

SLICE = 256
"""How many runs are claimed at a time, oldest first."""

WATCH_MS = 250
NEWS_MS = 20
"""How long after a look news of other processes are left to the watch."""


DRAIN_S = 5.0
"""How long steps that are being executed may go on when the worker closes, in seconds of the event loop's own time: a
program that ends must end, also where its clock stands still."""


@final
class Worker:
    """Drives runs of `workflows` as `owner`.

    `on_end` is called whenever a driver is done with a run, with the run's row if it has ended.
    """

    def __init__(
        self,
        tools: Tools,
        owner: str,
        workflows: Mapping[str, AnyWorkflow],
        on_end: Callable[[str, RunRow | None], None],
        poll: PollPolicy,
    ) -> None:
        self._tools = tools
        self._owner = owner
        self._workflows = workflows
        self._on_end = on_end
        self._poll = poll
        self._waits = asyncio.Event()
        self._drivers: dict[str, tuple[RunDriver, asyncio.Task[bool]]] = {}
        self._unsure: set[str] = set()
        self._signs = asyncio.Event()
        self._changes: int | None = None
        self._looked_at_ms = 0
        self._stop_news: Callable[[], None] = _nothing
        self._closing = False
        self._claiming: asyncio.Task[None] | None = None
        self._beside: list[asyncio.Task[None]] = []

    # --- from outside ---------------------------------------------------------

    def open(self) -> None:
        """Begin to look for runs."""
        loop = asyncio.get_running_loop()
        self._claiming = loop.create_task(self._claim_loop())
        self._stop_news = self._tools.ledger.subscribe(self._hear)
        beside = (self._watch_loop(), self._renew_loop(), self._poll_loop())
        self._beside = [loop.create_task(each) for each in beside]

    def look(self) -> None:
        """There may be something to claim, or to cancel."""
        self._signs.set()

    def drives(self, run_id: str) -> bool:
        """Whether a driver of this worker has the run."""
        return run_id in self._drivers

    def poll_soon(self) -> None:
        """A run begins to wait for a wake: look for wakes that are owed at the first pause again."""
        self._waits.set()

    def drive(self, row: RunRow, rows: tuple[StepRow, ...] = ()) -> None:
        """Execute a run that `owner` has claimed; while the worker closes, give it back."""
        driver = RunDriver(self._tools, row, self._workflows[row.workflow], rows)
        if self._closing:
            driver.set_aside()
        task = asyncio.get_running_loop().create_task(driver.drive(), name=f"stepwell run {row.id}")
        self._drivers[row.id] = (driver, task)
        task.add_done_callback(lambda task: self._ended(row.id, task))

    def look_into(self, run_id: str) -> None:
        """A write that makes the run this owner's may have been committed: if it was, the run is to be driven."""
        self._unsure.add(run_id)

    def cancel(self, run_id: str) -> None:
        """Let a cancellation that was recorded reach the run, if it is driven here."""
        if (found := self._drivers.get(run_id)) is not None:
            found[0].cancel()

    async def close(self) -> None:
        """Claim nothing more, give all runs back, and return within bounded time.

        Cancelled, it cuts the steps off that are being executed, and is cancelled when the runs are given back.
        """
        self._closing = True
        self._stop_news()
        self.look()
        for beside in self._beside:
            _ = beside.cancel()
        for driver, _ in self._drivers.values():
            driver.set_aside()
        try:
            await self._drain()
        except asyncio.CancelledError:
            for _, task in self._drivers.values():  # a task that is cancelled before it begins would give nothing back
                _ = asyncio.get_running_loop().call_soon(task.cancel)
            await self._drain()
            raise

    async def _drain(self) -> None:
        if self._claiming is not None:  # a claim that is being committed is given back too
            _ = await asyncio.wait((self._claiming,), timeout=DRAIN_S)
            _ = self._claiming.cancel()
        if tasks := [task for _, task in self._drivers.values()]:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_S)
            for task in late:
                _ = task.cancel()
            if late:
                _ = await asyncio.wait(late, timeout=DRAIN_S)
        _ = await asyncio.gather(*self._beside, return_exceptions=True)

    def _ended(self, run_id: str, task: asyncio.Task[bool]) -> None:
        driver, _ = self._drivers.pop(run_id)
        self._on_end(run_id, driver.ended)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._report(f"the driver of run {run_id!r} broke", error)
        elif not task.result():
            self.look_into(run_id)

    # --- claiming -------------------------------------------------------------

    async def _claim_loop(self) -> None:
        attempt = 1
        while not self._closing:
            self._signs.clear()
            next_at_ms = await self._look()
            now_ms = self._tools.clock.now_ms()
            pause_ms = DEFAULT_POLL.pause_ms(attempt)
            until_ms = now_ms + pause_ms if next_at_ms is None else min(now_ms + pause_ms, max(next_at_ms, now_ms + 1))
            signed = await self._sign_or_instant(until_ms)
            attempt = 1 if signed else attempt + 1

    async def _sign_or_instant(self, at_ms: int) -> bool:
        """Wait for a sign, or for an instant. True: it was a sign."""
        timer = asyncio.get_running_loop().create_task(self._tools.clock.sleep_until_ms(at_ms))
        signs = asyncio.get_running_loop().create_task(self._signs.wait())
        try:
            _ = await asyncio.wait((timer, signs), return_when=asyncio.FIRST_COMPLETED)
            return self._signs.is_set()
        finally:
            _ = timer.cancel()
            _ = signs.cancel()

    async def _look(self) -> int | None:
        """Claim what is due; when the next run will be, if that is known. A fault ends this look, not the looking."""
        self._looked_at_ms = self._tools.clock.now_ms()
        try:
            await self._deliver_cancellations()
            await self._drive_unsure()
            return await self._claim_due()
        except Exception as error:
            self._report("looking for runs failed, and is tried again", error)
            return None

    async def _claim_due(self) -> int | None:
        """Slice by slice; None where the ledger does not answer: the next look asks again."""
        while not self._closing:
            found = await self._due()
            if isinstance(found, Failure):
                return None
            due = found.unwrap()
            claimed = [await self._claim(row) for row in due.rows if row.id not in self._drivers]
            if len(due.rows) < SLICE or not any(claimed):
                return due.next_at_ms
            await asyncio.sleep(0)
        return None

    async def _due(self) -> Outcome[DueRuns, object]:
        ledger = self._tools.ledger
        owners = await ledger.owners()
        if isinstance(owners, Failure):
            return owners
        dead = [owner for owner in owners.unwrap() if owner != self._owner and is_provably_dead(owner)]
        now_ms = self._tools.clock.now_ms()
        return await ledger.due(tuple(self._workflows), now_ms, dead=dead, limit=SLICE)

    async def _claim(self, row: RunRow) -> bool:
        """Take a run and begin to drive it, unless somebody else was faster, or this owner closes."""
        ledger = self._tools.ledger
        read = await ledger.steps(row.id)
        if self._closing or isinstance(read, Failure):
            return False
        rows = read.unwrap()
        position = max((step.position or 0 for step in rows), default=0)
        columns = claim(row, self._owner, self._tools.clock.now_ms(), position)
        taking = Batch((RunFence(row.id, row.fence),), (ChangeRun(row.id, columns),))
        verdict = await ledger.commit(telling(self._tools.joinable_journal, row.id, taking))
        match verdict:
            case Success():
                pass
            case Failure(Unavailable(applied="unknown")):
                self.look_into(row.id)
                return False
            case Failure():
                return False
        if columns.get("owner") is None:  # it has lost too many owners, and is stuck now
            self._on_end(row.id, None)
        else:  # a cancellation that came between is found by the next look
            self.drive(replace(row, **columns), rows)
        return True

    async def _drive_unsure(self) -> None:
        for run_id in tuple(self._unsure):
            found = await self._tools.ledger.run(run_id)
            rows = await self._tools.ledger.steps(run_id)
            if isinstance(found, Failure) or isinstance(rows, Failure):
                continue
            self._unsure.discard(run_id)
            row = found.unwrap()
            if row is not None and row.owner == self._owner and not row.ended and run_id not in self._drivers:
                self.drive(row, rows.unwrap())

    async def _deliver_cancellations(self) -> None:
        requested = await self._tools.ledger.cancel_requests(self._owner)
        for run_id in () if isinstance(requested, Failure) else requested.unwrap():
            self.cancel(run_id)

    # --- signs from other processes, and to them ------------------------------

    def _hear(self, news: News) -> None:
        if news == "elsewhere" and self._tools.clock.now_ms() - self._looked_at_ms >= NEWS_MS:
            self.look()

    async def _watch_loop(self) -> None:
        clock = self._tools.clock
        while True:
            await clock.sleep_until_ms(clock.now_ms() + WATCH_MS)
            changes = await self._tools.ledger.changes()
            if not isinstance(changes, Failure) and changes.unwrap() != self._changes:
                self._changes = changes.unwrap()
                self.look()

    async def _poll_loop(self) -> None:
        """Wake runs that are owed a wake whose hint was lost: after growing pauses, from the last wait that began."""
        clock = self._tools.clock
        attempt = 1
        while True:
            await clock.sleep_until_ms(clock.now_ms() + self._poll.pause_ms(attempt))
            attempt = 1 if self._waits.is_set() else attempt + 1
            self._waits.clear()
            owed = await self._tools.ledger.wakes() if self._drivers else Success(())
            for wake in () if isinstance(owed, Failure) else owed.unwrap():
                if (found := self._drivers.get(wake.run_id)) is not None:
                    found[0].wake()

    async def _renew_loop(self) -> None:
        clock = self._tools.clock
        while True:
            await clock.sleep_until_ms(clock.now_ms() + RENEW_MS)
            if self._drivers:
                renewal = RenewLeases(self._owner, hold(clock.now_ms()))
                _ = await self._tools.ledger.commit(Batch((), (renewal,)))  # if it fails, the next is in time

    def _report(self, message: str, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def _nothing() -> None:
    """It has not begun to hear of news."""
