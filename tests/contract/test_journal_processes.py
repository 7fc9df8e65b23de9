"""Journals that several processes append to are one journal, and those that die leave it whole."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell import build, get
from stepwell.core.journal import Verified
from stepwell.core.poll import PollPolicy
from stepwell.layers import clock, journal, ledger
from stepwell.layers.ledger import CommitPoint
from stepwell.services.journal import Journal

from .journal_world import World, entries, open_world, payloads
from .store_world import success

RUN = "run"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("sqlite", tmp_path) as opened:
        yield opened


async def another_process(path: Path, count: int, point: str = "") -> int:
    script = Path(__file__).with_name("journal_process.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), str(path), str(count), point)
    return await process.wait()


async def test_j28_a_follower_sees_what_another_process_appends_within_about_a_second_on_sqlite(tmp_path: Path) -> None:
    """With a real clock, and no news of the other process but what a poll finds or a watch tells."""
    poll = PollPolicy(50, 1.5, 1_000)
    async with build(ledger.layer(tmp_path / "app.db") | clock.layer() | journal.layer(poll=poll)) as built:
        following = get(success(built), Journal).follow(RUN)
        waiting = asyncio.ensure_future(anext(following))
        assert await another_process(tmp_path / "app.db", 1) == 0
        async with asyncio.timeout(1.5):
            assert (await waiting).payload == 0


async def test_j14_processes_number_their_entries_together_on_sqlite(world: World) -> None:
    _ = await world.journal()
    ended = await asyncio.gather(*(another_process(world.path, 30) for _ in range(3)))
    assert ended == [0, 0, 0]
    here = await world.journal()
    found = await entries(here, RUN)
    assert [entry.seq for entry in found] == list(range(90))
    by_process: defaultdict[str, list[object]] = defaultdict(list)
    for entry in found:
        assert entry.source is not None
        by_process[entry.source.id].append(entry.payload)
    assert list(by_process.values()) == [list(range(30))] * 3
    assert success(await here.verify()) == Verified(1, 90)


@pytest.mark.parametrize("point", [CommitPoint.BEFORE_COMMIT.name, CommitPoint.AFTER_COMMIT.name])
async def test_j18_a_process_that_dies_in_a_commit_leaves_a_whole_journal_on_sqlite(world: World, point: str) -> None:
    here = await world.journal()
    assert success(await here.append(RUN, "t", "here")).seq == 0
    assert await another_process(world.path, 1, point) == -signal.SIGKILL
    left = ["here"] if point == CommitPoint.BEFORE_COMMIT.name else ["here", 0]
    assert await payloads(here, RUN) == left
    assert success(await here.append(RUN, "t", "again")).seq == len(left)
    assert success(await here.verify()) == Verified(1, len(left) + 1)


async def test_j40_a_compaction_here_and_appends_elsewhere_on_sqlite(world: World) -> None:
    here = await world.journal()
    for number in range(5):
        _ = success(await here.append(RUN, "t", number))
    elsewhere = asyncio.create_task(another_process(world.path, 20))
    _ = success(await here.checkpoint(RUN, 4, "state"))
    assert success(await here.compact(RUN)) == 4
    assert await elsewhere == 0
    assert [entry.seq for entry in await entries(here, RUN, 3)] == list(range(4, 25))
    assert success(await here.verify()) == Verified(1, 21)
