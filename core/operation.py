"""What can be done to a store, as pure plans: what was read -> what to answer and what to commit.

A writing call of the store service is one `Operation`. Its `plan` runs the user's code on what the store holds and
gives the answer together with the batch that makes it true; the caller commits the batch, and plans again from what
is then there if another writer was faster. `answer` reads the outcome back from a receipt. Nothing here waits or
writes, so the engine can join a plan with the rows of a run in one batch.

A plan whose batch is empty changes nothing: its answer is true of the state that it was given, and of no later one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final, Generic, Never, Protocol, TypeGuard, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from .batch import (
    Batch,
    CreateStore,
    DeleteStore,
    Expectation,
    NoReceipt,
    PatchStore,
    Receipt,
    StoreAbsent,
    StoreAt,
    Write,
    WriteReceipt,
)
from .change import Change, decide_change
from .model import (
    Conflict,
    Deleted,
    InvalidState,
    Issue,
    Replace,
    Revision,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    TooLarge,
    Updated,
    snapshot_of,
    updated_of,
)
from .outcome import Failure, Outcome, Success
from .schema import StateSchema

__all__ = [
    "STATE_BYTES",
    "Create",
    "Delete",
    "DeleteFrom",
    "Held",
    "Operation",
    "Planned",
    "Update",
    "UpdateFrom",
    "admit_size",
    "read_snapshot",
    "wants_base",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_A = TypeVar("_A")
_E = TypeVar("_E")
_A_co = TypeVar("_A_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)

# --- limits -----------------------------------------------------------------

STATE_BYTES: Final = 16 * 1024 * 1024
"""The largest state, as JSON, unless a store is given another limit."""

LOG_ROW_BYTES: Final = 80
"""What reading one more patch costs, as bytes of a document: many small ones are dearer than their length says."""

LOG_BYTES: Final = 8 * 1024
"""How long the log of even the smallest state may grow before a base is worth its write: about 100 patches."""

# --- what is held -----------------------------------------------------------


class _Decoded(Struct, Generic[_T_co], frozen=True):
    """`as_encoded`: the document is known to be what the schema makes of the state."""

    schema: object
    state: _T_co
    as_encoded: bool = False


def _is_by(decoded: _Decoded[object], schema: StateSchema[_T]) -> TypeGuard[_Decoded[_T]]:
    """A schema makes states of its own type only, so that it is the same one proves the type."""
    return decoded.schema is schema


class Held(Struct, frozen=True):
    """A committed state as the planner holds it: its revision, and the whole state as a JSON document.

    `log_rows` and `log_bytes` say how many patches, and how long together, lead to it from the base before it.
    `decoded` is what the schema that read it last made of the document; it is never changed.
    """

    revision: Revision
    json: bytes
    log_rows: int = 0
    log_bytes: int = 0
    decoded: _Decoded[object] | None = None

    def read(self, schema: StateSchema[_T]) -> Outcome[_T, tuple[Issue, ...]]:
        """The state, to be looked at and never changed; or why its type no longer accepts it."""
        if self.decoded is not None and _is_by(self.decoded, schema):
            return Success(self.decoded.state)
        decoded = schema.decode(self.json)
        if isinstance(decoded, Success):
            force_setattr(self, "decoded", _Decoded(schema, decoded.unwrap()))
        return decoded

    @property
    def is_as_encoded(self) -> bool:
        """Whether the document is known to be what the schema that read it last makes of the state."""
        return self.decoded is not None and self.decoded.as_encoded

    def after(self, revision: Revision, json: bytes, patches: int, patch_bytes: int) -> Held:
        """What is held after some more patches."""
        return Held(revision, json, self.log_rows + patches, self.log_bytes + patch_bytes)

    def based(self) -> Held:
        """The same with a base of its own, from which the log begins anew."""
        return replace(self, log_rows=0, log_bytes=0)


def read_snapshot(key: StoreKey, schema: StateSchema[_T], held: Held) -> Outcome[Snapshot[_T], InvalidState]:
    """What is held, to be handed out."""
    read = held.read(schema)
    if isinstance(read, Failure):
        return Failure(InvalidState(key, read.failure()))
    return Success(snapshot_of(partial(schema.clone, read.unwrap()), held.revision))


def wants_base(held: Held) -> bool:
    """Whether a base is due: its write is paid for by the reads of the log that it saves."""
    return held.log_rows * LOG_ROW_BYTES + held.log_bytes > max(LOG_BYTES, len(held.json) // 2)


# --- plans ------------------------------------------------------------------

_NOTHING: Final = Batch()


class Planned(Struct, Generic[_A_co, _E_co], frozen=True):
    """What an operation comes to: the outcome once `batch` is committed, and what the store holds then.

    None is held where there is no store.
    """

    outcome: Outcome[_A_co, _E_co]
    held: Held | None
    batch: Batch = _NOTHING


class Operation(Protocol[_A_co, _E_co]):
    """One writing call of the store service, for one store.

    `kind` is the word for it in its receipt; `answers_state` says whether `answer` needs the state that this names.
    """

    kind: ClassVar[str]
    answers_state: ClassVar[bool]

    @property
    def key(self) -> StoreKey: ...

    @property
    def step(self) -> StepId | None:
        """The step that makes the operation exactly-once, if one does."""
        ...

    def plan(self, held: Held | None) -> Planned[_A_co, _E_co]:
        """What the operation makes of what is held; `held` is not changed. What the user's code raises is passed on."""
        ...

    def answer(self, receipt: Receipt, held: Held | None) -> Outcome[_A_co, _E_co]:
        """The outcome that a receipt of this operation records. `held` is the state at the receipt's revision."""
        ...


