"""Processes that end by SIGKILL while they collect or purge: what is kept can be read, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from stepwell import Revision, StepId
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.writer import CommitPoint

from ..contract.revisions_world import KEY, World, opened
from .collect_child import POLICY

EVERY = 1 if os.environ.get("STEPWELL_SOAK") else 3
"""Of so many commits of a collection one is the last of its process."""

STORES, LAST = 3, 12
PINNED = 5
POINTS = [CommitPoint.AFTER_BASES, CommitPoint.BEFORE_COMMIT, CommitPoint.AFTER_COMMIT]


async def prepare(path: Path) -> None:
    """Stores at version 12, of which a run that goes on pins version 5 and one that has ended version 7."""
    async with opened("sqlite", path) as world:
        await world.run("open", "running")
        await world.run("ended")
        for number in range(STORES):
            key = replace(KEY, id=f"c-{number}")
            await world.make(last=LAST - 1, key=key)
            await world.change(LAST, key=key, step=StepId("outside", "s"))
            await world.pin("open", f"get {number}", Revision("one", PINNED), key)
            await world.pin("ended", f"get {number}", Revision("one", PINNED + 2), key)


def ended(path: Path, purged: str, point: CommitPoint, passing: int) -> int:
    script = Path(__file__).with_name("collect_child.py")
    words = [sys.executable, str(script), str(path), purged, point.name, str(passing)]
    return subprocess.run(words, check=False).returncode


async def kept_of(world: World) -> list[list[int]]:
    """What is kept of each store, everything read; and that includes what has to be."""
    found: list[list[int]] = []
    for number in range(STORES):
        versions = [version for _, version in await world.kept(replace(KEY, id=f"c-{number}"))]
        assert {LAST, LAST - 1, PINNED} <= set(versions)
        found.append(versions)
    return found


def check_file(path: Path) -> None:
    connection = Connection(str(path))
    try:
        assert connection.rows("pragma integrity_check") == [("ok",)]
        assert connection.rows("select seq from base where seq not in (select seq from log)") == []
        lost = "select seq from log where prev_seq is not null and prev_seq not in (select seq from log)"
        assert connection.rows(lost) == []
    finally:
        connection.close()


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
async def test_a_process_killed_while_it_collects(point: CommitPoint, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await prepare(path)
    left, kept, kill = STORES * (LAST + 1), list[list[int]](), 0
    for kill in count():
        code = ended(path, "", point, passing=1 + kill % EVERY)
        async with opened("sqlite", path) as world:
            kept = await kept_of(world)
            steps = (await world.ledger.steps("ended")).unwrap()
            assert len(steps) == (STORES if (await world.ledger.run("ended")).unwrap() else 0)
        check_file(path)
        assert sum(map(len, kept)) <= left
        left = sum(map(len, kept))
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert kept == [[LAST, LAST - 1, PINNED]] * STORES
    assert kill > 0
    assert POLICY.keep_revisions == 2


@pytest.mark.parametrize("point", [CommitPoint.AFTER_STORES, *POINTS[1:]], ids=lambda point: point.name.lower())
async def test_a_process_killed_while_it_purges(point: CommitPoint, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    await prepare(path)
    key = replace(KEY, id="c-1")
    assert ended(path, key.id, point, passing=1) == -signal.SIGKILL
    erased = point is CommitPoint.AFTER_COMMIT
    async with opened("sqlite", path) as world:
        kept = await world.kept(key)
        assert kept == ([] if erased else [("one", version) for version in range(LAST, -1, -1)])
        receipt = (await world.ledger.receipt(key, StepId("outside", "s"))).unwrap()
        assert receipt is not None
        assert receipt.value == (b"" if erased else b'"v"')
    check_file(path)
    if not erased:
        assert ended(path, key.id, point, passing=99) == 0
    async with opened("sqlite", path) as world:
        assert await world.kept(key) == []
        assert len(await world.kept(replace(KEY, id="c-2"))) == LAST + 1
    check_file(path)
