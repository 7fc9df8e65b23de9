"""A ledger between a store and the real one, for tests that come in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from stepwell import Failure, Ledger, Outcome, Revision, StepId, StoreKey, Unavailable
from stepwell.core.batch import Batch, Commit, Document, Receipt
from stepwell.core.retention import StoredChange
from stepwell.core.run import RunRow, RunState
from stepwell.core.signal import SignalRow
from stepwell.core.step import StepRow
from stepwell.core.waiter import WaiterRow, Wake
from stepwell.services.ledger import DueRuns, News, StoreTip, Verdict


class LedgerDouble:
    """Hands every call on; a test replaces single ones."""

    def __init__(self, real: Ledger) -> None:
        self.real = real

    async def commit(self, batch: Batch) -> Verdict:
        return await self.real.commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        return await self.real.commit_all(batches)

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        return await self.real.receipt(key, step)

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        return await self.real.tip(key)

    async def tail(self, key: StoreKey, after: Revision) -> Outcome[tuple[Commit, ...] | None, Unavailable]:
        return await self.real.tail(key, after)

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        return await self.real.document(key, at)

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        return await self.real.revisions(key, limit=limit, before=before, patches=patches)

    async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
        return await self.real.stores(name)

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]:
        return await self.real.run(run_id)

    async def runs(
        self,
        *,
        state: RunState | None = None,
        workflow: str | None = None,
        limit: int = 100,
        after: str | int | None = None,
        newest_first: bool = False,
    ) -> Outcome[tuple[RunRow, ...], Unavailable]:
        return await self.real.runs(state=state, workflow=workflow, limit=limit, after=after, newest_first=newest_first)

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        return await self.real.steps(run_id)

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        return await self.real.due(workflows, now_ms, dead=dead, limit=limit)

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        return await self.real.owners()

    async def cancel_requests(self, owner: str) -> Outcome[tuple[str, ...], Unavailable]:
        return await self.real.cancel_requests(owner)

    async def changes(self) -> Outcome[int, Unavailable]:
        return await self.real.changes()

    async def waiters(
        self, *, key: StoreKey | None = None, run_id: str | None = None
    ) -> Outcome[tuple[WaiterRow, ...], Unavailable]:
        return await self.real.waiters(key=key, run_id=run_id)

    async def wakes(self, after: int = 0) -> Outcome[tuple[Wake, ...], Unavailable]:
        return await self.real.wakes(after)

    async def signals(self, run_id: str, name: str | None = None) -> Outcome[tuple[SignalRow, ...], Unavailable]:
        return await self.real.signals(run_id, name)

    def subscribe(self, listener: Callable[[News], None]) -> Callable[[], None]:
        return self.real.subscribe(listener)


class Rivalled(LedgerDouble):
    """Before each commit of the store, `rival` is awaited: what others do between its plan and its commit."""

    def __init__(self, real: Ledger, rival: Callable[[], Awaitable[object]]) -> None:
        super().__init__(real)
        self._rival = rival

    async def commit(self, batch: Batch) -> Verdict:
        await self._rival()
        return await super().commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        await self._rival()
        return await super().commit_all(batches)


class Gated(LedgerDouble):
    """Holds every call that commits until the gate lets it through, and counts the changes of stores in each."""

    def __init__(self, real: Ledger, *, opened: bool = False) -> None:
        super().__init__(real)
        self.calls: list[int] = []
        self._opened = opened
        self._entered = asyncio.Event()
        self._held: deque[asyncio.Future[None]] = deque()

    async def entered(self) -> None:
        """Return when a call has come to the gate."""
        await self._entered.wait()

    def let_one(self) -> None:
        """Let through the call that has been held for the longest time."""
        self._held.popleft().set_result(None)

    def open(self) -> None:
        self._opened = True
        while self._held:
            self.let_one()

    def shut(self) -> None:
        self._opened = False

    async def commit(self, batch: Batch) -> Verdict:
        (verdict,) = await self.commit_all((batch,))
        return verdict

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        if changing := sum(bool(batch.expects) for batch in batches):
            self.calls.append(changing)
        self._entered.set()
        if not self._opened:
            held = asyncio.get_running_loop().create_future()
            self._held.append(held)
            try:
                await held
            except asyncio.CancelledError:
                if held in self._held:
                    self._held.remove(held)
                raise
        return await super().commit_all(batches)


Script: TypeAlias = Callable[[Batch], Unavailable | None]


class Scripted(LedgerDouble):
    """`before` says which batches fail without having been seen, `after` which are committed and then not confirmed."""

    def __init__(self, real: Ledger, *, before: Script = lambda _: None, after: Script = lambda _: None) -> None:
        super().__init__(real)
        self._before = before
        self._after = after

    async def commit(self, batch: Batch) -> Verdict:
        (verdict,) = await self.commit_all((batch,))
        return verdict

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        """One that fails takes those after it along, as on a real host."""
        lost = next((at for at, batch in enumerate(batches) if self._before(batch)), len(batches))
        verdicts: list[Verdict] = list(await super().commit_all(batches[:lost]))
        for at, batch in enumerate(batches):
            failure = self._before(batches[lost]) if at >= lost else self._after(batch)
            if failure is not None:
                verdicts[at:] = [Failure(failure), *verdicts[at + 1 :]]
        return tuple(verdicts)
