"""The ledger: the one write path, and what has been written.

Whoever writes another host implements `Ledger` and lets it pass `tests/contract/ledger_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from ..core.batch import AlreadyApplied, Batch, Commit, Committed, Document, Fenced, Form, Receipt, Refusal
from ..core.model import Revision, StepId, StoreKey, TooLarge, Unavailable
from ..core.outcome import Outcome
from ..core.retention import StoredChange
from ..core.run import RunRow, RunState
from ..core.signal import SignalRow
from ..core.step import StepRow
from ..core.waiter import WaiterRow, Wake

__all__ = [
    "AlreadyApplied",
    "Batch",
    "CannotOpen",
    "Commit",
    "Committed",
    "Document",
    "DueRuns",
    "Fenced",
    "Ledger",
    "News",
    "PinPage",
    "Prunable",
    "Receipt",
    "RunWeight",
    "SignalPage",
    "SignalRow",
    "StoreTip",
    "StoredChange",
    "StoredPin",
    "Verdict",
    "WaiterRow",
    "Wake",
]

Verdict: TypeAlias = Outcome[Committed | AlreadyApplied, Refusal | TooLarge | Unavailable]


News: TypeAlias = Literal["commit", "wake", "elsewhere"]
"""What a listener of a ledger is told: this ledger has committed, and owes no new wake; it has, and does; another
ledger over the same data may have committed."""


class CannotOpen(Exception):
    """A database cannot be opened: which, why, and what to do. Nothing was changed."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        super().__init__(f"cannot open {path}: {reason}. {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class StoreTip:
    """A store that exists, and the revision now in force. `form` is None if it was written before forms were kept."""

    key: StoreKey
    revision: Revision
    updated_at_ms: int
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class DueRuns:
    """Runs that may be claimed now, oldest first, and when the next one that only waits for its time will be due."""

    rows: tuple[RunRow, ...]
    next_at_ms: int | None


@dataclass(frozen=True, slots=True)
class StoredPin:
    """A revision that a receipt or a row of the step names. `value_bytes` is how long a receipt's value is."""

    key: StoreKey
    revision: Revision
    step: StepId
    value_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PinPage:
    """Some pins, and where the next page begins; None after the last one. A page may be empty."""

    pins: tuple[StoredPin, ...]
    after: tuple[str | int, ...] | None


@dataclass(frozen=True, slots=True)
class SignalPage:
    """The numbers of signals that were read by runs which are forgotten, and where the next page begins."""

    numbers: tuple[int, ...]
    after: int | None


@dataclass(frozen=True, slots=True)
class RunWeight:
    """How many receipts or steps a run has, whichever are more, and how long the values of its steps are in all."""

    rows: int
    size_bytes: int


class Ledger(Protocol):
    """Every call may answer `Unavailable`; a read that does has changed nothing."""

    async def commit(self, batch: Batch) -> Verdict:
        """Write the batch, whole and durably, or answer what stands against it.

        Cancelling the caller withdraws nothing: it waits for the verdict, for a bounded time, and is cancelled then.
        """
        ...

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        """Each batch judged on its own, in order, in one transaction where the host can: one refusal fails alone.

        Those before a batch in the sequence are visible to it. Where one on a store is refused, those after it on that
        store are refused too: they were planned on what it would have made (`judge_next` of `core/judgement.py`).
        """
        ...

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        """What the step did to the store, if it was applied."""
        ...

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        """The revision now in force, whichever process committed it; None where there is no such store."""
        ...

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        """The commits after a revision, in order; None where it is no revision of the instance that now exists."""
        ...

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        """The state at the tip, or at an earlier revision, also one of a deleted instance; None where there is none."""
        ...

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        """The changes that are kept of a store, of all its instances, the newest first; those below `before`.

        A page may be shorter than `limit`, of at least 1, where its patches are long: the last one is empty. Without
        `patches` they are left out. A revision that is kept no more is a place all the same, if its instance is.
        """
        ...

    async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
        """The stores that exist, of one definition or of all, in ascending order of name and id."""
        ...

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]: ...

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | int | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunRow, ...], Unavailable]:
        """Runs in the order of their start, or reversed; those that come after the run `after` there.

        By its number (`RunRow.no`) a run is a place also when it is forgotten; by its id it is none then, and there are
        no runs after it.
        """
        ...

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        """All rows of a run: completed ones in the order of their positions, then the open ones by key."""
        ...

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        """Runs of these workflows that may be claimed at `now_ms`: pending, running or waiting, and nobody's.

        A run that has no owner may be claimed when its `wake_at_ms` is None or has come. One whose lease has ended, or
        whose owner is one of the `dead`, may be claimed at once: what its owner did besides waiting is not known.
        `next_at_ms` is the earliest instant at which one more could be: a `wake_at_ms`, or the end of a lease.
        """
        ...

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        """Who owns runs that have not ended, in ascending order."""
        ...

    async def cancel_requests(self, owner: str) -> Outcome[tuple[str, ...], Unavailable]:
        """The runs of this owner that are to be cancelled, in ascending order."""
        ...

    async def changes(self) -> Outcome[int, Unavailable]:
        """A number that differs from the last answer when anybody, in any process, has committed since."""
        ...

    async def waiters(
        self, *, key: StoreKey | None = None, run_id: str | None = None
    ) -> Outcome[tuple[WaiterRow, ...], Unavailable]:
        """The waiters on a store, of a run, or both, due or not, in the order of their first registration.

        With neither, all of them. One in a queue has the paths and the revision of the queue's last look.
        """
        ...

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        """The wakes that are owed and numbered after `after`, in order: for due waiters, and for unread signals."""
        ...

    async def signals(self, run_id: str, name: str | None = None) -> Outcome[tuple[SignalRow, ...], Unavailable]:
        """The unread signals of a run, of one name or of all, in the order of their commits."""
        ...

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        """Tell `listener` on the event loop of commits, until what this returns is called.

        News of this ledger's own commits comes after they are durable, before or with their verdicts; "elsewhere" is a
        hint that comes soon after another process has committed, perhaps once for several commits, perhaps for none.
        """
        ...


@runtime_checkable
class Prunable(Protocol):
    """A ledger from which history can be removed: what has to be known to plan that. The removal is a batch.

    What these calls tell is of the moment of the call; several together are not.
    """

    async def histories(
        self, *, after: StoreKey | None = None, limit: int = 100
    ) -> Outcome[tuple[StoreKey, ...], Unavailable]:
        """The stores of which changes are kept, also the deleted ones, in ascending order; those after `after`."""
        ...

    async def pins(
        self, *, after: tuple[str | int, ...] | None = None, limit: int = 1000
    ) -> Outcome[PinPage, Unavailable]:
        """What receipts and steps pin, looking at so many of them. `after` is from the page before."""
        ...

    async def run_weight(self, run_id: str) -> Outcome[RunWeight, Unavailable]:
        """How much there is of a run; nothing where there is none."""
        ...

    async def last_change(self) -> Outcome[int, Unavailable]:
        """The number of the last change of a store that is kept; 0 where none is."""
        ...

    async def stale_signals(self, *, after: int = 0, limit: int = 1000) -> Outcome[SignalPage, Unavailable]:
        """Signals that nobody can ask for any more, looking at so many."""
        ...

    async def settle(self) -> Outcome[None, Unavailable]:
        """Leave nothing of what was removed in files beside the database. `Unavailable` if others keep it busy."""
        ...
