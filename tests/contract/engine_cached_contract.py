"""What cached steps do, whichever ledger and whichever files they are over: hits, keys and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stepwell import (
    Boundary,
    Run,
    RunFailed,
    Workspace,
    current_step,
    workflow,
)

from .cached_world import BOUNDARY, ENVIRONMENT, OTHER, CachedWorld, flow_of
from .engine_cached_faults_contract import EngineCachedFaultsContract
from .engine_cached_runs_contract import EngineCachedRunsContract, Report, read_later
from .engine_world import success


def plain(workspace: Workspace) -> str:
    text = workspace.read_text("in.txt")
    workspace.write_text("out/r", text)
    return text


class EngineCachedContract(EngineCachedFaultsContract, EngineCachedRunsContract):
    # --- hits -------------------------------------------------------------------

    async def test_c32_sb4_cb21_a_second_run_is_served_what_the_first_one_made(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            cached.files.remove("out/r")
            assert await app.run(flow, "r2") == "made"
            assert cached.files.read("out/r") == b"ALPHA\n"
            assert cached.calls["shout"] == 1
            assert app.metrics.counts == {"miss": 1, "verified_hit": 1}
            assert await app.told("r1") == ["recorded", "admitted"]
            assert await app.told("r2") == ["hit"]
            assert (await app.head()).result == "made"
            assert [row.status for row in (await app.app.steps("r2")).values()] == ["done"]

    async def test_r_01_to_r_02_a_hit_writes_what_is_not_so_already(self, cached: CachedWorld) -> None:
        names = [f"out/{number}" for number in range(5)]

        def five(workspace: Workspace) -> None:
            for name in names:
                workspace.write_text(name, f"{name}\n")

        flow = flow_of(five, Boundary(writes=("out/*",)))
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") is None
            before = cached.files.snapshot()
            assert await app.run(flow, "r2") is None
            assert cached.files.snapshot() == before
            cached.files.write("out/3", "another\n")
            changed = cached.files.snapshot()
            assert await app.run(flow, "r3") is None
            after = cached.files.snapshot()
            assert {path for path in names if after[path] != changed[path]} == {"out/3"}
            assert app.metrics.counts == {"miss": 1, "verified_hit": 2}

    async def test_sb6_a_step_that_removes_is_served_too(self, cached: CachedWorld) -> None:
        def clean(workspace: Workspace) -> str:
            cached.calls["clean"] += 1
            workspace.remove("old")
            return "gone"

        flow = flow_of(clean, Boundary(removes=("old",)))
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "gone"
            cached.files.write("old", "again\n")
            assert await app.run(flow, "r2") == "gone"
            assert cached.files.read("old") is None
            assert cached.calls["clean"] == 1

    async def test_outputs_that_are_large_are_brought_back_too(self, cached: CachedWorld) -> None:
        def large(workspace: Workspace) -> int:
            cached.calls["large"] += 1
            for number in range(40):
                workspace.write_text(f"out/{number}", f"{number}" * 10_000)
            return 40

        flow = flow_of(large, Boundary(writes=("out/**",)))
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == 40
            for number in range(40):
                cached.files.remove(f"out/{number}")
            assert await app.run(flow, "r2") == 40
            assert cached.files.read("out/39") == b"39" * 10_000
            assert cached.calls["large"] == 1

    # --- keys -------------------------------------------------------------------

    async def test_k_02_k_04_k_05_what_a_step_reads_is_its_key(self, cached: CachedWorld) -> None:
        def count(workspace: Workspace) -> int:
            return len(workspace.glob("src/*.py")) + workspace.is_executable("in.txt")

        flow = flow_of(count, Boundary(reads=("src/*.py", "in.txt")))
        async with cached.engine(flow) as app:

            async def counts(run_id: str) -> object:
                _ = await app.run(flow, run_id)
                return app.metrics.counts

            assert await counts("r1") == {"miss": 1}
            cached.files.write("in.txt", "alpha\n")  # K-02: it is only touched
            assert await counts("r2") == {"miss": 1, "verified_hit": 1}
            cached.files.write("in.txt", "alpha\n", executable=True)  # K-04
            assert await counts("r3") == {"miss": 2, "verified_hit": 1}
            cached.files.write("src/new.py", "N=1\n")  # K-05
            assert await counts("r4") == {"miss": 3, "verified_hit": 1}
            cached.files.remove("src/a.py")
            assert await counts("r5") == {"miss": 4, "verified_hit": 1}
            cached.files.write("src/a.py", "A=1\n")
            assert await counts("r6") == {"miss": 4, "verified_hit": 2}

    async def test_k_12_another_output_path_is_another_key(self, cached: CachedWorld) -> None:
        def writes(path: str) -> Callable[[Workspace], str]:
            def body(workspace: Workspace) -> str:
                workspace.write_text(path, "x")
                return path

            return body

        for at, boundary in enumerate((BOUNDARY, OTHER)):
            flow = flow_of(writes(str(boundary.writes[0])), boundary)
            async with cached.engine(flow) as app:
                assert await app.run(flow, f"r{at}") == boundary.writes[0]
                assert app.metrics.counts == {"miss": 1}

    async def test_k_10_to_k_11_the_environment_is_of_the_key_and_without_one_a_result_is_for_its_run(
        self, cached: CachedWorld
    ) -> None:
        flow = cached.flow()
        newer = replace(ENVIRONMENT, python="3.11.2")
        for at, environment in enumerate((ENVIRONMENT, ENVIRONMENT, newer, None, None)):
            async with cached.engine(flow, environment=environment) as app:
                assert await app.run(flow, f"r{at}") == "made"
        assert cached.calls["shout"] == 4

    async def test_sb5_code_that_cannot_be_identified_is_for_its_run_and_the_row_says_why(
        self, cached: CachedWorld
    ) -> None:
        flow = flow_of(cached.shout, version=None)  # a bound method of an object that has a state
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "made"
            assert await app.run(flow, "r2") == "made"
            assert cached.calls["shout"] == 2
            rows = [await app.row(ref) for ref in await app.heads()]
            assert len(rows) == 2
            assert all("version=" in str(row.meta["scope"]) for row in rows)

    async def test_arguments_and_the_version_are_of_the_key(self, cached: CachedWorld) -> None:
        @workflow
        async def flow(run: Run, flag: str, version: str) -> Report:
            return await run.cached_step("later", read_later, flag, boundary=BOUNDARY, version=version)

        async with cached.engine(flow) as app:
            seen: list[object] = []
            for at, (flag, version) in enumerate((("-O2", "1"), ("-O2", "1"), ("-O3", "1"), ("-O3", "2"))):
                handle = success(await app.app.engine.start(flow, flag, version, id=f"r{at}"))
                seen.append(success(await handle.result()))
            o2, o3 = Report(1, b"alpha\n-O2"), Report(1, b"alpha\n-O3")
            assert seen == [o2, o2, o3, o3]
            assert app.metrics.counts == {"miss": 3, "verified_hit": 1}

    async def test_code_that_is_identified_needs_no_version(self, cached: CachedWorld) -> None:
        flow = flow_of(plain, version=None)
        async with cached.engine(flow) as app:
            assert [await app.run(flow, run_id) for run_id in ("r1", "r2")] == ["alpha\n", "alpha\n"]
            assert app.metrics.counts == {"miss": 1, "verified_hit": 1}

    # --- results ----------------------------------------------------------------

    async def test_numbers_come_back_from_the_cache_as_they_were(self, cached: CachedWorld) -> None:
        given: dict[str, object] = {"whole": 1.0, "part": 0.1, "list": [1, True, None]}

        def give(workspace: Workspace) -> object:
            cached.calls["give"] += 1
            workspace.write_text("out/r", "")
            return given

        flow = flow_of(give)
        async with cached.engine(flow) as app:
            seen = [await app.run(flow, run_id) for run_id in ("r1", "r2")]
            assert cached.calls["give"] == 1
        assert [repr(each) for each in seen] == [repr(given)] * 2

    async def test_what_the_cache_cannot_hold_is_recorded_in_the_run_and_not_in_the_cache(
        self, cached: CachedWorld
    ) -> None:
        def give(workspace: Workspace) -> int:
            cached.calls["give"] += 1
            workspace.write_text("out/r", "")
            return 2**70

        flow = flow_of(give)
        async with cached.engine(flow) as app:
            assert [await app.run(flow, run_id) for run_id in ("r1", "r2")] == [2**70, 2**70]
            assert await app.told("r2") == ["unverified_read_set(invalid_entry)"]
            assert await app.heads() == []
        assert cached.calls["give"] == 2

    async def test_a_result_that_is_no_json_is_a_type_error_and_nothing_is_on_the_host(
        self, cached: CachedWorld
    ) -> None:
        def give(workspace: Workspace) -> object:
            workspace.write_text("out/r", "")
            return {1, 2}

        flow = flow_of(give)
        async with cached.engine(flow) as app:
            failed = await app.run(flow, "r1")
            assert isinstance(failed, RunFailed)
            assert failed.error.type == "TypeError"
            assert cached.files.read("out/r") is None

    async def test_a_body_knows_as_which_step_it_is_executed(self, cached: CachedWorld) -> None:
        def who(workspace: Workspace) -> list[object]:
            workspace.write_text("out/r", "")
            step = current_step()
            return [step.run_id, step.key, step.attempt]

        flow = flow_of(who)
        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == ["r1", "step", 1]
