"""What a journal keeps on every host: of what is appended, and by whom."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError
from typing import Never

import pytest

from stepwell import Failure, Outcome, Success, Unavailable
from stepwell.core.batch import Batch, RunFence
from stepwell.core.cache_fold import PROJECTION, candidates
from stepwell.core.entry import NewEntry
from stepwell.core.journal import (
    Appended,
    Checkpoint,
    Entry,
    IdempotencyConflict,
    InvalidEvent,
    Owner,
    Source,
)
from stepwell.core.kind import is_dict
from stepwell.core.provenance import provenance_entry
from stepwell.layers.journal import NoopJournal
from stepwell.services.journal import Fenced, JoinableJournal, JournalError

from .journal_doubles import Refusing
from .journal_world import (
    NOW_MS,
    ROW,
    RUN,
    SUM,
    World,
    entries,
    fill,
    first,
    payloads,
    rows_of,
    seqs,
)
from .store_world import failure, success
from .waiters_world import turns


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
