"""What a journal keeps on every host."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection
from dataclasses import FrozenInstanceError
from typing import Literal, Never

import pytest
from msgspec.structs import replace

from stepwell import Failure, Ledger, Outcome, Success, Unavailable
from stepwell.core.batch import Batch, RunFence
from stepwell.core.cache_fold import PROJECTION, candidates
from stepwell.core.cache_fold import reduce as reduce_heads
from stepwell.core.entry import EntryRow, NewEntry
from stepwell.core.journal import (
    Appended,
    Checkpoint,
    Compacted,
    Entry,
    IdempotencyConflict,
    InvalidCheckpoint,
    InvalidEvent,
    Owner,
    Projection,
    Source,
    Tampered,
    Verified,
)
from stepwell.core.journal_writes import ForgetJournal
from stepwell.core.kind import is_dict
from stepwell.core.provenance import provenance_entry, read_carried
from stepwell.core.step_cache import RecordedRef
from stepwell.layers.journal import LedgerJournal, NoopJournal
from stepwell.services.journal import Fenced, JoinableJournal, JournalError
from stepwell.services.journal_rows import CheckpointRow, EntryPage, JournalRow
from stepwell.services.ledger import Verdict

from .journal_world import NOW_MS, JournalDouble, World, entries, first, payloads, rows_of
from .store_world import failure, success
from .waiters_world import turns

RUN = "run"
ROW = RecordedRef("k" * 64, RUN, 3)


def added(total: int, entry: Entry) -> int:
    assert isinstance(entry.payload, int)
    return total + entry.payload


SUM: Projection[int] = Projection(lambda: 0, added)


async def fill(journal: LedgerJournal, count: int, run_id: str = RUN) -> None:
    for number in range(count):
        _ = success(await journal.append(run_id, "t", number))


async def seqs(journal: LedgerJournal, run_id: str = RUN, after: int | None = None) -> list[int]:
    return [entry.seq for entry in await entries(journal, run_id, after)]


class Refusing(JournalDouble):
    """A ledger whose commits fail as it is told, once."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.failing: Unavailable | None = None

    async def commit(self, batch: Batch) -> Verdict:
        failing, self.failing = self.failing, None
        return await super().commit(batch) if failing is None else Failure(failing)


class Damaged(JournalDouble):
    """A ledger that gives one entry, and the checkpoint that has it, otherwise than they were written."""

    seq = -1
    checkpoint = -1

    def _spoilt(self, row: EntryRow) -> EntryRow:
        return replace(row, payload=b'"other"') if row.seq == self.seq else row

    async def newest(self, limit: int) -> Outcome[tuple[EntryRow, ...], Unavailable]:
        return Success(tuple(map(self._spoilt, success(await super().newest(limit)))))

    async def entries(
        self, run_id: str, *, after: int | None = None, event_types: Collection[str] | None = None, limit: int = 512
    ) -> Outcome[EntryPage, Unavailable]:
        page = success(await super().entries(run_id, after=after, event_types=event_types, limit=limit))
        return Success(replace(page, entries=tuple(map(self._spoilt, page.entries))))

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        rows = success(await super().checkpoints(run_id))
        return Success(tuple(replace(row, state=None) if row.seq == self.checkpoint else row for row in rows))


