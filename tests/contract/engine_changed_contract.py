"""Runs whose keys were renamed, and how stuck and failed runs are taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from stepwell import AnyWorkflow, Run, RunFailed, RunNotFound, StepFailed, Success, workflow
from stepwell.core.lease import LEASE_MS
from stepwell.layers.driver.catch_up import PATIENCE_MS

from .engine_kinds import Deaf, crash
from .engine_world import EngineWorld, Opened, ended, failure, success, until
from .store_world import append, chats, empty, ids_of


class Charges:
    """A shop whose code is changed while its runs are under way, and what it did outside."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def charge(self, what: str) -> str:
        self.called.append(what)
        return f"{what}: {len(self.called)}"

    def audit(self, what: str) -> None:
        self.called.append(f"audit {what}")

    def flow(self, key: str, *, before: str | None = None) -> AnyWorkflow:
        @workflow(name="shop")
        async def shop(run: Run) -> str:
            if before is not None:
                await run.step(before, self.audit, before)
            receipt = await run.step(key, self.charge, "order", mode="at_most_once")
            await run.sleep("nap", 1)
            return receipt

        return shop


async def start(world: EngineWorld, flow: AnyWorkflow) -> None:
    """A run that has come to its nap when its process was killed."""
    async with world.engine(flow, around=Deaf) as app:
        _ = success(await app.engine.start(flow, id="r"))
        await app.waits_for("r", "'nap'")
        await crash(app, "r")
    await world.clock.advance(LEASE_MS + 1)


async def becomes_stuck(app: Opened) -> str:
    return (await app.becomes("r", "stuck")).problem or ""


