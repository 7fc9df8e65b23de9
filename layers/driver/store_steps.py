"""The way of every call of a run on a store: performed by the injected store, recorded in the same batch.

A store that can join (`Joinable`) commits the row of the call together with what it does, and the row names the
revision whose state is read back from the ledger. With any other, its receipt makes the operation exactly-once; the row
follows in a batch of its own, and holds the state, since only the store itself knows where it keeps it.

What a caller's own function raises (an updater, a selector, an initial state) is recorded like the error of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar, final

from ...core.batch import Batch, Fenced
from ...core.damage import Damaged
from ...core.model import Contended, ReceiptMismatch, StoreKey, TooLarge, Unavailable
from ...core.operation import Operation
from ...core.outcome import Failure, Outcome, Success
from ...core.step import StepRow
from ...core.store_outcome import Named, StoreFailure, read_outcome
from ...services.step import Suspended
from .pause import Pauses
from .record import RunRecord
from .steps import raise_recorded
from .store_call import StoreCall
from .tools import Tools

__all__ = ["Cancelled", "Passing", "StoreSteps", "mapped", "recorded_outcome"]

_A = TypeVar("_A")
_B = TypeVar("_B")
_F = TypeVar("_F")

Passing: TypeAlias = Contended | Fenced | Unavailable
"""What a run never sees: the call is tried again, or the run is set aside."""


def _always(_: object) -> bool:
    return True


@final
class Cancelled(Exception):
    """Cancellation of the run came while a store could not answer."""


@final
class StoreSteps:
    """How the store calls of one run are performed and recorded."""

    def __init__(self, record: RunRecord, tools: Tools) -> None:
        self._record = record
        self._joinable = tools.joinable

    async def recorded(
        self, key: str, kind: str, store: StoreKey, live: Callable[[StoreCall], Awaitable[Outcome[Named, StoreFailure]]]
    ) -> Outcome[Named, StoreFailure]:
        """The recorded outcome of a call, or what it comes to now, recorded and handed over in its turn."""
        asked = await self._record.begin(key, kind, str(store))
        if asked.row is not None:
            await self._record.hand_over(asked.row)
            return recorded_outcome(asked.row)
        call = StoreCall(self._record, self._record.new(key, kind, str(store)), store)
        return await self.concluded(call, key, kind, store, live)

    async def concluded(
        self,
        call: StoreCall,
        key: str,
        kind: str,
        store: StoreKey,
        live: Callable[[StoreCall], Awaitable[Outcome[Named, StoreFailure]]],
    ) -> Outcome[Named, StoreFailure]:
        """What a call that has begun comes to, recorded and handed over in its turn."""
        try:
            outcome = await live(call)
        except Cancelled:
            call.cut()
            await self._record.complete_cancelled(key, kind, str(store))
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, Suspended):
            raise  # these end more than the call
        except BaseException as error:
            failed = call.failed(error)
            await self._record.complete(failed)
            raise_recorded(failed)
        if call.numbered is None:
            await self._record.complete(call.row(outcome))
        else:
            await self._record.completed(call.numbered)
        return outcome

    async def apply(
        self,
        call: StoreCall,
        operation: Operation[_A, StoreFailure],
        name: Callable[[_A], Named],
        plain: Callable[[], Awaitable[Outcome[_A, StoreFailure | Passing]]],
        *,
        is_final: Callable[[Outcome[Named, StoreFailure]], bool] = _always,
    ) -> Outcome[Named, StoreFailure]:
        """What the operation comes to; an outcome that `is_final` is recorded in its batch, by a store that can join.

        `name` says how a success is recorded, and `plain` asks a store that cannot.
        """
        store = self._joinable
        if store is None:
            return mapped(await self.insistently(plain), name)

        def join(outcome: Outcome[_A, StoreFailure | ReceiptMismatch | TooLarge]) -> Batch:
            named = mapped(outcome, name)
            return call.join(named) if is_final(named) else Batch()

        outcome = mapped(await self.insistently(lambda: store.apply(operation, join)), name)
        if not is_final(outcome):
            call.cut()
        return outcome

    async def insistently(
        self, attempt: Callable[[], Awaitable[Outcome[_A, StoreFailure | Passing]]], *, cancellable: bool = True
    ) -> Outcome[_A, StoreFailure]:
        """What a store answers, however often it has to be asked. Raises Suspended if the run is lost or set aside."""
        pauses = Pauses()
        while True:
            outcome = await attempt()
            if isinstance(outcome, Success):
                return outcome
            failure = outcome.failure()
            if isinstance(failure, Damaged):
                self._record.stop(failure.reason)
            if not isinstance(failure, Contended | Fenced | Unavailable):
                return Failure(failure)
            may_end = cancellable and self._record.cancellation.may_reach
            if await self._record.try_again(failure, pauses, cancellable=may_end) == "cancel":
                raise Cancelled


def mapped(outcome: Outcome[_A, _F], make: Callable[[_A], _B]) -> Outcome[_B, _F]:
    """What `make` makes of a success; a failure as it is."""
    return outcome if isinstance(outcome, Failure) else Success(make(outcome.unwrap()))


def recorded_outcome(row: StepRow) -> Outcome[Named, StoreFailure]:
    """What a recorded call came to; it raises what the call raised."""
    if row.status == "failed":
        raise_recorded(row)
    return read_outcome(row.value or b"{}")
