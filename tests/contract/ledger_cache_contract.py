"""What every ledger must do with the step cache; each host runs this class with its own fixture `ledger`.

The fixture gives an empty ledger whose clock stands at `NOW_MS`.
"""

from __future__ import annotations

import json

from stepwell.core.batch import Batch, Fenced
from stepwell.core.journal import Appended
from stepwell.core.journal_writes import CacheAt, EvictHead, RecordRow, SetHead
from stepwell.core.outcome import Failure, Success
from stepwell.core.provenance import CACHE_JOURNAL
from stepwell.core.recorded_row import HeadRow, RecordedRow, StoredRow
from stepwell.core.step_cache import Recorded, RecordedRef

from .ledger_batches import patch
from .ledger_journal_batches import (
    KEY,
    OTHER,
    RUN,
    JournalLedger,
    append,
    batch,
    check_chain,
    compact,
    done,
    forget,
    journal_of,
    numbers,
    recorded,
    ref,
    rewind,
)


async def said(ledger: JournalLedger) -> list[tuple[str, str, str, int]]:
    """What the journals say of the step cache, in the order of their commits: where, what, and of which row."""
    found: list[tuple[str, str, str, int]] = []
    for each in (await ledger.provenance()).unwrap():
        payload = json.loads(each.payload)
        found.append((each.run_id, payload["action"], payload["key_digest"], payload["recorded_event_seq"]))
    return found


async def head_of(ledger: JournalLedger, key: str = KEY) -> RecordedRef | None:
    row = (await ledger.head(key)).unwrap()
    return None if row is None else row.ref


