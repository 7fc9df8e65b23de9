"""What cached steps do in their runs: their own rows, other steps beside them, cancellation, and misuse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import pytest

from stepwell import (
    Boundary,
    RecordedError,
    Run,
    RunCancelled,
    RunFailed,
    StepFailed,
    Workspace,
    workflow,
)

from .cached_world import BOUNDARY, CachedWorld, flow_of
from .engine_world import success, until


@dataclass(frozen=True)
class Report:
    lines: int
    raw: bytes


async def read_later(workspace: Workspace, flag: str = "-O2") -> Report:
    await asyncio.sleep(0)
    data = workspace.read_bytes("in.txt")
    workspace.write_bytes("out/r", data)
    return Report(len(data.splitlines()), data + flag.encode())


class EngineCachedRunsContract:
    # --- the step's own row -----------------------------------------------------

    async def test_a_run_that_goes_on_is_answered_from_its_own_row(self, cached: CachedWorld) -> None:
        @workflow
        async def flow(run: Run) -> str:
            made = await run.cached_step("step", cached.shout, boundary=BOUNDARY, version="1")
            _ = (await run.signal("go", bool)).unwrap()
            return made

        async with cached.engine(flow) as app:
            _ = success(await app.app.engine.start(flow, id="r"))
            await app.app.waits_for("r", "'go'")
            cached.files.remove("out/r")
        async with cached.engine(flow) as app:
            _ = success(await app.app.engine.signal("r", "go", value=True))
            assert success(await app.app.engine.result("r")) == "made"
            assert cached.files.read("out/r") is None  # it was there when it was done
            assert app.metrics.counts == {}
        assert cached.calls["shout"] == 1

    async def test_c46_a_step_that_has_failed_stays_failed(self, cached: CachedWorld) -> None:
        def boom(workspace: Workspace) -> None:
            cached.calls["boom"] += 1
            raise LookupError("fatal")

        @workflow
        async def flow(run: Run) -> str:
            try:
                await run.cached_step("step", boom, boundary=BOUNDARY, version="1")
            except StepFailed as failed:
                _ = await run.signal("go", bool)
                return f"{failed.kind}: {failed.error.type}: {failed.error.message}"
            return "passed"

        async with cached.engine(flow) as app:
            _ = success(await app.app.engine.start(flow, id="r"))
            await app.app.waits_for("r", "'go'")
        async with cached.engine(flow) as app:
            _ = success(await app.app.engine.signal("r", "go", value=True))
            assert success(await app.app.engine.result("r")) == "error: LookupError: fatal"
            assert await app.heads() == []
        assert cached.calls["boom"] == 1

    async def test_a_refused_body_fails_the_step_by_the_code_of_the_refusal(self, cached: CachedWorld) -> None:
        def peek(workspace: Workspace) -> str:
            return workspace.read_text("secret")

        @workflow
        async def flow(run: Run) -> str:
            try:
                return await run.cached_step("step", peek, boundary=BOUNDARY)
            except StepFailed as failed:
                return f"{failed.kind}: {failed.error.type}"

        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == "undeclared_read: UndeclaredRead"

    async def test_without_a_sandbox_the_step_fails_closed(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        async with cached.engines.engine(flow) as app:
            _ = success(await app.engine.start(flow, id="r"))
            failed = await app.engine.result("r")
            assert isinstance(failed.failure(), RunFailed)
            assert _error(failed.failure()).type == "StepFailed"
            assert "UnsupportedBoundary" in _error(failed.failure()).message

    async def test_a_sandbox_that_cannot_measure_executes_and_keeps_nothing(self, cached: CachedWorld) -> None:
        flow = cached.flow()
        cached.meddlings.plain = True
        async with cached.engine(flow) as app:
            assert [await app.run(flow, run_id) for run_id in ("r1", "r2")] == ["made", "made"]
            assert cached.files.read("out/r") == b"ALPHA\n"
            assert await app.heads() == []
        assert cached.calls["shout"] == 2

    # --- side by side -----------------------------------------------------------

    async def test_j_02_of_two_runs_at_once_one_executes_and_the_other_is_served(self, cached: CachedWorld) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(workspace: Workspace) -> str:
            cached.calls["slow"] += 1
            begun.set()
            _ = await go_on.wait()
            workspace.write_text("out/r", "x")
            return "made"

        flow = flow_of(slow)
        async with cached.engine(flow) as app:
            handles = [success(await app.app.engine.start(flow, id=run_id)) for run_id in ("r1", "r2", "r3")]
            _ = await begun.wait()
            _ = success(await app.app.engine.cancel("r3"))  # who waits for a permit may leave
            assert (await handles[2].result()).failure() == RunCancelled("r3")
            go_on.set()
            assert [success(await handle.result()) for handle in handles[:2]] == ["made", "made"]
            assert cached.calls["slow"] == 1
            assert app.metrics.counts == {"miss": 1, "verified_hit": 1}
            told = [*await app.told("r1"), *await app.told("r2")]
            assert sorted(told) == ["admitted", "hit", "recorded"]

    async def test_steps_of_one_gather_that_write_the_same_file_wait_for_one_another(self, cached: CachedWorld) -> None:
        under_way: list[str] = []

        def add(name: str) -> Callable[[Workspace], Awaitable[int]]:
            async def body(workspace: Workspace) -> int:
                under_way.append(name)
                assert len(under_way) == 1
                await asyncio.sleep(0)
                workspace.write_text("out/r", workspace.read_text("in.txt") + name)
                under_way.remove(name)
                return 1

            return body

        @workflow
        async def flow(run: Run) -> int:
            steps = [run.cached_step(name, add(name), boundary=BOUNDARY, version="1") for name in "abc"]
            return sum(await run.gather(*steps))

        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == 3
            assert cached.files.read("out/r") == b"alpha\nc"

    @pytest.mark.parametrize("writer_first", [True, False])
    async def test_steps_of_one_gather_that_read_what_another_writes_come_in_the_order_of_the_calls(
        self, cached: CachedWorld, writer_first: bool
    ) -> None:
        written = iter("123456")

        async def write(workspace: Workspace) -> str:
            await asyncio.sleep(0)
            text = next(written)
            workspace.write_text("out/r", text)
            return text

        def read(workspace: Workspace) -> str:
            return workspace.read_text("out/r")

        @workflow
        async def flow(run: Run) -> list[str]:
            made = run.cached_step("write", write, boundary=Boundary(writes=("out/r",)), version=run.id)
            seen = run.cached_step("read", read, boundary=Boundary(reads=("out/*",)), version="1")
            return list(await run.gather(*((made, seen) if writer_first else (seen, made))))

        cached.files.write("out/r", "stale")
        async with cached.engine(flow) as app:
            given = [await app.run(flow, f"r{at}") for at in range(3)]
            if writer_first:
                assert given == [["1", "1"], ["2", "2"], ["3", "3"]]
            else:
                assert given == [["stale", "1"], ["1", "2"], ["2", "3"]]

    async def test_cancelling_cuts_the_body_off_and_records_nothing(self, cached: CachedWorld) -> None:
        begun = asyncio.Event()
        cleaned: list[str] = []

        async def endless(workspace: Workspace) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(workspace.read_text("in.txt"))
                workspace.write_text("out/r", "half")

        flow = flow_of(endless)
        async with cached.engine(flow) as app:
            handle = success(await app.app.engine.start(flow, id="r"))
            _ = await begun.wait()
            _ = success(await handle.cancel())
            assert (await handle.result()).failure() == RunCancelled("r")
            assert cleaned == ["alpha\n"]
            assert cached.files.read("out/r") is None
            assert await app.heads() == []
            assert [row.status for row in (await app.app.steps("r")).values()] == ["cancelled"]

    async def test_a_step_without_files_that_waits_for_its_key_can_be_cancelled(self, cached: CachedWorld) -> None:
        begun, go_on, asked, calls = asyncio.Event(), asyncio.Event(), list[str](), list[str]()

        async def slow(workspace: Workspace, words: list[str]) -> str:
            calls.append(words.pop())  # what it was given is its own
            begun.set()
            _ = await go_on.wait()
            return "made"

        @workflow
        async def flow(run: Run) -> str:
            asked.append(run.id)
            return await run.cached_step("slow", slow, ["word"], boundary=Boundary(), version="1")

        async with cached.engine(flow) as app:
            first = success(await app.app.engine.start(flow, id="first"))
            _ = await begun.wait()
            second = success(await app.app.engine.start(flow, id="second"))
            await until(lambda: len(asked) == 2)
            _ = success(await second.cancel())
            assert (await second.result()).failure() == RunCancelled("second")
            go_on.set()
            assert success(await first.result()) == "made"
            assert await app.run(flow, "third") == "made"
            assert calls == ["word"]
            assert app.metrics.counts == {"miss": 1, "verified_hit": 1}

    async def test_a_step_that_loses_a_race_is_cut_off_and_leaves_nothing(self, cached: CachedWorld) -> None:
        begun = asyncio.Event()

        async def endless(workspace: Workspace) -> str:
            workspace.write_text("out/r", "half")
            begun.set()
            await asyncio.Event().wait()
            return "never"

        @workflow
        async def flow(run: Run) -> str:
            slow = run.cached_step("slow", endless, boundary=BOUNDARY, version="1")
            return await run.race(slow, run.step("quick", begun.wait)) and "quick"

        async with cached.engine(flow) as app:
            assert await app.run(flow, "r") == "quick"
            assert {key: row.status for key, row in (await app.app.steps("r")).items()} == {
                "slow": "lost",
                "quick": "done",
            }
            assert cached.files.read("out/r") is None

    async def test_a_body_that_is_executed_when_the_engine_closes_is_awaited_and_recorded(
        self, cached: CachedWorld
    ) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(workspace: Workspace) -> str:
            cached.calls["slow"] += 1
            workspace.write_text("out/r", "x")
            begun.set()
            _ = await go_on.wait()
            return "made"

        flow = flow_of(slow)

        async def let_go() -> None:
            await asyncio.sleep(0)
            go_on.set()

        async with cached.engine(flow) as app:
            _ = success(await app.app.engine.start(flow, id="r"))
            _ = await begun.wait()
            letting = asyncio.create_task(let_go())
        await letting
        async with cached.engine(flow) as app:
            assert success(await app.app.engine.result("r")) == "made"
        assert cached.calls["slow"] == 1

    # --- misuse -----------------------------------------------------------------

    async def test_a_call_that_makes_no_sense_is_refused_where_it_is_made(self, cached: CachedWorld) -> None:
        @workflow
        async def flow(run: Run) -> list[str]:
            said: list[str] = []
            call = cast("Callable[..., Awaitable[object]]", run.cached_step)  # as a caller without types sees it
            for at, (body, args, boundary, version) in enumerate(
                (
                    (read_later, (1,), BOUNDARY, None),
                    (read_later, (), "src", None),
                    (read_later, (), BOUNDARY, ""),
                    (5, (), BOUNDARY, None),
                )
            ):
                try:
                    _ = await call(f"{at}", body, *args, boundary=boundary, version=version)
                except TypeError as error:
                    said.append(str(error)[:20])
            return said

        async with cached.engine(flow) as app:
            assert await app.run(flow, "r1") == [
                "step '0': read_later",
                "step '1': boundary i",
                "step '2': version is",
                "step '3': 5 is no Co",
            ]


def _error(failure: object) -> RecordedError:
    assert isinstance(failure, RunFailed)
    return failure.error