def admit_size(planned: Planned[_A, _E], key: StoreKey, limit_bytes: int) -> Planned[_A, _E | TooLarge]:
    """The plan, or in its place that the state it would write is larger than the limit."""
    held = planned.held
    if held is None or len(held.json) <= limit_bytes or not planned.batch.writes:
        return planned
    return Planned(Failure(TooLarge(f"the state of store {key}", len(held.json), limit_bytes)), None)


# --- creation ---------------------------------------------------------------


class Create(Struct, Generic[_T], frozen=True):
    """Make the store with `initial` as its state; where there is one already, that one is the answer."""

    key: StoreKey
    schema: StateSchema[_T]
    initial: _T
    instance_id: str
    kind: ClassVar[str] = "create"
    answers_state: ClassVar[bool] = True

    @property
    def step(self) -> None:
        """None: made again it finds what it did, so it needs no receipt."""

    def plan(self, held: Held | None) -> Planned[Snapshot[_T], InvalidState]:
        if held is not None:
            return Planned(read_snapshot(self.key, self.schema, held), held)
        valid = self.schema.validate(self.initial)
        if isinstance(valid, Failure):
            return Planned(Failure(InvalidState(self.key, valid.failure())), None)
        state, json = valid.unwrap().state, valid.unwrap().json
        revision = Revision(self.instance_id, 0)
        batch = Batch((StoreAbsent(self.key, revision),), (CreateStore(self.key, revision, json),))
        made = Held(revision, json, decoded=_Decoded(self.schema, state, as_encoded=True))
        return Planned(read_snapshot(self.key, self.schema, made), made, batch)

    def answer(self, receipt: Receipt, held: Held | None) -> Never:
        raise LookupError(f"the creation of {self.key} leaves no receipt, and {receipt} is none of it")


# --- updates ----------------------------------------------------------------


class Update(Struct, Generic[_T], frozen=True):
    """Change the state that is in force, whichever revision that is."""

    key: StoreKey
    schema: StateSchema[_T]
    updater: Callable[[_T], Replace[_T] | None]
    step: StepId | None = None
    kind: ClassVar[str] = "update"
    answers_state: ClassVar[bool] = True

    def plan(self, held: Held | None) -> Planned[Updated[_T], StoreNotFound | InvalidState]:
        if held is None:
            return Planned(Failure(StoreNotFound(self.key)), None)
        return _plan_change(self, held)

    def answer(self, receipt: Receipt, held: Held | None) -> Outcome[Updated[_T], StoreNotFound | InvalidState]:
        return _answer_change(self, receipt, held)


