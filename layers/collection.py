"""A collection: what a policy lets go of leaves a ledger, a batch at a time, while others use it."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator
from typing import TypeVar, final

from ..core.batch import Batch, ChangeRun, ForgetRun, RemoveWaiter, RunFence, SweepSignals, TrimRun, Write, WriteBase
from ..core.damage import read_document
from ..core.model import Revision, StoreKey, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.retention import CUT_BYTES, CUT_ROWS, Cut, Cutter, Retention, StoredChange, earliest, outlives
from ..core.run import ENDED, RunRow
from ..services.ledger import Ledger, Prunable, StoredPin
from .forgetting import Forgetting
from .stopped import Stopped, value_of

__all__ = ["Collection", "Stopped", "document_at", "pins_of", "value_of"]

_T = TypeVar("_T")


async def document_at(ledger: Ledger, key: StoreKey, revision: Revision) -> Outcome[bytes | None, Unavailable]:
    """The state at a revision, as JSON; None where it is not kept."""
    read = await ledger.document(key, revision)
    if isinstance(read, Failure):
        return read
    document = read.unwrap()
    return Success(None) if document is None else read_document(key, document)


async def pins_of(ledger: Prunable) -> AsyncIterator[StoredPin]:
    after: tuple[str | int, ...] | None = None
    while True:
        page = value_of(await ledger.pins(after=after))
        for pin in page.pins:
            yield pin
        after = page.after
        if after is None:
            return
        await asyncio.sleep(0)


class Pinned:
    """The versions that are pinned, eight bytes each."""

    def __init__(self) -> None:
        self._versions: dict[tuple[StoreKey, str], array[int]] = {}

    def add(self, pin: StoredPin) -> None:
        self._versions.setdefault((pin.key, pin.revision.instance_id), array("q")).append(pin.revision.version)

    def sort(self) -> None:
        for instance, versions in self._versions.items():
            self._versions[instance] = array("q", sorted(set(versions)))

    def has(self, key: StoreKey, revision: Revision) -> bool:
        versions = self._versions.get((key, revision.instance_id))
        if versions is None:
            return False
        place = bisect_left(versions, revision.version)
        return place < len(versions) and versions[place] == revision.version


@final
class Collection:
    """One call of `collect`: the runs first, since they pin revisions."""

    def __init__(
        self,
        ledger: Ledger,
        prunable: Prunable,
        policy: Retention,
        now_ms: int,
        dry_run: bool,
    ) -> None:
        self._prunable = prunable
        self._ledger = ledger
        self._policy = policy
        self._now_ms = now_ms
        self._dry_run = dry_run
        self._forgetting = Forgetting(ledger)
        self._pinned = Pinned()
        self._horizon = 0
        self.forgotten: set[str] = set()
        self.revisions = 0
        self.size_bytes = 0
        self.next_run_ms: int | None = None
        self.next_revision_ms: int | None = None

    async def collect(self) -> None:
        if self._policy.keep_ended_runs_ms is not None:
            await self._forget_runs()
            await self._sweep_signals()
        if self._policy.limits_revisions:
            # In this order: what is pinned later is a revision after the horizon, or one in force then.
            self._horizon = value_of(await self._prunable.last_change())
            async for pin in pins_of(self._prunable):
                if not (self._dry_run and pin.step.run_id in self.forgotten):
                    self._pinned.add(pin)
            self._pinned.sort()
            after: StoreKey | None = None
            while keys := value_of(await self._prunable.histories(after=after)):
                for key in keys:
                    await self._cut_store(key)
                after = keys[-1]

    # --- runs ---------------------------------------------------------------

    async def _forget_runs(self) -> None:
        for state in sorted(ENDED):
            last: int | None = None
            while rows := value_of(await self._ledger.runs(state=state, limit=100, after=last)):
                going = [row for row in rows if not outlives(row, self._policy, self._now_ms)]
                for row in rows:
                    if row not in going:
                        goes_at_ms = self._policy.forgets_at_ms(row.updated_at_ms)
                        self.next_run_ms = earliest(self.next_run_ms, goes_at_ms)
                await self._forget(going)
                last = rows[-1].no  # a place, also when that run is forgotten

    async def _forget(self, rows: list[RunRow]) -> None:
        """Forget these runs, but for those that are taken up again meanwhile."""
        if self._dry_run:
            self.forgotten.update(row.id for row in rows)
            return
        batches: list[tuple[RunRow, Batch]] = []
        weight = 0
        for row in rows:
            rest = await self._trim(row)
            if rest is None:
                continue
            left = await self._forgetting.last_batch(row.id, row.fence)
            if left is None:
                continue
            rest += len(left.writes)
            if batches and weight + rest > CUT_ROWS:
                await self._commit_runs(batches)
                batches, weight = [], 0
            batches.append((row, left + await self._farewell(row)))
            weight += rest
        await self._commit_runs(batches)

    async def _farewell(self, row: RunRow) -> Batch:
        waiters = value_of(await self._ledger.waiters(run_id=row.id))
        removed = tuple(RemoveWaiter(each.waiter.key, each.waiter.step) for each in waiters)
        return Batch((RunFence(row.id, row.fence),), (*removed, ForgetRun(row.id)))

    async def _commit_runs(self, batches: list[tuple[RunRow, Batch]]) -> None:
        verdicts = await self._ledger.commit_all([batch for _, batch in batches])
        for (row, _), verdict in zip(batches, verdicts, strict=True):
            if isinstance(verdict, Success):
                self.forgotten.add(row.id)
            elif isinstance(failure := verdict.failure(), Unavailable):
                raise Stopped(failure)

    async def _trim(self, row: RunRow) -> int | None:
        """Bring the rows of a run down to what one batch may remove, and tell how many are left; None: it goes on."""
        weight = value_of(await self._prunable.run_weight(row.id))
        at_once = max(1, min(CUT_ROWS, CUT_BYTES * weight.rows // max(1, weight.size_bytes)))
        rest = weight.rows
        # Nobody may take up half of a run again; a failed one could be, until it is a cancelled one.
        closed: tuple[Write, ...] = (ChangeRun(row.id, {"state": "cancelled"}),) if row.state == "failed" else ()
        while rest > at_once:
            batch = Batch((RunFence(row.id, row.fence),), (*closed, TrimRun(row.id, at_once)))
            verdict = await self._ledger.commit(batch)
            if isinstance(verdict, Failure):
                failure = verdict.failure()
                if isinstance(failure, Unavailable):
                    raise Stopped(failure)
                return None
            rest -= at_once
        return rest

    async def _sweep_signals(self) -> None:
        if self._dry_run:
            return
        after: int | None = 0
        while after is not None:
            page = value_of(await self._prunable.stale_signals(after=after))
            if page.numbers:
                batch = Batch((), (SweepSignals(page.numbers[0], page.numbers[-1]),))
                _ = value_of(_unrefused(await self._ledger.commit(batch)))
            after = page.after

    # --- revisions ----------------------------------------------------------

    async def _cut_store(self, key: StoreKey) -> None:
        cutter = Cutter(
            key, self._policy, self._now_ms, self._horizon, lambda revision: self._pinned.has(key, revision)
        )
        last: StoredChange | None = None
        while page := value_of(await self._ledger.revisions(key, limit=CUT_ROWS, before=last, patches=False)):
            for cut in cutter.cuts(page):
                await self._cut(key, cut)
            last = page[-1]
        for cut in cutter.end():
            await self._cut(key, cut)
        self.next_revision_ms = earliest(self.next_revision_ms, cutter.next_at_ms)

    async def _cut(self, key: StoreKey, cut: Cut) -> None:
        self.revisions += cut.revisions
        self.size_bytes += cut.size_bytes
        if self._dry_run:
            return
        writes: tuple[Write, ...] = (cut.write,)
        if cut.based is not None and cut.write.above is not None:
            document = value_of(await document_at(self._ledger, key, cut.based))
            if document is None:  # the store was purged meanwhile
                return
            writes = (WriteBase(cut.write.above, document), *writes)
        _ = value_of(_unrefused(await self._ledger.commit(Batch((), writes))))


def _unrefused(verdict: Outcome[_T, object]) -> Outcome[_T, Unavailable]:
    """The verdict on a batch that expects nothing."""
    if isinstance(verdict, Success):
        return verdict
    failure = verdict.failure()
    if isinstance(failure, Unavailable):
        return Failure(failure)
    raise RuntimeError(f"a batch that expects nothing was refused: {failure}")
