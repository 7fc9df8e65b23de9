"""Delivery: hands the wakes that a ledger owes to a wake bus, until they are owed no more.

It sleeps until the ledger has news, or until one of its instants has come; `core/delivery.py` says which. A wake goes
to the bus in the turn of the event loop that follows its news, by one read of the ledger. What was read longer ago is
looked at again before it is handed over. Hosts that miss news of other processes are asked by a poll that grows slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Sequence
from typing import Final, final

from ..core.batch import Batch, PassTurn
from ..core.delivery import Deliveries, failure_pause_ms
from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.poll import PollPolicy
from ..core.waiter import Wake
from ..services.clock import Clock
from ..services.ledger import Ledger, News
from ..services.wake_bus import WakeBus

__all__ = ["Delivery"]

SLICE: Final = 1_000
"""How many wakes are handed over before others on the event loop have their turn."""

FEW: Final = 8
"""One in so many of the kept wakes: fewer are looked up one by one, more by one read of all that is owed."""


@final
class Delivery:
    """Between `open` and `close` every wake that the ledger owes is handed over, one after the other.

    A bus that raises holds nobody up; one whose `wake` does not return holds up all that come after.
    """

    def __init__(self, ledger: Ledger, clock: Clock, bus: WakeBus, poll: PollPolicy) -> None:
        self._ledger = ledger
        self._clock = clock
        self._bus = bus
        self._policy = poll
        self._plan = Deliveries()
        self._cursor = 0  # the last wake that was read
        self._heard = 0  # how many news there were: what was read before the last of them may be out of date
        self._unread = True  # there may be wakes after the cursor
        self._committed = False  # this ledger has, so that what failed is tried again
        self._woken = False  # it has, and owes new wakes
        self._failed_reads = 0
        self._read_at_ms: int | None = None
        self._polls = 0
        self._poll_at_ms = 0
        self._polled = False  # what is unread is read because of a poll
        self._bell: asyncio.Future[None] | None = None
        self._alarm: tuple[int, asyncio.Task[None]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe: Callable[[], None] | None = None

    def open(self) -> None:
        """Begin, with all that is owed already."""
        self._unsubscribe = self._ledger.subscribe(self._hear)
        _ = self._start(self._run())

    async def close(self) -> None:
        """Hand over nothing more, and leave nothing behind; what is owed stays so in the ledger."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        tasks = list(self._tasks)
        for task in tasks:
            _ = task.cancel()
        _ = await asyncio.gather(*tasks, return_exceptions=True)

    # --- when -----------------------------------------------------------------

    def _hear(self, news: News) -> None:
        self._heard += 1
        self._unread = self._unread or news != "commit"
        self._committed = self._committed or (news == "commit" and self._plan.failing)
        self._woken = self._woken or news == "wake"
        if self._unread or self._committed:
            self._ring()

    async def _run(self) -> None:
        self._poll_later()
        while True:
            try:
                await self._turn()
            except Exception as error:
                self._report("delivering wakes failed, and begins anew", error)
                self._plan = Deliveries()
                self._cursor = 0
                self._read_later()
                self._poll_later()
            await self._rest()

    async def _turn(self) -> None:
        before = self._cursor
        committed, self._committed = self._committed, False
        woken, self._woken = self._woken, False
        found = self._unread and await self._deliver_new()
        # News of wakes that were found already, as through a watch of the file, is no later commit than theirs.
        again = committed or (woken and found)
        wakes, turns = self._plan.to_do(self._clock.now_ms(), failed_to=before if again else 0)
        for wake in turns:
            _ = self._start(self._pass_turn(wake))
        if wakes:
            await self._deliver_again(wakes)

    async def _rest(self) -> None:
        """Wait for a reason to go on."""
        if not self._unread and not self._committed:
            instants = (self._plan.next_at_ms(), self._read_at_ms, self._poll_at_ms)
            self._set_alarm(min(at_ms for at_ms in instants if at_ms is not None))
            self._bell = asyncio.get_running_loop().create_future()
            await self._bell
        now_ms = self._clock.now_ms()
        if self._poll_at_ms <= now_ms:
            self._unread = self._polled = True
        if self._read_at_ms is not None and self._read_at_ms <= now_ms:
            self._unread = True

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def _set_alarm(self, at_ms: int) -> None:
        """Ring at this instant, or before it: an alarm that is set already is kept rather than moved back."""
        if self._alarm is not None:
            if not self._alarm[1].done() and self._alarm[0] <= at_ms:
                return
            _ = self._alarm[1].cancel()
        self._alarm = (at_ms, self._start(self._sound(at_ms)))

    async def _sound(self, at_ms: int) -> None:
        await self._clock.sleep_until_ms(at_ms)
        self._ring()

    def _poll_later(self) -> None:
        self._polls += 1
        self._poll_at_ms = self._clock.now_ms() + self._policy.pause_ms(self._polls)

    def _read_later(self) -> None:
        self._failed_reads += 1
        self._read_at_ms = self._clock.now_ms() + failure_pause_ms(self._failed_reads)

    # --- what -----------------------------------------------------------------

    async def _deliver_new(self) -> bool:
        """Hand over the wakes after the cursor, in their order; whether there were any."""
        self._unread = False
        heard = self._heard
        polled, self._polled = self._polled, False
        read = await self._ledger.wakes(self._cursor)
        if polled:
            if isinstance(read, Success) and read.unwrap():  # of which there were no news: poll faster again
                self._polls = 0
            self._poll_later()
        if isinstance(read, Failure):
            self._read_later()
            return False
        self._failed_reads = 0
        self._read_at_ms = None
        for at, wake in enumerate(read.unwrap(), 1):
            self._cursor = wake.no
            self._plan.found(wake, self._clock.now_ms())
            await self._deliver(wake, sure=self._heard == heard)
            if at % SLICE == 0:
                await asyncio.sleep(0)
        return bool(read.unwrap())

    async def _deliver_again(self, wakes: Sequence[Wake]) -> None:
        """Hand over those of the wakes that are still owed."""
        heard = self._heard
        read = await self._still_owed(wakes)
        if isinstance(read, Failure):
            for wake in wakes:
                self._plan.failed(wake.no, self._clock.now_ms())
            return
        still = read.unwrap()
        for at, wake in enumerate(wakes, 1):
            if wake.no in still:
                await self._deliver(wake, sure=self._heard == heard)
            else:
                self._plan.gone(wake.no)
            if at % SLICE == 0:
                await asyncio.sleep(0)

    async def _deliver(self, wake: Wake, *, sure: bool) -> None:
        """Hand over a wake, if it is surely owed, or else if it still is."""
        if not sure and wake.waiter is not None:  # to look for one signal is to read all; a spurious hint costs less
            read = await self._is_owed(wake)
            if isinstance(read, Success) and not read.unwrap():
                self._plan.gone(wake.no)
                return
        if await self._wake(wake.run_id):
            self._plan.delivered(wake.no, self._clock.now_ms())
        else:
            self._plan.failed(wake.no, self._clock.now_ms())

    async def _wake(self, run_id: str) -> bool:
        """Whether the bus took the wake. Whatever it raises is its failure, and no other run's."""
        task = asyncio.current_task()
        try:
            await self._bus.wake(run_id)
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            return False
        except Exception:
            return False
        return True

    # --- whether --------------------------------------------------------------

    async def _still_owed(self, wakes: Sequence[Wake]) -> Outcome[Container[int], Unavailable]:
        """The numbers of those that are owed, by the way that reads less."""
        if len(wakes) * FEW > len(self._plan):
            after = wakes[0].no - 1
            read = await self._ledger.wakes(after)
            if isinstance(read, Failure):
                return read
            still = {wake.no for wake in read.unwrap()}
            self._plan.gone_but(still, after)
            return Success(still)
        few: set[int] = set()
        for at, wake in enumerate(wakes, 1):
            owed = await self._is_owed(wake)
            if isinstance(owed, Failure):
                return owed
            if owed.unwrap():
                few.add(wake.no)
            if at % SLICE == 0:
                await asyncio.sleep(0)
        return Success(few)

    async def _is_owed(self, wake: Wake) -> Outcome[bool, Unavailable]:
        if wake.waiter is None:
            signals = await self._ledger.signals(wake.run_id)
            if isinstance(signals, Failure):
                return signals
            return Success(any(signal.no == wake.no for signal in signals.unwrap()))
        waiters = await self._ledger.waiters(key=wake.waiter.key, run_id=wake.run_id)
        if isinstance(waiters, Failure):
            return waiters
        return Success(any(row.due_no == wake.no for row in waiters.unwrap()))

    # --- queues ---------------------------------------------------------------

    async def _pass_turn(self, wake: Wake) -> None:
        """The waiter has not acted: let the next of its queue, if there is one, have the turn."""
        waiter, owed = wake.waiter, await self._is_owed(wake)
        if waiter is None or owed == Success(False):
            return
        turn = PassTurn(waiter.key, waiter.step, waiter.generation)
        if isinstance(owed, Failure) or isinstance(await self._ledger.commit(Batch((), (turn,))), Failure):
            self._plan.not_passed(wake.no, self._clock.now_ms())
            self._ring()

    # --- tasks ----------------------------------------------------------------

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report("the delivery of wakes broke", error)

    def _report(self, message: str, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
