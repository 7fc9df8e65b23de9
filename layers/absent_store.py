"""The absence of stores: every call fails, and says what to do."""

from __future__ import annotations

from typing import TypeVar, final

from ..core.model import Deleted, Revision, Snapshot, StepId, Taken, Unavailable, Updated
from ..core.outcome import Failure, Outcome
from ..services.definition import StoreDefinition
from ..services.store import Claim, Initial, Selector, StoreHandle, Updater

__all__ = ["NoopStore"]

_R = TypeVar("_R")
_T = TypeVar("_T")


@final
class NoopStore:
    """No stores: every call fails with `Unavailable`, and nothing is changed."""

    async def get(
        self, definition: StoreDefinition[_T], id: str, *, version: int | Revision | None = None
    ) -> Outcome[Snapshot[_T], Unavailable]:
        return _absent()

    async def get_or_create(
        self, definition: StoreDefinition[_T], id: str, initial: Initial[_T]
    ) -> Outcome[Snapshot[_T], Unavailable]:
        return _absent()

    async def update(
        self, definition: StoreDefinition[_T], id: str, updater: Updater[_T], *, step: StepId | None = None
    ) -> Outcome[Updated[_T], Unavailable]:
        return _absent()

    async def update_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        updater: Updater[_T],
        *,
        step: StepId | None = None,
    ) -> Outcome[Updated[_T], Unavailable]:
        return _absent()

    async def take(
        self,
        definition: StoreDefinition[_T],
        id: str,
        selector: Selector[_T, _R],
        claim: Claim[_T, _R],
        *,
        step: StepId | None = None,
    ) -> Outcome[Taken[_R], Unavailable]:
        return _absent()

    async def when(
        self, definition: StoreDefinition[_T], id: str, selector: Selector[_T, _R], timeout_ms: int | None = None
    ) -> Outcome[_R, Unavailable]:
        return _absent()

    async def delete(self, definition: StoreDefinition[_T], id: str) -> Outcome[None, Unavailable]:
        return _absent()

    async def delete_from(
        self,
        definition: StoreDefinition[_T],
        id: str,
        expected: Snapshot[_T] | Revision,
        *,
        step: StepId | None = None,
    ) -> Outcome[Deleted, Unavailable]:
        return _absent()

    async def list_ids(self, definition: StoreDefinition[_T]) -> Outcome[tuple[str, ...], Unavailable]:
        return _absent()

    def handle(self, definition: StoreDefinition[_T], id: str) -> StoreHandle[_T]:
        return StoreHandle(self, definition, id)


def _absent() -> Failure[Unavailable]:
    return Failure(Unavailable("there are no stores here: override them by layer() of stepwell.layers.store", "no"))
