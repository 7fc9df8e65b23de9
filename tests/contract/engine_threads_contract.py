"""Threads of steps: what waits for one has not begun; and nothing that a function does ends more than its step."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from stepwell import (
    Failure,
    Outcome,
    Run,
    RunCancelled,
    RunFailed,
    StepFailed,
    StoreKey,
    StoreNotFound,
    Success,
    workflow,
)
from stepwell.layers.driver.execution import THREADS

from .engine_world import EngineWorld, ended, failure, success, until
from .store_world import Chat, append, chats, empty


class _Crowd:
    """Steps that hold every thread until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.holding: list[int] = []

    def hold(self, number: int) -> int:
        self.holding.append(number)
        assert self.let_go.wait(20)
        return number

    @contextmanager
    def ended(self) -> Generator[None]:
        try:
            yield
        finally:
            self.let_go.set()


class EngineThreadsContract:
    async def test_a_step_that_waits_for_a_thread_has_not_begun(self, world: EngineWorld) -> None:
        crowd = _Crowd()
        begun: list[str] = []

        def late() -> str:
            begun.append("late")
            return "late"

        @workflow
        async def crowded(run: Run) -> int:
            held = await run.gather(*[run.step(f"hold {n}", crowd.hold, n) for n in range(THREADS)])
            return len(held)

        @workflow
        async def queued(run: Run) -> str:
            return await run.step("late", late, mode="at_most_once", timeout=1)

        async with world.engine(crowded, queued) as app:
            with crowd.ended():
                first = success(await app.engine.start(crowded, id="crowd"))
                await until(lambda: len(crowd.holding) == THREADS)
                second = success(await app.engine.start(queued, id="queued"))
                third = success(await app.engine.start(queued, id="cancelled"))
                await world.clock.advance(5_000)  # its time does not run while it waits
                assert begun == []
                assert await app.steps("queued") == {}
                assert await app.engine.cancel("cancelled") == Success(None)
                assert await ended(third) == Failure(RunCancelled("cancelled"))
            assert await ended(second) == Success("late")
            assert await ended(first) == Success(THREADS)
            assert begun == ["late"]
            assert (await app.steps("queued"))["late"].attempt == 1

    async def test_a_step_that_exits_has_failed(self, world: EngineWorld) -> None:
        def leave() -> None:
            sys.exit("bye")

        async def leave_later() -> None:
            sys.exit(3)

        @workflow
        async def leaving(run: Run) -> list[str]:
            told: list[str] = []
            for key, fn in (("thread", leave), ("loop", leave_later)):
                try:
                    await run.step(key, fn)
                except StepFailed as failed:
                    told.append(failed.error.message)
            return told

        async with world.engine(leaving) as app:
            handle = success(await app.engine.start(leaving, id="r"))
            told = success(await ended(handle))
        assert [text.partition(";")[0] for text in told] == [
            "the step called sys.exit('bye')",
            "the step called sys.exit(3)",
        ]

    async def test_a_function_of_a_store_call_that_exits_fails_the_call(self, world: EngineWorld) -> None:
        def leave(_: Chat) -> None:
            sys.exit("bye")

        def leave_when_found(chat: Chat) -> bool | None:
            return sys.exit(3) if chat["messages"] else None

        def make() -> Chat:
            sys.exit("no state")

        @workflow
        async def leaving(run: Run) -> list[str]:
            store = run.store(chats, "c")
            told: list[str] = []
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "create": lambda: run.store(chats, "other").get_or_create("create", make),
                "update": lambda: store.update("update", leave),
                "select": lambda: store.select("select", leave),
                "now": lambda: store.take_now("now", lambda _: True, lambda chat, _: leave(chat)),
                "when": lambda: store.when("when", leave_when_found),
                "take": lambda: store.take("take", leave_when_found, lambda chat, _: None),
            }
            for key, call in calls.items():
                try:
                    _ = await call()
                except StepFailed as failed:
                    told.append(f"{key}: {failed.error.type}: {failed.error.message}")
            return told

        async with world.engine(leaving) as app:
            _ = success(await app.store.get_or_create(chats, "c", empty))
            handle = success(await app.engine.start(leaving, id="r"))
            await app.waits_for("r", "'when'")
            _ = success(await app.store.update(chats, "c", append("x")))
            told = success(await ended(handle))
            assert success(await app.ledger.waiters()) == ()
        assert [text.partition(";")[0] for text in told] == [
            "create: RuntimeError: a function of 'create' called sys.exit('no state')",
            "update: RuntimeError: a function of 'update' called sys.exit('bye')",
            "select: RuntimeError: a function of 'select' called sys.exit('bye')",
            "now: RuntimeError: a function of 'now' called sys.exit('bye')",
            "when: RuntimeError: a function of 'when' called sys.exit(3)",
            "take: RuntimeError: a function of 'take' called sys.exit(3)",
        ]

    async def test_what_was_unwrapped_is_told(self, world: EngineWorld) -> None:
        @workflow
        async def careless(run: Run) -> int:
            found: Outcome[int, StoreNotFound] = Failure(StoreNotFound(StoreKey("orders", "o-1")))
            return found.unwrap()

        async with world.engine(careless) as app:
            handle = success(await app.engine.start(careless, id="r"))
            failed = failure(await ended(handle))
        assert isinstance(failed, RunFailed)
        assert failed.error.type == "UnwrapFailedError"
        assert "StoreNotFound" in failed.error.message
        assert "o-1" in failed.error.message