class SlowToRead(JournalDouble):
    """Another commits between the look at a journal and what follows."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.rival: LedgerJournal | None = None
        self.does: Literal["rewind", "compact"] = "rewind"

    async def checkpoints(self, run_id: str) -> Outcome[tuple[CheckpointRow, ...], Unavailable]:
        read = await super().checkpoints(run_id)
        rival, self.rival = self.rival, None
        if rival is not None:
            _ = success(await (rival.rewind(run_id, 5) if self.does == "rewind" else rival.compact(run_id)))
        return read


class AppendContract:
    """What is appended is there once, in order, or not at all."""

    async def test_j13_what_was_appended_is_read_by_another_journal(self, world: World) -> None:
        here, there = await world.journal(), await world.journal()
        assert await here.append(RUN, "t", {"b": [1, None], "a": 2.5}, source=Source("s", 7), meta={"m": True}) == (
            Success(Appended(0, duplicate=False))
        )
        (entry,) = await entries(there, RUN)
        assert entry == Entry(RUN, 0, "t", {"a": 2.5, "b": [1, None]}, Source("s", 7), NOW_MS, {"m": True})
        with pytest.raises(FrozenInstanceError):
            setattr(entry, "seq", 1)  # noqa: B010  # both checkers see that it cannot be set

    async def test_j14_two_journals_number_in_turn(self, world: World) -> None:
        here, there = await world.journal(), await world.journal()
        given = [success(await journal.append(RUN, "t", None)).seq for journal in (here, there, here, there)]
        assert given == [0, 1, 2, 3]

    async def test_j15_the_same_of_one_source_again_is_a_duplicate(self, world: World) -> None:
        journal = await world.journal()
        await fill(journal, 2)
        one = success(await journal.append(RUN, "t", {"a": 1, "b": 2}, source=Source("s", 0), meta={"m": 1}))
        other = success(await journal.append(RUN, "t", {"b": 2, "a": 1}, source=Source("s", 0), meta={"m": 1}))
        assert (one, other) == (Appended(2, duplicate=False), Appended(2, duplicate=True))
        assert await seqs(journal) == [0, 1, 2]

    async def test_j15_what_differs_only_in_its_secrets_is_a_duplicate(self, world: World) -> None:
        journal = await world.journal()
        _ = success(await journal.append(RUN, "t", {"token": "one"}, source=Source("s", 0)))
        again = success(await journal.append(RUN, "t", {"token": "two"}, source=Source("s", 0)))
        assert again == Appended(0, duplicate=True)

    @pytest.mark.parametrize("other", ["payload", "type", "meta"])
    async def test_j16_other_content_of_one_source_is_a_conflict(self, world: World, other: str) -> None:
        journal = await world.journal()
        source = Source("s", 0)
        _ = success(await journal.append(RUN, "t", 1, source=source))
        conflict = await journal.append(
            RUN,
            "other" if other == "type" else "t",
            2 if other == "payload" else 1,
            source=source,
            meta={"a": 1} if other == "meta" else None,
        )
        assert conflict == Failure(IdempotencyConflict(RUN, source))
        assert await payloads(journal, RUN) == [1]

    async def test_j16_sources_are_of_one_run_and_their_numbers_differ(self, world: World) -> None:
        journal = await world.journal()
        for run_id, source in (
            ("a", Source("s", 0)),
            ("b", Source("s", 0)),
            ("a", Source("s", 1)),
            ("a", Source("t", 0)),
        ):
            assert not success(await journal.append(run_id, "t", source.seq, source=source)).duplicate

    async def test_j18_a_commit_that_fails_leaves_nothing_and_its_number(self, world: World) -> None:
        refusing = Refusing(await world.ledger())
        journal = await world.journal(ledger=refusing)
        following = journal.follow(RUN)
        refusing.failing = full = Unavailable("the disk is full", "no")
        assert await journal.append(RUN, "t", "lost") == Failure(full)
        assert (await entries(journal, RUN), success(await journal.runs())) == ([], ())
        assert success(await journal.append(RUN, "t", "kept")).seq == 0
        assert [entry.payload for entry in await first(following, 1)] == ["kept"]

    async def test_j21_numbers_go_on_after_a_restart(self, world: World) -> None:
        journal = await world.journal()
        for number in range(2):
            _ = success(await journal.append(RUN, "t", None, source=Source("s", number)))
        await world.restart()
        journal = await world.journal()
        assert success(await journal.append(RUN, "t", None, source=Source("s", 2))).seq == 2
        assert [entry.source for entry in await entries(journal, RUN)] == [Source("s", number) for number in range(3)]

    async def test_j22_a_closed_journal_says_so(self, world: World) -> None:
        journal = await world.journal()
        following = journal.follow(RUN)
        pending = asyncio.create_task(journal.append(RUN, "t", 1))
        waiting = asyncio.create_task(first(following, 2))
        await turns()
        await journal.close()
        assert success(await pending).seq == 0
        with pytest.raises(JournalError, match="journal_closed") as closed:
            _ = await waiting
        assert isinstance(closed.value.failure, Unavailable)
        assert closed.value.failure.applied == "no"
        projected = await journal.project(RUN, SUM)
        answers: list[Outcome[object, object]] = [
            projected,
            await journal.append(RUN, "t", 2),
            await journal.entries(RUN),
            await journal.runs(),
            await journal.checkpoint(RUN, 0, None),
            await journal.latest_checkpoint(RUN),
            await journal.compact(RUN),
            await journal.rewind(RUN, -1),
            await journal.verify(),
        ]
        assert {str(failure(answer)) for answer in answers} == {str(closed.value.failure)}
        assert await payloads(await world.journal(), RUN) == [1]

    async def test_j23_runs_are_in_order(self, world: World) -> None:
        journal = await world.journal()
        for run_id in ("z-run", "a-run"):
            _ = success(await journal.append(run_id, "t", None))
        assert success(await journal.runs()) == ("a-run", "z-run")

    async def test_runs_without_entries_are_none(self, world: World) -> None:
        journal = await world.journal()
        for run_id in ("a", "b"):
            _ = success(await journal.append(run_id, "t", None))
        assert await journal.rewind("a", -1) == Success(1)
        assert success(await journal.runs()) == ("b",)
        assert success(await journal.append("a", "t", None)).seq == 1
        assert success(await journal.runs()) == ("a", "b")

    @pytest.mark.parametrize("seq", [-1, True, 2**53 - 1])
    async def test_j17_what_is_no_event_is_not_appended(self, world: World, seq: int) -> None:
        journal = await world.journal()
        looped: list[object] = []
        looped += [looped, looped]
        answers = [
            await journal.append("", "t", None),
            await journal.append(RUN, "", None),
            await journal.append(RUN, "t", looped),
            await journal.append(RUN, "t", {1, 2}),
            await journal.append(RUN, "t", float("nan")),
            await journal.append(RUN, "t", "\ud800"),
            await journal.append(RUN, "t", None, source=Source("", 0)),
            await journal.append(RUN, "t", None, source=Source("s", seq)),
        ]
        assert all(isinstance(failure(answer), InvalidEvent) for answer in answers)
        assert success(await journal.runs()) == ()

    async def test_a_payload_that_is_too_long_says_what_to_do(self, world: World) -> None:
        journal = await world.journal(payload_bytes=100)
        assert success(await journal.append(RUN, "t", "x" * 98)).seq == 0
        refused = failure(await journal.append(RUN, "t", "x" * 99))
        assert isinstance(refused, InvalidEvent)
        assert "101 bytes" in refused.message
        assert "layer_spilling" in refused.message


class FenceContract:
    """Who has lost a run tells its journal nothing more."""

    async def test_j48_an_owner_that_lost_its_run_is_refused(self, world: World) -> None:
        journal, owner = await world.journal(), Owner("here", 1)
        await world.claim(RUN, 1)
        source = Source("s", 0)
        assert await journal.append(RUN, "t", 1, owner=owner, source=source) == Success(Appended(0, duplicate=False))
        await world.claim(RUN, 2)
        assert await journal.append(RUN, "t", 2, owner=owner) == Failure(Fenced(RUN))
        # Not a duplicate, and no conflict: nothing is told.
        for payload in (1, 2):
            assert await journal.append(RUN, "t", payload, owner=owner, source=source) == Failure(Fenced(RUN))
        assert await payloads(journal, RUN) == [1]

    @pytest.mark.parametrize("owner", [Owner("", 1), Owner("a", 0), Owner("a", -1), Owner("a", True), Owner("a", 7)])
    async def test_j49_a_malformed_owner_is_refused(self, world: World, owner: Owner) -> None:
        journal = await world.journal()
        await world.claim(RUN, 1)
        assert await journal.append(RUN, "t", 1, owner=owner) == Failure(Fenced(RUN))
        assert await journal.append("no such run", "t", 1, owner=Owner("a", 1)) == Failure(Fenced("no such run"))
        assert success(await journal.runs()) == ()

    async def test_j50_a_host_that_refuses_is_no_lost_run(self, world: World) -> None:
        refusing = Refusing(await world.ledger())
        journal = await world.journal(ledger=refusing)
        await world.claim(RUN, 1)
        refusing.failing = Unavailable("the disk is gone", "unknown")
        assert await journal.append(RUN, "t", 1, owner=Owner("a", 1)) == Failure(
            Unavailable("the disk is gone", "unknown")
        )

    async def test_j51_without_an_owner_there_is_no_fence(self, world: World) -> None:
        journal = await world.journal()
        await world.claim(RUN, 5)
        assert success(await journal.append(RUN, "t", 1)).seq == 0

    async def test_j46_an_owner_that_lost_its_run_neither_checkpoints_nor_compacts(self, world: World) -> None:
        journal, lost = await world.journal(), Owner("here", 1)
        await world.claim(RUN, 2)
        await fill(journal, 4)
        _ = success(await journal.checkpoint(RUN, 2, "kept", owner=Owner("there", 2)))
        assert await journal.checkpoint(RUN, 2, "lost", owner=lost) == Failure(Fenced(RUN))
        assert await journal.checkpoint(RUN, 99, "lost", owner=lost) == Failure(Fenced(RUN))
        assert await journal.compact(RUN, owner=lost) == Failure(Fenced(RUN))
        assert success(await journal.latest_checkpoint(RUN)) == Checkpoint(RUN, 2, "kept", None)
        assert await seqs(journal) == [0, 1, 2, 3]
        assert success(await journal.compact(RUN, owner=Owner("there", 2))) == 2


class JoinContract:
    """Entries in batches of others."""

    async def test_j24_a_batch_that_is_refused_leaves_no_entry(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        batch = Batch((RunFence(RUN, 1),), ()) + journal.appending(RUN, [NewEntry("t", b"1", Source("s", 0), b"i")])
        assert await ledger.commit(batch) == Failure(Fenced(RUN))
        assert await entries(journal, RUN) == []
        await world.claim(RUN, 1)
        assert success(await journal.append(RUN, "t", 2, source=Source("s", 0))) == Appended(0, duplicate=False)

    async def test_j25_a_follower_sees_an_entry_when_it_is_committed(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        seen: list[Entry] = []

        async def follow() -> None:
            async for entry in journal.follow(RUN):
                seen.append(entry)

        following = asyncio.create_task(follow())
        batch = journal.appending(RUN, [NewEntry("t", b"1")])
        await turns()
        assert seen == []
        _ = success(await ledger.commit(batch))
        for _ in range(20):
            await world.clock.advance(100)
        assert [entry.payload for entry in seen] == [1]
        following.cancel()
        _ = await asyncio.gather(following, return_exceptions=True)

    async def test_j26_what_is_joined_goes_together_or_not_at_all(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        inner = journal.appending(RUN, [NewEntry("t", b"1")])
        assert await ledger.commit(inner + Batch((RunFence(RUN, 1),), ())) == Failure(Fenced(RUN))
        assert await entries(journal, RUN) == []

    async def test_j27_without_a_journal_the_batch_of_others_goes_its_way(self, world: World) -> None:
        assert not isinstance(NoopJournal(), JoinableJournal)
        assert isinstance(await world.journal(), JoinableJournal)

    async def test_r7_secrets_are_taken_out_alone_and_inside_a_batch(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        secret, kept = '{"password":"s3cret"}', {"password": "[REDACTED]"}
        _ = success(await journal.append(RUN, "t", {"password": "s3cret"}, meta={"password": "s3cret"}))
        joined = journal.appending(RUN, [NewEntry("t", secret.encode(), meta=secret.encode())])
        _ = success(await ledger.commit(joined))
        assert [(entry.payload, entry.meta) for entry in await entries(journal, RUN)] == [(kept, kept)] * 2
        rows = success(await rows_of(ledger).entries(RUN)).entries
        assert b"s3cret" not in b"".join(row.payload + (row.meta or b"") for row in rows)

    async def test_r8_what_stepwell_folds_is_stored_verbatim(self, world: World) -> None:
        journal = await world.journal()
        payload = {"token": "t", "key": "password=abc"}
        for event_type in ("stepwell.run-started", "stepwell.cache-provenance"):
            _ = success(await journal.append(RUN, event_type, payload, meta={"token": "t"}))
        assert [(entry.payload, entry.meta) for entry in await entries(journal, RUN)] == [(payload, {"token": "t"})] * 2
        # No other name is like them, and nothing that is given makes it so.
        _ = success(await journal.append(RUN, "stepwell.run-started.mine", payload, meta={"verbatim": True}))
        assert (await entries(journal, RUN))[-1].payload == {"token": "[REDACTED]", "key": "password=[REDACTED]"}

    async def test_r6_without_a_redactor_everything_is_stored(self, world: World) -> None:
        journal = await world.journal(redaction=None)
        _ = success(await journal.append(RUN, "t", {"token": "t"}))
        assert await payloads(journal, RUN) == [{"token": "t"}]

    async def test_r11_a_redactor_that_raises_says_nothing_of_why(self, world: World) -> None:
        def broken(value: object) -> Never:
            raise ValueError(f"cannot read {value}")

        journal = await world.journal(redaction=broken)
        refused = failure(await journal.append(RUN, "t", "s3cret"))
        assert isinstance(refused, InvalidEvent)
        assert "s3cret" not in refused.message
        ledger = await world.ledger()
        _ = success(await ledger.commit(journal.appending(RUN, [NewEntry("t", b'"s3cret"')])))
        assert await payloads(journal, RUN) == ["[REDACTED]"]


class SlotContract:
    """Entries that say something of a row once."""

    async def test_sl1_the_same_in_a_slot_is_a_duplicate(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        said = [
            success(await ledger.commit(journal.appending(RUN, [provenance_entry("admitted", ROW)]))) for _ in range(2)
        ]
        assert [getattr(each, "appended", None) for each in said] == [
            (Appended(0, duplicate=False),),
            (Appended(0, duplicate=True),),
        ]

    async def test_sl2_another_reason_is_tolerated_and_the_first_stays(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        _ = success(await ledger.commit(journal.appending(RUN, [provenance_entry("admitted", ROW)])))
        for reason in ("host", "corruption"):
            said = journal.appending(RUN, [provenance_entry("replay_failed", ROW, reason)])
            _ = success(await ledger.commit(said))
        _, retired = await entries(journal, RUN)
        assert is_dict(retired.payload)
        assert retired.payload["reason"] == "host"
        assert candidates(success(await journal.project(RUN, PROJECTION))) == ()

    async def test_sl3_a_slot_of_another_entry_is_a_conflict(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        entry = provenance_entry("admitted", ROW)
        _ = success(await journal.append(RUN, "mine", None, source=entry.source))
        refused = failure(await ledger.commit(journal.appending(RUN, [entry])))
        assert isinstance(refused, Fenced)
        assert refused.source == entry.source
        assert len(await entries(journal, RUN)) == 1

    async def test_sl4_a_lost_run_outranks_a_slot(self, world: World) -> None:
        journal, ledger = await world.journal(), await world.ledger()
        batch = journal.appending(RUN, [provenance_entry("admitted", ROW)])
        _ = success(await ledger.commit(batch))
        refused = failure(await ledger.commit(batch + Batch((RunFence(RUN, 1),), ())))
        assert (refused, getattr(refused, "source", "")) == (Fenced(RUN), None)


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
