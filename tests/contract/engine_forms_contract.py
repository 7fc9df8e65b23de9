"""Runs that go on in a program of a newer version of a store's type."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import Run, StoreDefinition, Success, Workflow, workflow

from .engine_world import EngineWorld, ended, success
from .store_doubles import PlainStore, given_store


class Name(BaseModel):
    name: str = ""
    visits: int = 0


class Person(BaseModel):
    first: str
    last: str
    visits: int = 0


def split(old: dict[str, Any]) -> object:
    first, _, old["last"] = old.pop("name").partition(" ")
    return {**old, "first": first}


v1 = StoreDefinition("people", Name)
v2 = StoreDefinition("people", Person, version=2, upcasters={1: split})
flat = StoreDefinition("people", Person)


def visit(state: Name | Person) -> None:
    state.visits += 1


def rename(state: Name) -> None:
    state.name = "Ada King"


def is_renamed(person: Person) -> bool:
    return person.last == "King"


def program_of(people: StoreDefinition[Any], seen: list[list[object]]) -> Workflow[[], int]:
    """The workflow as one program has it. What it was handed before the pause it is handed again after it."""

    @workflow(name="visiting")
    async def visiting(run: Run) -> int:
        person = run.store(people, "p")
        made = success(await person.get_or_create("make", lambda: Name(name="Ada Lovelace")))
        updated = success(await person.update("visit", visit))
        read = success(await person.get("read"))
        seen.append([made.state, updated.state, read.state])
        await run.sleep("pause", 60)
        last: int = success(await person.update("visit again", visit)).state.visits
        return last

    return visiting


class EngineFormsContract:
    @pytest.mark.parametrize("store", ["joins", "keeps no row"])
    async def test_a_run_goes_on_in_a_program_of_a_newer_version(self, world: EngineWorld, store: str) -> None:
        """A store that cannot join has the state in the row of the run, in the form in which that was written."""
        seen: list[list[object]] = []
        old, new = program_of(v1, seen), program_of(v2, seen)
        async with world.engine(drive=False) as client:
            given = None if store == "joins" else given_store(PlainStore(client.store))
            async with world.engine(old, store=given) as app:
                success(await app.engine.start(old, id="r"))
                await app.waits_for("r", "'pause'")
            async with world.engine(new, store=given) as app:
                assert await app.result_in_time("r") == Success(2)
        names = [Name(name="Ada Lovelace", visits=visits) for visits in (0, 1, 1)]
        people = [Person(first="Ada", last="Lovelace", visits=visits) for visits in (0, 1, 1)]
        assert seen == [names, people]

    async def test_a_run_of_the_newer_program_hears_of_changes_by_the_older_one(self, world: EngineWorld) -> None:
        """These name other paths than the run read. Time stands still, so that no poll can find them."""

        @workflow
        async def waiting(run: Run) -> bool:
            return success(await run.store(v2, "p").when("renamed", is_renamed))

        async with world.engine(waiting) as app:
            success(await app.store.get_or_create(v1, "p", Name(name="Ada Byron")))
            handle = success(await app.engine.start(waiting, id="r"))
            await app.waits_for("r", "'renamed'")
            success(await app.store.update(v1, "p", rename))
            assert await ended(handle) == Success(True)

    async def test_where_no_way_leads_the_run_is_stuck_and_says_why(self, world: EngineWorld) -> None:
        seen: list[list[object]] = []
        old, without, new = (program_of(people, seen) for people in (v1, flat, v2))
        async with world.engine(old) as app:
            success(await app.engine.start(old, id="r"))
            await app.waits_for("r", "'pause'")
        async with world.engine(without) as app:
            await app.clock.advance(60_000)
            problem = (await app.becomes("r", "stuck")).problem or ""
            assert "no longer fits its type: the state was written by another form of its type" in problem
            assert "version=2 and upcasters={1: ...}" in problem
        async with world.engine(new) as app:
            success(await app.engine.resume("r"))
            assert await app.result_in_time("r") == Success(2)
        assert len(seen) == 2
