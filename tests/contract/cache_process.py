"""Another process that uses a step cache: python cache_process.py PATH RUN COUNT.

It puts that many keys, evicts every third of them, and says each key that it leaves in force.
"""

from __future__ import annotations

import asyncio
import sys

from stepwell import Ledger, Success, build, get
from stepwell.core.batch import Committed
from stepwell.layers import clock, ledger
from stepwell.layers.step_cache import LedgerStepCache
from stepwell.services.clock import Clock


async def main(path: str, run: str, count: str) -> None:
    async with build(ledger.layer(path) | clock.layer()) as built:
        env = built.unwrap()
        kept = get(env, Ledger)
        cache = LedgerStepCache(kept, get(env, Clock))
        for number in range(int(count)):
            key = f"{run}-{number}"
            committed = (await kept.commit(cache.recording(key, run, b"1", {}).unwrap())).unwrap()
            assert isinstance(committed, Committed)
            (recorded,) = committed.recorded
            if number % 3 == 0:
                assert await cache.evict(key) == Success(True)
            else:
                print(key, recorded.ref.recorded_event_seq, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
