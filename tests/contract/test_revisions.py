"""Revisions over the hosts of the ledger, and what only a file shows."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepwell
from stepwell import Failure, Purged, Retention, Revision, StepId, StoreNotFound, Success, Unavailable, Waiter
from stepwell.core.batch import (
    Batch,
    ChangeRun,
    CreateStore,
    ReadSignal,
    RegisterWaiter,
    SendSignal,
    StoreAbsent,
)
from stepwell.core.signal import SignalRow
from stepwell.layers.revisions import LedgerRevisions
from stepwell.layers.sql.connection import Connection
from stepwell.services.ledger import Prunable

from .ledger_batches import committed
from .ledger_double import LedgerDouble
from .revisions_contract import RevisionsContract
from .revisions_world import KEY, MINUTE, Host, World, counts, opened, receipt


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with opened("sqlite" if request.param == "sqlite" else "memory", tmp_path / "app.db") as made:
        yield made


class TestRevisions(RevisionsContract):
    pass


# --- files ------------------------------------------------------------------

MARKER = b"the-secret-of-the-purged-store"


def found_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if MARKER in path.read_bytes())


async def test_what_is_purged_is_in_no_file_any_more(tmp_path: Path) -> None:
    document = b'{"secret": "' + MARKER * 400 + b'"}'
    async with opened("sqlite", tmp_path / "app.db") as world:
        await world.make("plain", last=3, key=KEY)
        for number in range(20):
            secret, first = counts.key(f"secret-{number}"), Revision("s", 0)
            step = StepId("run-1", f"take-{number}")
            batch = Batch((StoreAbsent(secret, first),), (CreateStore(secret, first, document),))
            batch += receipt(first, step, secret, b'"' + MARKER + b'"')
            committed(await world.ledger.commit(batch))
            waiter = Waiter(secret, StepId("run-1", f"wait-{number}"), first, ((MARKER.decode(),),))
            committed(await world.ledger.commit(Batch((), (RegisterWaiter(waiter),))))
            if number % 2:
                await world.change(1, "s", secret)
                await world.delete(1, "s", secret)
        assert found_in(tmp_path) != []
        for number in range(20):
            purged = (await world.revisions.purge(counts, f"secret-{number}")).unwrap()
            assert (purged.receipts, purged.settled) == (1, True)
        assert found_in(tmp_path) == []
        assert len(await world.kept()) == 4


async def test_what_is_purged_beneath_a_store_that_was_made_again_is_in_no_file_any_more(tmp_path: Path) -> None:
    document, first = b'{"secret": "' + MARKER * 400 + b'"}', Revision("one", 0)

    async with opened("sqlite", tmp_path / "app.db") as world:

        async def make_again() -> None:
            await world.end()
            await world.make("two", last=3)

        committed(await world.ledger.commit(Batch((StoreAbsent(KEY, first),), (CreateStore(KEY, first, document),))))
        assert found_in(tmp_path) != []
        assert await world.purge(4, make_again) == Success(Purged(False, 0, True))
        assert found_in(tmp_path) == []
        assert [version for _, version in await world.kept()] == [3, 2, 1, 0]
    check_chain(tmp_path / "app.db")


async def test_a_file_that_is_collected_stays_as_long_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    sizes: list[int] = []
    async with opened("sqlite", path) as world:
        await world.make()
        for cycle in range(6):
            for version in range(1 + 200 * cycle, 201 + 200 * cycle):
                await world.change(version)
            await world.clock.advance(MINUTE)
            assert (await world.revisions.collect(Retention(keep_revisions=1))).unwrap().revisions == 200
            await _settle(world)
            sizes.append(path.stat().st_size)
    assert sizes[-1] <= sizes[1]


async def _settle(world: World) -> None:
    assert isinstance(world.ledger, Prunable)
    assert await world.ledger.settle() == Success(None)


def check_chain(path: Path) -> None:
    """No change names one that is gone, and none has lost the way to the newest."""
    connection = Connection(str(path))
    try:
        lost = "select seq from log where prev_seq is not null and prev_seq not in (select seq from log)"
        assert connection.rows(lost) == []
        unreached = """
            select seq from log where seq not in (select prev_seq from log where prev_seq is not null)
                and seq not in (select last_seq from head where last_seq is not null)"""
        assert connection.rows(unreached) == []
        assert connection.rows("select seq from base where seq not in (select seq from log)") == []
    finally:
        connection.close()


async def test_two_ledgers_collect_one_file_at_once(tmp_path: Path) -> None:
    """Whoever comes second finds another history than it planned on, and leaves it as it is."""
    path = tmp_path / "app.db"
    async with opened("sqlite", path) as one, opened("sqlite", path) as other:
        for number in range(12):
            key = counts.key(f"c-{number}")
            await one.make(last=30, key=key)
            await one.run(f"run-{number}", "running")
            await one.pin(f"run-{number}", "get", Revision("one", number), key)
        await one.clock.advance(MINUTE)
        await other.clock.advance(one.clock.now_ms() - other.clock.now_ms())
        policies = [(one, 20), (other, 12), (one, 5), (other, 9), (other, 3), (one, 7)]
        done = await asyncio.gather(
            *(each.revisions.collect(Retention(keep_revisions=keep)) for each, keep in policies)
        )
        assert all(isinstance(each, Success) for each in done)
        check_chain(path)
        assert isinstance(await other.revisions.collect(Retention(keep_revisions=3)), Success)
        for number in range(12):
            kept = [version for _, version in await one.kept(counts.key(f"c-{number}"))]
            assert kept == [30, 29, 28, number]
        check_chain(path)


async def test_a_ledger_that_cannot_be_pruned_says_so(world: World) -> None:
    service = LedgerRevisions(LedgerDouble(world.ledger), world.clock)
    for answer in (await service.collect(Retention(keep_revisions=1)), await service.purge(counts, "c-1")):
        assert isinstance(answer, Failure)
        failure = answer.failure()
        assert isinstance(failure, Unavailable)
        assert failure.applied == "no"


def first(state: dict[str, int]) -> int | None:
    return state.get("n")


def claim(draft: dict[str, int], found: int) -> None:
    draft["n"] = found + 1


def add(draft: dict[str, int]) -> None:
    draft["more"] = 1


@pytest.mark.parametrize("path", ["memory:", "app.db"])
async def test_who_uses_a_store_that_is_purged_finds_none(path: str, tmp_path: Path) -> None:
    async with stepwell.open(path if path == "memory:" else tmp_path / path) as app:
        store = app.store(counts, "c-1")
        assert isinstance(await store.get_or_create({"n": 1}), Success)
        steps = (StepId("run-1", "take"), StepId("run-1", "update"))
        assert (await store.take(first, claim, step=steps[0])).unwrap().selected == 1
        assert isinstance(await store.update(add, step=steps[1]), Success)
        waits = asyncio.ensure_future(store.when(lambda state: state["n"] == 9))
        await asyncio.sleep(0)
        assert (await app.revisions.purge(counts, "c-1")).unwrap().deleted
        missing = Failure(StoreNotFound(KEY))
        assert await waits == missing
        assert await store.get() == missing
        assert await store.update(add) == missing
        for again in (await store.take(first, claim, step=steps[0]), await store.update(add, step=steps[1])):
            assert isinstance(again, Failure)
            failure = again.failure()
            assert isinstance(failure, StoreNotFound)
            assert failure.expected is not None
            assert "erased by purge" in (failure.reason or "")


async def test_signals_that_forgotten_runs_have_read_are_swept(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        for run in ("gone", "open"):
            await world.run(run, "running")
            for number in range(3):
                sent = SendSignal(SignalRow(run, "s", b"1", f"once-{number}" if number else None))
                committed(await world.ledger.commit(Batch((), (sent,))))
            (unread, *_) = (await world.ledger.signals(run)).unwrap()
            committed(await world.ledger.commit(Batch((), (ReadSignal(run, unread.no, "step"),))))
        committed(await world.ledger.commit(Batch((), (ChangeRun("gone", {"state": "completed"}),))))
        await world.clock.advance(MINUTE)
        assert (await world.revisions.collect(Retention(keep_ended_runs_ms=0))).unwrap().runs == 1
    connection = Connection(str(tmp_path / "app.db"))
    try:
        assert connection.rows("select r.id, count(*) from signal s left join run r on r.no = s.run_no group by 1") == [
            ("open", 3)
        ]
    finally:
        connection.close()


def test_limits_that_make_no_sense_are_refused() -> None:
    for limits in ({"keep_revisions": 0}, {"keep_age_ms": -1}, {"keep_ended_runs_ms": -1}):
        with pytest.raises(ValueError, match="is at least"):
            Retention(**limits)


# --- random histories and policies -------------------------------------------


@dataclass(frozen=True)
class Row:
    instance: str
    version: int
    kind: Literal["revision", "end"]
    at_ms: int


@dataclass
class Model:
    """The rows that are kept, the newest first, and who pins what: runs by their receipts and steps."""

    rows: list[Row] = field(default_factory=list[Row])
    pins: dict[str, set[tuple[str, int]]] = field(default_factory=dict[str, set[tuple[str, int]]])
    ended: set[str] = field(default_factory=set[str])

    def collect(self, policy: Retention, now_ms: int) -> None:
        if policy.keep_ended_runs_ms is not None:
            for run in self.ended:  # they all ended long ago
                self.pins.pop(run, None)
            self.ended.clear()
        pinned = {revision for revisions in self.pins.values() for revision in revisions}
        keep: list[Row] = []
        newer = 0
        for place, row in enumerate(self.rows):
            if row.kind == "end":
                keep.append(row)
                continue
            left_ms = now_ms - self.rows[place - 1].at_ms if place else 0
            limits = [
                newer < policy.keep_revisions if policy.keep_revisions is not None else None,
                left_ms < policy.keep_age_ms if policy.keep_age_ms is not None else None,
            ]
            keeps = any(limits) or limits == [None, None] or left_ms < MINUTE or place == 0
            newer += 1
            if keeps or (row.instance, row.version) in pinned:
                keep.append(row)
        alive = {row.instance for row in keep if row.kind == "revision"}
        self.rows = [row for place, row in enumerate(keep) if row.instance in alive or (place == 0 and alive)]


policies = st.builds(
    Retention,
    keep_revisions=st.none() | st.integers(1, 5),
    keep_age_ms=st.none() | st.integers(0, 12).map(lambda minutes: minutes * MINUTE),
    keep_ended_runs_ms=st.sampled_from([None, None, 0]),
)
actions = st.sampled_from(["change", "change", "change", "change", "receipt", "pin", "recreate", "delete", "end"])
programs = st.lists(st.tuples(st.lists(actions, max_size=14), policies), min_size=1, max_size=3)


async def run_program(world: World, program: list[tuple[list[str], Retention]]) -> None:
    model = Model()
    made, tip = 0, None
    everything: set[Revision] = set()
    for number, (acts, policy) in enumerate(program):
        for place, act in enumerate(acts):
            run, step = f"run-{number}-{place}", StepId(f"run-{number}-{place}", "s")
            if tip is None:
                made += 1
                await world.make(f"i{made}")
                tip = Revision(f"i{made}", 0)
            elif act in ("delete", "recreate"):
                await world.delete(tip.version, tip.instance_id)
                model.rows.insert(0, Row(tip.instance_id, tip.version, "end", world.clock.now_ms()))
                tip = None
                continue
            elif act in ("pin", "end"):
                rows = [row for row in model.rows if row.kind == "revision"]
                row = rows[(7 * place) % len(rows)]
                await world.run(run, "completed" if act == "end" else "running")
                await world.pin(run, "get", Revision(row.instance, row.version))
                model.pins[run] = {(row.instance, row.version)}
                model.ended |= {run} if act == "end" else set()
                continue
            else:
                tip = Revision(tip.instance_id, tip.version + 1)
                await world.change(tip.version, tip.instance_id, step=step if act == "receipt" else None)
                if act == "receipt":
                    model.pins[run] = {(tip.instance_id, tip.version)}
            model.rows.insert(0, Row(tip.instance_id, tip.version, "revision", world.clock.now_ms()))
            everything.add(tip)
        await world.clock.advance(MINUTE)
        before = len([row for row in model.rows if row.kind == "revision"])
        model.collect(policy, world.clock.now_ms())
        kept = [(row.instance, row.version) for row in model.rows if row.kind == "revision"]
        would = (await world.revisions.collect(policy, dry_run=True)).unwrap()
        done = (await world.revisions.collect(policy)).unwrap()
        assert done == would
        assert done.revisions == before - len(kept)
        assert await world.kept() == kept
        for revision in everything:
            is_kept = (revision.instance_id, revision.version) in kept
            assert (await world.state(revision) is not None) == is_kept
        again = (await world.revisions.collect(policy)).unwrap()
        assert (again.runs, again.revisions) == (0, 0)


@pytest.mark.parametrize("host", ["memory", "sqlite"])
@given(program=programs)
@settings(max_examples=max(10, settings().max_examples // 4), deadline=None)
def test_what_a_policy_keeps_and_what_is_pinned_reads_as_before_and_nothing_else(
    host: Host, program: list[tuple[list[str], Retention]]
) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(host, Path(folder) / "app.db") as world:
                await run_program(world, program)

    asyncio.run(main())
