"""What a journal keeps on every host: what is not as it was written is found."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from stepwell import Success, Unavailable
from stepwell.core.batch import Batch
from stepwell.core.journal import (
    Appended,
    Source,
    Tampered,
    Verified,
)
from stepwell.core.journal_writes import ForgetJournal

from .journal_doubles import Damaged, SlowToRead
from .journal_world import (
    RUN,
    World,
    fill,
    seqs,
)
from .store_world import failure, success


class VerifyContract:
    """What is not as it was written is found and named."""

    async def test_j19_a_journal_whose_newest_entries_are_damaged_is_not_opened(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 100)
        damaged = Damaged(await world.ledger())
        damaged.seq = 90
        refused = failure(await world.opened(ledger=damaged))
        assert refused == Tampered(RUN, 90)
        assert len(await seqs(journal)) == 100
        damaged.seq = 5  # longer ago than is looked at
        journal = await world.journal(ledger=damaged)
        assert failure(await journal.verify()) == Tampered(RUN, 5)

    async def test_j19_newest_entries_behind_rewinds_and_compactions_are_well(self, world: World) -> None:
        journal = await world.journal()
        for run_id in ("a", "b", "c", "d"):
            await fill(journal, 6, run_id)
        _ = success(await journal.rewind("a", -1))
        await fill(journal, 1, "a")
        _ = success(await journal.checkpoint("b", 5, None))
        _ = success(await journal.compact("b"))
        _ = success(await journal.rewind("c", 2))
        _ = success(await journal.append("c", "t", None))
        for _ in range(58):
            _ = success(await journal.append("e", "t", None))
        await world.restart()
        journal = await world.journal()
        assert success(await journal.verify()) == Verified(5, 1 + 1 + 4 + 6 + 58)

    async def test_verify_goes_page_by_page_and_knows_one_run(self, world: World) -> None:
        journal = await world.journal(page_size=3)
        for run_id in ("a", "b"):
            for number in range(7):
                _ = success(await journal.append(run_id, "t", number, source=Source("s", number)))
        assert success(await journal.verify()) == Verified(2, 14)
        assert success(await journal.verify("a")) == Verified(1, 7)
        assert success(await journal.verify("c")) == Verified(0, 0)

    async def test_a_journal_of_the_cache_is_verified_and_no_run(self, world: World) -> None:
        journal = await world.journal()
        _ = success(await journal.append("stepwell:step-cache", "t", None))
        assert success(await journal.verify()) == Verified(0, 1)
        assert success(await journal.runs()) == ()

    async def test_a_journal_that_was_forgotten_is_whole_and_goes_on(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        for run_id in (RUN, "other"):
            for number in range(4):
                _ = success(await journal.append(run_id, "t", number, source=Source("s", number)))
            _ = success(await journal.rewind(run_id, 2))
        _ = success(await journal.checkpoint(RUN, 1, None))
        _ = success(await journal.compact(RUN))
        _ = success(await ledger.commit(Batch((), (ForgetJournal(RUN), ForgetJournal("other")))))
        assert success(await journal.runs()) == ()
        assert success(await journal.verify()) == Verified(0, 0)
        for run_id in (RUN, "other"):
            assert await seqs(journal, run_id) == []
            for number in range(3):
                appended = success(await journal.append(run_id, "t", number, source=Source("s", number)))
                assert appended == Appended(4 + number, duplicate=False)
        assert success(await journal.verify()) == Verified(2, 6)
        _ = success(await journal.rewind(RUN, 5))
        _ = success(await journal.rewind("other", -1))
        assert success(await journal.verify()) == Verified(1, 2)
        await fill(journal, 2)
        await fill(journal, 2, "other")
        _ = success(await journal.checkpoint(RUN, 7, None))
        assert success(await journal.compact(RUN)) == 2
        _ = success(await journal.checkpoint("other", 7, None))
        assert success(await journal.compact("other")) == 0
        assert success(await journal.verify()) == Verified(2, 4)
        await world.restart()
        assert success(await (await world.journal()).verify()) == Verified(2, 4)

    async def test_who_changes_a_journal_meanwhile_is_no_damage(self, world: World) -> None:
        verifying, changing = await world.journal(page_size=2), await world.journal()
        await fill(changing, 10)
        done = False

        async def change() -> None:
            nonlocal done
            for number in range(12):
                source = Source("s", number)
                last = success(await changing.append(RUN, "t", number, source=source)).seq
                _ = success(await changing.append("other", "t", number, source=source))
                if number % 4 == 1:
                    _ = success(await changing.checkpoint(RUN, last, None))
                    _ = success(await changing.compact(RUN))
                if number % 4 == 3:
                    _ = success(await changing.rewind(RUN, last - 1))
            done = True

        task = asyncio.create_task(change())
        verified = 0
        while not done and not task.done():
            looked = await verifying.verify()
            # It may give up on a journal that never stands still; it does not call that damage.
            assert isinstance(looked, Success) or isinstance(looked.failure(), Unavailable), looked
            verified += 1
        await task
        assert verified > 1
        assert success(await verifying.verify()).entries > 0

    @pytest.mark.parametrize("does", ["rewind", "compact"])
    async def test_who_changes_a_journal_between_two_looks_is_no_damage(
        self, world: World, does: Literal["rewind", "compact"]
    ) -> None:
        slow = SlowToRead(await world.ledger())
        journal, rival = await world.journal(ledger=slow), await world.journal()
        await fill(journal, 8)
        _ = success(await journal.checkpoint(RUN, 4, None))
        slow.rival, slow.does, slow.at = rival, does, "rewinds"
        assert success(await journal.verify()) == Verified(1, 6 if does == "rewind" else 4)
        assert slow.rival is None
