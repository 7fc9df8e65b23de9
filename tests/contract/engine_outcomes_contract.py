"""The behaviour cases of errors, retries, results and of starting runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Literal

import pytest

from stepwell import (
    Failure,
    NotReplaySafe,
    Retry,
    Run,
    RunFailed,
    RunMismatch,
    RunNotFound,
    StepFailed,
    StepId,
    Success,
    workflow,
)
from stepwell.core.batch import Batch

from .engine_world import EngineWorld, Refusing, ended, failure, success, until
from .store_world import append, chats, empty, ids_of


class EngineOutcomesContract:
    # --- errors, retries --------------------------------------------------------

    async def test_s130_a_step_error_is_caught(self, world: EngineWorld) -> None:
        called: list[str] = []

        def fail() -> None:
            called.append("x")
            raise ValueError("bad")

        @workflow
        async def tolerant(run: Run) -> bool:
            try:
                await run.step("fail", fail)
            except StepFailed as failed:
                return (failed.error.type, failed.error.message, failed.kind) == ("ValueError", "bad", "error")
            return False

        async with world.engine(tolerant) as app:
            assert await ended(success(await app.engine.start(tolerant))) == Success(True)
        assert called == ["x"]

    async def test_s131_an_uncaught_error_is_the_outcome(self, world: EngineWorld) -> None:
        @workflow
        async def broken(run: Run) -> None:
            raise RuntimeError("no")

        async with world.engine(broken) as app:
            first = failure(await ended(success(await app.engine.start(broken, id="r"))))
            assert isinstance(first, RunFailed)
            assert (first.id, first.error.type, first.error.message) == ("r", "RuntimeError", "no")
            assert "in broken" in first.error.traceback
            assert (await app.status("r")).state == "failed"
        async with world.engine(drive=False) as app:
            assert failure(await app.engine.result("r")) == first

    async def test_s132_max_attempts_counts_all_executions(self, world: EngineWorld) -> None:
        called: list[int] = []

        def fail() -> None:
            called.append(1)
            raise ValueError(len(called))

        @workflow
        async def stubborn(run: Run) -> str:
            try:
                await run.step("fail", fail, retry=Retry(max_attempts=10, initial=0.001))
            except StepFailed as failed:
                return failed.error.message
            return "no error"

        async with world.engine(stubborn) as app:
            handle = success(await app.engine.start(stubborn))
            assert await app.ended_in_time(handle) == Success("10")
        assert len(called) == 10

    async def test_s133_the_pauses_between_attempts_are_kept(self, world: EngineWorld) -> None:
        at_ms: list[int] = []

        def unsteady() -> str:
            at_ms.append(world.clock.now_ms())
            if len(at_ms) < 4:
                raise ValueError("not yet")
            return "there"

        @workflow
        async def stubborn(run: Run) -> str:
            return await run.step("try", unsteady, retry=Retry(max_attempts=4, initial=0.1, factor=1))

        async with world.engine(stubborn) as app:
            handle = success(await app.engine.start(stubborn, id="r"))
            for attempt in range(2, 5):
                await app.waits_for("r", f"attempt {attempt} of step 'try'")
                await app.clock.advance(99)
                assert len(at_ms) == attempt - 1
                await app.clock.advance(1)
                await until(partial(_counts, at_ms, attempt))
            assert await ended(handle) == Success("there")
        assert [later - earlier for earlier, later in pairwise(at_ms)] == [100, 100, 100]

    async def test_s134_an_initial_of_zero_retries_at_once(self, world: EngineWorld) -> None:
        at_ms: list[int] = []

        def unsteady() -> int:
            at_ms.append(world.clock.now_ms())
            if len(at_ms) < 3:
                raise ValueError("not yet")
            return len(at_ms)

        @workflow
        async def stubborn(run: Run) -> int:
            return await run.step("try", unsteady, retry=Retry(max_attempts=3, initial=0))

        async with world.engine(stubborn) as app:
            assert await ended(success(await app.engine.start(stubborn))) == Success(3)
        assert len(set(at_ms)) == 1

    async def test_s135_a_replayed_error_is_the_error_that_was_caught(self, world: EngineWorld) -> None:
        caught: list[StepFailed] = []

        class Declined(ValueError):
            pass

        def fail() -> None:
            raise Declined("no funds")

        @workflow
        async def tolerant(run: Run) -> None:
            try:
                await run.step("fail", fail)
            except StepFailed as failed:
                caught.append(failed)
            await run.sleep("pause", 60)

        async with world.engine(tolerant) as app:
            _ = success(await app.engine.start(tolerant, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(tolerant) as app:
            handle = success(await app.engine.start(tolerant, id="r"))
            assert await app.ended_in_time(handle) == Success(None)
        first, again = caught
        assert type(again) is type(first)
        assert (again.error, again.key, again.kind, str(again)) == (first.error, first.key, first.kind, str(first))
        assert again == first
        assert isinstance(again, ValueError) is isinstance(first, ValueError)
        assert (first.error.type, first.error.message) == ("Declined", "no funds")
        assert "fail" in first.error.traceback

    async def test_s136_a_result_that_looks_like_an_error_is_none(self, world: EngineWorld) -> None:
        seen: list[object] = []
        lookalike = {"name": "Error", "message": "m", "stack": "s"}

        @workflow
        async def plain(run: Run) -> None:
            seen.append(await run.step("look", lambda: dict(lookalike)))
            seen.append(await run.step("kind", lambda: {"kind": "error", "type": "E", "message": "m", "traceback": ""}))
            await run.sleep("pause", 60)

        async with world.engine(plain) as app:
            _ = success(await app.engine.start(plain, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(plain) as app:
            handle = success(await app.engine.start(plain, id="r"))
            assert await app.ended_in_time(handle) == Success(None)
        assert len(seen) == 4
        assert seen[0::2] == [lookalike] * (len(seen) // 2)
        assert seen[1::2] == [seen[1]] * (len(seen) // 2)

    async def test_s137_falsy_results_are_results(self, world: EngineWorld) -> None:
        falsy: list[object] = [None, 0, "", [], {}, False]
        called: list[int] = []
        seen: list[object] = []

        def give(at: int) -> object:
            called.append(at)
            return falsy[at]

        @workflow
        async def plain(run: Run) -> None:
            for at in range(len(falsy)):
                seen.append(await run.step(f"step {at}", give, at))
            await run.sleep("pause", 60)

        async with world.engine(plain) as app:
            _ = success(await app.engine.start(plain, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(plain) as app:
            handle = success(await app.engine.start(plain, id="r"))
            assert await app.ended_in_time(handle) == Success(None)
        assert called == [0, 1, 2, 3, 4, 5]
        assert [repr(one) for one in seen[:6]] == [repr(one) for one in falsy]
        assert [repr(one) for one in seen[6:]] == [repr(one) for one in falsy]

    # --- queue, timers, results -------------------------------------------------

    async def test_s138_a_run_that_raises_stops_no_other(self, world: EngineWorld) -> None:
        @workflow
        async def broken(run: Run) -> None:
            raise RuntimeError("no")

        @workflow
        async def sound(run: Run) -> int:
            return await run.step("one", lambda: 1)

        async with world.engine(drive=False) as app:
            first = success(await app.engine.start(broken, id="a"))
            second = success(await app.engine.start(sound, id="b"))
            assert (await app.status("a")).state == (await app.status("b")).state == "pending"
        async with world.engine(broken, sound) as app:
            assert isinstance(await app.engine.result("a"), Failure)
            assert await app.engine.result("b") == Success(1)
            third = success(await app.engine.start(sound, id="c"))
            assert await ended(third) == Success(1)
        assert (first.id, second.id) == ("a", "b")

    @pytest.mark.parametrize("applied", ["no", "unknown"])
    async def test_s138_a_write_that_fails_once_is_taken_up_again(
        self, world: EngineWorld, applied: Literal["no", "unknown"]
    ) -> None:
        refused: list[object] = []

        @workflow
        async def sound(run: Run) -> int:
            return await run.step("one", lambda: 1)

        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(sound, id="a"))
            _ = success(await app.engine.start(sound, id="b"))

        def judge(batch: Batch) -> Literal["no", "unknown"] | None:
            if refused or "'a'" not in repr(batch):
                return None
            refused.append(batch)
            return applied

        async with world.engine(sound, around=lambda ledger: Refusing(ledger, judge)) as app:
            assert await app.engine.result("b") == Success(1)
            result = asyncio.ensure_future(app.engine.result("a"))
            await app.advance_until(result.done)
            assert result.result() == Success(1)
        assert len(refused) == 1

    async def test_s139_a_result_is_there_afterwards(self, world: EngineWorld) -> None:
        @workflow
        async def sound(run: Run) -> datetime:
            return datetime(2024, 2, 29, tzinfo=UTC)

        @workflow
        async def broken(run: Run) -> None:
            raise RuntimeError("no")

        async with world.engine(sound, broken) as app:
            good = success(await app.engine.start(sound, id="good"))
            bad = success(await app.engine.start(broken, id="bad"))
            assert await ended(good) == Success(datetime(2024, 2, 29, tzinfo=UTC))
            assert await app.engine.result("good") == await good.result()
            failed = await ended(bad)
        async with world.engine() as app:
            assert await app.engine.result("good") == Success("2024-02-29T00:00:00Z")
            assert await app.engine.result("bad") == failed
            assert failure(await app.engine.result("nobody")) == RunNotFound("nobody")
        if world.host == "sqlite":
            assert _in_a_new_process(world, "good") == "2024-02-29T00:00:00Z"
            assert "RuntimeError" in str(_in_a_new_process(world, "bad"))

    # --- starting runs ----------------------------------------------------------

    async def test_s140_an_id_in_use_is_a_mismatch(self, world: EngineWorld) -> None:
        entered: list[int] = []

        @workflow
        async def first(run: Run, n: int) -> int:
            entered.append(n)
            await run.sleep("pause", 60)
            return n

        @workflow
        async def second(run: Run, n: int) -> int:
            entered.append(-n)
            return n

        async with world.engine(first, second) as app:
            handle = success(await app.engine.start(first, 1, id="r"))
            await app.waits_for("r", "'pause'")
            before, steps = await app.row("r"), await app.steps("r")
            assert failure(await app.engine.start(first, 2, id="r")) == RunMismatch("r", "first(1)", "first(2)")
            assert failure(await app.engine.start(second, 1, id="r")) == RunMismatch("r", "first(1)", "second(1)")
            assert (await app.row("r"), await app.steps("r")) == (before, steps)
            assert len(success(await app.engine.runs())) == 1
            again = success(await app.engine.start(first, 1, id="r"))
            assert await app.ended_in_time(handle) == await ended(again) == Success(1)
            assert isinstance(failure(await app.engine.start(first, 2, id="r")), RunMismatch)
        assert entered == [1]

    async def test_s143_one_step_id_on_two_stores_is_two_operations(self, world: EngineWorld) -> None:
        @workflow
        async def both(run: Run) -> tuple[list[str], list[str]]:
            left, right = run.store(chats, "left"), run.store(chats, "right")
            _ = success(await left.update("append", append("x")))
            _ = success(await right.update("append too", append("x")))
            return ids_of(success(await left.get("l")).state), ids_of(success(await right.get("r")).state)

        async with world.engine(both) as app:
            for id in ("left", "right"):
                _ = success(await app.store.get_or_create(chats, id, empty))
            step = StepId("r", "append")
            outside = success(await app.store.update(chats, "right", append("outside"), step=step))
            handle = success(await app.engine.start(both, id="r"))
            assert await ended(handle) == Success((["x"], ["outside", "x"]))
            left = success(await app.ledger.receipt(chats.key("left"), step))
            right = success(await app.ledger.receipt(chats.key("right"), step))
            assert left is not None
            assert right is not None
            assert (left.key, right.key) == (chats.key("left"), chats.key("right"))
            assert right.revision == outside.revision != left.revision

    async def test_s152_a_durable_call_in_a_task_of_its_own_is_refused(self, world: EngineWorld) -> None:
        called: list[str] = []

        @workflow
        async def careless(run: Run) -> str:
            problem = ""
            try:
                await asyncio.create_task(run.step("mine", called.append, "mine"))
            except NotReplaySafe as error:
                problem = str(error)
            try:
                await asyncio.gather(run.sleep("nap", 1), run.store(chats, "c").get("get"))
            except NotReplaySafe as error:
                problem += str(error)
            await run.gather(run.step("theirs", called.append, "theirs"), run.step("ours", called.append, "ours"))
            return problem

        async with world.engine(careless) as app:
            text = success(await ended(success(await app.engine.start(careless, id="r"))))
            assert "'mine'" in text
            assert "'nap'" in text
            assert "run.gather" in text
            assert set(await app.steps("r")) == {"theirs", "ours"}
        assert sorted(called) == ["ours", "theirs"]


# --- helpers ---


def _counts(items: list[int], count: int) -> bool:
    return len(items) == count


_READ_RESULT = """
import asyncio, json, sys
import stepwell

async def main():
    async with stepwell.open(sys.argv[1]) as app:
        outcome = await asyncio.wait_for(app.result(sys.argv[2]), 10)
    match outcome:
        case stepwell.Success(value):
            print(json.dumps(value))
        case stepwell.Failure(failure):
            print(json.dumps(repr(failure)))

asyncio.run(main())
"""


def _in_a_new_process(world: EngineWorld, run_id: str) -> object:
    command = [sys.executable, "-c", _READ_RESULT, os.fspath(world.path), run_id]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout)