class LedgerCacheContract:
    # --- recording ----------------------------------------------------------

    async def test_the_first_row_of_a_key_is_recorded_and_in_force(self, ledger: JournalLedger) -> None:
        answer = await done(ledger, append(1), batch(recorded(b"[1]", created_at_ms=5)))
        assert answer.recorded == (Recorded(ref(1), "inserted", ref(1)),)
        assert answer.appended == ()
        assert await ledger.head(KEY) == Success(HeadRow(ref(1), 5))
        row = RecordedRow(KEY, RUN, 1, b"[1]", b"{}", 5)
        assert await ledger.recorded(ref(1)) == Success(StoredRow(ref(1), row))
        assert await said(ledger) == [(RUN, "recorded", KEY, 1), (RUN, "admitted", KEY, 1)]
        assert await numbers(ledger) == [0, 1, 2]
        await check_chain(ledger)

    async def test_the_row_in_force_is_read_with_its_head(self, ledger: JournalLedger) -> None:
        assert await ledger.in_force(KEY) == Success(None)
        await done(ledger, batch(recorded(b"1", 40)), batch(recorded(b"2", run_id=OTHER)))
        assert await ledger.in_force(KEY) == await ledger.recorded(ref(40))
        await done(ledger, forget())
        assert await ledger.in_force(KEY) == Success(StoredRow(ref(40), None))
        await done(ledger, batch(EvictHead(KEY)))
        assert await ledger.in_force(KEY) == Success(None)

    async def test_a_row_has_the_number_of_the_entry_that_says_so(self, ledger: JournalLedger) -> None:
        whole = append(1) + batch(recorded(b"1")) + append(2) + batch(recorded(b"2", key="key-2"))
        answer = await done(ledger, whole)
        assert [each.ref for each in answer.recorded] == [ref(1), ref(4, "key-2")]
        assert answer.appended == (Appended(0, False), Appended(3, False))
        entries = (await ledger.entries(RUN)).unwrap().entries
        assert [each.seq for each in entries if b'"recorded"' in each.payload] == [1, 4]

    async def test_the_first_writer_wins(self, ledger: JournalLedger) -> None:
        answer = await done(
            ledger, batch(recorded(b"1")), batch(recorded(b"1", run_id=OTHER), recorded(b"2", run_id=OTHER))
        )
        assert answer.recorded == (
            Recorded(ref(0, run_id=OTHER), "existing_same", ref(0)),
            Recorded(ref(1, run_id=OTHER), "conflict", ref(0)),
        )
        assert await head_of(ledger) == ref(0)
        assert await ledger.recorded_of(OTHER) == Success((ref(0, run_id=OTHER), ref(1, run_id=OTHER)))
        assert [each[:2] for each in await said(ledger)] == [
            (RUN, "recorded"),
            (RUN, "admitted"),
            (OTHER, "recorded"),
            (OTHER, "recorded"),
        ]

    async def test_a_row_under_its_own_name_is_recorded_once(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1", 40)))
        answer = await done(ledger, batch(recorded(b"1", 40), recorded(b"2", 40)))
        assert answer.recorded == (Recorded(ref(40), "existing_same", ref(40)), Recorded(ref(40), "conflict", ref(40)))
        assert (await ledger.recorded(ref(40))).unwrap() == StoredRow(
            ref(40), RecordedRow(KEY, RUN, 40, b"1", b"{}", 7)
        )
        assert await said(ledger) == [(RUN, "recorded", KEY, 40), (RUN, "admitted", KEY, 40)]

    async def test_a_row_that_is_recorded_already_can_be_in_force_again(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1", 40)), batch(EvictHead(KEY)))
        answer = await done(ledger, batch(recorded(b"1", 40)))
        assert answer.recorded == (Recorded(ref(40), "existing_same", ref(40)),)
        assert await head_of(ledger) == ref(40)

    async def test_a_number_that_a_row_took_by_its_own_name_is_a_conflict(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1", 2)))
        answer = await done(ledger, batch(recorded(b"2")))
        assert answer.recorded == (Recorded(ref(2), "conflict", ref(2)),)
        assert await numbers(ledger) == [0, 1]

    async def test_a_head_whose_row_is_gone_stands_against_nobody(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1")), forget())
        assert await head_of(ledger) == ref(0)
        answer = await done(ledger, batch(recorded(b"2", run_id=OTHER)))
        assert answer.recorded == (Recorded(ref(0, run_id=OTHER), "inserted", ref(0, run_id=OTHER)),)
        assert await head_of(ledger) == ref(0, run_id=OTHER)
        assert (CACHE_JOURNAL, "removed", KEY, 0) in await said(ledger)
        await check_chain(ledger, CACHE_JOURNAL)

    async def test_a_row_that_is_in_force_and_gone_can_come_again(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1", 40)), forget())
        answer = await done(ledger, batch(recorded(b"2", 40)))
        assert answer.recorded == (Recorded(ref(40), "existing_same", ref(40)),)
        assert (await ledger.recorded(ref(40))).unwrap() == StoredRow(
            ref(40), RecordedRow(KEY, RUN, 40, b"2", b"{}", 7)
        )

    async def test_a_row_that_came_again_stands_against_others(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1", 40)), forget())
        again = batch(recorded(b"2", 40), recorded(b"3", run_id=OTHER))
        for whole in (again, forget() + again):
            answer = await done(ledger, whole)
            assert [each.standing for each in answer.recorded] == ["existing_same", "conflict"]
            assert [each.head for each in answer.recorded] == [ref(40), ref(40)]
            assert await head_of(ledger) == ref(40)

    async def test_what_was_written_back_from_elsewhere_is_in_no_journal(self, ledger: JournalLedger) -> None:
        back = RecordRow(RecordedRow(KEY, "run of another", 3, b"1", b"{}", 9), admits=False)
        answer = await done(ledger, batch(back))
        assert answer.recorded == (
            Recorded(ref(3, run_id="run of another"), "inserted", ref(3, run_id="run of another")),
        )
        assert await ledger.journals() == Success(())
        assert await ledger.head(KEY) == Success(HeadRow(ref(3, run_id="run of another"), 9))
        await done(ledger, forget("run of another"))
        assert await ledger.recorded(ref(3, run_id="run of another")) == Success(None)

    async def test_what_a_refused_batch_records_is_not_there(self, ledger: JournalLedger) -> None:
        assert isinstance(await ledger.commit(batch(recorded()) + patch(1)), Failure)
        assert await head_of(ledger) is None
        assert await ledger.recorded_of(RUN) == Success(())
        assert await ledger.cache_changes() == Success(0)

    # --- heads --------------------------------------------------------------

    async def test_an_eviction_tells_what_went(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded()))
        answer = await done(
            ledger,
            batch(
                EvictHead("key-9"),
                EvictHead(KEY, ref(7)),
                EvictHead(KEY, ref(0), "evict"),
                EvictHead(KEY, ref(0), "evict"),
            ),
        )
        assert answer.evicted == (None, None, ref(0), None)
        assert await head_of(ledger) is None
        assert (await said(ledger))[2:] == [(CACHE_JOURNAL, "removed", KEY, 0)]
        assert (await ledger.recorded(ref(0))).unwrap() is not None

    async def test_an_eviction_without_a_reason_says_nothing(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded()))
        assert (await done(ledger, batch(EvictHead(KEY)))).evicted == (ref(0),)
        assert len(await said(ledger)) == 2
        assert await ledger.journal(CACHE_JOURNAL) == Success(None)

    async def test_a_row_is_said_to_be_removed_once(self, ledger: JournalLedger) -> None:
        for _ in range(2):
            await done(ledger, batch(recorded(b"1", 40)), batch(EvictHead(KEY, None, "evict")))
        assert [each[1] for each in await said(ledger)] == ["recorded", "admitted", "removed"]

    async def test_exactly_this_row_is_put_in_force(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1", created_at_ms=1), recorded(b"2", created_at_ms=2)))
        second = ref(2)
        await done(ledger, batch(SetHead(KEY, second), SetHead("key-2", ref(99)), SetHead("key-3", None)))
        assert await ledger.heads() == Success((HeadRow(second, 2),))
        await done(ledger, batch(SetHead(KEY, ref(99))))
        assert await head_of(ledger) == second
        await done(ledger, batch(SetHead(KEY, None)))
        assert await ledger.heads() == Success(())
        assert [each[1] for each in await said(ledger)] == ["recorded", "admitted", "recorded"]

    async def test_a_row_is_compared_with_the_head_that_was_set(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1"), recorded(b"2")))
        whole = batch(SetHead(KEY, ref(2)), recorded(b"2", run_id=OTHER), EvictHead(KEY), recorded(b"3", run_id=OTHER))
        answer = await done(ledger, whole)
        assert [each.standing for each in answer.recorded] == ["existing_same", "inserted"]
        assert answer.evicted == (ref(2),)
        assert await head_of(ledger) == ref(1, run_id=OTHER)

    async def test_heads_are_listed_by_key_and_by_age(self, ledger: JournalLedger) -> None:
        keys = ["b", "a", "a-2", "B", "_", "0"]
        for age, key in enumerate(keys):
            await done(ledger, batch(recorded(key=key, created_at_ms=age)))
        every = (await ledger.heads()).unwrap()
        assert [each.ref.key_digest for each in every] == sorted(keys)
        assert [each.created_at_ms for each in every] == [keys.index(each.ref.key_digest) for each in every]
        assert await ledger.heads(after="_", limit=2) == Success(every[3:5])
        for before in (0, 3, 6, 1 << 80, -5):
            old = [each for each in every if each.created_at_ms < before]
            assert await ledger.heads(created_before_ms=before) == Success(tuple(old))
            assert await ledger.heads(created_before_ms=before, after="B", limit=1) == Success(
                tuple([each for each in old if each.ref.key_digest > "B"][:1])
            )

    async def test_recorded_rows_are_listed_by_key_and_number(self, ledger: JournalLedger) -> None:
        places = [("b", 1), ("a", 10), ("a", 9), ("c", 0), ("a", -1)]
        for key, seq in places:
            await done(ledger, batch(recorded(b"1", seq, key)), batch(recorded(b"1", seq, key, OTHER)))
        every = (await ledger.recorded_of(RUN)).unwrap()
        assert every == tuple(ref(seq, key) for key, seq in sorted(places))
        assert await ledger.recorded_of(RUN, after=every[1], limit=2) == Success(every[2:4])
        asked = [*every, ref(8, "a"), ref(1, "b", OTHER), ref(1, "b", "run-3"), ref(1 << 80, "a")]
        assert await ledger.are_recorded(asked) == Success(frozenset((*every, ref(1, "b", OTHER))))
        assert (await ledger.are_recorded(())).unwrap() == frozenset()
        assert await ledger.recorded(ref(1 << 80, "a")) == Success(None)

    # --- changes ------------------------------------------------------------

    async def test_whatever_changes_the_cache_raises_its_number(self, ledger: JournalLedger) -> None:
        changing = (
            batch(recorded(b"1")),
            batch(recorded(b"2")),  # a conflict, and recorded
            batch(RecordRow(RecordedRow(KEY, OTHER, 4, b"2", b"{}", 0), admits=False)),
            batch(EvictHead(KEY)),
            batch(SetHead(KEY, ref(0))),
            batch(SetHead(KEY, None)),
            append(1, 2) + compact(0),
            rewind(1),
            forget(),
        )
        number = (await ledger.cache_changes()).unwrap()
        await done(ledger, append(0, run_id=OTHER))
        assert await ledger.cache_changes() == Success(number)
        for each in changing:
            await done(ledger, each)
            after = (await ledger.cache_changes()).unwrap()
            assert after > number
            number = after
        for each in (append(3), batch(EvictHead(KEY)), Batch()):
            await done(ledger, each)
            assert await ledger.cache_changes() == Success(number)

    async def test_a_batch_planned_before_a_change_is_refused(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded()))
        number = (await ledger.cache_changes()).unwrap()
        first, second = await ledger.commit_all(
            [
                batch(SetHead(KEY, None), expects=[CacheAt(number)]),
                batch(SetHead(KEY, ref(0)), expects=[CacheAt(number)]),
            ]
        )
        assert isinstance(first, Success)
        assert second == Failure(Fenced(CACHE_JOURNAL))
        assert await head_of(ledger) is None

    async def test_what_is_said_is_read_in_the_order_of_the_commits(self, ledger: JournalLedger) -> None:
        for number in range(4):
            await done(ledger, append(number), batch(recorded(key=f"key-{number}", run_id=f"run-{3 - number}")))
        every = (await ledger.provenance()).unwrap()
        assert [each.run_id for each in every] == [f"run-{3 - number}" for number in range(4) for _ in range(2)]
        assert await ledger.provenance(after=every[2].no, limit=3) == Success(every[3:6])
        assert await ledger.provenance(after=every[-1].no) == Success(())

    # --- with journals that go ------------------------------------------------

    async def test_rows_stay_where_their_entries_go(self, ledger: JournalLedger) -> None:
        await done(ledger, batch(recorded(b"1")), append(1), compact(2), rewind(2))
        assert (await ledger.recorded(ref(0))).unwrap() is not None
        assert await said(ledger) == []
        assert await head_of(ledger) == ref(0)
        answer = await done(ledger, batch(recorded(b"1", 0)))
        assert answer.recorded == (Recorded(ref(0), "existing_same", ref(0)),)

    async def test_what_a_rewind_took_can_be_said_again(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0), batch(recorded(b"1", 40)), rewind(0), batch(EvictHead(KEY)), forget())
        await done(ledger, batch(recorded(b"1", 40)))
        assert await said(ledger) == [(RUN, "recorded", KEY, 40), (RUN, "admitted", KEY, 40)]
        assert await numbers(ledger) == [3, 4]
        await check_chain(ledger)

    async def test_all_of_it_in_one_batch(self, ledger: JournalLedger) -> None:
        whole = (
            batch(recorded(b"1", 40), recorded(b"2"))
            + rewind(0)
            + batch(recorded(b"1", 40), EvictHead(KEY, None, "evict"))
            + forget()
            + batch(recorded(b"3", 40), recorded(b"4", 40), recorded(b"5", 41, run_id=OTHER), SetHead("key-9", ref(2)))
        )
        answer = await done(ledger, whole)
        assert answer.recorded == (
            Recorded(ref(40), "inserted", ref(40)),
            Recorded(ref(2), "conflict", ref(40)),
            Recorded(ref(40), "existing_same", ref(40)),
            Recorded(ref(40), "inserted", ref(40)),
            Recorded(ref(40), "conflict", ref(40)),
            Recorded(ref(41, run_id=OTHER), "conflict", ref(40)),
        )
        assert await ledger.heads() == Success((HeadRow(ref(40), 7),))
        assert await ledger.recorded_of(RUN) == Success((ref(40),))
        assert (await ledger.recorded(ref(40))).unwrap() == StoredRow(
            ref(40), RecordedRow(KEY, RUN, 40, b"3", b"{}", 7)
        )
        assert await said(ledger) == [
            (CACHE_JOURNAL, "removed", KEY, 40),
            (RUN, "recorded", KEY, 40),
            (RUN, "admitted", KEY, 40),
            (OTHER, "recorded", KEY, 41),
        ]
        assert (await journal_of(ledger)).generation == 2
        for run_id in (RUN, OTHER, CACHE_JOURNAL):
            await check_chain(ledger, run_id)
