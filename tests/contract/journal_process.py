"""Another process, which appends so many entries, and may end in the middle: journal_process.py PATH COUNT [POINT]."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from stepwell import Success, build, get
from stepwell.core.journal import Source
from stepwell.layers import clock, journal, ledger
from stepwell.layers.ledger import CommitPoint
from stepwell.services.journal import Journal


async def main(path: str, count: str, at: str = "") -> None:
    def on_point(point: CommitPoint) -> None:
        if point.name == at:
            os.kill(os.getpid(), signal.SIGKILL)

    app = ledger.layer(path, on_point=on_point) | journal.layer() | clock.layer()
    async with build(app) as built:
        journals = get(built.unwrap(), Journal)
        for number in range(int(count)):
            source = Source(str(os.getpid()), number)
            assert isinstance(await journals.append("run", "t", number, source=source), Success)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
