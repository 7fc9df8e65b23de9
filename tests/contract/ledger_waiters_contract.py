"""What every ledger must do for waiters, signals, wakes and news; a part of `LedgerContract`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stepwell.core.batch import (
    BATCH_BYTES,
    Batch,
    ChangeRun,
    Committed,
    Fenced,
    PassTurn,
    PatchStore,
    ReadSignal,
    RegisterWaiter,
    RemoveWaiter,
    RunOpen,
    SendSignal,
    StoreAt,
    WaiterAt,
)
from stepwell.core.model import Conflict, Paths, Revision, StepId, StoreKey, TooLarge
from stepwell.core.outcome import Failure, Success
from stepwell.core.patch import Patch, Put, encode
from stepwell.core.paths import EACH, SHAPE
from stepwell.core.signal import SignalRow
from stepwell.core.waiter import CHECKED_COMMITS, Registered, Waiter, WaiterRow, Wake
from stepwell.services.ledger import Ledger, News

from .ledger_batches import NOW_MS, ORDER, RUN, at, committed, create, delete, start

MESSAGES: Paths = (("messages",),)
OTHER = StoreKey("orders", "o-2")


def step(name: str, run_id: str = "run-1") -> StepId:
    return StepId(run_id, name)


def waiter(
    name: str = "wait",
    paths: Paths = MESSAGES,
    *,
    seen: Revision | int = 0,
    queue: str | None = None,
    key: StoreKey = ORDER,
    run_id: str = "run-1",
) -> Waiter:
    return Waiter(key, step(name, run_id), at(seen) if isinstance(seen, int) else seen, paths, queue=queue)


def register(*waiters: Waiter) -> Batch:
    return Batch(writes=tuple(RegisterWaiter(each) for each in waiters))


def change(version: int, *changed: tuple[str | int, ...], key: StoreKey = ORDER) -> Batch:
    """The change that makes `version`, and puts something at each of these paths; a shape changes with what is put."""
    patch = encode(Patch(tuple(Put(path, version) for path in changed if SHAPE not in path)))
    return Batch((StoreAt(key, at(version - 1)),), (PatchStore(key, at(version), patch, changed),))


def remove(name: str, generation: int | None = None) -> Batch:
    return Batch(writes=(RemoveWaiter(ORDER, step(name), generation),))


def pass_turn(name: str, generation: int) -> Batch:
    return Batch(writes=(PassTurn(ORDER, step(name), generation),))


def send(*rows: SignalRow) -> Batch:
    return Batch(writes=tuple(SendSignal(row) for row in rows))


async def registered(ledger: Ledger, *waiters: Waiter) -> tuple[Registered, ...]:
    return committed(await ledger.commit(register(*waiters))).registered


async def rows(ledger: Ledger, key: StoreKey = ORDER) -> dict[str, WaiterRow]:
    """The waiters on a store by the keys of their steps, in the order of their first registration."""
    return {row.waiter.step.key: row for row in (await ledger.waiters(key=key)).unwrap()}


async def owed(ledger: Ledger, after: int = 0) -> list[str]:
    """The steps that wakes are owed to, in order; a signal is the run that it was sent to."""
    wakes = (await ledger.wakes(after)).unwrap()
    assert [wake.no for wake in wakes] == sorted({wake.no for wake in wakes if wake.no > after})
    return [wake.run_id if wake.waiter is None else wake.waiter.step.key for wake in wakes]


class LedgerWaitersContract:
    # --- registration -------------------------------------------------------

    async def test_s61_a_waiter_is_read_back_as_it_was_registered(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        paths: Paths = (
            ("messages", 0, "id"),
            ("by id", "0"),
            ("items", EACH, "status"),
            ("items", SHAPE),
            ("a\0b", "\1", "ä", -7),
        )
        (answer,) = await registered(ledger, waiter(paths=paths))
        assert answer == Registered(replace(waiter(paths=paths), generation=answer.waiter.generation), due=False)
        assert answer.waiter.generation > 0
        row = WaiterRow(answer.waiter, None, NOW_MS)
        assert await ledger.waiters() == await ledger.waiters(key=ORDER) == Success((row,))
        assert await ledger.waiters(run_id="run-1") == Success((row,))
        assert await ledger.waiters(key=ORDER, run_id="run-2") == await ledger.waiters(key=OTHER) == Success(())
        assert await ledger.waiters(key=OTHER, run_id="run-1") == Success(())

    async def test_a_registration_takes_the_place_of_the_one_before(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        calls = [await registered(ledger, each) for each in (waiter(), waiter("other"), waiter(paths=(("other",),)))]
        first, other, second = (answer.waiter for (answer,) in calls)
        assert first.generation < other.generation < second.generation
        assert [row.waiter for row in (await ledger.waiters()).unwrap()] == [second, other]
        await ledger.commit(change(1, ("messages",)))
        assert await owed(ledger) == ["other"]

    async def test_generations_are_never_given_twice(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        generations: list[int] = []
        for _ in range(3):
            (answer,) = await registered(ledger, waiter())
            generations.append(answer.waiter.generation)
            await ledger.commit(remove("wait"))
        assert await ledger.waiters() == Success(())
        assert generations == sorted(set(generations))

    async def test_a_batch_registers_many_and_answers_in_the_order_of_its_writes(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        answers = await registered(ledger, waiter("a"), waiter("b"), waiter("a"))
        assert [answer.waiter.step.key for answer in answers] == ["a", "b", "a"]
        assert list(await rows(ledger)) == ["a", "b"]
        assert (await rows(ledger))["a"].waiter == answers[2].waiter

    async def test_a_waiter_is_of_its_own_store(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(create(OTHER))
        await registered(ledger, waiter(), waiter(key=OTHER))
        await ledger.commit(change(1, ("messages",), key=OTHER))
        wakes = (await ledger.wakes()).unwrap()
        assert [wake.waiter.key for wake in wakes if wake.waiter] == [OTHER]

    async def test_a_refused_batch_registers_nothing(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        verdict = await ledger.commit(Batch((StoreAt(ORDER, at(1)),)) + register(waiter()))
        assert verdict == Failure(Conflict(ORDER, at(1), at(0)))
        assert await ledger.waiters() == Success(())

    async def test_paths_have_a_limit(self, ledger: Ledger) -> None:
        huge = ((("a",) * 1000),) * (BATCH_BYTES // 16 // 1000 + 1)
        verdict = await ledger.commit(register(waiter(paths=huge)))
        assert isinstance(verdict, Failure)
        assert isinstance(verdict.failure(), TooLarge)
        assert await ledger.waiters() == Success(())

    # --- what makes due -----------------------------------------------------

    async def test_s60_a_commit_to_what_was_read_makes_due_once(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        (answer,) = await registered(ledger, waiter())
        await ledger.commit(change(1, ("unrelated",)))
        assert await ledger.wakes() == Success(())
        await ledger.commit(change(2, ("messages", 0), ("messages", SHAPE)))
        (wake,) = (await ledger.wakes()).unwrap()
        assert wake == Wake(wake.no, "run-1", answer.waiter)
        assert (await rows(ledger))["wait"].due_no == wake.no
        await ledger.commit(change(3, ("messages", 1)))
        assert await ledger.wakes() == Success((wake,)), "a due waiter is not woken by further commits"
        assert await ledger.wakes(wake.no) == Success(())
        await ledger.commit(remove("wait", answer.waiter.generation))
        await ledger.commit(change(4, ("messages", 2)))
        assert await ledger.wakes() == Success(())

    @pytest.mark.parametrize(
        ("read", "written", "met"),
        [
            (("items", 3, "status"), ("items", 3, "status"), True),
            (("items", 3, "status"), ("items", 3), True),
            (("items", 3), ("items", 3, "status"), True),
            (("items", 3, "status"), (), True),
            ((), ("anything",), True),
            (("items", 3, "status"), ("items", 33, "status"), False),
            (("items", 3), ("items", "3"), False),
            (("items", SHAPE), ("items", 3), False),
            (("items", SHAPE), ("items", SHAPE), True),
            (("items", SHAPE), ("items",), True),
            (("items", EACH, "status"), ("items", 7, "status"), True),
            (("items", EACH, "status"), ("items", "key", "status", "deep"), True),
            (("items", EACH, "status"), ("items", 7), True),
            (("items", EACH, "status"), ("items", 7, "name"), False),
            (("items", EACH, "status"), ("items", SHAPE), False),
            (("items", EACH), ("items", SHAPE), False),
            ((EACH, EACH, "status"), ("a", 1, "status"), True),
            ((EACH, 2, "status"), ("a", 1, "status"), False),
            (("item",), ("items",), False),
            (("a\0b",), ("a",), False),
            (("a",), ("a\0b",), False),
        ],
    )
    async def test_which_writes_meet_which_reads(
        self, ledger: Ledger, read: tuple[str | int, ...], written: tuple[str | int, ...], met: bool
    ) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter(paths=(("elsewhere",), read)))
        await ledger.commit(change(1, written))
        assert await owed(ledger) == ["wait"] * met

    async def test_paths_that_are_not_told_are_taken_from_the_patch(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter(), waiter("other", (("other",),)))
        patch = encode(Patch((Put(("messages", "a"), 1),)))
        await ledger.commit(Batch(writes=(PatchStore(ORDER, at(1), patch),)))
        assert await owed(ledger) == ["wait"]
        await ledger.commit(Batch(writes=(PatchStore(ORDER, at(2), b"[1]"),)))
        assert await owed(ledger) == ["wait", "other"], "what cannot be read may have changed anything"

    async def test_s57_an_update_that_changes_nothing_makes_nobody_due(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter(paths=((),)))
        await ledger.commit(Batch(writes=(PatchStore(ORDER, at(1), b"[]", ()),)))
        assert await owed(ledger) == []

    async def test_many_are_due_in_the_order_of_their_registration(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, *(waiter(name) for name in "cab"), waiter("other", (("other",),)))
        await ledger.commit(change(1, ("messages",)))
        assert await owed(ledger) == ["c", "a", "b"]

    async def test_a_commit_of_many_changes_meets_as_many(self, ledger: Ledger) -> None:
        """More than are searched for by one statement, with few and with many who wait."""
        await ledger.commit(create())
        await registered(ledger, waiter("first", (("items", 7),)), waiter("none", (("items", 9_999),)))
        changed = [("items", n) for n in range(5_000)]
        await ledger.commit(change(1, *changed))
        assert await owed(ledger) == ["first"]
        many = [waiter(f"w{n}", (("items", n, EACH, "deep"),), seen=1) for n in range(6_000)]
        await registered(ledger, *many, waiter("q1", (("items", 1),), seen=1, queue="q"))
        await ledger.commit(remove("none") + remove("first"))
        await ledger.commit(change(2, *changed))
        assert await owed(ledger) == [f"w{n}" for n in range(5_000)] + ["q1"]

    # --- what was missed ----------------------------------------------------

    async def test_s65_what_was_changed_before_the_registration_counts(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(change(1, ("messages", 0)))
        (answer,) = await registered(ledger, waiter(seen=0))
        assert answer.due
        assert await owed(ledger) == ["wait"]
        await ledger.commit(remove("wait", answer.waiter.generation))
        (answer,) = await registered(ledger, waiter(seen=1))
        assert not answer.due
        assert await owed(ledger) == []

    async def test_s144_many_other_commits_do_not_count(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit_all([change(n, ("unrelated", n)) for n in range(1, 501)])
        (answer,) = await registered(ledger, waiter(seen=0))
        assert not answer.due
        await ledger.commit(change(501, ("messages", 0)))
        assert await owed(ledger) == ["wait"]

    async def test_what_is_too_long_ago_to_be_known_counts(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        last = CHECKED_COMMITS + 1
        await ledger.commit_all([change(n, ("unrelated",)) for n in range(1, last + 1)])
        near, far = await registered(ledger, waiter("near", seen=1), waiter("far", seen=0))
        assert (near.due, far.due) == (False, True)

    async def test_a_store_that_is_missing_makes_due_at_once(self, ledger: Ledger) -> None:
        (answer,) = await registered(ledger, waiter())
        assert answer.due
        assert await owed(ledger) == ["wait"]
        assert await ledger.stores() == Success(())
        assert (await rows(ledger))["wait"].waiter == answer.waiter

    async def test_a_revision_that_there_is_not_makes_due_at_once(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        other, later = await registered(
            ledger, waiter("other", seen=at(0, "instance-0")), waiter("later", seen=at(1), queue="q")
        )
        assert other.due
        assert later.due
        (again,) = await registered(ledger, waiter("later", seen=at(0), queue="q"))
        assert not again.due
        await ledger.commit(change(1, ("messages",)))
        assert await owed(ledger) == ["other", "later"]

    async def test_one_group_sees_what_it_registers(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        verdicts = await ledger.commit_all(
            [register(waiter("before")), change(1, ("messages",)), register(waiter("after", seen=1)), delete(1)]
        )
        due = [answer.due for verdict in verdicts for answer in committed(verdict).registered]
        assert due == [False, False]
        assert await owed(ledger) == ["before", "after"]

    async def test_s71_the_end_of_a_store_makes_all_due(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter("a"), waiter("q1", queue="q"), waiter("b", ()), waiter("q2", queue="q"))
        await ledger.commit(delete(0))
        assert await owed(ledger) == ["a", "q1", "b", "q2"]

    async def test_s72_a_wait_belongs_to_its_instance(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter())
        await ledger.commit(delete(0))
        wakes = (await ledger.wakes()).unwrap()
        await ledger.commit(create(revision=at(0, "instance-2")))
        await ledger.commit(Batch(writes=(PatchStore(ORDER, at(1, "instance-2"), b"[]", MESSAGES),)))
        assert await ledger.wakes() == Success(wakes)
        (answer,) = await registered(ledger, waiter(seen=at(1, "instance-2")))
        assert not answer.due
        await ledger.commit(Batch(writes=(PatchStore(ORDER, at(2, "instance-2"), b"[]", MESSAGES),)))
        assert await owed(ledger, wakes[-1].no) == ["wait"]

    async def test_to_create_a_store_makes_nobody_due(self, ledger: Ledger) -> None:
        (answer,) = await registered(ledger, waiter())
        wakes = (await ledger.wakes()).unwrap()
        await ledger.commit(create())
        assert await ledger.wakes() == Success(wakes)
        assert [wake.waiter for wake in wakes] == [answer.waiter]

    # --- acknowledgement ----------------------------------------------------

    async def test_a_waiter_is_removed_at_its_generation_only(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        (first,) = await registered(ledger, waiter())
        (second,) = await registered(ledger, waiter())
        await ledger.commit(remove("wait", first.waiter.generation))
        assert (await rows(ledger))["wait"].waiter == second.waiter
        await ledger.commit(remove("wait", second.waiter.generation))
        await ledger.commit(remove("wait"))
        await ledger.commit(Batch(writes=(RemoveWaiter(OTHER, step("wait")),)))
        assert await ledger.waiters() == Success(())

    async def test_who_expects_another_generation_is_fenced(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        fenced = Failure(Fenced("run-1"))
        (answer,) = await registered(ledger, waiter())
        now = answer.waiter.generation
        expects = [WaiterAt(ORDER, step("wait"), generation) for generation in (now - 1, now, now + 1)]
        verdicts = [await ledger.commit(Batch((expected,))) for expected in expects]
        assert verdicts == [fenced, Success(Committed()), fenced]
        assert await ledger.commit(Batch((WaiterAt(OTHER, step("wait"), now),))) == fenced
        assert await ledger.commit(Batch((WaiterAt(ORDER, step("other"), now),))) == fenced
        acknowledged = Batch((expects[1],)) + remove("wait", now)
        assert await ledger.commit_all([acknowledged, acknowledged]) == (Success(Committed()), fenced)
        again = (await registered(ledger, waiter()))[0].waiter.generation
        verdicts = list(await ledger.commit_all([register(waiter()), Batch((WaiterAt(ORDER, step("wait"), again),))]))
        assert verdicts[1] == fenced, "it was registered again by the batch before"

    async def test_s73_a_registration_survives_the_acknowledgement_of_the_one_before(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        (first,) = await registered(ledger, waiter())
        await ledger.commit(change(1, ("messages", 0)))
        (second,) = await registered(ledger, waiter(seen=1))
        assert await owed(ledger) == []
        expects = Batch((WaiterAt(ORDER, step("wait"), first.waiter.generation),))
        assert await ledger.commit(expects + remove("wait")) == Failure(Fenced("run-1"))
        await ledger.commit(change(2, ("messages", 1)))
        (wake,) = (await ledger.wakes()).unwrap()
        assert wake.waiter == second.waiter

    # --- queues -------------------------------------------------------------

    async def test_of_a_queue_one_is_due_at_a_time_in_order(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, *(waiter(name, queue="q") for name in "abc"), waiter("alone"))
        await ledger.commit(change(1, ("messages", 0)))
        assert await owed(ledger) == ["a", "alone"]
        await ledger.commit(change(2, ("messages", 1)))
        assert await owed(ledger) == ["a", "alone"]
        await ledger.commit(remove("a"))
        assert await owed(ledger) == ["alone", "b"]
        await ledger.commit(remove("b"))
        await ledger.commit(remove("c"))
        assert await owed(ledger) == ["alone"]

    async def test_queues_are_apart(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(create(OTHER))
        await registered(
            ledger, waiter("a", queue="q"), waiter("b", queue="r"), waiter("c", queue="q", key=OTHER, seen=0)
        )
        await ledger.commit(change(1, ("messages",)))
        assert await owed(ledger) == ["a", "b"]

    async def test_who_looked_and_found_nothing_keeps_its_place(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, *(waiter(name, queue="q") for name in "ab"))
        await ledger.commit(change(1, ("messages", 0)))
        (again,) = await registered(ledger, waiter("a", seen=1, queue="q"))
        assert not again.due
        assert await owed(ledger) == [], "a miss of one is a miss of all"
        assert list(await rows(ledger)) == ["a", "b"]
        await ledger.commit(change(2, ("messages", 1)))
        assert await owed(ledger) == ["a"]

    async def test_who_looked_before_the_last_commit_is_due_again(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, *(waiter(name, queue="q") for name in "ab"))
        await ledger.commit(change(1, ("messages", 0)))
        await ledger.commit(change(2, ("messages", 1)))
        (again,) = await registered(ledger, waiter("a", seen=1, queue="q"))
        assert again.due
        assert await owed(ledger) == ["a"]

    async def test_the_last_look_of_any_of_them_counts(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter("a", queue="q"))
        await ledger.commit(change(1, ("other",)))
        await registered(ledger, waiter("b", (("other",), ("messages",)), seen=1, queue="q"))
        assert {name: row.waiter.seen for name, row in (await rows(ledger)).items()} == {"a": at(1), "b": at(1)}
        assert {row.waiter.read_paths for row in (await rows(ledger)).values()} == {(("other",), ("messages",))}
        await registered(ledger, waiter("c", (("elsewhere",),), seen=0, queue="q"))
        assert (await rows(ledger))["c"].waiter.seen == at(1), "one that is older changes nothing"
        await ledger.commit(change(2, ("elsewhere",)))
        assert await owed(ledger) == []
        await ledger.commit(change(3, ("other",)))
        assert await owed(ledger) == ["a"]

    async def test_who_joins_with_an_older_look_is_not_due_for_it(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(change(1, ("messages", 0)))
        await registered(ledger, waiter("a", seen=1, queue="q"))
        (joined,) = await registered(ledger, waiter("b", seen=0, queue="q"))
        assert not joined.due
        assert await owed(ledger) == []

    async def test_what_who_joins_has_missed_makes_the_first_due(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter("a", (("other",),), queue="q"))
        await ledger.commit(change(1, ("unrelated",)))
        await ledger.commit(change(2, ("messages", 0)))
        (joined,) = await registered(ledger, waiter("b", seen=1, queue="q"))
        assert not joined.due
        assert await owed(ledger) == ["a"]

    async def test_a_later_look_that_a_due_one_did_not_make_is_checked_when_it_registers(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter("a", queue="q"))
        await ledger.commit(change(1, ("messages", 0)))
        await ledger.commit(change(2, ("messages", 1)))
        await registered(ledger, waiter("b", seen=2, queue="q"))
        assert await owed(ledger) == ["a"]
        await ledger.commit(change(3, ("messages", 2)))
        (again,) = await registered(ledger, waiter("a", seen=1, queue="q"))
        assert again.due, "since the look of b"
        (again,) = await registered(ledger, waiter("a", seen=3, queue="q"))
        assert not again.due

    async def test_while_one_is_due_what_others_missed_makes_nobody_due(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, *(waiter(name, queue="q") for name in "ab"))
        for version in (1, 2, 3):
            await ledger.commit(change(version, ("messages", version)))
        (joined,) = await registered(ledger, waiter("c", seen=2, queue="q"))
        (again,) = await registered(ledger, waiter("b", seen=2, queue="q"))
        assert not joined.due
        assert not again.due
        assert await owed(ledger) == ["a"]

    async def test_a_turn_that_is_not_used_is_passed_on(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        a, b, _ = await registered(ledger, *(waiter(name, queue="q") for name in "abc"))
        await ledger.commit(pass_turn("a", a.waiter.generation))
        assert await owed(ledger) == [], "nobody's turn"
        await ledger.commit(change(1, ("messages", 0)))
        await ledger.commit(pass_turn("a", a.waiter.generation + 100))
        assert await owed(ledger) == ["a"]
        await ledger.commit(pass_turn("a", a.waiter.generation))
        assert await owed(ledger) == ["a", "b"]
        await ledger.commit(pass_turn("a", a.waiter.generation))
        assert await owed(ledger) == ["a", "b"], "it is no longer the last"
        await ledger.commit(remove("a"))
        assert await owed(ledger) == ["b"], "b has its turn already"
        await ledger.commit(pass_turn("b", b.waiter.generation))
        assert await owed(ledger) == ["b", "c"]

    async def test_whose_turn_was_passed_holds_nobody_up(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        a, _, _ = await registered(ledger, *(waiter(name, queue="q") for name in "abc"))
        await ledger.commit(change(1, ("messages", 0)))
        await ledger.commit(pass_turn("a", a.waiter.generation))
        await registered(ledger, waiter("b", seen=1, queue="q"))
        assert await owed(ledger) == ["a"], "b has found nothing"
        await ledger.commit(change(2, ("messages", 1)))
        assert await owed(ledger) == ["a", "b"]
        await ledger.commit(remove("b"))
        assert await owed(ledger) == ["a", "c"]
        await ledger.commit(remove("c"))
        (late,) = await registered(ledger, waiter("d", seen=2, queue="q"))
        assert not late.due
        await ledger.commit(change(3, ("messages", 2)))
        assert await owed(ledger) == ["a", "d"]
        await ledger.commit(remove("d"))
        (older,) = await registered(ledger, waiter("e", seen=2, queue="q"))
        assert older.due, "a commit that it has not seen has met what it read"

    async def test_while_another_is_due_a_miss_does_not_make_the_queue_idle(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        a, _ = await registered(ledger, *(waiter(name, queue="q") for name in "ab"))
        await ledger.commit(change(1, ("messages", 0)) + pass_turn("a", a.waiter.generation))
        await registered(ledger, waiter("a", seen=1, queue="q"))
        await ledger.commit(change(2, ("messages", 1)))
        assert await owed(ledger) == ["b"]
        await ledger.commit(remove("b"))
        assert await owed(ledger) == ["a"], "b may have left something, and commits since are not looked at"

    async def test_who_moves_to_another_queue_leaves_the_first(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, *(waiter(name, queue="q") for name in "ab"), waiter("c", queue="r"))
        await ledger.commit(change(1, ("messages", 0)))
        assert await owed(ledger) == ["a", "c"]
        await registered(ledger, waiter("a", seen=1, queue="r"))
        assert await owed(ledger) == ["c", "b"]
        assert list(await rows(ledger)) == ["b", "c", "a"]
        await registered(ledger, waiter("c", seen=1))
        assert await owed(ledger) == ["b", "a"]

    async def test_a_queue_of_an_instance_that_is_gone_makes_each_due(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await registered(ledger, waiter("a", queue="q"))
        await ledger.commit(delete(0))
        await ledger.commit(create(revision=at(0, "instance-2")))
        new = at(0, "instance-2")
        late, fresh = await registered(ledger, waiter("late", queue="q"), waiter("fresh", seen=new, queue="q"))
        assert late.due
        assert not fresh.due
        assert await owed(ledger) == ["a", "late"]

    # --- signals ------------------------------------------------------------

    async def test_signals_are_unread_in_order_until_they_are_read(self, ledger: Ledger) -> None:
        other = replace(RUN, id="run-2")
        await ledger.commit(start(RUN) + start(other))
        await ledger.commit(send(SignalRow("run-1", "a", b"1"), SignalRow("run-1", "b", b"2")))
        await ledger.commit(send(SignalRow("run-2", "a", b"3"), SignalRow("run-1", "a", b"4", "once")))
        unread = (await ledger.signals("run-1")).unwrap()
        assert [(row.name, row.value, row.dedupe) for row in unread] == [
            ("a", b"1", None),
            ("b", b"2", None),
            ("a", b"4", "once"),
        ]
        assert [row.value for row in (await ledger.signals("run-1", "a")).unwrap()] == [b"1", b"4"]
        assert await ledger.signals("run-3") == await ledger.signals("run-1", "c") == Success(())
        assert await owed(ledger) == ["run-1", "run-1", "run-2", "run-1"]
        assert await owed(ledger, unread[1].no) == ["run-2", "run-1"]
        await ledger.commit(Batch(writes=(ReadSignal("run-2", unread[0].no, "key"),)))
        assert (await ledger.signals("run-1")).unwrap() == unread, "another run reads none of them"
        await ledger.commit(Batch(writes=(ReadSignal("run-1", unread[0].no, "key"),)))
        assert (await ledger.signals("run-1")).unwrap() == unread[1:]
        assert await owed(ledger) == ["run-1", "run-2", "run-1"]

    async def test_a_signal_is_sent_once_under_one_dedupe(self, ledger: Ledger) -> None:
        await ledger.commit(start(RUN) + start(replace(RUN, id="run-2")))
        row = SignalRow("run-1", "a", b"1", "once")
        others = (replace(row, name="b"), replace(row, run_id="run-2"), replace(row, dedupe="twice"))
        await ledger.commit(send(row, replace(row, value=b"2"), *others))
        await ledger.commit(send(row, *others))
        first, *_ = unread = (await ledger.signals("run-1")).unwrap()
        assert [(each.name, each.value, each.dedupe) for each in unread] == [
            ("a", b"1", "once"),
            ("b", b"1", "once"),
            ("a", b"1", "twice"),
        ]
        assert len(await owed(ledger)) == 4
        await ledger.commit(Batch(writes=(ReadSignal("run-1", first.no, "key"),)))
        assert committed(await ledger.commit(send(row))) == Committed()
        assert len((await ledger.signals("run-1")).unwrap()) == 2, "also after it was read"

    async def test_a_run_that_has_ended_is_not_open(self, ledger: Ledger) -> None:
        expects, fenced = Batch((RunOpen("run-1"),)), Failure(Fenced("run-1"))
        assert await ledger.commit(expects) == fenced
        signal = send(SignalRow("run-1", "a", b"1"))
        assert [await ledger.commit(each) for each in (start(RUN), expects + signal)] == [Success(Committed())] * 2
        end = Batch(writes=(ChangeRun("run-1", {"state": "failed"}),))
        assert (await ledger.commit_all([expects + end, expects + signal]))[1] == fenced
        assert await owed(ledger) == [], "and reads no more"
        assert len((await ledger.signals("run-1")).unwrap()) == 1
        await ledger.commit(Batch(writes=(ChangeRun("run-1", {"state": "waiting"}),)))
        assert await ledger.commit(expects) == Success(Committed())
        assert await owed(ledger) == ["run-1"]

    async def test_a_signal_to_no_run_is_a_bug(self, ledger: Ledger) -> None:
        with pytest.raises(ValueError, match="no run 'run-1'"):
            await ledger.commit(send(SignalRow("run-1", "a", b"1")))
        with pytest.raises(ValueError, match="no run 'run-1'"):
            await ledger.commit(Batch(writes=(ReadSignal("run-1", 1, "key"),)))

    # --- news ---------------------------------------------------------------

    async def test_who_listens_hears_of_commits_before_the_verdict(self, ledger: Ledger) -> None:
        heard: list[str] = []
        stop = ledger.subscribe(lambda news: heard.append(news) if news != "elsewhere" else None)
        for batch in (create(), register(waiter()), change(1, ("unrelated",)), change(2, ("messages",)), start(RUN)):
            await ledger.commit(batch)
            heard.append("verdict")
        await ledger.commit(send(SignalRow("run-1", "a", b"1", "once")))
        await ledger.commit(send(SignalRow("run-1", "a", b"1", "once")))
        expected = ["commit", "verdict"] * 3 + ["wake", "verdict", "commit", "verdict", "wake", "commit"]
        assert heard == expected
        await ledger.commit(change(2, ("messages",)))
        await ledger.commit(Batch((StoreAt(ORDER, at(2)),)))
        assert heard == expected, "nothing was written"
        stop()
        stop()
        await ledger.commit(change(3, ("messages",)))
        assert heard == expected

    async def test_listeners_are_told_apart_and_one_that_fails_harms_nobody(self, ledger: Ledger) -> None:
        heard: list[News] = []

        def fail(_: News) -> None:
            raise ZeroDivisionError

        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        ledger.subscribe(fail)
        stop = ledger.subscribe(heard.append)
        ledger.subscribe(heard.append)
        assert committed(await ledger.commit(create())).revision == at(0)
        stop()
        await ledger.commit(change(1, ("messages",)))
        assert [news for news in heard if news == "commit"] == ["commit"] * 3
        assert {type(error) for error in told} == {ZeroDivisionError}
