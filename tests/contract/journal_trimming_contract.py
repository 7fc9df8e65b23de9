"""What a journal keeps on every host: of checkpoints, compaction and rewinds."""

from __future__ import annotations

import gc
from typing import Literal

import pytest

from stepwell import Failure, Unavailable
from stepwell.core.journal import (
    Appended,
    Checkpoint,
    Compacted,
    IdempotencyConflict,
    InvalidCheckpoint,
    Projection,
    Source,
    Tampered,
    Verified,
)
from stepwell.core.provenance import provenance_entry, read_carried
from stepwell.core.step_cache import RecordedRef
from stepwell.services.journal import JournalError
from stepwell.services.journal_rows import JournalRow

from .journal_doubles import Damaged, Overtaken, Refusing, SlowToRead
from .journal_world import (
    NOW_MS,
    ROW,
    RUN,
    SUM,
    World,
    added,
    fill,
    first,
    rows_of,
    seqs,
)
from .store_world import failure, success
from .waiters_world import turns


class CheckpointContract:
    """States that stand for entries."""

    async def test_j30_a_checkpoint_is_kept(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 4)
        assert success(await journal.latest_checkpoint(RUN)) is None
        kept = Checkpoint(RUN, 3, {"a": [1]}, None)
        assert success(await journal.checkpoint(RUN, 3, {"a": [1]})) == kept
        assert success(await journal.latest_checkpoint(RUN)) == kept

    @pytest.mark.parametrize("seq", [-1, 4, 2**53, True])
    async def test_j31_a_checkpoint_needs_its_entry(self, world: World, seq: int) -> None:
        journal = await world.journal()
        await fill(journal, 4)
        refused = failure(await journal.checkpoint(RUN, seq, None))
        assert refused == InvalidCheckpoint(RUN, seq)
        assert isinstance(refused, InvalidCheckpoint)
        assert refused.code == "checkpoint_invalid"
        assert isinstance(failure(await journal.checkpoint("no such run", 0, None)), InvalidCheckpoint)

    async def test_j31_an_entry_that_was_rewound_has_no_checkpoint(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 4)
        _ = success(await journal.checkpoint(RUN, 3, "gone"))
        assert success(await journal.rewind(RUN, 1)) == 2
        assert success(await journal.latest_checkpoint(RUN)) is None
        assert isinstance(failure(await journal.checkpoint(RUN, 3, None)), InvalidCheckpoint)

    async def test_j32_a_checkpoint_is_replaced(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 4)
        for attempt in (1, 2):
            _ = success(await journal.checkpoint(RUN, 3, {"attempt": attempt}))
        assert success(await journal.latest_checkpoint(RUN)) == Checkpoint(RUN, 3, {"attempt": 2}, None)

    async def test_j33_a_checkpoint_whose_commit_fails_is_none(self, world: World) -> None:
        refusing = Refusing(await world.ledger())
        journal = await world.journal(ledger=refusing)
        await fill(journal, 2)
        refusing.failing = Unavailable("no", "no")
        assert await journal.checkpoint(RUN, 1, None) == Failure(Unavailable("no", "no"))
        assert success(await journal.latest_checkpoint(RUN)) is None

    @pytest.mark.parametrize("state", [{1, 2}, float("inf"), {1: 2}, object()])
    async def test_a_state_is_json(self, world: World, state: object) -> None:
        journal = await world.journal()
        await fill(journal, 1)
        refused = failure(await journal.checkpoint(RUN, 0, state))
        assert isinstance(refused, InvalidCheckpoint)
        assert "the state" in refused.message

    async def test_a_state_has_a_limit(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 1)
        most = 16 * 1024 * 1024 - 2
        assert isinstance(failure(await journal.checkpoint(RUN, 0, "x" * (most + 1))), InvalidCheckpoint)
        assert success(await journal.checkpoint(RUN, 0, "x" * most)).seq == 0

    async def test_r12_a_state_is_stored_as_it_is(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 1)
        state = {"token": "s3cret", "text": "password=abc"}
        _ = success(await journal.checkpoint(RUN, 0, state))
        checkpoint = success(await journal.latest_checkpoint(RUN))
        assert checkpoint is not None
        assert checkpoint.state == state

    async def test_j20_a_damaged_checkpoint_harms_no_entry(self, world: World) -> None:
        damaged = Damaged(await world.ledger())
        journal = await world.journal(ledger=damaged)
        await fill(journal, 2)
        _ = success(await journal.checkpoint(RUN, 1, "state"))
        damaged.checkpoint = 1
        unreadable = failure(await journal.latest_checkpoint(RUN))
        assert isinstance(unreadable, Unavailable)
        assert unreadable.reason.startswith("decode_failed: ")
        assert await seqs(journal) == [0, 1]
        # Nothing is removed for the sake of a state that cannot be read.
        assert isinstance(failure(await journal.compact(RUN)), Unavailable)
        assert failure(await journal.verify(RUN)) == Tampered(RUN, 1)


