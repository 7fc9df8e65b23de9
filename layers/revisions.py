"""Revisions over whichever ledger is given, and their absence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar, final

from ..core.batch import Batch, DeleteStore, EraseStore, StoreAt
from ..core.damage import damaged_history
from ..core.difference import Difference, changed_by, differences
from ..core.model import Conflict, Revision, StepId, StoreKey, StoreNotFound, TooLarge, Unavailable, check_whole
from ..core.outcome import Failure, Outcome, Success
from ..core.retention import Retention, StoredChange
from ..services.clock import Clock
from ..services.ledger import Ledger, Prunable
from ..services.revisions import Changed, Collected, Purged, Revisions
from ..services.store import StoreDefinition, admit_definition, admit_past_revision
from .collection import Collection, Stopped, document_at, pins_of, value_of
from .layer import Layer, provides

__all__ = ["LedgerRevisions", "NoopRevisions", "layer", "layer_noop", "layer_test"]

_T = TypeVar("_T")

ATTEMPTS: Final = 20
"""How often a purge begins anew because others change the store meanwhile."""

UNPRUNABLE: Final = Unavailable("this ledger keeps all that it was given: it is not `Prunable`", "no")


@final
class LedgerRevisions:
    """Reads history where the ledger keeps it, and plans its end from there, a batch at a time."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    # --- looking back -------------------------------------------------------

    async def history(
        self, definition: StoreDefinition[_T] | str, id: str, *, limit: int = 100, before: Revision | None = None
    ) -> Outcome[tuple[Changed, ...], StoreNotFound | Unavailable]:
        key = _key(definition, id)
        _ = check_whole("limit", limit, 1)
        if before is not None:
            _ = admit_past_revision("before", before)
        read = await self._ledger.revisions(key, limit=limit, before=before)
        if isinstance(read, Failure):
            return read
        rows = read.unwrap()
        if not rows and before is None:
            return Failure(StoreNotFound(key))
        if rows and rows[-1].kind == "deleted":
            more = await self._ledger.revisions(key, limit=1, before=rows[-1])
            if isinstance(more, Failure):
                return more
            rows = rows[:-1] or (*rows, *more.unwrap())
        try:
            return Success(tuple(_changed(row) for row in rows))
        except ValueError as error:
            return Failure(damaged_history(key, None, f"a patch cannot be read ({error})"))

    async def diff(
        self, definition: StoreDefinition[_T] | str, id: str, one: Revision, other: Revision
    ) -> Outcome[tuple[Difference, ...], StoreNotFound | Unavailable]:
        key = _key(definition, id)
        documents: list[bytes] = []
        for revision in (admit_past_revision("one", one), admit_past_revision("other", other)):
            read = await document_at(self._ledger, key, revision)
            if isinstance(read, Failure):
                return read
            document = read.unwrap()
            if document is None:
                return Failure(StoreNotFound(key, revision))
            documents.append(document)
        return Success(differences(*documents))

    # --- retention ----------------------------------------------------------

    async def collect(self, policy: Retention, *, dry_run: bool = False) -> Outcome[Collected, Unavailable]:
        ledger = self._ledger
        admitted = _admit_policy(policy)
        if not isinstance(ledger, Prunable):
            return Failure(UNPRUNABLE)
        collection = Collection(self._ledger, ledger, admitted, self._clock.now_ms(), dry_run)
        try:
            await collection.collect()
        except Stopped as stopped:
            return Failure(stopped.failure)
        removed = (len(collection.forgotten), collection.revisions, collection.size_bytes)
        return Success(Collected(*removed, collection.next_run_ms, collection.next_revision_ms))

    # --- purging ------------------------------------------------------------

    async def purge(
        self, definition: StoreDefinition[_T] | str, id: str
    ) -> Outcome[Purged, StoreNotFound | TooLarge | Unavailable]:
        key, ledger = _key(definition, id), self._ledger
        if not isinstance(ledger, Prunable):
            return Failure(UNPRUNABLE)
        deleted, erased, found = False, 0, False
        try:
            newest = next(iter(value_of(await self._ledger.revisions(key, limit=1, patches=False))), None)
            for _ in range(ATTEMPTS):
                left = await self._left(ledger, key, newest)
                if left == NOTHING:
                    if not found:
                        return Failure(StoreNotFound(key))
                    settled = await ledger.settle()
                    return Success(Purged(deleted, erased, isinstance(settled, Success)))
                verdict = await self._ledger.commit(_erasure(key, left))
                if isinstance(verdict, Success):
                    deleted, erased, found = deleted or left.tip is not None, erased + len(left.receipts), True
                elif not isinstance(failure := verdict.failure(), Conflict | StoreNotFound):
                    return Failure(failure) if isinstance(failure, TooLarge | Unavailable) else _unmeant(failure)
        except Stopped as stopped:
            return Failure(stopped.failure)
        return Failure(Unavailable(f"others kept changing {key}, {ATTEMPTS} times", "unknown" if found else "no"))

    async def _left(self, ledger: Prunable, key: StoreKey, newest: StoredChange | None) -> _Left:
        """What there still is of the history in which `newest` was the newest change, and of that one's instance."""
        tip = value_of(await self._ledger.tip(key))  # first: a receipt that comes later moves it
        pins = [pin async for pin in pins_of(ledger) if pin.key == key and pin.value_bytes]
        upto, later = await self._last_of(key, newest)  # last: what was applied to a later instance is known as that
        receipts = tuple(pin.step for pin in pins if pin.revision.instance_id not in later)
        is_there = tip is not None and newest is not None and tip.instance_id == newest.revision.instance_id
        return _Left(tip if is_there else None, upto, receipts)

    async def _last_of(self, key: StoreKey, newest: StoredChange | None) -> tuple[int, set[str]]:
        """The number of the last change of that history that is left, 0 for none, and the instances made later."""
        later: set[str] = set()
        before: StoredChange | None = None
        while page := value_of(await self._ledger.revisions(key, before=before, patches=False)):
            for change in page:
                if newest is not None and _is_of(change, newest):
                    return change.seq, later
                later.add(change.revision.instance_id)
            before = page[-1]
        return 0, later


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left to be erased: the tip if it exists, the last change's number, and receipts that hold a value."""

    tip: Revision | None = None
    upto: int = 0
    receipts: tuple[StepId, ...] = ()


