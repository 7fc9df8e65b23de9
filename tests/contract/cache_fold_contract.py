"""What the fold of the step cache promises on every host. The cases F1 to F39, but for the pure ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from stepwell import Failure, Success
from stepwell.core.cache_fold import PROJECTION, candidates
from stepwell.core.cache_verdict import Explanation, Verification
from stepwell.core.journal_writes import EvictHead, SetHead
from stepwell.core.provenance import CACHE_JOURNAL, Action
from stepwell.core.retention import CUT_ROWS, SETTLING_MS
from stepwell.core.step_cache import RecordedRef
from stepwell.layers.cache_fold import LedgerCacheFold
from stepwell.layers.step_cache import LedgerStepCache

from .cache_world import BROKEN, Between, Damaging, Failing, Interrupting, World, counts, entry_of, good, row


def differences(verification: Verification) -> dict[str, tuple[str, str | None]]:
    """By key: what is said of it, and how its head stands to that."""
    return {each.key_digest: (each.verdict, each.difference) for each in verification.keys}


class CacheFoldContract:
    # --- rebuilding -------------------------------------------------------------

    async def test_f1_the_heads_of_two_runs_are_restored(self, world: World) -> None:
        heads = {"k": await world.put("k", "a"), "l": await world.put("l", "b")}
        entries = [await world.cache.get(key) for key in heads]
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 2, "admitted": 2, "heads": 2}
        assert rebuilt.keys == tuple(Explanation(key, "restored", ref) for key, ref in heads.items())
        assert await world.heads() == heads
        assert [await world.cache.get(key) for key in heads] == entries

    async def test_f2_a_key_that_was_retired_and_admitted_again_has_the_new_row(self, world: World) -> None:
        first = await world.put("k", seq=1)
        await self.retire(world, "a", "stale_read_set", first)
        second = await world.put("k", seq=2)
        assert counts(await world.rebuilt()) == {"runs": 1, "admitted": 2, "retired": 1, "heads": 1}
        assert await world.heads() == {"k": second}

    async def test_f3_the_first_writer_wins_whatever_the_clock_says(self, world: World) -> None:
        first = await world.put("k", "a")
        await world.clock.advance(1_000)
        _ = await world.put("k", "b", result="another")
        await world.set_head("k")
        assert counts(await world.rebuilt()) == {"runs": 2, "admitted": 1, "heads": 1}
        assert await world.heads() == {"k": first}

    async def test_f4_a_row_from_elsewhere_is_dropped_and_can_be_written_back(self, world: World) -> None:
        entry = entry_of(row("k", "foreign-run", 4))
        _ = await world.cache.write_back(entry)
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {}
        assert rebuilt.keys == (Explanation("k", "not_admitted", entry.ref),)
        assert await world.heads() == {}
        assert isinstance(await world.cache.write_back(entry), Success)
        assert await world.heads() == {"k": entry.ref}

    async def test_f5_a_row_that_is_not_recorded_is_skipped(self, world: World) -> None:
        kept, missing = await world.put("k"), row("l", "a", 9)
        await world.say("a", "admitted", missing)
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 1, "admitted": 2, "heads": 1}
        assert rebuilt.keys == (Explanation("k", "restored", kept), Explanation("l", "ledger_missing", missing))

    async def test_f6_a_second_rebuild_says_the_same_and_changes_nothing(self, world: World) -> None:
        await self.furnish(world)
        once = await world.rebuilt()
        before = await world.everything()
        twice = await world.rebuilt()
        assert counts(twice) == counts(once)
        # Only of what is gone now, and of which no journal says a word, nothing is to be explained any more.
        assert twice.keys == tuple(each for each in once.keys if each.verdict != "not_admitted")
        assert await world.rebuilt() == twice
        assert await world.everything() == before

    async def test_f7_nothing_is_made_of_nothing(self, world: World) -> None:
        rebuilt = await world.rebuilt()
        assert (counts(rebuilt), rebuilt.keys) == ({}, ())

    @pytest.mark.parametrize("call", ["journals", "provenance"])
    async def test_f8_a_journal_that_cannot_be_read_leaves_the_heads_alone(self, world: World, call: str) -> None:
        await self.furnish(world)
        before = await world.everything()
        fold = LedgerCacheFold(Failing(world.ledger, call))
        assert await fold.rebuild() == Failure(BROKEN)
        assert await fold.verify() == Failure(BROKEN)
        assert await fold.explain("k") == Failure(BROKEN)
        assert await world.everything() == before

    async def test_a_rebuild_that_cannot_be_committed_changes_nothing(self, world: World) -> None:
        _ = await world.put("k")
        await world.set_head("k")
        before = await world.everything()
        assert await LedgerCacheFold(Failing(world.ledger, writes=(SetHead,))).rebuild() == Failure(BROKEN)
        assert await world.everything() == before

    async def test_f9_lost_heads_are_all_made_again(self, world: World) -> None:
        heads = {key: await world.put(key, run, 0, {"of": key}) for key in "klm" for run in "a"}
        entries = [await world.cache.get(key) for key in heads]
        for key in heads:
            await world.set_head(key)
        assert (await world.rebuilt()).heads == 3
        assert await world.heads() == heads
        assert [await world.cache.get(key) for key in heads] == entries

    async def test_many_heads_are_changed_by_several_commits_none_of_which_is_refused(self, world: World) -> None:
        refs = {f"k{number}": await world.put(f"k{number}", "a", number) for number in range(7)}
        foreign = [row(f"f{number}", "elsewhere", number) for number in range(3)]
        for ref in foreign:
            _ = await world.cache.write_back(entry_of(ref))
        for key in refs:
            await world.set_head(key)
        commits = 0

        async def counted() -> AsyncGenerator[None, None]:
            nonlocal commits
            while True:
                commits += 1
                yield

        rebuilt = good(await LedgerCacheFold(Between(world.ledger, counted), heads_at_once=3).rebuild())
        assert (rebuilt.heads, commits) == (7, 4)
        assert await world.heads() == refs
        assert {each.verdict for each in rebuilt.keys} == {"restored", "not_admitted"}

    # --- what entries say -----------------------------------------------------------

    async def test_f16_the_entries_fold_to_the_heads(self, world: World) -> None:
        await self.furnish(world)
        _ = await world.rebuilt()
        state = PROJECTION.initial()
        for run in ("a", "b", CACHE_JOURNAL):
            for entry in await world.entries(run):
                state = PROJECTION.reduce(state, world.as_entry(entry))
        recorded = [ref for ref in candidates(state) if await world.is_recorded(ref)]
        assert {ref.key_digest: ref for ref in recorded} == await world.heads()

    async def test_f17_a_retirement_of_nothing_and_an_entry_without_sense_do_no_harm(self, world: World) -> None:
        await world.say("a", "expired", row("k", "b", 7))
        await world.tell("a", {"action": "admitted", "key_digest": "l"})
        await world.tell("a", None)
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 1, "retired": 1}
        (said,) = rebuilt.keys
        assert (said.verdict, said.action, said.run_id, said.seq) == ("retired", "expired", "a", 0)
        assert await LedgerCacheFold(Failing(world.ledger, "provenance")).rebuild() == Failure(BROKEN)

    async def test_f18_a_rebuilt_head_is_the_row_as_it_was_put(self, world: World) -> None:
        entry = entry_of(row("k"), {"s": "s3cret"}, meta={"m": "s3cret"})
        _ = await world.cache.put(entry)
        await world.set_head("k")
        _ = await world.rebuilt()
        assert await world.cache.get("k") == Success(entry)

    async def test_f20_an_equal_result_of_another_run_is_not_admitted(self, world: World) -> None:
        first, second = await world.put("k", "run-1"), await world.put("k", "run-2")
        assert await world.is_recorded(second)
        assert [await world.said(run) for run in ("run-1", "run-2")] == [
            [("recorded", "k", None), ("admitted", "k", None)],
            [("recorded", "k", None)],
        ]
        assert counts(await world.rebuilt()) == {"runs": 2, "admitted": 1, "heads": 1}
        assert await world.heads() == {"k": first}

    async def test_f21_another_result_is_recorded_once_and_not_admitted(self, world: World) -> None:
        first = await world.put("k", "run-1")
        second = await world.put("k", "run-2", result="another")
        assert await world.put("k", "run-2", result="another") == second
        assert await world.is_recorded(second)
        assert await world.said("run-2") == [("recorded", "k", None)]
        _ = await world.rebuilt()
        assert await world.heads() == {"k": first}

    async def test_f22_only_what_went_is_said_to_be_gone(self, world: World) -> None:
        ref = await world.put("k")
        _ = await world.cache.evict("k", if_recorded_by=row("k", "b", 1))
        _ = await world.cache.evict("nothing")
        assert await world.said() == []
        _ = await world.cache.evict("k")
        assert await world.said() == [("removed", "k", "evict")]
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 1, "admitted": 1, "retired": 1}
        (said,) = rebuilt.keys
        assert said == Explanation("k", "removed", ref)
        assert (said.reason, said.run_id, said.seq) == ("evict", CACHE_JOURNAL, 0)

    async def test_f23_a_key_that_was_evicted_and_put_again_has_the_new_row(self, world: World) -> None:
        _ = await world.put("k", seq=1)
        _ = await world.cache.evict("k")
        second = await world.put("k", seq=2, result="another")
        assert counts(await world.rebuilt()) == {"runs": 1, "admitted": 2, "retired": 1, "heads": 1}
        assert await world.heads() == {"k": second}

    async def test_f24_a_row_from_elsewhere_that_was_evicted_comes_not_back(self, world: World) -> None:
        ref = row("k", "foreign-run", 4)
        _ = await world.cache.write_back(entry_of(ref))
        _ = await world.cache.evict("k")
        (entry,) = await world.entries(CACHE_JOURNAL)
        assert world.payload(entry) == {
            "action": "removed",
            "key_digest": "k",
            "recorded_run_id": "foreign-run",
            "recorded_event_seq": 4,
            "reason": "evict",
        }
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"retired": 1}
        assert rebuilt.keys == (Explanation("k", "removed", ref),)
        assert await world.heads() == {}

    async def test_f25_a_key_that_was_swept_and_put_again_has_the_new_row(self, world: World) -> None:
        _ = await world.put("k", seq=1)
        assert await world.cache.sweep(0) == Success(1)
        second = await world.put("k", seq=2)
        assert counts(await world.rebuilt()) == {"runs": 1, "admitted": 2, "retired": 1, "heads": 1}
        assert await world.heads() == {"k": second}

    async def test_f26_two_rows_of_which_one_went_without_an_entry_are_ambiguous(self, world: World) -> None:
        first = await world.put("k", seq=1)
        await world.set_head("k")
        second = await world.put("k", seq=2)
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 1, "admitted": 2}
        assert rebuilt.keys == (Explanation("k", "ambiguous", None),)
        assert rebuilt.keys[0].rows == (first, second)
        assert await world.heads() == {}

    @pytest.mark.parametrize(
        ("said", "verdict"),
        [
            ([], "restored"),
            (["expired"], "retired"),
            (["stale_read_set"], "retired"),
            (["replay_failed"], "retired"),
            (["hit", "ttl", "unpublished", "unverified_read_set"], "restored"),
        ],
    )
    async def test_j_03_what_retires_a_row_retires_it(self, world: World, said: list[Action], verdict: str) -> None:
        ref = await world.put("k")
        for action in said:
            await world.say("b", action, ref)
        assert await world.verdicts() == {"k": verdict}

    # --- compaction and rewinds -------------------------------------------------------

    async def test_f29_a_compacted_run_loses_no_head(self, world: World) -> None:
        heads = {"k": await world.put("k", "a"), "l": await world.put("l", "b")}
        await world.tell("a", {}, "another")
        await world.compact("a", 2)
        assert len(await world.entries("a")) == 1
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 2, "compacted": 1, "admitted": 2, "heads": 2}
        assert {each.verdict for each in rebuilt.keys} == {"restored"}
        assert await world.heads() == heads

    async def test_f30_a_rewound_run_loses_no_head(self, world: World) -> None:
        await world.tell("a", {}, "another")
        heads = {"k": await world.put("k", "a")}
        await world.rewind("a", 0)
        rebuilt = await world.rebuilt()
        assert counts(rebuilt) == {"runs": 1, "rewound": 1, "admitted": 1, "heads": 1}
        assert await world.heads() == heads

    async def test_j_04_compacted_and_rewound_runs_lose_no_head(self, world: World) -> None:
        heads = {"k": await world.put("k", "a"), "l": await world.put("l", "b"), "m": await world.put("m", "c")}
        await world.compact("a", 1)
        await world.rewind("b", -1)
        assert set((await world.verdicts()).values()) == {"restored"}
        assert await world.heads() == heads

    async def test_f31_a_retirement_survives_compaction(self, world: World) -> None:
        ref = await world.put("k")
        await world.say("a", "expired", ref)
        await world.tell("a", {}, "another")
        await world.compact("a", 3)
        assert counts(await world.rebuilt()) == {"runs": 1, "compacted": 1, "admitted": 1, "retired": 1}
        assert await world.heads() == {}

    async def test_f32_a_row_stays_retired_over_a_rewind(self, world: World) -> None:
        ref = await world.put("k")
        await world.say("a", "expired", ref)
        await world.rewind("a", 1)
        assert counts(await world.rebuilt()) == {"runs": 1, "rewound": 1, "admitted": 1, "retired": 1}
        assert await world.heads() == {}

    async def test_f33_two_compactions_come_to_what_none_does(self, world: World) -> None:
        rows = [await world.put(key, seq=number) for number, key in enumerate("klm")]  # entries 0 to 5
        await world.say("a", "expired", rows[0])
        rows.append(await world.put("n", seq=9))
        await world.say("a", "stale_read_set", rows[2])
        plain = await world.rebuilt()
        heads = await world.heads()
        await world.compact("a", 4)
        await world.compact("a", 7)
        twice = await world.rebuilt()
        assert (twice.admitted, twice.retired, twice.heads) == (plain.admitted, plain.retired, plain.heads)
        assert twice.keys == plain.keys
        assert await world.heads() == heads

    async def test_f35_what_lay_in_a_gap_is_unproven_and_no_failure(self, world: World) -> None:
        ref = await world.put("k", "a")
        await world.tell("a", {}, "another")
        await world.compact("a", 2, carries=False)
        after = await world.put("l", "b")
        rebuilt = await world.rebuilt()
        assert rebuilt.keys == (Explanation("k", "unproven", ref), Explanation("l", "restored", after))
        assert (rebuilt.keys[0].run_id, rebuilt.compacted) == ("a", 1)
        assert await world.heads() == {"l": after}

    async def test_a_gap_may_hide_a_retirement_of_what_was_admitted_before_it_ended(self, world: World) -> None:
        before = await world.put("k", "b")
        await world.tell("a", {}, "another")
        await world.tell("a", {}, "another")
        after = await world.put("l", "b", 5)
        await world.compact("a", 1, carries=False)
        later = await world.put("m", "b", 6)
        rebuilt = await world.rebuilt()
        assert rebuilt.keys == (
            Explanation("k", "unproven", before),
            Explanation("l", "restored", after),
            Explanation("m", "restored", later),
        )
        assert rebuilt.keys[0].run_id == "a"

    async def test_the_end_of_a_rewound_gap_is_the_first_entry_after_it(self, world: World) -> None:
        await world.tell("a", {}, "another")
        before = await world.put("k", "b")
        await world.rewind("a", -1, carries=False)
        between = await world.put("l", "b", 5)
        assert {each.key_digest: each.verdict for each in good(await world.fold.verify()).keys} == {
            "k": "unproven",
            "l": "unproven",
        }
        await world.tell("a", {}, "another")
        after = await world.put("m", "b", 6)
        assert (await world.rebuilt()).keys == (
            Explanation("k", "unproven", before),
            Explanation("l", "unproven", between),
            Explanation("m", "restored", after),
        )

    # --- retention ----------------------------------------------------------------------

    async def test_f28_a_run_that_is_forgotten_takes_its_heads_along_and_that_is_said(self, world: World) -> None:
        await world.run("a")
        ref, kept = await world.put("k", "a"), await world.put("l", "b")
        await world.clock.advance(SETTLING_MS)
        before = await world.everything()
        assert await world.collected(dry_run=True) == 1
        assert await world.everything() == before
        assert await world.collected() == 1
        assert await world.said() == [("removed", "k", "retention")]
        assert await world.entries("a") == ()
        assert not await world.is_recorded(ref)
        assert await world.heads() == {"l": kept}
        rebuilt = await world.rebuilt()
        assert rebuilt.keys == (Explanation("k", "removed", ref), Explanation("l", "restored", kept))
        assert rebuilt.keys[0].reason == "retention"
        assert counts(rebuilt) == {"runs": 1, "admitted": 1, "retired": 1, "heads": 1}

    async def test_what_a_forgotten_run_said_of_rows_of_others_is_said_again(self, world: World) -> None:
        await world.run("a")
        await world.run("c")
        stale, carried = await world.put("k", "b", 1), await world.put("l", "b", 2)
        gone = await world.put("m", "c", 3)
        await world.say("a", "expired", carried)
        await world.tell("a", {}, "another")
        await world.compact("a", 1)
        await self.retire(world, "a", "stale_read_set", stale)
        await world.say("a", "replay_failed", gone, "host")
        await world.clock.advance(SETTLING_MS)
        assert await world.collected() == 2
        said = [each for each in await world.said() if each[2] != "retention"]
        assert {("stale_read_set", "k", None), ("expired", "l", None)} <= set(said)
        assert await world.verdicts() == {"k": "retired", "l": "retired", "m": "retired"}

    async def test_a_run_with_many_rows_goes_a_batch_at_a_time(self, world: World) -> None:
        await world.run("a")
        rows = [good(world.cache.recording(f"k{number}", "a", b"1", {})).writes[0] for number in range(CUT_ROWS + 50)]
        _ = await world.commit(*rows)
        other = await world.put("other", "b")
        await world.clock.advance(SETTLING_MS)
        assert await world.collected() == 1
        assert await world.heads() == {"other": other}
        assert len(await world.said()) == CUT_ROWS + 50
        assert set((await world.verdicts()).values()) == {"removed", "restored"}

    async def test_a_run_whose_journal_was_compacted_meanwhile_goes_the_next_time(self, world: World) -> None:
        await world.run("a")
        _ = await world.put("k", "a")

        async def rival() -> AsyncGenerator[None, None]:
            await world.compact("a", 1)
            yield

        await world.clock.advance(SETTLING_MS)
        assert await world.collected(Between(world.ledger, rival)) == 0
        assert await world.collected() == 1
        assert await world.heads() == {}

    async def test_a_journal_with_a_gap_stays_with_its_rows(self, world: World) -> None:
        await world.run("a")
        ref = await world.put("k", "a")
        await world.tell("a", {}, "another")
        await world.compact("a", 2, carries=False)
        await world.clock.advance(SETTLING_MS)
        assert await world.collected() == 1
        assert await world.is_recorded(ref)
        assert await world.verdicts() == {"k": "unproven"}

    async def test_a_number_of_a_forgotten_run_is_not_given_again(self, world: World) -> None:
        await world.run("a")
        first = good(world.cache.recording("k", "a", b"1", {}))
        (before,) = (await world.commit(*first.writes)).recorded
        await world.clock.advance(SETTLING_MS)
        assert await world.collected() == 1
        (after,) = (await world.commit(*first.writes)).recorded
        assert after.ref.recorded_event_seq > before.ref.recorded_event_seq
        assert await world.verdicts() == {"k": "restored"}

    # --- explaining and comparing ---------------------------------------------------------

    async def test_f36_six_keys_are_explained(self, world: World) -> None:
        rows = await self.furnish(world)
        rebuilt = await world.rebuilt()
        assert rebuilt.keys == (
            Explanation("ambiguous", "ambiguous", None),
            Explanation("foreign", "not_admitted", rows["foreign"]),
            Explanation("live", "restored", rows["live"]),
            Explanation("missing", "ledger_missing", rows["missing"]),
            Explanation("stale", "retired", rows["stale"]),
            Explanation("swept", "removed", rows["swept"]),
        )
        told = {each.key_digest: each for each in rebuilt.keys}
        assert (told["stale"].action, told["stale"].run_id) == ("stale_read_set", "b")
        assert (told["swept"].action, told["swept"].reason) == ("removed", "sweep")
        for key, explained in told.items():
            if key != "foreign":  # it has no head any more, and no journal speaks of it
                assert good(await world.fold.explain(key)) == explained
        assert good(await world.fold.explain("nothing")) == Explanation("nothing", "not_admitted", None)
        with pytest.raises(ValueError, match="cache key"):
            _ = await world.fold.explain("")

    async def test_a_key_is_explained_before_a_rebuild_as_in_it(self, world: World) -> None:
        await self.furnish(world)
        keys = ("ambiguous", "foreign", "live", "missing", "stale", "swept")
        explained = [good(await world.fold.explain(key)) for key in keys]
        assert explained == list((await world.rebuilt()).keys)

    async def test_f37_a_comparison_writes_nothing(self, world: World) -> None:
        await self.furnish(world)
        _ = await world.rebuilt()
        before = await world.everything()
        verification = good(await world.fold.verify())
        assert (verification.matching, verification.missing, verification.extra, verification.different) == (1, 0, 0, 0)
        assert await world.everything() == before
        _ = await world.fold.explain("live")
        assert await world.everything() == before

    async def test_f38_f39_what_differs_is_told_and_is_what_a_rebuild_changes(self, world: World) -> None:
        refs = {key: await world.put(key, "a", 1) for key in ("deleted", "altered", "same", "inserted")}
        _ = await world.cache.evict("inserted")
        other = await world.put("altered", "b", 2, "another")
        await world.set_head("deleted")
        await world.set_head(refs["inserted"])
        await world.set_head(other)
        before = await world.everything()
        verification = good(await world.fold.verify())
        assert differences(verification) == {
            "altered": ("restored", "different"),
            "deleted": ("restored", "missing"),
            "inserted": ("removed", "extra"),
            "same": ("restored", "matching"),
        }
        assert (verification.matching, verification.missing, verification.extra, verification.different) == (1, 1, 1, 1)
        assert await world.everything() == before
        _ = await world.rebuilt()
        assert await world.heads() == {key: refs[key] for key in ("altered", "deleted", "same")}
        assert set(differences(good(await world.fold.verify())).values()) == {
            ("restored", "matching"),
            ("removed", None),
        }

    async def test_a_comparison_tells_of_rows_that_cannot_be_read(self, world: World) -> None:
        damaging = Damaging(world.ledger)
        ref, whole = await world.put("k"), await world.put("l")
        damaging.damaged.add(ref)
        before = await world.everything()
        verification = good(await LedgerCacheFold(damaging).verify())
        assert verification.keys == (Explanation("k", "restored", ref), Explanation("l", "restored", whole))
        assert [each.reason for each in verification.keys] == ["damaged", None]
        assert await world.everything() == before

    # --- while others use it ----------------------------------------------------------------

    async def test_what_is_put_and_evicted_meanwhile_is_honoured(self, world: World) -> None:
        lost, goes = await world.put("lost"), await world.put("goes")
        await world.set_head("lost")
        await world.set_head("goes")
        comes = row("comes", "b", 1)

        async def rival() -> AsyncGenerator[None, None]:
            _ = await world.cache.put(entry_of(comes))
            await world.say("b", "expired", goes)
            yield
            _ = await world.put("lost", "b", 3, "another")
            yield

        fold = LedgerCacheFold(Between(world.ledger, rival))
        rebuilt = good(await fold.rebuild())
        assert {each.key_digest: each.verdict for each in rebuilt.keys} == {
            "comes": "restored",
            "goes": "retired",
            "lost": "ambiguous",
        }
        assert await world.heads() == {"comes": comes}
        assert lost != comes

    async def test_a_head_that_is_seen_before_its_admission_stays(self, world: World) -> None:
        lost, _ = await world.put("lost"), await world.put("k", seq=1)
        await world.set_head("lost")

        async def evicted() -> AsyncGenerator[None, None]:
            _ = await world.cache.evict("k")
            yield

        async def put_again() -> AsyncGenerator[None, None]:
            yield
            _ = await world.put("k", seq=2)  # when the entries were read anew, and the head of "k" was not
            yield

        fold = LedgerCacheFold(Interrupting(Between(world.ledger, evicted), put_again))
        rebuilt = good(await fold.rebuild())
        assert await world.heads() == {"k": row("k", seq=2), "lost": lost}
        assert [each.verdict for each in rebuilt.keys] == ["restored", "restored"]

    async def test_heads_that_are_always_changed_are_given_up_in_the_end(self, world: World) -> None:
        _ = await world.put("lost")
        await world.set_head("lost")

        async def rival() -> AsyncGenerator[None, None]:
            seq = 0
            while True:
                _ = await world.put(f"k{seq}", "b", seq)
                seq += 1
                yield

        refused = await LedgerCacheFold(Between(world.ledger, rival)).rebuild()
        assert isinstance(refused, Failure)
        assert "lost" not in await world.heads()

    async def test_what_no_journal_proves_goes_though_the_heads_are_always_changed(self, world: World) -> None:
        _ = await world.cache.write_back(entry_of(row("foreign", "elsewhere", 1)))

        async def rival() -> AsyncGenerator[None, None]:
            for seq in range(1_000):
                _ = await world.put(f"k{seq}", "b", seq)
                yield

        _ = good(await LedgerCacheFold(Between(world.ledger, rival)).rebuild())
        assert "foreign" not in await world.heads()

    async def test_a_rebuild_among_others_loses_nothing(self, world: World) -> None:
        done = asyncio.Event()
        wanted: dict[str, RecordedRef] = {}

        async def busy(run: str) -> None:
            for number in range(60):
                key = f"{run}{number}"
                wanted[key] = await world.put(key, run, number)
                if number % 3 == 0:
                    _ = await world.cache.evict(key)
                    del wanted[key]
                for _ in range(5):
                    await asyncio.sleep(0)

        async def rebuild() -> None:
            while not done.is_set():
                _ = await world.rebuilt()
                _ = good(await world.fold.verify())
                await asyncio.sleep(0)

        others = asyncio.gather(busy("a"), busy("b"))
        rebuilding = asyncio.create_task(rebuild())
        _ = await others
        done.set()
        await rebuilding
        assert await world.heads() == wanted
        verification = good(await world.fold.verify())
        assert (verification.matching, verification.missing, verification.extra) == (len(wanted), 0, 0)

    # --- parts ------------------------------------------------------------------------------

    async def retire(self, world: World, run: str, action: Action, ref: RecordedRef) -> None:
        """Take a row out of force as the engine does it: an entry of the run's says why."""
        _ = await world.commit(EvictHead(ref.key_digest, ref))
        await world.say(run, action, ref)

    async def furnish(self, world: World) -> dict[str, RecordedRef]:
        """Keys of each kind."""
        rows = {"swept": await world.put("swept")}
        await world.clock.advance(10)
        assert await LedgerStepCache(world.ledger, world.clock).sweep(0) == Success(1)
        rows["live"] = await world.put("live", "a", 1)
        rows["stale"] = await world.put("stale", "a", 2)
        await self.retire(world, "b", "stale_read_set", rows["stale"])
        _ = await world.put("ambiguous", "a", 3)
        await world.set_head("ambiguous")
        _ = await world.put("ambiguous", "b", 4, "another")
        rows["missing"] = row("missing", "a", 5)
        await world.say("a", "admitted", rows["missing"])
        rows["foreign"] = row("foreign", "elsewhere", 6)
        _ = await world.cache.write_back(entry_of(rows["foreign"]))
        return rows
