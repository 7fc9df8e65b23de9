"""Two processes, one file, one store: what each gets, and that nothing is lost.

    python benchmarks/processes.py [--updates 10000] [--processes 2] [--commit auto] [--callers 1]

Every process commits that many updates by compare-and-swap, as fast as it can, and tries again where another was
faster; with several callers, they update one store through the store service. Then the log is read: versions must be
contiguous and hold every update of everybody. A process's share is how many updates it had committed when the fastest
one was done; the least share over the largest is the fairness.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import Counter as Counts
from pathlib import Path

from floor import folder
from typing_extensions import TypedDict

from stepwell import Store, define_store
from stepwell.core.batch import Batch, CreateStore, PatchStore, StoreAbsent, StoreAt
from stepwell.core.model import Conflict, Revision, StoreKey
from stepwell.core.outcome import Failure, Success
from stepwell.layers import clock, ids, ledger, store, wake_bus
from stepwell.layers.layer import build, get
from stepwell.layers.sql.committer import CommitMode
from stepwell.services.ledger import Ledger

COUNTER = StoreKey("counters", "hot")
FIRST = Revision("instance-1", 0)


async def update(path: Path, name: str, updates: int, mode: CommitMode) -> None:
    """One process: `updates` commits, then one line with the latencies at the median and the 99th percentile, in ms."""
    layer = ledger.layer(path, commit=mode) | clock.layer()
    async with build(layer) as built:
        log = get(built.unwrap(), Ledger)
        print("ready", flush=True)
        sys.stdin.readline()
        revision, latencies, conflicts = FIRST, list[float](), 0
        for number in range(updates):
            begin = time.perf_counter()
            while True:
                made = Revision(revision.instance_id, revision.version + 1)
                patch = json.dumps([name, number]).encode()
                batch = Batch((StoreAt(COUNTER, revision),), (PatchStore(COUNTER, made, patch),))
                match await log.commit(batch):
                    case Success():
                        revision = made
                        break
                    case Failure(Conflict(actual=actual)):
                        revision, conflicts = actual, conflicts + 1
                    case Failure(failure):
                        raise SystemExit(f"{name}: {failure}")
            latencies.append(time.perf_counter() - begin)
        report(latencies, conflicts)


class Counter(TypedDict):
    last: str


counters = define_store(COUNTER.name, Counter)


async def update_side_by_side(path: Path, name: str, updates: int, mode: CommitMode, callers: int) -> None:
    """The same by so many callers, each one update after the other, through the store service."""
    app = ledger.layer(path, commit=mode) | store.layer() | clock.layer() | ids.layer() | wake_bus.layer()
    async with build(app) as built:
        stores = get(built.unwrap(), Store)
        print("ready", flush=True)
        sys.stdin.readline()
        latencies: list[float] = []
        numbers = iter(range(updates))

        async def caller() -> None:
            for number in numbers:

                def updater(counter: Counter, last: str = json.dumps([name, number])) -> None:
                    counter["last"] = last

                begin = time.perf_counter()
                _ = (await stores.update(counters, COUNTER.id, updater)).unwrap()
                latencies.append(time.perf_counter() - begin)

        await asyncio.gather(*(caller() for _ in range(callers)))
        report(latencies, 0)


def report(latencies: list[float], conflicts: int) -> None:
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * share)] * 1e3 for share in (0.5, 0.99))
    print(json.dumps({"p50_ms": p50, "p99_ms": p99, "conflicts": conflicts}), flush=True)


async def make(path: Path) -> None:
    async with build(ledger.layer(path) | clock.layer()) as built:
        log = get(built.unwrap(), Ledger)
        create = CreateStore(COUNTER, FIRST, b'{"last": ""}')
        (await log.commit(Batch((StoreAbsent(COUNTER, FIRST),), (create,)))).unwrap()


def written_by(patch: object) -> tuple[str, int]:
    """Whose update it was, and which: as a caller's own patch says, or as the store service wrote it."""
    match patch:
        case [str(name), int(number)]:
            return name, number
        case [["=", ["last"], str(last)]]:
            return written_by(json.loads(last))
        case _:
            raise AssertionError(f"nobody wrote {patch!r}")


async def history(path: Path) -> list[tuple[str, int]]:
    """Who wrote what, in the order of versions, which must be contiguous."""
    async with build(ledger.layer(path, create=False) | clock.layer()) as built:
        commits = (await get(built.unwrap(), Ledger).tail(COUNTER, FIRST)).unwrap() or ()
    assert [commit.revision.version for commit in commits] == list(range(1, len(commits) + 1)), "a version is missing"
    return [written_by(json.loads(commit.patch)) for commit in commits]


def compete(path: Path, processes: int, updates: int, commit: str, callers: int) -> None:
    names = [f"process {n + 1}" for n in range(processes)]
    asyncio.run(make(path))
    order = ["--updates", str(updates), "--commit", commit, "--callers", str(callers)]
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--child", str(path), name, *order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    pipes = [(child.stdin, child.stdout) for child in children if child.stdin and child.stdout]
    for _, out in pipes:
        out.readline()
    begin = time.perf_counter()
    for into, _ in pipes:
        print("go", file=into, flush=True)
    reports = [json.loads(out.readline()) for _, out in pipes]
    elapsed = time.perf_counter() - begin
    for child in children:
        child.communicate()
        assert child.returncode == 0, "a process failed"

    written = asyncio.run(history(path))
    assert sorted(written) == sorted((name, n) for name in names for n in range(updates)), "an update was lost"
    counts = Counts[str]()
    for who, _ in written:
        counts[who] += 1
        if counts[who] == updates:
            break
    shares = [counts[name] for name in names]
    for name, share, said in zip(names, shares, reports, strict=True):
        print(
            f"{name}  committed {share:6d} when the first was done   p50 {said['p50_ms']:.2f} ms"
            f"   p99 {said['p99_ms']:.2f} ms   conflicts {said['conflicts']}"
        )
    total = processes * updates
    print(f"{total} updates in {elapsed:.1f} s, {total / elapsed:,.0f} a second, versions 1 to {total} without a gap")
    print(f"fairness {min(shares) / max(shares):.2f} (least over most; 0.5 is asked for)")
    if min(shares) < 0.5 * max(shares):
        raise SystemExit("a process starved")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--commit", choices=["thread", "inline", "auto"], default="auto")
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--child", nargs=2, metavar=("PATH", "NAME"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        path, name = Path(given.child[0]), given.child[1]
        if given.callers == 1:
            asyncio.run(update(path, name, given.updates, given.commit))
        else:
            asyncio.run(update_side_by_side(path, name, given.updates, given.commit, given.callers))
        return
    with folder() as place:
        compete(place / "app.db", given.processes, given.updates, given.commit, given.callers)


if __name__ == "__main__":
    main()
