"""The hosts of the ledger, as they keep journals and the step cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.core.journal import Source
from stepwell.core.model import Unavailable
from stepwell.core.outcome import Failure
from stepwell.core.step_cache import RecordedRef
from stepwell.layers import clock
from stepwell.layers.layer import build, get
from stepwell.services.clock import ManualClock
from stepwell.services.journal_rows import CacheRows, JournalRows
from stepwell.services.ledger import Ledger

from .ledger_batches import NOW_MS
from .ledger_cache_contract import LedgerCacheContract
from .ledger_journal_batches import RUN, append, done
from .ledger_journal_contract import LedgerJournalContract
from .test_ledger import layer_of

HOSTS = ["memory", "sqlite", "sqlite-thread", "sqlite-inline"]


@pytest.fixture(params=HOSTS)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    app = layer_of(str(request.param), tmp_path) | clock.layer_test(ManualClock(NOW_MS))
    async with build(app) as built:
        yield get(built.unwrap(), Ledger)


class TestLedgerJournals(LedgerJournalContract):
    pass


class TestLedgerCache(LedgerCacheContract):
    pass


@pytest.mark.parametrize("host", HOSTS)
async def test_a_ledger_that_was_released_tells_nothing_of_them(host: str, tmp_path: Path) -> None:
    async with build(layer_of(host, tmp_path) | clock.layer_test(ManualClock(NOW_MS))) as built:
        ledger = get(built.unwrap(), Ledger)
        await done(ledger, append(1))
    assert isinstance(ledger, JournalRows)
    answers: list[object] = [
        await ledger.journal(RUN),
        await ledger.journals(),
        await ledger.entries(RUN),
        await ledger.newest(1),
        await ledger.entry_of(RUN, Source("a", 0)),
        await ledger.sources(RUN),
        await ledger.checkpoints(RUN),
        await ledger.rewinds(RUN),
    ]
    assert isinstance(ledger, CacheRows)
    answers += [
        await ledger.cache_changes(),
        await ledger.provenance(),
        await ledger.head("key"),
        await ledger.heads(),
        await ledger.recorded(RecordedRef("key", RUN, 0)),
        await ledger.recorded_of(RUN),
        await ledger.are_recorded([RecordedRef("key", RUN, 0)]),
    ]
    assert answers == [Failure(Unavailable("the ledger is closed", "no"))] * 15
