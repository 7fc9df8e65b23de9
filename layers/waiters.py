"""Waiters over a ledger, with the delivery of what they are owed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Final, final

from ..core.batch import AlreadyApplied, Batch, Fenced, Refusal, RegisterWaiter, RemoveWaiter, WaiterAt
from ..core.model import StepId, StoreKey, TooLarge, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.poll import DEFAULT_POLL, PollPolicy
from ..core.waiter import Registered, Waiter
from ..services.clock import Clock
from ..services.ledger import Ledger
from ..services.waiters import Waiters
from ..services.wake_bus import WakeBus
from .delivery import Delivery
from .layer import Layer, provides

__all__ = ["LedgerWaiters", "NoopWaiters", "layer", "layer_noop", "layer_test"]

ABSENT: Final = Unavailable("there are no waiters here: override them by layer() of stepwell.layers.waiters", "no")


@final
class LedgerWaiters:
    """Waiters that are rows of a ledger; it is joinable, so the engine commits its waits with what they belong to."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def register(self, waiter: Waiter) -> Outcome[Registered, TooLarge | Unavailable]:
        verdict = await self._ledger.commit(self.registration(waiter))
        if isinstance(verdict, Failure):
            failure = verdict.failure()
            if isinstance(failure, TooLarge):
                return Failure(failure)
            return Failure(_unavailable(failure))
        answer = verdict.unwrap()
        if isinstance(answer, AlreadyApplied) or len(answer.registered) != 1:
            raise RuntimeError(f"the ledger did not say how {waiter.step} was registered, but answered {answer}")
        return Success(answer.registered[0])

    async def waiting(self, key: StoreKey) -> Outcome[tuple[Waiter, ...], Unavailable]:
        read = await self._ledger.waiters(key=key)
        if isinstance(read, Failure):
            return read
        return Success(tuple(row.waiter for row in read.unwrap() if row.due_no is None))

    async def due(self, run_id: str) -> Outcome[tuple[Waiter, ...], Unavailable]:
        read = await self._ledger.waiters(run_id=run_id)
        if isinstance(read, Failure):
            return read
        due = [(row.due_no, row.waiter) for row in read.unwrap() if row.due_no is not None]
        return Success(tuple(waiter for _, waiter in sorted(due, key=lambda each: each[0])))

    async def acknowledge(self, waiter: Waiter) -> Outcome[bool, Unavailable]:
        stands = WaiterAt(waiter.key, waiter.step, waiter.generation)
        verdict = await self._ledger.commit(
            Batch((stands,), (RemoveWaiter(waiter.key, waiter.step, waiter.generation),))
        )
        if isinstance(verdict, Success):
            return Success(True)
        failure = verdict.failure()
        if isinstance(failure, Fenced):
            return Success(False)
        return Failure(_unavailable(failure))

    async def cancel(self, key: StoreKey, step: StepId) -> Outcome[None, Unavailable]:
        verdict = await self._ledger.commit(self.removal(key, step))
        if isinstance(verdict, Failure):
            return Failure(_unavailable(verdict.failure()))
        return Success(None)

    # --- joining --------------------------------------------------------------

    def registration(self, waiter: Waiter) -> Batch:
        """One that read nothing waits for any change: it would otherwise wait for ever."""
        whole = waiter if waiter.read_paths else replace(waiter, read_paths=((),))
        return Batch((), (RegisterWaiter(whole),))

    def removal(self, key: StoreKey, step: StepId) -> Batch:
        return Batch((), (RemoveWaiter(key, step),))


def _unavailable(failure: Refusal | TooLarge | Unavailable) -> Unavailable:
    """The failure that is left, where the batch expects nothing else that could be refused."""
    if isinstance(failure, Unavailable):
        return failure
    raise RuntimeError(f"a change of a waiter was refused, which expects nothing of that: {failure}")


@final
class NoopWaiters:
    """No waiters: every call fails with `Unavailable`, and nobody is woken."""

    async def register(self, waiter: Waiter) -> Outcome[Registered, TooLarge | Unavailable]:
        return Failure(ABSENT)

    async def waiting(self, key: StoreKey) -> Outcome[tuple[Waiter, ...], Unavailable]:
        return Failure(ABSENT)

    async def due(self, run_id: str) -> Outcome[tuple[Waiter, ...], Unavailable]:
        return Failure(ABSENT)

    async def acknowledge(self, waiter: Waiter) -> Outcome[bool, Unavailable]:
        return Failure(ABSENT)

    async def cancel(self, key: StoreKey, step: StepId) -> Outcome[None, Unavailable]:
        return Failure(ABSENT)


# --- layers -----------------------------------------------------------------


def layer(*, poll: PollPolicy = DEFAULT_POLL) -> Layer[Waiters, Clock | Ledger | WakeBus]:
    """Waiters over the ledger that is given; what they are owed goes to the wake bus for as long as the layer is open.

    `poll` is how often wakes are looked for of which the ledger gave no news.
    """

    @provides
    async def recipe(clock: Clock, ledger: Ledger, bus: WakeBus) -> AsyncIterator[Waiters]:
        delivery = Delivery(ledger, clock, bus, poll)
        delivery.open()
        try:
            yield LedgerWaiters(ledger)
        finally:
            await delivery.close()

    return recipe


def layer_test(*, poll: PollPolicy = DEFAULT_POLL) -> Layer[Waiters, Clock | Ledger | WakeBus]:
    """The same waiters: they are as deterministic as the ledger, the clock and the bus beneath them."""
    return layer(poll=poll)


def layer_noop() -> Layer[Waiters, Waiters]:
    """No waiters: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[Waiters]:
        yield NoopWaiters()

    return recipe
