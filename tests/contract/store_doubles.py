"""Stores as others would write them: the calls of the contract, and nothing that the engine could join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import TypeVar, cast

from stepwell import (
    Conflict,
    Contended,
    Deleted,
    Failure,
    InvalidState,
    Layer,
    Outcome,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StepId,
    Store,
    StoreDefinition,
    StoreHandle,
    StoreNotFound,
    Success,
    Taken,
    TooLarge,
    Unavailable,
    Unmatched,
    Updated,
    provides,
)
from stepwell.services.store import Claim, Initial, Selector, Updater, resolve_initial

_R = TypeVar("_R")
_T = TypeVar("_T")


def given_store(store: Store) -> Layer[Store, Store]:
    @provides
    def recipe() -> Iterator[Store]:
        yield store

    return recipe


class PlainStore:
    """Hands every call on to another store, and counts them."""

    def __init__(self, real: Store) -> None:
        self._real = real
        self.calls: Counter[str] = Counter()

    async def get(
        self, definition: StoreDefinition[_T], id: str, *, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound | InvalidState | Unavailable]:
        self.calls["get"] += 1
        return await self._real.get(definition, id, version=version)

    async def get_or_create(
        self, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState | TooLarge | Unavailable]:
        self.calls["get_or_create"] += 1
        return await self._real.get_or_create(definition, id, initial)

    async def update(
        self, definition: StoreDefinition[_T], id: str, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable]:
        self.calls["update"] += 1
        return await self._real.update(definition, id, updater, step=step)

    async def update_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
        *,
        step: StepId | None = None,
    ) -> Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge | Unavailable]:
        self.calls["update_from"] += 1
        return await self._real.update_from(definition, id, expected, updater, step=step)

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
        self.calls["take"] += 1
        return await self._real.take(definition, id, selector, claim, step=step)

    async def delete(self, definition: StoreDefinition[_T], id: str) -> Outcome[None, TooLarge | Unavailable]:
        return await self._real.delete(definition, id)

    async def delete_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        *,
        step: StepId | None = None,
    ) -> Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge | Unavailable]:
        return await self._real.delete_from(definition, id, expected, step=step)

    async def list_ids(self, definition: StoreDefinition[_T]) -> Outcome[tuple[str, ...], Unavailable]:
        return await self._real.list_ids(definition)

    def handle(self, definition: StoreDefinition[_T], id: str) -> StoreHandle[_T]:
        return StoreHandle(self, definition, id)


class DictStore:
    """One store, held in an attribute, that the ledger knows nothing of. It creates, reads, updates and takes."""

    def __init__(self) -> None:
        self.state: object = None
        self.version = 0

    async def get(
        self, definition: StoreDefinition[_T], id: str, *, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], StoreNotFound]:
        if self.state is None or version not in (None, self.version, self._revision):
            return Failure(StoreNotFound(definition.key(id)))
        return Success(Snapshot(cast(_T, deepcopy(self.state)), self._revision))

    async def get_or_create(
        self, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], InvalidState]:
        if self.state is None:
            self.state = await resolve_initial(initial)
        return Success(Snapshot(cast(_T, deepcopy(self.state)), self._revision))

    async def update(
        self, definition: StoreDefinition[_T], id: str, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], StoreNotFound]:
        updater(cast(_T, self.state))
        self.version += 1
        return Success(Updated(cast(_T, deepcopy(self.state)), self.version - 1, self._revision))

    async def update_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
        *,
        step: StepId | None = None,
    ) -> Outcome[Updated[_T], Unavailable]:
        return Failure(Unavailable("not in this store", "no"))

    async def take(
        self,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        *,
        step: StepId | None = None,
    ) -> Outcome[Taken[_R], Unmatched | StoreNotFound]:
        if self.state is None:
            return Failure(StoreNotFound(definition.key(id)))
        state = cast(_T, deepcopy(self.state))
        selected = selector(state)
        if selected is None or selected is False:
            return Failure(Unmatched(self._revision, ((),)))
        claim(state, selected)
        self.state = state
        self.version += 1
        return Success(Taken(deepcopy(selected), self._revision))

    async def delete(self, definition: StoreDefinition[_T], id: str) -> Outcome[None, Unavailable]:
        return Failure(Unavailable("not in this store", "no"))

    async def delete_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        *,
        step: StepId | None = None,
    ) -> Outcome[Deleted, Unavailable]:
        return Failure(Unavailable("not in this store", "no"))

    async def list_ids(self, definition: StoreDefinition[_T]) -> Outcome[tuple[str, ...], Unavailable]:
        return Failure(Unavailable("not in this store", "no"))

    def handle(self, definition: StoreDefinition[_T], id: str) -> StoreHandle[_T]:
        return StoreHandle(self, definition, id)

    @property
    def _revision(self) -> Revision:
        return Revision("instance", self.version)
