"""What every store must do: identity, updates, receipts, and conditional changes."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TypeVar

import pytest

from stepwell import (
    Conflict,
    Contended,
    Deleted,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StepId,
    Store,
    StoreDefinition,
    StoreKey,
    StoreNotFound,
    define_store,
)

from .ledger_double import Rivalled
from .store_world import Chat, Counted, World, append, chats, empty, failure, ids_of, success

_T = TypeVar("_T")

others = define_store("other", Chat)
a_stores = define_store("a", dict[str, int])
ab_stores = define_store("a:b", dict[str, int])
numbers = define_store("falsy.int", int)
flags = define_store("falsy.bool", bool)
lists = define_store("falsy.list", list[int])
tables = define_store("falsy.dict", dict[str, int])
nothings = define_store("falsy.none", int | None)

ONE_A, ONE_B, TWO_A = StepId("one", "a"), StepId("one", "b"), StepId("two", "a")


async def made(store: Store, id: str = "c") -> Snapshot[Chat]:
    """A store that exists now: version 0, without messages."""
    return success(await store.get_or_create(chats, id, empty()))


async def messages(store: Store, id: str = "c") -> tuple[int, list[str]]:
    snapshot = success(await store.get(chats, id))
    return snapshot.version, ids_of(snapshot.state)


async def assert_kept(store: Store, definition: StoreDefinition[_T], state: _T) -> None:
    """It is created from `state`, exists then, and holds exactly that."""
    created = success(await store.get_or_create(definition, "s", state))
    read = success(await store.get(definition, "s"))
    assert (created.version, read.version) == (0, 0)
    assert repr(created.state) == repr(read.state) == repr(state)
    assert success(await store.list_ids(definition)) == ("s",)


class StoreContract:
    # --- identity, creation, listing, deletion -------------------------------

    async def test_s1_stores_are_told_apart_by_name_and_id(self, world: World) -> None:
        store = (await world.client()).store
        created = [
            success(await store.get_or_create(definition, id, empty()))
            for definition, id in ((chats, "b"), (chats, "a"), (others, "a"))
        ]
        assert success(await store.list_ids(chats)) == ("a", "b")
        assert success(await store.list_ids(others)) == ("a",)
        ids = [snapshot.instance_id for snapshot in created]
        assert all(ids)
        assert len(set(ids)) == 3

    async def test_s2_a_deleted_store_is_neither_listed_nor_found(self, world: World) -> None:
        store = (await world.client()).store
        await made(store, "a")
        await made(store, "b")
        assert success(await store.delete(chats, "b")) is None
        assert success(await store.list_ids(chats)) == ("a",)
        assert failure(await store.get(chats, "b")) == StoreNotFound(StoreKey("chat", "b"))

    async def test_s3_a_store_that_is_created_again_is_another_instance(self, world: World) -> None:
        store = (await world.client()).store
        first = await made(store, "b")
        for id in ("x", "y"):
            success(await store.update(chats, "b", append(id)))
        success(await store.delete(chats, "b"))
        again = await made(store, "b")
        assert again.version == 0
        assert again.instance_id > first.instance_id
        assert again.state == {"messages": []}

    async def test_s4_deleting_what_is_not_there_is_a_success(self, world: World) -> None:
        store = (await world.client()).store
        assert success(await store.delete(chats, "missing")) is None
        await made(store)
        assert success(await store.delete(chats, "c")) is None
        assert success(await store.delete(chats, "c")) is None

    async def test_s5_a_missing_store_is_named_by_its_name_and_id(self, world: World) -> None:
        store = (await world.client()).store
        missing = failure(await store.get(define_store("memory-test", Chat), "b"))
        assert isinstance(missing, StoreNotFound)
        assert (missing.key.name, missing.key.id) == ("memory-test", "b")
        assert "memory-test" in str(missing)
        assert "'b'" in str(missing)

    async def test_s6_falsy_states_are_states(self, world: World) -> None:
        store = (await world.client()).store
        await assert_kept(store, tables, {})
        await assert_kept(store, lists, [])
        await assert_kept(store, numbers, 0)
        await assert_kept(store, flags, False)
        await assert_kept(store, nothings, None)

    async def test_s6_a_function_that_gives_a_falsy_state_is_called_once(self, world: World) -> None:
        store = (await world.client()).store
        calls: list[str] = []

        def zero() -> int:
            calls.append("zero")
            return 0

        async def none() -> int | None:
            calls.append("none")
            return None

        assert success(await store.get_or_create(numbers, "s", zero)).state == 0
        assert success(await store.get_or_create(numbers, "s", zero)).state == 0
        assert success(await store.get_or_create(nothings, "s", none)).state is None
        assert success(await store.get_or_create(nothings, "s", none)).state is None
        assert calls == ["zero", "none"]

    async def test_s7_two_tasks_that_create_one_store_get_one_instance(self, world: World) -> None:
        store = (await world.client()).store
        owners = define_store("owner", dict[str, int])

        async def create(number: int) -> Snapshot[dict[str, int]]:
            async def initial() -> dict[str, int]:
                await asyncio.sleep(0)
                return {"owner": number}

            return success(await store.get_or_create(owners, "o", initial))

        one, other = await asyncio.gather(create(1), create(2))
        assert one.revision == other.revision
        assert one.version == 0
        assert one.state == other.state == success(await store.get(owners, "o")).state
        assert one.state["owner"] in (1, 2)

    async def test_s8_two_clients_that_create_one_store_get_one_instance(self, world: World) -> None:
        stores = [(await world.client()).store for _ in range(2)]
        one, other = await asyncio.gather(*(made(store) for store in stores))
        assert one.revision == other.revision
        assert [success(await store.get(chats, "c")).revision for store in stores] == [one.revision, one.revision]

    async def test_s9_names_and_ids_with_colons_do_not_collide(self, world: World) -> None:
        store = (await world.client()).store
        step = StepId("run", "key")
        success(await store.get_or_create(a_stores, "b:c", {"n": 0}))
        success(await store.get_or_create(ab_stores, "c", {"n": 10}))
        success(await store.update(a_stores, "b:c", lambda s: s.update(n=1), step=step))
        assert success(await store.get(ab_stores, "c")).state == {"n": 10}
        assert success(await store.list_ids(a_stores)) == ("b:c",)
        other = success(await store.update(ab_stores, "c", lambda s: s.update(n=11), step=step))
        assert (other.version, other.state) == (1, {"n": 11})

    async def test_s10_instance_ids_ascend_in_the_order_of_creation(self, world: World) -> None:
        store = (await world.client()).store
        created = [(await made(store, f"c-{number}")).instance_id for number in range(100)]
        assert all(re.fullmatch(r"[0-9a-f-]+", id) for id in created)
        assert created == sorted(set(created))

    async def test_s11_whoever_is_second_gets_the_first_initial_state(self, world: World) -> None:
        store = (await world.client()).store
        handle = store.handle(tables, "shared")
        assert success(await store.list_ids(tables)) == ()  # a handle alone does nothing
        results = await asyncio.gather(*(handle.get_or_create({"n": 1}) for _ in range(2)))
        assert {success(result).revision for result in results} == {success(results[0]).revision}
        assert success(await handle.get()).state == {"n": 1}

        def never() -> dict[str, int]:
            raise AssertionError("the store exists")

        assert success(await store.get_or_create(tables, "shared", never)).state == {"n": 1}

    # --- updates, receipts, contention ---------------------------------------

    async def test_s13_two_updates_at_once_are_both_applied(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updaters = Counted(append("a")), Counted(append("b"))
        results = await asyncio.gather(*(store.update(chats, "c", updater) for updater in updaters))
        updates = sorted((success(result) for result in results), key=lambda updated: updated.version)
        assert [updated.version for updated in updates] == [1, 2]
        assert [updated.previous_version for updated in updates] == [0, 1]
        version, ids = await messages(store)
        assert (version, sorted(ids)) == (2, ["a", "b"])
        assert ids_of(updates[0].state) == ids[:1]
        assert ids_of(updates[1].state) == ids
        assert sum(updater.runs for updater in updaters) <= 3

    async def test_s14_two_clients_at_once_lose_nothing(self, world: World) -> None:
        stores = [(await world.client()).store for _ in range(2)]
        await made(stores[0])
        for round in range(5):
            names = [f"{round}-{number}" for number in range(2)]
            results = await asyncio.gather(
                *(store.update(chats, "c", append(name)) for store, name in zip(stores, names, strict=True))
            )
            assert {success(result).version for result in results} == {2 * round + 1, 2 * round + 2}
        for store in stores:
            version, ids = await messages(store)
            assert (version, sorted(ids)) == (10, sorted(f"{round}-{n}" for round in range(5) for n in range(2)))

    async def test_s15_one_step_at_once_is_applied_once(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updater = Counted(append("x"))
        results = await asyncio.gather(*(store.update(chats, "c", updater, step=ONE_A) for _ in range(2)))
        one, other = (success(result) for result in results)
        assert (one, one.state) == (other, other.state)
        assert (one.version, updater.runs in (1, 2)) == (1, True)
        assert await messages(store) == (1, ["x"])

    async def test_s15_one_step_at_once_by_two_clients_is_applied_once(self, world: World) -> None:
        stores = [(await world.client()).store for _ in range(2)]
        await made(stores[0])
        updater = Counted(append("x"))
        results = await asyncio.gather(*(store.update(chats, "c", updater, step=ONE_A) for store in stores))
        one, other = (success(result) for result in results)
        assert (one, one.state) == (other, other.state)
        assert updater.runs in (1, 2)
        assert await messages(stores[0]) == (1, ["x"])

    async def test_s16_a_step_that_was_applied_gives_its_result_and_runs_nothing(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updater = Counted(append("x"))
        first = success(await store.update(chats, "c", updater, step=ONE_A))
        assert (first.previous_version, first.version) == (0, 1)
        success(await store.update(chats, "c", append("y")))
        again = success(await store.update(chats, "c", updater, step=ONE_A))
        assert (again, again.state) == (first, first.state)
        assert ids_of(again.state) == ["x"]
        assert updater.runs == 1
        store = (await world.restart()).store
        again = success(await store.update(chats, "c", updater, step=ONE_A))
        assert (again, again.state, updater.runs) == (first, first.state, 1)

    async def test_s17_a_receipt_survives_deletion_and_recreation(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updater = Counted(append("x"))
        first = success(await store.update(chats, "c", updater, step=ONE_A))
        success(await store.delete(chats, "c"))
        await made(store)
        again = success(await store.update(chats, "c", updater, step=ONE_A))
        assert (again, again.state, updater.runs) == (first, first.state, 1)
        assert await messages(store) == (0, [])

    async def test_s18_a_receipt_comes_before_existence(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updater = Counted(append("x"))
        first = success(await store.update(chats, "c", updater, step=ONE_A))
        success(await store.delete(chats, "c"))
        again = success(await store.update(chats, "c", updater, step=ONE_A))
        assert (again, again.state, updater.runs) == (first, first.state, 1)
        assert isinstance(failure(await store.get(chats, "c")), StoreNotFound)

    async def test_s19_steps_of_other_keys_and_runs_are_others(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        for step, id in ((ONE_A, "m-1"), (ONE_B, "m-2"), (TWO_A, "m-3")):
            success(await store.update(chats, "c", append(id), step=step))
        assert await messages(store) == (3, ["m-1", "m-2", "m-3"])

    async def test_s20_without_a_step_every_call_counts(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updater = Counted(append("x"))
        for _ in range(2):
            success(await store.update(chats, "c", updater))
        assert updater.runs == 2
        assert await messages(store) == (2, ["x", "x"])

    async def test_s21_states_that_were_handed_in_and_out_are_the_callers_own(self, world: World) -> None:
        store = (await world.client()).store
        initial = empty()
        created = success(await store.get_or_create(chats, "c", initial))
        initial["messages"].append({"id": "mine"})
        created.state["messages"].append({"id": "mine"})
        for id in ("x", "y"):
            updated = success(await store.update(chats, "c", append(id)))
            updated.state["messages"].append({"id": "mine"})
            snapshot = success(await store.get(chats, "c"))
            snapshot.state["messages"].clear()
        assert await messages(store) == (2, ["x", "y"])
        assert success(await store.get(chats, "c")).state == {"messages": [{"id": "x"}, {"id": "y"}]}

    async def test_s22_a_receipt_of_an_update_answers_no_other_kind(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        success(await store.update(chats, "c", append("x"), step=ONE_A))
        updater = Counted(append("y"))
        mismatch = failure(await store.update_from(chats, "c", snapshot, updater, step=ONE_A))
        assert mismatch == ReceiptMismatch(ONE_A, recorded="update", requested="update_from")
        mismatch = failure(await store.delete_from(chats, "c", snapshot, step=ONE_A))
        assert mismatch == ReceiptMismatch(ONE_A, recorded="update", requested="delete_from")
        assert updater.runs == 0
        assert await messages(store) == (1, ["x"])

    async def test_s24_whoever_is_always_passed_ends_contended(self, world: World) -> None:
        other = (await world.client()).store
        await made(other)
        quiet = False

        async def rival() -> None:
            if not quiet:
                success(await other.update(chats, "c", append("other")))

        client = await world.client(around=lambda ledger: Rivalled(ledger, rival))
        updater = Counted(append("mine"))
        contended = failure(await client.store.update(chats, "c", updater, step=ONE_A))
        assert isinstance(contended, Contended)
        assert contended == Contended(StoreKey("chat", "c"), updater.runs)
        assert 2 <= contended.attempts <= 100
        pauses = world.clock.sleeps_ms
        assert pauses == sorted(pauses)
        assert pauses[0] < pauses[-1]
        assert contended.attempts // 2 < len(pauses) < contended.attempts
        assert success(await client.ledger.receipt(StoreKey("chat", "c"), ONE_A)) is None
        assert await messages(other) == (contended.attempts, ["other"] * contended.attempts)
        quiet = True
        later = success(await client.store.update(chats, "c", updater, step=ONE_A))
        assert ids_of(later.state) == ["other"] * contended.attempts + ["mine"]

    async def test_s25_updating_what_is_not_there_creates_nothing(self, world: World) -> None:
        store = (await world.client()).store
        updater = Counted(append("x"))
        assert failure(await store.update(chats, "c", updater)) == StoreNotFound(StoreKey("chat", "c"))
        assert failure(await store.update(chats, "c", updater, step=ONE_A)) == StoreNotFound(StoreKey("chat", "c"))
        assert updater.runs == 0
        assert success(await store.list_ids(chats)) == ()

    async def test_s26_a_receipt_that_an_earlier_process_left_is_honoured(self, world: World) -> None:
        if world.host == "memory":  # the other process is another client
            before = (await world.client()).store
            snapshot = await made(before)
            success(await before.update_from(chats, "c", snapshot, append("x"), step=ONE_A))
        else:
            await run_process("update_from", world.path, "x")
        store = (await world.client()).store
        updater = Counted(append("y"))
        again = success(await store.update_from(chats, "c", Revision("any", 7), updater, step=ONE_A))
        assert (again.previous_version, again.version, ids_of(again.state), updater.runs) == (0, 1, ["x"], 0)
        assert await messages(store) == (1, ["x"])

    async def test_s143_one_step_on_two_stores_is_two_operations(self, world: World) -> None:
        client = await world.client()
        await made(client.store, "one")
        await made(client.store, "two")
        for id in ("one", "two", "one", "two"):
            updated = success(await client.store.update(chats, id, append(id), step=ONE_A))
            assert (updated.version, ids_of(updated.state)) == (1, [id])
        for id in ("one", "two"):
            receipt = success(await client.ledger.receipt(StoreKey("chat", id), ONE_A))
            assert receipt is not None
            assert receipt.key == StoreKey("chat", id)
            assert await messages(client.store, id) == (1, [id])

    async def test_s147_a_state_read_late_is_that_of_its_own_revision(self, world: World) -> None:
        store = (await world.client()).store
        created = await made(store)
        updates = [success(await store.update(chats, "c", append(id))) for id in ("x", "y", "z")]
        assert [ids_of(updated.state) for updated in updates] == [["x"], ["x", "y"], ["x", "y", "z"]]
        assert created.state == {"messages": []}
        replayed = success(await store.update(chats, "c", append("w"), step=ONE_A))
        again = success(await store.update(chats, "c", append("w"), step=ONE_A))
        success(await store.delete(chats, "c"))
        assert ids_of(again.state) == ids_of(replayed.state) == ["x", "y", "z", "w"]

    # --- conditional updates and deletions -----------------------------------

    async def test_s27_an_update_from_the_current_snapshot(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        updated = success(await store.update_from(chats, "c", snapshot, append("x"), step=ONE_A))
        assert (updated.previous_version, updated.version) == (0, 1)
        assert updated.instance_id == snapshot.instance_id
        assert updated.state == {"messages": [{"id": "x"}]}
        further = success(await store.update_from(chats, "c", updated.revision, append("y")))
        assert (further.version, ids_of(further.state)) == (2, ["x", "y"])

    async def test_s28_a_receipt_comes_before_the_comparison(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        updater = Counted(append("x"))
        first = success(await store.update_from(chats, "c", snapshot, updater, step=ONE_A))
        success(await store.update(chats, "c", append("y")))
        again = success(await store.update_from(chats, "c", Revision("wrong", 0), updater, step=ONE_A))
        assert (again, again.state, updater.runs) == (first, first.state, 1)
        assert await messages(store) == (2, ["x", "y"])

    async def test_s29_an_old_snapshot_is_a_conflict(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        for id in ("x", "y"):
            success(await store.update(chats, "c", append(id)))
        updater = Counted(append("z"))
        conflict = failure(await store.update_from(chats, "c", snapshot, updater))
        assert isinstance(conflict, Conflict)
        assert (conflict.expected.version, conflict.actual.version, updater.runs) == (0, 2, 0)
        assert await messages(store) == (2, ["x", "y"])

    async def test_s30_a_conflict_names_both_sides_and_leaves_no_receipt(self, world: World) -> None:
        client = await world.client()
        store, key = client.store, StoreKey("chat", "c")
        snapshot = await made(store)
        success(await store.update_from(chats, "c", snapshot, append("msg-1")))
        instance = snapshot.instance_id
        conflict = failure(await store.update_from(chats, "c", snapshot, append("msg-2"), step=ONE_A))
        assert conflict == Conflict(key, expected=Revision(instance, 0), actual=Revision(instance, 1))
        assert success(await client.ledger.receipt(key, ONE_A)) is None
        current = success(await store.get(chats, "c"))
        later = success(await store.update_from(chats, "c", current, append("msg-2"), step=ONE_A))
        assert ids_of(later.state) == ["msg-1", "msg-2"]

    async def test_s31_a_revision_without_an_instance_id_is_refused(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        with pytest.raises(ValueError, match="needs the instance id"):
            await store.update_from(chats, "c", Revision("", 0), append("x"))
        assert await messages(store) == (0, [])

    async def test_s32_an_update_from_a_store_that_is_gone(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        success(await store.delete(chats, "c"))
        updater = Counted(append("x"))
        missing = failure(await store.update_from(chats, "c", snapshot, updater))
        assert missing == StoreNotFound(StoreKey("chat", "c"), expected=snapshot.revision)
        assert updater.runs == 0

    async def test_s33_the_callers_copy_is_never_the_base(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        for number in range(99):
            snapshot.state["messages"].append({"id": f"false-{number}"})
        updated = success(await store.update_from(chats, "c", snapshot, append("x")))
        assert ids_of(updated.state) == ["x"]
        assert await messages(store) == (1, ["x"])

    async def test_s34_a_lost_race_is_a_conflict(self, world: World) -> None:
        other = (await world.client()).store
        snapshot = await made(other)

        async def rival() -> None:
            success(await other.update(chats, "c", append("other")))

        client = await world.client(around=lambda ledger: Rivalled(ledger, rival))
        updater = Counted(append("mine"))
        conflict = failure(await client.store.update_from(chats, "c", snapshot, updater))
        assert isinstance(conflict, Conflict)
        assert (conflict.expected, conflict.actual.version) == (snapshot.revision, 1)
        assert updater.runs <= 1
        assert await messages(other) == (1, ["other"])

    async def test_s35_a_deletion_from_an_old_snapshot_is_a_conflict(self, world: World) -> None:
        client = await world.client()
        store, key = client.store, StoreKey("chat", "c")
        snapshot = await made(store)
        success(await store.update(chats, "c", append("x")))
        conflict = failure(await store.delete_from(chats, "c", snapshot, step=ONE_A))
        assert conflict == Conflict(key, snapshot.revision, Revision(snapshot.instance_id, 1))
        assert await messages(store) == (1, ["x"])
        assert success(await client.ledger.receipt(key, ONE_A)) is None

    async def test_s36_a_deletion_from_the_current_snapshot(self, world: World) -> None:
        store = (await world.client()).store
        snapshot = await made(store)
        assert success(await store.delete_from(chats, "c", snapshot, step=ONE_A)) == Deleted()
        assert isinstance(failure(await store.get(chats, "c")), StoreNotFound)
        await made(store)
        assert success(await store.delete_from(chats, "c", snapshot, step=ONE_A)) == Deleted()  # by its receipt
        assert await messages(store) == (0, [])

    async def test_s37_a_deletion_from_a_store_that_is_gone_records_nothing(self, world: World) -> None:
        client = await world.client()
        snapshot = await made(client.store)
        success(await client.store.delete(chats, "c"))
        missing = failure(await client.store.delete_from(chats, "c", snapshot, step=ONE_A))
        assert missing == StoreNotFound(StoreKey("chat", "c"), expected=snapshot.revision)
        assert success(await client.ledger.receipt(StoreKey("chat", "c"), ONE_A)) is None


async def run_process(action: str, path: Path, name: str) -> None:
    """Another process of the system does something to the database, and ends."""
    script = Path(__file__).with_name("store_process.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), action, str(path), name)
    assert await process.wait() == 0
