"""A run whose process is killed wherever a cached step stands, and started again until it is done."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stepwell import CacheFold, Ledger, StepCache, build, get
from stepwell.core.step import StepRow
from stepwell.layers import cache_fold, clock, journal, step_cache
from stepwell.layers import ledger as ledgers
from stepwell.layers.driver.caching import CachePoint
from stepwell.services.journal_rows import CacheRows, JournalRows

from .cached_child import LARGE

ROOT = Path(__file__).parents[2]

AGAIN = {CachePoint.EXECUTED, CachePoint.KEPT}
"""Where a body has ended whose result is not recorded: it is executed once more."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, text in {"log.txt": "first\n", "src/a.txt": "alpha\n", "old.txt": "old\n"}.items():
        (tmp_path / "work" / path).parent.mkdir(parents=True, exist_ok=True)
        _ = (tmp_path / "work" / path).write_text(text)
    return tmp_path


def execute(folder: Path, run_id: str, point: str = "", occurrence: int = 0) -> list[object] | None:
    """What the run gives; None if its process was killed."""
    command = [sys.executable, "-m", "tests.crash.cached_child", str(folder), run_id, point, str(occurrence)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if ended.returncode == -signal.SIGKILL:
        return None
    assert ended.returncode == 0
    result: list[object] = json.loads(ended.stdout)
    return result


def passed(folder: Path) -> Counter[str]:
    """How often each point was passed."""
    return Counter((folder / "points").read_text().split())


async def look(folder: Path, run_id: str) -> tuple[dict[str, StepRow], list[str]]:
    """The steps of the run, and what its journal says of rows of the cache. The heads are those that it proves."""
    layer = ledgers.layer(folder / "app.db") | clock.layer() | journal.layer() | step_cache.layer() | cache_fold.layer()
    async with build(layer) as built:
        env = built.unwrap()
        ledger = get(env, Ledger)
        assert isinstance(ledger, JournalRows)
        assert isinstance(ledger, CacheRows)
        rows = (await ledger.steps(run_id)).unwrap()
        entries = (await ledger.entries(run_id, limit=1_000)).unwrap().entries
        said = [json.loads(entry.payload) for entry in entries if entry.event_type == "stepwell.cache-provenance"]
        verified = (await get(env, CacheFold).verify()).unwrap()
        assert (verified.missing, verified.extra, verified.different) == (0, 0, 0)
        for head in (await ledger.heads()).unwrap():
            assert (await get(env, StepCache).get(head.ref.key_digest)).unwrap().ref == head.ref
        return {row.key: row for row in rows}, [each["action"] for each in said]


def check_files(folder: Path, *, added: bool, built: bool) -> None:
    """Each step has all of its files on the host, or none."""
    work = folder / "work"
    assert (work / "log.txt").read_text() == ("first\none more\n" if added else "first\n")
    large, small = work / "out/large", work / "out/small"
    assert (large.exists(), small.exists(), (work / "old.txt").exists()) == (built, built, not built)
    assert not built or (large.read_text(), small.read_text()) == (LARGE, "alpha\n")


@pytest.mark.parametrize("occurrence", [1, 2])
@pytest.mark.parametrize("point", [point for point in CachePoint if point is not CachePoint.REPLAYED])
def test_e1_e2_e3_a_step_that_was_recorded_is_never_executed_again(
    folder: Path, point: CachePoint, occurrence: int
) -> None:
    assert execute(folder, "r", point.name, occurrence) is None
    is_there = point in (CachePoint.COPIED_BACK, CachePoint.SENT)
    first = occurrence == 1
    check_files(folder, added=is_there or not first, built=is_there and not first)
    rows, _ = asyncio.run(look(folder, "r"))
    if point in (CachePoint.RECORDED, CachePoint.COPIED_BACK, CachePoint.SENT):
        assert rows["add" if first else "build"].status == "settling"

    assert execute(folder, "r") == [2, "alpha\n"]
    check_files(folder, added=True, built=True)
    assert passed(folder)["EXECUTED"] == (3 if point in AGAIN else 2)
    rows, said = asyncio.run(look(folder, "r"))
    assert {key: (row.status, row.attempt) for key, row in rows.items()} == {"add": ("done", 1), "build": ("done", 1)}
    assert Counter(said) == {"recorded": 2, "admitted": 2}
    sent = (folder / "sent").read_text().splitlines()
    assert set(sent) == {"lines 2"}
    assert len(sent) == 1


@pytest.mark.parametrize("point", [CachePoint.MEASURED, CachePoint.REPLAYED])
def test_a_hit_that_was_cut_off_is_a_hit_again(folder: Path, point: CachePoint) -> None:
    assert execute(folder, "r1") == [2, "alpha\n"]
    _ = (folder / "work/log.txt").write_text("first\n")
    (folder / "work/out/large").unlink()
    assert execute(folder, "r2", point.name, 2) is None
    assert execute(folder, "r2") == [2, "alpha\n"]
    check_files(folder, added=True, built=True)
    assert passed(folder)["EXECUTED"] == 2
    _, said = asyncio.run(look(folder, "r2"))
    assert said == ["hit", "hit"]


def test_a_run_survives_being_killed_at_one_point_after_another(folder: Path) -> None:
    """Twice in each step: a process that ends three times in a row without completing one is not begun again."""
    for point in (CachePoint.EXECUTED, CachePoint.COPIED_BACK, CachePoint.KEPT, CachePoint.RECORDED):
        assert execute(folder, "r", point.name, 1) is None
    assert execute(folder, "r") == [2, "alpha\n"]
    check_files(folder, added=True, built=True)
    rows, said = asyncio.run(look(folder, "r"))
    assert {row.status for row in rows.values()} == {"done"}
    assert Counter(said) == {"recorded": 2, "admitted": 2}


def test_a_step_that_was_cut_off_and_whose_reads_were_changed_is_dispatched_anew(folder: Path) -> None:
    assert execute(folder, "r", CachePoint.RECORDED.name, 2) is None
    _ = (folder / "work/src/a.txt").write_text("beta\n")
    assert execute(folder, "r") == [2, "beta\n"]
    assert (folder / "work/out/small").read_text() == "beta\n"
    assert passed(folder)["EXECUTED"] == 3
    rows, said = asyncio.run(look(folder, "r"))
    assert {row.status for row in rows.values()} == {"done"}
    assert Counter(said) == {"recorded": 3, "admitted": 3}  # what was made of alpha is right for alpha
