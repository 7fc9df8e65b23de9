"""What cached steps do where something is wrong: with a row, with its bytes, with the host, or with its files."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from stepwell import Boundary, Effect, RunFailed, Workspace
from stepwell.core.boundary import DeclaredRead
from stepwell.core.node import digest_of
from stepwell.core.step_cache import CacheEntry, RecordedRef
from stepwell.core.step_sandbox import WorkspaceError
from stepwell.layers.artifacts import MemoryArtifacts
from stepwell.layers.effect_dispatcher import MemoryEffectDispatcher
from stepwell.layers.inconsistency import FixedInconsistency, NotedConflict, NotedCorruption
from stepwell.services.inconsistency import Inconsistency, Tolerance

from .cached_world import Cached, CachedWorld, flow_of
from .engine_world import success

LARGE = "x" * 100
"""What is an artifact here."""

REFUSED = WorkspaceError("host_unavailable", "as the test says")


def write_large(cached: CachedWorld) -> Callable[[Workspace], str]:
    def large(workspace: Workspace) -> str:
        cached.calls["large"] += 1
        workspace.write_text("out/r", LARGE)
        return "made"

    return large


def blobs_of(cached: CachedWorld) -> MemoryArtifacts:
    assert isinstance(cached.files.artifacts, MemoryArtifacts)
    return cached.files.artifacts


def damage(cached: CachedWorld, data: bytes) -> None:
    """Change the bytes of the large output, and let it be gone from the host."""
    blobs = blobs_of(cached).blobs
    digest = digest_of(LARGE.encode())
    blobs[digest] = replace(blobs[digest], data=data)
    cached.files.remove("out/r")


class EngineCachedFaultsContract:
    # --- stale reads, and a host that cannot be measured --------------------------

    async def test_c33_a_declared_digest_that_is_true_no_more_evicts_and_is_not_recorded(
        self, cached: CachedWorld
    ) -> None:
        read = DeclaredRead("in.txt", digest_of(b"alpha\n"))
        flow = cached.flow(Boundary(reads=(read,), writes=("out/r",)))
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            cached.files.write("in.txt", "beta\n")
            assert await app.run(flow, "r2") == "made"
            assert app.metrics.counts == {"miss": 1, "stale_read_set": 1}
            assert await app.run(flow, "r3") == "made"
            assert cached.calls["shout"] == 3
            assert await app.told("r2") == ["stale_read_set", "unverified_read_set(unverified_read_set)"]
            assert await app.told("r3") == ["unverified_read_set(unverified_read_set)"]
            assert await app.heads() == []

    async def test_c35_a_host_that_cannot_be_read_fails_the_step_and_the_row_stays(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            (head,) = await app.heads()
            cached.meddlings.measure = cached.meddlings.execute = REFUSED
            failed = await app.run(flow, "r2")
            assert isinstance(failed, RunFailed)
            assert "as the test says" in failed.error.message
            assert cached.calls["shout"] == 1
            assert await app.heads() == [head]
            assert await app.told("r2") == []
            assert app.metrics.counts == {"miss": 1}

    async def test_a_host_that_is_measured_no_more_is_executed_on_and_the_row_stays(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            (head,) = await app.heads()
            cached.meddlings.measure = REFUSED
            assert await app.run(flow, "r2") == "made"
            assert cached.calls["shout"] == 2
            assert await app.heads() == [head]
            assert await app.told("r2") == []

    async def test_a_row_that_is_older_than_rows_are_served_is_out_of_force(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        async with cached.engine(flow, max_age=5) as app:
            assert await app.run(flow, "r1") == "made"
            await app.app.clock.advance(5_000)
            assert await app.run(flow, "r2") == "made"
            assert await app.told("r2") == ["ttl(admitted)", "hit"]
            await app.app.clock.advance(1)
            assert await app.run(flow, "r3") == "made"
            assert await app.told("r3") == ["ttl(expired)", "expired", "recorded", "admitted"]
            facts = await app.facts("r3", "stepwell.cache-provenance")
            assert (facts[1]["ttl_ms"], facts[1]["age_ms"]) == (5_000, 5_001)
            assert [ref.recorded_run_id for ref in await app.heads()] == ["r3"]

    # --- corruption ---------------------------------------------------------------

    @pytest.mark.parametrize("bad", [b"", b"x" * 99, b"x" * 99 + b"y"])
    async def test_c36_r_05_damage_fails_a_strict_step_and_takes_the_row_out_of_force(
        self, cached: CachedWorld, bad: bytes
    ) -> None:
        flow = flow_of(write_large(cached))
        noted: list[NotedConflict | NotedCorruption] = []
        async with cached.engine(flow, inconsistency=FixedInconsistency("fail", noted)) as app:
            assert await app.run(flow, "r1") == "made"
            damage(cached, bad)
            failed = await app.run(flow, "r2")
            assert isinstance(failed, RunFailed)
            assert "CacheCorruptionDetected: the output out/r" in failed.error.message
            assert cached.files.read("out/r") is None  # bad bytes never come to the host
            assert await app.told("r2") == ["replay_failed(corruption)"]
            (told,) = await app.facts("r2", "stepwell.cache-corruption")
            assert (told["path"], told["verdict"]) == ("out/r", "fail")
            assert (told["recorded"], told["measured"]) == (digest_of(LARGE.encode()), digest_of(bad))
            assert len(noted) == 1
            assert await app.heads() == []
            assert app.metrics.counts == {"miss": 1}
            assert await app.run(flow, "r3") == "made"  # the next execution heals the entry
            cached.files.remove("out/r")
            assert await app.run(flow, "r4") == "made"
            assert cached.files.read("out/r") == LARGE.encode()
            assert cached.calls["large"] == 2

    async def test_c37_c40_a_tolerant_one_is_executed_again_and_heals_the_row(self, cached: CachedWorld) -> None:
        flow = flow_of(write_large(cached))
        async with cached.engine(flow, inconsistency=FixedInconsistency("tolerate")) as app:
            assert await app.run(flow, "r1") == "made"
            damage(cached, b"x")
            assert await app.run(flow, "r2") == "made"
            assert app.metrics.counts == {"miss": 1, "replay_failed": 1}
            assert await app.told("r2") == ["replay_failed(corruption)", "recorded", "admitted"]
            assert (await app.head()).ref.recorded_run_id == "r2"
            cached.files.remove("out/r")
            assert await app.run(flow, "r3") == "made"
            assert cached.files.read("out/r") == LARGE.encode()
            assert cached.calls["large"] == 2

    async def test_c39_j_06_a_row_that_is_fresher_than_the_damaged_one_stays(self, cached: CachedWorld) -> None:
        flow = flow_of(write_large(cached))
        rival = _Rival()
        async with cached.engine(flow, inconsistency=rival) as app:
            assert await app.run(flow, "r1") == "made"
            rival.app = app
            damage(cached, b"x")
            assert await app.run(flow, "r2") == "made"
            assert (await app.head()).ref == RecordedRef((await app.head()).ref.key_digest, "rival", 7)

    # --- a host that refuses --------------------------------------------------------

    async def test_c38_a_host_that_refuses_the_outputs_is_executed_on_each_time_and_the_row_stays(
        self, cached: CachedWorld
    ) -> None:
        flow = cached.flow()
        noted: list[NotedConflict | NotedCorruption] = []
        async with cached.engine(flow, inconsistency=FixedInconsistency("fail", noted)) as app:
            assert await app.run(flow, "r0") == "made"
            (head,) = await app.heads()
            cached.meddlings.replay = REFUSED
            for run_id in ("r1", "r2", "r3"):
                assert await app.run(flow, run_id) == "made"
                assert await app.told(run_id) == ["replay_failed(host)", "recorded"]
            assert cached.calls["shout"] == 4
            assert await app.heads() == [head]
            assert noted == []
            assert app.metrics.counts == {"miss": 1, "replay_failed": 3}

    async def test_r_04_bytes_that_are_gone_are_a_host_that_refuses(self, cached: CachedWorld) -> None:
        flow = flow_of(write_large(cached))
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            (head,) = await app.heads()
            blobs_of(cached).blobs.clear()
            cached.files.remove("out/r")
            assert await app.run(flow, "r2") == "made"
            assert await app.told("r2") == ["replay_failed(host)", "recorded"]
            assert await app.heads() == [head]
            cached.files.remove("out/r")
            assert await app.run(flow, "r3") == "made"  # the bytes are there again
            assert cached.calls["large"] == 2

    # --- two results ------------------------------------------------------------------

    @pytest.mark.parametrize("verdict", ["fail", "tolerate"])
    async def test_c43_of_two_results_the_first_stays(self, cached: CachedWorld, verdict: Tolerance) -> None:
        def dice(workspace: Workspace) -> str:
            cached.calls["dice"] += 1
            workspace.write_text("out/r", f"{cached.calls['dice']}")
            return f"{cached.calls['dice']}"

        flow = flow_of(dice)
        noted: list[NotedConflict | NotedCorruption] = []
        async with cached.engine(flow, inconsistency=FixedInconsistency(verdict, noted)) as app:
            assert await app.run(flow, "r1") == "1"
            cached.meddlings.replay = REFUSED
            second = await app.run(flow, "r2")
            assert (await app.head()).result == "1"
            assert len(noted) == 1
            if verdict == "tolerate":
                assert second == "2"
                assert cached.files.read("out/r") == b"2"
                assert await app.told("r2") == ["replay_failed(host)", "recorded", "conflict_first_writer"]
            else:
                assert isinstance(second, RunFailed)
                assert "CacheConflictDetected" in second.error.message
                assert cached.files.read("out/r") == b"1"
                assert await app.told("r2") == ["replay_failed(host)", "recorded"]

    # --- somebody changes the files -----------------------------------------------------

    async def test_cb16_sb30_a_rebase_measures_again_and_may_be_served(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        async with cached.engine(flow) as app:
            cached.files.write("in.txt", "beta\n")
            assert await app.run(flow, "r1") == "made"
            cached.files.write("in.txt", "alpha\n")
            cached.meddlings.before_materialize = lambda: cached.files.write("in.txt", "beta\n")
            assert await app.run(flow, "r2") == "made"
            assert cached.files.read("out/r") == b"BETA\n"
            assert cached.calls["shout"] == 2  # alpha was executed, and beta was served
            assert await app.told("r2") == ["recorded", "admitted", "hit"]
            assert len(await app.heads()) == 2  # what was made of alpha is right for alpha
            cached.files.write("in.txt", "alpha\n")
            assert await app.run(flow, "r3") == "made"
            assert cached.files.read("out/r") == b"ALPHA\n"
            assert cached.calls["shout"] == 2

    async def test_a_rebase_executes_on_what_is_there_now(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        cached.meddlings.before_materialize = lambda: cached.files.write("in.txt", "beta\n")
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            assert cached.files.read("out/r") == b"BETA\n"
            assert cached.calls["shout"] == 2
            (settled,) = await app.facts("r1", "stepwell.copy-back-settled")
            assert settled["rebases"] == 1

    async def test_after_three_rebases_the_step_fails(self, cached: CachedWorld) -> None:
        flow = cached.flow()

        def again() -> None:
            cached.files.write("in.txt", f"{cached.calls['again']}\n")
            cached.calls["again"] += 1
            cached.meddlings.before_materialize = again

        cached.meddlings.before_materialize = again
        async with cached.engine(flow) as app:
            failed = await app.run(flow, "r1")
            assert isinstance(failed, RunFailed)
            assert "MaterializationConflict" in failed.error.message
            assert cached.calls["shout"] == 4
            assert cached.files.read("out/r") is None

    async def test_k_01_under_a_writer_each_row_is_right_for_its_key(self, cached: CachedWorld) -> None:
        def echo(workspace: Workspace) -> str:
            text = workspace.read_text("in.txt")
            workspace.write_text("out/r", text)
            return text

        stop = threading.Event()

        def write() -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                if number % 2_000 < 10:  # so that some measurements, and some seeds, are of one moment
                    cached.files.write("in.txt", f"{number // 2_000 % 10}" * 50)
                _ = cached.files.read("in.txt")

        flow = flow_of(echo)
        writer = threading.Thread(target=write)
        async with cached.engine(flow) as app:
            writer.start()
            try:
                for number in range(40):  # some of them fail: their files are changed again and again
                    _ = await app.run(flow, f"r{number}")
            finally:
                stop.set()
                writer.join()
            rows = [await app.row(ref) for ref in await app.heads()]
            assert rows
            assert len({str(row.result) for row in rows}) == len(rows)  # one key has one content
            for row in rows:
                cached.files.write("in.txt", str(row.result))
                assert await app.run(flow, f"again {row.result}") == row.result
                assert cached.files.read("out/r") == str(row.result).encode()

    # --- what is not recorded ---------------------------------------------------------------

    async def test_j_05_weak_evidence_is_for_its_run_and_is_told_once(self, cached: CachedWorld) -> None:
        def lenient(workspace: Workspace) -> str:
            cached.calls["lenient"] += 1
            workspace.write_text("out/r", "x")
            return "made"

        flow = flow_of(lenient, Boundary(reads=("in.txt",), writes=("out/r",), mode="expected"))
        async with cached.engine(flow) as app:
            for run_id in ("r1", "r2"):
                assert await app.run(flow, run_id) == "made"
                assert await app.told(run_id) == ["unverified_read_set(not_hard)"]
            assert cached.calls["lenient"] == 2
            assert await app.heads() == []
            assert cached.files.read("out/r") == b"x"

    async def test_a_step_that_departed_from_its_boundary_is_not_kept(self, cached: CachedWorld) -> None:
        def stray(workspace: Workspace) -> str:
            workspace.write_text("out/r", "x")
            workspace.write_text("out/s", "y")
            return "made"

        flow = flow_of(stray, Boundary(writes=("out/r",), mode="expected"))
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            assert await app.told("r1") == ["unverified_read_set(not_replayable)"]
            assert cached.files.read("out/s") == b"y"

    async def test_cooperative_evidence_serves_nobody_else(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        cached.meddlings.evidence = "cooperative"
        async with cached.engine(flow) as app:
            assert [await app.run(flow, run_id) for run_id in ("r1", "r2")] == ["made", "made"]
            assert cached.calls["shout"] == 2
            rows = [await app.row(ref) for ref in await app.heads()]
            assert {row.meta["scope"] for row in rows} == {"cooperative evidence"}

    # --- effects ----------------------------------------------------------------------------

    async def test_cb18_an_effect_is_sent_once_for_its_key_also_where_the_step_is_served(
        self, cached: CachedWorld
    ) -> None:
        flow = flow_of(telling)
        sent: list[Effect] = []
        async with cached.engine(flow, effects=MemoryEffectDispatcher(sent)) as app:
            assert await app.run(flow, "r1") == 1
            (settled,) = await app.facts("r1", "stepwell.copy-back-settled")
            assert (settled["queued"], settled["dispatched"]) == (2, 2)
            assert await app.run(flow, "r2") == 1
            assert app.metrics.counts == {"miss": 1, "verified_hit": 1}
            # The effect with a key is known by it; the other one is that of its step, and the second run's another.
            assert [effect.payload for effect in sent] == [{"kind": "told"}, 1.0, 1.0]
            assert type(sent[2].payload) is float

    async def test_cb19_without_a_dispatcher_effects_are_journalled_and_not_sent(self, cached: CachedWorld) -> None:
        flow = flow_of(telling)
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == 1
            (settled,) = await app.facts("r1", "stepwell.copy-back-settled")
            assert (settled["queued"], settled["dispatched"]) == (2, 0)

    async def test_an_effect_that_is_not_sent_fails_the_step_whose_files_are_there(self, cached: CachedWorld) -> None:
        def refuse(effect: Effect) -> None:
            raise ConnectionError(f"no line for {effect.payload}")

        flow = flow_of(telling)
        async with cached.engine(flow, effects=refuse) as app:
            failed = await app.run(flow, "r1")
            assert isinstance(failed, RunFailed)
            assert "EffectFailed" in failed.error.message
            assert cached.files.read("out/r") == b"x"


def telling(workspace: Workspace) -> int:
    workspace.write_text("out/r", "x")
    workspace.queue_effect(Effect("told", {"kind": "told"}))
    workspace.queue_effect(1.0)
    return 1


class _Rival(Inconsistency):
    """Puts a fresher row in force at the moment at which damage is noted."""

    app: Cached | None = None

    async def note_conflict(self, existing: RecordedRef, offered: RecordedRef) -> Tolerance:
        return "tolerate"

    async def note_corruption(
        self, ref: RecordedRef | None, path: str, recorded: str, measured: str | None
    ) -> Tolerance:
        assert self.app is not None
        assert ref is not None
        held = await self.app.head()
        assert success(await self.app.cache.evict(ref.key_digest))
        fresh = CacheEntry(RecordedRef(ref.key_digest, "rival", 7), "fresh", held.meta, self.app.app.clock.now_ms())
        _ = success(await self.app.cache.put(fresh))
        return "tolerate"
