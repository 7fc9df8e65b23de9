"""What the store calls of a run read: what they cost follows the change, in the first run and in a replay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from pydantic import BaseModel, field_validator

from stepwell import (
    Contended,
    Ledger,
    Outcome,
    ReceiptMismatch,
    Revision,
    Run,
    Store,
    StoreDefinition,
    StoreKey,
    Success,
    TooLarge,
    Unavailable,
    Workflow,
    workflow,
)
from stepwell.core.batch import Document, Fenced
from stepwell.core.operation import Operation
from stepwell.core.retention import StoredChange
from stepwell.layers import store as stores
from stepwell.layers.revisions import LedgerRevisions
from stepwell.services.store import Join, Joinable

from .engine_world import EngineWorld, Opened, success, until
from .ledger_double import LedgerDouble
from .store_doubles import DictStore, PlainStore, given_store

_A = TypeVar("_A")
_E = TypeVar("_E")

ROWS = 200
UPDATES = 10

validated: list[str] = []
"""The names of rows that were validated since a test looked."""


class Row(BaseModel):
    name: str
    count: int = 0

    @field_validator("name")
    @classmethod
    def seen(cls, name: str) -> str:
        validated.append(name)
        return name


class Table(BaseModel):
    rows: list[Row] = []
    changes: int = 0


tables = StoreDefinition("tables", Table)
KEY = tables.key("t")


def full() -> Table:
    return Table(rows=[Row(name=f"row {at} " + "x" * 40) for at in range(ROWS)])


def change(at: int) -> Callable[[Table], None]:
    def updater(table: Table) -> None:
        table.changes += 1
        table.rows[at].count += 1

    return updater


def change_all(table: Table) -> None:
    table.changes += 1


def untouched(table: Table) -> Row | None:
    return next((row for row in table.rows if row.count == 0), None)


def touch(_: Table, row: Row) -> None:
    row.count = 1


def rows_changed(table: Table) -> list[int]:
    return [row.count for row in table.rows if row.count]


class Reading(LedgerDouble):
    """Counts the documents that are read; each answer comes after so many turns of the event loop."""

    def __init__(self, real: Ledger, turns: int = 0) -> None:
        super().__init__(real)
        self.documents = 0
        self._turns = turns

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        self.documents += 1
        await self._pass()
        return await super().document(key, at)

    async def revisions(
        self, key: StoreKey, *, limit: int = 100, before: Revision | StoredChange | None = None, patches: bool = True
    ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
        await self._pass()
        return await super().revisions(key, limit=limit, before=before, patches=patches)

    async def _pass(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)


class Joining(PlainStore):
    """A store of one's own that joins."""

    def __init__(self, real: Store) -> None:
        super().__init__(real)
        assert isinstance(real, Joinable)
        self._joinable = real

    async def apply(
        self, operation: Operation[_A, _E], join: Join[_A, _E] | None = None
    ) -> Outcome[_A, _E | ReceiptMismatch | TooLarge | Contended | Fenced | Unavailable]:
        self.calls["apply"] += 1
        return await self._joinable.apply(operation, join)


def program(seen: list[list[object]]) -> Workflow[[], int]:
    """Changes a table again and again, and tells before the pause, and after it again, what each call handed out."""

    @workflow(name="edits")
    async def edits(run: Run) -> int:
        table = run.store(tables, "t")
        told: list[object] = []
        made = success(await table.get_or_create("make", full))
        told.append(made)
        for at in range(UPDATES):
            told.append(success(await table.update(f"update {at}", change(at))))
        read = success(await table.get("read"))
        told += [read, success(await table.update_from("from", read, change(0)))]
        told += [success(await table.take_now("take", untouched, touch)), success(await table.when("when", untouched))]
        seen.append(told)
        await run.signal("go", int)
        return success(await table.update("last", change(0))).state.changes

    return edits


@asynccontextmanager
async def reading(world: EngineWorld, flow: Workflow[[], int]) -> AsyncGenerator[tuple[Opened, Reading]]:
    made: list[Reading] = []

    def around(ledger: Ledger) -> Ledger:
        made.append(Reading(ledger))
        return made[0]

    async with world.engine(flow, around=around) as app:
        yield app, made[0]


