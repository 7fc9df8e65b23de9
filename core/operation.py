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
from typing import ClassVar, Final, Generic, Literal, Never, Protocol, TypeVar, cast

from msgspec import Struct

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
from .change import Change, Miss, decide_change, decide_take
from .codec import result_codec
from .held import Decoded, Held, read_snapshot
from .model import (
    Conflict,
    Deleted,
    InvalidState,
    Replace,
    Revision,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    Taken,
    TooLarge,
    Unmatched,
    Updated,
    updated_of,
)
from .outcome import Failure, Outcome, Success
from .schema import Disagreement, StateSchema
from .step import VALUE_BYTES

__all__ = [
    "STATE_BYTES",
    "Create",
    "Delete",
    "DeleteFrom",
    "Held",
    "Operation",
    "Planned",
    "Take",
    "Update",
    "UpdateFrom",
    "admit_size",
]

_R = TypeVar("_R")
_T = TypeVar("_T")
_A = TypeVar("_A")
_E = TypeVar("_E")
_A_co = TypeVar("_A_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)

# --- limits -----------------------------------------------------------------

STATE_BYTES: Final = 16 * 1024 * 1024
"""The largest state, as JSON, unless a store is given another limit."""

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

    def erased(self, receipt: Receipt) -> Outcome[_A_co, _E_co]:
        """The outcome where the state that `answer` needs was erased."""
        ...


def admit_size(planned: Planned[_A, _E], key: StoreKey, limit_bytes: int) -> Planned[_A, _E | TooLarge]:
    """The plan, or in its place that the state it would write is larger than the limit."""
    held = planned.held
    if held is None or held.size_bytes <= limit_bytes or not planned.batch.writes:
        return planned
    held = held.measured()
    if held.size_bytes <= limit_bytes:
        return Planned(planned.outcome, held, planned.batch)
    return Planned(Failure(TooLarge(f"the state of store {key}", held.size_bytes, limit_bytes)), None)


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
        batch = Batch((StoreAbsent(self.key, revision),), (CreateStore(self.key, revision, json, self.schema.form),))
        decoded: Decoded[_T] = Decoded(self.schema, state)
        made = Held(revision, len(json), decoded=decoded, form=self.schema.form)
        return Planned(read_snapshot(self.key, self.schema, made), made, batch)

    def answer(self, receipt: Receipt, held: Held | None) -> Never:
        raise LookupError(f"the creation of {self.key} leaves no receipt, and {receipt} is none of it")

    def erased(self, receipt: Receipt) -> Never:
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

    def erased(self, receipt: Receipt) -> Failure[StoreNotFound]:
        return Failure(_erased(receipt))


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

    def erased(self, receipt: Receipt) -> Failure[StoreNotFound]:
        return Failure(_erased(receipt))


def _plan_change(operation: Update[_T] | UpdateFrom[_T], held: Held) -> Planned[Updated[_T], InvalidState]:
    key, schema = operation.key, operation.schema
    known = held.known(schema)
    if known is None:
        read = held.read(schema)
        if not isinstance(read, Success):
            return Planned(Failure(InvalidState(key, read.failure())), held)
        state = read.unwrap()
    else:
        state = known.state
    try:
        changed = decide_change(schema, state, operation.updater, stored=held.stored, form=held.form)
    except Disagreement as error:
        raise error.of(key) from None
    if not isinstance(changed, Success):
        return Planned(Failure(InvalidState(key, changed.failure())), held)
    change: Change[_T] = changed.unwrap()
    before, revision = held.revision, _next(held)
    batch = _exactly_once(operation, held, _patch(key, held, schema, change, revision), revision)
    updated = updated_of(partial(schema.clone, change.state), before.version, revision)
    return Planned(Success(updated), _after(held, schema, change, revision), batch)


def _next(held: Held) -> Revision:
    return Revision(held.revision.instance_id, held.revision.version + 1)


def _patch(key: StoreKey, held: Held, schema: StateSchema[_T], change: Change[_T], revision: Revision) -> PatchStore:
    """The write of a change; it names the form of the document only where that becomes another."""
    form = None if change.is_nothing or held.form == schema.form else schema.form
    return PatchStore(key, revision, change.patch_json, change.changed_paths, form)


def _after(held: Held, schema: StateSchema[_T], change: Change[_T], revision: Revision) -> Held:
    """What is held once the change is committed as `revision`."""
    if change.is_nothing:  # of the very state, whose document may still be another's
        return Held(revision, held.size_bytes, held.log_rows + 1, held.log_bytes, held.stored, held.decoded, held.form)
    size_bytes = held.size_bytes + len(change.patch_json) if change.json is None else len(change.json)
    log_bytes = held.log_bytes + len(change.patch_json)
    decoded: Decoded[_T] = Decoded(schema, change.state)
    return Held(revision, size_bytes, held.log_rows + 1, log_bytes, None, decoded, schema.form)


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
    operation: Update[_T] | UpdateFrom[_T] | Take[_T, _R] | DeleteFrom,
    held: Held,
    write: Write,
    revision: Revision,
    value: bytes = b"",
) -> Batch:
    """`write` on what is held, with its receipt of `revision` and `value`, if a step asks for one."""
    key, step = operation.key, operation.step
    expects: tuple[Expectation, ...] = (StoreAt(key, held.revision),)
    if step is None:
        return Batch(expects, (write,))
    receipt = Receipt(key, step, operation.kind, revision, value)
    return Batch((*expects, NoReceipt(key, step, operation.kind)), (write, WriteReceipt(receipt)))


