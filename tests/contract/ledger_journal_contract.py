"""What every ledger must do with journals; each host runs this class with its own fixture `ledger`.

The fixture gives an empty ledger whose clock stands at `NOW_MS`.
"""

from __future__ import annotations

import asyncio

import pytest

from stepwell.core.batch import Batch, Committed, Fenced, RunFence
from stepwell.core.entry import START, EntryRow, NewEntry, RewindRow
from stepwell.core.journal import Appended, Source
from stepwell.core.journal_writes import Append, CompactJournal, JournalAt, RewindJournal, SourceFree, WriteCheckpoint
from stepwell.core.outcome import Failure, Success
from stepwell.services.journal_rows import CacheRows, CheckpointRow, EntryPage, JournalRow, JournalRows, SourceRow

from .ledger_batches import NOW_MS, create, patch
from .ledger_journal_batches import (
    OTHER,
    RUN,
    JournalLedger,
    all_entries,
    append,
    batch,
    check_chain,
    compact,
    done,
    entry,
    forget,
    journal_of,
    numbers,
    rewind,
    sourced,
    told,
)

FROM_ONE = Source("source-1", 0)


class LedgerJournalContract:
    async def test_it_says_that_it_keeps_them(self, ledger: JournalLedger) -> None:
        assert isinstance(ledger, JournalRows)
        assert isinstance(ledger, CacheRows)

    # --- appending ----------------------------------------------------------

    async def test_j14_entries_are_numbered_from_0_in_each_run(self, ledger: JournalLedger) -> None:
        assert (await done(ledger, append(1, 2))).appended == (Appended(0, False), Appended(1, False))
        assert (await done(ledger, append(3, run_id=OTHER))).appended == (Appended(0, False),)
        assert (await done(ledger, append(4))).appended == (Appended(2, False),)
        assert await numbers(ledger) == [0, 1, 2]

    async def test_an_entry_is_stored_as_it_was_given(self, ledger: JournalLedger) -> None:
        given = NewEntry("test.odd", b'{"a":"\xc3\xa9"}', Source("s \x00", -3), b"identity", b'{"m":1}', True)
        await done(ledger, batch(Append(RUN, (given,))))
        (row,) = await all_entries(ledger)
        assert row == EntryRow(
            RUN, 0, "test.odd", NOW_MS, given.source, given.payload, given.meta, True, row.chain, row.no
        )
        assert await ledger.entry_of(RUN, Source("s \x00", -3)) == Success(
            SourceRow(Source("s \x00", -3), 0, b"identity")
        )

    async def test_all_appends_of_a_batch_are_told_in_their_order(self, ledger: JournalLedger) -> None:
        both = append(1, 2) + append(3, run_id=OTHER) + append(4)
        assert [each.seq for each in (await done(ledger, both)).appended] == [0, 1, 0, 2]

    async def test_an_append_of_nothing_makes_no_journal(self, ledger: JournalLedger) -> None:
        assert await done(ledger, batch(Append(RUN, ()))) == Committed()
        assert await ledger.journal(RUN) == Success(None)
        assert await ledger.journals() == Success(())
        await done(ledger, forget())
        assert await ledger.journal(RUN) == Success(None)
        await done(ledger, append(1))
        assert (await journal_of(ledger)).generation == 0

    async def test_entries_of_all_runs_are_in_the_order_of_their_commits(self, ledger: JournalLedger) -> None:
        await asyncio.gather(*(ledger.commit(append(n, run_id=f"run-{n % 3}")) for n in range(9)))
        newest = (await ledger.newest(100)).unwrap()
        assert [each.payload for each in reversed(newest)] == [b'{"n":%d}' % n for n in range(9)]
        assert [each.no for each in newest] == sorted({each.no for each in newest}, reverse=True)
        assert await ledger.newest(2) == Success(newest[:2])

    async def test_a_number_of_the_order_of_commits_is_not_given_again(self, ledger: JournalLedger) -> None:
        await done(ledger, append(1, 2, 3))
        last = (await all_entries(ledger))[-1].no
        await done(ledger, rewind(-1), forget(), append(4))
        assert (await all_entries(ledger))[-1].no > last

    # --- sources ------------------------------------------------------------

    async def test_j15_the_same_entry_of_a_source_is_appended_once(self, ledger: JournalLedger) -> None:
        assert (await done(ledger, sourced(1))).appended == (Appended(0, False),)
        assert (await done(ledger, append(2), sourced(1))).appended == (Appended(0, True),)
        assert await numbers(ledger) == [0, 1]

    async def test_an_entry_twice_in_one_batch_is_appended_once(self, ledger: JournalLedger) -> None:
        twice = batch(Append(RUN, (entry(1, FROM_ONE), entry(1, FROM_ONE)))) + sourced(1)
        assert (await done(ledger, twice)).appended == (Appended(0, False), Appended(0, True), Appended(0, True))

    async def test_sources_of_two_runs_have_nothing_to_do_with_each_other(self, ledger: JournalLedger) -> None:
        assert (await done(ledger, sourced(1), sourced(2, run_id=OTHER))).appended == (Appended(0, False),)

    async def test_j16_a_source_that_has_another_entry_is_refused(self, ledger: JournalLedger) -> None:
        await done(ledger, sourced(1))
        other = batch(expects=[SourceFree(RUN, FROM_ONE, b"other")]) + append(2)
        refused = await ledger.commit(other)
        assert refused == Failure(Fenced(RUN))
        assert refused.failure() == Fenced(RUN, FROM_ONE)
        failure = refused.failure()
        assert isinstance(failure, Fenced)
        assert failure.source == FROM_ONE
        assert await numbers(ledger) == [0]

    async def test_a_source_is_free_for_the_entry_that_it_has(self, ledger: JournalLedger) -> None:
        free = batch(expects=[SourceFree(RUN, FROM_ONE, entry(1, FROM_ONE).identity)])
        assert (await done(ledger, free + sourced(1), free + sourced(1))).appended == (Appended(0, True),)

    async def test_a_source_that_was_taken_in_the_same_group_is_refused(self, ledger: JournalLedger) -> None:
        free = batch(expects=[SourceFree(RUN, FROM_ONE, entry(2, FROM_ONE).identity)])
        first, second = await ledger.commit_all([sourced(1), free + sourced(2)])
        assert told(first).appended == (Appended(0, False),)
        assert isinstance(second, Failure)
        assert await numbers(ledger) == [0]

    async def test_the_fence_of_a_run_comes_before_a_source(self, ledger: JournalLedger) -> None:
        await done(ledger, sourced(1))
        late = batch(expects=[SourceFree(RUN, FROM_ONE, b"other"), RunFence(RUN, 1)])
        refused = (await ledger.commit(late)).failure()
        assert isinstance(refused, Fenced)
        assert refused.source is None

    async def test_sources_are_listed_in_order(self, ledger: JournalLedger) -> None:
        places = [("b", 1), ("a", 10), ("a", -2), ("a", 9), ("\U0001f600", 0), ("\uff5e", 0), ("", 5)]
        for number, (name, seq) in enumerate(places):
            await done(ledger, sourced(number, seq, name))
        every = (await ledger.sources(RUN)).unwrap()
        assert [(each.source.id, each.source.seq) for each in every] == sorted(places)
        assert [each.seq for each in every] == [places.index((each.source.id, each.source.seq)) for each in every]
        assert all(each.sealed for each in every)
        pages = [(await ledger.sources(RUN, after=each.source, limit=2)).unwrap() for each in every]
        assert pages == [every[n + 1 : n + 3] for n in range(len(every))]
        assert await ledger.sources(OTHER) == Success(())
        assert await ledger.entry_of(RUN, Source("a", 11)) == Success(None)
        assert await ledger.entry_of(RUN, Source("a", 1 << 80)) == Success(None)
        assert await ledger.entry_of(OTHER, Source("a", 9)) == Success(None)

    # --- all or nothing -----------------------------------------------------

    async def test_j24_what_a_refused_batch_appends_is_not_there(self, ledger: JournalLedger) -> None:
        refused = sourced(1) + patch(1)
        assert isinstance(await ledger.commit(refused), Failure)
        assert await ledger.journal(RUN) == Success(None)
        assert await ledger.entry_of(RUN, FROM_ONE) == Success(None)
        assert (await done(ledger, sourced(1))).appended == (Appended(0, False),)

    async def test_j26_a_batch_that_is_refused_takes_all_its_parts_with_it(self, ledger: JournalLedger) -> None:
        whole = append(1) + append(2, run_id=OTHER) + create() + patch(5)
        verdicts = await ledger.commit_all([whole, append(3)])
        assert isinstance(verdicts[0], Failure)
        assert await ledger.journal(OTHER) == Success(None)
        assert [each.payload for each in await all_entries(ledger)] == [b'{"n":3}']

    async def test_j18_a_number_that_was_not_used_is_given_again(self, ledger: JournalLedger) -> None:
        first, second, third = await ledger.commit_all([append(1), append(2) + patch(1), append(3)])
        assert (told(first).appended, told(third).appended) == ((Appended(0, False),), (Appended(1, False),))
        assert isinstance(second, Failure)
        await check_chain(ledger)

    async def test_j25_a_listener_is_told_when_the_entry_is_there(self, ledger: JournalLedger) -> None:
        news: list[str] = []
        remove = ledger.subscribe(news.append)
        call = asyncio.create_task(ledger.commit(append(1)))
        assert await numbers(ledger) == []
        assert news == []
        await call
        assert await numbers(ledger) == [0]
        assert news == ["commit"]
        remove()

    # --- reading ------------------------------------------------------------

    async def test_entries_are_read_in_pages(self, ledger: JournalLedger) -> None:
        await done(ledger, append(*range(5)))
        every = await all_entries(ledger)
        for after, limit in ((None, 2), (1, 2), (3, 2), (4, 2), (-5, 3), (1 << 80, 2), (None, 5)):
            later = [each for each in every if after is None or each.seq > after]
            page = (await ledger.entries(RUN, after=after, limit=limit)).unwrap()
            assert page == EntryPage(tuple(later[:limit]), len(later) > limit, None)
        assert await ledger.entries(OTHER) == Success(EntryPage((), False, None))

    async def test_entries_of_some_types_are_read_in_pages(self, ledger: JournalLedger) -> None:
        types = ["test.a", "test.b", "test.c"]
        await done(ledger, batch(Append(RUN, tuple(entry(n, event_type=types[n % 3]) for n in range(12)))))
        every = await all_entries(ledger)
        for wanted in (["test.a"], ["test.c", "test.a", "test.c"], ["test.none"], [], types):
            for after, limit in ((None, 3), (4, 2), (4, 100)):
                later = [each for each in every if each.event_type in wanted and (after is None or each.seq > after)]
                page = (await ledger.entries(RUN, after=after, event_types=wanted, limit=limit)).unwrap()
                assert page == EntryPage(tuple(later[:limit]), len(later) > limit, None)

    async def test_journals_are_listed_by_their_runs(self, ledger: JournalLedger) -> None:
        runs = ["z", "a", "\U0001f600", "\uff5e", "a/2"]
        for run_id in runs:
            await done(ledger, append(1, 2, run_id=run_id))
        every = (await ledger.journals()).unwrap()
        assert [each.run_id for each in every] == sorted(runs)
        assert [(each.last_seq, each.sealed, each.generation, each.floor) for each in every] == [(1, True, 0, None)] * 5
        assert await ledger.journals(after="a", limit=2) == Success(every[1:3])
        assert await ledger.journal("z") == Success(every[2])
        assert await ledger.journal("y") == Success(None)

    # --- checkpoints and compaction -------------------------------------------

    async def test_a_checkpoint_is_kept_until_another_takes_its_place(self, ledger: JournalLedger) -> None:
        await done(ledger, append(1, 2, 3), batch(WriteCheckpoint(RUN, 1, b"1"), WriteCheckpoint(RUN, 2, b"2")))
        await done(ledger, batch(WriteCheckpoint(RUN, 1, b'{"again":1}')))
        assert await ledger.checkpoints(RUN) == Success(
            (CheckpointRow(RUN, 2, b"2", NOW_MS, None), CheckpointRow(RUN, 1, b'{"again":1}', NOW_MS, None))
        )
        assert await ledger.checkpoints(OTHER) == Success(())
        assert await numbers(ledger) == [0, 1, 2]

    async def test_j34_a_compacted_journal_begins_at_its_checkpoint(self, ledger: JournalLedger) -> None:
        await done(ledger, append(*range(8)), batch(WriteCheckpoint(RUN, 2, b"2"), WriteCheckpoint(RUN, 6, b"6")))
        before = await all_entries(ledger)
        await done(ledger, compact(4, carried=b"what was there"))
        row = await journal_of(ledger)
        assert (row.floor, row.floor_chain, row.carried) == (4, before[3].chain, b"what was there")
        assert await ledger.entries(RUN) == Success(EntryPage(before[4:], False, 4))
        assert await ledger.checkpoints(RUN) == Success(
            (CheckpointRow(RUN, 6, b"6", NOW_MS, None), CheckpointRow(RUN, 4, b'{"upto":4}', NOW_MS, NOW_MS))
        )
        assert (await done(ledger, append(8))).appended == (Appended(8, False),)
        await check_chain(ledger)

    async def test_j40_the_numbers_go_on_where_all_but_the_last_entry_is_gone(self, ledger: JournalLedger) -> None:
        await done(ledger, append(*range(6)), compact(5))
        assert (await done(ledger, append(6, 7))).appended == (Appended(6, False), Appended(7, False))
        await check_chain(ledger)

    async def test_a_source_outlives_its_entry_where_that_is_compacted(self, ledger: JournalLedger) -> None:
        await done(ledger, sourced(1), append(2, 3), compact(2))
        assert (await ledger.entry_of(RUN, FROM_ONE)).unwrap() == SourceRow(FROM_ONE, 0, entry(1, FROM_ONE).identity)
        assert (await done(ledger, sourced(1))).appended == (Appended(0, True),)

    async def test_a_journal_is_compacted_again_and_again(self, ledger: JournalLedger) -> None:
        for turn in range(5):
            await done(ledger, append(*range(4)), compact(4 * turn + 2, carried=b"%d" % turn))
            row = await journal_of(ledger)
            assert (row.floor, row.carried) == (4 * turn + 2, b"%d" % turn)
            await check_chain(ledger)
        assert await numbers(ledger) == [18, 19]
        before = await ledger.journal(RUN)
        await done(ledger, batch(CompactJournal(RUN, 18, b"4")))
        assert await ledger.journal(RUN) == before

    async def test_a_batch_planned_on_another_floor_is_refused(self, ledger: JournalLedger) -> None:
        await done(ledger, append(*range(4)), batch(expects=[JournalAt(RUN, 0, None)]) + compact(2))
        for place in (JournalAt(RUN, 0, None), JournalAt(RUN, 0, 1), JournalAt(RUN, 1, 2), JournalAt(OTHER, 0, 2)):
            assert await ledger.commit(batch(expects=[place]) + append(9)) == Failure(Fenced(place.run_id))
        await done(ledger, batch(expects=[JournalAt(RUN, 0, 2), JournalAt(OTHER, 0, None)]) + append(9))
        assert await numbers(ledger) == [2, 3, 4]

    @pytest.mark.parametrize("seq", [-1, 0, 1, 7, 99])
    async def test_a_checkpoint_at_no_entry_is_a_bug(self, ledger: JournalLedger, seq: int) -> None:
        await done(ledger, append(*range(4)), compact(2))
        wrong = append(9) + batch(WriteCheckpoint(RUN, seq, b"{}"))
        answers = await asyncio.gather(
            ledger.commit(append(5)), ledger.commit(wrong), ledger.commit(append(6)), return_exceptions=True
        )
        assert isinstance(answers[1], ValueError)
        assert [each.payload for each in await all_entries(ledger)][2:] == [b'{"n":5}', b'{"n":6}']
        assert [each.seq for each in (await ledger.checkpoints(RUN)).unwrap()] == [2]
        await check_chain(ledger)

    async def test_to_compact_to_no_checkpoint_is_a_bug(self, ledger: JournalLedger) -> None:
        await done(ledger, append(*range(4)))
        with pytest.raises(ValueError, match="no checkpoint"):
            await ledger.commit(append(9) + batch(CompactJournal(RUN, 2, b"")))
        with pytest.raises(ValueError, match="cannot be rewound"):
            await done(ledger, compact(2), append(9) + rewind(1))
        assert await numbers(ledger) == [2, 3]

    # --- rewinding ----------------------------------------------------------

    async def test_a_rewind_takes_what_came_later_with_it(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, 1), sourced(2, 0), sourced(3, 1), batch(WriteCheckpoint(RUN, 1, b"1")))
        await done(ledger, batch(WriteCheckpoint(RUN, 3, b"3")), rewind(2, carried=b"what was there"))
        kept = await all_entries(ledger)
        row = await journal_of(ledger)
        assert [each.seq for each in kept] == [0, 1, 2]
        assert (row.last_seq, row.generation, row.carried, row.floor) == (3, 1, b"what was there", None)
        assert await ledger.rewinds(RUN) == Success((RewindRow(RUN, 1, 3, 2, NOW_MS, row.chain),))
        assert [each.seq for each in (await ledger.checkpoints(RUN)).unwrap()] == [1]
        assert [each.source.seq for each in (await ledger.sources(RUN)).unwrap()] == [0]
        assert (await done(ledger, sourced(9, 1))).appended == (Appended(4, False),)
        await check_chain(ledger)

    async def test_a_batch_planned_before_a_rewind_is_refused(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, 1), rewind(0))
        assert await ledger.commit(batch(expects=[JournalAt(RUN, 0, None)])) == Failure(Fenced(RUN))
        await done(ledger, batch(expects=[JournalAt(RUN, 1, None)]))

    async def test_a_rewind_of_all_leaves_the_numbers(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, 1), rewind(-1))
        assert await numbers(ledger) == []
        assert (await journal_of(ledger)).last_seq == 1
        await check_chain(ledger)
        assert (await done(ledger, append(2))).appended == (Appended(2, False),)
        await check_chain(ledger)

    async def test_rewinds_upon_rewinds_and_compactions_keep_the_chain(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, 1, 2, 3), rewind(1), rewind(1), append(4, 5), rewind(4), rewind(0), append(6, 7))
        assert await numbers(ledger) == [0, 6, 7]
        await check_chain(ledger)
        await done(ledger, compact(6))
        await check_chain(ledger)
        await done(ledger, rewind(6), append(8), compact(8))
        assert await numbers(ledger) == [8]
        assert [each.generation for each in (await ledger.rewinds(RUN)).unwrap()] == [1, 2, 3, 4, 5]
        await check_chain(ledger)

    async def test_a_journal_that_was_rewound_to_nothing_can_be_compacted(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, 1), rewind(-1), append(2, 3), compact(2))
        (only,) = (await ledger.rewinds(RUN)).unwrap()
        assert (await journal_of(ledger)).floor_chain == only.chain
        await check_chain(ledger)

    # --- forgetting ---------------------------------------------------------

    async def test_of_a_forgotten_journal_the_last_number_is_kept(self, ledger: JournalLedger) -> None:
        await done(ledger, sourced(0), append(1, 2, 3), rewind(2), compact(1), append(4))
        chain = (await journal_of(ledger)).chain
        await done(ledger, forget())
        assert await journal_of(ledger) == JournalRow(RUN, 4, chain, 2, None, chain, None)
        for answer in (ledger.checkpoints(RUN), ledger.rewinds(RUN), ledger.sources(RUN)):
            assert await answer == Success(())
        assert await ledger.entries(RUN) == Success(EntryPage((), False, None))
        assert await ledger.commit(batch(expects=[JournalAt(RUN, 1, None)])) == Failure(Fenced(RUN))
        assert (await done(ledger, sourced(0), append(5))).appended == (Appended(6, False),)
        await check_chain(ledger)
        await done(ledger, rewind(5), append(6), compact(7))
        await check_chain(ledger)

    async def test_a_forgotten_journal_can_be_rewound_and_compacted(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, 1), forget(), append(2), rewind(-1), append(3), compact(3))
        assert await numbers(ledger) == [3]
        await check_chain(ledger)

    async def test_to_forget_what_was_never_there_changes_nothing(self, ledger: JournalLedger) -> None:
        await done(ledger, append(0, run_id=OTHER), forget())
        assert await ledger.journal(RUN) == Success(None)
        assert await numbers(ledger, OTHER) == [0]

    # --- one group, one batch -------------------------------------------------

    async def test_a_group_comes_out_as_if_it_was_committed_one_by_one(self, ledger: JournalLedger) -> None:
        alone = [await ledger.commit(each) for each in group("alone")]
        together = await ledger.commit_all(group("group"))
        assert [isinstance(verdict, Success) for verdict in together] == [
            isinstance(verdict, Success) for verdict in alone
        ]
        assert [verdict.unwrap() for verdict in together if isinstance(verdict, Success)] == [
            verdict.unwrap() for verdict in alone if isinstance(verdict, Success)
        ]
        assert [isinstance(verdict, Success) for verdict in together].count(False) == 1
        for run_id in ("", " 2", " 3"):
            assert await self._shape(ledger, f"alone{run_id}") == await self._shape(ledger, f"group{run_id}")
            await check_chain(ledger, f"group{run_id}")

    async def test_one_batch_comes_out_as_if_it_was_committed_in_parts(self, ledger: JournalLedger) -> None:
        for each in parts("alone"):
            await done(ledger, each)
        whole = Batch()
        for each in parts("whole"):
            whole += each
        await done(ledger, whole)
        assert await self._shape(ledger, "alone") == await self._shape(ledger, "whole")
        await check_chain(ledger, "whole")

    @staticmethod
    async def _shape(ledger: JournalLedger, run_id: str) -> object:
        row = (await ledger.journal(run_id)).unwrap()
        rewinds = (await ledger.rewinds(run_id)).unwrap()
        return (
            [(each.seq, each.payload) for each in await all_entries(ledger, run_id)],
            row and (row.last_seq, row.generation, row.floor, row.carried, row.floor_chain in (None, START)),
            [(each.generation, each.from_seq, each.to_seq) for each in rewinds],
            [(each.seq, each.state, each.compacted_at_ms) for each in (await ledger.checkpoints(run_id)).unwrap()],
            (await ledger.sources(run_id)).unwrap(),
        )


