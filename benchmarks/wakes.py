"""From a write to the run that waits for it, and what waiting costs while nothing comes.

    python benchmarks/wakes.py [--rounds 200] [--check] [--only latency,processes,idle,takers,memory] [--profile]

A latency is the time from the call that writes to the first code of the user in the woken run, which is the selector,
and on to the line of the workflow after its wait: the commit of the write, the wake, the look, and then the commit that
records what was found. The floor is one bare commit of one row through a writer thread, at full durability, in turn
with what is measured; the same commit made on the event loop is shown beside it. `--check` takes fewer rounds, and all
that is asked for is asked for all the same. `--profile` shows where the time goes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from floor import BareCommits, Row, ThreadedCommits, folder, report
from typing_extensions import TypedDict

from stepwell import AnyWorkflow, Engine, Ledger, Run, Store, build, define_store, get, provides, workflow
from stepwell.core.batch import Batch
from stepwell.layers import (
    artifacts,
    clock,
    engine,
    ids,
    journal,
    ledger,
    step_cache,
    step_sandbox,
    store,
    waiters,
    wake_bus,
)
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import Verdict

Kind: TypeAlias = Literal["when", "take", "signal"]
KINDS: tuple[Kind, ...] = ("when", "take", "signal")

LATENCY_BOUND = 3.0
"""Times the floor, in one process."""

BETWEEN_MS = 20.0
"""Between two processes, at the median and at the 99th percentile."""

IDLE_RUNS, IDLE_S, IDLE_BOUND = 1_000, 10.0, 0.01
"""The share of one core that a process with so many parked runs may take."""

TAKERS = (100, 300, 1_000)
BATCHES_AN_ITEM = 6.0
GROWTH_BOUND = 1.5
"""How many batches an item of the most takers may cost, over one of the fewest."""


class Shelf(TypedDict):
    count: int
    items: list[str]


shelves = define_store("shelf", Shelf)


def put(name: str) -> Callable[[Shelf], None]:
    def updater(shelf: Shelf) -> None:
        shelf["count"] += 1
        shelf["items"].append(name)

    return updater


looks: list[float] = []
"""When selectors were called."""


def is_beyond(turn: int, shelf: Shelf) -> bool:
    looks.append(time.perf_counter())
    return shelf["count"] > turn


def first(shelf: Shelf) -> str | None:
    looks.append(time.perf_counter())
    return shelf["items"][0] if shelf["items"] else None


def first_item(shelf: Shelf) -> str | None:
    """The same without a trace: those who take by it wait in one queue."""
    return shelf["items"][0] if shelf["items"] else None


def remove(shelf: Shelf, _: str) -> None:
    del shelf["items"][0]


# --- runs -------------------------------------------------------------------


stamps: list[float] = []
"""When a wait was over, by the clock that all processes share."""


def on_stamp(_: float) -> None:
    """A process that is asked for its stamps prints them."""


@dataclass
class Stamping:
    say: Callable[[float], None] = on_stamp

    def __call__(self) -> None:
        at_s = time.perf_counter()
        stamps.append(at_s)
        self.say(at_s)


stamp = Stamping()


@workflow
async def waits(run: Run, kind: str, turns: int) -> int:
    """So many waits, one after the other."""
    shelf = run.store(shelves, kind)
    for turn in range(turns):
        match kind:
            case "when":
                _ = (await shelf.when(f"{turn}", partial(is_beyond, turn))).unwrap()
            case "take":
                _ = (await shelf.take(f"{turn}", first, remove)).unwrap()
            case _:
                _ = (await run.signal("news", int)).unwrap()
        stamp()
    return turns


@workflow
async def parks(run: Run, kind: str) -> str:
    """Waits for what does not come."""
    shelf = run.store(shelves, kind)
    match kind:
        case "when":
            return str((await shelf.when("wait", first)).unwrap())
        case "take":
            return (await shelf.take("wait", first, remove)).unwrap().selected
        case "sleep":
            await run.sleep("wait", 3600)
            return "slept"
        case _:
            return (await run.signal("news", str)).unwrap()


@workflow
async def takes(run: Run) -> str:
    return (await run.store(shelves, "shared").take("item", first_item, remove)).unwrap().selected


FLOWS: tuple[AnyWorkflow, ...] = (waits, parks, takes)


# --- an application that counts ------------------------------------------------


@dataclass
class Counts:
    batches: int = 0
    wakes: int = 0


class Counting:
    """Counts the batches that a ledger is given, and hands every other call on."""

    def __init__(self, real: Ledger, counts: Counts) -> None:
        self._real = real
        self._counts = counts

    async def commit(self, batch: Batch) -> Verdict:
        self._counts.batches += 1
        return await self._real.commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        self._counts.batches += len(batches)
        return await self._real.commit_all(batches)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


@dataclass(frozen=True)
class App:
    ledger: Ledger
    store: Store
    engine: Engine
    counts: Counts


@asynccontextmanager
async def opened(path: Path, *, drive: bool = True) -> AsyncGenerator[App]:
    counts, bus = Counts(), MemoryWakeBus()

    async def wake(run_id: str) -> None:
        counts.wakes += 1
        await bus.wake(run_id)

    @provides
    def counted() -> Iterator[Ledger]:
        yield cast(Ledger, double)  # it hands on what it does not have

    buses = wake_bus.layer_noop(wake=wake, await_wake=bus.await_wake, waiters=bus.waiters, token=bus.token)
    async with build(ledger.layer(path) | clock.layer()) as host:
        real = get(host.unwrap(), Ledger)
        double = Counting(real, counts)
        whole = counted | clock.layer() | ids.layer() | buses | store.layer() | waiters.layer() | journal.layer()
        absent = artifacts.layer_noop() | step_cache.layer_noop() | step_sandbox.layer_noop()
        async with build(whole | absent | engine.layer(FLOWS, drive)) as built:
            env = built.unwrap()
            yield App(real, get(env, Store), get(env, Engine), counts)


async def parked(app: App, run_id: str) -> None:
    """Return once the run waits, and the loop has come to rest."""

    async def waits() -> bool:
        row = (await app.ledger.run(run_id)).unwrap()
        return row is not None and row.state == "waiting"

    await until(waits, 0.000_2)
    await asyncio.sleep(0.002)


async def until(holds: Callable[[], Awaitable[bool]], pause_s: float) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(pause_s)


async def all_wait(app: App, count: int) -> None:
    """Return once so many runs wait."""

    async def wait() -> bool:
        return len((await app.ledger.runs(state="waiting", limit=count)).unwrap()) == count

    await until(wait, 0.1)


async def make(app: App, *names: str) -> None:
    for name in names:
        _ = (await app.store.get_or_create(shelves, name, {"count": 0, "items": []})).unwrap()


async def write(app: App, kind: str, number: int) -> None:
    if kind == "signal":
        _ = (await app.engine.signal("waiting", "news", number)).unwrap()
    else:
        _ = (await app.store.update(shelves, kind, put(str(number)))).unwrap()


# --- latency in one process ------------------------------------------------------


async def latency(path: Path, rounds: int) -> tuple[list[Row], list[float], list[float]]:
    """What is measured, and the floors: through a thread, and on the event loop."""
    rows: list[Row] = []
    floors: list[float] = []
    on_loop: list[float] = []
    bare_commits = BareCommits(path / "bare.db")
    floor = ThreadedCommits(bare_commits)
    for kind in KINDS:
        async with opened(path / f"{kind}.db") as app:
            await make(app, kind)
            stamps.clear()
            over = asyncio.Event()
            stamp.say = partial(_set, over)
            _ = (await app.engine.start(waits, kind, rounds, id="waiting")).unwrap()
            spent: list[float] = []
            looked: list[float] = []
            ratios: list[float] = []
            look_ratios: list[float] = []
            for number in range(rounds):
                await parked(app, "waiting")
                before = await floor.commit()
                await asyncio.sleep(0.002)
                began = time.perf_counter()
                await write(app, kind, number)
                _ = await over.wait()
                over.clear()
                spent.append(stamps[number] - began)
                await asyncio.sleep(0.002)
                floors += (before, await floor.commit())
                await asyncio.sleep(0.002)
                on_loop.append(bare_commits.commit())
                bare = statistics.fmean(floors[-2:])
                ratios.append(spent[-1] / bare)
                if kind != "signal":
                    looked.append(next(at_s for at_s in looks if at_s > began) - began)
                    look_ratios.append(looked[-1] / bare)
                looks.clear()
            if looked:
                look_us = statistics.median(looked) * 1e6
                rows.append(Row(f"{kind}, from the write to the selector", look_us, look_ratios, LATENCY_BOUND))
            spent_us = statistics.median(spent) * 1e6
            rows.append(Row(f"{kind}, from the write to the workflow", spent_us, ratios, LATENCY_BOUND))
    floor.close()
    bare_commits.close()
    return rows, floors, on_loop


def _set(over: asyncio.Event, _: float) -> None:
    over.set()


# --- latency between two processes --------------------------------------------------


@contextmanager
def child(path: Path, what: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, "--child", str(path), json.dumps([what, *arguments])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the other process failed: {process.returncode}")


async def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).strip()


async def between(path: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the write here to the workflow in another process."""
    found: dict[str, list[float]] = {}
    for kind in KINDS:
        database = path / f"between-{kind}.db"
        async with opened(database, drive=False) as app:
            await make(app, kind)
            with child(database, "waits", kind, rounds) as process:
                spent: list[float] = []
                for number in range(rounds):
                    await parked(app, "waiting")
                    await asyncio.sleep(number % 7 / 1000)  # at no fixed distance from what came before
                    began = time.perf_counter()
                    await write(app, kind, number)
                    spent.append((float(await said(process)) - began) * 1e3)
                found[kind] = spent
    return found


