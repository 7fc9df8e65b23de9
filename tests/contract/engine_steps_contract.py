"""Steps: what they get and give, how they are tried again, and when they are too late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from stepwell import (
    Failure,
    NotReplaySafe,
    Outcome,
    Retry,
    Run,
    RunFailed,
    StepFailed,
    Success,
    current_step,
    workflow,
)

from .engine_world import EngineWorld, ended, failure, success, until


@dataclass(frozen=True)
class Declined:
    reason: str


NO_JSON: dict[str, object] = {
    "tuple": (1, 2),
    "datetime": datetime(2024, 2, 29, tzinfo=UTC),
    "key": {1: "x"},
    "set": {"a": {2}},
    "bytes": b"x",
    "nan": float("nan"),
    "digits": 10**5000,
}


class EngineStepsContract:
    # --- values -----------------------------------------------------------------

    async def test_the_first_run_gets_what_a_replay_gets(self, world: EngineWorld) -> None:
        seen: list[object] = []

        def give() -> tuple[datetime, set[int], bytes, Declined]:
            return datetime(2024, 2, 29, tzinfo=UTC), {1, 2}, b"\xff\0", Declined("no")

        @workflow
        async def typed(run: Run) -> None:
            seen.append(await run.step("give", give))
            held: dict[str, list[int]] = await run.step("plain", lambda: {"a": [1]})
            held["a"].append(2)
            seen.append(held)
            await run.sleep("pause", 60)

        async with world.engine(typed) as app:
            _ = success(await app.engine.start(typed, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(typed) as app:
            assert await app.result_in_time("r") == Success(None)
        assert seen[0] == seen[2] == give()
        assert seen[1] == seen[3] == {"a": [1, 2]}

    @pytest.mark.parametrize("name", ["tuple", "datetime", "key", "set", "bytes", "nan", "digits"])
    async def test_what_is_not_json_needs_an_annotation(self, world: EngineWorld, name: str) -> None:
        value = NO_JSON[name]

        @workflow
        async def untyped(run: Run) -> str:
            try:
                await run.step("give", lambda: value)
            except TypeError as error:
                return str(error)
            return "no error"

        @workflow
        async def untyped_result(run: Run):  # type: ignore[no-untyped-def]
            return value

        async with world.engine(untyped, untyped_result) as app:
            text = success(await ended(success(await app.engine.start(untyped))))
            assert "'give'" in text
            failed = failure(await app.engine.result(success(await app.engine.start(untyped_result)).id))
            assert isinstance(failed, RunFailed)
            assert failed.error.type == "TypeError"
            assert "untyped_result" in failed.error.message

    async def test_a_result_of_another_type_is_refused_in_every_replay(self, world: EngineWorld) -> None:
        seen: list[str] = []

        def give() -> int:
            return "seven"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

        @workflow
        async def typed(run: Run) -> None:
            try:
                await run.step("give", give, retry=Retry())
            except TypeError as error:
                seen.append(str(error))
            await run.sleep("pause", 60)

        async with world.engine(typed) as app:
            _ = success(await app.engine.start(typed, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(typed) as app:
            assert await app.result_in_time("r") == Success(None)
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert "'give'" in seen[0]

    async def test_a_result_that_is_too_large_fails_the_step(self, world: EngineWorld) -> None:
        @workflow
        async def large(run: Run) -> str:
            try:
                await run.step("large", lambda: "x" * (2 * 2**20))
            except StepFailed as failed:
                return f"{failed.kind}: {failed.error.message}"
            return "no error"

        async with world.engine(large) as app:
            text = success(await ended(success(await app.engine.start(large))))
        assert text.startswith("too_large: ")
        assert "'large'" in text
        assert str(2 * 2**20) in text

    # --- what a step function sees ----------------------------------------------

    async def test_a_step_knows_which_it_is(self, world: EngineWorld) -> None:
        keys: list[str] = []

        def unsteady() -> tuple[str, str, int, str]:
            step = current_step()
            keys.append(step.idempotency_key)
            if step.attempt < 3:
                raise ValueError("not yet")
            return step.run_id, step.key, step.attempt, step.idempotency_key

        async def there() -> str:
            await asyncio.sleep(0)
            return current_step().key

        @workflow
        async def knowing(run: Run) -> tuple[tuple[str, str, int, str], str, str]:
            sync = await run.step("sync", unsteady, retry=Retry(initial=0))
            other = await run.step("async", there)
            with pytest.raises(RuntimeError):
                _ = current_step()
            return sync, other, await run.step("third", lambda: current_step().idempotency_key)

        async with world.engine(knowing) as app:
            sync, other, third = success(await ended(success(await app.engine.start(knowing, id="r"))))
        assert sync == ("r", "sync", 3, keys[0])
        assert keys == [keys[0]] * 3
        assert (len(keys[0]), other) == (32, "async")
        assert third != keys[0]

    async def test_errors_that_python_treats_apart_are_errors_of_the_step(self, world: EngineWorld) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("nothing to say")

        def stop() -> None:
            raise StopIteration

        def mute() -> None:
            raise Mute

        def cancelled() -> None:
            raise asyncio.CancelledError

        def surrogate() -> None:
            raise ValueError("\ud800")

        def long() -> None:
            raise ValueError("x" * 3_000_000)

        @workflow
        async def odd(run: Run) -> list[str]:
            types: list[str] = []
            for fn in (stop, mute, cancelled, surrogate, long):
                try:
                    await run.step(fn.__name__, fn)
                except StepFailed as failed:
                    types.append(failed.error.type)
            return types

        async with world.engine(odd) as app:
            types = success(await ended(success(await app.engine.start(odd, id="r"))))
            assert types == ["RuntimeError", "Mute", "CancelledError", "ValueError", "ValueError"]
            assert len((await app.steps("r"))["long"].value or b"") < 200_000

    # --- retries ----------------------------------------------------------------

    async def test_retry_if_is_asked_about_exceptions(self, world: EngineWorld) -> None:
        called: list[str] = []
        asked: list[str] = []

        def fail(name: str) -> None:
            called.append(name)
            raise OSError(name) if name == "again" else ValueError(name)

        def deserves(error: Exception) -> bool:
            asked.append(type(error).__name__)
            return isinstance(error, OSError)

        def broken(error: Exception) -> bool:
            raise LookupError("in retry_if")

        @workflow
        async def choosy(run: Run) -> list[str]:
            types: list[str] = []
            for name, retry_if in (("again", deserves), ("once", deserves), ("broken", broken)):
                try:
                    await run.step(name, fail, name, retry=Retry(initial=0, retry_if=retry_if))
                except StepFailed as failed:
                    types.append(failed.error.type)
            return types

        async with world.engine(choosy) as app:
            types = success(await ended(success(await app.engine.start(choosy, id="r"))))
            assert "in retry_if" in ((await app.steps("r"))["broken"].value or b"").decode()
        assert types == ["OSError", "ValueError", "LookupError"]
        assert called == ["again", "again", "again", "once", "broken"]
        assert asked == ["OSError"] * 3 + ["ValueError"]

    async def test_a_returned_failure_is_a_result_unless_retry_if_says_otherwise(self, world: EngineWorld) -> None:
        called: list[str] = []

        def ask(name: str) -> Outcome[int, Declined]:
            called.append(name)
            return Failure(Declined(name)) if called.count(name) < 3 else Success(called.count(name))

        def is_declined(found: object) -> bool:
            return isinstance(found, Declined)

        def is_failure(found: object) -> bool:
            return isinstance(found, Failure)

        def knows_errors_only(error: Exception) -> bool:
            return error.args == ()

        @workflow
        async def asking(run: Run) -> list[str]:
            outcomes = [
                await run.step("plain", ask, "plain", retry=Retry(initial=0)),
                await run.step("held", ask, "held", retry=Retry(initial=0, retry_if=is_declined)),
                await run.step("whole", ask, "whole", retry=Retry(initial=0, retry_if=is_failure)),
                await run.step("short", ask, "short", retry=Retry(max_attempts=2, initial=0, retry_if=is_declined)),
                await run.step("errors", ask, "errors", retry=Retry(initial=0, retry_if=knows_errors_only)),
            ]
            return [str(outcome) for outcome in outcomes]

        async with world.engine(asking) as app:
            handle = success(await app.engine.start(asking))
            assert await ended(handle) == Success(
                [
                    str(Failure(Declined("plain"))),
                    str(Success(3)),
                    str(Success(3)),
                    str(Failure(Declined("short"))),
                    str(Failure(Declined("errors"))),
                ]
            )
        assert called == ["plain", *["held"] * 3, *["whole"] * 3, "short", "short", "errors"]

    async def test_an_attempt_that_failed_is_not_forgotten_by_a_restart(self, world: EngineWorld) -> None:
        called: list[int] = []

        def fail() -> None:
            called.append(current_step().attempt)
            raise ValueError(len(called))

        @workflow
        async def stubborn(run: Run) -> str:
            try:
                await run.step("fail", fail, retry=Retry(max_attempts=3, initial=60, factor=2, cap=100))
            except StepFailed as failed:
                return failed.error.message
            return "no error"

        for attempt, pause_ms in ((2, 60_000), (3, 100_000)):
            async with world.engine(stubborn) as app:
                _ = success(await app.engine.start(stubborn, id="r"))
                await app.waits_for("r", f"attempt {attempt}")
                due_ms = (await app.steps("r"))["fail"].at_ms
                assert due_ms == world.clock.now_ms() + pause_ms
            await world.clock.advance(pause_ms - 1)
            async with world.engine(stubborn) as app:
                await app.clock.advance(0)
                assert len(called) == attempt - 1
            await world.clock.advance(1)
        async with world.engine(stubborn) as app:
            assert await app.result_in_time("r") == Success("3")
        assert called == [1, 2, 3]

    async def test_an_at_most_once_step_is_retried_after_attempts_that_failed(self, world: EngineWorld) -> None:
        called: list[int] = []

        def unsteady() -> int:
            called.append(current_step().attempt)
            if len(called) < 3:
                raise ValueError("not yet")
            return len(called)

        @workflow
        async def stubborn(run: Run) -> int:
            return await run.step("try", unsteady, mode="at_most_once", retry=Retry(initial=1))

        async with world.engine(stubborn) as app:
            _ = success(await app.engine.start(stubborn, id="r"))
            await app.waits_for("r", "attempt 2")
        async with world.engine(stubborn) as app:
            assert await app.result_in_time("r") == Success(3)
        assert called == [1, 2, 3]

    # --- time -------------------------------------------------------------------

    async def test_an_async_step_that_takes_too_long_is_cancelled(self, world: EngineWorld) -> None:
        began: list[int] = []
        cut: list[str] = []

        async def endless() -> None:
            began.append(world.clock.now_ms())
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.append("cut")
                raise

        @workflow
        async def timed(run: Run) -> tuple[str, str, str]:
            try:
                await run.step("endless", endless, timeout=5, retry=Retry(max_attempts=2, initial=1))
            except StepFailed as failed:
                return failed.kind, failed.error.type, failed.error.message
            return "", "", ""

        async with world.engine(timed) as app:
            handle = success(await app.engine.start(timed, id="r"))
            await until(lambda: len(began) == 1)
            await app.clock.advance(4_999)
            assert cut == []
            await app.clock.advance(1)
            await app.waits_for("r", "attempt 2")
            kind, type_, message = success(await app.ended_in_time(handle))
        assert (kind, type_) == ("timed_out", "TimeoutError")
        assert "'endless'" in message
        assert "5000 ms" in message
        assert cut == ["cut", "cut"]

    async def test_a_step_in_a_thread_that_takes_too_long_is_left_behind(self, world: EngineWorld) -> None:
        began, go_on = threading.Event(), threading.Event()

        def slow() -> str:
            began.set()
            assert go_on.wait(20)
            return "too late"

        @workflow
        async def timed(run: Run) -> str:
            try:
                return await run.step("slow", slow, timeout=timedelta(seconds=5))
            except StepFailed as failed:
                return failed.kind

        async with world.engine(timed) as app:
            handle = success(await app.engine.start(timed, id="r"))
            await until(began.is_set)
            await app.clock.advance(5_000)
            assert await ended(handle) == Success("timed_out")
            rows = await app.steps("r")
            go_on.set()
            await app.clock.advance(1_000)
            assert await app.steps("r") == rows

    async def test_sleeping_until_an_instant_keeps_the_first_one(self, world: EngineWorld) -> None:
        entered: list[int] = []
        woken: list[int] = []

        @workflow
        async def alarm(run: Run) -> None:
            entered.append(1)
            now = datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC)
            await run.sleep_until("past", now - timedelta(days=1))
            await run.sleep_until("alarm", now + timedelta(seconds=30 * len(entered)))
            woken.append(world.clock.now_ms())

        began_ms = world.clock.now_ms()
        async with world.engine(alarm) as app:
            _ = success(await app.engine.start(alarm, id="r"))
            await app.waits_for("r", "sleep_until 'alarm'")
        async with world.engine(alarm) as app:
            await app.clock.advance(30_000)
            await app.becomes("r", "completed")
        assert woken == [began_ms + 30_000]

    async def test_what_cuts_a_durable_call_short_from_outside_is_refused(self, world: EngineWorld) -> None:
        called: list[str] = []

        async def endless() -> None:
            called.append("endless")
            await asyncio.Event().wait()

        @workflow
        async def careless(run: Run) -> None:
            try:
                async with asyncio.timeout(0):
                    await run.step("endless", endless)
            except TimeoutError:
                await run.step("after", called.append, "after")

        @workflow
        async def quiet(run: Run) -> str:
            try:
                async with asyncio.timeout(0):
                    await run.gather(run.sleep("long", 3_600))
            except TimeoutError:
                return "late"
            return "in time"

        async with world.engine(careless, quiet) as app:
            for flow, key in ((careless, "'endless'"), (quiet, "'long'")):
                failed = failure(await app.engine.result(success(await app.engine.start(flow)).id))
                assert isinstance(failed, RunFailed)
                assert failed.error.type == NotReplaySafe.__name__
                assert key in failed.error.message
                assert "timeout" in failed.error.message
        assert "after" not in called

    # --- misuse -----------------------------------------------------------------

    async def test_a_call_that_makes_no_sense_is_refused_at_once(self, world: EngineWorld) -> None:
        not_callable: Callable[[], None] = 7  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
        no_mode: Literal["at_most_once"] = "twice"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

        @workflow
        async def wrong(run: Run) -> list[str]:
            texts: list[str] = []
            for call in (
                lambda: run.step("", len, "x"),
                lambda: run.step("a\0b", len, "x"),
                lambda: run.step("x" * 513, len, "x"),
                lambda: run.step("key", not_callable),
                lambda: run.step("key", len, "x", mode=no_mode),
                lambda: run.sleep("key", -1),
                lambda: run.sleep("key", float("inf")),
                lambda: run.step("key", len, "x", timeout=-1),
            ):
                try:
                    call()
                except (TypeError, ValueError) as error:
                    texts.append(type(error).__name__)
            return texts

        async with world.engine(wrong) as app:
            names = success(await ended(success(await app.engine.start(wrong, id="r"))))
            assert await app.steps("r") == {}
        assert names == ["ValueError"] * 3 + ["TypeError"] + ["ValueError"] * 4

    async def test_a_plain_await_between_calls_does_no_harm(self, world: EngineWorld) -> None:
        seen: list[str] = []

        async def branch(run: Run, name: str, own: asyncio.Event, other: asyncio.Event) -> None:
            seen.append(await run.step(name, lambda: name))
            own.set()
            await other.wait()
            seen.append(await run.step(f"{name} again", lambda: f"{name} again"))

        @workflow
        async def meeting(run: Run) -> int:
            left, right = asyncio.Event(), asyncio.Event()
            await run.gather(branch(run, "left", left, right), branch(run, "right", right, left))
            return len(seen)

        async with world.engine(meeting) as app:
            assert await ended(success(await app.engine.start(meeting))) == Success(4)

    async def test_a_gather_raises_the_first_error_as_given_when_all_have_ended(self, world: EngineWorld) -> None:
        seen: list[str] = []

        async def slow() -> None:
            for _ in range(9):
                await asyncio.sleep(0)
            seen.append("slow")
            raise ValueError("slow")

        def quick() -> None:
            seen.append("quick")
            raise OSError("quick")

        @workflow
        async def both(run: Run) -> str:
            assert await run.gather() == ()
            try:
                await run.gather(run.step("slow", slow), run.step("quick", quick), run.step("ok", lambda: 1))
            except StepFailed as failed:
                return failed.error.type
            return "no error"

        async with world.engine(both) as app:
            assert await ended(success(await app.engine.start(both, id="r"))) == Success("ValueError")
            assert (await app.steps("r"))["ok"].status == "done"
        assert sorted(seen) == ["quick", "slow"]
