"""A durable call that is used wrongly says so, by its key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from stepwell import Run, StepFailed, workflow

from .engine_world import EngineWorld, ended, success
from .store_world import Chat, chats, empty


@pytest.fixture
def world(tmp_path: Path) -> EngineWorld:
    return EngineWorld("memory", tmp_path)


async def test_what_was_not_awaited_has_nothing_yet(world: EngineWorld) -> None:
    @workflow
    async def forgets(run: Run) -> str:
        call = run.step("price", int)
        try:
            _ = call.unwrap()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        except AttributeError as error:
            return f"{error}; {await call}"
        return "nothing was said"

    async with world.engine(forgets) as app:
        said = success(await ended(success(await app.engine.start(forgets))))
        assert "'price'" in said
        assert "write `await`" in said


async def test_a_call_is_awaited_once(world: EngineWorld) -> None:
    @workflow
    async def twice(run: Run) -> str:
        call = run.step("price", int)
        _ = await call
        try:
            _ = await call
        except RuntimeError as error:
            return str(error)
        return "nothing was said"

    async with world.engine(twice) as app:
        said = success(await ended(success(await app.engine.start(twice))))
        assert "'price' was awaited before" in said


async def test_a_selector_is_a_function(world: EngineWorld) -> None:
    @workflow
    async def mistakes(run: Run) -> list[str]:
        store, said = run.store(chats, "c"), list[str]()
        for call in (store.when, store.select):
            try:
                _ = await call("key", "selector")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
            except TypeError as error:
                said.append(str(error))
        return said

    async with world.engine(mistakes) as app:
        said = success(await ended(success(await app.engine.start(mistakes))))
        assert said == ["the selector of 'key' is a function, not 'selector'"] * 2


async def test_a_bug_in_a_selector_is_no_misuse(world: EngineWorld) -> None:
    def buggy(chat: Chat) -> str:
        count: object = chat.get("unrelated")
        return str.upper(count)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    @workflow
    async def looks(run: Run) -> str:
        store = run.store(chats, "c")
        _ = await store.get_or_create("make", empty)
        try:
            return success(await store.when("ready", buggy))
        except StepFailed as failed:
            return failed.error.type

    async with world.engine(looks) as app:
        assert success(await ended(success(await app.engine.start(looks)))) == "TypeError"


@pytest.mark.parametrize("span", [1e13, timedelta.max, -1, float("nan"), float("inf")])
async def test_a_time_has_its_bounds(world: EngineWorld, span: timedelta | float) -> None:
    @workflow
    async def sleeps(run: Run) -> str:
        try:
            await run.sleep("nap", span)
        except ValueError as error:
            return str(error)
        return "nothing was said"

    async with world.engine(sleeps) as app:
        said = success(await ended(success(await app.engine.start(sleeps))))
        assert "'nap'" in said


async def test_whoever_drives_a_run_that_is_stuck_says_so(world: EngineWorld, caplog: pytest.LogCaptureFixture) -> None:
    @workflow(name="w")
    async def before(run: Run) -> None:
        await run.sleep("long", 60)

    @workflow(name="w")
    async def after(run: Run) -> None:
        await run.sleep("short", 60)

    async with world.engine(before) as app:
        _ = success(await app.engine.start(before, id="r"))
        await app.waits_for("r", "'long'")
    async with world.engine(after) as app:
        await app.clock.advance(60_000)
        _ = await app.becomes("r", "stuck")
    assert [record.name for record in caplog.records] == ["stepwell"]
    assert "run r is stuck: " in caplog.text
    assert "'short'" in caplog.text