def group(run: str) -> list[Batch]:
    """Batches of every kind on one journal and two others, the fourth of which is refused."""
    two, three = f"{run} 2", f"{run} 3"
    return [
        append(0, 1, 2, 3, run_id=run) + sourced(4, run_id=run),
        sourced(4, run_id=run) + append(5, run_id=two),
        batch(expects=[JournalAt(run, 0, None)]) + compact(2, run),
        append(6, run_id=run) + patch(7),
        batch(expects=[JournalAt(run, 0, 2)]) + rewind(3, run) + sourced(7, run_id=run),
        batch(expects=[JournalAt(run, 1, 2)]) + append(8, run_id=run) + rewind(5, run) + append(9, run_id=two),
        compact(3, run),
        append(10, 11, run_id=three) + forget(three) + append(12, run_id=three),
        append(13, 14, run_id=run) + compact(0, two),
        forget(two) + append(15, run_id=two),
        compact(2, two),
        batch(RewindJournal(two, 2, b"nothing was there")),
    ]


def parts(run: str) -> list[Batch]:
    """What cuts one journal again and again, and never is planned on what another part has made."""
    return [
        append(0, 1, 2, run_id=run) + sourced(3, run_id=run),
        rewind(1, run),
        sourced(4, run_id=run),
        rewind(4, run),
        append(5, run_id=run),
        forget(run),
        append(6, 7, run_id=run),
        rewind(6, run),
        append(8, run_id=run),
    ]
