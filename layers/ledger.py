"""The ledger: the one write path, and what has been written.

`layer` keeps it in one SQLite file, which several processes may use at once. The ledger in memory is
`layers/memory/ledger.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from os import PathLike
from typing import Final, final

from ..core.batch import Batch, Commit, Document, Receipt
from ..core.model import Revision, StepId, StoreKey, Unavailable
from ..core.outcome import Failure, Outcome
from ..core.retention import StoredChange
from ..core.run import RunRow, RunState
from ..core.signal import SignalRow
from ..core.step import StepRow
from ..core.waiter import WaiterRow, Wake
from ..services.clock import Clock
from ..services.ledger import DueRuns, Ledger, News, StoreTip, Verdict
from .layer import Layer, provides
from .memory.ledger import MemoryLedger
from .sql.committer import CommitMode
from .sql.opening import Durability
from .sql.sqlite import open_sqlite
from .sql.writer import CommitPoint, OnPoint

__all__ = ["CommitPoint", "MemoryLedger", "NoopLedger", "layer", "layer_noop", "layer_test"]

ABSENT: Final = Unavailable("there is no ledger here: it was composed with `ledger.layer_noop()`", applied="no")


@final
class NoopLedger:
    """No ledger: every call answers `Unavailable`, and nothing is kept."""

    async def commit(self, batch: Batch) -> Verdict:
        return Failure(ABSENT)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        return tuple(Failure(ABSENT) for _ in batches)

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        return Failure(ABSENT)

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        return Failure(ABSENT)

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        return Failure(ABSENT)

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        return Failure(ABSENT)

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        return Failure(ABSENT)

    async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
        return Failure(ABSENT)

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]:
        return Failure(ABSENT)

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | int | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunRow, ...], Unavailable]:
        return Failure(ABSENT)

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        return Failure(ABSENT)

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        return Failure(ABSENT)

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        return Failure(ABSENT)

    async def cancel_requests(self, owner: str) -> Outcome[tuple[str, ...], Unavailable]:
        return Failure(ABSENT)

    async def changes(self) -> Outcome[int, Unavailable]:
        return Failure(ABSENT)

    async def waiters(
        self, *, key: StoreKey | None = None, run_id: str | None = None
    ) -> Outcome[tuple[WaiterRow, ...], Unavailable]:
        return Failure(ABSENT)

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        return Failure(ABSENT)

    async def signals(self, run_id: str, name: str | None = None) -> Outcome[tuple[SignalRow, ...], Unavailable]:
        return Failure(ABSENT)

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        """Nothing is ever committed here, so there is no news."""
        return lambda: None


def layer(
    path: str | PathLike[str],
    durability: Durability = "full",
    *,
    commit: CommitMode = "auto",
    create: bool = True,
    on_point: OnPoint | None = None,
) -> Layer[Ledger, Clock]:
    """The ledger in the SQLite file `path`, made with its folders where it is missing, unless `create` is false.

    `durability="full"` syncs every group of commits; "normal" survives the end of the process, not the loss of power.
    `commit="thread"` commits beside the event loop; "inline" on it, which costs less and is steadier beside a loop that
    is always busy, and stops the loop for the time of a sync; "auto" on it as long as syncs take less than a
    millisecond, and otherwise beside it (see `layers/sql/committer.py`). A program that asks for "thread" beside a busy
    loop does well to call `sys.setswitchinterval(0.0005)`.

    `on_point` is called as a commit passes each `CommitPoint`; tests end the process there. Building fails with
    `CannotOpen`.
    """

    @provides
    async def recipe(clock: Clock) -> AsyncIterator[Ledger]:
        ledger = await open_sqlite(path, clock, durability=durability, commit=commit, create=create, on_point=on_point)
        yield ledger
        await ledger.close()

    return recipe


def layer_test() -> Layer[Ledger, Clock]:
    """The ledger in memory, which keeps the whole contract."""

    @provides
    async def recipe(clock: Clock) -> AsyncIterator[Ledger]:
        ledger = MemoryLedger(clock)
        yield ledger
        ledger.close()

    return recipe


def layer_noop() -> Layer[Ledger, Ledger]:
    """No ledger: every call answers `Unavailable`."""

    @provides
    async def recipe() -> AsyncIterator[Ledger]:
        yield NoopLedger()

    return recipe
