"""Runs over a ledger and stores that fail, are swapped, or are closed in the middle of everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from stepwell import (
    Failure,
    Ledger,
    Run,
    StepFailed,
    Success,
    Unavailable,
    workflow,
)
from stepwell.core.lease import LEASE_MS
from stepwell.layers import store as stores

from .engine_kinds import EXPECTED, AllKinds, Applied, Dying, FailingReads, Holding, Nth, check_record, far
from .engine_world import NOW_MS, EngineWorld, ended, failure, success, until
from .store_doubles import DictStore, PlainStore, given_store
from .store_world import Chat, append, chats, empty, ids_of


class EngineFaultsContract:
    # --- a ledger that fails ----------------------------------------------------

    @pytest.mark.parametrize("applied", ["no", "unknown"])
    async def test_a_commit_that_fails_delays_a_run_and_changes_nothing(
        self, world: EngineWorld, applied: Applied
    ) -> None:
        kinds = AllKinds()
        flow = kinds.workflow()
        n = 0
        for n in range(1, 100):
            nth = Nth(n, applied)
            async with world.engine(drive=False) as client:
                handle = success(await client.engine.start(flow, id=f"r-{n}"))
                async with world.engine(flow, around=nth.around) as app:
                    assert await app.ended_in_time(handle) == Success(EXPECTED)
                await check_record(client, handle.id)
                kinds.check(handle.id)
            if nth.made < n:
                break
        assert 15 < n < 99

    async def test_a_read_that_fails_delays_a_run_and_changes_nothing(self, world: EngineWorld) -> None:
        kinds = AllKinds()
        flow = kinds.workflow()
        doubles: list[FailingReads] = []
        n = 0
        for n in range(1, 200):

            def around(ledger: Ledger, n: int = n) -> Ledger:
                doubles.append(FailingReads(ledger, n))
                return doubles[-1]

            async with world.engine(drive=False) as client:
                handle = success(await client.engine.start(flow, id=f"r-{n}"))
                async with world.engine(flow, around=around) as app:
                    assert await app.ended_in_time(handle) == Success(EXPECTED)
                await check_record(client, handle.id)
                kinds.check(handle.id)
            if doubles[-1].made < n:
                break
        assert 15 < n < 199

    async def test_a_start_of_unknown_fate_is_driven(self, world: EngineWorld) -> None:
        @workflow
        async def plain(run: Run) -> int:
            return await run.step("one", lambda: 1)

        async with world.engine(plain, around=Nth(1, "unknown").around) as app:
            unknown = failure(await app.engine.start(plain, id="r"))
            assert isinstance(unknown, Unavailable)
            assert unknown.applied == "unknown"
            handle = success(await app.engine.start(plain, id="r"))
            assert await app.ended_in_time(handle, by_ms=20) == Success(1)
        assert world.clock.now_ms() < NOW_MS + LEASE_MS  # its lease had not to run out for that

    async def test_a_claim_of_unknown_fate_is_driven(self, world: EngineWorld) -> None:
        @workflow
        async def plain(run: Run) -> int:
            return await run.step("one", lambda: 1)

        async with world.engine(drive=False) as client:
            handle = success(await client.engine.start(plain, id="r"))
            async with world.engine(plain, around=Nth(1, "unknown").around) as app:
                assert await app.ended_in_time(handle, by_ms=20) == Success(1)
        assert world.clock.now_ms() < NOW_MS + LEASE_MS

    async def test_a_claim_that_comes_after_the_end_takes_nothing_up(self, world: EngineWorld) -> None:
        entered: list[str] = []
        stands, go_on = asyncio.Event(), asyncio.Event()

        async def held() -> str:
            stands.set()
            await go_on.wait()
            return "held"

        @workflow
        async def plain(run: Run) -> str:
            entered.append("top")
            return await run.step("held", held)

        claim = Holding(1)
        async with world.engine(plain, around=Holding(0, renews=False).around) as first:
            handle = success(await first.engine.start(plain, id="r"))
            await until(stands.is_set)
            await world.clock.advance(LEASE_MS + 1)
            async with world.engine(plain, around=claim.around) as second:
                await second.advance_until(lambda: claim.made == 1, by_ms=20)
                go_on.set()
                assert await ended(handle) == Success("held")
                before = await first.row("r")
                claim.go_on.set()
                await second.clock.advance(60_000)
                assert await first.row("r") == before
        assert entered == ["top"]

    # --- closing in the middle --------------------------------------------------

    async def test_a_run_is_given_back_at_any_commit_and_goes_on_at_once(self, world: EngineWorld) -> None:
        kinds = AllKinds()
        flow = kinds.workflow()
        n = 0
        for n in range(1, 100):
            holding = Holding(n)
            async with world.engine(drive=False) as client:
                handle = success(await client.engine.start(flow, id=f"r-{n}"))
                async with world.engine(flow, around=holding.around) as app:
                    await app.advance_until(partial(far, client, handle.id, holding, n), by_ms=5)
                    _ = asyncio.get_running_loop().call_soon(holding.go_on.set)  # once it has begun to close
                row = await client.row(handle.id)
                assert row.owner is None
                assert row.state in ("waiting", "completed", "pending")
                was_completed = row.state == "completed"
                async with world.engine(flow) as app:
                    assert await app.ended_in_time(handle) == Success(EXPECTED)
                await check_record(client, handle.id)
                kinds.check(handle.id)
            if was_completed:
                break
        assert 15 < n < 99

    async def test_a_run_is_taken_over_at_any_commit_and_repeats_no_recorded_step(self, world: EngineWorld) -> None:
        kinds = AllKinds()
        flow = kinds.workflow()
        n = 0
        for n in range(1, 100):
            recorded: Counter[str] = Counter()
            dying = Dying(n, recorded)
            async with world.engine(drive=False) as client:
                handle = success(await client.engine.start(flow, id=f"r-{n}"))
                async with world.engine(flow, around=dying.around) as app:
                    await app.advance_until(partial(far, client, handle.id, dying, n + 1), by_ms=5)
                before = dict(kinds.called)
                await world.clock.advance(LEASE_MS + 1)
                async with world.engine(flow) as app:
                    outcome = await app.ended_in_time(handle)
                for key in recorded & Counter(["plain", "once", "left", "right", "tidy"]):
                    assert kinds.called[handle.id, key] == before[handle.id, key]
                assert kinds.called[handle.id, "once"] == 1
                unknown = isinstance(outcome, Failure)
                assert outcome == Success(EXPECTED) or "'once' was cut off" in repr(outcome)
                if not unknown:
                    await check_record(client, handle.id)
            if not dying.is_dead:
                break
        assert 15 < n < 99

    # --- other stores -----------------------------------------------------------

    async def test_a_store_with_the_calls_of_the_contract_only_is_honoured(self, world: EngineWorld) -> None:
        kinds = AllKinds()
        flow = kinds.workflow()
        made: list[PlainStore] = []
        n = 0
        for n in range(1, 100):
            nth = Nth(n, "unknown")
            async with world.engine(drive=False) as client:
                handle = success(await client.engine.start(flow, id=f"r-{n}"))
                made.append(PlainStore(client.store))
                async with world.engine(flow, around=nth.around, store=given_store(made[-1])) as app:
                    assert await app.ended_in_time(handle) == Success(EXPECTED)
                await check_record(client, handle.id)
                kinds.check(handle.id)
                assert made[-1].calls["update"] >= 2
            if nth.made < n:
                break
        assert 15 < n < 99

    async def test_the_state_of_a_store_with_its_own_storage_is_replayed(self, world: EngineWorld) -> None:
        seen: list[list[list[str]]] = []

        @workflow
        async def chat(run: Run) -> int:
            store = run.store(chats, "c")
            created = success(await store.get_or_create("create", empty))
            updated = success(await store.update("append", append("x")))
            read = success(await store.get("read"))
            seen.append([ids_of(one.state) for one in (created, updated, read)])
            await run.sleep("pause", 60)
            return read.version

        held = DictStore()
        async with world.engine(chat, store=given_store(held)) as app:
            handle = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
            assert success(await app.ledger.tip(chats.key("c"))) is None
        held.state = None
        async with world.engine(chat, store=given_store(held)) as app:
            assert await app.result_in_time(handle.id) == Success(1)
        assert seen == [[[], ["x"], ["x"]]] * 2

    async def test_without_stores_a_run_waits_and_nothing_is_lost(self, world: EngineWorld) -> None:
        called: list[str] = []

        @workflow
        async def chat(run: Run) -> list[str]:
            await run.step("before", called.append, "before")
            return ids_of(success(await run.store(chats, "c").update("append", append("x"))).state)

        async with world.engine(chat) as app:
            _ = await app.store.get_or_create(chats, "c", empty)
        async with world.engine(chat, store=stores.layer_noop()) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await until(lambda: called == ["before"])
            await app.clock.advance(120_000)
            assert (await app.status("r")).state == "running"
        async with world.engine(chat) as app:
            assert await app.result_in_time("r") == Success(["x"])
        assert called == ["before"]

    async def test_a_run_that_waits_for_a_store_can_be_cancelled(self, world: EngineWorld) -> None:
        @workflow
        async def chat(run: Run) -> None:
            await run.store(chats, "c").update("append", append("x"))

        async with world.engine(chat, store=stores.layer_noop()) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await app.clock.advance(1_000)
            _ = success(await app.engine.cancel("r"))
            assert (await app.becomes("r", "cancelled")).problem is None

    async def test_an_error_of_an_updater_is_recorded(self, world: EngineWorld) -> None:
        caught: list[Exception] = []
        ran: list[str] = []

        def overdraw(chat: Chat) -> None:
            ran.append("overdraw")
            raise ValueError("no funds")

        async def wrong(chat: Chat) -> None:
            raise AssertionError("an async updater is not run")

        def missing(chat: Chat) -> str:
            ran.append("missing")
            return str(chat["nothing"])  # type: ignore[typeddict-item]  # pyright: ignore[reportUnknownArgumentType, reportGeneralTypeIssues]

        @workflow
        async def careless(run: Run) -> None:
            store = run.store(chats, "c")
            _ = await store.get_or_create("create", empty)
            calls = (
                store.update("overdraw", overdraw),
                store.select("missing", missing),
                store.update("async", wrong),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            )
            for call in calls:
                try:
                    _ = await call
                except (StepFailed, TypeError) as error:
                    caught.append(error)
            await run.sleep("pause", 60)

        async with world.engine(careless) as app:
            handle = success(await app.engine.start(careless, id="r"))
            await app.waits_for("r", "'pause'")
            assert success(await app.store.get(chats, "c")).version == 0
        before = list(ran)
        async with world.engine(careless) as app:
            assert await app.result_in_time(handle.id) == Success(None)
        assert ran == before
        assert [type(error).__name__ for error in caught] == ["StepFailed", "StepFailed", "TypeError"] * 2
        assert [str(error) for error in caught[:3]] == [str(error) for error in caught[3:]]
        assert "ValueError: no funds" in str(caught[0])
        assert "KeyError: 'nothing'" in str(caught[1])
