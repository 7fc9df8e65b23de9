"""Stores: typed state under a name and an id, changed by compare-and-swap.

`define_store` names a type of store; `Store` has the calls; `StoreHandle` is the same calls bound to one store.

An updater gets a draft of the state and changes it in place, or returns `Replace(value)`. It is an ordinary function
without side effects: it may run several times, and only its last run counts. With a step id a writing call is applied
once, however often it is made: the receipt is looked up first, and found, its result is given and no user code runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar, cast, final, runtime_checkable

from ..core.batch import Batch, Fenced
from ..core.kind import is_a
from ..core.look import Looked
from ..core.model import (
    Conflict,
    Contended,
    Deleted,
    InvalidState,
    ReceiptMismatch,
    Replace,
    Revision,
    Snapshot,
    StepId,
    StoreNotFound,
    Taken,
    TimedOut,
    TooLarge,
    Unavailable,
    Unmatched,
    Updated,
)
from ..core.operation import Operation
from ..core.outcome import Failure, Outcome, Success
from .clock import span_ms
from .definition import StoreDefinition, admit_definition, define_store

if TYPE_CHECKING:
    pass

__all__ = [
    "Claim",
    "Initial",
    "Join",
    "Joinable",
    "Lookable",
    "Looked",
    "Selector",
    "Store",
    "StoreDefinition",
    "StoreHandle",
    "Updater",
    "Waitable",
    "admit_definition",
    "admit_function",
    "admit_past_revision",
    "admit_revision",
    "admit_step",
    "admit_version_read",
    "define_store",
    "resolve_initial",
]

_T = TypeVar("_T")
_R = TypeVar("_R")
_A = TypeVar("_A")
_E = TypeVar("_E")

Initial: TypeAlias = _T | Callable[[], _T | Awaitable[_T]]
Updater: TypeAlias = Callable[[_T], Replace[_T] | None]
Selector: TypeAlias = Callable[[_T], _R | Literal[False] | None]
Claim: TypeAlias = Callable[[_T, _R], None]
Join: TypeAlias = Callable[[Outcome[_A, _E | ReceiptMismatch | TooLarge]], Batch]


def admit_function(what: str, function: object) -> None:
    """A TypeError for what a caller without types may give in place of a function."""
    if not callable(function):
        raise TypeError(f"{what} is a function, not {function!r}")


async def resolve_initial(initial: Initial[_T]) -> _T:
    """The state that `initial` is or gives. Whatever can be called is called: no state that a store keeps can be."""
    made: object = initial() if callable(initial) else initial
    if inspect.isawaitable(made):
        made = await made
    return cast(_T, made)  # as `Initial` says; neither checker narrows a type variable by what can be called


# --- what callers give -------------------------------------------------------


def admit_revision(expected: Snapshot[_T] | Updated[_T] | Revision) -> Revision:
    """The revision that a caller expects; a TypeError for anything else that a caller without types may give."""
    if isinstance(expected, Revision):
        return expected
    if is_a(expected, Snapshot, Updated):
        return expected.revision
    unwrap = "; unwrap it first" if is_a(expected, Success, Failure) else ""
    raise TypeError(f"a change expects a Snapshot or a Revision, not a {type(expected).__name__}{unwrap}")


def admit_version_read(version: int | Revision) -> int | Revision:
    """The version that a caller wants to read; TypeError or ValueError for what cannot be one."""
    given: object = version
    if isinstance(given, Revision):
        return given
    if type(given) is not int:
        hint = ": give its .revision" if is_a(given, Snapshot, Updated) else ""
        raise TypeError(f"version is a whole number or a Revision, not {given!r}{hint}")
    if given < 0:
        raise ValueError(f"version={given}: the first version of a store is 0, and no number counts from the end")
    return given


def admit_past_revision(what: str, given: object) -> Revision:
    """The revision that a caller wants to look back at; a TypeError for anything else."""
    if isinstance(given, Revision):
        return given
    hint = ": give its .revision" if is_a(given, Snapshot, Updated) else ": write Revision(instance_id, version)"
    raise TypeError(f"{what} is a Revision, not {given!r}{hint}")


def admit_step(step: StepId | None) -> StepId | None:
    """The id of a step; a TypeError for anything else that a caller without types may give."""
    if step is not None and not is_a(step, StepId):
        raise TypeError(f"step={step!r} is no StepId: write StepId(run_id, key)")
    return step


# --- the service ------------------------------------------------------------


class Store(Protocol):
    """Stores of all definitions. Every call may answer `Unavailable`; a failure leaves a store as it was."""

    async def get(
        self, definition: StoreDefinition[_T], id: str, *, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState | Unavailable]:
        """The state now in force, whichever process committed it. `InvalidState`: it no longer fits its type.

        With `version` the state at that version of the instance that now exists, or at a revision, also one of an
        instance that is gone. `StoreNotFound` with `expected`: there was no such revision, or it is kept no more.
        """
        ...

    async def get_or_create(
        self, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge | Unavailable]:
        """The store, made from `initial` where there is none; whoever is second gets what the first one made.

        `initial` is a state, or a function, also an async one, that gives it and is not called when the store exists.
        """
        ...

    async def update(
        self, definition: StoreDefinition[_T], id: str, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable]:
        """Change the state now in force. Where others commit first it is tried again, a bounded number of times."""
        ...

    async def update_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
        *,
        step: StepId | None = None,
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge | Unavailable]:
        """Change the state if it is still at the expected revision. The base is the stored state, not the caller's."""
        ...

    async def take(
        self,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        *,
        step: StepId | None = None,
    ) -> Outcome[
        Taken[_R],
        Unmatched | StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable,
    ]:
        """Change what `selector` finds by `claim`, in one commit; with `step`, once.

        The selector is a function of the state that changes nothing; None and False are a miss, nothing else is. What
        it found is the draft's own, so a change that the claim makes through it commits; so is the claim's own draft.
        `Unmatched` has the revision and the paths that the selector read: nothing was changed and nobody waits.
        """
        ...

    async def delete(self, definition: StoreDefinition[_T], id: str) -> Outcome[None, TooLarge | Unavailable]:
        """Delete the store, if there is one. Its receipts stay, and whoever waits for it is woken."""
        ...

    async def delete_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        *,
        step: StepId | None = None,
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge | Unavailable]:
        """Delete the store if it is still at the expected revision."""
        ...

    async def list_ids(self, definition: StoreDefinition[_T]) -> Outcome[tuple[str, ...], Unavailable]:
        """The ids of the stores that exist, ascending."""
        ...

    def handle(self, definition: StoreDefinition[_T], id: str) -> StoreHandle[_T]:
        """The same calls for one store. It reads nothing, and the store need not exist."""
        ...


