"""What a journal keeps on every host: of who reads it, and of what is too long for it."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import Unavailable
from stepwell.core.cache_fold import PROJECTION, candidates
from stepwell.core.cache_fold import reduce as reduce_heads
from stepwell.core.journal import (
    Source,
    Tampered,
    Verified,
)
from stepwell.core.kind import is_dict
from stepwell.core.provenance import provenance_entry
from stepwell.core.step_cache import RecordedRef

from .journal_doubles import Deaf
from .journal_world import (
    RUN,
    SUM,
    World,
    entries,
    fill,
    first,
    payloads,
    rows_of,
)
from .store_world import failure, success
from .waiters_world import turns


class ReadContract:
    """Pages, followers and projections."""

    async def test_j29_pages_say_whether_there_is_more(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 3)
        page = success(await journal.entries(RUN, limit=2))
        assert ([entry.seq for entry in page.entries], page.has_more) == ([0, 1], True)
        page = success(await journal.entries(RUN, after=1, limit=2))
        assert ([entry.seq for entry in page.entries], page.has_more) == ([2], False)

    async def test_entries_of_some_types(self, world: World) -> None:
        journal = await world.journal()
        for event_type in "abcab":
            _ = success(await journal.append(RUN, event_type, None))
        page = success(await journal.entries(RUN, event_types=("a", "c"), limit=2))
        assert ([entry.seq for entry in page.entries], page.has_more) == ([0, 2], True)
        assert [entry.seq for entry in success(await journal.entries(RUN, event_types={"b"})).entries] == [1, 4]

    @pytest.mark.parametrize(("name", "value"), [("after", -2), ("after", True), ("limit", 0), ("limit", 1.5)])
    async def test_arguments_that_make_no_sense_are_bugs(self, world: World, name: str, value: int) -> None:
        journal = await world.journal()
        with pytest.raises((TypeError, ValueError), match=name):
            _ = await (journal.entries(RUN, after=value) if name == "after" else journal.entries(RUN, limit=value))
        with pytest.raises(ValueError, match="a run's id"):
            _ = await journal.entries("")

    async def test_what_is_handed_out_is_the_callers_own(self, world: World) -> None:
        journal = await world.journal()
        given = {"list": [1]}
        _ = success(await journal.append(RUN, "t", given))
        given["list"].append(2)
        (entry,) = await entries(journal, RUN)
        assert entry.payload == {"list": [1]}
        assert is_dict(entry.payload)
        entry.payload.clear()
        assert await payloads(journal, RUN) == [{"list": [1]}]

    async def test_j28_a_follower_sees_what_another_journal_appends_within_a_second(self, world: World) -> None:
        here, there = await world.journal(), await world.journal()
        waiting = asyncio.create_task(first(here.follow(RUN), 2))
        await turns()
        for number in range(2):
            _ = success(await there.append(RUN, "t", number))
            await world.clock.advance(1_000)
        async with asyncio.timeout(10):
            assert [entry.payload for entry in await waiting] == [0, 1]

    async def test_j28_a_follower_without_news_looks_within_a_second(self, world: World) -> None:
        here, there = await world.journal(ledger=Deaf(await world.ledger())), await world.journal()
        waiting = asyncio.create_task(first(here.follow(RUN), 1))
        await world.clock.advance(10_000)
        _ = success(await there.append(RUN, "t", "late"))
        await turns()
        assert not waiting.done()
        await world.clock.advance(1_000)
        async with asyncio.timeout(10):
            assert [entry.payload for entry in await waiting] == ["late"]

    async def test_a_follower_reads_page_after_page(self, world: World) -> None:
        journal = await world.journal(page_size=3)
        await fill(journal, 8)
        assert [entry.seq for entry in await first(journal.follow(RUN, after=0), 7)] == [1, 2, 3, 4, 5, 6, 7]

    async def test_p1_a_projection_is_folded_the_same_each_time(self, world: World) -> None:
        journal = await world.journal(page_size=2)
        for number in (1, 2, 3):
            _ = success(await journal.append(RUN, "t", number))
        for _ in range(2):
            states = journal.states(RUN, SUM)
            assert [await anext(states) for _ in range(4)] == [0, 1, 3, 6]
            assert success(await journal.project(RUN, SUM)) == 6
        states = journal.states(RUN, SUM, after=1)
        assert [await anext(states) for _ in range(2)] == [0, 3]
        assert success(await journal.project(RUN, SUM, after=1)) == 3

    async def test_p2_states_go_on_as_entries_come(self, world: World) -> None:
        journal = await world.journal()
        states = journal.states(RUN, SUM)
        seen = [await anext(states)]
        for number in (2, 5):
            _ = success(await journal.append(RUN, "t", number))
            seen.append(await anext(states))
        assert seen == [0, 2, 7]

    async def test_p3_a_reducer_that_raises_harms_nobody_else(self, world: World) -> None:
        journal = await world.journal()
        _ = success(await journal.append(RUN, "t", "no number", source=Source("s", 0)))
        states = journal.states(RUN, SUM)
        assert await anext(states) == 0
        with pytest.raises(AssertionError):
            _ = await anext(states)
        with pytest.raises(AssertionError):
            _ = await journal.project(RUN, SUM)
        assert success(await journal.append(RUN, "t", 1, source=Source("s", 1))).seq == 1
        assert await payloads(journal, RUN) == ["no number", 1]

    async def test_p4_who_is_cancelled_ends_cancelled(self, world: World) -> None:
        journal = await world.journal()
        states = journal.states(RUN, SUM)
        assert await anext(states) == 0
        waiting = asyncio.ensure_future(anext(states))
        await turns()
        _ = waiting.cancel()
        await turns()
        assert waiting.cancelled()
        await fill(journal, 1)
        assert success(await journal.verify()) == Verified(1, 1)

    async def test_f16_projecting_is_reducing_by_hand(self, world: World) -> None:
        journal, ledger = await world.journal(page_size=2), await world.ledger()
        said = [provenance_entry("admitted", RecordedRef(f"k{number}", RUN, number)) for number in range(5)] + [
            provenance_entry("expired", RecordedRef("k1", RUN, 1)),
            provenance_entry("hit", RecordedRef("k2", RUN, 2)),
        ]
        for entry in said:
            _ = success(await ledger.commit(journal.appending(RUN, [entry])))
        state = PROJECTION.initial()
        for each in await entries(journal, RUN):
            state = reduce_heads(state, each)
        assert success(await journal.project(RUN, PROJECTION)) == state
        assert [ref.key_digest for ref in candidates(state)] == ["k0", "k2", "k3", "k4"]


class SpillContract:
    """Payloads that are too long for the journal."""

    async def test_a_long_payload_is_an_artifact_and_comes_back(self, world: World) -> None:
        journal = await world.journal(spilling=True, payload_bytes=100)
        payload = {"text": "x" * 200, "password": "s3cret"}
        kept = {"text": "x" * 200, "password": "[REDACTED]"}
        for _ in range(2):
            _ = success(await journal.append(RUN, "t", payload, source=Source("s", 0)))
        assert await payloads(journal, RUN) == [kept]
        ledger = await world.ledger()
        (row,) = success(await rows_of(ledger).entries(RUN)).entries
        assert row.spilled
        assert len(row.payload) < 150
        (blob,) = world.artifacts.blobs.values()
        assert b"s3cret" not in blob.data
        assert success(await journal.verify()) == Verified(1, 1)
        # It is the same entry, wherever its payload is kept.
        again = success(await (await world.journal()).append(RUN, "t", payload, source=Source("s", 0)))
        assert again.duplicate

    @pytest.mark.parametrize("how", ["missing", "damaged"])
    async def test_an_artifact_that_is_not_there_is_named(self, world: World, how: str) -> None:
        journal = await world.journal(spilling=True, payload_bytes=100)
        _ = success(await journal.append(RUN, "t", "x" * 200))
        ((digest, blob),) = world.artifacts.blobs.items()
        if how == "missing":
            world.artifacts.blobs.clear()
        else:
            blob.data = b"other"
        unreadable = failure(await journal.entries(RUN))
        assert isinstance(unreadable, Unavailable)
        assert digest in unreadable.reason
        tampered = failure(await journal.verify())
        assert tampered == Tampered(RUN, 0)
        assert isinstance(tampered, Tampered)
        assert digest in tampered.message

    async def test_without_artifacts_what_was_spilled_cannot_be_read(self, world: World) -> None:
        spilling = await world.journal(spilling=True, payload_bytes=100)
        _ = success(await spilling.append(RUN, "t", "x" * 200))
        journal = await world.journal()
        for answer in (await journal.entries(RUN), await journal.verify()):
            unreadable = failure(answer)
            assert isinstance(unreadable, Unavailable)
            assert "layer_spilling" in unreadable.reason