async def child_waits(path: Path, kind: str, turns: int) -> None:
    stamp.say = lambda at_s: print(at_s, flush=True)
    async with opened(path) as app:
        handle = (await app.engine.start(waits, kind, turns, id="waiting")).unwrap()
        _ = (await handle.result()).unwrap()


# --- idle ------------------------------------------------------------------------------


async def park_many(app: App, count: int) -> None:
    kinds = ("when", "take", "sleep", "signal")
    await make(app, *kinds)
    for begin in range(0, count, 100):
        starts = (app.engine.start(parks, kinds[n % 4], id=f"p-{n}") for n in range(begin, min(begin + 100, count)))
        _ = [started.unwrap() for started in await asyncio.gather(*starts)]
    await all_wait(app, count)


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def child_idles(path: Path, count: int, idle_s: float) -> None:
    """Says the share of a core that it took."""
    async with opened(path) as app:
        await park_many(app, count)
        await asyncio.sleep(3)  # what begins quickly and grows slow has grown
        before, began = cpu_s(), time.perf_counter()
        await asyncio.sleep(idle_s)
        print((cpu_s() - before) / (time.perf_counter() - began), flush=True)


async def child_parks(path: Path, few: int, many: int) -> None:
    """Says the resident bytes that a parked run takes."""
    async with opened(path) as app:
        await park_many(app, few)
        before = resident_bytes()
        await park_many_more(app, few, many)
        print((resident_bytes() - before) / (many - few), flush=True)


