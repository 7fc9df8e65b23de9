"""The hosts of the ledger: each keeps the whole contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.core.batch import Batch
from stepwell.core.model import Unavailable
from stepwell.core.outcome import Failure
from stepwell.layers import clock
from stepwell.layers import ledger as ledgers
from stepwell.layers.layer import Layer, build, get
from stepwell.services.clock import Clock, ManualClock
from stepwell.services.ledger import Ledger

from .ledger_batches import NOW_MS, ORDER, STEP, at, committed, create
from .ledger_contract import LedgerContract


def layer_of(host: str, folder: Path) -> Layer[Ledger, Clock]:
    match host:
        case "memory":
            return ledgers.layer_test()
        case "sqlite":
            return ledgers.layer(folder / "deep" / "app.db")
        case "sqlite-thread":
            return ledgers.layer(folder / "app.db", commit="thread")
        case _:
            return ledgers.layer(folder / "app.db", commit="inline")


@pytest.fixture(params=["memory", "sqlite", "sqlite-thread", "sqlite-inline"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    app = layer_of(str(request.param), tmp_path) | clock.layer_test(ManualClock(NOW_MS))
    async with build(app) as built:
        yield get(built.unwrap(), Ledger)


class TestLedger(LedgerContract):
    pass


@pytest.mark.parametrize("host", ["memory", "sqlite", "sqlite-thread", "sqlite-inline"])
async def test_a_ledger_that_was_released_says_so_whatever_it_is_asked(host: str, tmp_path: Path) -> None:
    async with build(layer_of(host, tmp_path) | clock.layer_test(ManualClock(NOW_MS))) as built:
        ledger = get(built.unwrap(), Ledger)
        assert committed(await ledger.commit(create()))
    answers = [
        await ledger.commit(create()),
        *await ledger.commit_all([create(), Batch()]),
        await ledger.receipt(ORDER, STEP),
        await ledger.tip(ORDER),
        await ledger.tail(ORDER, at(0)),
        await ledger.document(ORDER),
        await ledger.revisions(ORDER),
        await ledger.stores(),
        await ledger.run("run-1"),
        await ledger.runs(),
        await ledger.steps("run-1"),
        await ledger.due(["fulfil"], NOW_MS),
        await ledger.owners(),
        await ledger.cancel_requests("host:1"),
        await ledger.changes(),
        await ledger.waiters(),
        await ledger.wakes(),
        await ledger.signals("run-1"),
    ]
    ledger.subscribe(lambda _: None)()
    assert answers == [Failure(Unavailable("the ledger is closed", "no"))] * len(answers)


async def test_no_ledger_says_so_whatever_it_is_asked() -> None:
    async with build(ledgers.layer_noop()) as built:
        ledger = get(built.unwrap(), Ledger)
        answers = [
            await ledger.commit(create()),
            *await ledger.commit_all([create(), Batch()]),
            await ledger.receipt(ORDER, STEP),
            await ledger.tip(ORDER),
            await ledger.tail(ORDER, at(0)),
            await ledger.document(ORDER),
            await ledger.revisions(ORDER),
            await ledger.stores(),
            await ledger.run("run-1"),
            await ledger.runs(),
            await ledger.steps("run-1"),
            await ledger.due(["fulfil"], NOW_MS),
            await ledger.owners(),
            await ledger.cancel_requests("host:1"),
            await ledger.changes(),
            await ledger.waiters(),
            await ledger.wakes(),
            await ledger.signals("run-1"),
        ]
        ledger.subscribe(lambda _: None)()
    assert len(answers) == 19
    for answer in answers:
        assert isinstance(answer, Failure)
        failure = answer.failure()
        assert isinstance(failure, Unavailable)
        assert (failure.applied, failure.reason[:23]) == ("no", "there is no ledger here")
