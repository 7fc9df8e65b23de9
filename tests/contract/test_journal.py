"""Journals over each ledger keep their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell import Outcome, Unavailable, build, get
from stepwell.core.cache_fold import PROJECTION
from stepwell.layers import clock
from stepwell.layers import journal as journals
from stepwell.layers.ledger import MemoryLedger
from stepwell.services.clock import ManualClock
from stepwell.services.journal import JoinableJournal, Journal, JournalError

from .journal_contract import AppendContract, FenceContract, JoinContract, SlotContract
from .journal_policy_contract import PolicyContract
from .journal_reading_contract import ReadContract, SpillContract
from .journal_trimming_contract import CheckpointContract, CompactionContract, RewindContract
from .journal_verify_contract import VerifyContract
from .journal_world import World, open_world
from .ledger_double import LedgerDouble
from .store_world import Host, failure, given_ledger, success


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = request.param
    async with open_world(host, tmp_path) as opened:
        yield opened


class TestAppending(AppendContract):
    """Once, in order, or not at all."""


class TestFences(FenceContract):
    """Only whose run it is."""


class TestJoining(JoinContract):
    """In batches of others."""


class TestSlots(SlotContract):
    """What is said of a row is said once."""


class TestReading(ReadContract):
    """Pages, followers and projections."""


class TestCheckpoints(CheckpointContract):
    """States that stand for entries."""


class TestCompaction(CompactionContract):
    """What goes, and what is carried."""


class TestRewinds(RewindContract):
    """What goes, and is not numbered again."""


class TestVerifying(VerifyContract):
    """What is not as it was written."""


class TestSpilling(SpillContract):
    """What is too long."""


class TestPolicies(PolicyContract):
    """Compaction by itself."""


# --- without journals -------------------------------------------------------------


async def check_absent(journal: Journal, because: str) -> None:
    """Every call answers `Unavailable`, and says why."""
    projected = await journal.project("run", PROJECTION)
    answers: list[Outcome[object, object]] = [
        projected,
        await journal.append("run", "t", None),
        await journal.entries("run"),
        await journal.runs(),
        await journal.checkpoint("run", 0, None),
        await journal.latest_checkpoint("run"),
        await journal.compact("run"),
        await journal.rewind("run", -1),
        await journal.verify(),
    ]
    for answer in answers:
        why = failure(answer)
        assert isinstance(why, Unavailable)
        assert because in why.reason
        assert why.applied == "no"
    for follows in (journal.follow("run"), journal.states("run", PROJECTION)):
        with pytest.raises(JournalError, match=because):
            _ = await anext(follows)
    assert not isinstance(journal, JoinableJournal)


async def test_j27_the_absent_journal_fails_closed() -> None:
    async with build(journals.layer_noop()) as built:
        await check_absent(get(success(built), Journal), "there is no journal here")


async def test_a_ledger_that_keeps_no_journals_says_so() -> None:
    manual = ManualClock()
    hosts = given_ledger(LedgerDouble(MemoryLedger(manual))) | clock.layer_test(manual)
    async with build(journals.layer_test() | hosts) as built:
        await check_absent(get(success(built), Journal), "keeps no journals")