def _erased(receipt: Receipt) -> StoreNotFound:
    """The answer to a step whose own was erased."""
    revision = receipt.revision
    reason = (
        f"step {receipt.step.key!r} of run {receipt.step.run_id!r} was applied and made version {revision.version} of "
        f"{receipt.key}, whose state was erased by purge; it is not applied again, and a retry does not help"
    )
    return StoreNotFound(receipt.key, revision, reason)


# --- taking -----------------------------------------------------------------


class Take(Struct, Generic[_T, _R], frozen=True):
    """Change what a selector finds by a claim, in one commit; a miss changes nothing, and leaves no receipt.

    With `instance_id` it takes from that instance of the store alone, and from another one it finds no store.
    With a step the receipt keeps what was selected, by the codec of the selector's annotation, and gives it again; a
    TypeError says what cannot be kept so, before anything is written.
    """

    key: StoreKey
    schema: StateSchema[_T]
    selector: Callable[[_T], _R | Literal[False] | None]
    claim: Callable[[_T, _R], None]
    step: StepId | None = None
    instance_id: str | None = None
    kind: ClassVar[str] = "take"
    answers_state: ClassVar[bool] = False

    def plan(self, held: Held | None) -> Planned[Taken[_R], Unmatched | StoreNotFound | InvalidState | TooLarge]:
        key, schema = self.key, self.schema
        if held is None or self.instance_id not in (None, held.revision.instance_id):
            return Planned(Failure(StoreNotFound(key)), held)
        read = held.read(schema)
        if not isinstance(read, Success):
            return Planned(Failure(InvalidState(key, read.failure())), held)
        try:
            decided = decide_take(schema, read.unwrap(), self.selector, self.claim, stored=held.stored, form=held.form)
        except Disagreement as error:
            raise error.of(key) from None
        if not isinstance(decided, Success):
            return Planned(Failure(InvalidState(key, decided.failure())), held)
        found = decided.unwrap()
        if isinstance(found, Miss):
            return Planned(Failure(Unmatched(held.revision, held.reads(schema, found.read_paths))), held)
        selected, value, change = found.selected, b"", found.change
        if self.step is not None:
            value = result_codec(self.selector).encode(selected, _what(self.step))
            if len(value) > VALUE_BYTES:
                return Planned(Failure(TooLarge(_what(self.step), len(value), VALUE_BYTES)), held)
            selected = self._read(self.step, value)
        revision = _next(held)
        batch = _exactly_once(self, held, _patch(key, held, schema, change, revision), revision, value)
        return Planned(Success(Taken(selected, revision)), _after(held, schema, change, revision), batch)

    def answer(
        self, receipt: Receipt, held: Held | None
    ) -> Outcome[Taken[_R], Unmatched | StoreNotFound | InvalidState | TooLarge]:
        if not receipt.value:  # a value is JSON, which is never empty
            return self.erased(receipt)
        return Success(Taken(self._read(receipt.step, receipt.value), receipt.revision))

    def erased(self, receipt: Receipt) -> Failure[StoreNotFound]:
        return Failure(_erased(receipt))

    def _read(self, step: StepId, value: bytes) -> _R:
        # The codec gives back what the selector's annotation says, and it says _R.
        return cast(_R, result_codec(self.selector).decode(value, _what(step)))


def _what(step: StepId) -> str:
    return f"the value that step {step.key!r} selected"


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

    def erased(self, receipt: Receipt) -> Never:
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

    def erased(self, receipt: Receipt) -> Success[Deleted]:
        return Success(Deleted())
