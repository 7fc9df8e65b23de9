"""A process that collects or purges, and kills itself on the way; the tests run this file as a script."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from stepwell import Retention, Revisions, build, get
from stepwell.core.outcome import Failure
from stepwell.layers import clock, ledger, revisions
from stepwell.layers.sql.writer import CommitPoint
from stepwell.services.clock import ManualClock

POLICY = Retention(keep_revisions=2, keep_ended_runs_ms=0)
LATER_MS = 2_000_000_000_000
"""When it collects: nothing was in force lately."""


async def main(path: str, purged: str, point: str, passing: int) -> None:
    """Purge the store of that id, or collect if there is none; die when the point is passed for that time."""
    passed = 0

    def reach(reached: CommitPoint) -> None:
        nonlocal passed
        if reached.name == point:
            passed += 1
            if passed == passing:
                os.kill(os.getpid(), signal.SIGKILL)

    host = ledger.layer(path, on_point=reach) | clock.layer_test(ManualClock(LATER_MS))
    async with build(host | revisions.layer()) as built:
        service = get(built.unwrap(), Revisions)
        if purged:
            outcome = await service.purge("revisions.counts", purged)
            assert not isinstance(outcome, Failure), outcome
        else:
            collected = await service.collect(POLICY)
            assert not isinstance(collected, Failure), collected


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