class EngineChangedContract:
    # --- renamed keys -------------------------------------------------------------

    async def test_a_renamed_step_is_not_executed_again(self, world: EngineWorld) -> None:
        shop = Charges()
        await start(world, shop.flow("charge"))
        async with world.engine(shop.flow("charge card")) as app:
            before = await app.steps("r")
            problem = await becomes_stuck(app)
            assert (
                "step 'charge' (step Charges.charge) was recorded and is not asked for; "
                "the code asks for 'charge card' (step Charges.charge)"
            ) in problem
            assert await app.steps("r") == before
        async with world.engine(shop.flow("charge")) as app:
            assert await app.engine.resume("r") == Success(None)
            assert await app.result_in_time("r") == Success("order: 1")
        assert shop.called == ["order"]

    async def test_an_attempt_that_may_have_begun_is_not_renamed_either(self, world: EngineWorld) -> None:
        began: list[str] = []

        async def charge() -> None:
            began.append("charge")
            await asyncio.Event().wait()

        def flow(key: str) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> None:
                await run.step(key, charge, mode="at_most_once")

            return flow

        async with world.engine(flow("charge"), around=Deaf) as app:
            _ = success(await app.engine.start(flow("charge"), id="r"))
            await until(lambda: began == ["charge"])
            await crash(app, "r")
        await world.clock.advance(LEASE_MS + 1)
        async with world.engine(flow("charge card")) as app:
            assert "'charge card'" in await becomes_stuck(app)
        assert began == ["charge"]

    async def test_a_step_of_another_function_may_be_inserted(self, world: EngineWorld) -> None:
        shop = Charges()
        await start(world, shop.flow("charge"))
        async with world.engine(shop.flow("charge", before="audit")) as app:
            assert await app.result_in_time("r") == Success("order: 1")
        assert shop.called == ["order", "audit audit"]

    @pytest.mark.parametrize("call", ["sleep", "store"])
    async def test_renamed_timers_and_store_calls_are_found_too(self, world: EngineWorld, call: str) -> None:
        def flow(key: str) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> None:
                if call == "sleep":
                    await run.sleep(key, 0)
                else:
                    _ = await run.store(chats, "c").update(key, append("x"))
                await run.step("pause", asyncio.Event().wait)

            return flow

        async with world.engine(flow("before"), around=Deaf) as app:
            _ = await app.store.get_or_create(chats, "c", empty)
            _ = success(await app.engine.start(flow("before"), id="r"))

            async def is_recorded() -> bool:
                return "before" in await app.steps("r")

            await until(is_recorded)
            await crash(app, "r")
        await world.clock.advance(LEASE_MS + 1)
        async with world.engine(flow("after")) as app:
            problem = await becomes_stuck(app)
            assert "step 'before' (" in problem
            assert "the code asks for 'after' (" in problem
            tip = success(await app.store.get(chats, "c"))
            assert ids_of(tip.state) == ([] if call == "sleep" else ["x"])

    async def test_a_renamed_step_in_a_branch_is_found_once_the_others_have_caught_up(self, world: EngineWorld) -> None:
        called: list[str] = []

        async def note(name: str) -> None:
            called.append(name)

        def flow(key: str) -> AnyWorkflow:
            async def branch(run: Run, *keys: str) -> None:
                for name in keys:
                    await run.step(name, note, name)
                await run.sleep(f"nap after {keys[-1]}", 60)

            @workflow(name="flow")
            async def flow(run: Run) -> None:
                await run.gather(branch(run, key), branch(run, "b1", "b2"), branch(run, "c1"))

            return flow

        async with world.engine(flow("a1")) as app:
            _ = success(await app.engine.start(flow("a1"), id="r"))
            await app.waits_for("r", "'nap after b2'")
        async with world.engine(flow("a renamed")) as app:
            await app.clock.advance(60_000)
            assert "step 'a1' (step " in await becomes_stuck(app)
        assert sorted(called) == ["a1", "b1", "b2", "c1"]

    # --- no false alarm -----------------------------------------------------------

    async def test_a_new_call_waits_for_a_branch_that_has_yet_to_ask_for_one_like_it(self, world: EngineWorld) -> None:
        """One branch stands before its next call while the other, by a step that was inserted, is late to its own."""
        called: list[str] = []
        go_on = asyncio.Event()

        async def note(name: str) -> str:
            called.append(name)
            if name == "a2" and called.count("a2") == 1:
                await asyncio.Event().wait()
            return name

        async def inserted() -> None:
            called.append("inserted")
            await go_on.wait()

        def flow(more: bool) -> AnyWorkflow:
            async def left(run: Run) -> list[str]:
                return [await run.step("a1", note, "a1"), await run.step("a2", note, "a2")]

            async def right(run: Run) -> list[str]:
                if more:
                    await run.step("inserted", inserted)
                done = [await run.step("b1", note, "b1"), await run.step("b2", note, "b2")]
                await run.sleep("nap", 1)
                return done

            @workflow(name="flow")
            async def flow(run: Run) -> list[list[str]]:
                return list(await run.gather(left(run), right(run)))

            return flow

        async with world.engine(flow(False), around=Deaf) as app:
            _ = success(await app.engine.start(flow(False), id="r"))

            async def is_far() -> bool:
                return "nap" in await app.steps("r") and "a2" in called

            await until(is_far)
            await crash(app, "r")
        await world.clock.advance(LEASE_MS + 1)
        async with world.engine(flow(True)) as app:
            await until(lambda: "inserted" in called)
            await app.clock.advance(PATIENCE_MS + 1)
            assert (await app.status("r")).state == "running"
            assert called.count("a2") == 1
            go_on.set()
            assert await app.result_in_time("r") == Success([["a1", "a2"], ["b1", "b2"]])
        assert sorted(called) == ["a1", "a2", "a2", "b1", "b2", "inserted"]

    async def test_a_branch_that_waits_for_something_else_is_waited_for_within_bounds(self, world: EngineWorld) -> None:
        shop = Charges()

        def flow(key: str) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> None:
                was_charged = asyncio.Event()

                async def left() -> None:
                    await run.step(key, shop.charge, "order")
                    was_charged.set()
                    await run.sleep("nap", 60)

                async def right() -> None:
                    await was_charged.wait()

                await run.gather(left(), right())

            return flow

        await start(world, flow("charge"))
        async with world.engine(flow("charge card")) as app:
            await app.advance_until(lambda: _is(app, "stuck"))
            assert "'charge card'" in await becomes_stuck(app)
        assert shop.called == ["order"]

    async def test_cancellation_reaches_a_call_that_is_held_back(self, world: EngineWorld) -> None:
        shop = Charges()
        began: list[str] = []

        async def inserted() -> None:
            began.append("inserted")
            await asyncio.Event().wait()

        def flow(key: str) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> None:
                async def left() -> None:
                    await run.step(key, shop.charge, "order")
                    await run.sleep("nap", 60)

                async def right() -> None:
                    if key != "charge":
                        await run.step("inserted", inserted)
                    await run.step("later", list[str])

                await run.gather(left(), right())

            return flow

        await start(world, flow("charge"))
        async with world.engine(flow("charge card")) as app:
            await until(lambda: began == ["inserted"])
            assert await app.engine.cancel("r") == Success(None)
            await app.becomes("r", "cancelled")
        assert shop.called == ["order"]

    # --- dropping -------------------------------------------------------------------

    async def test_a_dropped_step_need_not_be_asked_for(self, world: EngineWorld) -> None:
        shop = Charges()
        await start(world, shop.flow("charge"))
        async with world.engine(shop.flow("charge card")) as app:
            _ = await becomes_stuck(app)
            assert await app.engine.resume("r", drop=["charge"]) == Success(None)
            assert await app.result_in_time("r") == Success("order: 2")
            row = (await app.steps("r"))["charge"]
            assert (row.status, row.position, row.value) == ("dropped", None, b'"order: 1"')
        assert shop.called == ["order", "order"]

    async def test_a_dropped_step_is_made_anew_also_as_another_kind_of_call(self, world: EngineWorld) -> None:
        called: list[str] = []

        def flow(as_step: bool) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> str:
                if as_step:
                    await run.step("key", called.append, "key")
                else:
                    await run.sleep("key", 0)
                await run.step("next", called.append, "next")
                await run.sleep("nap", 1)
                return "there"

            return flow

        await start(world, flow(False))
        async with world.engine(flow(True)) as app:
            assert "recorded as sleep" in await becomes_stuck(app)
            assert await app.engine.resume("r", drop=["key"]) == Success(None)
            assert await app.result_in_time("r") == Success("there")
            steps = await app.steps("r")
            assert (steps["key"].kind, steps["key"].status, steps["key"].position) == ("step", "done", 3)
        assert called == ["next", "key"]

    async def test_a_key_that_was_not_recorded_cannot_be_dropped(self, world: EngineWorld) -> None:
        shop = Charges()
        await start(world, shop.flow("charge"))
        async with world.engine(shop.flow("charge card")) as app:
            _ = await becomes_stuck(app)
            before = await app.row("r"), await app.steps("r")
            with pytest.raises(ValueError, match=r"'r' has recorded nothing under 'other'.* 'charge', 'nap'"):
                _ = await app.engine.resume("r", drop=["charge", "other"])
            with pytest.raises(TypeError, match=r"write drop=\['charge'\]"):
                _ = await app.engine.resume("r", drop="charge")
            assert (await app.row("r"), await app.steps("r")) == before

    async def test_a_change_of_a_store_is_not_applied_again_when_its_step_is_dropped(self, world: EngineWorld) -> None:
        is_broken = [True]

        @workflow
        async def flow(run: Run) -> list[str]:
            updated = success(await run.store(chats, "c").update("append", append("x")))
            if is_broken[0]:
                raise RuntimeError("no")
            return ids_of(updated.state)

        async with world.engine(flow) as app:
            _ = await app.store.get_or_create(chats, "c", empty)
            handle = success(await app.engine.start(flow, id="r"))
            assert isinstance(failure(await ended(handle)), RunFailed)
            is_broken[0] = False
            assert await app.engine.resume("r", drop=["append"], reopen=True) == Success(None)
            assert await ended(handle) == Success(["x"])
            assert ids_of(success(await app.store.get(chats, "c")).state) == ["x"]

    # --- reopening ------------------------------------------------------------------

    async def test_a_failed_run_is_reopened_with_what_it_has_recorded(self, world: EngineWorld) -> None:
        called: list[str] = []

        def flow(mended: bool) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> str:
                await run.step("once", called.append, "once")
                if not mended:
                    raise KeyError("a bug")
                await run.step("after", called.append, "after")
                return "there"

            return flow

        async with world.engine(flow(False)) as app:
            handle = success(await app.engine.start(flow(False), id="r"))
            assert isinstance(failure(await ended(handle)), RunFailed)
        async with world.engine(drive=False) as client:
            before = await client.row("r")
            assert await client.engine.resume("r") == Success(None)
            assert await client.engine.resume("r", drop=["once"]) == Success(None)
            assert await client.row("r") == before
            assert await client.engine.resume("r", reopen=True) == Success(None)
            row = await client.row("r")
            assert (row.state, row.outcome, row.problem, row.fence) == ("waiting", None, None, before.fence + 1)
        async with world.engine(flow(True)) as app:
            assert await app.result_in_time("r") == Success("there")
        assert called == ["once", "after"]

    async def test_a_failed_step_is_made_anew_where_it_is_dropped(self, world: EngineWorld) -> None:
        attempts: list[int] = []

        def fetch() -> str:
            attempts.append(1)
            if len(attempts) == 1:
                raise OSError("no network")
            return "fetched"

        @workflow
        async def flow(run: Run) -> str:
            return await run.step("fetch", fetch, mode="at_most_once")

        async with world.engine(flow) as app:
            handle = success(await app.engine.start(flow, id="r"))
            assert isinstance(failure(await ended(handle)), RunFailed)
            assert await app.engine.resume("r", reopen=True) == Success(None)
            outcome = failure(await app.result_in_time("r"))
            assert isinstance(outcome, RunFailed)
            assert outcome.error.type == StepFailed.__name__
            assert await app.engine.resume("r", drop=["fetch"], reopen=True) == Success(None)
            assert await app.result_in_time("r") == Success("fetched")
            assert (await app.steps("r"))["fetch"].attempt == 1
        assert len(attempts) == 2

    async def test_completed_and_cancelled_runs_are_never_reopened(self, world: EngineWorld) -> None:
        @workflow
        async def flow(run: Run, naps: bool) -> None:
            await run.step("note", list[str])
            if naps:
                await run.sleep("nap", 60)

        async with world.engine(flow) as app:
            _ = await ended(success(await app.engine.start(flow, False, id="completed")))
            _ = success(await app.engine.start(flow, True, id="cancelled"))
            await app.waits_for("cancelled", "'nap'")
            _ = await app.engine.cancel("cancelled")
            await app.becomes("cancelled", "cancelled")
            for run_id in ("completed", "cancelled"):
                before = await app.row(run_id), await app.steps(run_id)
                assert await app.engine.resume(run_id, drop=["note"], reopen=True) == Success(None)
                assert (await app.row(run_id), await app.steps(run_id)) == before
            assert failure(await app.engine.resume("nobody", reopen=True)) == RunNotFound("nobody")

    async def test_what_was_cleaned_up_when_a_run_failed_is_not_cleaned_up_again(self, world: EngineWorld) -> None:
        called: list[str] = []
        is_broken = [True]

        @workflow
        async def flow(run: Run) -> str:
            await run.defer("tidy", called.append, "tidy")
            if is_broken[0]:
                raise RuntimeError("no")
            await run.step("work", called.append, "work")
            return "done"

        async with world.engine(flow) as app:
            handle = success(await app.engine.start(flow, id="r"))
            assert isinstance(failure(await ended(handle)), RunFailed)
            is_broken[0] = False
            assert await app.engine.resume("r", reopen=True) == Success(None)
            assert await ended(handle) == Success("done")
        assert called == ["tidy", "work"]


def _is(app: Opened, state: str) -> Awaitable[bool]:
    async def stands() -> bool:
        return (await app.status("r")).state == state

    return stands()
