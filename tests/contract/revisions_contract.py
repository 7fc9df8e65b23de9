"""What revisions must keep over every ledger; each host runs this class with its own fixture `world`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from stepwell import (
    Collected,
    Difference,
    Failure,
    Purged,
    Retention,
    Revision,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    Success,
    Waiter,
)
from stepwell.core.batch import Batch, ChangeRun, PatchStore, RegisterWaiter, SendSignal, StoreAt, WriteStep
from stepwell.core.retention import CUT_ROWS
from stepwell.core.signal import SignalRow
from stepwell.core.step import StepRow
from stepwell.services.revisions import Changed

from .ledger_batches import CHARGE, committed
from .revisions_world import KEY, MINUTE, World, counts, receipt

ONE = Retention(keep_revisions=1)
STEP = StepId("run-1", "s")
LATER = StepId("run-2", "s")

CALLS = 14
"""More calls than a purge makes of the ledger: whoever comes between them may also come right after the last."""


def one(version: int) -> Revision:
    return Revision("one", version)


class RevisionsContract:
    # --- looking back -------------------------------------------------------

    async def test_history_tells_what_changed_newest_first(self, world: World) -> None:
        await world.make(last=1)
        await world.delete(1)
        await world.make("two")
        now_ms = world.clock.now_ms()
        history = (await world.revisions.history(counts, "c-1")).unwrap()
        assert history == (
            Changed(Revision("two", 0), "created", now_ms, is_whole=True),
            Changed(one(1), "deleted", now_ms - MINUTE),
            Changed(one(1), "patched", now_ms - 2 * MINUTE, (("n",),), history[2].patch_bytes),
            Changed(one(0), "created", now_ms - 3 * MINUTE, is_whole=True),
        )
        assert history[2].patch_bytes > 0
        for limit, most in ((1, 2), (2, 2), (3, 3)):
            pages: list[Changed] = []
            before: Revision | None = None
            while page := (
                await world.revisions.history("revisions.counts", "c-1", limit=limit, before=before)
            ).unwrap():
                assert len(page) <= most
                pages += page
                before = page[-1].revision
            assert tuple(pages) == history
        assert await world.revisions.history(counts, "c-1", before=one(1)) == Success(history[3:])
        assert await world.revisions.history(counts, "c-1", before=one(0)) == Success(())

    async def test_of_what_never_was_there_is_no_history(self, world: World) -> None:
        missing = StoreKey("revisions.counts", "nobody")
        assert await world.revisions.history(counts, "nobody") == Failure(StoreNotFound(missing))
        assert await world.revisions.purge(counts, "nobody") == Failure(StoreNotFound(missing))
        with pytest.raises(ValueError, match="limit is at least 1"):
            await world.revisions.history(counts, "c-1", limit=0)

    async def test_diff_gives_both_values_at_each_path(self, world: World) -> None:
        await world.make(last=2)
        await world.delete(2)
        await world.make("two")
        diff = world.revisions.diff
        assert await diff(counts, "c-1", one(0), one(2)) == Success((Difference(("n",), 0, 2),))
        assert await diff(counts, "c-1", one(2), Revision("two", 0)) == Success(
            (Difference(("n",), 2, 0), Difference(("i",), "one", "two"))
        )
        assert await diff(counts, "c-1", one(1), one(1)) == Success(())
        assert await diff(counts, "c-1", one(1), one(7)) == Failure(StoreNotFound(KEY, one(7)))

    async def test_a_number_that_no_version_has_is_not_found(self, world: World) -> None:
        await world.make(last=1)
        diff, history = world.revisions.diff, world.revisions.history
        whole = (await history(counts, "c-1")).unwrap()
        for beyond in (one(2**63), one(10**30)):
            assert await diff(counts, "c-1", one(0), beyond) == Failure(StoreNotFound(KEY, beyond))
            assert await diff(counts, "c-1", beyond, one(0)) == Failure(StoreNotFound(KEY, beyond))
            assert await history(counts, "c-1", before=beyond) == Success(whole)
        assert await history(counts, "c-1", limit=2**63) == Success(whole)

    @pytest.mark.parametrize("given", [1, "one", ("one", 1), Success(one(0))], ids=repr)
    async def test_what_is_no_revision_is_refused(self, world: World, given: Any) -> None:
        await world.make(last=1)
        diff, history = world.revisions.diff, world.revisions.history
        for call in (
            lambda: diff(counts, "c-1", given, one(1)),
            lambda: diff(counts, "c-1", one(1), given),
            lambda: history(counts, "c-1", before=given),
        ):
            with pytest.raises(TypeError, match=r"(one|other|before) is a Revision, not .*: write Revision\("):
                await call()
        snapshot: Any = Snapshot(0, one(0))
        with pytest.raises(TypeError, match=r"give its \.revision"):
            await diff(counts, "c-1", one(1), snapshot)

    @pytest.mark.parametrize("limit", [1.5, True, "1", None], ids=repr)
    async def test_a_limit_that_is_no_number_is_refused(self, world: World, limit: Any) -> None:
        await world.make()
        with pytest.raises(TypeError, match="limit is a whole number, not "):
            await world.revisions.history(counts, "c-1", limit=limit)

    @pytest.mark.parametrize("policy", [None, 3], ids=repr)
    async def test_a_policy_is_a_retention(self, world: World, policy: Any) -> None:
        with pytest.raises(TypeError, match="a policy is a Retention, not "):
            await world.revisions.collect(policy)

    # --- retention ----------------------------------------------------------

    async def test_the_newest_revisions_are_kept(self, world: World) -> None:
        await world.make(last=9)
        await world.clock.advance(MINUTE)
        would = await world.revisions.collect(Retention(keep_revisions=3), dry_run=True)
        assert len(await world.kept()) == 10
        done = (await world.revisions.collect(Retention(keep_revisions=3))).unwrap()
        assert would == Success(done)
        assert (done.runs, done.revisions) == (0, 7)
        assert await world.kept() == [("one", 9), ("one", 8), ("one", 7)]
        assert [await world.state(one(version)) for version in range(7)] == [None] * 7
        assert await world.revisions.collect(Retention(keep_revisions=3)) == Success(Collected())
        await world.change(10)
        assert await world.kept() == [("one", 10), ("one", 9), ("one", 8), ("one", 7)]

    async def test_what_was_in_force_lately_is_kept(self, world: World) -> None:
        await world.make(last=9)
        await world.clock.advance(MINUTE)
        policy = Retention(keep_age_ms=3 * MINUTE + 1)
        assert (await world.revisions.collect(policy)).unwrap().revisions == 6
        assert await world.kept() == [("one", 9), ("one", 8), ("one", 7), ("one", 6)]
        both = Retention(keep_age_ms=2 * MINUTE, keep_revisions=3)
        assert (await world.revisions.collect(both)).unwrap().revisions == 1
        assert await world.kept() == [("one", 9), ("one", 8), ("one", 7)]

    async def test_what_was_in_force_a_moment_ago_stays(self, world: World) -> None:
        await world.make(last=3)
        assert (await world.revisions.collect(ONE)).unwrap().revisions == 2
        assert await world.kept() == [("one", 3), ("one", 2)]
        assert (await world.revisions.collect(Retention())).unwrap() == Collected()

    async def test_it_tells_when_the_first_goes_of_what_is_too_young(self, world: World) -> None:
        await world.make(last=2)
        await world.run("ended")
        now_ms = world.clock.now_ms()
        policy = Retention(keep_age_ms=5 * MINUTE, keep_ended_runs_ms=2 * MINUTE)
        done = (await world.revisions.collect(policy)).unwrap()
        first_left_ms = now_ms - MINUTE
        assert (done.next_revision_ms, done.next_run_ms) == (first_left_ms + 5 * MINUTE, now_ms + 2 * MINUTE)
        await world.clock.advance(2 * MINUTE)
        done = (await world.revisions.collect(policy)).unwrap()
        assert (done.runs, done.revisions, done.next_run_ms) == (1, 0, None)
        await world.clock.advance(2 * MINUTE)
        done = (await world.revisions.collect(policy)).unwrap()
        assert (done.revisions, done.next_revision_ms) == (1, now_ms + 5 * MINUTE)
        done = (await world.revisions.collect(Retention(keep_revisions=2))).unwrap()
        assert (done.revisions, done.next_revision_ms) == (0, None)

    async def test_what_a_receipt_or_a_step_names_is_kept_and_then_not(self, world: World) -> None:
        await world.make(last=3)
        await world.change(4, step=STEP)
        for version in range(5, 9):
            await world.change(version)
        await world.run("run-1")
        await world.pin("run-1", "get", one(2))
        await world.pin("run-1", "get again", one(5))
        await world.clock.advance(MINUTE)
        assert (await world.revisions.collect(ONE)).unwrap().revisions == 5
        assert await world.kept() == [("one", 8), ("one", 5), ("one", 4), ("one", 2)]
        assert (await world.ledger.receipt(KEY, STEP)).unwrap() is not None
        forget = replace_ended(ONE, 0)
        would = await world.revisions.collect(forget, dry_run=True)
        done = (await world.revisions.collect(forget)).unwrap()
        assert would == Success(done)
        assert (done.runs, done.revisions) == (1, 3)
        assert await world.kept() == [("one", 8)]
        assert (await world.ledger.receipt(KEY, STEP)).unwrap() is None

    async def test_of_deleted_instances_what_is_pinned_stays(self, world: World) -> None:
        await world.make(last=3)
        await world.delete(3)
        await world.make("two", last=2)
        await world.delete(2, "two")
        await world.run("run-1", "running")
        await world.pin("run-1", "get", one(1))
        await world.clock.advance(2 * MINUTE)
        aged = Retention(keep_age_ms=0)
        assert (await world.revisions.collect(aged)).unwrap().revisions == 6
        assert await world.kept() == [("one", 1)]
        assert (await world.revisions.collect(aged)).unwrap() == Collected()
        await world.make("three")
        assert await world.kept() == [("three", 0), ("one", 1)]

    async def test_a_deleted_store_of_which_nothing_is_kept_leaves_nothing(self, world: World) -> None:
        await world.make(last=3)
        await world.delete(3)
        await world.clock.advance(2 * MINUTE)
        assert (await world.revisions.collect(Retention(keep_age_ms=0))).unwrap().revisions == 4
        assert (await world.ledger.revisions(KEY)).unwrap() == ()
        assert await world.revisions.history(counts, "c-1") == Failure(StoreNotFound(KEY))

    async def test_runs_that_ended_long_ago_are_forgotten(self, world: World) -> None:
        await world.run("old")
        await world.run("failed", "failed")
        await world.run("stuck", "stuck")
        committed(await world.ledger.commit(Batch((), (SendSignal(SignalRow("stuck", "s", b"1")),))))
        await world.make()
        waiter = Waiter(KEY, StepId("old", "wait"), one(0), (("n",),))
        committed(await world.ledger.commit(Batch((), (RegisterWaiter(waiter),))))
        await world.clock.advance(10 * MINUTE)
        await world.run("young")
        done = await world.revisions.collect(Retention(keep_ended_runs_ms=5 * MINUTE))
        assert done == Success(Collected(runs=2))
        assert [row.id for row in (await world.ledger.runs()).unwrap()] == ["stuck", "young"]
        assert (await world.ledger.waiters()).unwrap() == ()
        assert len((await world.ledger.signals("stuck")).unwrap()) == 1

    async def test_a_run_of_many_steps_is_forgotten_in_parts(self, world: World) -> None:
        await world.run("big", "failed")
        many = 2 * CUT_ROWS + 7
        steps = [WriteStep(_named("big", f"step-{number}")) for number in range(many)]
        committed(await world.ledger.commit(Batch((), tuple(steps))))
        await world.run("small")
        await world.clock.advance(2 * MINUTE)
        assert await world.revisions.collect(Retention(keep_ended_runs_ms=0)) == Success(Collected(runs=2))
        assert (await world.ledger.runs()).unwrap() == ()
        assert (await world.ledger.steps("big")).unwrap() == ()

    async def test_more_runs_than_a_page_are_forgotten(self, world: World) -> None:
        for number in range(250):
            await world.run(f"run-{number}", "failed" if number % 3 else "running")
        await world.clock.advance(2 * MINUTE)
        done = (await world.revisions.collect(Retention(keep_ended_runs_ms=0))).unwrap()
        assert done.runs == 166
        assert len((await world.ledger.runs(limit=1000)).unwrap()) == 84

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_runs_are_listed_on_from_one_that_was_forgotten(self, world: World, newest_first: bool) -> None:
        for number in range(5):
            await world.run(f"run-{number}", "failed" if number == 2 else "running")
        (*_, last) = (await world.ledger.runs(limit=3, newest_first=newest_first)).unwrap()
        await world.clock.advance(2 * MINUTE)
        assert (await world.revisions.collect(Retention(keep_ended_runs_ms=0))).unwrap().runs == 1
        rest = (await world.ledger.runs(after=last.no, newest_first=newest_first)).unwrap()
        assert [row.id for row in rest] == (["run-1", "run-0"] if newest_first else ["run-3", "run-4"])
        assert await world.ledger.runs(after=last.id, newest_first=newest_first) == Success(())
        await world.run("run-2", "running")  # the id is free again, the number is not
        (again,) = (await world.ledger.runs(limit=1, newest_first=True)).unwrap()
        assert again.no > max(row.no for row in (last, *rest))

    async def test_a_run_that_is_taken_up_again_meanwhile_stays(self, world: World) -> None:
        await world.run("run-1", "failed")
        await world.clock.advance(2 * MINUTE)
        reopened = Batch((), (ChangeRun("run-1", {"state": "waiting", "fence": 1}),))
        both = await asyncio.gather(
            world.ledger.commit(reopened), world.revisions.collect(Retention(keep_ended_runs_ms=0))
        )
        assert both[1] in (Success(Collected()), Success(Collected(runs=1)))
        row = (await world.ledger.run("run-1")).unwrap()
        assert (row is None) == (both[1] == Success(Collected(runs=1)))

    async def test_others_read_and_write_while_it_collects(self, world: World) -> None:
        other = replace(KEY, id="c-2")
        await world.make(last=60)
        await world.make("two", key=other)
        await world.clock.advance(MINUTE)
        ended = asyncio.Event()

        async def write() -> int:
            version = 0
            while not ended.is_set():
                version += 1
                await world.change(version, "two", other)
            return version

        async def read() -> None:
            while not ended.is_set():
                for version in (51, 55, 60):
                    assert await world.state(one(version)) == {"n": version, "i": "one"}
                await asyncio.sleep(0)

        async def collect() -> None:
            for keep in (50, 40, 30, 20, 10):
                done = (await world.revisions.collect(Retention(keep_revisions=keep))).unwrap()
                assert done.revisions >= 10
            ended.set()

        last, _, _ = await asyncio.gather(write(), read(), collect())
        assert (await world.ledger.tip(other)).unwrap() == Revision("two", last)
        assert [version for _, version in await world.kept()] == list(range(60, 50, -1))

    async def test_a_long_history_goes_in_slices(self, world: World) -> None:
        await world.make(last=CUT_ROWS + 20)
        await world.clock.advance(MINUTE)
        assert (await world.revisions.collect(ONE)).unwrap().revisions == CUT_ROWS + 20
        assert await world.kept() == [("one", CUT_ROWS + 20)]

    # --- purging ------------------------------------------------------------

    async def test_purging_erases_a_store_that_exists(self, world: World) -> None:
        await world.make(last=2)
        await world.change(3, step=STEP)
        await world.run("run-1", "running")
        await world.pin("run-1", "get", one(1))
        waiter = Waiter(KEY, StepId("run-1", "wait"), one(3), (("n",),))
        committed(await world.ledger.commit(Batch((), (RegisterWaiter(waiter),))))
        assert await world.revisions.purge(counts, "c-1") == Success(Purged(deleted=True, receipts=1, settled=True))
        assert (await world.ledger.tip(KEY)).unwrap() is None
        assert (await world.ledger.revisions(KEY)).unwrap() == ()
        assert [await world.state(one(version)) for version in range(4)] == [None] * 4
        stored = (await world.ledger.receipt(KEY, STEP)).unwrap()
        assert stored is not None
        assert (stored.value, stored.revision) == (b"", one(3))
        (row,) = (await world.ledger.waiters()).unwrap()
        assert row.due_no is not None
        assert await world.revisions.purge(counts, "c-1") == Failure(StoreNotFound(KEY))
        await world.make("two")
        assert await world.kept() == [("two", 0)]

    @pytest.mark.parametrize("queue", [None, "q"])
    async def test_purging_erases_what_waiters_have_read(self, world: World, queue: str | None) -> None:
        """A path names keys of the state. Who waits on the store that is made again is not concerned."""
        for instance in ("one", "two"):
            await world.make(instance, last=1)
            step, path = StepId(f"run-{instance}", "wait"), (instance,)
            waiter = Waiter(KEY, step, Revision(instance, 1), (path,), queue=queue)
            committed(await world.ledger.commit(Batch((), (RegisterWaiter(waiter),))))
            if instance == "one":
                assert (await world.revisions.purge(counts, "c-1")).unwrap().deleted
        first, second = (await world.ledger.waiters(key=KEY)).unwrap()
        assert (first.waiter.read_paths, first.due_no is None) == (((),), False)
        assert (second.waiter.read_paths, second.due_no is None) == ((("two",),), True)
        await world.change(2, "two")
        await world.delete(2, "two")
        assert (await world.revisions.purge(counts, "c-1")).unwrap().deleted is False
        assert [row.waiter.read_paths for row in (await world.ledger.waiters(key=KEY)).unwrap()] == [((),), ((),)]

    async def test_purging_erases_what_is_left_of_a_deleted_store(self, world: World) -> None:
        await world.make(last=2)
        await world.delete(2)
        await world.make("two")
        await world.delete(0, "two")
        assert await world.revisions.purge("revisions.counts", "c-1") == Success(Purged(False, 0, True))
        assert (await world.ledger.revisions(KEY)).unwrap() == ()

    async def test_purging_while_others_change_the_store(self, world: World) -> None:
        """Whoever changes it either comes first, and is erased too, or finds no store."""
        await world.make()

        async def write() -> int:
            for version in range(1, 100):
                change = PatchStore(KEY, one(version), b"[]")
                step = receipt(one(version), StepId("run-1", f"s-{version}"))
                verdict = await world.ledger.commit(Batch((StoreAt(KEY, one(version - 1)),), (change,)) + step)
                if isinstance(verdict, Failure):
                    assert verdict == Failure(StoreNotFound(KEY, one(version - 1)))
                    return version - 1
            return 99

        written, purged = await asyncio.gather(write(), world.revisions.purge(counts, "c-1"))
        if isinstance(purged, Failure):  # it came too late each time
            assert written == 99
            return
        assert purged == Success(Purged(True, written, True))
        assert (await world.ledger.revisions(KEY)).unwrap() == ()

    @pytest.mark.parametrize("call", range(1, CALLS))
    async def test_a_store_that_is_made_again_while_it_is_purged_stays(self, world: World, call: int) -> None:
        async def make_again() -> None:
            await world.end()
            await world.make("two", last=1)
            await world.change(2, "two", step=LATER)

        await world.make(last=2)
        await world.change(3, step=STEP)
        purged = (await world.purge(call, make_again)).unwrap()
        assert (purged.receipts, purged.settled) == (1, True)
        assert [await world.state(one(version)) for version in range(4)] == [None] * 4
        assert await world.kept() == [("two", 2), ("two", 1), ("two", 0)]
        assert (await world.ledger.tip(KEY)).unwrap() == Revision("two", 2)
        assert await world.values(STEP, LATER) == [b"", b'"v"']
        await world.change(3, "two")
        assert (await world.kept())[0] == ("two", 3)
        await world.clock.advance(2 * MINUTE)
        assert isinstance(await world.revisions.collect(ONE), Success)
        assert (await world.kept())[0] == ("two", 3)

    @pytest.mark.parametrize("call", range(1, CALLS))
    async def test_the_history_of_one_that_was_made_and_deleted_again_meanwhile_stays(
        self, world: World, call: int
    ) -> None:
        async def make_and_delete() -> None:
            await world.end()
            for instance in ("two", "three"):
                await world.make(instance, last=1)
                await world.delete(1, instance)

        await world.make("zero", last=1)
        await world.delete(1, "zero")
        await world.make(last=1)
        assert isinstance(await world.purge(call, make_and_delete), Success)
        assert await world.kept() == [("three", 1), ("three", 0), ("two", 1), ("two", 0)]
        assert await world.revisions.purge(counts, "c-1") == Success(Purged(False, 0, True))
        assert (await world.ledger.revisions(KEY)).unwrap() == ()

    @pytest.mark.parametrize("call", range(1, CALLS))
    async def test_what_a_deleted_store_left_is_erased_beneath_one_that_is_made_meanwhile(
        self, world: World, call: int
    ) -> None:
        async def make_again() -> None:
            await world.make("two")
            await world.change(1, "two", step=LATER)

        await world.make(last=1)
        await world.change(2, step=STEP)
        await world.delete(2)
        purged = await world.purge(call, make_again)
        assert purged == Success(Purged(False, 1, True))
        assert await world.kept() == [("two", 1), ("two", 0)]
        assert await world.values(STEP, LATER) == [b"", b'"v"']

    @pytest.mark.parametrize("call", range(1, CALLS))
    async def test_what_the_same_instance_becomes_meanwhile_is_erased_too(self, world: World, call: int) -> None:
        async def change() -> None:
            if (await world.ledger.tip(KEY)).unwrap() is not None:
                await world.change(1, step=STEP)

        await world.make()
        purged = (await world.purge(call, change)).unwrap()
        applied = (await world.ledger.receipt(KEY, STEP)).unwrap()
        assert purged == Purged(True, 0 if applied is None else 1, True)
        assert applied is None or applied.value == b""
        assert (await world.ledger.revisions(KEY)).unwrap() == ()

    @pytest.mark.parametrize("call", range(1, CALLS))
    async def test_a_store_that_is_first_made_while_it_is_purged_stays(self, world: World, call: int) -> None:
        async def make() -> None:
            await world.make("two")
            await world.change(1, "two", step=LATER)

        orphan = receipt(one(3), STEP)  # of a history of which nothing is kept
        committed(await world.ledger.commit(orphan))
        assert await world.purge(call, make) == Success(Purged(False, 1, True))
        assert await world.kept() == [("two", 1), ("two", 0)]
        assert await world.values(STEP, LATER) == [b"", b'"v"']

    async def test_two_that_purge_at_once_both_end(self, world: World) -> None:
        await world.make(last=1)
        both = await asyncio.gather(*(world.revisions.purge(counts, "c-1") for _ in range(2)))
        assert any(isinstance(each, Success) for each in both)
        assert (await world.ledger.revisions(KEY)).unwrap() == ()


def replace_ended(policy: Retention, keep_ms: int) -> Retention:
    return Retention(keep_revisions=policy.keep_revisions, keep_age_ms=policy.keep_age_ms, keep_ended_runs_ms=keep_ms)


def _named(run_id: str, key: str) -> StepRow:
    return structs.replace(CHARGE, run_id=run_id, key=key)