class EngineReadsContract:
    async def test_a_call_reads_and_validates_what_it_changes(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        flow = program(seen)
        async with reading(world, flow) as (app, ledger):
            _ = success(await app.store.get_or_create(tables, "t", full))
            validated.clear()
            before = ledger.documents
            _ = success(await app.engine.start(flow, id="r"))
            await app.waits_for("r", "signal")
            assert ledger.documents == before, "the store holds what it made"
            assert len(validated) <= 3 * UPDATES

    async def test_a_replay_reads_a_store_once_and_follows_its_changes(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        flow = program(seen)
        async with reading(world, flow) as (app, _):
            _ = success(await app.engine.start(flow, id="r"))
            await app.waits_for("r", "signal")
        validated.clear()
        async with reading(world, flow) as (app, ledger):
            _ = success(await app.engine.signal("r", "go", 1))
            assert await app.result_in_time("r") == Success(UPDATES + 2)
            assert ledger.documents == 2, "where the replay begins, and what is in force when the run goes on"
            assert len(validated) <= 2 * ROWS + 3 * UPDATES
        assert seen[0] == seen[1]

    async def test_a_state_that_was_handed_out_stays_that_of_its_revision(self, world: EngineWorld) -> None:
        @workflow
        async def edits(run: Run) -> list[list[int]]:
            table = run.store(tables, "t")
            made = success(await table.get_or_create("make", full))
            first = success(await table.update("first", change(0)))
            second = success(await table.update("second", change(0)))
            first.state.rows[0].count = 99  # the caller's own
            third = success(await table.update("third", change(0)))
            return [rows_changed(one.state) for one in (third, second, first, made)]

        async with world.engine(edits) as app:
            _ = success(await app.engine.start(edits, id="r"))
            assert await app.result_in_time("r") == Success([[3], [2], [99], []])

    async def test_however_long_a_replay_reads_the_order_of_results_is_that_of_the_record(
        self, world: EngineWorld
    ) -> None:
        logs: list[list[str]] = []

        @workflow
        async def both(run: Run) -> None:
            log: list[str] = []
            logs.append(log)

            async def reader() -> None:
                for at in range(3):
                    _ = success(await run.store(tables, "t").update(f"update {at}", change(at)))
                    log.append(f"update {at}")

            async def stepper() -> None:
                for at in range(3):
                    await run.step(f"step {at}", int)
                    log.append(f"step {at}")

            await run.gather(reader(), stepper())
            await run.signal("go", int)

        async with world.engine(both) as app:
            _ = success(await app.store.get_or_create(tables, "t", full))
            _ = success(await app.engine.start(both, id="r"))
            await app.waits_for("r", "signal")
        async with world.engine(both, around=lambda ledger: Reading(ledger, turns=500)) as app:
            await until(lambda: len(logs) == 2 and len(logs[1]) == 6)
        assert logs[0] == logs[1]

    async def test_what_is_kept_no_more_makes_the_run_stuck(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        flow = program(seen)
        async with world.engine(flow) as app:
            _ = success(await app.engine.start(flow, id="r"))
            await app.waits_for("r", "signal")
        async with world.engine(drive=False) as app:
            _ = success(await LedgerRevisions(app.ledger, app.clock).purge(tables, "t"))
        async with world.engine(flow) as app:
            problem = (await app.becomes("r", "stuck")).problem or ""
        assert "revision 0 of store tables/t, which the run has read, is kept no more" in problem

    # --- other stores ---------------------------------------------------------

    async def test_what_a_store_has_joined_is_replayed_whichever_store_is_there(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        flow = program(seen)
        async with world.engine(flow) as app:
            _ = success(await app.engine.start(flow, id="r"))
            await app.waits_for("r", "signal")
        async with world.engine(drive=False) as client:
            for others in (given_store(PlainStore(client.store)), given_store(DictStore()), stores.layer_noop()):
                async with world.engine(flow, store=others):
                    await until(lambda: len(seen) > 1)
                assert seen.pop() == seen[0]

    async def test_what_a_store_that_cannot_join_hands_out_is_read_from_the_row_at_once(
        self, world: EngineWorld
    ) -> None:
        class Wide(Table):
            more: int = 1

        seen: list[list[object]] = []

        @workflow
        async def looks(run: Run) -> None:
            table = run.store(tables, "t")
            read = success(await table.get_or_create("make", Wide))
            seen.append([read.state, success(await table.update("update", change_all)).state])
            await run.signal("go", int)

        held = DictStore()
        for times in (1, 2):
            async with world.engine(looks, store=given_store(held)) as app:
                _ = success(await app.engine.start(looks, id="r"))
                await until(lambda times=times: len(seen) == times)  # type: ignore[misc]
        assert isinstance(held.state, Wide)
        assert seen == [[Table(), Table(changes=1)]] * 2

    async def test_a_store_of_ones_own_that_joins_is_honoured(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        flow = program(seen)
        async with world.engine(drive=False) as client:
            joining = Joining(client.store)
            for times in (1, 2):
                async with world.engine(flow, store=given_store(joining)) as app:
                    _ = success(await app.engine.start(flow, id="r"))
                    await until(lambda times=times: len(seen) == times)  # type: ignore[misc]
                    assert joining.calls == {"get": 3, "apply": UPDATES + 3}, "a replay asks it for nothing"
        assert seen[0] == seen[1]
