"""What automatic compaction keeps on every host, and how options are checked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from stepwell import Failure, Outcome, Unavailable
from stepwell.core.entry import NewEntry
from stepwell.core.journal import InvalidEvent, Source
from stepwell.layers.journal import Compaction
from stepwell.services.journal_rows import JournalRow

from .journal_world import RUN, JournalDouble, World, fill, rows_of, seqs
from .store_world import failure, success
from .waiters_world import turns


class Captures:
    """A capture that notes what it was asked for."""

    def __init__(self, does: Callable[[], Awaitable[object]] | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self.begun = asyncio.Event()
        self.does = does

    async def __call__(self, run_id: str, seq: int) -> object:
        self.asked.append((run_id, seq))
        self.begun.set()
        return {"upto": seq} if self.does is None else await self.does()


class Uncountable(JournalDouble):
    """A ledger that does not say how long a journal is."""

    broken = True

    async def journal(self, run_id: str) -> Outcome[JournalRow | None, Unavailable]:
        return Failure(Unavailable("busy", "no")) if self.broken else await super().journal(run_id)


async def floor(world: World) -> int | None:
    row = success(await rows_of(await world.ledger()).journal(RUN))
    return None if row is None else row.floor


class PolicyContract:
    """At so many entries a state is captured, and what was before it goes."""

    @pytest.mark.parametrize("number", [0, -1, 1.5, True])
    @pytest.mark.parametrize("option", ["page_size", "payload_bytes", "entry_threshold"])
    async def test_j1_options_that_make_no_sense_are_refused(self, world: World, option: str, number: int) -> None:
        page_size = number if option == "page_size" else 512
        payload_bytes = number if option == "payload_bytes" else 1024
        compaction = Compaction(number, Captures()) if option == "entry_threshold" else None
        refused = failure(await world.opened(page_size=page_size, payload_bytes=payload_bytes, compaction=compaction))
        assert isinstance(refused, InvalidEvent)
        assert option in refused.message

    async def test_j41_each_threshold_compacts_to_the_last_entry(self, world: World) -> None:
        captures = Captures()
        journal = await world.journal(compaction=Compaction(5, captures))
        floors: list[int | None] = []
        for number in range(9):
            assert success(await journal.append(RUN, "t", number)).seq == number
            floors.append(await floor(world))
        assert floors == [None] * 4 + [4] * 4 + [8]
        assert captures.asked == [(RUN, 4), (RUN, 8)]
        assert await seqs(journal, after=7) == [8]
        checkpoint = success(await journal.latest_checkpoint(RUN))
        assert checkpoint is not None
        assert checkpoint.state == {"upto": 8}

    async def test_j42_what_was_there_before_a_restart_counts(self, world: World) -> None:
        await fill(await world.journal(), 3)
        await world.restart()
        captures = Captures()
        journal = await world.journal(compaction=Compaction(5, captures))
        await fill(journal, 1)
        assert captures.asked == []
        await fill(journal, 1)
        assert captures.asked == [(RUN, 4)]

    async def test_j43_a_duplicate_does_not_count(self, world: World) -> None:
        captures = Captures()
        journal = await world.journal(compaction=Compaction(5, captures))
        for number in (0, 1, 2, 3, 3, 3, 3):
            _ = success(await journal.append(RUN, "t", None, source=Source("s", number)))
        assert captures.asked == []

    async def test_j44_a_capture_that_is_cancelled_compacts_nothing(self, world: World) -> None:
        async def cancelled() -> object:
            raise asyncio.CancelledError

        journal = await world.journal(compaction=Compaction(2, Captures(cancelled)))
        await fill(journal, 1)
        with pytest.raises(asyncio.CancelledError):
            _ = await journal.append(RUN, "t", None)
        assert (await seqs(journal), await floor(world)) == ([0, 1], None)

    async def test_j44_who_is_cancelled_during_a_capture_takes_it_along(self, world: World) -> None:
        ended: list[str] = []

        async def forever() -> object:
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                ended.append("capture")

        captures = Captures(forever)
        journal = await world.journal(compaction=Compaction(1, captures))
        appending = asyncio.create_task(journal.append(RUN, "t", None))
        async with asyncio.timeout(10):
            _ = await captures.begun.wait()
        _ = appending.cancel()
        await turns()
        assert (appending.cancelled(), ended, await floor(world)) == (True, ["capture"], None)

    async def test_j45_a_count_that_fails_is_logged(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        uncountable = Uncountable(await world.ledger())
        captures = Captures()
        journal = await world.journal(ledger=uncountable, compaction=Compaction(2, captures))
        with caplog.at_level(logging.WARNING, "stepwell.journal"):
            await fill(journal, 2)
        assert [record.getMessage() for record in caplog.records] == [
            "the journal of 'run' was not compacted at 0: Unavailable(reason='busy', applied='no')"
        ]
        uncountable.broken = False
        await fill(journal, 1)
        assert captures.asked == [(RUN, 2)]

    @pytest.mark.parametrize("problem", ["raises", "no json"])
    async def test_j45_a_capture_that_fails_is_logged_and_asked_again_later(
        self, world: World, caplog: pytest.LogCaptureFixture, problem: str
    ) -> None:
        async def fails() -> object:
            if problem == "raises":
                raise LookupError("no state")
            return object()

        captures = Captures(fails)
        journal = await world.journal(compaction=Compaction(2, captures))
        with caplog.at_level(logging.WARNING, "stepwell.journal"):
            await fill(journal, 3)
        assert (captures.asked, len(caplog.records)) == ([(RUN, 1)], 1)
        captures.does = None
        await fill(journal, 1)
        assert captures.asked == [(RUN, 1), (RUN, 3)]
        assert await floor(world) == 3

    async def test_a_capture_is_given_thirty_seconds(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        async def forever() -> object:
            return await asyncio.get_running_loop().create_future()

        captures = Captures(forever)
        journal = await world.journal(compaction=Compaction(1, captures))
        appending = asyncio.create_task(journal.append(RUN, "t", None))
        async with asyncio.timeout(10):
            _ = await captures.begun.wait()
        await world.clock.advance(29_999)
        assert not appending.done()
        with caplog.at_level(logging.WARNING, "stepwell.journal"):
            await world.clock.advance(1)
            assert success(await appending).seq == 0
        assert "30 s" in caplog.text

    async def test_entries_in_batches_of_others_count(self, world: World) -> None:
        captures, ledger = Captures(), await world.ledger()
        journal = await world.journal(ledger=ledger, compaction=Compaction(5, captures))
        for _ in range(7):
            _ = success(await ledger.commit(journal.appending(RUN, [NewEntry("t", b"1")])))
            await turns()
        async with asyncio.timeout(10):
            _ = await captures.begun.wait()
        for _ in range(1_000):
            if await floor(world) is not None:
                break
        assert await floor(world) == captures.asked[0][1]
