"""What every store must do with states of earlier forms of their type, and with earlier revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from stepwell import (
    Failure,
    InvalidState,
    ManualClock,
    Outcome,
    Replace,
    Revision,
    Snapshot,
    StepId,
    Store,
    StoreDefinition,
    StoreNotFound,
    Success,
)
from stepwell.core.batch import Batch, CutLog, Document, EraseStore, WriteBase

from .store_when_contract import LATE_S
from .store_world import Client, World, append, chats, empty, failure, ids_of, success

_A = TypeVar("_A")
_E = TypeVar("_E")

STEP = StepId("run", "key")
UNKNOWN = Revision("nowhere", 0)


class Name(BaseModel):
    """The first form."""

    name: str = ""
    visits: int = 0


class Person(BaseModel):
    """The third."""

    first: str
    last: str
    visits: int = 0


def split(old: dict[str, Any]) -> object:
    first, _, old["last"] = old.pop("name").partition(" ")
    return {**old, "first": first}


def same(old: object) -> object:
    return old


v1 = StoreDefinition("people", Name)
v3 = StoreDefinition("people", Person, version=3, upcasters={1: split, 2: same})
KEY = v1.key("p")


def visit(state: Name | Person) -> None:
    state.visits += 1


def change_nothing(state: object) -> None:
    pass


def never(state: object) -> None:
    raise AssertionError(f"nothing may run on {state!r}")


def never_selected(state: Name) -> str:
    raise AssertionError(f"nothing may run on {state!r}")


def never_claimed(state: Name, selected: str) -> None:
    raise AssertionError(f"nothing may run on {state!r} and {selected!r}")


async def made(store: Store) -> Snapshot[Name]:
    return success(await store.get_or_create(v1, "p", Name(name="Ada Lovelace")))


async def stored(client: Client) -> Document:
    document = success(await client.ledger.document(KEY))
    assert document is not None
    return document


def is_newer(outcome: Outcome[_A, _E]) -> bool:
    """Whether it failed since a newer program wrote the state."""
    failed: object = failure(outcome)
    return isinstance(failed, InvalidState) and "written by a newer program" in failed.issues[0].message


class StoreFormContract:
    # --- forms ----------------------------------------------------------------

    async def test_reading_an_older_form_writes_nothing_and_the_first_change_all(self, world: World) -> None:
        old = await world.client()
        await made(old.store)
        success(await old.store.update(v1, "p", visit))
        before = await stored(old)
        assert before.form == v1.form
        new = await world.client()
        snapshot = success(await new.store.get(v3, "p"))
        assert (snapshot.state, snapshot.version) == (Person(first="Ada", last="Lovelace", visits=1), 1)
        assert success(await new.store.get_or_create(v3, "p", Person(first="", last=""))) == snapshot
        assert await stored(new) == before
        assert success(await old.store.get(v1, "p")).state.visits == 1, "both programs may read until one writes"

        updated = success(await new.store.update(v3, "p", visit))
        assert (updated.state, updated.version) == (Person(first="Ada", last="Lovelace", visits=2), 2)
        after = await stored(new)
        assert (after.form, after.revision) == (v3.form, updated.revision)
        again = await world.restart()
        assert success(await again.store.get(v3, "p")).state == updated.state
        assert success(await again.store.update(v3, "p", visit)).state.visits == 3
        assert (await stored(again)).form == v3.form

    @pytest.mark.parametrize("nothing", [change_nothing, Replace], ids=["nothing", "the same"])
    async def test_a_change_of_nothing_writes_an_older_form_anew(
        self, world: World, nothing: Callable[..., Any]
    ) -> None:
        old, new = await world.client(), await world.client()
        await made(old.store)
        updated = success(await new.store.update(v3, "p", nothing))
        assert (updated.state, updated.version) == (Person(first="Ada", last="Lovelace"), 1)
        after = await stored(new)
        assert (after.form, after.revision) == (v3.form, updated.revision)
        assert is_newer(await old.store.get(v1, "p"))
        assert success(await (await world.restart()).store.get(v3, "p")).state == updated.state

    @pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "cold"])
    async def test_an_older_program_changes_nothing_that_a_newer_one_wrote(self, world: World, is_warm: bool) -> None:
        """Warm: it holds the state of before, and catches up by the patches that followed."""
        old, new = await world.client(), await world.client()
        first = await made(old.store)
        changed = success(await new.store.update(v3, "p", visit))
        if not is_warm:
            old = await world.client()
        before = await stored(new)
        assert is_newer(await old.store.update(v1, "p", never))
        assert is_newer(await old.store.update(v1, "p", lambda _: Replace(Name())))
        assert is_newer(await old.store.update(v1, "p", never, step=STEP))
        assert is_newer(await old.store.update_from(v1, "p", changed.revision, never))
        assert is_newer(await old.store.get(v1, "p"))
        assert is_newer(await old.store.get_or_create(v1, "p", Name()))
        assert is_newer(await old.store.take(v1, "p", never_selected, never_claimed))
        assert await stored(new) == before
        assert success(await old.store.get(v1, "p", version=0)) == first, "what it wrote itself it can still read"
        assert success(await new.store.update(v3, "p", visit)).state.visits == 2

    async def test_an_older_program_is_told_of_a_change_of_nothing_after_the_newer_one(self, world: World) -> None:
        """The last of the patches that it missed names no form of its own."""
        old, new = await world.client(), await world.client()
        await made(old.store)
        success(await new.store.update(v3, "p", visit))
        success(await new.store.update(v3, "p", lambda _: None))
        commits = success(await new.ledger.tail(KEY, Revision((await stored(new)).revision.instance_id, 0)))
        assert commits is not None
        assert commits[0].form == v3.form
        assert commits[1].form in (None, v3.form)
        assert is_newer(await old.store.update(v1, "p", visit))

    async def test_a_newer_program_takes_over_while_the_older_one_still_writes(self, world: World) -> None:
        old, new = await world.client(), await world.client()
        await made(old.store)
        assert success(await new.store.get(v3, "p")).state.visits == 0
        success(await old.store.update(v1, "p", visit))
        success(await old.store.update(v1, "p", visit))
        assert success(await new.store.get(v3, "p")).state.visits == 2
        success(await old.store.update(v1, "p", visit))
        assert success(await new.store.update(v3, "p", visit)).state.visits == 4

    async def test_a_waiter_of_the_older_program_learns_that_it_cannot_go_on(self, world: World) -> None:
        old, new = await world.client(), await world.client()
        await made(old.store)
        success(await new.store.update(v3, "p", visit))
        assert is_newer(await old.store.handle(v1, "p").when(lambda state: state.visits > 9, 1))
        assert success(await new.store.handle(v3, "p").when(lambda state: state.visits)) == 1

    async def test_a_waiter_of_the_newer_program_hears_of_changes_by_the_older_one(self, world: World) -> None:
        """These name other paths than the waiter read. Time stands still, so that no poll can find them."""
        client = await world.client(clock=ManualClock())
        await made(client.store)
        wait = asyncio.create_task(client.store.handle(v3, "p").when(lambda person: person.last == "King"))
        for name in ("Ada Byron", "Ada King"):
            for _ in range(10):
                await asyncio.sleep(0)

            def rename(old: Name, name: str = name) -> None:
                old.name = name

            success(await client.store.update(v1, "p", rename))
        assert success(await asyncio.wait_for(wait, LATE_S)) is True

    async def test_where_no_way_leads_nothing_is_written_and_a_later_program_goes_on(self, world: World) -> None:
        def broken(old: dict[str, Any]) -> object:
            return old["nowhere"]

        gap = StoreDefinition("people", Person, version=3, upcasters={1: split})
        bug = StoreDefinition("people", Person, version=3, upcasters={1: split, 2: broken})
        flat = StoreDefinition("people", Person)
        client = await world.client()
        await made(client.store)
        before = await stored(client)
        for definition, words in (
            (gap, "nothing leads from version 2 to 3"),
            (bug, "upcasters[2], which leads to version 3, raised KeyError: 'nowhere'"),
            (flat, "let define_store have version=2 and upcasters={1: ...}"),
        ):
            store = (await world.client()).store
            for outcome in (await store.get(definition, "p"), await store.update(definition, "p", never)):
                invalid = failure(outcome)
                assert isinstance(invalid, InvalidState)
                assert words in invalid.issues[0].message
            assert await stored(client) == before
        assert success(await (await world.client()).store.update(v3, "p", visit)).state.visits == 1

    async def test_a_field_with_a_default_needs_no_version(self, world: World) -> None:
        class More(BaseModel):
            name: str = ""
            visits: int = 0
            nick: str = "none"

        more = StoreDefinition("people", More)
        client = await world.client()
        await made(client.store)
        assert success(await client.store.get(more, "p")).state == More(name="Ada Lovelace")
        assert success(await client.store.update(more, "p", visit_any)).state.nick == "none"
        assert (await stored(client)).form == more.form != v1.form

    async def test_the_receipt_of_an_older_program_is_answered_in_todays_form(self, world: World) -> None:
        old = await world.client()
        await made(old.store)
        updated = success(await old.store.update(v1, "p", visit, step=STEP))
        new = await world.client()
        success(await new.store.update(v3, "p", visit))
        again = success(await new.store.update(v3, "p", never, step=STEP))
        assert (again.revision, again.previous_version) == (updated.revision, 0)
        assert again.state == Person(first="Ada", last="Lovelace", visits=1)

    async def test_forms_survive_bases_and_long_logs(self, world: World) -> None:
        """Each program makes so many changes that a base is written."""
        client = await world.client()
        await made(client.store)
        for _ in range(150):
            success(await client.store.update(v1, "p", visit))
        for _ in range(150):
            success(await client.store.update(v3, "p", visit))
        fresh = await world.client()
        assert success(await fresh.store.get(v3, "p")).state == Person(first="Ada", last="Lovelace", visits=300)
        for version in (0, 75, 149, 150, 151, 152, 299, 300):
            read = success(await fresh.store.get(v3, "p", version=version))
            assert (read.version, read.state.visits) == (version, version)
            by_the_old = await fresh.store.get(v1, "p", version=version)
            assert isinstance(by_the_old, Success) if version <= 150 else is_newer(by_the_old)

    # --- earlier revisions ----------------------------------------------------

    async def test_earlier_versions_are_snapshots_of_their_own(self, world: World) -> None:
        store = (await world.client()).store
        first = success(await store.get_or_create(chats, "c", empty()))
        for id in ("x", "y"):
            success(await store.update(chats, "c", append(id)))
        for reader in (store, (await world.client()).store):
            for version, ids in enumerate(([], ["x"], ["x", "y"])):
                revision = Revision(first.instance_id, version)
                by_number = success(await reader.get(chats, "c", version=version))
                assert (by_number.revision, ids_of(by_number.state)) == (revision, ids)
                assert success(await reader.get(chats, "c", version=revision)) == by_number
                assert success(await reader.handle(chats, "c").get(version=version)) == by_number
                by_number.state["messages"].append({"id": "mine"})
                assert ids_of(success(await reader.get(chats, "c", version=version)).state) == ids
            assert success(await reader.get(chats, "c")).version == 2
            assert success(await reader.handle(chats, "c").get()).version == 2

    async def test_a_version_that_never_was_is_not_found(self, world: World) -> None:
        client = await world.client()
        store = client.store
        key = chats.key("c")
        assert await store.get(chats, "c", version=0) == Failure(StoreNotFound(key))
        assert await store.get(chats, "c", version=UNKNOWN) == Failure(StoreNotFound(key, UNKNOWN))
        first = success(await store.get_or_create(chats, "c", empty()))
        later = Revision(first.instance_id, 1)
        assert await store.get(chats, "c", version=1) == Failure(StoreNotFound(key, later))
        assert await store.get(chats, "c", version=later) == Failure(StoreNotFound(key, later))
        assert await store.get(chats, "c", version=UNKNOWN) == Failure(StoreNotFound(key, UNKNOWN))
        assert await store.handle(chats, "d").get(version=first.revision) == Failure(
            StoreNotFound(chats.key("d"), first.revision)
        )

    async def test_a_revision_outlives_its_instance_and_a_number_does_not(self, world: World) -> None:
        store = (await world.client()).store
        first = success(await store.get_or_create(chats, "c", empty()))
        updated = success(await store.update(chats, "c", append("x")))
        success(await store.delete(chats, "c"))
        gone = success(await store.get(chats, "c", version=updated.revision))
        assert (gone.revision, ids_of(gone.state)) == (updated.revision, ["x"])
        assert await store.get(chats, "c", version=1) == Failure(StoreNotFound(chats.key("c")))
        second = success(await store.get_or_create(chats, "c", empty()))
        assert success(await store.get(chats, "c", version=0)).revision == second.revision
        assert isinstance(await store.get(chats, "c", version=1), Failure)
        assert success(await store.get(chats, "c", version=first.revision)).revision == first.revision

    async def test_a_version_that_is_kept_no_more_is_not_found(self, world: World) -> None:
        """What is left is read in the form in which it was written."""
        client = await world.client()
        first = await made(client.store)
        for _ in range(2):
            success(await client.store.update(v1, "p", visit))
        success(await client.store.update(v3, "p", visit))
        revisions = [Revision(first.instance_id, version) for version in range(4)]
        documents = [success(await client.ledger.document(KEY, revision)) for revision in revisions]
        seqs = [document.seq for document in documents if document is not None]
        base = WriteBase(seqs[2], b'{"name":"Ada Lovelace","visits":2}')
        cut = CutLog(KEY, seqs[2], (seqs[1], seqs[0]), None, first.instance_id)
        success(await client.ledger.commit(Batch((), (base, cut))))
        for store in (client.store, (await world.client()).store):
            for version in (0, 1):
                gone = Failure(StoreNotFound(KEY, revisions[version]))
                assert await store.get(v3, "p", version=version) == gone
                assert await store.get(v3, "p", version=revisions[version]) == gone
            assert success(await store.get(v1, "p", version=2)).state == Name(name="Ada Lovelace", visits=2)
            assert success(await store.get(v3, "p", version=2)).state.visits == 2
            assert is_newer(await store.get(v1, "p", version=3))
            assert success(await store.get(v3, "p", version=3)).state.visits == 3
        other = await world.client()
        success(await other.store.get(v3, "p"))
        success(await client.store.delete(v3, "p"))
        success(await client.ledger.commit(Batch((), (EraseStore(KEY),))))
        for store in (client.store, other.store):  # the other one still has it in memory
            assert await store.get(v3, "p", version=revisions[3]) == Failure(StoreNotFound(KEY, revisions[3]))

    @pytest.mark.parametrize("version", [-1, True, 1.0, "1", ("i", 1)])
    async def test_other_versions_are_misuse(self, world: World, version: Any) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(chats, "c", empty()))
        with pytest.raises(ValueError if version == -1 else TypeError, match="version"):
            await store.get(chats, "c", version=version)
        with pytest.raises(ValueError if version == -1 else TypeError, match="version"):
            await store.handle(chats, "c").get(version=version)

    async def test_a_snapshot_in_place_of_its_revision_says_so(self, world: World) -> None:
        store = (await world.client()).store
        snapshot: Any = success(await store.get_or_create(chats, "c", empty()))
        with pytest.raises(TypeError, match=r"give its \.revision"):
            await store.get(chats, "c", version=snapshot)


def visit_any(state: Any) -> None:
    state.visits += 1