class UpdateFrom(Struct, Generic[_T], frozen=True):
    """Change the state if it is still at the expected revision. The base is the stored state, never a caller's copy."""

    key: StoreKey
    schema: StateSchema[_T]
    expected: Revision
    updater: Callable[[_T], Replace[_T] | None]
    step: StepId | None = None
    kind: ClassVar[str] = "update_from"
    answers_state: ClassVar[bool] = True

    def plan(self, held: Held | None) -> Planned[Updated[_T], Conflict | StoreNotFound | InvalidState]:
        if held is None:
            return Planned(Failure(StoreNotFound(self.key, self.expected)), None)
        if held.revision != self.expected:
            return Planned(Failure(Conflict(self.key, self.expected, held.revision)), held)
        return _plan_change(self, held)

    def answer(
        self, receipt: Receipt, held: Held | None
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState]:
        return _answer_change(self, receipt, held)


def _plan_change(operation: Update[_T] | UpdateFrom[_T], held: Held) -> Planned[Updated[_T], InvalidState]:
    key, schema = operation.key, operation.schema
    read = held.read(schema)
    if not isinstance(read, Success):
        return Planned(Failure(InvalidState(key, read.failure())), held)
    changed = decide_change(schema, read.unwrap(), held.json, operation.updater, as_encoded=held.is_as_encoded)
    if not isinstance(changed, Success):
        return Planned(Failure(InvalidState(key, changed.failure())), held)
    change: Change[_T] = changed.unwrap()
    before = held.revision
    revision = Revision(before.instance_id, before.version + 1)
    batch = _exactly_once(operation, held, PatchStore(key, revision, change.patch_json), revision)
    updated = updated_of(partial(schema.clone, change.state), before.version, revision)
    after = Held(
        revision,
        change.json,
        held.log_rows + 1,
        held.log_bytes + len(change.patch_json),
        _Decoded(schema, change.state, as_encoded=True),
    )
    return Planned(Success(updated), after, batch)


def _answer_change(
    operation: Update[_T] | UpdateFrom[_T], receipt: Receipt, held: Held | None
) -> Outcome[Updated[_T], InvalidState]:
    if held is None:
        raise LookupError(f"the answer to {receipt} needs the state at its revision")
    read = held.read(operation.schema)
    if isinstance(read, Failure):
        return Failure(InvalidState(operation.key, read.failure()))
    revision = receipt.revision
    return Success(updated_of(partial(operation.schema.clone, read.unwrap()), revision.version - 1, revision))


def _exactly_once(
    operation: Update[_T] | UpdateFrom[_T] | DeleteFrom, held: Held, write: Write, revision: Revision
) -> Batch:
    """`write` on what is held, with its receipt, `revision` being what the receipt names, if a step asks for one."""
    key, step = operation.key, operation.step
    expects: tuple[Expectation, ...] = (StoreAt(key, held.revision),)
    if step is None:
        return Batch(expects, (write,))
    receipt = Receipt(key, step, operation.kind, revision)
    return Batch((*expects, NoReceipt(key, step, operation.kind)), (write, WriteReceipt(receipt)))


# --- deletion ---------------------------------------------------------------


class Delete(Struct, frozen=True):
    """Delete the store, if there is one."""

    key: StoreKey
    kind: ClassVar[str] = "delete"
    answers_state: ClassVar[bool] = False

    @property
    def step(self) -> None:
        """None: made again it finds what it did, so it needs no receipt."""

    def plan(self, held: Held | None) -> Planned[None, Never]:
        if held is None:
            return Planned(Success(None), None)
        batch = Batch((StoreAt(self.key, held.revision),), (DeleteStore(self.key, held.revision),))
        return Planned(Success(None), None, batch)

    def answer(self, receipt: Receipt, held: Held | None) -> Never:
        raise LookupError(f"the deletion of {self.key} leaves no receipt, and {receipt} is none of it")


class DeleteFrom(Struct, frozen=True):
    """Delete the store if it is still at the expected revision."""

    key: StoreKey
    expected: Revision
    step: StepId | None = None
    kind: ClassVar[str] = "delete_from"
    answers_state: ClassVar[bool] = False

    def plan(self, held: Held | None) -> Planned[Deleted, Conflict | StoreNotFound]:
        if held is None:
            return Planned(Failure(StoreNotFound(self.key, self.expected)), None)
        if held.revision != self.expected:
            return Planned(Failure(Conflict(self.key, self.expected, held.revision)), held)
        batch = _exactly_once(self, held, DeleteStore(self.key, held.revision), held.revision)
        return Planned(Success(Deleted()), None, batch)

    def answer(self, receipt: Receipt, held: Held | None) -> Outcome[Deleted, Conflict | StoreNotFound]:
        return Success(Deleted())
