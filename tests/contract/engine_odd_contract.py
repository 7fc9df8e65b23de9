"""Errors that are no `Exception`, results that nobody could read, and records that the code no longer fits."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from pydantic import BaseModel, field_validator

from stepwell import AnyWorkflow, Run, RunFailed, StepFailed, Success, define_store, workflow

from .engine_world import EngineWorld, ended, failure, success


class Abort(BaseException):
    """What a library raises that wants to pass `except Exception`."""


class Halved(BaseModel):
    """Reading it changes it, and the second time there is nothing left to halve."""

    number: int

    @field_validator("number")
    @classmethod
    def halve(cls, number: int) -> int:
        if number % 2:
            raise ValueError("it is odd")
        return number // 2


refused = set[str]()
"""Names that the type of today no longer admits: what a changed annotation does, for one class."""


class Person(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def admit(cls, name: str) -> str:
        if name in refused:
            raise ValueError(f"{name} is no name any more")
        return name


people = define_store("people", Person)


class EngineOddContract:
    # --- errors that are no Exception -------------------------------------------

    @pytest.mark.parametrize("where", ["step", "async step", "updater", "selector", "branch"])
    async def test_a_base_exception_of_a_step_is_its_error(self, world: EngineWorld, where: str) -> None:
        def abort() -> None:
            raise Abort("no more")

        async def abort_async() -> None:
            raise Abort("no more")

        @workflow
        async def aborting(run: Run) -> str:
            try:
                match where:
                    case "step":
                        await run.step("s", abort)
                    case "async step":
                        await run.step("s", abort_async)
                    case "updater":
                        _ = await run.store(people, "p").update("u", lambda _: abort())
                    case "selector":
                        _ = await run.store(people, "p").select("u", lambda _: abort())
                    case _:
                        await run.gather(run.step("s", abort), run.sleep("nap", 0))
            except StepFailed as failed:
                return f"{failed.error.type}: {failed.error.message}"
            return "no error"

        async with world.engine(aborting) as app:
            _ = success(await app.store.get_or_create(people, "p", Person(name="Ann")))
            assert await ended(success(await app.engine.start(aborting))) == Success("Abort: no more")

    async def test_a_base_exception_of_a_workflow_is_its_outcome(self, world: EngineWorld) -> None:
        @workflow
        async def aborting(run: Run) -> None:
            raise Abort("no more")

        @workflow
        async def grouped(run: Run) -> None:
            raise BaseExceptionGroup("both", [Abort("one"), ValueError("other")])

        async with world.engine(aborting, grouped) as app:
            for flow, kind in ((aborting, "Abort"), (grouped, "BaseExceptionGroup")):
                failed = failure(await ended(success(await app.engine.start(flow))))
                assert isinstance(failed, RunFailed)
                assert failed.error.type == kind

    async def test_a_run_that_is_set_aside_in_a_task_group_is_given_back(self, world: EngineWorld) -> None:
        @workflow
        async def grouping(run: Run) -> str:
            async with asyncio.TaskGroup():
                await run.sleep("nap", 60)
            return "there"

        async with world.engine(grouping) as app:
            _ = success(await app.engine.start(grouping, id="r"))
            await app.waits_for("r", "'nap'")
        async with world.engine(drive=False) as client:
            row = await client.row("r")
            assert (row.state, row.owner) == ("waiting", None)
        async with world.engine(grouping) as app:
            assert await app.result_in_time("r") == Success("there")

    # --- results ----------------------------------------------------------------

    @pytest.mark.parametrize("what", ["nothing", "halved"])
    async def test_a_result_that_could_not_be_read_fails_the_run(
        self, world: EngineWorld, what: Literal["nothing", "halved"]
    ) -> None:
        @workflow
        async def forgetful(run: Run) -> int:
            return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

        @workflow
        async def halving(run: Run) -> Halved:
            return Halved(number=6)

        flow: AnyWorkflow = forgetful if what == "nothing" else halving
        async with world.engine(flow) as app:
            _ = success(await app.engine.start(flow, id="r"))
            failed = failure(await app.result_in_time("r"))
            assert isinstance(failed, RunFailed)
            assert failed.error.type == "TypeError"
            assert flow.name in failed.error.message

    # --- changed types ----------------------------------------------------------

    @pytest.mark.parametrize("what", ["step", "select", "get", "update"])
    async def test_a_record_that_no_longer_fits_its_type_makes_the_run_stuck(
        self, world: EngineWorld, what: str
    ) -> None:
        called: list[str] = []

        def read() -> Person:
            called.append("read")
            return Person(name="Ann")

        def choose(person: Person) -> Person:
            return person

        @workflow
        async def remembering(run: Run) -> str:
            person = run.store(people, "p")
            match what:
                case "step":
                    _ = await run.step("read", read)
                case "select":
                    _ = success(await person.select("read", choose))
                case "get":
                    _ = success(await person.get("read"))
                case _:
                    _ = success(await person.update("read", lambda person: None))
            await run.sleep("nap", 60)
            return "there"

        async with world.engine(remembering) as app:
            _ = success(await app.store.get_or_create(people, "p", Person(name="Ann")))
            _ = success(await app.engine.start(remembering, id="r"))
            await app.waits_for("r", "'nap'")
        refused.add("Ann")
        try:
            async with world.engine(remembering) as app:
                await app.clock.advance(60_000)
                problem = (await app.becomes("r", "stuck")).problem or ""
        finally:
            refused.clear()
        assert "no longer fits" in problem
        assert "Ann is no name any more" in problem
        assert "resume" in problem
        async with world.engine(remembering) as app:
            assert await app.engine.resume("r") == Success(None)
            assert await app.result_in_time("r") == Success("there")
        assert called == (["read"] if what == "step" else [])
