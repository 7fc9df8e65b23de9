"""What every ledger must do, whatever keeps it; each host runs this class with its own fixture `ledger`.

The fixture gives an empty ledger whose clock stands at `NOW_MS`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stepwell.core.batch import (
    BATCH_BYTES,
    AlreadyApplied,
    Batch,
    ChangeRun,
    Commit,
    Committed,
    CreateStore,
    DeleteStore,
    Document,
    Fenced,
    InsertRun,
    PatchStore,
    Receipt,
    RunFence,
    StoreAt,
    WriteBase,
    WriteStep,
)
from stepwell.core.model import Conflict, ReceiptMismatch, StoreKey, StoreNotFound, TooLarge
from stepwell.core.outcome import Failure, Success
from stepwell.services.ledger import Ledger, StoreTip

from .ledger_batches import (
    CHARGE,
    NOW_MS,
    ORDER,
    RUN,
    STEP,
    applied,
    at,
    committed,
    create,
    delete,
    patch,
    start,
)
from .ledger_revisions_contract import LedgerRevisionsContract
from .ledger_runs_contract import LedgerRunsContract
from .ledger_waiters_contract import LedgerWaitersContract


class LedgerContract(LedgerRevisionsContract, LedgerRunsContract, LedgerWaitersContract):
    # --- stores -------------------------------------------------------------

    async def test_a_created_store_is_there(self, ledger: Ledger) -> None:
        assert committed(await ledger.commit(create())) == Committed(at(0), (1,))
        assert await ledger.tip(ORDER) == Success(at(0))
        assert await ledger.document(ORDER) == Success(Document(at(0), 1, b'{"n":0}'))
        assert await ledger.stores() == Success((StoreTip(ORDER, at(0), NOW_MS),))

    async def test_what_was_never_created_is_not_there(self, ledger: Ledger) -> None:
        assert await ledger.tip(ORDER) == Success(None)
        assert await ledger.document(ORDER) == Success(None)
        assert await ledger.document(ORDER, at(0)) == Success(None)
        assert await ledger.tail(ORDER, at(0)) == Success(None)
        assert await ledger.stores() == Success(())
        assert await ledger.receipt(ORDER, STEP) == Success(None)

    async def test_a_patch_makes_the_next_revision(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        assert committed(await ledger.commit(patch(1))).revision == at(1)
        assert committed(await ledger.commit(patch(2))).revision == at(2)
        assert await ledger.tip(ORDER) == Success(at(2))
        assert await ledger.document(ORDER) == Success(Document(at(2), 3, b'{"n":0}', (b"[1]", b"[2]")))

    async def test_changes_are_numbered_in_order_over_all_stores(self, ledger: Ledger) -> None:
        other = StoreKey("orders", "o-2")
        numbers = [committed(await ledger.commit(batch)).seqs for batch in (create(), create(other), patch(1))]
        numbers.append(committed(await ledger.commit(patch(1, other) + patch(2))).seqs)
        assert numbers == [(1,), (2,), (3,), (4, 5)]

    async def test_a_store_at_another_revision_is_a_conflict(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(patch(1))
        assert await ledger.commit(patch(1)) == Failure(Conflict(ORDER, expected=at(0), actual=at(1)))
        assert await ledger.commit(patch(3)) == Failure(Conflict(ORDER, expected=at(2), actual=at(1)))
        other = at(1, "instance-2")
        assert await ledger.commit(Batch((StoreAt(ORDER, other),))) == Failure(Conflict(ORDER, other, at(1)))
        assert await ledger.tip(ORDER) == Success(at(1))

    async def test_a_store_that_exists_cannot_be_created(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        again = at(0, "instance-2")
        assert await ledger.commit(create(revision=again)) == Failure(Conflict(ORDER, expected=again, actual=at(0)))

    async def test_a_store_that_is_missing_is_not_found(self, ledger: Ledger) -> None:
        assert await ledger.commit(patch(1)) == Failure(StoreNotFound(ORDER, expected=at(0)))

    async def test_a_deleted_store_is_gone_and_its_revisions_stay(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1), patch(2), delete(2)):
            await ledger.commit(batch)
        assert await ledger.tip(ORDER) == Success(None)
        assert await ledger.document(ORDER) == Success(None)
        assert await ledger.stores() == Success(())
        assert await ledger.tail(ORDER, at(1)) == Success(None)
        assert await ledger.commit(patch(3)) == Failure(StoreNotFound(ORDER, expected=at(2)))
        assert await ledger.document(ORDER, at(1)) == Success(Document(at(1), 2, b'{"n":0}', (b"[1]",)))
        assert await ledger.document(ORDER, at(2)) == Success(Document(at(2), 3, b'{"n":0}', (b"[1]", b"[2]")))

    async def test_a_store_created_again_is_another_instance(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1), delete(1), create(ORDER, at(0, "instance-2"), b"{}")):
            await ledger.commit(batch)
        assert committed(await ledger.commit(patch(1, instance="instance-2"))).seqs == (5,)
        assert await ledger.document(ORDER) == Success(Document(at(1, "instance-2"), 5, b"{}", (b"[1]",)))
        assert await ledger.document(ORDER, at(0, "instance-2")) == Success(Document(at(0, "instance-2"), 4, b"{}"))
        assert await ledger.document(ORDER, at(1)) == Success(Document(at(1), 2, b'{"n":0}', (b"[1]",)))
        assert await ledger.commit(patch(2)) == Failure(Conflict(ORDER, at(1), at(1, "instance-2")))
        assert await ledger.tail(ORDER, at(0)) == Success(None)

    async def test_a_revision_that_never_was_is_none(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1)):
            await ledger.commit(batch)
        for revision in (at(2), at(-1), at(0, "instance-2")):
            assert await ledger.document(ORDER, revision) == Success(None)
        await ledger.commit(delete(1))
        for revision in (at(2), at(-1), at(0, "instance-2")):
            assert await ledger.document(ORDER, revision) == Success(None)

    async def test_an_instance_may_begin_at_any_version(self, ledger: Ledger) -> None:
        await ledger.commit(create(revision=at(7)))
        await ledger.commit(patch(8))
        assert await ledger.tail(ORDER, at(7)) == Success((Commit(at(8), b"[8]"),))
        assert await ledger.tail(ORDER, at(6)) == Success(None)
        assert await ledger.document(ORDER, at(6)) == Success(None)

    async def test_a_base_shortens_the_reading_of_what_follows_it(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        numbers = [committed(await ledger.commit(patch(version))).seqs[0] for version in (1, 2, 3, 4)]
        assert isinstance(await ledger.commit(Batch(writes=(WriteBase(numbers[1], b'{"n":2}'),))), Success)
        assert await ledger.document(ORDER) == Success(Document(at(4), numbers[3], b'{"n":2}', (b"[3]", b"[4]")))
        assert await ledger.document(ORDER, at(2)) == Success(Document(at(2), numbers[1], b'{"n":2}'))
        assert await ledger.document(ORDER, at(1)) == Success(Document(at(1), numbers[0], b'{"n":0}', (b"[1]",)))
        assert await ledger.tail(ORDER, at(0)) == Success(tuple(Commit(at(v), b"[%d]" % v) for v in (1, 2, 3, 4)))

    async def test_a_base_beside_no_change_is_not_kept(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        assert isinstance(await ledger.commit(Batch(writes=(WriteBase(2, b'{"n":9}'),))), Success)
        await ledger.commit(patch(1))
        assert await ledger.document(ORDER) == Success(Document(at(1), 2, b'{"n":0}', (b"[1]",)))

    async def test_a_base_beside_a_deletion_is_not_kept(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1), delete(1), Batch(writes=(WriteBase(3, b'{"n":9}'),))):
            assert isinstance(await ledger.commit(batch), Success)
        assert await ledger.document(ORDER, at(1)) == Success(Document(at(1), 2, b'{"n":0}', (b"[1]",)))

    async def test_the_tail_is_what_followed_a_revision(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1), patch(2)):
            await ledger.commit(batch)
        assert await ledger.tail(ORDER, at(2)) == Success(())
        assert await ledger.tail(ORDER, at(1)) == Success((Commit(at(2), b"[2]"),))
        assert await ledger.tail(ORDER, at(0)) == Success((Commit(at(1), b"[1]"), Commit(at(2), b"[2]")))
        for revision in (at(3), at(-1), at(1, "instance-2")):
            assert await ledger.tail(ORDER, revision) == Success(None)

    async def test_stores_are_listed_by_name_and_id(self, ledger: Ledger) -> None:
        keys = [
            StoreKey(name, id)
            for name, id in (("b", "1"), ("a", "2"), ("a", "\U0001f600"), ("a", "\uff5e"), ("a", "10"))
        ]
        for key in keys:
            await ledger.commit(create(key))
        every = (await ledger.stores()).unwrap()
        assert [(tip.key.name, tip.key.id) for tip in every] == [
            ("a", "10"),
            ("a", "2"),
            ("a", "\uff5e"),
            ("a", "\U0001f600"),
            ("b", "1"),
        ]
        assert [tip.key for tip in (await ledger.stores("b")).unwrap()] == [StoreKey("b", "1")]
        assert await ledger.stores("c") == Success(())

    # --- receipts -----------------------------------------------------------

    async def test_a_step_is_applied_once(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(patch(1) + applied(at(1)))
        receipt = Receipt(ORDER, STEP, "update", at(1), b'"paid"')
        assert await ledger.receipt(ORDER, STEP) == Success(receipt)
        assert await ledger.commit(patch(2) + applied(at(2))) == Success(AlreadyApplied(receipt))
        assert await ledger.tip(ORDER) == Success(at(1))

    async def test_a_step_that_two_callers_make_at_once_is_applied_once(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        calls = (patch(1) + applied(at(1)), patch(2) + applied(at(2)))
        first, second = await asyncio.gather(*map(ledger.commit, calls))
        assert committed(first).revision == at(1)
        assert second == Success(AlreadyApplied(Receipt(ORDER, STEP, "update", at(1), b'"paid"')))
        assert await ledger.tip(ORDER) == Success(at(1))

    async def test_a_receipt_comes_before_the_state_of_the_store(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1) + applied(at(1)), patch(2), delete(2)):
            await ledger.commit(batch)
        again = await ledger.commit(patch(1) + applied(at(1)))
        assert again == Success(AlreadyApplied(Receipt(ORDER, STEP, "update", at(1), b'"paid"')))
        await ledger.commit(create(ORDER, at(0, "instance-2")))
        assert await ledger.commit(patch(1) + applied(at(1))) == again

    async def test_a_step_of_another_kind_is_a_mismatch(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        await ledger.commit(patch(1) + applied(at(1)))
        refused = await ledger.commit(patch(2) + applied(at(2), kind="delete"))
        assert refused == Failure(ReceiptMismatch(STEP, recorded="update", requested="delete"))

    async def test_one_step_on_two_stores_is_two_operations(self, ledger: Ledger) -> None:
        other = StoreKey("orders", "o-2")
        for batch in (create(), create(other), patch(1) + applied(at(1))):
            await ledger.commit(batch)
        assert committed(await ledger.commit(patch(1, other) + applied(at(1), key=other))).revision == at(1)

    async def test_a_receipt_may_belong_to_a_store_that_is_not_there(self, ledger: Ledger) -> None:
        committed(await ledger.commit(applied(at(3))))
        assert (await ledger.receipt(ORDER, STEP)).unwrap() is not None
        assert await ledger.tip(ORDER) == Success(None)
        assert committed(await ledger.commit(create())).revision == at(0)

    # --- batches ------------------------------------------------------------

    async def test_the_empty_batch_is_committed(self, ledger: Ledger) -> None:
        assert await ledger.commit(Batch()) == Success(Committed())

    async def test_a_refused_batch_writes_nothing(self, ledger: Ledger) -> None:
        other = StoreKey("orders", "o-2")
        batch = create(other) + start(RUN) + patch(1)
        assert await ledger.commit(batch) == Failure(StoreNotFound(ORDER, expected=at(0)))
        assert await ledger.stores() == Success(())
        assert await ledger.run(RUN.id) == Success(None)

    async def test_what_is_expected_of_a_run_comes_before_receipts_and_stores(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1) + applied(at(1)), start(replace(RUN, fence=2))):
            await ledger.commit(batch)
        late = patch(1) + applied(at(1)) + Batch((RunFence(RUN.id, 1),))
        assert await ledger.commit(late) == Failure(Fenced(RUN.id))

    async def test_each_batch_of_many_is_judged_on_its_own(self, ledger: Ledger) -> None:
        other = StoreKey("orders", "o-2")
        verdicts = await ledger.commit_all([create(), patch(1, other), patch(1), create(other)])
        assert verdicts == (
            Success(Committed(at(0), (1,))),
            Failure(StoreNotFound(other, expected=at(0))),
            Success(Committed(at(1), (2,))),
            Failure(Conflict(other, expected=at(0), actual=at(0))),
        )

    async def test_a_batch_planned_on_a_refused_one_is_refused(self, ledger: Ledger) -> None:
        for batch in (create(), patch(1)):
            await ledger.commit(batch)
        verdicts = await ledger.commit_all([patch(1), patch(2), create(StoreKey("orders", "o-2"))])
        assert [type(verdict) for verdict in verdicts] == [Failure, Failure, Success]
        assert await ledger.tip(ORDER) == Success(at(1))

    async def test_many_callers_at_once_are_all_answered(self, ledger: Ledger) -> None:
        keys = [StoreKey("orders", str(n)) for n in range(100)]
        verdicts = await asyncio.gather(*(ledger.commit(create(key)) for key in keys))
        assert sorted(committed(verdict).seqs for verdict in verdicts) == [(n,) for n in range(1, 101)]
        verdicts = await asyncio.gather(*(ledger.commit(patch(1, keys[0])) for _ in range(10)))
        assert [isinstance(verdict, Success) for verdict in verdicts] == [True] + [False] * 9

    async def test_too_large_a_batch_is_refused_alone(self, ledger: Ledger) -> None:
        huge = bytes(BATCH_BYTES // 4 + 1)
        writes = tuple(CreateStore(StoreKey("orders", str(n)), at(0), huge) for n in range(4))
        verdicts = await ledger.commit_all([Batch((), writes), create()])
        assert verdicts[0] == Failure(TooLarge("a batch", 4 * len(huge), BATCH_BYTES))
        assert await ledger.stores() == Success((StoreTip(ORDER, at(0), NOW_MS),))

    async def test_a_batch_with_a_bug_in_it_raises_in_its_caller_only(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        wrong = Batch(writes=(CreateStore(StoreKey("orders", "o-2"), at(0), b"{}"), PatchStore(ORDER, at(5), b"[]")))
        answers = await asyncio.gather(
            ledger.commit(patch(1)), ledger.commit(wrong), ledger.commit(patch(2)), return_exceptions=True
        )
        assert isinstance(answers[1], ValueError)
        assert (answers[0], answers[2]) == (Success(Committed(at(1), (2,))), Success(Committed(at(2), (3,))))
        assert await ledger.stores() == Success((StoreTip(ORDER, at(2), NOW_MS),))

    @pytest.mark.parametrize(
        "wrong",
        [
            Batch(writes=(PatchStore(ORDER, at(1), b"[]"),)),
            Batch(writes=(DeleteStore(ORDER, at(0)),)),
            Batch(writes=(CreateStore(ORDER, at(0), b"{}"), CreateStore(ORDER, at(1), b"{}"))),
            Batch(writes=(WriteStep(CHARGE),)),
            Batch(writes=(ChangeRun("run-1", {"fence": 1}),)),
            Batch(writes=(InsertRun(RUN), InsertRun(RUN))),
        ],
        ids=lambda batch: "+".join(type(write).__name__ for write in batch.writes),
    )
    async def test_a_write_that_follows_from_nothing_is_a_bug(self, ledger: Ledger, wrong: Batch) -> None:
        with pytest.raises(ValueError, match=r"run|follow"):
            await ledger.commit(wrong)
        assert await ledger.stores() == Success(())
        assert await ledger.runs() == Success(())

    async def test_cancelling_a_caller_withdraws_nothing(self, ledger: Ledger) -> None:
        await ledger.commit(create())
        caller = asyncio.create_task(ledger.commit(patch(1)))
        neighbour = asyncio.create_task(ledger.commit(patch(2)))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert committed(await neighbour).revision == at(2)
        assert await ledger.tip(ORDER) == Success(at(2))

    # --- what has happened --------------------------------------------------

    async def test_a_commit_is_seen_in_the_number_of_changes(self, ledger: Ledger) -> None:
        before = (await ledger.changes()).unwrap()
        assert await ledger.changes() == Success(before)
        await ledger.commit(patch(1))  # refused
        assert await ledger.changes() == Success(before)
        await ledger.commit(create())
        after = (await ledger.changes()).unwrap()
        assert after != before
        assert await ledger.changes() == Success(after)
