"""The store service over whichever ledger is given, and its absence."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar, final

from ..core.batch import Batch, Fenced, Receipt
from ..core.held import Held, read_snapshot
from ..core.look import Looked, decide_look
from ..core.model import (
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
    Taken,
    TimedOut,
    TooLarge,
    Unavailable,
    Unmatched,
    Updated,
)
from ..core.operation import Create, Delete, DeleteFrom, Operation, Take, Update, UpdateFrom
from ..core.outcome import Failure, Outcome, Success
from ..core.poll import DEFAULT_POLL, PollPolicy
from ..core.schema import StateSchema
from ..services.clock import Clock
from ..services.ids import Ids
from ..services.ledger import Ledger
from ..services.store import (
    Claim,
    Initial,
    Join,
    Selector,
    Store,
    StoreDefinition,
    StoreHandle,
    Updater,
    admit_definition,
    admit_revision,
    admit_step,
    admit_version_read,
    resolve_initial,
)
from ..services.wake_bus import WakeBus
from .absent_store import NoopStore
from .lane import Lanes, Limits
from .layer import Layer, provides
from .ticket import Answered, Applied, Ticket, Unwritten
from .tip_cache import TipCache
from .watch import Watches

__all__ = ["LedgerStore", "Limits", "NoopStore", "layer", "layer_noop", "layer_test"]

_R = TypeVar("_R")
_T = TypeVar("_T")
_A = TypeVar("_A")
_E = TypeVar("_E")


@final
class LedgerStore:
    """Stores whose every change is one batch of a ledger. Used by one event loop; `close` ends it."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        ids: Ids,
        bus: WakeBus,
        limits: Limits | None = None,
        poll: PollPolicy = DEFAULT_POLL,
    ) -> None:
        self._ledger = ledger
        self._ids = ids
        self._limits = limits or Limits()
        self._tips = TipCache(ledger, max_tips=self._limits.tips, max_bytes=self._limits.tip_bytes)
        self._watches = Watches(ledger, clock, ids, bus, self._tips, poll)
        self._lanes = Lanes(ledger, clock, self._tips, self._limits, self._watches)

    async def close(self) -> None:
        """Stop what runs in the background, and answer `Unavailable` to whoever waits; the ledger stays open."""
        try:
            await self._lanes.close()
        finally:
            await self._watches.close()

    # --- the calls ----------------------------------------------------------

    async def get(
        self, definition: StoreDefinition[_T], id: str, *, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState | Unavailable]:
        key = admit_definition(definition).key(id)
        if version is not None:
            return await self._get_at(key, definition.schema, admit_version_read(version))
        current = await self._tips.current(key)
        if isinstance(current, Failure):
            return current
        held = current.unwrap()
        return Failure(StoreNotFound(key)) if held is None else read_snapshot(key, definition.schema, held)

    async def _get_at(
        self, key: StoreKey, schema: StateSchema[_T], version: int | Revision
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState | Unavailable]:
        """The state at an earlier revision."""
        if isinstance(version, int):
            tip = await self._ledger.tip(key)
            if isinstance(tip, Failure):
                return tip
            current = tip.unwrap()
            if current is None:
                return Failure(StoreNotFound(key))
            version = Revision(current.instance_id, version)
        read = await self._tips.kept(key, version)
        if isinstance(read, Failure):
            return read
        held = read.unwrap()
        return Failure(StoreNotFound(key, version)) if held is None else read_snapshot(key, schema, held)

    async def get_or_create(
        self, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge | Unavailable]:
        found = await self.get(definition, id)
        if not isinstance(found, Failure):
            return found
        missing = found.failure()
        if not isinstance(missing, StoreNotFound):
            return Failure(missing)
        state = await resolve_initial(initial)
        return await self._unmet(Create(missing.key, definition.schema, state, self._ids.new()))

    async def update(
        self, definition: StoreDefinition[_T], id: str, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable]:
        return await self._unfenced(
            Update(admit_definition(definition).key(id), definition.schema, updater, admit_step(step))
        )

    async def update_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
        *,
        step: StepId | None = None,
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge | Unavailable]:
        operation = UpdateFrom(
            admit_definition(definition).key(id), definition.schema, admit_revision(expected), updater, admit_step(step)
        )
        return await self._uncontended(operation)

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
        return await self._unfenced(
            Take(admit_definition(definition).key(id), definition.schema, selector, claim, admit_step(step))
        )

    async def look(
        self, definition: StoreDefinition[_T], id: str, selector: Selector[_T, _R]
    ) -> Outcome[Looked[_R], StoreNotFound | InvalidState | Unavailable]:
        """As `Lookable` says: linearizable, like `get`."""
        key = admit_definition(definition).key(id)
        current = await self._tips.current(key)
        if isinstance(current, Failure):
            return current
        outcome = decide_look(key, definition.schema, current.unwrap(), selector)
        return outcome if isinstance(outcome, Success) else Failure(outcome.failure())

    async def when(
        self, definition: StoreDefinition[_T], id: str, selector: Selector[_T, _R], timeout_ms: int | None = None
    ) -> Outcome[_R, StoreNotFound | InvalidState | TimedOut | Unavailable]:
        """As `Waitable` says."""
        return await self._watches.when(admit_definition(definition).key(id), definition.schema, selector, timeout_ms)

    async def delete(self, definition: StoreDefinition[_T], id: str) -> Outcome[None, TooLarge | Unavailable]:
        return await self._unmet(Delete(admit_definition(definition).key(id)))

    async def delete_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        *,
        step: StepId | None = None,
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge | Unavailable]:
        return await self._uncontended(
            DeleteFrom(admit_definition(definition).key(id), admit_revision(expected), admit_step(step))
        )

    async def list_ids(self, definition: StoreDefinition[_T]) -> Outcome[tuple[str, ...], Unavailable]:
        stores = await self._ledger.stores(admit_definition(definition).name)
        if isinstance(stores, Failure):
            return stores
        return Success(tuple(tip.key.id for tip in stores.unwrap()))

    def handle(self, definition: StoreDefinition[_T], id: str) -> StoreHandle[_T]:
        return StoreHandle(self, definition, id)

    # --- every writing call -------------------------------------------------

    async def apply(
        self, operation: Operation[_A, _E], join: Join[_A, _E] | None = None
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Contended | Fenced | Unavailable]:
        """As `Joinable` says. A join adds rows of runs to the batch, and expects nothing of stores."""
        if operation.step is not None:
            found = await self._ledger.receipt(operation.key, operation.step)
            if isinstance(found, Failure):
                return found
            if (receipt := found.unwrap()) is not None:
                return await self._answer_again(operation, receipt, join)
        ticket = Ticket(operation, join, self._limits.state_bytes)
        await self._lanes.carry_out(ticket)
        match ticket.reply():
            case Answered(outcome):
                return outcome
            case Applied(receipt):
                return await self._answer_again(operation, receipt, join)
            case Unwritten(outcome):
                return await self._unwritten(operation, outcome, join)

    async def _answer_again(
        self, operation: Operation[_A, _E], receipt: Receipt, join: Join[_A, _E] | None
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Fenced | Unavailable]:
        """The outcome that a receipt records. No code of the caller's runs but the join."""
        if receipt.kind != operation.kind:
            return await self._conclude(Failure(ReceiptMismatch(receipt.step, receipt.kind, operation.kind)), join)
        held: Held | None = None
        if operation.answers_state:
            read = await self._tips.kept(operation.key, receipt.revision)
            if isinstance(read, Failure):
                return read
            held = read.unwrap()
            if held is None:
                return await self._conclude(operation.erased(receipt), join)
        return await self._conclude(operation.answer(receipt, held), join)

    async def _unwritten(
        self,
        operation: Operation[_A, _E],
        outcome: Outcome[_A, _E | ReceiptMismatch | TooLarge],
        join: Join[_A, _E] | None,
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Fenced | Unavailable]:
        """An outcome that changes nothing, unless another process has meanwhile applied this very step."""
        if operation.step is not None:
            found = await self._ledger.receipt(operation.key, operation.step)
            if isinstance(found, Failure):
                return found
            if (receipt := found.unwrap()) is not None:
                return await self._answer_again(operation, receipt, join)
        return await self._conclude(outcome, join)

    async def _conclude(
        self, outcome: Outcome[_A, _E | ReceiptMismatch | TooLarge], join: Join[_A, _E] | None
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Fenced | Unavailable]:
        """The outcome, once what its caller wants to commit beside it is committed."""
        batch = Batch() if join is None else join(outcome)
        if batch == Batch():
            return outcome
        verdict = await self._ledger.commit(batch)
        if isinstance(verdict, Success):
            return outcome
        failure = verdict.failure()
        if isinstance(failure, Fenced | Unavailable):
            return Failure(failure)
        if isinstance(failure, TooLarge) and outcome != Failure(failure):
            return await self._conclude(Failure(failure), join)
        raise RuntimeError(f"what was joined to an outcome was refused: {failure}; a join expects nothing of stores")

    # --- what a call cannot meet --------------------------------------------

    async def _unfenced(
        self, operation: Operation[_A, _E]
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Contended | Unavailable]:
        outcome = await self.apply(operation)
        if isinstance(outcome, Success):
            return outcome
        failure = outcome.failure()
        if isinstance(failure, Fenced):
            raise RuntimeError(f"an operation on {operation.key} that names no run was fenced: {failure}")
        return Failure(failure)

    async def _uncontended(
        self, operation: Operation[_A, _E]
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Unavailable]:
        """For calls that others can pass for ever only by creating and deleting the store, over and over."""
        outcome = await self._unfenced(operation)
        if isinstance(outcome, Success):
            return outcome
        failure = outcome.failure()
        if isinstance(failure, Contended):
            return Failure(Unavailable(f"others changed {failure.key} first, {failure.attempts} times", "no"))
        return Failure(failure)

    async def _unmet(self, operation: Operation[_A, _E]) -> Outcome[_A, _E | TooLarge | Unavailable]:
        """For calls without a step."""
        outcome = await self._uncontended(operation)
        if isinstance(outcome, Success):
            return outcome
        failure = outcome.failure()
        if isinstance(failure, ReceiptMismatch):
            raise RuntimeError(f"an operation on {operation.key} without a step met a receipt: {failure}")
        return Failure(failure)


# --- layers -----------------------------------------------------------------


def layer(
    *, limits: Limits | None = None, poll: PollPolicy = DEFAULT_POLL
) -> Layer[Store, Clock | Ids | Ledger | WakeBus]:
    """Stores over the ledger that is given. Whoever waits in memory looks as seldom as `poll` says if no news comes."""

    @provides
    async def recipe(ledger: Ledger, clock: Clock, ids: Ids, bus: WakeBus) -> AsyncIterator[Store]:
        store = LedgerStore(ledger, clock, ids, bus, limits, poll)
        try:
            yield store
        finally:
            await store.close()

    return recipe


def layer_test(
    *, limits: Limits | None = None, poll: PollPolicy = DEFAULT_POLL
) -> Layer[Store, Clock | Ids | Ledger | WakeBus]:
    """The same stores: they are as deterministic as the ledger, the clock and the ids beneath them."""
    return layer(limits=limits, poll=poll)


def layer_noop() -> Layer[Store, Store]:
    """No stores: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[Store]:
        yield NoopStore()

    return recipe