@runtime_checkable
class Joinable(Protocol):
    """A store that can commit more in the batch of an operation; the engine records its steps in that way.

    A `Store` that is not joinable is honoured in runs all the same, by its receipts and a second batch.
    """

    async def apply(
        self, operation: Operation[_A, _E], join: Join[_A, _E] | None = None
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Contended | Fenced | Unavailable]:
        """Carry out the operation, and commit what `join` gives for its outcome in the same batch.

        `join` is called for every outcome but Contended, Fenced and Unavailable, perhaps several times; what it gives
        are rows of runs. What it gave for the outcome that is returned has been committed, also where the operation
        failed or had been applied before.
        """
        ...


@runtime_checkable
class Lookable(Protocol):
    """A store that can run a selector on the state that it holds, without a copy of the whole of it."""

    async def look(
        self, definition: StoreDefinition[_T], id: str, selector: Selector[_T, _R]
    ) -> Outcome[Looked[_R], StoreNotFound | InvalidState | Unavailable]:
        """What `selector` finds in the state now in force. What it raises is raised, and so is TypeError for misuse."""
        ...


@runtime_checkable
class Waitable(Protocol):
    """A store that can wait in memory until a selector finds something; `StoreHandle.when` asks for it."""

    async def when(
        self, definition: StoreDefinition[_T], id: str, selector: Selector[_T, _R], timeout_ms: int | None = None
    ) -> Outcome[_R, StoreNotFound | InvalidState | TimedOut | Unavailable]:
        """As `StoreHandle.when` says, for one store."""
        ...


@final
class StoreHandle(Generic[_T]):
    """The calls of `Store` for one store."""

    __slots__ = ("_definition", "_id", "_store")

    def __init__(self, store: Store, definition: StoreDefinition[_T], id: str) -> None:
        self._store = store
        self._definition = admit_definition(definition)
        self._id = definition.key(id).id

    @property
    def definition(self) -> StoreDefinition[_T]:
        return self._definition

    @property
    def id(self) -> str:
        return self._id

    async def get(
        self, *, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState | Unavailable]:
        if version is None:
            return await self._store.get(self._definition, self._id)
        return await self._store.get(self._definition, self._id, version=version)

    async def get_or_create(self, initial: Initial[_T]) -> Outcome[Snapshot[_T], InvalidState | TooLarge | Unavailable]:
        return await self._store.get_or_create(self._definition, self._id, initial)

    async def update(
        self, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable]:
        return await self._store.update(self._definition, self._id, updater, step=step)

    async def update_from(
        self, expected: Snapshot[_T] | Revision, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge | Unavailable]:
        return await self._store.update_from(self._definition, self._id, expected, updater, step=step)

    async def take(
        self, selector: Selector[_T, _R], claim: Claim[_T, _R], *, step: StepId | None = None
    ) -> Outcome[
        Taken[_R],
        Unmatched | StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable,
    ]:
        return await self._store.take(self._definition, self._id, selector, claim, step=step)

    async def delete(self) -> Outcome[None, TooLarge | Unavailable]:
        return await self._store.delete(self._definition, self._id)

    async def delete_from(
        self, expected: Snapshot[_T] | Revision, *, step: StepId | None = None
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge | Unavailable]:
        return await self._store.delete_from(self._definition, self._id, expected, step=step)

    async def when(
        self, selector: Selector[_T, _R], timeout: timedelta | float | None = None
    ) -> Outcome[_R, StoreNotFound | InvalidState | TimedOut | Unavailable]:
        """Wait until `selector` finds something in the state, and give it; None and False are a miss, nothing else is.

        It looks at once, and again when a commit, in whichever process, changed what the selector read. `timeout` is in
        seconds; what is there at its end still counts. `StoreNotFound`: there is no store, or the one that was looked
        at is gone. Nothing is written: a wait ends with its caller. A store that cannot wait answers `Unavailable`.
        """
        admit_function("the selector", selector)
        timeout_ms = None if timeout is None else span_ms("timeout", timeout)
        if timeout_ms is not None and timeout_ms < 0:
            raise ValueError(f"timeout is at least 0, not {timeout!r}")
        if not isinstance(self._store, Waitable):
            return Failure(Unavailable(f"a {type(self._store).__name__} cannot wait: it has no call `when`", "no"))
        return await self._store.when(self._definition, self._id, selector, timeout_ms)

    def __repr__(self) -> str:
        return f"StoreHandle({self._definition.name}/{self._id})"
