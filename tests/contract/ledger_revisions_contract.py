"""What every ledger must keep of the history of stores, and what ends it; part of `LedgerContract`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stepwell.core.batch import (
    Batch,
    ChangeRun,
    CreateStore,
    CutLog,
    DeleteStore,
    Document,
    EraseStore,
    ForgetRun,
    Form,
    InsertRun,
    PatchStore,
    Receipt,
    SendSignal,
    StoreAbsent,
    StoreAt,
    SweepSignals,
    TrimRun,
    WriteBase,
    WriteReceipt,
    WriteStep,
)
from stepwell.core.model import Revision, StoreKey
from stepwell.core.outcome import Success
from stepwell.core.retention import StoredChange
from stepwell.core.signal import SignalRow
from stepwell.core.step import Pin, StepRow
from stepwell.services.ledger import Ledger, Prunable, RunWeight, StoredPin

from .ledger_batches import CHARGE, NOW_MS, ORDER, RUN, STEP, applied, at, committed, create, delete, patch

FORM = Form(1, "first")
OTHER = Form(2, "second")


def prunable(ledger: Ledger) -> Prunable:
    assert isinstance(ledger, Prunable)
    return ledger


async def kept(ledger: Ledger) -> list[tuple[str, int, str]]:
    rows = (await ledger.revisions(ORDER)).unwrap()
    return [(row.revision.instance_id, row.revision.version, row.kind) for row in rows]


async def readable(ledger: Ledger, instance: str, versions: range) -> dict[int, int]:
    """From each version that can be read to how many patches lead to it."""
    found: dict[int, int] = {}
    for version in versions:
        document = (await ledger.document(ORDER, at(version, instance))).unwrap()
        if document is not None:
            assert document.revision == at(version, instance)
            found[version] = len(document.patches)
    return found


async def grow(ledger: Ledger, last: int) -> None:
    """The order at version `last`: the change that made version n has the number n + 1."""
    committed(await ledger.commit(create()))
    for version in range(1, last + 1):
        committed(await ledger.commit(patch(version)))


class LedgerRevisionsContract:
    # --- forms --------------------------------------------------------------

    async def test_stores_are_listed_with_the_form_of_their_tips(self, ledger: Ledger) -> None:
        other = StoreKey("orders", "unformed")
        first = Batch((StoreAbsent(ORDER, at(0)),), (CreateStore(ORDER, at(0), b"{}", FORM),))
        changed = Batch((StoreAt(ORDER, at(1)),), (PatchStore(ORDER, at(2), b"[2]", form=OTHER),))
        committed(await ledger.commit(create(other)))
        for batch, form in ((first, FORM), (patch(1), FORM), (changed, OTHER), (patch(3), OTHER)):
            committed(await ledger.commit(batch))
            for tips in (await ledger.stores(), await ledger.stores(ORDER.name)):
                assert {tip.key: tip.form for tip in tips.unwrap()} == {ORDER: form, other: None}

    async def test_a_document_has_the_form_of_its_revision(self, ledger: Ledger) -> None:
        first = Batch((StoreAbsent(ORDER, at(0)),), (CreateStore(ORDER, at(0), b"{}", FORM),))
        changed = Batch((StoreAt(ORDER, at(1)),), (PatchStore(ORDER, at(2), b"[2]", form=OTHER),))
        for batch in (first, patch(1), changed, patch(3)):
            committed(await ledger.commit(batch))
        found = [(await ledger.document(ORDER, at(version))).unwrap() for version in range(4)]
        assert [document and document.form for document in found] == [FORM, FORM, OTHER, OTHER]
        assert (await ledger.document(ORDER)).unwrap() == found[3]
        assert [row.form for row in (await ledger.revisions(ORDER)).unwrap()] == [OTHER, OTHER, FORM, FORM]

    async def test_without_a_form_none_is_known_until_a_change_brings_one(self, ledger: Ledger) -> None:
        await grow(ledger, 1)
        committed(await ledger.commit(Batch((StoreAt(ORDER, at(1)),), (PatchStore(ORDER, at(2), b"[2]", form=FORM),))))
        found = [(await ledger.document(ORDER, at(version))).unwrap() for version in range(3)]
        assert [document and document.form for document in found] == [None, None, FORM]

    async def test_a_store_that_is_made_again_has_the_form_of_its_new_document(self, ledger: Ledger) -> None:
        for instance, form in (("one", FORM), ("two", None), ("three", OTHER)):
            made = Batch((), (CreateStore(ORDER, at(0, instance), b"{}", form),))
            ended = Batch((), (DeleteStore(ORDER, at(1, instance)),))
            for batch in (made, patch(1, instance=instance), ended):
                committed(await ledger.commit(batch))
        forms = [(row.revision.instance_id, row.form) for row in (await ledger.revisions(ORDER)).unwrap()]
        assert forms == [("three", OTHER)] * 3 + [("two", None)] * 3 + [("one", FORM)] * 3

    # --- revisions ----------------------------------------------------------

    async def test_changes_are_told_newest_first(self, ledger: Ledger) -> None:
        await grow(ledger, 1)
        committed(await ledger.commit(delete(1)))
        committed(await ledger.commit(create(revision=at(0, "again"), document=b"[]")))
        assert (await ledger.revisions(ORDER)).unwrap() == (
            StoredChange(4, 3, at(0, "again"), "created", NOW_MS, 0, 2),
            StoredChange(3, 2, at(1), "deleted", NOW_MS),
            StoredChange(2, 1, at(1), "patched", NOW_MS, 3, 0, b"[1]"),
            StoredChange(1, None, at(0), "created", NOW_MS, 0, 7),
        )
        assert [row.patch for row in (await ledger.revisions(ORDER, patches=False)).unwrap()] == [None] * 4

    async def test_of_what_never_was_there_is_no_history(self, ledger: Ledger) -> None:
        assert await ledger.revisions(ORDER) == Success(())
        await grow(ledger, 0)
        assert await ledger.revisions(ORDER, before=at(3, "nobody")) == Success(())

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_pages_follow_one_another(self, ledger: Ledger, limit: int) -> None:
        await grow(ledger, 3)
        committed(await ledger.commit(Batch((), (WriteBase(3, b"{}"),))))
        committed(await ledger.commit(delete(3)))
        committed(await ledger.commit(create(revision=at(0, "again"))))
        committed(await ledger.commit(patch(1, instance="again")))
        whole = (await ledger.revisions(ORDER)).unwrap()
        assert len(whole) == 7
        pages: list[StoredChange] = []
        while page := (await ledger.revisions(ORDER, limit=limit, before=pages[-1] if pages else None)).unwrap():
            assert len(page) <= limit
            pages += page
        assert tuple(pages) == whole
        for place, row in enumerate(whole):
            if row.kind != "deleted":
                assert (await ledger.revisions(ORDER, before=row.revision)).unwrap() == whole[place + 1 :]
        assert (await ledger.revisions(ORDER, before=at(99, "again"))).unwrap() == whole
        assert (await ledger.revisions(ORDER, before=at(99))).unwrap() == whole[3:]

    @pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**30])
    async def test_a_number_beyond_every_version_is_one_that_nothing_has(self, ledger: Ledger, number: int) -> None:
        await grow(ledger, 2)
        committed(await ledger.commit(delete(2)))
        committed(await ledger.commit(create(revision=at(0, "again"))))
        whole = (await ledger.revisions(ORDER, limit=number)).unwrap()
        assert len(whole) == 5
        for instance, kept in (("again", whole), ("instance-1", whole[2:])):  # without the end of the older one
            assert await ledger.document(ORDER, at(number, instance)) == Success(None)
            assert await ledger.document(ORDER, at(-number, instance)) == Success(None)
            assert (await ledger.revisions(ORDER, before=at(number, instance))).unwrap() == kept
        assert await ledger.revisions(ORDER, before=at(-number)) == Success(())
        assert (await ledger.runs(limit=number)).unwrap() == ()
        assert (await ledger.due(["fulfil"], NOW_MS, limit=number)).unwrap().rows == ()

    # --- cuts ---------------------------------------------------------------

    async def test_what_is_cut_out_is_gone_and_the_rest_reads_as_before(self, ledger: Ledger) -> None:
        await grow(ledger, 9)
        cut = CutLog(ORDER, above=7, seqs=(6, 5, 4), below=3, instance_id="instance-1")
        committed(await ledger.commit(Batch((), (WriteBase(7, b'{"n":6}'), cut))))
        assert [version for _, version, _ in await kept(ledger)] == [9, 8, 7, 6, 2, 1, 0]
        assert await readable(ledger, "instance-1", range(11)) == {0: 0, 1: 1, 2: 2, 6: 0, 7: 1, 8: 2, 9: 3}
        assert (await ledger.revisions(ORDER, before=at(4))).unwrap()[0].revision == at(2)
        tails = [(await ledger.tail(ORDER, at(version))).unwrap() for version in (2, 3, 4, 6, 9)]
        assert [None if tail is None else len(tail) for tail in tails] == [None, None, None, 3, 0]
        committed(await ledger.commit(patch(10)))
        assert (await ledger.document(ORDER)).unwrap() == Document(
            at(10), 11, b'{"n":6}', (b"[7]", b"[8]", b"[9]", b"[10]")
        )

    async def test_a_cut_to_the_ground_leaves_nothing_below(self, ledger: Ledger) -> None:
        await grow(ledger, 4)
        committed(await ledger.commit(delete(4)))
        committed(await ledger.commit(create(revision=at(0, "again"))))
        cuts = (
            CutLog(ORDER, above=5, seqs=(4, 3), below=2, instance_id="instance-1"),
            CutLog(ORDER, above=5, seqs=(2, 1), below=None, instance_id="instance-1"),
        )
        committed(await ledger.commit(Batch((), (WriteBase(5, b"{}"), *cuts))))
        assert await readable(ledger, "instance-1", range(6)) == {4: 0}
        assert await kept(ledger) == [
            ("again", 0, "created"),
            ("instance-1", 4, "deleted"),
            ("instance-1", 4, "patched"),
        ]
        committed(await ledger.commit(Batch((), (CutLog(ORDER, 7, (6, 5), None, "again"),))))
        assert await readable(ledger, "instance-1", range(6)) == {}
        assert await kept(ledger) == [("again", 0, "created")]

    @pytest.mark.parametrize(
        "cut",
        [
            CutLog(ORDER, 7, (5, 4), 3, "instance-1"),
            CutLog(ORDER, 7, (6, 5), 3, "instance-1"),
            CutLog(ORDER, 6, (5, 4), 3, "instance-1"),
            CutLog(ORDER, 99, (6, 5), 4, "instance-1"),
            CutLog(ORDER, 7, (6, 99), None, "instance-1"),
            CutLog(ORDER, None, (8,), None),
            CutLog(replace(ORDER, id="nobody"), None, (8,), None),
        ],
        ids=["not below", "not above", "no base", "no change", "too many", "it exists", "no store"],
    )
    async def test_a_cut_that_does_not_fit_is_none(self, ledger: Ledger, cut: CutLog) -> None:
        await grow(ledger, 7)
        before = (await ledger.revisions(ORDER)).unwrap()
        committed(await ledger.commit(Batch((), (WriteBase(7, b"{}"),))))
        committed(await ledger.commit(Batch((), (cut,))))
        assert [row.seq for row in (await ledger.revisions(ORDER)).unwrap()] == [row.seq for row in before]
        assert await readable(ledger, "instance-1", range(8)) == {**{n: n for n in range(6)}, 6: 0, 7: 1}

    async def test_the_last_trace_of_a_deleted_store_can_go(self, ledger: Ledger) -> None:
        await grow(ledger, 0)
        committed(await ledger.commit(delete(0)))
        committed(await ledger.commit(Batch((), (CutLog(ORDER, 2, (1,), None, "instance-1"),))))
        assert await prunable(ledger).histories() == Success((ORDER,))
        committed(await ledger.commit(Batch((), (CutLog(ORDER, None, (2,), None),))))
        assert await kept(ledger) == []
        assert await prunable(ledger).histories() == Success(())
        assert committed(await ledger.commit(create(revision=at(0, "again")))).seqs == (3,)
        assert await kept(ledger) == [("again", 0, "created")]

    # --- erasing ------------------------------------------------------------

    async def test_erasing_leaves_receipts_and_pins_and_nothing_that_they_name(self, ledger: Ledger) -> None:
        await grow(ledger, 1)
        committed(await ledger.commit(patch(2) + applied(at(2))))
        committed(await ledger.commit(Batch((), (InsertRun(RUN),))))
        pinned = WriteStep(_pinning(at(1)))
        committed(await ledger.commit(Batch((), (pinned,))))
        gone = (DeleteStore(ORDER, at(2)), EraseStore(ORDER, (STEP,)))
        committed(await ledger.commit(Batch((StoreAt(ORDER, at(2)),), gone)))
        assert await ledger.tip(ORDER) == Success(None)
        assert await kept(ledger) == []
        assert await readable(ledger, "instance-1", range(4)) == {}
        assert await ledger.receipt(ORDER, STEP) == Success(Receipt(ORDER, STEP, "update", at(2), b""))
        assert (await ledger.steps("run-1")).unwrap()[0].pin == Pin(ORDER, at(1))
        assert await prunable(ledger).histories() == Success(())
        committed(await ledger.commit(create(revision=at(0, "again"))))
        assert await kept(ledger) == [("again", 0, "created")]
        assert await readable(ledger, "again", range(2)) == {0: 0}

    async def test_a_number_is_not_given_again(self, ledger: Ledger) -> None:
        """A base that comes late must not fall on another store's change."""
        await grow(ledger, 1)
        committed(await ledger.commit(Batch((), (DeleteStore(ORDER, at(1)), EraseStore(ORDER)))))
        other = replace(ORDER, id="o-2")
        assert committed(await ledger.commit(create(other))).seqs == (4,)
        committed(await ledger.commit(Batch((), (WriteBase(2, b'"late"'),))))
        assert await ledger.document(other) == Success(Document(at(0), 4, b'{"n":0}'))

    async def test_a_store_that_exists_is_not_erased(self, ledger: Ledger) -> None:
        await grow(ledger, 0)
        with pytest.raises(ValueError, match="is erased once it is deleted"):
            await ledger.commit(Batch((), (EraseStore(ORDER),)))

    async def test_what_is_beneath_an_instance_is_erased_and_it_stays(self, ledger: Ledger) -> None:
        await grow(ledger, 1)
        committed(await ledger.commit(patch(2) + applied(at(2))))
        committed(await ledger.commit(delete(2)))
        committed(await ledger.commit(create(revision=at(0, "again"))))
        later = replace(STEP, run_id="run-2")
        receipt = Receipt(ORDER, later, "update", at(0, "again"), b'"v"')
        committed(await ledger.commit(Batch((), (WriteReceipt(receipt),))))
        committed(await ledger.commit(Batch((), (EraseStore(ORDER, (STEP, later), upto=4),))))
        assert await kept(ledger) == [("again", 0, "created")]
        assert await readable(ledger, "instance-1", range(4)) == {}
        assert await readable(ledger, "again", range(2)) == {0: 0}
        assert await ledger.receipt(ORDER, STEP) == Success(Receipt(ORDER, STEP, "update", at(2), b""))
        assert await ledger.receipt(ORDER, later) == Success(receipt)
        assert await ledger.tip(ORDER) == Success(at(0, "again"))

    @pytest.mark.parametrize("upto", [0, 2, 5, 6, 99], ids=["nothing", "midst", "begin", "tip", "later"])
    async def test_an_instance_goes_whole_and_once_it_has_ended(self, ledger: Ledger, upto: int) -> None:
        await grow(ledger, 2)
        committed(await ledger.commit(delete(2)))
        committed(await ledger.commit(create(revision=at(0, "again"))))
        before = (await ledger.revisions(ORDER)).unwrap()
        committed(await ledger.commit(Batch((), (EraseStore(ORDER, upto=upto),))))
        assert (await ledger.revisions(ORDER)).unwrap() == before
        assert await readable(ledger, "instance-1", range(4)) == {0: 0, 1: 1, 2: 2}
        assert await ledger.tip(ORDER) == Success(at(0, "again"))

    async def test_what_is_made_again_in_the_group_that_erases_stays(self, ledger: Ledger) -> None:
        await grow(ledger, 1)
        committed(await ledger.commit(delete(1)))
        erased = Batch((), (EraseStore(ORDER, upto=3),))
        for verdict in await ledger.commit_all([erased, create(revision=at(0, "again"))]):
            committed(verdict)
        assert await kept(ledger) == [("again", 0, "created")]
        erased = Batch((), (EraseStore(ORDER, upto=5),))
        ended = delete(0, instance="again")
        for verdict in await ledger.commit_all([ended, create(revision=at(0, "third")), erased]):
            committed(verdict)
        assert await kept(ledger) == [("third", 0, "created")]
        assert await readable(ledger, "third", range(2)) == {0: 0}

    # --- runs ---------------------------------------------------------------

    async def test_a_run_that_ended_is_forgotten_with_all_that_belongs_to_it(self, ledger: Ledger) -> None:
        await grow(ledger, 0)
        ended = replace(RUN, state="completed")
        rows = (InsertRun(ended), WriteStep(_pinning(at(1))), SendSignal(SignalRow("run-1", "s", b"1", "once")))
        committed(await ledger.commit(patch(1) + applied(at(1)) + Batch((), rows)))
        assert await prunable(ledger).run_weight("run-1") == Success(RunWeight(1, 6))
        pins = (await prunable(ledger).pins()).unwrap()
        found = list(pins.pins)
        while pins.after is not None:
            pins = (await prunable(ledger).pins(after=pins.after)).unwrap()
            found += pins.pins
        assert found == [StoredPin(ORDER, at(1), STEP, 6), StoredPin(ORDER, at(1), STEP)]
        committed(await ledger.commit(Batch((), (ForgetRun("run-1"),))))
        assert await ledger.run("run-1") == Success(None)
        assert await ledger.steps("run-1") == Success(())
        assert await ledger.signals("run-1") == Success(())
        assert await ledger.receipt(ORDER, STEP) == Success(None)
        assert await prunable(ledger).run_weight("run-1") == Success(RunWeight(0, 0))
        committed(await ledger.commit(Batch((), (InsertRun(RUN), rows[2]))))
        assert len((await ledger.signals("run-1")).unwrap()) == 1
        assert await ledger.steps("run-1") == Success(())

    async def test_a_run_is_forgotten_with_what_was_written_of_it_in_the_same_group(self, ledger: Ledger) -> None:
        await grow(ledger, 0)
        committed(await ledger.commit(Batch((), (InsertRun(RUN),))))
        verdicts = await ledger.commit_all(
            [
                Batch((), (WriteStep(_pinning(at(0))),)),
                Batch((), (WriteReceipt(Receipt(ORDER, STEP, "update", at(0))),)),
                Batch((), (SendSignal(SignalRow("run-1", "paid", b"1")), ChangeRun("run-1", {"state": "failed"}))),
                Batch((), (ForgetRun("run-1"),)),
            ]
        )
        for verdict in verdicts:
            committed(verdict)
        assert await ledger.run("run-1") == Success(None)
        assert await ledger.receipt(ORDER, STEP) == Success(None)
        committed(await ledger.commit(Batch((), (InsertRun(RUN),))))
        assert (await ledger.steps("run-1"), await ledger.signals("run-1")) == (Success(()), Success(()))

    async def test_a_run_can_be_trimmed_first(self, ledger: Ledger) -> None:
        await grow(ledger, 0)
        steps = [WriteStep(_pinning(at(0), key=f"step-{n}")) for n in range(5)]
        committed(await ledger.commit(Batch((), (InsertRun(replace(RUN, state="failed")), *steps))))
        for left in (3, 1, 0, 0):
            committed(await ledger.commit(Batch((), (TrimRun("run-1", 2),))))
            assert len((await ledger.steps("run-1")).unwrap()) == left

    async def test_a_run_that_goes_on_is_not_forgotten(self, ledger: Ledger) -> None:
        committed(await ledger.commit(Batch((), (InsertRun(RUN),))))
        for write in (ForgetRun("run-1"), TrimRun("run-1", 1)):
            with pytest.raises(ValueError, match="has not ended"):
                await ledger.commit(Batch((), (write,)))
        committed(await ledger.commit(Batch((), (ForgetRun("nobody"), SweepSignals(1, 100)))))
        assert (await ledger.run("run-1")).unwrap() is not None


def _pinning(revision: Revision, key: str = "charge") -> StepRow:
    return structs.replace(CHARGE, key=key, value=b'"paid"', pin=Pin(ORDER, revision))
