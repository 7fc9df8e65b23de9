"""The way of every call of a run on a store: performed by the injected store, recorded in the same batch.

A store that can join (`Joinable`) commits the row of the call together with what it does, and the row pins the
revision: the call hands out the store's own answer, and a replay reads that revision from the ledger, where its state
is the same for ever. With any other, its receipt makes the operation exactly-once; the row follows in a batch of its
own, and holds the state, since only the store itself knows where it keeps it: the first run too reads it from the row.

What a caller's own function raises (an updater, a selector, an initial state) is recorded like the error of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Never, TypeAlias, TypeVar, final

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
from .telling import is_unclear
from .tools import Tools

__all__ = ["Cancelled", "Passing", "StoreSteps", "Told", "mapped", "named_of", "recorded_outcome", "told", "unanswered"]

_A = TypeVar("_A")
_B = TypeVar("_B")
_F = TypeVar("_F")
_A_co = TypeVar("_A_co", covariant=True)

Passing: TypeAlias = Contended | Fenced | Unavailable
"""What a run never sees: the call is tried again, or the run is set aside."""


def _always(_: object) -> bool:
    return True


@final
@dataclass(frozen=True, slots=True)
class Told(Generic[_A_co]):
    """What a call came to, as its row names it; and the store's own answer, unless that is read from the row."""

    named: Named
    answer: _A_co | None = None


def told(name: Callable[[_A], Named], answer: _A) -> Told[_A]:
    """An answer under its name. A row that holds a value is what a replay hands out, and so does the first run."""
    named = name(answer)
    return Told(named, answer if named.value is None else None)


def unanswered(named: Named) -> Told[Never]:
    """What is read from its row, in the first run as in a replay."""
    return Told(named)


@final
class Cancelled(Exception):
    """Cancellation of the run came while a store could not answer."""


@final
class StoreSteps:
    """How the store calls of one run are performed and recorded."""

    def __init__(self, record: RunRecord, tools: Tools) -> None:
        self._record = record
        self._tools = tools
        self._joinable = tools.joinable

    async def recorded(
        self,
        key: str,
        kind: str,
        store: StoreKey,
        live: Callable[[StoreCall], Awaitable[Outcome[Told[_A], StoreFailure]]],
        read: Callable[[Named], Awaitable[_A]],
    ) -> Outcome[_A, StoreFailure]:
        """The recorded outcome of a call, or what it comes to now, recorded and handed over in its turn.

        `read` gives the answer that was recorded under a name.
        """
        asked = await self._record.begin(key, kind, str(store))
        if asked.row is not None:
            return await self._recalled(asked.row, read)
        call = StoreCall(self._record, self._record.new(key, kind, str(store)), store, self._tools)
        outcome = await self.concluded(call, key, kind, store, live)
        if isinstance(outcome, Failure):
            return outcome
        found = outcome.unwrap()
        return Success(await read(found.named) if found.answer is None else found.answer)

    async def _recalled(self, row: StepRow, read: Callable[[Named], Awaitable[_A]]) -> Outcome[_A, StoreFailure]:
        if row.status == "failed":
            await self._record.hand_over(row)
            raise_recorded(row)
        outcome = recorded_outcome(row)
        if isinstance(outcome, Failure):
            await self._record.hand_over(row)
            return outcome
        return Success(await self._record.recall(row, read(outcome.unwrap())))

    async def concluded(
        self,
        call: StoreCall,
        key: str,
        kind: str,
        store: StoreKey,
        live: Callable[[StoreCall], Awaitable[Outcome[Told[_A], StoreFailure]]],
    ) -> Outcome[Told[_A], StoreFailure]:
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
            await self._record.complete(call.row(mapped(outcome, named_of)))
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
        is_final: Callable[[Outcome[object, StoreFailure]], bool] = _always,
    ) -> Outcome[Told[_A], StoreFailure]:
        """What the operation comes to; an outcome that `is_final` is recorded in its batch, by a store that can join.

        `name` says how a success is recorded, and `plain` asks a store that cannot.
        """
        store = self._joinable
        if store is None:
            return mapped(await self.insistently(plain), partial(told, name))

        def join(outcome: Outcome[_A, StoreFailure | ReceiptMismatch | TooLarge]) -> Batch:
            named = mapped(outcome, name)
            return call.join(named) if is_final(named) else Batch()

        async def attempt() -> Outcome[_A, StoreFailure | Passing]:
            found = await call.find_out()
            if isinstance(found, Failure):
                return found
            applied = await store.apply(operation, join)
            call.is_unclear = is_unclear(applied)
            return applied

        outcome = mapped(await self.insistently(attempt), partial(told, name))
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


def named_of(found: Told[object]) -> Named:
    """The name under which it is recorded."""
    return found.named


def mapped(outcome: Outcome[_A, _F], make: Callable[[_A], _B]) -> Outcome[_B, _F]:
    """What `make` makes of a success; a failure as it is."""
    return outcome if isinstance(outcome, Failure) else Success(make(outcome.unwrap()))


def recorded_outcome(row: StepRow) -> Outcome[Named, StoreFailure]:
    """What a recorded call came to; it raises what the call raised."""
    if row.status == "failed":
        raise_recorded(row)
    return read_outcome(row.value or b"{}")