class CompactionContract:
    """The entries before a checkpoint go, and nothing that they said of the step cache."""

    async def test_j34_j35_compaction_to_a_checkpoint(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 8)
        whole = success(await journal.project(RUN, SUM))
        _ = success(await journal.checkpoint(RUN, 4, 0 + 1 + 2 + 3 + 4))
        assert success(await journal.compact(RUN)) == 4
        checkpoint = success(await journal.latest_checkpoint(RUN))
        assert checkpoint == Checkpoint(RUN, 4, 10, NOW_MS)
        assert await seqs(journal, after=3) == [4, 5, 6, 7]
        resumed = Projection(lambda: 10, added)
        assert success(await journal.project(RUN, resumed, after=4)) == whole
        assert success(await journal.append(RUN, "t", 8)).seq == 8
        assert success(await journal.compact(RUN)) == 0
        assert success(await journal.verify()) == Verified(1, 5)

    async def test_j36_without_a_checkpoint_nothing_is_compacted(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 3)
        assert failure(await journal.compact(RUN)) == InvalidCheckpoint(RUN, -1)
        _ = success(await journal.checkpoint(RUN, 2, None))
        assert failure(await journal.compact(RUN, 1)) == InvalidCheckpoint(RUN, 1)
        assert isinstance(failure(await journal.compact("no such run")), InvalidCheckpoint)
        assert await seqs(journal) == [0, 1, 2]

    async def test_compaction_up_to_an_earlier_checkpoint(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 8)
        for seq in (2, 5):
            _ = success(await journal.checkpoint(RUN, seq, seq))
        assert success(await journal.compact(RUN, 4)) == 2
        latest = success(await journal.latest_checkpoint(RUN))
        assert latest == Checkpoint(RUN, 5, 5, None)
        assert success(await journal.compact(RUN)) == 3
        assert success(await journal.compact(RUN, 3)) == 0
        assert success(await journal.verify()) == Verified(1, 3)

    async def test_j37_no_checkpoint_at_the_floor_or_below(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 8)
        _ = success(await journal.checkpoint(RUN, 4, None))
        _ = success(await journal.compact(RUN))
        for seq in (4, 3, 0):
            refused = failure(await journal.checkpoint(RUN, seq, None))
            assert isinstance(refused, InvalidCheckpoint)
            assert (refused.code, refused.floor) == ("checkpoint_invalid", 4)
        assert success(await journal.checkpoint(RUN, 5, None)).seq == 5

    async def test_j38_who_reads_from_below_the_floor_is_told(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 6)
        _ = success(await journal.checkpoint(RUN, 5, None))
        _ = success(await journal.compact(RUN))
        assert await journal.entries(RUN) == Failure(Compacted(RUN, 5))
        assert await journal.project(RUN, SUM, after=3) == Failure(Compacted(RUN, 5))
        assert (await seqs(journal, after=4), await seqs(journal, after=5)) == ([5], [])
        with pytest.raises(JournalError) as compacted:
            _ = await anext(journal.follow(RUN))
        assert compacted.value.failure == Compacted(RUN, 5)

    async def test_j39_a_reader_that_is_behind_stands_against_it(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 7)
        _ = success(await journal.checkpoint(RUN, 5, None))
        following = journal.follow(RUN)
        refused = failure(await journal.compact(RUN))
        assert isinstance(refused, InvalidCheckpoint)
        assert refused.code == "reader_behind"
        seen = await first(following, 4)
        assert isinstance(failure(await journal.compact(RUN)), InvalidCheckpoint)
        seen += await first(following, 1)
        assert success(await journal.compact(RUN)) == 5
        seen += await first(following, 2)
        assert [entry.seq for entry in seen] == [0, 1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("begun", [False, True])
    async def test_j39_a_reader_that_was_dropped_stands_against_nothing(self, world: World, begun: bool) -> None:
        journal = await world.journal()
        await fill(journal, 3)
        _ = success(await journal.checkpoint(RUN, 2, None))
        following = journal.follow(RUN)
        if begun:
            _ = await anext(following)
        assert isinstance(failure(await journal.compact(RUN)), InvalidCheckpoint)
        del following
        _ = gc.collect()
        await turns()
        assert success(await journal.compact(RUN)) == 2

    async def test_j40_a_fresh_process_goes_on_from_the_last_number(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 6)
        _ = success(await journal.checkpoint(RUN, 5, None))
        assert success(await journal.compact(RUN)) == 5
        await world.restart()
        journal = await world.journal()
        assert [success(await journal.append(RUN, "t", None)).seq for _ in range(2)] == [6, 7]
        assert success(await journal.verify()) == Verified(1, 3)

    async def test_j40_a_source_of_an_entry_that_is_gone_is_still_known(self, world: World) -> None:
        journal = await world.journal()
        for number in range(3):
            _ = success(await journal.append(RUN, "t", number, source=Source("s", number)))
        _ = success(await journal.checkpoint(RUN, 2, None))
        _ = success(await journal.compact(RUN))
        assert success(await journal.append(RUN, "t", 0, source=Source("s", 0))) == Appended(0, duplicate=True)
        conflict = failure(await journal.append(RUN, "t", 9, source=Source("s", 0)))
        assert conflict == IdempotencyConflict(RUN, Source("s", 0))
        assert success(await journal.verify()) == Verified(1, 1)

    async def test_j47_what_is_carried_of_the_cache_is_not_in_the_state(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        _ = success(await ledger.commit(journal.appending(RUN, [provenance_entry("admitted", ROW)])))
        await fill(journal, 3)
        state = {"of": ["mine"], "cache": None}
        _ = success(await journal.checkpoint(RUN, 2, state))
        before = success(await journal.latest_checkpoint(RUN))
        assert success(await journal.compact(RUN)) == 2
        after = success(await journal.latest_checkpoint(RUN))
        assert (before, after) == (Checkpoint(RUN, 2, state, None), Checkpoint(RUN, 2, state, NOW_MS))
        row = success(await rows_of(ledger).journal(RUN))
        assert isinstance(row, JournalRow)
        carried = read_carried(row.carried)
        assert carried is not None
        assert [name for name, _ in carried.admitted] == [(ROW.key_digest, ROW.recorded_run_id, ROW.recorded_event_seq)]

    async def test_what_is_carried_is_added_to_what_was(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        refs = [RecordedRef(f"k{number}", RUN, number) for number in range(4)]
        for at, ref in enumerate(refs):
            _ = success(await ledger.commit(journal.appending(RUN, [provenance_entry("admitted", ref)])))
            if at == 1:
                _ = success(await ledger.commit(journal.appending(RUN, [provenance_entry("expired", refs[0])])))
        _ = success(await journal.checkpoint(RUN, 2, None))
        _ = success(await journal.compact(RUN))
        assert success(await journal.rewind(RUN, 3)) == 1
        row = success(await rows_of(ledger).journal(RUN))
        carried = read_carried(None if row is None else row.carried)
        assert carried is not None
        assert [name[0] for name, _ in carried.admitted] == ["k0", "k1", "k3"]
        assert success(await journal.verify()) == Verified(1, 2)

    @pytest.mark.parametrize("does", ["rewind", "compact"])
    async def test_who_is_overtaken_plans_anew(self, world: World, does: Literal["rewind", "compact"]) -> None:
        slow = SlowToRead(await world.ledger())
        journal, rival = await world.journal(ledger=slow), await world.journal()
        await fill(journal, 8)
        _ = success(await journal.checkpoint(RUN, 4, None))
        slow.rival, slow.does = rival, does
        assert success(await journal.compact(RUN)) == (4 if does == "rewind" else 0)
        assert isinstance(success(await journal.verify()), Verified)
        assert await seqs(journal, after=3) == ([4, 5] if does == "rewind" else [4, 5, 6, 7])


class RewindContract:
    """The entries after a number go, and their numbers with them."""

    async def test_numbers_are_not_given_again(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 5)
        assert success(await journal.rewind(RUN, 1)) == 3
        assert success(await journal.append(RUN, "t", "new")).seq == 5
        assert await seqs(journal) == [0, 1, 5]
        assert success(await journal.rewind(RUN, 1)) == 1
        assert success(await journal.append(RUN, "t", "new")).seq == 6
        assert success(await journal.verify()) == Verified(1, 3)

    @pytest.mark.parametrize("to_seq", [3, 4])
    async def test_a_place_within_a_gap_is_the_entry_before_it(self, world: World, to_seq: int) -> None:
        journal = await world.journal()
        await fill(journal, 5)
        _ = success(await journal.rewind(RUN, 2))
        await fill(journal, 2)
        assert success(await journal.rewind(RUN, to_seq)) == 2
        assert success(await journal.append(RUN, "t", None)).seq == 7
        assert await seqs(journal) == [0, 1, 2, 7]
        assert success(await journal.verify()) == Verified(1, 4)

    async def test_all_of_it(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 3)
        assert success(await journal.rewind(RUN, -1)) == 3
        assert success(await journal.verify()) == Verified(0, 0)
        await fill(journal, 2)
        assert await seqs(journal) == [3, 4]
        assert success(await journal.verify()) == Verified(1, 2)
        _ = success(await journal.checkpoint(RUN, 3, None))
        assert success(await journal.compact(RUN)) == 0
        assert success(await journal.verify()) == Verified(1, 2)
        assert await journal.rewind(RUN, 2) == Failure(Compacted(RUN, 3))

    async def test_nothing_to_rewind(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 3)
        assert [success(await journal.rewind(RUN, to_seq)) for to_seq in (2, 3, 99)] == [0, 0, 0]
        assert success(await journal.rewind("no such run", -1)) == 0
        _ = success(await journal.rewind(RUN, 1))
        assert success(await journal.rewind(RUN, 1)) == 0
        for to_seq in (-2, True):
            with pytest.raises((TypeError, ValueError), match="to_seq"):
                _ = await journal.rewind(RUN, to_seq)

    async def test_a_place_below_the_floor_is_gone(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 6)
        _ = success(await journal.checkpoint(RUN, 4, None))
        _ = success(await journal.compact(RUN))
        assert await journal.rewind(RUN, 3) == Failure(Compacted(RUN, 4))
        assert success(await journal.rewind(RUN, 4)) == 1
        assert success(await journal.verify()) == Verified(1, 1)

    async def test_a_source_of_an_entry_that_was_rewound_is_free(self, world: World) -> None:
        journal = await world.journal()
        for number in range(2):
            _ = success(await journal.append(RUN, "t", number, source=Source("s", number)))
        assert success(await journal.rewind(RUN, 0)) == 1
        assert success(await journal.append(RUN, "t", "other", source=Source("s", 1))) == Appended(2, duplicate=False)
        assert success(await journal.append(RUN, "t", 0, source=Source("s", 0))) == Appended(0, duplicate=True)

    async def test_a_follower_goes_on_behind_a_rewind(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 3)
        following = journal.follow(RUN)
        _ = await first(following, 3)
        _ = success(await journal.rewind(RUN, 0))
        _ = success(await journal.append(RUN, "t", "new"))
        assert [entry.seq for entry in await first(following, 1)] == [3]

    async def test_what_is_said_of_the_cache_while_a_rewind_is_planned_is_carried_too(self, world: World) -> None:
        overtaken = Overtaken(await world.ledger())
        journal = await world.journal(ledger=overtaken)
        await fill(journal, 3)
        overtaken.batch = journal.appending(RUN, [provenance_entry("admitted", ROW), provenance_entry("expired", ROW)])
        assert success(await journal.rewind(RUN, 0)) == 4
        assert await seqs(journal) == [0]
        row = success(await overtaken.journal(RUN))
        carried = read_carried(None if row is None else row.carried)
        assert carried is not None
        assert (len(carried.admitted), len(carried.retired)) == (1, 1)
        assert success(await journal.verify()) == Verified(1, 1)