async def park_many_more(app: App, few: int, many: int) -> None:
    for begin in range(few, many, 100):
        starts = (app.engine.start(parks, "when", id=f"p-{n}") for n in range(begin, min(begin + 100, many)))
        _ = [started.unwrap() for started in await asyncio.gather(*starts)]
    await all_wait(app, many)


def resident_bytes() -> int:
    _ = gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- many takers --------------------------------------------------------------------------


@dataclass(frozen=True)
class Shared:
    takers: int
    batches: float
    wakes: float
    seconds: float


async def share(path: Path, takers: int) -> Shared:
    """So many runs take from one store, while as many items are put into it: what each item costs."""
    async with opened(path) as app:
        await make(app, "shared")
        handles = [(await app.engine.start(takes, id=f"t-{number}")).unwrap() for number in range(takers)]
        await all_wait(app, takers)
        batches, wakes = app.counts.batches, app.counts.wakes
        began = time.perf_counter()
        for number in range(takers):
            _ = (await app.store.update(shelves, "shared", put(str(number)))).unwrap()
        taken = sorted([int((await handle.result()).unwrap()) for handle in handles])
        seconds = time.perf_counter() - began
        assert taken == list(range(takers)), "an item was lost, or taken twice"
        batches, wakes = app.counts.batches - batches, app.counts.wakes - wakes
        return Shared(takers, batches / takers, wakes / takers, seconds)


