"""A ledger, its clock and the service over it, and histories to look back on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import structs

from stepwell import (
    Ledger,
    Outcome,
    Purged,
    Revision,
    Revisions,
    StepId,
    StoreKey,
    StoreNotFound,
    TooLarge,
    Unavailable,
    build,
    define_store,
    get,
)
from stepwell.core import patch as patches
from stepwell.core.batch import (
    Batch,
    CreateStore,
    DeleteStore,
    InsertRun,
    NoReceipt,
    PatchStore,
    Receipt,
    StoreAbsent,
    StoreAt,
    WriteReceipt,
    WriteStep,
)
from stepwell.core.damage import read_document
from stepwell.core.retention import StoredChange
from stepwell.core.run import RunRow, RunState
from stepwell.core.step import Pin
from stepwell.layers import clock, revisions
from stepwell.layers import ledger as ledgers
from stepwell.layers.revisions import LedgerRevisions
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import PinPage, Prunable, RunWeight, SignalPage, Verdict

from .ledger_batches import CHARGE, committed
from .ledger_double import LedgerDouble

Host: TypeAlias = Literal["memory", "sqlite"]

counts = define_store("revisions.counts", dict[str, int])
KEY = StoreKey("revisions.counts", "c-1")
MINUTE = 60_000


@dataclass
class World:
    """Version v of instance i has the state `{"n": v, "i": i}`; the clock moves a minute before each change."""

    ledger: Ledger
    clock: ManualClock
    revisions: Revisions

    async def make(self, instance: str = "one", last: int = 0, key: StoreKey = KEY) -> None:
        await self.clock.advance(MINUTE)
        first = Revision(instance, 0)
        document = json.dumps({"n": 0, "i": instance}).encode()
        committed(await self.ledger.commit(Batch((StoreAbsent(key, first),), (CreateStore(key, first, document),))))
        for version in range(1, last + 1):
            await self.change(version, instance, key)

    async def change(
        self, version: int, instance: str = "one", key: StoreKey = KEY, step: StepId | None = None
    ) -> None:
        await self.clock.advance(MINUTE)
        before, after = Revision(instance, version - 1), Revision(instance, version)
        patch = patches.encode(patches.Patch((patches.Put(("n",), version),)))
        batch = Batch((StoreAt(key, before),), (PatchStore(key, after, patch),))
        committed(await self.ledger.commit(batch if step is None else batch + receipt(after, step, key)))

    async def delete(self, version: int, instance: str = "one", key: StoreKey = KEY) -> None:
        await self.clock.advance(MINUTE)
        tip = Revision(instance, version)
        committed(await self.ledger.commit(Batch((StoreAt(key, tip),), (DeleteStore(key, tip),))))

    async def end(self, instance: str = "one") -> None:
        """Delete the store if that instance of it exists."""
        tip = (await self.ledger.tip(KEY)).unwrap()
        if tip is not None and tip.instance_id == instance:
            await self.delete(tip.version, instance)

    async def values(self, *steps: StepId) -> list[bytes]:
        """What the receipts of these steps hold."""
        found = [(await self.ledger.receipt(KEY, step)).unwrap() for step in steps]
        return [applied.value for applied in found if applied is not None]

    async def run(self, id: str, state: RunState = "completed") -> None:
        now_ms = self.clock.now_ms()
        row = RunRow(id=id, workflow="w", state=state, created_at_ms=now_ms, updated_at_ms=now_ms)
        committed(await self.ledger.commit(Batch((), (InsertRun(row),))))

    async def pin(self, run_id: str, name: str, revision: Revision, key: StoreKey = KEY) -> None:
        row = structs.replace(CHARGE, run_id=run_id, key=name, pin=Pin(key, revision))
        committed(await self.ledger.commit(Batch((), (WriteStep(row),))))

    async def kept(self, key: StoreKey = KEY) -> list[tuple[str, int]]:
        """The revisions of which something is told, each read and found to be as it was."""
        rows = (await self.ledger.revisions(key)).unwrap()
        found = [row.revision for row in rows if row.kind != "deleted"]
        for revision in found:
            assert await self.state(revision, key) == {"n": revision.version, "i": revision.instance_id}
        return [(revision.instance_id, revision.version) for revision in found]

    async def purge(
        self, number: int, rival: Callable[[], Awaitable[None]]
    ) -> Outcome[Purged, StoreNotFound | TooLarge | Unavailable]:
        """Purge the store; `rival` is awaited before its call of that number, from 0, or else right after it."""
        ledger = Interrupted(self.ledger, number, rival)
        purged = await LedgerRevisions(ledger, self.clock).purge(counts, KEY.id)
        await ledger.come_at_last()
        return purged

    async def state(self, revision: Revision, key: StoreKey = KEY) -> object:
        document = (await self.ledger.document(key, revision)).unwrap()
        return None if document is None else json.loads(read_document(key, document).unwrap())


class Interrupted(LedgerDouble):
    """Others come in between once: before the call of that number which a purge makes."""

    def __init__(self, real: Ledger, number: int, rival: Callable[[], Awaitable[None]]) -> None:
        super().__init__(real)
        assert isinstance(real, Prunable)
        self._prunable = real
        self._left = number
        self._rival = rival

    async def come_at_last(self) -> None:
        if self._left >= 0:
            await self._rival()

    async def _come_between(self) -> None:
        self._left -= 1
        if self._left == -1:
            await self._rival()

    async def commit(self, batch: Batch) -> Verdict:
        await self._come_between()
        return await super().commit(batch)

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        await self._come_between()
        return await super().tip(key)

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        await self._come_between()
        return await super().revisions(key, limit=limit, before=before, patches=patches)

    async def pins(
        self, *, after: tuple[str | int, ...] | None = None, limit: int = 1000
    ) -> Outcome[PinPage, Unavailable]:
        await self._come_between()
        return await self._prunable.pins(after=after, limit=limit)

    async def settle(self) -> Outcome[None, Unavailable]:
        await self._come_between()
        return await self._prunable.settle()

    async def histories(
        self, *, after: StoreKey | None = None, limit: int = 100
    ) -> Outcome[tuple[StoreKey, ...], Unavailable]:
        return await self._prunable.histories(after=after, limit=limit)

    async def run_weight(self, run_id: str) -> Outcome[RunWeight, Unavailable]:
        return await self._prunable.run_weight(run_id)

    async def last_change(self) -> Outcome[int, Unavailable]:
        return await self._prunable.last_change()

    async def stale_signals(self, *, after: int = 0, limit: int = 1000) -> Outcome[SignalPage, Unavailable]:
        return await self._prunable.stale_signals(after=after, limit=limit)


def receipt(revision: Revision, step: StepId, key: StoreKey = KEY, value: bytes = b'"v"') -> Batch:
    return Batch((NoReceipt(key, step, "update"),), (WriteReceipt(Receipt(key, step, "update", revision, value)),))


@asynccontextmanager
async def opened(host: Host, path: Path) -> AsyncGenerator[World]:
    time = ManualClock(1_700_000_000_000)
    ledger = ledgers.layer_test() if host == "memory" else ledgers.layer(path)
    async with build(ledger | clock.layer_test(time) | revisions.layer()) as built:
        env = built.unwrap()
        yield World(get(env, Ledger), time, get(env, Revisions))
