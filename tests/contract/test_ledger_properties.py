"""Random batches: every host gives the verdicts and answers of a model, in groups as one by one."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from stepwell.core.batch import Batch
from stepwell.core.model import Revision, StepId, StoreKey
from stepwell.core.outcome import Success
from stepwell.layers.memory.ledger import MemoryLedger
from stepwell.layers.sql.sqlite import open_sqlite
from stepwell.services.clock import ManualClock
from stepwell.services.ledger import Ledger, Verdict

from .ledger_model import LedgerModel
from .ledger_plans import KEYS, OWNERS, RUNS, STEPS, Plan, Planner, programs

ways = pytest.mark.parametrize("way", ["one by one", "at once", "in sequence"])


async def commit(ledger: Ledger, batches: list[Batch], way: str) -> list[Verdict]:
    match way:
        case "one by one":
            return [await ledger.commit(batch) for batch in batches]
        case "at once":
            return list(await asyncio.gather(*map(ledger.commit, batches)))
        case _:
            return list(await ledger.commit_all(batches))


async def run_program(ledger: Ledger, program: list[list[list[Plan]]], way: str) -> None:
    model = LedgerModel()
    planner = Planner(model)
    for sequence in program:
        batches: list[Batch] = []
        expected: list[Verdict] = []
        refused: set[StoreKey] = set()
        for plans in sequence:
            batches.append(planner.batch(plans))
            expected.append(model.commit(batches[-1], refused if way == "in sequence" else set()))
        assert await commit(ledger, batches, way) == expected
        await compare_stores(ledger, model)
        await compare_runs(ledger, model)


async def compare_stores(ledger: Ledger, model: LedgerModel) -> None:
    for key in KEYS:
        assert await ledger.tip(key) == Success(model.tip(key))
        assert await ledger.document(key) == Success(model.document(key, None))
        made = {change.revision for change in model.changes if change.key == key}
        beside = {Revision(revision.instance_id, revision.version + 1) for revision in made}
        for revision in made | beside | {Revision("other", 0)}:
            assert await ledger.document(key, revision) == Success(model.document(key, revision))
            assert await ledger.tail(key, revision) == Success(model.tail(key, revision))
        for step in (StepId(run_id, name) for run_id in RUNS for name in STEPS):
            assert await ledger.receipt(key, step) == Success(model.receipt(key, step))
    tips = [tip.key for tip in (await ledger.stores()).unwrap()]
    assert tips == [key for key in KEYS if model.tip(key) is not None]


async def compare_runs(ledger: Ledger, model: LedgerModel) -> None:
    assert await ledger.runs() == Success(tuple(model.runs))
    for run_id in RUNS:
        assert await ledger.run(run_id) == Success(model.run(run_id))
        assert await ledger.steps(run_id) == Success(model.steps_of(run_id))
    for now_ms, dead in ((0, ()), (25, ()), (25, ("host:1", "host:3")), (60, ())):
        assert await ledger.due(["w"], now_ms, dead=dead) == Success(model.due(now_ms, dead))
    owned = [row for row in model.runs if row.owner is not None and not row.ended]
    assert await ledger.owners() == Success(tuple(sorted({row.owner or "" for row in owned})))
    for owner in OWNERS:
        asked = sorted(row.id for row in owned if row.owner == owner and row.cancel_requested)
        assert await ledger.cancel_requests(owner) == Success(tuple(asked))


@ways
@given(program=programs)
def test_memory_answers_as_the_model_does(way: str, program: list[list[list[Plan]]]) -> None:
    asyncio.run(run_program(MemoryLedger(ManualClock()), program, way))


@ways
@given(program=programs)
@settings(max_examples=settings().max_examples // 3)  # each makes a file
def test_sqlite_answers_as_the_model_does(way: str, program: list[list[list[Plan]]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
            ledger = await open_sqlite(Path(folder) / "app.db", ManualClock(), durability="normal", commit="inline")
            try:
                await run_program(ledger, program, way)
            finally:
                await ledger.close()

    asyncio.run(main())
