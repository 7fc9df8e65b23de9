"""The budgets of the step cache: what it costs to fold the journals to heads beside reading and decoding them.

    python benchmarks/cache.py [entries, default 1000000] [pairs, default 5]

The floor asks the ledger for the same rows, page by page: the entries, the journals, the heads, and which rows are
recorded. It decodes each payload, and keeps nothing. Ours is a whole `rebuild` of heads that are right, so that nothing
is committed: found, decided for each key, compared with the heads, and explained. Of ten rows two are retired. What is
counted is the processor's time of this process: both do nothing else, and a busy machine lengthens that least.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

from budget import Budget, Pair, summarise, table
from floor import folder
from msgspec.json import Decoder
from world import World

from stepwell import Ledger, Success, build, get
from stepwell.core.batch import Batch, Write
from stepwell.core.journal_writes import Append, EvictHead, RecordRow
from stepwell.core.provenance import provenance_entry
from stepwell.core.recorded_row import RecordedRow
from stepwell.core.step_cache import RecordedRef
from stepwell.layers import clock, ledger
from stepwell.layers.cache_fold import LedgerCacheFold
from stepwell.layers.cache_reading import PAGE, heads_of
from stepwell.services.journal_rows import CacheRows, JournalRows

__all__ = ["CACHE_BUDGETS"]

ENTRIES: Final = 1_000_000
PAIRS: Final = 5
RUNS: Final = 100
AT_ONCE: Final = 1_000

_decode: Final = Decoder().decode


async def furnish(kept: Ledger, entries: int) -> None:
    """Rows of many runs: of each it is said that it was recorded and admitted, and of two in ten what retired them."""
    rows = entries * 10 // 22
    for first in range(0, rows, AT_ONCE):
        writes: list[Write] = []
        for number in range(first, min(first + AT_ONCE, rows)):
            run_id, key = f"run-{number % RUNS}", f"{number:064x}"
            writes.append(RecordRow(RecordedRow(key, run_id, number, b"1", b"{}", 1_700_000_000_000)))
            if number % 10 < 2:
                ref = RecordedRef(key, run_id, number)
                writes.append(EvictHead(key, ref))
                writes.append(Append(run_id, (provenance_entry("stale_read_set", ref),)))
        assert isinstance(await kept.commit(Batch((), tuple(writes))), Success)


async def read_alone(cache: CacheRows, journals: JournalRows) -> float:
    """The seconds that it takes to ask for all that a rebuild asks for, and to decode it."""
    began = time.process_time()
    last = 0
    while entries := (await cache.provenance(after=last)).unwrap():
        for entry in entries:
            _ = _decode(entry.payload)
        last = entries[-1].no
    after: str | None = None
    while page := (await journals.journals(after=after)).unwrap():
        after = page[-1].run_id
    heads = iter((await heads_of(cache)).values())
    while some := tuple(islice(heads, PAGE)):
        _ = (await cache.are_recorded(some)).unwrap()
    return time.process_time() - began


async def rebuild(fold: LedgerCacheFold) -> float:
    began = time.process_time()
    rebuilt = (await fold.rebuild()).unwrap()
    taken = time.process_time() - began
    assert rebuilt.heads == sum(each.verdict == "restored" for each in rebuilt.keys)
    return taken


async def folded(world: World, *, entries: int = ENTRIES, pairs: int = PAIRS) -> Sequence[Pair]:
    async with build(ledger.layer(world.file(), "normal", commit="inline") | clock.layer()) as built:
        kept = get(built.unwrap(), Ledger)
        assert isinstance(kept, CacheRows)
        assert isinstance(kept, JournalRows)
        await furnish(kept, entries)
        fold = LedgerCacheFold(kept)
        measured: list[Pair] = []
        for _ in range(pairs):
            _ = gc.collect()
            floor = await read_alone(kept, kept)
            _ = gc.collect()
            measured.append(Pair(await rebuild(fold), floor))
        return measured


CACHE_BUDGETS: Final[tuple[Budget[World], ...]] = (
    Budget("fold-cache", "a rebuild of right heads from 1,000,000 entries", "reading and decoding them", 1.5, folded),
)


async def main(entries: int = ENTRIES, pairs: int = PAIRS) -> None:
    what = f"a rebuild of right heads from {entries:,} entries"
    measure = partial(folded, entries=entries, pairs=pairs)
    budget = Budget("fold-cache", what, "reading and decoding them", 1.5, measure)
    with folder() as path:
        found = summarise(budget, await budget.measure(World(path)))
    print(table([(budget, [found])]))
    print(f"{found.measured:.2f} s beside {found.floor:.2f} s")


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
