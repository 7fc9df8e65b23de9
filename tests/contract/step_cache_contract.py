"""What a step cache promises on every host. The cases C1 to C21 of the step cache, and those of its provenance."""

from __future__ import annotations

import asyncio
from types import MappingProxyType

import pytest

from stepwell import Failure, Success
from stepwell.core.batch import Batch, Committed
from stepwell.core.cache_entry import MEMBER_BYTES, NODES
from stepwell.core.cache_fold import EVENT_TYPE
from stepwell.core.journal_writes import Append, EvictHead
from stepwell.core.provenance import CACHE_JOURNAL, provenance_entry
from stepwell.core.step_cache import (
    RESULT_BYTES,
    CacheConflict,
    CacheEntry,
    CacheMiss,
    ExistingSame,
    Inserted,
    InvalidEntry,
    RecordedRef,
)
from stepwell.layers.step_cache import LedgerStepCache
from stepwell.services.step_cache import JoinableStepCache

from .cache_world import BROKEN, NOW_MS, Damaging, Failing, RowsDouble, World, entry_of, good, row

UNSAFE = 2**53
MISS = Failure(CacheMiss("k"))

FENCES: dict[str, object] = {
    "empty-run": RecordedRef("k", "", 3),
    "negative": RecordedRef("k", "a", -1),
    "bool": RecordedRef("k", "a", True),
    "fraction": RecordedRef("k", "a", 1.5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "unsafe": RecordedRef("k", "a", UNSAFE),
    "another-key": RecordedRef("l", "a", 3),
    "no-ref": ("a", 3),
}


class Listening(RowsDouble):
    """Answers nothing at all: whoever asks fails the test."""

    def __getattribute__(self, name: str) -> object:
        if name in {"commit", "commit_all", "head", "recorded", "heads"}:
            raise AssertionError(f"{name} was called")
        return super().__getattribute__(name)


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> object:
    value: list[object] = [0] * 1_000
    value.append(value)
    return value


class StepCacheContract:
    # --- what is put and found --------------------------------------------------

    async def test_c1_nothing_is_found_in_an_empty_cache(self, world: World) -> None:
        assert await world.cache.get("k") == MISS

    async def test_c2_what_is_put_is_found(self, world: World) -> None:
        entry = CacheEntry(row("k"), {"b": [1, 2.5, None, True, "ä"], "a": {}}, {"m": {"n": 1}}, 7)
        assert await world.cache.put(entry) == Success(Inserted(row("k")))
        assert await world.cache.get("k") == Success(entry)

    async def test_what_is_found_is_the_callers_own(self, world: World) -> None:
        given: dict[str, object] = {"list": [1]}
        _ = await world.cache.put(CacheEntry(row("k"), given, MappingProxyType({"m": 1}), 0))
        given["list"] = "changed"
        found = good(await world.cache.get("k"))
        assert found.result == {"list": [1]}
        assert isinstance(found.result, dict)
        found.result["list"] = "changed"  # pyright: ignore[reportUnknownMemberType]
        assert good(await world.cache.get("k")) == CacheEntry(row("k"), {"list": [1]}, {"m": 1}, 0)

    async def test_c3_the_same_again_is_known(self, world: World) -> None:
        assert await world.cache.put(entry_of(row("k"))) == Success(Inserted(row("k")))
        assert await world.cache.put(entry_of(row("k"))) == Success(ExistingSame(row("k")))

    async def test_c4_another_result_is_a_conflict_and_the_first_stays(self, world: World) -> None:
        first = entry_of(row("k"), {"output": "ok"})
        _ = await world.cache.put(first)
        offered = entry_of(row("k", "b"), {"output": "other"})
        assert await world.cache.put(offered) == Failure(CacheConflict(row("k")))
        assert await world.cache.get("k") == Success(first)

    async def test_c5_the_order_of_members_is_no_difference(self, world: World) -> None:
        _ = await world.cache.put(entry_of(row("k"), {"a": 1, "b": {"c": 2, "d": 3}}))
        same = entry_of(row("k", "b"), {"b": {"d": 3, "c": 2}, "a": 1})
        assert await world.cache.put(same) == Success(ExistingSame(row("k")))

    async def test_c6_meta_is_not_compared_and_the_first_stays(self, world: World) -> None:
        _ = await world.cache.put(entry_of(row("k"), meta={"by": "first"}))
        assert await world.cache.put(entry_of(row("k", "b"), meta={"by": "second"})) == Success(ExistingSame(row("k")))
        assert good(await world.cache.get("k")).meta == {"by": "first"}

    async def test_c17_a_row_is_never_written_over(self, world: World) -> None:
        first = await world.put("k", seq=3)
        _ = await world.cache.evict("k")
        before = await world.everything()
        for other in (
            entry_of(first, "other"),
            entry_of(first, meta={"m": 1}),
            CacheEntry(first, "one", {}, 1),
        ):
            assert await world.cache.put(other) == Failure(CacheConflict(first))
        assert (await world.everything())[:4] == before[:4]
        assert await world.cache.get("k", recorded_by=first) == Success(entry_of(first))

    async def test_two_that_put_at_once_have_one_winner(self, world: World) -> None:
        puts = [world.cache.put(entry_of(row("k", f"run-{number}"), number)) for number in range(5)]
        outcomes = await asyncio.gather(*puts)
        won = [outcome for outcome in outcomes if isinstance(outcome, Success)]
        assert len(won) == 1
        winner = good(won[0]).ref
        assert [each for each in outcomes if each not in won] == [Failure(CacheConflict(winner))] * 4
        assert good(await world.cache.get("k")).ref == winner

    # --- evicting -----------------------------------------------------------------

    async def test_c7_what_is_evicted_is_found_no_more(self, world: World) -> None:
        _ = await world.put("k")
        assert await world.cache.evict("k") == Success(True)
        assert await world.cache.get("k") == MISS

    async def test_c8_a_fence_lets_only_its_own_row_go(self, world: World) -> None:
        ref = await world.put("k", seq=7)
        assert await world.cache.evict("k", if_recorded_by=row("k", seq=8)) == Success(False)
        assert good(await world.cache.get("k")).ref == ref
        assert await world.cache.evict("k", if_recorded_by=ref) == Success(True)
        assert await world.cache.get("k") == MISS

    async def test_c9_a_fence_names_the_run_too(self, world: World) -> None:
        ref = await world.put("k", seq=7)
        assert await world.cache.evict("k", if_recorded_by=row("k", "b", 7)) == Success(False)
        assert good(await world.cache.get("k")).ref == ref

    async def test_c42_j_06_a_fresher_row_stays_where_the_old_one_is_evicted(self, world: World) -> None:
        first = await world.put("k", seq=1)
        _ = await world.cache.evict("k")
        second = await world.put("k", seq=2)
        assert await world.cache.evict("k", if_recorded_by=first) == Success(False)
        assert good(await world.cache.get("k")).ref == second

    @pytest.mark.parametrize("fence", FENCES.values(), ids=FENCES.keys())
    async def test_c10_c16_a_fence_that_no_row_can_have_is_refused_and_nobody_is_asked(
        self, world: World, fence: RecordedRef
    ) -> None:
        _ = await world.put("k", seq=3)
        cache = LedgerStepCache(Listening(world.ledger), world.clock)
        with pytest.raises((TypeError, ValueError)):
            _ = await cache.evict("k", if_recorded_by=fence)
        with pytest.raises((TypeError, ValueError)):
            _ = await cache.get("k", recorded_by=fence)
        assert list(await world.heads()) == ["k"]

    @pytest.mark.parametrize("key", ["", "a b", "ä", "k\n", "a/b", "x" * 257, None, 1])
    async def test_a_key_that_no_row_can_have_is_refused_and_nobody_is_asked(self, world: World, key: str) -> None:
        cache = LedgerStepCache(Listening(world.ledger), world.clock)
        for call in (cache.get, cache.evict):
            with pytest.raises((TypeError, ValueError)):
                _ = await call(key)

    async def test_c11_whether_a_row_went_is_told(self, world: World) -> None:
        _ = await world.put("k")
        assert [await world.cache.evict("k"), await world.cache.evict("k")] == [Success(True), Success(False)]

    async def test_an_evicted_row_stays_recorded(self, world: World) -> None:
        ref = await world.put("k")
        _ = await world.cache.evict("k")
        assert await world.cache.get("k", recorded_by=ref) == Success(entry_of(ref))

    # --- what can be no row ---------------------------------------------------------

    @pytest.mark.parametrize(
        "entry",
        [
            pytest.param(entry_of(row("")), id="empty-key"),
            pytest.param(entry_of(row("k" * 257)), id="long-key"),
            pytest.param(entry_of(row("a/b")), id="key-with-a-slash"),
            pytest.param(entry_of(row("k"), float("nan")), id="nan"),
            pytest.param(entry_of(row("k"), float("inf")), id="infinite"),
            pytest.param(entry_of(row("k"), print), id="function"),
            pytest.param(entry_of(row("k"), b"bytes"), id="bytes"),
            pytest.param(entry_of(row("k"), (1, 2)), id="tuple"),
            pytest.param(entry_of(row("k"), {1: 2}), id="key-of-a-member"),
            pytest.param(entry_of(row("k"), UNSAFE), id="unsafe-integer"),
            pytest.param(entry_of(row("k"), meta={"m": object()}), id="meta"),
            pytest.param(CacheEntry(row("k"), 1, [], 0), id="no-meta"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ],
    )
    async def test_c12_what_is_not_json_cannot_be_put(self, world: World, entry: CacheEntry) -> None:
        await self.refused(world, entry)

    @pytest.mark.parametrize("number", [-1, 1.5, True, UNSAFE, "1", None])
    async def test_c13_a_number_that_is_none_cannot_be_put(self, world: World, number: int) -> None:
        await self.refused(world, entry_of(RecordedRef("k", "a", number)))
        await self.refused(world, CacheEntry(row("k"), 1, {}, number))

    @pytest.mark.parametrize("run", ["", "a\0b", "x" * 513, "\ud800", CACHE_JOURNAL, 1, None])
    async def test_c13_a_run_that_is_none_cannot_be_put(self, world: World, run: str) -> None:
        await self.refused(world, entry_of(RecordedRef("k", run, 1)))

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(nested(129), id="depth"),
            pytest.param([0] * (NODES + 1), id="nodes"),
            pytest.param({str(number): 0 for number in range(NODES)}, id="members"),
            pytest.param([[[0] * 1_000] * 1_000] * 1_000, id="shared"),
            pytest.param("x" * (RESULT_BYTES - 1), id="bytes"),
            pytest.param({"x" * (MEMBER_BYTES + 1): 0}, id="member-name"),
            pytest.param("\ud800", id="lone-surrogate"),
            pytest.param({"\udc00": 0}, id="lone-surrogate-in-a-name"),
            pytest.param(cyclic(), id="cycle"),
        ],
    )
    async def test_c21_a_value_beyond_the_limits_cannot_be_put(self, world: World, value: object) -> None:
        await self.refused(world, entry_of(row("k"), value))
        await self.refused(world, entry_of(row("k"), 1, meta={"m": value}))

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(nested(128), id="depth"),
            pytest.param([0] * (NODES - 1), id="nodes"),
            pytest.param("x" * (RESULT_BYTES - 2), id="bytes"),
            pytest.param({"x" * MEMBER_BYTES: 0}, id="member-name"),
        ],
    )
    async def test_c21_a_value_at_the_limits_is_kept(self, world: World, value: object) -> None:
        assert await world.cache.put(entry_of(row("k"), value)) == Success(Inserted(row("k")))
        assert good(await world.cache.get("k")).result == value

    async def refused(self, world: World, entry: CacheEntry) -> None:
        before = await world.everything()
        refused = await world.cache.put(entry)
        assert isinstance(refused, Failure)
        assert isinstance(refused.failure(), InvalidEntry)
        assert await world.everything() == before

    # --- fences and ages ------------------------------------------------------------

    async def test_c15_a_fenced_get_gives_that_row_or_nothing(self, world: World) -> None:
        first = await world.put("k", "run-1", 3, "first")
        _ = await world.cache.evict("k")
        second = await world.put("k", "run-2", 9, "second")
        unknown = row("k", "run-9", 1)
        assert good(await world.cache.get("k", recorded_by=first)).result == "first"
        assert await world.cache.get("k", recorded_by=unknown) == MISS
        assert good(await world.cache.get("k", recorded_by=unknown, fallback="head")).ref == second
        assert good(await world.cache.get("k", recorded_by=first, fallback="head")).ref == first

    async def test_what_is_asked_for_in_its_place_is_the_head_and_nothing_else(self, world: World) -> None:
        with pytest.raises(ValueError, match="tail"):
            _ = await world.cache.get("k", fallback="tail")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def test_c18_an_age_is_counted_to_the_millisecond_and_an_old_row_is_a_miss(self, world: World) -> None:
        old, young = row("k", seq=1), row("l", seq=2)
        _ = await world.cache.put(CacheEntry(old, 1, {}, NOW_MS - 5_001))
        _ = await world.cache.put(CacheEntry(young, 1, {}, NOW_MS - 5_000))
        assert good(await world.cache.get("l", max_age_ms=5_000)).ref == young
        assert await world.cache.get("k", max_age_ms=5_000) == MISS
        _ = await world.cache.evict("k")
        head = row("k", seq=3)
        _ = await world.cache.put(CacheEntry(head, 1, {}, NOW_MS))
        assert await world.cache.get("k", recorded_by=old, max_age_ms=5_000, fallback="head") == MISS
        assert good(await world.cache.get("k", max_age_ms=0)).ref == head
        for wrong in (-1, 1.5, True):
            with pytest.raises((TypeError, ValueError)):
                _ = await world.cache.get("k", max_age_ms=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def test_c19_a_sweep_takes_what_is_older_and_says_so(self, world: World) -> None:
        swept = await world.put("k")
        _ = await world.cache.put(CacheEntry(row("l"), 1, {}, NOW_MS - 5_000))
        assert await world.cache.sweep(5_000) == Success(1)
        assert await world.cache.sweep(5_000) == Success(0)
        assert list(await world.heads()) == ["l"]
        assert await world.is_recorded(swept)
        assert await world.said() == [("removed", "k", "sweep")]
        with pytest.raises(ValueError, match="older_than_ms"):
            _ = await world.cache.sweep(-1)

    async def test_a_sweep_of_many_is_several_batches(self, world: World) -> None:
        rows = [good(world.cache.recording(f"k{number}", "a", b"1", {})).writes[0] for number in range(600)]
        await world.clock.advance(1)
        _ = await world.commit(*rows)
        assert await world.cache.sweep(0) == Success(600)
        assert await world.heads() == {}
        assert len(await world.said()) == 600

    # --- damage ---------------------------------------------------------------------

    async def test_c14_a_damaged_row_is_a_miss_and_is_in_force_no_more(self, world: World) -> None:
        damaging = Damaging(world.ledger)
        cache = LedgerStepCache(damaging, world.clock)
        ref = await world.put("k")
        damaging.damaged.add(ref)
        assert await cache.get("k") == MISS
        assert await world.heads() == {}
        assert await world.said() == [("removed", "k", "decode_failed")]
        assert await world.is_recorded(ref)
        assert await cache.get("k", recorded_by=ref) == MISS
        assert await world.said() == [("removed", "k", "decode_failed")]
        again = row("k", "b", 2)
        assert await cache.put(entry_of(again)) == Success(Inserted(again))
        assert good(await cache.get("k")).ref == again

    async def test_c14_a_damaged_row_that_is_not_in_force_takes_no_other_along(self, world: World) -> None:
        damaging = Damaging(world.ledger)
        first = await world.put("k", seq=1)
        _ = await world.cache.evict("k")
        second = await world.put("k", seq=2)
        damaging.damaged.add(first)
        assert await LedgerStepCache(damaging, world.clock).get("k", recorded_by=first) == MISS
        assert await world.heads() == {"k": second}

    async def test_a_damaged_row_that_cannot_be_evicted_is_a_failure_and_stays(self, world: World) -> None:
        ref = await world.put("k")
        damaging = Damaging(Failing(world.ledger, writes=(EvictHead,)))
        damaging.damaged.add(ref)
        assert await LedgerStepCache(damaging, world.clock).get("k") == Failure(BROKEN)
        assert await world.heads() == {"k": ref}

    async def test_a_ledger_that_does_not_answer_is_no_miss(self, world: World) -> None:
        _ = await world.put("k")
        assert await LedgerStepCache(Failing(world.ledger, "recorded"), world.clock).get("k") == Failure(BROKEN)

    # --- setting heads ----------------------------------------------------------------

    async def test_c20_heads_are_set_all_or_none(self, world: World) -> None:
        first = await world.put("k", seq=1)
        _ = await world.cache.evict("k")
        second, other = await world.put("k", seq=2), await world.put("l")
        before = await world.everything()
        for refs in ([first, second], [other, row("k", seq=-1)], [other, row("")], [other, "k"]):
            refused = await world.cache.rebuild_heads(refs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            assert isinstance(refused, Failure)
            assert isinstance(refused.failure(), InvalidEntry)
            assert await world.everything() == before
        assert await world.cache.rebuild_heads([first, row("l", "nobody", 1), first]) == Success(1)
        assert await world.heads() == {"k": first}
        assert await world.said() == [("removed", "k", "evict")]
        before = await world.everything()
        assert await world.cache.rebuild_heads(iter([first])) == Success(1)
        assert await world.everything() == before
        assert await world.cache.rebuild_heads([]) == Success(0)
        assert await world.heads() == {}

    # --- what is said of rows ---------------------------------------------------------

    async def test_what_becomes_of_a_row_is_in_the_journal(self, world: World) -> None:
        ref = await world.put("k")
        assert await world.said("a") == [("recorded", "k", None), ("admitted", "k", None)]
        assert await world.cache.evict("k", if_recorded_by=row("k", seq=1)) == Success(False)
        assert await world.cache.evict("l") == Success(False)
        assert await world.said() == []
        assert await world.cache.evict("k", if_recorded_by=ref) == Success(True)
        assert await world.said() == [("removed", "k", "evict")]

    async def test_j_02_two_equal_results_are_admitted_once(self, world: World) -> None:
        _ = await asyncio.gather(*(world.put("k", run, 0) for run in ("a", "a", "b")))
        said = [*await world.said("a"), *await world.said("b")]
        assert said.count(("admitted", "k", None)) == 1
        assert said.count(("recorded", "k", None)) == 2

    async def test_f18_no_result_and_no_meta_is_in_a_journal(self, world: World) -> None:
        _ = await world.cache.put(entry_of(row("k"), "s3cret", meta={"token": "s3cret"}))
        assert not any(b"s3cret" in entry.payload for entry in await world.entries("a"))

    async def test_f19_the_same_again_says_nothing(self, world: World) -> None:
        ref = await world.put("k")
        assert await world.cache.put(entry_of(ref)) == Success(ExistingSame(ref))
        assert await world.said("a") == [("recorded", "k", None), ("admitted", "k", None)]

    async def test_f24_a_row_that_came_from_elsewhere_is_told_of_when_it_goes(self, world: World) -> None:
        ref = row("k", "foreign-run", 4)
        assert await world.cache.write_back(entry_of(ref)) == Success(Inserted(ref))
        assert good(await world.cache.get("k")).ref == ref
        assert await world.entries("foreign-run") == ()
        assert await world.cache.evict("k") == Success(True)
        assert await world.said() == [("removed", "k", "evict")]

    async def test_a_row_from_elsewhere_loses_against_the_one_that_is_here(self, world: World) -> None:
        ref = await world.put("k")
        foreign = row("k", "foreign-run", 4)
        assert await world.cache.write_back(entry_of(foreign, "other")) == Failure(CacheConflict(ref))
        assert good(await world.cache.get("k")).ref == ref

    async def test_f27_what_cannot_be_said_does_not_happen(self, world: World) -> None:
        heads = {"k": await world.put("k"), "l": await world.put("l")}
        cache = LedgerStepCache(Failing(world.ledger, writes=(EvictHead,)), world.clock)
        assert await cache.sweep(0) == Failure(BROKEN)
        assert await cache.evict("k") == Failure(BROKEN)
        assert await world.heads() == heads
        assert await world.said() == []

    # --- in a batch of the caller's -----------------------------------------------------

    async def test_a_result_is_recorded_in_a_batch_of_the_callers_by_its_next_entry(self, world: World) -> None:
        assert isinstance(world.cache, JoinableStepCache)
        await world.tell("a", {}, "another")
        batch = good(world.cache.recording("k", "a", b'{"b": 1, "a": [1.5]}', {"m": 1}))
        committed = good(await world.ledger.commit(batch))
        assert isinstance(committed, Committed)
        assert [(each.standing, each.ref) for each in committed.recorded] == [("inserted", row("k", "a", 1))]
        found = good(await world.cache.get("k"))
        assert found == CacheEntry(row("k", "a", 1), {"a": [1.5], "b": 1}, {"m": 1}, NOW_MS)
        types = [entry.event_type for entry in await world.entries("a")]
        assert types == ["another", EVENT_TYPE, EVENT_TYPE]

    @pytest.mark.parametrize("result", [b"", b"{", b"NaN", b'"\xff"', b"9007199254740993"])
    async def test_a_result_that_is_no_json_makes_no_batch(self, world: World, result: bytes) -> None:
        refused = world.cache.recording("k", "a", result, {})
        assert isinstance(refused, Failure)
        assert isinstance(refused.failure(), InvalidEntry)

    async def test_an_eviction_in_a_batch_leaves_it_to_the_caller_to_say_why(self, world: World) -> None:
        ref = await world.put("k")
        batch = world.cache.evicting(ref) + Batch((), (Append("b", (provenance_entry("expired", ref),)),))
        committed = good(await world.ledger.commit(batch))
        assert isinstance(committed, Committed)
        assert committed.evicted == (ref,)
        assert await world.heads() == {}
        assert await world.said() == []
        assert await world.said("b") == [("expired", "k", None)]

    async def test_a_row_that_is_put_back_as_it_was_is_in_force_again(self, world: World) -> None:
        ref = await world.put("k")
        _ = await world.cache.evict("k")
        assert await world.cache.put(entry_of(ref)) == Success(ExistingSame(ref))
        assert await world.heads() == {"k": ref}
