"""Collecting artifacts takes nothing that the step cache or a journal needs."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import stepwell
from stepwell import Artifacts, Boundary, Journal, Ledger, Run, Workspace, get, workflow
from stepwell.core.journal import PAYLOAD_BYTES
from stepwell.core.outcome import Failure
from stepwell.layers.ledger import NoopLedger
from stepwell.layers.needed_artifacts import needed_artifacts

LARGE = b"large " * 1_000_000
BOUNDARY = Boundary(writes=("out/large",))


def make(workspace: Workspace) -> int:
    workspace.write_bytes("out/large", LARGE)
    return len(LARGE)


@workflow
async def making(run: Run) -> int:
    return await run.cached_step("make", make, boundary=BOUNDARY)


async def test_what_is_needed_stays_and_the_rest_goes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    path = tmp_path / "app.db"
    async with stepwell.open(path, workflows=[making], workspace=tmp_path / "work") as app:
        artifacts, journal, ledger = get(app.env, Artifacts), get(app.env, Journal), get(app.env, Ledger)
        stray = (await artifacts.put(b"nobody's")).unwrap()
        assert (await (await app.start(making, id="first")).unwrap().result()).unwrap() == len(LARGE)
        long = "x" * (PAYLOAD_BYTES + 1)
        _ = (await journal.append("mine", "told", long)).unwrap()
        needed = (await needed_artifacts(ledger)).unwrap()
        assert sha256(LARGE).hexdigest() in needed
        assert stray not in needed
        collected = (await artifacts.collect(needed, grace_ms=0)).unwrap()
        assert collected.removed == (stray,)
        assert (await journal.entries("mine")).unwrap().entries[0].payload == long
        (tmp_path / "work/out/large").unlink()
        assert (await (await app.start(making, id="second")).unwrap().result()).unwrap() == len(LARGE)
        assert (tmp_path / "work/out/large").read_bytes() == LARGE
        assert app.cache_metrics.counts == {"miss": 1, "verified_hit": 1}
        assert (await needed_artifacts(ledger)).unwrap() >= needed


async def test_a_ledger_that_does_not_answer_says_so() -> None:
    """Then nothing is known of what is needed, and nothing may be collected."""
    assert isinstance(await needed_artifacts(NoopLedger()), Failure)
