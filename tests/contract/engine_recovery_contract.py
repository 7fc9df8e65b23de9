"""Runs whose owners are lost, slow or kill their process, and runs whose code was changed."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import AnyWorkflow, Run, RunFailed, StepFailed, Success, define_store, workflow
from stepwell.core.lease import CRASHES, LEASE_MS, RENEW_MS
from stepwell.layers.driver.worker import SLICE

from .engine_kinds import EXPECTED, AllKinds, Deaf, Holding, crash, drivers, far
from .engine_world import EngineWorld, failure, success, until
from .store_world import chats, empty

others = define_store("chat beside", dict[str, int])


class EngineRecoveryContract:
    # --- owners -----------------------------------------------------------------

    async def test_an_owner_that_slept_through_its_lease_writes_nothing(self, world: EngineWorld) -> None:
        kinds = AllKinds()
        flow = kinds.workflow()
        n = 0
        for n in range(1, 100):
            holding = Holding(n, renews=False)
            async with world.engine(drive=False) as client, world.engine(flow, around=holding.around) as slow:
                handle = success(await client.engine.start(flow, id=f"r-{n}"))
                while not await far(client, handle.id, holding, n):
                    await slow.clock.advance(5)
                was_held = holding.made >= n
                if was_held:
                    await world.clock.advance(LEASE_MS + 1)
                async with world.engine(flow) as quick:
                    outcome = await quick.ended_in_time(handle)
                    after = await client.row(handle.id), await client.steps(handle.id)
                    holding.go_on.set()
                    await until(lambda id=handle.id: not drivers(id))  # type: ignore[misc]
                    assert (await client.row(handle.id), await client.steps(handle.id)) == after
                assert outcome == Success(EXPECTED) or "'once' was cut off" in repr(outcome)
                assert kinds.called[handle.id, "once"] <= 1
                assert success(await client.ledger.tip(chats.key(handle.id))) is None or outcome != Success(EXPECTED)
            if not was_held:
                break
        assert 15 < n < 99

    async def test_a_lease_is_renewed_while_its_run_is_driven(self, world: EngineWorld) -> None:
        stands, go_on = asyncio.Event(), asyncio.Event()
        entered: list[str] = []

        async def held() -> int:
            stands.set()
            await go_on.wait()
            return 7

        @workflow
        async def slow(run: Run) -> int:
            entered.append("top")
            return await run.step("held", held)

        async with world.engine(slow) as first, world.engine(slow):
            handle = success(await first.engine.start(slow, id="r"))
            await until(stands.is_set)
            for _ in range(20):
                await world.clock.advance(RENEW_MS)

                async def is_renewed() -> bool:
                    return (await first.row("r")).lease_until_ms >= world.clock.now_ms() + RENEW_MS

                await until(is_renewed)
            go_on.set()
            assert await first.ended_in_time(handle) == Success(7)
            assert (await first.row("r")).fence == 2
        assert entered == ["top"]

    async def test_a_step_that_was_executed_at_most_once_is_unknown_after_a_crash(self, world: EngineWorld) -> None:
        stands = asyncio.Event()
        called: list[int] = []
        caught: list[StepFailed] = []

        async def charge() -> None:
            called.append(1)
            stands.set()
            await asyncio.Event().wait()

        @workflow
        async def pay(run: Run) -> str:
            try:
                await run.step("charge", charge, mode="at_most_once")
            except StepFailed as failed:
                caught.append(failed)
                await run.sleep("pause", 60)
                return failed.kind
            return "charged"

        async with world.engine(pay, around=Deaf) as app:
            handle = success(await app.engine.start(pay, id="r"))
            await until(stands.is_set)
            await crash(app, "r")
        await world.clock.advance(LEASE_MS + 1)
        async with world.engine(pay) as app:
            await app.waits_for("r", "'pause'")
        async with world.engine(pay) as app:
            assert await app.result_in_time(handle.id) == Success("unknown")
        assert called == [1]
        assert len(caught) == 2
        assert caught[0] == caught[1]
        assert "'charge'" in caught[0].error.message

    async def test_a_step_that_is_executed_at_least_once_is_repeated_after_a_crash(self, world: EngineWorld) -> None:
        called: list[int] = []
        stands = asyncio.Event()

        async def held() -> int:
            called.append(1)
            if len(called) == 1:
                stands.set()
                await asyncio.Event().wait()
            return len(called)

        @workflow
        async def plain(run: Run) -> int:
            return await run.step("held", held)

        async with world.engine(plain, around=Deaf) as app:
            handle = success(await app.engine.start(plain, id="r"))
            await until(stands.is_set)
            await crash(app, "r")
        async with world.engine(plain) as app:
            await app.clock.advance(LEASE_MS - 1_000)
            assert called == [1]
            await app.clock.advance(1_001)
            assert await app.result_in_time(handle.id) == Success(2)

    async def test_a_run_that_kills_its_process_is_stopped(self, world: EngineWorld) -> None:
        called: list[str] = []

        async def kill() -> str:
            called.append("kill")
            if len(called) <= CRASHES:
                await asyncio.Event().wait()
            return "mended"

        @workflow
        async def poisoned(run: Run) -> str:
            return await run.step("kill", kill)

        for attempt in range(1, CRASHES + 1):
            async with world.engine(poisoned, around=Deaf) as app:
                if attempt == 1:
                    _ = success(await app.engine.start(poisoned, id="r"))
                await until(lambda attempt=attempt: len(called) == attempt)  # type: ignore[misc]
                await crash(app, "r")
            await world.clock.advance(LEASE_MS + 1)
        async with world.engine(poisoned) as app:
            problem = (await app.becomes("r", "stuck")).problem or ""
            assert f"{CRASHES} times in a row" in problem
            assert "resume" in problem
            await app.clock.advance(120_000)
            assert (await app.status("r")).state == "stuck"
            assert await app.engine.resume("r") == Success(None)
            assert await app.result_in_time("r") == Success("mended")
        assert len(called) == CRASHES + 1 == 4

    async def test_progress_forgives_what_was_before(self, world: EngineWorld) -> None:
        called: list[str] = []

        async def kill(name: str) -> str:
            called.append(name)
            if called.count(name) < CRASHES:
                await asyncio.Event().wait()
            return name

        @workflow
        async def unlucky(run: Run) -> list[str]:
            return [await run.step(name, kill, name) for name in ("one", "two", "three")]

        handled = False
        for count in (1, 2, 4, 5, 7, 8):
            async with world.engine(unlucky, around=Deaf) as app:
                if not handled:
                    _ = success(await app.engine.start(unlucky, id="r"))
                    handled = True
                await until(lambda count=count: len(called) == count)  # type: ignore[misc]
                await crash(app, "r")
            await world.clock.advance(LEASE_MS + 1)
        async with world.engine(unlucky) as app:
            assert await app.result_in_time("r") == Success(["one", "two", "three"])

    async def test_restarts_while_a_run_waits_are_no_crashes(self, world: EngineWorld) -> None:
        @workflow
        async def patient(run: Run) -> str:
            await run.gather(run.sleep("short", 1), run.sleep("long", 120))
            return "there"

        async with world.engine(patient, around=Deaf) as app:
            _ = success(await app.engine.start(patient, id="r"))
            await app.waits_for("r", "'long'")
            await app.clock.advance(1_000)

            async def short_is_over() -> bool:
                status = await app.status("r")
                return status.state == "waiting" and "'short'" not in (status.waiting_on or "")

            await until(short_is_over)
            await crash(app, "r")
        for _ in range(CRASHES + 1):
            await world.clock.advance(LEASE_MS + 1)
            async with world.engine(patient, around=Deaf) as app:
                await until(lambda: len(drivers("r")) == 1)
                await app.becomes("r", "waiting")
                await crash(app, "r")
        await world.clock.advance(LEASE_MS + 1)
        async with world.engine(patient) as app:
            await app.becomes("r", "waiting")
            await app.clock.advance(120_000)
            assert await app.result_in_time("r") == Success("there")

    # --- due runs ---------------------------------------------------------------

    async def test_due_runs_begin_oldest_first_in_slices(self, world: EngineWorld) -> None:
        entered: list[int] = []

        @workflow
        async def plain(run: Run, n: int) -> None:
            entered.append(n)

        count = SLICE + 44
        async with world.engine(drive=False) as client:
            for n in range(count):
                _ = success(await client.engine.start(plain, n, id=f"r-{n}"))
                await world.clock.advance(1)
        async with world.engine(plain):
            await until(lambda: len(entered) == count)
        assert entered == list(range(count))

    async def test_overdue_timers_fire_in_the_order_of_their_deadlines(self, world: EngineWorld) -> None:
        woken: list[int] = []

        async def note(seconds: int) -> None:  # on the loop: threads would race each other
            woken.append(seconds)

        @workflow
        async def napping(run: Run, seconds: int) -> None:
            await run.sleep("nap", seconds)
            await run.step("note", note, seconds)

        naps = [7, 3, 9, 1, 5]
        async with world.engine(napping) as app:
            for seconds in naps:
                _ = success(await app.engine.start(napping, seconds, id=f"r-{seconds}"))
                await app.waits_for(f"r-{seconds}", "'nap'")
        await world.clock.advance(60_000)
        async with world.engine(napping):
            await until(lambda: len(woken) == len(naps))
        assert woken == sorted(naps)

    async def test_a_parked_run_is_woken_in_time(self, world: EngineWorld) -> None:
        @workflow
        async def napping(run: Run) -> None:
            await run.sleep("nap", 20)

        async with world.engine(napping) as app:
            _ = success(await app.engine.start(napping, id="r"))
            await app.waits_for("r", "'nap'")
        async with world.engine(napping) as app:
            row = await app.row("r")
            assert (row.owner, row.wake_at_ms) == (None, world.clock.now_ms() + 20_000)
            await app.clock.advance(19_999)
            assert (await app.row("r")).owner is None
            await app.clock.advance(1)
            await app.becomes("r", "completed")

    async def test_a_run_with_work_left_is_given_back_as_due(self, world: EngineWorld) -> None:
        stands, go_on = asyncio.Event(), asyncio.Event()

        async def held() -> str:
            stands.set()
            await go_on.wait()
            return "held"

        async def working(run: Run) -> list[str]:
            return [await run.step("held", held), await run.step("next", lambda: "next")]

        @workflow
        async def both(run: Run) -> list[str]:
            done, _ = await run.gather(working(run), run.sleep("long", 120))
            return done

        async with world.engine(both) as app:
            _ = success(await app.engine.start(both, id="r"))
            await until(stands.is_set)
            assert (await app.status("r")).state == "running"
            _ = asyncio.get_running_loop().call_soon(go_on.set)
        async with world.engine(both) as app:
            assert (await app.row("r")).wake_at_ms is None

            async def next_is_done() -> bool:
                return "next" in await app.steps("r")

            await until(next_is_done)
            await app.becomes("r", "waiting")
            await app.clock.advance(120_000)
            assert await app.result_in_time("r") == Success(["held", "next"])

    # --- changed code -----------------------------------------------------------

    @pytest.mark.parametrize("change", ["kind", "function", "store", "removed", "timer to step"])
    async def test_changed_code_makes_a_run_stuck_until_it_is_back(self, world: EngineWorld, change: str) -> None:
        called: list[str] = []

        def first() -> str:
            called.append("first")
            return "first"

        def second() -> str:
            called.append("second")
            return "second"

        def flow(changed: str) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> str:
                if changed != "removed":
                    if changed == "kind":
                        await run.sleep("key", 1)
                    else:
                        await run.step("key", second if changed == "function" else first)
                if changed == "store":
                    _ = await run.store(others, "c").get_or_create("create", {})
                else:
                    _ = await run.store(chats, "c").get_or_create("create", empty)
                if changed == "timer to step":
                    await run.step("nap", first)
                else:
                    await run.sleep("nap", 60)
                return "there"

            return flow

        async with world.engine(flow("not")) as app:
            _ = success(await app.engine.start(flow("not"), id="r"))
            await app.waits_for("r", "'nap'")
            rows = await app.steps("r")
        async with world.engine(flow(change)) as app:
            await app.clock.advance(60_000)
            await app.becomes("r", "stuck")
            problem = (await app.status("r")).problem or ""
            assert (await app.row("r")).owner is None
            await app.clock.advance(60_000)
            assert (await app.status("r")).state == "stuck"
            assert await app.engine.resume("r") == Success(None)
            await app.becomes("r", "stuck")
            if change != "removed":
                assert await app.steps("r") == rows
        match change:
            case "kind":
                assert "'key' was recorded as step " in problem
                assert "first, and the code now asks for sleep" in problem
            case "function":
                assert "first, and the code now asks for step " in problem
                assert "second" in problem
            case "store":
                assert "store.get_or_create chat/c, and the code now asks for" in problem
                assert "chat beside/c" in problem
            case "removed":
                assert "'key' (step first)" in problem
                assert "came to its end without asking for it" in problem
            case _:
                assert "'nap' was recorded as sleep" in problem
        assert "resume" in problem
        async with world.engine(flow("not")) as app:
            assert await app.engine.resume("r") == Success(None)
            assert await app.result_in_time("r") == Success("there")
        assert called == ["first"]

    async def test_arguments_that_no_longer_fit_make_a_run_stuck(self, world: EngineWorld) -> None:
        @workflow(name="flow")
        async def before(run: Run, n: str) -> str:
            return n

        @workflow(name="flow")
        async def after(run: Run, n: int) -> int:
            return n

        async with world.engine(drive=False) as client:
            _ = success(await client.engine.start(before, "seven", id="r"))
        async with world.engine(after) as app:
            problem = (await app.becomes("r", "stuck")).problem or ""
            assert "'n'" in problem
        async with world.engine(before) as app:
            assert await app.engine.resume("r") == Success(None)
            assert await app.result_in_time("r") == Success("seven")

    async def test_a_new_step_is_executed_late(self, world: EngineWorld) -> None:
        called: list[str] = []

        def flow(more: bool) -> AnyWorkflow:
            @workflow(name="flow")
            async def flow(run: Run) -> str:
                if more:
                    await run.step("new", lambda: called.append("new"))
                await run.step("old", called.append, "old")
                await run.sleep("nap", 60)
                return "there"

            return flow

        async with world.engine(flow(False)) as app:
            _ = success(await app.engine.start(flow(False), id="r"))
            await app.waits_for("r", "'nap'")
        async with world.engine(flow(True)) as app:
            assert await app.result_in_time("r") == Success("there")
        assert called == ["old", "new"]

    async def test_a_workflow_that_fails_where_its_code_was_changed_is_stuck_too(self, world: EngineWorld) -> None:
        entered: list[str] = []

        @workflow
        async def wavering(run: Run) -> None:
            entered.append("top")
            if len(entered) > 1:
                raise RuntimeError("no")
            await run.sleep("nap", 60)

        async with world.engine(wavering) as app:
            _ = success(await app.engine.start(wavering, id="r"))
            await app.waits_for("r", "'nap'")
        async with world.engine(wavering) as app:
            await app.clock.advance(60_000)
            assert "'nap'" in ((await app.becomes("r", "stuck")).problem or "")

    async def test_what_resume_is_told_of_other_runs_changes_nothing(self, world: EngineWorld) -> None:
        @workflow
        async def napping(run: Run) -> None:
            await run.sleep("nap", 60)
            raise RuntimeError("no")

        async with world.engine(napping) as app:
            handle = success(await app.engine.start(napping, id="r"))
            await app.waits_for("r", "'nap'")
            before = await app.row("r")
            assert await app.engine.resume("r") == Success(None)
            assert await app.row("r") == before
            assert isinstance(failure(await app.ended_in_time(handle)), RunFailed)