NOTHING: Final = _Left()


def _key(definition: StoreDefinition[_T] | str, id: str) -> StoreKey:
    return StoreKey(definition, id) if isinstance(definition, str) else admit_definition(definition).key(id)


def _admit_policy(given: object) -> Retention:
    if not isinstance(given, Retention):
        raise TypeError(f"a policy is a Retention, not {given!r}")
    return given


def _changed(row: StoredChange) -> Changed:
    paths = () if row.patch is None else changed_by(row.patch)
    return Changed(row.revision, row.kind, row.at_ms, paths, row.patch_bytes, row.base_bytes > 0)


def _is_of(change: StoredChange, newest: StoredChange) -> bool:
    return change.seq <= newest.seq or change.revision.instance_id == newest.revision.instance_id


def _erasure(key: StoreKey, left: _Left) -> Batch:
    if left.tip is None:
        return Batch((), (EraseStore(key, left.receipts, left.upto),))
    return Batch((StoreAt(key, left.tip),), (DeleteStore(key, left.tip), EraseStore(key, left.receipts)))


def _unmeant(failure: object) -> Failure[Unavailable]:
    raise RuntimeError(f"a change that expects only a store was refused: {failure}")


# --- their absence ------------------------------------------------------------

ABSENT: Final = Unavailable("there are no revisions here: override them by layer() of stepwell.layers.revisions", "no")


@final
class NoopRevisions:
    """No history: every call fails with `Unavailable`, and nothing is removed."""

    async def history(
        self, definition: StoreDefinition[_T] | str, id: str, *, limit: int = 100, before: Revision | None = None
    ) -> Outcome[tuple[Changed, ...], Unavailable]:
        return Failure(ABSENT)

    async def diff(
        self, definition: StoreDefinition[_T] | str, id: str, one: Revision, other: Revision
    ) -> Outcome[tuple[Difference, ...], Unavailable]:
        return Failure(ABSENT)

    async def collect(self, policy: Retention, *, dry_run: bool = False) -> Outcome[Collected, Unavailable]:
        return Failure(ABSENT)

    async def purge(self, definition: StoreDefinition[_T] | str, id: str) -> Outcome[Purged, Unavailable]:
        return Failure(ABSENT)


# --- layers -----------------------------------------------------------------


def layer() -> Layer[Revisions, Clock | Ledger]:
    """Revisions over the ledger that is given."""

    @provides
    def recipe(ledger: Ledger, clock: Clock) -> Iterator[Revisions]:
        yield LedgerRevisions(ledger, clock)

    return recipe


def layer_test() -> Layer[Revisions, Clock | Ledger]:
    """The same: they are as deterministic as the ledger and the clock beneath them."""
    return layer()


def layer_noop() -> Layer[Revisions, Revisions]:
    """No history: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[Revisions]:
        yield NoopRevisions()

    return recipe
