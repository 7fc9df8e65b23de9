"""The behaviour cases of workflows that use stores, of execution and of keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import (
    Conflict,
    DuplicateKey,
    Failure,
    InvalidState,
    Outcome,
    Retention,
    Revision,
    Run,
    RunFailed,
    Snapshot,
    StepId,
    StoreNotFound,
    Success,
    Updated,
    workflow,
)
from stepwell.layers.revisions import LedgerRevisions

from .engine_world import EngineWorld, ended, failure, success
from .store_world import Chat, Counted, append, chats, empty, ids_of


class EngineCasesContract:
    # --- workflows that use stores ----------------------------------------------

    async def test_s101_a_run_creates_reads_and_updates(self, world: EngineWorld) -> None:
        seen: list[Snapshot[Chat] | Updated[Chat]] = []

        @workflow
        async def chat(run: Run) -> str:
            store = run.store(chats, "c")
            seen.append(success(await store.get_or_create("create", empty)))
            seen.append(success(await store.get("before")))
            seen.append(success(await store.update("append", append("x"))))
            seen.append(success(await store.get("after")))
            return "done"

        async with world.engine(chat) as app:
            assert await ended(success(await app.engine.start(chat, id="r"))) == Success("done")
        created, before, updated, after = seen
        assert (created.version, before.version, after.version) == (0, 0, 1)
        assert isinstance(updated, Updated)
        assert (updated.previous_version, updated.version) == (0, 1)
        assert len({one.instance_id for one in seen}) == 1
        assert [ids_of(one.state) for one in seen] == [[], [], ["x"], ["x"]]

    async def test_an_earlier_version_is_read_once_and_replayed(self, world: EngineWorld) -> None:
        seen: list[tuple[Revision, list[str]]] = []

        @workflow
        async def chat(run: Run) -> list[int]:
            store = run.store(chats, "c")
            first = success(await store.get_or_create("create", empty))
            for text in ("x", "y"):
                _ = success(await store.update(text, append(text)))
            by_number = success(await store.get("by number", version=1))
            by_revision = success(await store.get("by revision", version=Revision(first.instance_id, 0)))
            newest = success(await store.get("newest", version=2))
            seen.extend((each.revision, ids_of(each.state)) for each in (by_number, by_revision, newest))
            missing = [failure(await store.get(f"no {version}", version=version)) for version in (9, 2**63)]
            assert missing == [StoreNotFound(chats.key("c"), Revision(first.instance_id, n)) for n in (9, 2**63)]
            await run.sleep("pause", 600)
            return [by_number.version, by_revision.version, newest.version]

        async with world.engine(chat) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
            _ = success(await app.store.update(chats, "c", append("z")))
            instance = success(await app.store.get(chats, "c")).instance_id
        async with world.engine(chat) as app:
            await app.clock.advance(600_000)
            assert await app.result_in_time("r") == Success([1, 0, 2])
        expected = [
            (Revision(instance, 1), ["x"]),
            (Revision(instance, 0), list[str]()),
            (Revision(instance, 2), ["x", "y"]),
        ]
        assert seen == expected * 2

    async def test_a_version_that_was_read_is_replayed_when_it_is_kept_no_more(self, world: EngineWorld) -> None:
        @workflow
        async def chat(run: Run) -> list[str]:
            before = success(await run.store(chats, "c").get("before", version=1))
            await run.sleep("pause", 600)
            return ids_of(before.state)

        async with world.engine(chat) as app:
            _ = success(await app.store.get_or_create(chats, "c", empty()))
            for text in ("x", "y", "z"):
                _ = success(await app.store.update(chats, "c", append(text)))
            _ = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
            await app.clock.advance(120_000)
            revisions = LedgerRevisions(app.ledger, app.clock)
            _ = success(await revisions.collect(Retention(keep_revisions=1)))
            assert isinstance(await app.store.get(chats, "c", version=1), Failure)
        async with world.engine(chat) as app:
            await app.clock.advance(600_000)
            assert await app.result_in_time("r") == Success(["x"])

    @pytest.mark.parametrize("version", [-1, True, 1.0, "1"], ids=repr)
    async def test_what_is_no_version_is_misuse_in_a_run(self, world: EngineWorld, version: Any) -> None:
        @workflow
        async def chat(run: Run) -> str:
            try:
                _ = await run.store(chats, "c").get("get", version=version)
            except (TypeError, ValueError) as error:
                return str(error)
            return "nothing was said"

        async with world.engine(chat) as app:
            told = success(await ended(success(await app.engine.start(chat, id="r"))))
            assert told.startswith("version")
            assert await app.steps("r") == {}

    async def test_s102_a_replay_appends_nothing(self, world: EngineWorld) -> None:
        entered: list[str] = []

        @workflow
        async def chat(run: Run) -> tuple[int, list[str]]:
            entered.append("top")
            store = run.store(chats, "c")
            _ = await store.get_or_create("create", empty)
            _ = await store.update("append", append("x"))
            await run.sleep("pause", 60)
            snapshot = success(await store.get("after"))
            return snapshot.version, ids_of(snapshot.state)

        async with world.engine(chat) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(chat) as app:
            await app.clock.advance(60_000)
            handle = success(await app.engine.start(chat, id="r"))
            assert await app.ended_in_time(handle) == Success((1, ["x"]))
        assert entered == ["top", "top"]

    async def test_s103_a_conditional_update_conflicts_in_every_replay(self, world: EngineWorld) -> None:
        seen: list[object] = []

        @workflow
        async def chat(run: Run) -> bool:
            store = run.store(chats, "c")
            _ = await store.get_or_create("create", empty)
            snapshot = success(await store.get("read"))
            _ = await store.update("between", append("x"))
            outcome = await store.update_from("conditional", snapshot, append("y"))
            seen.append(outcome)
            await run.sleep("pause", 60)
            conflict = failure(outcome)
            assert isinstance(conflict, Conflict)
            assert (conflict.expected.version, conflict.actual.version) == (0, 1)
            return conflict.expected.instance_id == conflict.actual.instance_id == snapshot.instance_id

        async with world.engine(chat) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(chat) as app:
            handle = success(await app.engine.start(chat, id="r"))
            assert await app.ended_in_time(handle) == Success(True)
            assert ids_of(success(await app.store.get(chats, "c")).state) == ["x"]
        assert len(seen) == 2
        assert all(outcome == seen[0] for outcome in seen)

    async def test_s105_an_invalid_initial_is_the_recorded_outcome_of_its_step(self, world: EngineWorld) -> None:
        seen: list[object] = []

        @workflow
        async def chat(run: Run) -> bool:
            outcome = await run.store(chats, "c").get_or_create("create", _wrong())
            seen.append(outcome)
            await run.sleep("pause", 60)
            invalid = failure(outcome)
            return isinstance(invalid, InvalidState) and invalid.key == chats.key("c") and invalid.issues != ()

        async with world.engine(chat) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
            assert success(await app.store.list_ids(chats)) == ()
        async with world.engine(chat) as app:
            handle = success(await app.engine.start(chat, id="r"))
            assert await app.ended_in_time(handle) == Success(True)
            assert success(await app.store.list_ids(chats)) == ()
        assert len(seen) == 2
        assert all(outcome == seen[0] for outcome in seen)

    async def test_s106_an_invalid_update_can_be_handled(self, world: EngineWorld) -> None:
        def spoil(chat: Chat) -> None:
            chat["messages"].append({"id": 42})  # type: ignore[typeddict-item]  # pyright: ignore[reportArgumentType]

        @workflow
        async def chat(run: Run) -> str:
            store = run.store(chats, "c")
            _ = await store.get_or_create("create", empty)
            match await store.update("spoil", spoil):
                case Failure(InvalidState(key, issues)):
                    return f"{key} {issues[0].path}"
                case _:
                    return "valid"

        async with world.engine(chat) as app:
            handle = success(await app.engine.start(chat, id="r"))
            assert await ended(handle) == Success("chat/c ('messages', 0, 'id')")
            stored = success(await app.store.get(chats, "c"))
            assert (stored.state, stored.version) == (empty(), 0)

    async def test_s108_a_selector_changes_a_copy(self, world: EngineWorld) -> None:
        def spoil(chat: Chat) -> int:
            chat["messages"].append({"id": "y"})
            return len(chat["messages"])

        @workflow
        async def chat(run: Run) -> Outcome[int, StoreNotFound | InvalidState]:
            store = run.store(chats, "c")
            _ = await store.get_or_create("create", empty)
            return await store.select("select", spoil)

        async with world.engine(chat) as app:
            assert await ended(success(await app.engine.start(chat, id="r"))) == Success(1)
            stored = success(await app.store.get(chats, "c"))
            assert (stored.state, stored.version) == (empty(), 0)

    async def test_s114_a_receipt_answers_for_a_step_row_that_was_lost(self, world: EngineWorld) -> None:
        updater = Counted(append("x"))

        @workflow
        async def chat(run: Run) -> tuple[int, int, list[str]]:
            updated = success(await run.store(chats, "c").update("append-once", updater))
            return updated.previous_version, updated.version, ids_of(updated.state)

        async with world.engine(drive=False) as app:
            _ = await app.store.get_or_create(chats, "c", empty)
            step = StepId("crash-replay", "append-once")
            recorded = success(await app.store.update(chats, "c", append("x"), step=step))
            _ = await app.store.update(chats, "c", append("later"))
        async with world.engine(chat) as app:
            handle = success(await app.engine.start(chat, id="crash-replay"))
            assert await ended(handle) == Success((recorded.previous_version, recorded.version, ["x"]))
            assert success(await app.store.get(chats, "c")).version == 2
        assert (recorded.version, updater.runs) == (1, 0)

    async def test_s115_a_store_is_opened_twice(self, world: EngineWorld) -> None:
        seen: list[tuple[str, str, list[str]]] = []

        @workflow
        async def chat(run: Run) -> None:
            first = run.store(chats, "c")
            created = success(await first.get_or_create("create", empty))
            _ = await first.update("append", append("x"))
            second = run.store(chats, "c")
            opened = success(await second.get_or_create("open again", empty))
            read = success(await first.get("read"))
            assert read == opened
            seen.append((created.instance_id, opened.instance_id, ids_of(opened.state)))
            await run.sleep("pause", 60)

        async with world.engine(chat) as app:
            _ = success(await app.engine.start(chat, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(chat) as app:
            handle = success(await app.engine.start(chat, id="r"))
            assert await app.ended_in_time(handle) == Success(None)
        assert len(seen) == 2
        assert all(one == seen[0] and one[0] == one[1] and one[2] == ["x"] for one in seen)

    # --- execution, keys, persistence -------------------------------------------

    async def test_s118_steps_follow_one_another(self, world: EngineWorld) -> None:
        @workflow
        async def double(run: Run) -> int:
            n = await run.step("one", lambda: 1)
            return await run.step("two", lambda n: n * 2, n)

        async with world.engine(double) as app:
            assert await ended(success(await app.engine.start(double))) == Success(2)

    async def test_s119_a_step_may_be_async(self, world: EngineWorld) -> None:
        async def doubled(n: int) -> int:
            await world.clock.sleep_until_ms(world.clock.now_ms() + 10)
            return n * 2

        @workflow
        async def double(run: Run) -> int:
            n = await run.step("one", lambda: 1)
            return await run.step("two", doubled, n)

        async with world.engine(double) as app:
            handle = success(await app.engine.start(double))
            assert await app.ended_in_time(handle) == Success(2)

    async def test_s120_a_restart_enters_the_function_again_and_only_then(self, world: EngineWorld) -> None:
        entered: list[str] = []

        @workflow
        async def plain(run: Run) -> int:
            entered.append(run.id)
            return await run.step("one", lambda: 7)

        @workflow
        async def sleeping(run: Run) -> int:
            entered.append(run.id)
            await run.sleep("pause", 0.005)
            return await run.step("one", lambda: 7)

        async with world.engine(plain, sleeping) as app:
            assert await ended(success(await app.engine.start(plain, id="plain"))) == Success(7)
            _ = success(await app.engine.start(sleeping, id="sleeping"))
            await app.waits_for("sleeping", "'pause'")
        async with world.engine(plain, sleeping) as app:
            handle = success(await app.engine.start(sleeping, id="sleeping"))
            await app.clock.advance(4)
            assert entered.count("sleeping") == 1
            await app.clock.advance(1)
            assert await ended(handle) == Success(7)
        assert entered == ["plain", "sleeping", "sleeping"]

    async def test_s122_an_argument_is_seen_and_given_back(self, world: EngineWorld) -> None:
        entered: list[dict[str, str | int]] = []

        @workflow
        async def echo(run: Run, given: dict[str, str | int]) -> dict[str, str | int]:
            entered.append(given)
            return given

        argument: dict[str, str | int] = {"foo": "bar", "count": 42}
        async with world.engine(echo) as app:
            handle = success(await app.engine.start(echo, argument))
            assert await ended(handle) == Success({"foo": "bar", "count": 42})
        assert entered == [{"foo": "bar", "count": 42}]

    async def test_s123_another_branch_after_a_restart_makes_the_run_stuck(self, world: EngineWorld) -> None:
        called: list[str] = []
        entered: list[str] = []

        def note(name: str) -> str:
            called.append(name)
            return f"the result of {name}"

        results: list[str] = []

        @workflow
        async def wavering(run: Run) -> None:
            entered.append("top")
            name = "m1" if len(entered) == 1 else "m2"
            results.append(await run.step(name, note, name))
            if name == "m1":
                await run.sleep("pause", 0.001)

        async with world.engine(wavering) as app:
            _ = success(await app.engine.start(wavering, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(wavering) as app:
            await app.clock.advance(1)
            problem = (await app.becomes("r", "stuck")).problem
        assert called.count("m1") == 1
        assert results in (["the result of m1"], ["the result of m1", "the result of m2"])
        assert problem is not None
        assert "'m1'" in problem
        assert "resume" in problem

    async def test_s124_a_key_is_used_once(self, world: EngineWorld) -> None:
        called: list[int] = []

        @workflow
        async def loop(run: Run) -> str:
            try:
                for turn in range(2):
                    await run.step("again", called.append, turn)
            except DuplicateKey as error:
                await run.sleep("pause", 60)
                return str(error)
            return "no error"

        @workflow
        async def careless(run: Run) -> None:
            for _ in range(2):
                await run.sleep("again", 0)

        async with world.engine(loop, careless) as app:
            _ = success(await app.engine.start(loop, id="r"))
            await app.waits_for("r", "'pause'")
            failed = failure(await ended(success(await app.engine.start(careless, id="careless"))))
            assert isinstance(failed, RunFailed)
            assert failed.error.type == "DuplicateKey"
            assert "'again'" in failed.error.message
        async with world.engine(loop) as app:
            handle = success(await app.engine.start(loop, id="r"))
            text = success(await app.ended_in_time(handle))
            assert "'again'" in text
        assert called == [0]

    async def test_s125_keys_of_a_loop_name_its_turns(self, world: EngineWorld) -> None:
        called: list[int] = []

        @workflow
        async def loop(run: Run) -> None:
            for turn in range(2):
                await run.step(f"k-{turn}", called.append, turn)

        async with world.engine(loop) as app:
            assert await ended(success(await app.engine.start(loop))) == Success(None)
        assert called == [0, 1]

    async def test_s126_a_run_of_a_workflow_that_is_not_registered_is_left_alone(self, world: EngineWorld) -> None:
        @workflow
        async def known(run: Run) -> int:
            return 1

        @workflow
        async def unknown(run: Run) -> int:
            return 2

        async with world.engine(known) as app:
            handle = success(await app.engine.start(unknown, id="r"))
            assert await ended(success(await app.engine.start(known))) == Success(1)
            await app.clock.advance(60_000)
            status = await app.status("r")
            assert (status.state, status.workflow) == ("pending", "unknown")
            timed_out = handle.result(timeout=1)
            result = asyncio.ensure_future(timed_out)
            await app.advance_until(result.done)
            assert "TimedOut" in repr(result.result())
            assert (await app.status("r")).state == "pending"
        async with world.engine(unknown) as app:
            assert await ended(success(await app.engine.start(unknown, id="r"))) == Success(2)

    async def test_s127_a_step_that_is_not_awaited_is_named(self, world: EngineWorld) -> None:
        called: list[str] = []

        @workflow
        async def forgetful(run: Run) -> str:
            run.step("forgotten", called.append, "x")
            return "done"

        with pytest.warns(RuntimeWarning, match="'forgotten'"):
            async with world.engine(forgetful) as app:
                failed = failure(await ended(success(await app.engine.start(forgetful, id="r"))))
        assert isinstance(failed, RunFailed)
        assert "'forgotten'" in failed.error.message
        assert called == []

    async def test_s128_a_finished_run_that_is_started_again_gives_its_outcome(self, world: EngineWorld) -> None:
        called: list[str] = []

        @workflow
        async def once(run: Run, n: int) -> int:
            called.append("workflow")
            await run.step("step", called.append, "step")
            return n

        async with world.engine(once) as app:
            assert await ended(success(await app.engine.start(once, 3, id="r"))) == Success(3)
            before = await app.row("r")
            assert await ended(success(await app.engine.start(once, 3, id="r"))) == Success(3)
            assert await app.row("r") == before
        async with world.engine(once) as app:
            assert await ended(success(await app.engine.start(once, 3, id="r"))) == Success(3)
        assert called == ["workflow", "step"]

    @pytest.mark.parametrize("well", [True, False])
    async def test_s129_an_ended_run_is_not_entered_again(self, world: EngineWorld, well: bool) -> None:
        entered: list[str] = []

        @workflow
        async def once(run: Run) -> str:
            entered.append("top")
            if not well:
                raise RuntimeError("no")
            return "yes"

        async with world.engine(once) as app:
            handle = success(await app.engine.start(once, id="r"))
            first = await ended(handle)
            _ = success(await app.engine.resume("r"))
            _ = success(await app.engine.cancel("r"))
            await app.clock.advance(120_000)
            assert await ended(handle) == first
        async with world.engine(once) as app:
            await app.clock.advance(120_000)
            _ = success(await app.engine.resume("r"))
            assert await ended(success(await app.engine.start(once, id="r"))) == first
        assert isinstance(first, Success) is well
        assert entered == ["top"]


# --- helpers --------------------------------------------------------------------


def _wrong() -> Chat:
    return {"messages": "none"}  # type: ignore[typeddict-item]  # pyright: ignore[reportReturnType]
