"""Revisions: what stores were before, what becomes of that in time, and its end.

Every revision of a store can be read until retention lets it go: `collect` removes what a policy does not keep, and
`purge` removes all that a store ever was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ..core.difference import ABSENT, Absent, Difference
from ..core.model import Paths, Revision, StoreNotFound, TooLarge, Unavailable
from ..core.outcome import Outcome
from ..core.retention import ChangeKind, Retention
from .store import StoreDefinition

__all__ = ["ABSENT", "Absent", "Changed", "Collected", "Difference", "Purged", "Retention", "Revisions"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Changed:
    """One change of a store: the revision that it made, or for "deleted" ended, when, and what it changed.

    `at_ms` is in milliseconds of the ledger's clock. `paths` are those at which a patch stores or removes values;
    `patch_bytes` is its length. `is_whole` says that the whole state is stored beside it.
    """

    revision: Revision
    kind: ChangeKind
    at_ms: int
    paths: Paths = ()
    patch_bytes: int = 0
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed: runs that had ended, revisions of stores, and how many bytes these revisions had.

    `next_run_ms` and `next_revision_ms` tell when the first goes of those that were too young, in milliseconds of the
    ledger's clock; None where the policy would let none go, however old. Two that removed the same are equal.
    """

    runs: int = 0
    revisions: int = 0
    size_bytes: int = 0
    next_run_ms: int | None = field(default=None, compare=False)
    next_revision_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Purged:
    """A store was erased. `deleted`: it existed until then. `receipts` is how many values of receipts are gone.

    `settled` is false if others kept the database so busy that what was erased is still in the file beside it, from
    where it goes when that is written over; the same call may be made again.
    """

    deleted: bool
    receipts: int
    settled: bool


class Revisions(Protocol):
    """Every call may answer `Unavailable`. A store is named by its definition, or by the definition's name."""

    async def history(
        self, definition: StoreDefinition[_T] | str, id: str, *, limit: int = 100, before: Revision | None = None
    ) -> Outcome[tuple[Changed, ...], StoreNotFound | Unavailable]:
        """The changes that are kept of a store, of all its instances, the newest first; with `before` the older ones.

        There may be fewer than `limit` although there are more: the last page is empty. No page ends with the end of
        an instance, so the revision of its last change is where the next one begins; a `limit` of 1 gives both then.
        `StoreNotFound`: nothing is kept of such a store.
        """
        ...

    async def diff(
        self, definition: StoreDefinition[_T] | str, id: str, one: Revision, other: Revision
    ) -> Outcome[tuple[Difference, ...], StoreNotFound | Unavailable]:
        """Where two revisions differ: the paths, with the JSON values at `one` and at `other`.

        They may be of two instances. `StoreNotFound` names in `expected` the revision that is not kept.
        """
        ...

    async def collect(self, policy: Retention, *, dry_run: bool = False) -> Outcome[Collected, Unavailable]:
        """Remove what the policy does not keep, in many small batches; with `dry_run` only tell how much it would be.

        Tips stay, and so does what receipts and steps name. After a failure, or a crash, some of it is removed and all
        that is left can be read; the next call goes on. A call after that, of the same policy, removes nothing more.
        """
        ...

    async def purge(
        self, definition: StoreDefinition[_T] | str, id: str
    ) -> Outcome[Purged, StoreNotFound | TooLarge | Unavailable]:
        """Erase the store: delete it if it exists, and remove its whole history and the values of its receipts.

        It is the store as this call finds it: one that is made again under the id meanwhile stays, with all its own.
        Whoever waits on it is woken. Receipts and steps stay, and say that the state is erased; what runs have recorded
        as results of their own stays with them. `StoreNotFound`: there was nothing to erase.
        """
        ...
