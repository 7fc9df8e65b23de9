"""The durable calls of one run on stores: carried out by the injected store, recorded in the same batch.

A store that can join (`Joinable`) commits the row of the call together with what it does, and the row names the
revision whose state is read back from the ledger. With any other, its receipt makes the operation exactly-once; the row
follows in a batch of its own, and holds the state, since only the store itself knows where it keeps it.

What a caller's own function raises (an updater, a selector, an initial state) is recorded like the error of a step.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeAlias, TypeVar, final

from ...core.batch import Batch, Fenced
from ...core.codec import Codec
from ...core.damage import Damaged, read_document
from ...core.model import (
    Conflict,
    Contended,
    Deleted,
    InvalidState,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    TooLarge,
    Unavailable,
    Updated,
    snapshot_of,
    updated_of,
)
from ...core.operation import Create, DeleteFrom, Operation, Update, UpdateFrom
from ...core.outcome import Failure, Outcome, Success
from ...core.step import StepRow
from ...core.store_outcome import Named, StoreFailure, read_outcome
from ...services.ids import Ids
from ...services.ledger import Ledger
from ...services.step import Suspended
from ...services.store import Initial, Joinable, Store, StoreDefinition, Updater, resolve_initial
from .pause import Pauses
from .record import RunRecord
from .steps import VALUE_BYTES, raise_recorded
from .store_call import StoreCall

__all__ = ["DrivenStores"]

_T = TypeVar("_T")
_A = TypeVar("_A")
_B = TypeVar("_B")
_F = TypeVar("_F")

Passing: TypeAlias = Contended | Fenced | Unavailable
"""What a run never sees: the call is tried again, or the run is set aside."""


@final
class DrivenStores:
    """The store calls of one run."""

    def __init__(self, record: RunRecord, ledger: Ledger, store: Store, ids: Ids) -> None:
        self._record = record
        self._ledger = ledger
        self._store = store
        self._ids = ids

    # --- reads ----------------------------------------------------------------

    async def get(
        self, key: str, definition: StoreDefinition[_T], id: str
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState]:
        async def live(_: StoreCall) -> Outcome[Named, StoreFailure]:
            return _map(await self._get(definition, id), self._namer(definition).snapshot)

        recorded = await self._recorded(key, "store.get", definition.key(id), live)
        return _only(await self._snapshot(definition, id, recorded), StoreNotFound, InvalidState)

    async def select(
        self, key: str, definition: StoreDefinition[_T], id: str, selector: Callable[[_T], object], codec: Codec
    ) -> Outcome[object, StoreNotFound | InvalidState]:
        what = f"the value that {key!r} selected"

        def name(snapshot: Snapshot[_T]) -> Named:
            encoded = codec.encode(_not_awaitable(selector(snapshot.state), key), what)
            _ = codec.decode(encoded, what)
            if len(encoded) > VALUE_BYTES:
                raise ValueError(f"{what} is {len(encoded)} bytes of JSON, and the limit is {VALUE_BYTES}")
            return Named("selected", snapshot.revision, value=encoded)

        async def live(_: StoreCall) -> Outcome[Named, StoreFailure]:
            return _map(await self._get(definition, id), name)

        recorded = await self._recorded(key, "store.select", definition.key(id), live)
        chosen = _map(recorded, lambda named: self._selected(named, codec, what))
        return _only(chosen, StoreNotFound, InvalidState)

    async def _get(self, definition: StoreDefinition[_T], id: str) -> Outcome[Snapshot[_T], StoreFailure]:
        return await self._insistently(partial(self._store.get, definition, id))

    # --- writes ---------------------------------------------------------------

    async def get_or_create(
        self, key: str, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge]:
        store_key = definition.key(id)

        async def live(call: StoreCall) -> Outcome[Named, StoreFailure]:
            found = await self._get(definition, id)
            name = self._namer(definition).snapshot
            if isinstance(found, Success) or not isinstance(found.failure(), StoreNotFound):
                return _map(found, name)
            value = await resolve_initial(initial)
            operation = Create(store_key, definition.schema, value, self._ids.new())
            plain = partial(self._store.get_or_create, definition, id, value)
            return await self._apply(call, operation, name, plain)

        recorded = await self._recorded(key, "store.get_or_create", store_key, live)
        return _only(await self._snapshot(definition, id, recorded), InvalidState, TooLarge)

    async def update(
        self, key: str, definition: StoreDefinition[_T], id: str, updater: Updater[_T]
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
        step = StepId(self._record.row.id, key)

        async def live(call: StoreCall) -> Outcome[Named, StoreFailure]:
            operation = Update(definition.key(id), definition.schema, updater, step)
            plain = partial(self._store.update, definition, id, updater, step=step)
            return await self._apply(call, operation, self._namer(definition).updated, plain)

        recorded = await self._recorded(key, "store.update", definition.key(id), live)
        updated = await self._updated(definition, id, recorded)
        return _only(updated, StoreNotFound, InvalidState, ReceiptMismatch, TooLarge)

    async def update_from(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
        step = StepId(self._record.row.id, key)
        revision = _revision(expected)

        async def live(call: StoreCall) -> Outcome[Named, StoreFailure]:
            operation = UpdateFrom(definition.key(id), definition.schema, revision, updater, step)
            plain = partial(self._store.update_from, definition, id, revision, updater, step=step)
            return await self._apply(call, operation, self._namer(definition).updated, plain)

        recorded = await self._recorded(key, "store.update_from", definition.key(id), live)
        return await self._updated(definition, id, recorded)

    async def delete_from(
        self, key: str, definition: StoreDefinition[_T], id: str, expected: Snapshot[_T] | Revision
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge]:
        step = StepId(self._record.row.id, key)
        revision = _revision(expected)

        async def live(call: StoreCall) -> Outcome[Named, StoreFailure]:
            operation = DeleteFrom(definition.key(id), revision, step)
            plain = partial(self._store.delete_from, definition, id, revision, step=step)
            return await self._apply(call, operation, _name_deleted, plain)

        recorded = await self._recorded(key, "store.delete_from", definition.key(id), live)
        deleted = _map(recorded, lambda _: Deleted())
        return _only(deleted, Conflict, StoreNotFound, ReceiptMismatch, TooLarge)

    def _namer(self, definition: StoreDefinition[_T]) -> _Namer[_T]:
        return _Namer(None if isinstance(self._store, Joinable) else definition.schema.encode)

    # --- the way of every call --------------------------------------------------

    async def _recorded(
        self, key: str, kind: str, store: StoreKey, live: Callable[[StoreCall], Awaitable[Outcome[Named, StoreFailure]]]
    ) -> Outcome[Named, StoreFailure]:
        """The recorded outcome of a call, or what it comes to now, recorded and handed over in its turn."""
        asked = await self._record.begin(key, kind, str(store))
        if asked.row is not None:
            await self._record.hand_over(asked.row)
            return _outcome(asked.row)
        call = StoreCall(self._record, self._record.new(key, kind, str(store)), store)
        try:
            outcome = await live(call)
        except _Cancelled:
            call.cut()
            await self._record.complete_cancelled(key, kind, str(store))
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, Suspended, SystemExit):
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

    async def _apply(
        self,
        call: StoreCall,
        operation: Operation[_A, StoreFailure],
        name: Callable[[_A], Named],
        plain: Callable[[], Awaitable[Outcome[_A, StoreFailure | Passing]]],
    ) -> Outcome[Named, StoreFailure]:
        store = self._store
        if not isinstance(store, Joinable):
            return _map(await self._insistently(plain), name)

        def join(outcome: Outcome[_A, StoreFailure | ReceiptMismatch | TooLarge]) -> Batch:
            return call.join(_map(outcome, name))

        return _map(await self._insistently(lambda: store.apply(operation, join)), name)

    async def _insistently(
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
                raise _Cancelled

    # --- states of recorded revisions -------------------------------------------

    async def _snapshot(
        self, definition: StoreDefinition[_T], id: str, recorded: Outcome[Named, StoreFailure]
    ) -> Outcome[Snapshot[_T], StoreFailure]:
        if isinstance(recorded, Failure):
            return recorded
        read = await self._state(definition, id, recorded.unwrap())
        return _map(read, lambda pair: snapshot_of(partial(definition.schema.clone, pair[0]), pair[1]))

    async def _updated(
        self, definition: StoreDefinition[_T], id: str, recorded: Outcome[Named, StoreFailure]
    ) -> Outcome[Updated[_T], StoreFailure]:
        if isinstance(recorded, Failure):
            return recorded
        read = await self._state(definition, id, recorded.unwrap())
        before = recorded.unwrap().previous_version or 0
        return _map(read, lambda pair: updated_of(partial(definition.schema.clone, pair[0]), before, pair[1]))

    async def _state(
        self, definition: StoreDefinition[_T], id: str, named: Named
    ) -> Outcome[tuple[_T, Revision], StoreFailure]:
        """The state that a row holds, or at the revision that it pins."""
        key, revision, json = definition.key(id), _revision_of(named), named.value
        if json is None:
            read = await self._insistently(partial(self._ledger.document, key, revision), cancellable=False)
            if isinstance(read, Failure):
                return read
            document = read.unwrap()
            if document is None:
                self._record.stop(
                    f"revision {revision.version} of store {key}, which the run has read, is kept no more"
                )
            whole = read_document(key, document)
            if isinstance(whole, Failure):
                self._record.stop(whole.failure().reason)
            json = whole.unwrap()
        decoded = definition.schema.decode(json)
        if isinstance(decoded, Failure):  # it fitted when it was recorded
            issues = "; ".join(f"{'.'.join(map(str, issue.path))}: {issue.message}" for issue in decoded.failure())
            self._record.stop(
                f"revision {revision.version} of store {key}, which the run has read, no longer fits its type: {issues}"
            )
        return Success((decoded.unwrap(), revision))

    def _selected(self, named: Named, codec: Codec, what: str) -> object:
        """The value that a row holds. It fitted when it was recorded."""
        try:
            return codec.decode(named.value or b"null", what)
        except Exception as error:  # a validator may raise anything
            self._record.stop(f"what was recorded no longer fits the code: {error}")


# --- helpers ------------------------------------------------------------------


def _map(outcome: Outcome[_A, _F], make: Callable[[_A], _B]) -> Outcome[_B, _F]:
    return outcome if isinstance(outcome, Failure) else Success(make(outcome.unwrap()))


def _only(outcome: Outcome[_A, StoreFailure], *kinds: type[_F]) -> Outcome[_A, _F]:
    """The outcome of a call that meets failures of these kinds and no others."""
    if isinstance(outcome, Success):
        return outcome
    failure = outcome.failure()
    for kind in kinds:
        if isinstance(failure, kind):
            return Failure(failure)
    raise AssertionError(f"a store call met {failure!r}, which it cannot meet")


@final
class _Cancelled(Exception):
    """Cancellation of the run came while a store could not answer."""


@final
class _Namer(Generic[_T]):
    """How a row names a state: by its revision, and by the state itself where `encode` is given."""

    __slots__ = ("_encode",)

    def __init__(self, encode: Callable[[_T], bytes] | None) -> None:
        self._encode = encode

    def snapshot(self, snapshot: Snapshot[_T]) -> Named:
        return Named("snapshot", snapshot.revision, value=self._value(snapshot))

    def updated(self, updated: Updated[_T]) -> Named:
        return Named("updated", updated.revision, updated.previous_version, self._value(updated))

    def _value(self, answer: Snapshot[_T] | Updated[_T]) -> bytes | None:
        return None if self._encode is None else self._encode(answer.state)


def _outcome(row: StepRow) -> Outcome[Named, StoreFailure]:
    """What a recorded call came to, or what it raised."""
    if row.status == "failed":
        raise_recorded(row)
    return read_outcome(row.value or b"{}")


def _name_deleted(_: Deleted) -> Named:
    return Named("deleted")


def _revision_of(named: Named) -> Revision:
    if named.revision is None:
        raise AssertionError(f"the recorded {named.kind} names no revision")
    return named.revision


def _revision(expected: Snapshot[object] | Revision) -> Revision:
    return expected if isinstance(expected, Revision) else expected.revision


def _not_awaitable(value: object, key: str) -> object:
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(f"the selector of {key!r} is async; a selector is an ordinary function of the state")
