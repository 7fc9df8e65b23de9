"""The durable calls of one run on stores, as `RunStore` asks for them: what each performs, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Generic, NoReturn, TypeVar, final

from ...core.codec import Codec
from ...core.held import read_snapshot
from ...core.model import (
    Conflict,
    Deleted,
    InvalidState,
    Issue,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    Taken,
    TimedOut,
    TooLarge,
    Unmatched,
    Updated,
    snapshot_of,
    updated_of,
)
from ...core.operation import Create, DeleteFrom, Update, UpdateFrom
from ...core.outcome import Failure, Outcome, Success
from ...core.schema import StateSchema
from ...core.store_outcome import Named, StoreFailure
from ...services.store import (
    Claim,
    Initial,
    Selector,
    StoreDefinition,
    Updater,
    resolve_initial,
)
from .record import RunRecord
from .store_call import StoreCall
from .store_steps import StoreSteps, Told, mapped, told, unanswered
from .store_waits import Looking, StoreWaits, Taking, encoded_selection, not_awaitable
from .tools import Tools

__all__ = ["DrivenStores"]

_A = TypeVar("_A")
_F = TypeVar("_F")
_R = TypeVar("_R")
_T = TypeVar("_T")


@final
class DrivenStores:
    """The store calls of one run."""

    def __init__(self, record: RunRecord, tools: Tools) -> None:
        self._record = record
        self._past = tools.past
        self._store = tools.store
        self._joinable = tools.joinable
        self._ids = tools.ids
        self._steps = StoreSteps(record, tools)
        self._waits = StoreWaits(record, tools, self._steps)

    # --- reads ----------------------------------------------------------------

    async def get(
        self, key: str, definition: StoreDefinition[_T], id: str, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState]:
        # Nothing keeps an earlier version until its row pins it, so that row holds the state.
        namer = self._namer(definition) if version is None else _Namer(definition.schema)

        async def live(_: StoreCall) -> Outcome[Told[Snapshot[_T]], StoreFailure]:
            return mapped(await self._get(definition, id, version), partial(told, namer.snapshot))

        read = partial(self._snapshot, definition, id)
        recorded = await self._steps.recorded(key, "store.get", definition.key(id), live, read)
        return _only(recorded, StoreNotFound, InvalidState)

    async def select(
        self, key: str, definition: StoreDefinition[_T], id: str, selector: Callable[[_T], object], codec: Codec
    ) -> Outcome[object, StoreNotFound | InvalidState]:
        what = f"the value that {key!r} selected"

        def name(snapshot: Snapshot[_T]) -> Named:
            chosen = not_awaitable(selector(snapshot.state), key)
            return Named("selected", snapshot.revision, value=encoded_selection(chosen, codec, what))

        async def live(_: StoreCall) -> Outcome[Told[object], StoreFailure]:
            return mapped(await self._get(definition, id), lambda snapshot: unanswered(name(snapshot)))

        async def read(named: Named) -> object:
            return self._selected(named, codec, what)

        recorded = await self._steps.recorded(key, "store.select", definition.key(id), live, read)
        return _only(recorded, StoreNotFound, InvalidState)

    async def _get(
        self, definition: StoreDefinition[_T], id: str, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreFailure]:
        if version is None:
            return await self._steps.insistently(partial(self._store.get, definition, id))
        return await self._steps.insistently(partial(self._store.get, definition, id, version=version))

    # --- writes ---------------------------------------------------------------

    async def get_or_create(
        self, key: str, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge]:
        store_key = definition.key(id)

        async def live(call: StoreCall) -> Outcome[Told[Snapshot[_T]], StoreFailure]:
            found = await self._get(definition, id)
            name = self._namer(definition).snapshot
            if isinstance(found, Success) or not isinstance(found.failure(), StoreNotFound):
                return mapped(found, partial(told, name))
            value = await resolve_initial(initial)
            operation = Create(store_key, definition.schema, value, self._ids.new())
            call.creates = operation.instance_id
            plain = partial(self._store.get_or_create, definition, id, value)
            return await self._steps.apply(call, operation, name, plain)

        read = partial(self._snapshot, definition, id)
        recorded = await self._steps.recorded(key, "store.get_or_create", store_key, live, read)
        return _only(recorded, InvalidState, TooLarge)

    async def update(
        self, key: str, definition: StoreDefinition[_T], id: str, updater: Updater[_T]
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
        step = StepId(self._record.row.id, key)

        async def live(call: StoreCall) -> Outcome[Told[Updated[_T]], StoreFailure]:
            operation = Update(definition.key(id), definition.schema, updater, step)
            plain = partial(self._store.update, definition, id, updater, step=step)
            return await self._steps.apply(call, operation, self._namer(definition).updated, plain)

        read = partial(self._updated, definition, id)
        recorded = await self._steps.recorded(key, "store.update", definition.key(id), live, read)
        return _only(recorded, StoreNotFound, InvalidState, ReceiptMismatch, TooLarge)

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

        async def live(call: StoreCall) -> Outcome[Told[Updated[_T]], StoreFailure]:
            operation = UpdateFrom(definition.key(id), definition.schema, revision, updater, step)
            plain = partial(self._store.update_from, definition, id, revision, updater, step=step)
            return await self._steps.apply(call, operation, self._namer(definition).updated, plain)

        read = partial(self._updated, definition, id)
        recorded = await self._steps.recorded(key, "store.update_from", definition.key(id), live, read)
        return _only(recorded, Conflict, StoreNotFound, InvalidState, ReceiptMismatch, TooLarge)

    async def delete_from(
        self, key: str, definition: StoreDefinition[_T], id: str, expected: Snapshot[_T] | Revision
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge]:
        step = StepId(self._record.row.id, key)
        revision = _revision(expected)

        async def live(call: StoreCall) -> Outcome[Told[Deleted], StoreFailure]:
            operation = DeleteFrom(definition.key(id), revision, step)
            plain = partial(self._store.delete_from, definition, id, revision, step=step)
            return await self._steps.apply(call, operation, _name_deleted, plain)

        async def read(_: Named) -> Deleted:
            return Deleted()

        recorded = await self._steps.recorded(key, "store.delete_from", definition.key(id), live, read)
        return _only(recorded, Conflict, StoreNotFound, ReceiptMismatch, TooLarge)

    # --- takes and waits ------------------------------------------------------

    async def take_now(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        codec: Codec,
    ) -> Outcome[Taken[object], Unmatched | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
        taking = Taking(key, definition, id, selector, codec, claim)

        async def live(call: StoreCall) -> Outcome[Told[Taken[object]], StoreFailure]:
            return mapped(await self._waits.take_once(call, taking, None), unanswered)

        async def read(named: Named) -> Taken[object]:
            return self._taken(named, taking)

        recorded = await self._steps.recorded(key, "store.take_now", taking.store, live, read)
        return _only(recorded, Unmatched, StoreNotFound, InvalidState, ReceiptMismatch, TooLarge)

    async def take(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        codec: Codec,
    ) -> Outcome[Taken[object], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]:
        taking = Taking(key, definition, id, selector, codec, claim)
        recorded = await self._waits.take(taking)
        taken = mapped(recorded, lambda named: self._taken(named, taking))
        return _only(taken, StoreNotFound, InvalidState, ReceiptMismatch, TooLarge)

    def _taken(self, named: Named, taking: Taking[_T, _R]) -> Taken[object]:
        return Taken(self._selected(named, taking.codec, taking.what), _revision_of(named))

    async def when(
        self,
        key: str,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, object],
        codec: Codec,
        timeout_ms: int | None,
    ) -> Outcome[object, StoreNotFound | InvalidState | TimedOut]:
        looking = Looking(key, definition, id, selector, codec)
        recorded = await self._waits.when(looking, timeout_ms)
        found = mapped(recorded, lambda named: self._selected(named, codec, looking.what))
        return _only(found, StoreNotFound, InvalidState, TimedOut)

    def _namer(self, definition: StoreDefinition[_T]) -> _Namer[_T]:
        return _Namer(definition.schema if self._joinable is None else None)

    # --- states of recorded revisions -------------------------------------------

    async def _snapshot(self, definition: StoreDefinition[_T], id: str, named: Named) -> Snapshot[_T]:
        """What the run has read, as its row names it: the state that the row holds, or that at the revision it pins."""
        if named.value is None:
            return await self._at(definition, id, _revision_of(named))
        decoded = definition.schema.decode_from(named.value, named.form)
        if isinstance(decoded, Failure):
            self._no_longer_fits(definition.key(id), _revision_of(named), decoded.failure())
        return snapshot_of(partial(definition.schema.clone, decoded.unwrap()), _revision_of(named))

    async def _updated(self, definition: StoreDefinition[_T], id: str, named: Named) -> Updated[_T]:
        snapshot = await self._snapshot(definition, id, named)
        return updated_of(lambda: snapshot.state, named.previous_version or 0, snapshot.revision)

    async def _at(self, definition: StoreDefinition[_T], id: str, revision: Revision) -> Snapshot[_T]:
        """The state at a revision that a row pins: the ledger has it, whichever store is there now."""
        key = definition.key(id)
        read = await self._steps.insistently(partial(self._past.at, key, revision), cancellable=False)
        assert isinstance(read, Success), "to read a revision meets nothing but `Unavailable`"
        held = read.unwrap()
        if held is None:
            self._record.stop_erased(key, revision)
        snapshot = read_snapshot(key, definition.schema, held)
        if isinstance(snapshot, Failure):
            self._no_longer_fits(key, revision, snapshot.failure().issues)
        return snapshot.unwrap()

    def _no_longer_fits(self, key: StoreKey, revision: Revision, issues: tuple[Issue, ...]) -> NoReturn:
        """It did when it was recorded."""
        told = "; ".join(map(_told, issues))
        self._record.stop(
            f"revision {revision.version} of store {key}, which the run has read, no longer fits its type: {told}"
        )

    def _selected(self, named: Named, codec: Codec, what: str) -> object:
        """The value that a row holds. It fitted when it was recorded."""
        try:
            return codec.decode(named.value or b"null", what)
        except Exception as error:  # a validator may raise anything
            self._record.stop(f"what was recorded no longer fits the code: {error}")


# --- helpers ------------------------------------------------------------------


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
class _Namer(Generic[_T]):
    """How a row names a state: by its revision, and by the state itself where its schema is given."""

    __slots__ = ("_schema",)

    def __init__(self, schema: StateSchema[_T] | None) -> None:
        self._schema = schema

    def snapshot(self, snapshot: Snapshot[_T]) -> Named:
        return self._with_state(Named("snapshot", snapshot.revision), snapshot)

    def updated(self, updated: Updated[_T]) -> Named:
        return self._with_state(Named("updated", updated.revision, updated.previous_version), updated)

    def _with_state(self, named: Named, answer: Snapshot[_T] | Updated[_T]) -> Named:
        schema = self._schema
        return named if schema is None else replace(named, value=schema.encode(answer.state), form=schema.form)


def _told(issue: Issue) -> str:
    return f"{'.'.join(map(str, issue.path))}: {issue.message}" if issue.path else issue.message


def _name_deleted(_: Deleted) -> Named:
    return Named("deleted")


def _revision_of(named: Named) -> Revision:
    if named.revision is None:
        raise AssertionError(f"the recorded {named.kind} names no revision")
    return named.revision


def _revision(expected: Snapshot[object] | Revision) -> Revision:
    return expected if isinstance(expected, Revision) else expected.revision