# --- what is reported ------------------------------------------------------------------------


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def report_latency(path: Path, rounds: int) -> int:
    rows, floors, on_loop = asyncio.run(latency(path, rounds))
    status = report(f"in one process, against one row in one commit ({rounds} rounds)", rows)
    for name, spent in (("the floor", floors), ("the same commit on the event loop", on_loop)):
        low, middle, high = quartiles([each * 1e6 for each in spent])
        print(f"  {name:<52}{middle:>9.1f} µs   ({low:.1f} to {high:.1f})")
    return status


def report_processes(path: Path, rounds: int) -> int:
    status = 0
    print(f"\nbetween two processes on one file ({rounds} rounds)")
    for kind, spent in asyncio.run(between(path, rounds)).items():
        low, middle, high = quartiles(spent)
        p99 = statistics.quantiles(spent, n=100)[98]
        met = middle <= BETWEEN_MS and p99 <= BETWEEN_MS
        print(
            f"  {kind:<12}{middle:>8.2f} ms ({low:.2f} to {high:.2f})   p99 {p99:.2f}, most {max(spent):.2f}"
            f"   ≤ {BETWEEN_MS:g} at p50 and p99: {verdict(met)}"
        )
        status |= not met
    return status


def told(path: Path, *order: object) -> float:
    with child(path, *map(str, order[:1]), *order[1:]) as process:
        return float(asyncio.run(said(process)))


def report_idle(path: Path) -> int:
    share = told(path / "idle.db", "idles", IDLE_RUNS, IDLE_S)
    met = share <= IDLE_BOUND
    print(f"\nidle, with {IDLE_RUNS} parked runs, for {IDLE_S:g} s")
    print(f"  {share:.2%} of a core   ≤ {IDLE_BOUND:.0%}: {verdict(met)}")
    return not met


def report_takers(path: Path) -> int:
    print("\nas many runs take from one store as items are put into it, one after the other")
    found = [asyncio.run(share(path / f"takers-{takers}.db", takers)) for takers in TAKERS]
    status = 0
    for each in found:
        met = each.batches <= BATCHES_AN_ITEM
        status |= not met
        print(
            f"  {each.takers:>6} takers   {each.batches:.2f} batches an item   ≤ {BATCHES_AN_ITEM:g}: {verdict(met)}"
            f"   {each.wakes:.2f} wakes an item   {each.seconds:.2f} s, {each.seconds / each.takers * 1e3:.2f} ms each"
        )
    grown = found[-1].batches / found[0].batches
    met = grown <= GROWTH_BOUND
    print(f"  {grown:.2f} times the batches an item with {TAKERS[-1] // TAKERS[0]} times the takers: {verdict(met)}")
    return status | (not met)


def report_memory(path: Path) -> int:
    print(f"\na parked run takes {told(path / 'memory.db', 'parks', 500, 2_500) / 1024:.1f} KiB of resident memory")
    return 0


# --- the program --------------------------------------------------------------------------------


async def be_child(path: Path, what: str, arguments: list[Any]) -> None:
    acts: dict[str, Callable[..., Awaitable[None]]] = {
        "waits": child_waits,
        "idles": child_idles,
        "parks": child_parks,
    }
    await acts[what](path, *arguments)


PARTS = ("latency", "processes", "idle", "takers", "memory")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("PATH", "ORDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        what, *arguments = json.loads(given.child[1])
        asyncio.run(be_child(Path(given.child[0]), what, arguments))
        return 0
    rounds = given.rounds or (100 if given.check else 200)
    status = 0
    profile = cProfile.Profile()
    if given.profile:
        profile.enable()
    with folder() as path:
        for part in given.only.split(","):
            match part:
                case "latency":
                    status |= report_latency(path, rounds)
                case "processes":
                    status |= report_processes(path, rounds)
                case "idle":
                    status |= report_idle(path)
                case "takers":
                    status |= report_takers(path)
                case "memory":
                    status |= report_memory(path)
                case _:
                    parser.error(f"--only names some of {', '.join(PARTS)}, not {part!r}")
    if given.profile:
        profile.disable()
        _ = pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    return status


if __name__ == "__main__":
    sys.exit(main())
